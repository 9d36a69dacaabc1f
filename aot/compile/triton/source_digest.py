"""Digest of a kernel function: its source, every function that it reaches, and the constants that it reads."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

from nojit.aot.compile.triton.failures import Lines
from triton.language.core import constexpr, dtype
from triton.runtime.jit import DependenciesFinder, JITCallable

__all__ = ["lines_of", "source_digest"]

_CONSTANTS = constexpr | dtype | bool | int | float | str | tuple


def _spelled(value: object) -> str | None:
    """Return the text of a constant, or of a container of constants, to put into a digest; None for any other value."""
    if isinstance(value, _CONSTANTS):
        return repr(value)
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, list | set | frozenset):
        parts = [*value]
    else:
        return None
    spelled = ["None" if part is None else _spelled(part) for part in parts]
    known = [each for each in spelled if each is not None]
    if len(known) < len(spelled):
        return None
    return f"{type(value).__name__}{sorted(known) if isinstance(value, set | frozenset) else known}"


class _Dependencies(DependenciesFinder):  # type: ignore[misc]
    """Triton's traversal of a function's dependencies; it hashes each function with `source_digest`."""

    def __init__(self, **walk: Any) -> None:
        super().__init__(**walk)
        self.lines: frozenset[Lines] = frozenset()

    def _update_hash(self, func: JITCallable) -> None:
        # the symbol of a noinline function contains the name of its module
        module = func.__module__ if getattr(func, "noinline", False) else None
        self.hasher.update(f"{source_digest(func)}{module}".encode())
        self.used_global_vals.update(_reached_globals(func))
        self.lines |= _lines.get(id(func), frozenset())

    def record_reference(self, val: Any, var_dict: dict[str, Any] | None = None, name: str | None = None) -> None:
        super().record_reference(val, var_dict, name)
        # Triton's walk omits constants of other modules and the values of defaults
        spelled = _spelled(val)
        if spelled is not None and (var_dict is None or self.visiting_arg_default_value):
            self.hasher.update(spelled.encode())


_digests: dict[int, str] = {}
_globals: dict[int, dict[Any, Any]] = {}
_lines: dict[int, frozenset[Lines]] = {}


def source_digest(function: JITCallable) -> str:
    """Return a digest of a function's source, of every jit function that it reaches, and of the constants it reads.

    It does not depend on line numbers. Triton's ``cache_key`` includes the line of the ``def``, so that one more line
    in a helper would change the key of every kernel below it in the file.
    """
    known = _digests.get(id(function))
    if known is not None:
        return known
    # ends the walk where a recursive function reaches itself
    _digests[id(function)] = f"recursion:{function.__qualname__}"
    finder = _Dependencies(
        name=function.__qualname__,
        globals=function.__globals__,
        nonlocals=inspect.getclosurevars(function.fn).nonlocals,
        src=function.src,
    )
    finder.visit(function.parse())
    _globals[id(function)] = finder.used_global_vals
    own = (function.fn.__code__.co_filename, function.starting_line_number, len(function.raw_src))
    _lines[id(function)] = finder.lines | {own}
    # a set: functions of one module share their globals, those that a closure rebuilt have globals of their own
    constants = sorted(
        {
            (name, spelled)
            for (name, _), (value, _) in finder.used_global_vals.items()
            if (spelled := _spelled(value)) is not None
        }
    )
    digest = hashlib.sha256(f"{finder.ret}{constants}".encode()).hexdigest()
    _digests[id(function)] = digest
    return digest


def lines_of(function: JITCallable) -> frozenset[Lines]:
    """Return the position (file, first line, number of lines) of a function and of each that it reaches."""
    source_digest(function)
    return _lines[id(function)]


def _reached_globals(function: JITCallable) -> dict[Any, Any]:
    return _globals.get(id(function), {})
