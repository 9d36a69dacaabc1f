"""Source closures: a kernel function's text with every helper, global and constant that its compile can reach.

A recording holds closures, so that a build needs neither the program nor its packages. A bundle holds only `fingerprint`, with
hashes instead of text; serving compares it with the live function (`drift_of`). Triton's own modules are imported by name, because
the toolchain identifies them. This module does not import Triton: it knows Triton's objects by their classes' names, so it works
with the stand-in too.

A closure is JSON::

    {"definitions": [...]}   the kernel first, then what it reaches, breadth first

Each definition has ``kind`` (``jit``, ``gluon``, ``constexpr_function`` or ``aggregate``), ``module``, ``qualname``, ``text`` (dedented,
from ``def`` on; of an aggregate: the class), ``line`` of the text's start, and ``names``: what each global name in the text stands for.
Functions add ``annotations`` and ``defaults`` of params, and the decorator's settings in ``settings``. The meaning of a name is a *node*, an object with one key:

=============== ===========================================================================================
``definition``  index of a definition
``value``       a constexpr value, as bundles encode it
``constexpr``   a node in ``tl.constexpr(...)``
``tuple``       array of nodes, if one is no plain value; ``list`` alike
``dict``        array of pairs of nodes
``import``      ``[module]`` or ``[module, attribute]``, of Triton or of Python's standard library
``namespace``   name of another module; what the text reads of it has names of its own, such as ``module.constant``
``enum``        an enum class: ``{"module", "qualname", "members"}``; ``member``: such an object, and ``name``
``named_tuple`` a class of named tuples: ``{"module", "qualname", "fields"}``; ``record``: such a class, and ``items``
``unknown``     name of the type of an object that a closure cannot hold; a compile that needs it fails
=============== ===========================================================================================
"""

from __future__ import annotations

import ast
import enum
import hashlib
import inspect
import re
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.values import DType, FunctionRef, encode_value, module_of

__all__ = ["Closure", "capture", "digest_of", "drift_of", "fingerprint", "kind_of", "place_of"]

Closure: TypeAlias = "dict[str, Any]"
Node: TypeAlias = "dict[str, Any]"

_KINDS = {"JITFunction": "jit", "GluonJITFunction": "gluon", "ConstexprFunction": "constexpr_function"}
_ABSENT = object()
_DEPTH_MAX = 16


def kind_of(value: object) -> str:
    """Return the kind of definition that a function or class of Triton is; empty for any other object."""
    if isinstance(value, type):
        return "aggregate" if getattr(value, "__triton_aggregate__", False) else ""
    for kind in type(value).__mro__:
        # Triton's own, the stand-in's, and subclasses of either
        if kind.__module__.partition(".")[0] == "triton" and kind.__name__ in _KINDS:
            return _KINDS[kind.__name__]
    return ""


def place_of(function: Any) -> tuple[str, str]:
    """Return the module and the qualified name of a function or class of Triton."""
    inner = getattr(function, "fn", function)
    return module_of(inner), str(inner.__qualname__)


def capture(function: Any) -> Closure:
    """Return the source closure of a kernel function.

    Args:
        function: a ``@triton.jit`` or Gluon function, without autotuners and heuristics around it.

    Raises:
        OSError: the source of a function that it reaches cannot be read.
    """
    return _Capture(function).closure()


def digest_of(closure: Closure) -> str:
    """Return the SHA-256, in hex, that identifies a closure. Line numbers do not count."""
    definitions: list[Json] = [{**each, "line": 0} for each in closure["definitions"]]
    return hashlib.sha256(canonical_json({"definitions": definitions})).hexdigest()


def fingerprint(closure: Closure) -> Json:
    """Return what a bundle holds of a closure: hashes of the texts and constants, and the names that lead to them."""
    definitions: list[Json] = []
    for each in closure["definitions"]:
        names = {**each["names"], **{f"{name}=": node for name, node in each.get("defaults", {}).items()}}
        definitions.append(
            {
                "module": each["module"],
                "qualname": each["qualname"],
                "text": _sha256(each["text"]),
                "names": [
                    [name, reference]
                    for root, node in sorted(names.items())
                    for name, leaf in _leaves(root, node)
                    if (reference := _reference(leaf)) is not None
                ],
            }
        )
    return {"definitions": definitions}


def drift_of(function: Any, known: Any) -> str:
    """Return the first difference between a live function and the fingerprint of the recorded one; empty if there is none.

    Args:
        function: the live ``@triton.jit`` function.
        known: what `fingerprint` returned for the recorded closure.
    """
    definitions = known["definitions"]
    seen: set[int] = set()
    queue: list[tuple[int, Any]] = [(0, function)]
    while queue:
        index, live = queue.pop()
        if index in seen:
            continue
        seen.add(index)
        recorded = definitions[index]
        place = "{}:{}".format(*place_of(live)) if kind_of(live) else repr(live)
        if not kind_of(live):
            return f"{recorded['module']}:{recorded['qualname']} is {type(live).__name__} now"
        if _sha256(_text_of(live)[0]) != recorded["text"]:
            return f"the source text of {place} differs"
        for name, reference in recorded["names"]:
            value = _resolve(live, name)
            if isinstance(reference, int):
                if not kind_of(value):
                    return f"{name} in {place} is no longer a function of Triton"
                queue.append((reference, value))
            elif _sha256(canonical_json(_Describe().node(value))) != reference:
                return f"the value of {name.rstrip('=')} in {place} differs"
    return ""


def _leaves(name: str, node: Node) -> Iterator[tuple[str, Node]]:
    """Yield a node under its name; of a tuple or list that holds functions, each item under ``name[0]`` and so on."""
    items = node.get("tuple", node.get("list"))
    if items is None or not _holds_function(items):
        yield name, node
        return
    for place, item in enumerate(items):
        yield from _leaves(f"{name}[{place}]", item)


def _holds_function(node: Any) -> bool:
    if isinstance(node, dict):
        return "definition" in node or any(map(_holds_function, node.values()))
    return isinstance(node, list) and any(map(_holds_function, node))


def _reference(node: Node) -> Json:
    """Return a definition's index, or the hash of a constant; None where the toolchain or nothing identifies the node."""
    if "definition" in node:
        return int(node["definition"])
    if "import" in node or "unknown" in node or "namespace" in node or _holds_function(node):
        return None
    return _sha256(canonical_json(node))


def _sha256(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


# -- what a text says ------------------------------------------------------------------------------------------------


def _text_of(value: Any) -> tuple[str, int]:
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


def _globals_in(text: str) -> set[str]:
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


def _chains_in(text: str) -> Iterator[tuple[str, ...]]:
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


def _scope_of(value: Any) -> Mapping[str, Any]:
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
    return {name: found for method in methods for name, found in _scope_of(method).items()}


def _resolve(live: Any, name: str) -> Any:
    """Return what a name of a fingerprint stands for now: a global, an attribute of a module, an item, or with ``=`` a default."""
    base, *places = name.replace("]", "").split("[")
    if base.endswith("="):
        param = inspect.signature(live.fn).parameters.get(base[:-1])
        value: Any = _ABSENT if param is None else param.default
    else:
        root, *attributes = base.split(".")
        value = _scope_of(live).get(root, _ABSENT)
        for attribute in attributes:
            value = getattr(value, attribute, _ABSENT)
    for place in places:
        try:
            value = value[int(place)]
        except (TypeError, IndexError):
            return _ABSENT
    return value


# -- what a value is -------------------------------------------------------------------------------------------------


class _Describe:
    """Turns values into nodes. Definitions that it meets go to `define`, which returns their index."""

    def define(self, value: Any) -> int | None:
        """Return the index of a definition; None if this description holds none."""
        del value
        return None

    def node(self, value: Any, depth: int = 0) -> Node:
        """Return the node of a value, which is at most `_DEPTH_MAX` containers deep."""
        if kind_of(value) and not _of_triton(place_of(value)[0]):
            number = self.define(value)
            return {"unknown": type(value).__name__} if number is None else {"definition": number}
        if (imported := _import_of(value)) is not None:
            return {"import": imported}
        return self._constant(value) or self._container(value, depth) or {"unknown": type(value).__name__}

    def _constant(self, value: Any) -> Node | None:
        if isinstance(value, enum.Enum):
            return {"member": {**_enum_node(type(value)), "name": value.name}}
        plain = _plain(value)
        if plain is not _ABSENT:
            return {"value": encode_value(plain)}
        if isinstance(value, type) and issubclass(value, enum.Enum):
            return {"enum": _enum_node(value)}
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            return {"named_tuple": _named_tuple_node(value)}
        return None

    def _container(self, value: Any, depth: int) -> Node | None:
        if depth == _DEPTH_MAX:
            return None
        if type(value).__module__.startswith("triton.") and type(value).__name__ == "constexpr":
            return {"constexpr": self.node(value.value, depth + 1)}
        if type(value) is dict:
            return {"dict": [[self.node(key, depth + 1), self.node(item, depth + 1)] for key, item in value.items()]}
        if not isinstance(value, tuple | list):
            return None
        items = [self.node(item, depth + 1) for item in value]
        if hasattr(value, "_fields"):
            return {"record": {**_named_tuple_node(type(value)), "items": items}}
        return {type(value).__name__: items} if type(value) in (tuple, list) else None


def _plain(value: Any) -> Any:
    """Return a value that bundles can encode; `_ABSENT` for any other."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value).__module__.startswith("triton.") and type(value).__name__ == "dtype":
        return DType(str(value.name))
    if type(value).__module__.startswith("triton.experimental.gluon.") and type(value).__name__.endswith("Layout"):
        return constexpr_value(value, "", "")
    if type(value) is tuple:
        items = [_plain(item) for item in value]
        return _ABSENT if _ABSENT in items or any(isinstance(item, FunctionRef) for item in items) else tuple(items)
    return _ABSENT


def _enum_node(kind: type[enum.Enum]) -> dict[str, Json]:
    members: list[Json] = [
        [name, encode_value(plain)] for name, m in kind.__members__.items() if (plain := _plain(m.value)) is not _ABSENT
    ]
    base = "int" if issubclass(kind, int) else "str" if issubclass(kind, str) else ""
    return {"module": module_of(kind), "qualname": kind.__qualname__, "base": base, "members": members}


def _named_tuple_node(kind: Any) -> dict[str, Json]:
    return {"module": module_of(kind), "qualname": kind.__qualname__, "fields": list(kind._fields)}


def _of_triton(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def _is_provided(module: str) -> bool:
    """Return whether every build has a module: it is Triton's, or of the standard library."""
    return _of_triton(module) or module.partition(".")[0] in sys.stdlib_module_names


def _import_of(value: Any) -> list[Json] | None:
    """Return the module, or the module and attribute, from which Triton or the standard library provide an object."""
    if isinstance(value, ModuleType):
        return [value.__name__] if _is_provided(value.__name__) else None
    if isinstance(value, type) and value.__module__ == "builtins":
        return ["builtins", value.__name__]
    module: Any = getattr(value, "__module__", None)
    name: Any = getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if not _is_provided(module):
        return None
    qualname = str(getattr(value, "__qualname__", name))
    for attribute in (qualname, name):
        found: Any = sys.modules.get(module)
        for part in attribute.split("."):
            found = getattr(found, part, None)
        if found is value:
            return [module, attribute]
    return _searched(value, name)


def _searched(value: Any, name: str) -> list[Json] | None:
    """Find an object of Triton that names another module than the one that holds it."""
    for module, loaded in sorted(sys.modules.items()):
        # a program may put other objects into `sys.modules`
        if _of_triton(module) and vars(loaded).get(name) is value:
            return [module, name]
    return None


# -- capture ---------------------------------------------------------------------------------------------------------


class _Capture(_Describe):
    """Captures the closure of one function: definitions are numbered as they are met, and then described in turn."""

    def __init__(self, function: Any) -> None:
        self._live: list[Any] = []
        self._numbers: dict[int, int] = {}
        self.define(function)

    def define(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._live))
        if number == len(self._live):
            self._live.append(value)
        return number

    def closure(self) -> Closure:
        definitions: list[dict[str, Any]] = []
        while len(definitions) < len(self._live):
            definitions.append(self._definition(self._live[len(definitions)]))
        return {"definitions": definitions}

    def _definition(self, live: Any) -> dict[str, Any]:
        kind, (module, qualname) = kind_of(live), place_of(live)
        text, line = _text_of(live)
        found = {"kind": kind, "module": module, "qualname": qualname, "text": text, "line": line}
        scope = _scope_of(live)
        roots = {name for name in _globals_in(text) if name in scope}
        found["names"] = self._names(roots, text, scope)
        if kind == "aggregate":
            return found
        params = inspect.signature(live.fn).parameters.values()
        found["annotations"] = {
            param.name: _annotation(param.annotation) for param in params if param.annotation is not param.empty
        }
        found["defaults"] = {
            param.name: self.node(param.default) for param in params if param.default is not param.empty
        }
        found["settings"] = _settings(live)
        return found

    def _names(self, roots: set[str], text: str, scope: Mapping[str, Any]) -> dict[str, Node]:
        names: dict[str, Node] = {}
        chains: dict[str, list[tuple[str, ...]]] = {}
        for chain in _chains_in(text):
            chains.setdefault(chain[0], []).append(chain)
        for root in sorted(roots):
            value = scope[root]
            if isinstance(value, ModuleType) and _import_of(value) is None:
                # `value` is described by what the text reads of it, under dotted names
                names[root] = {"namespace": value.__name__}
                for chain in chains.get(root, ()):
                    self._attribute(names, value, chain)
            else:
                names[root] = self.node(value)
        return names

    def _attribute(self, names: dict[str, Node], value: Any, chain: tuple[str, ...]) -> None:
        for length, attribute in enumerate(chain[1:], 2):
            value = getattr(value, attribute, _ABSENT)
            if value is _ABSENT:
                return
            name = ".".join(chain[:length])
            if isinstance(value, ModuleType) and _import_of(value) is None:
                names[name] = {"namespace": value.__name__}
                continue
            names[name] = self.node(value)
            return


def _annotation(annotation: Any) -> str:
    """Return an annotation as text that Triton reads alike: it looks for ``constexpr``, ``const`` and the names of dtypes."""
    if isinstance(annotation, str):
        return annotation
    if kind_name := getattr(annotation, "name", None):
        # a dtype, or a pointer type
        return str(kind_name)
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _settings(live: Any) -> dict[str, Json]:
    """Return the arguments of a function's decorator that shape its machine code."""
    names = [param.name for param in getattr(live, "params", ())]

    def spelled(given: Any) -> list[Json]:
        return [names[each] if isinstance(each, int) else str(each) for each in given or ()]

    return {
        "do_not_specialize": spelled(getattr(live, "do_not_specialize", ())),
        "do_not_specialize_on_alignment": spelled(getattr(live, "do_not_specialize_on_alignment", ())),
        "debug": getattr(live, "debug", None),
        "noinline": bool(getattr(live, "noinline", False)),
    }
