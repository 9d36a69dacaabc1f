"""Read a definition's source text: the text itself, and the names and attributes that it takes from outside."""

from __future__ import annotations

import ast
import inspect
import re
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from nojit.runtime.recording.triton_functions import kind_of

__all__ = ["chains_in", "globals_in", "scope_of", "text_of"]


def text_of(value: Any) -> tuple[str, int]:
    """Return the text of a function or aggregate class, and the line where it starts.

    Raises:
        OSError: the source cannot be read.
    """
    if isinstance(value, type):
        lines, start = inspect.getsourcelines(value)
        return textwrap.dedent("".join(lines)), start
    # the functions of Triton hold their text; a program may have replaced it
    text = getattr(value, "src", None)
    inner = value.fn
    if text is not None and hasattr(value, "starting_line_number"):
        raw = value.raw_src
        skipped = next((n for n, line in enumerate(raw) if re.match(r"\s*(async\s+)?def\s", line)), 0)
        return text, value.starting_line_number + skipped
    lines, start = inspect.getsourcelines(inner)
    whole = textwrap.dedent("".join(lines))
    found = re.search(r"^def\s+\w+\s*\(", whole, re.MULTILINE)
    offset = found.start() if found else 0
    return whole[offset:], start + whole.count("\n", 0, offset)


def globals_in(text: str) -> set[str]:
    """Return the names that a definition's text reads from outside."""
    top = symtable.symtable(text, "<closure>", "exec")
    names: set[str] = set()
    pending = list(top.get_children())
    # a class reads names in its body, and decorators are names of the text's top level
    if pending and pending[0].get_type() == "class":
        names.update(symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced())
    while pending:
        table = pending.pop()
        names.update(symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
        pending += table.get_children()
    # Triton evaluates the annotations and defaults of params, which are names of the text's top level
    evaluated: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg):
            evaluated.append(node.annotation)
        elif isinstance(node, ast.arguments):
            evaluated += [*node.defaults, *node.kw_defaults]
    names.update(node.id for each in filter(None, evaluated) for node in ast.walk(each) if isinstance(node, ast.Name))
    return names


def chains_in(text: str) -> Iterator[tuple[str, ...]]:
    """Yield each chain of attributes in a text, such as ``("tl", "extra", "libdevice")``, without its shorter starts."""
    inner: set[ast.AST] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute) or node in inner:
            continue
        chain, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            inner.add(value)
            chain.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            yield (value.id, *reversed(chain))


def scope_of(value: Any) -> Mapping[str, Any]:
    """Return the global and captured names of a function or class."""
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        return {**(vars(module) if module else {}), **_captured_by_methods(value)}
    inner: FunctionType = value.fn
    if not inner.__closure__:
        return inner.__globals__
    cells = {}
    for name, cell in zip(inner.__code__.co_freevars, inner.__closure__, strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:
            # assigned later, or never
            continue
    return {**inner.__globals__, **cells}


def _captured_by_methods(value: type) -> dict[str, Any]:
    methods = [each for each in vars(value).values() if kind_of(each)]
    return {name: found for method in methods for name, found in scope_of(method).items()}
