"""Nodes of closures: what a global, an attribute or a default stands for, as JSON. `nojit.runtime.recording.closure` lists them."""

from __future__ import annotations

import enum
import sys
from types import ModuleType
from typing import Any, Final, TypeAlias

from nojit.runtime.base.strict_json import Json
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.recording.triton_functions import kind_of, place_of
from nojit.runtime.values import DType, FunctionRef, encode_value, module_of

__all__ = ["ABSENT", "Node", "NodeWriter", "import_of"]

Node: TypeAlias = "dict[str, Any]"

ABSENT: Final = object()
"""In place of a value that a name does not have."""
_DEPTH_MAX = 16


class NodeWriter:
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
        if (imported := import_of(value)) is not None:
            return {"import": imported}
        return self._constant(value) or self._container(value, depth) or {"unknown": type(value).__name__}

    def _constant(self, value: Any) -> Node | None:
        if isinstance(value, enum.Enum):
            return {"member": {**_enum_node(type(value)), "name": value.name}}
        plain = _plain(value)
        if plain is not ABSENT:
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
    """Return a value that bundles can encode; `ABSENT` for any other."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value).__module__.startswith("triton.") and type(value).__name__ == "dtype":
        return DType(str(value.name))
    if type(value).__module__.startswith("triton.experimental.gluon.") and type(value).__name__.endswith("Layout"):
        return constexpr_value(value, "", "")
    if type(value) is tuple:
        items = [_plain(item) for item in value]
        return ABSENT if ABSENT in items or any(isinstance(item, FunctionRef) for item in items) else tuple(items)
    return ABSENT


def _enum_node(kind: type[enum.Enum]) -> dict[str, Json]:
    members: list[Json] = [
        [name, encode_value(plain)] for name, m in kind.__members__.items() if (plain := _plain(m.value)) is not ABSENT
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


def import_of(value: Any) -> list[Json] | None:
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
