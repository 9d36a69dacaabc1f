"""Source closures: a kernel function's text with every helper, global and constant that its compile can reach.

A recording holds closures, so that a build needs neither the program nor its packages. A bundle holds only a fingerprint
(`nojit.runtime.recording.drift`). Triton's own modules are imported by name, because
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

import hashlib
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeAlias

from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.recording.closure_nodes import ABSENT, Node, NodeWriter, import_of
from nojit.runtime.recording.source_text import chains_in, globals_in, scope_of, text_of
from nojit.runtime.recording.triton_functions import kind_of, place_of

__all__ = ["Closure", "capture", "digest_of"]

Closure: TypeAlias = "dict[str, Any]"


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


class _Capture(NodeWriter):
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
        text, line = text_of(live)
        found = {"kind": kind, "module": module, "qualname": qualname, "text": text, "line": line}
        scope = scope_of(live)
        roots = {name for name in globals_in(text) if name in scope}
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
        for chain in chains_in(text):
            chains.setdefault(chain[0], []).append(chain)
        for root in sorted(roots):
            value = scope[root]
            if isinstance(value, ModuleType) and import_of(value) is None:
                # `value` is described by what the text reads of it, under dotted names
                names[root] = {"namespace": value.__name__}
                for chain in chains.get(root, ()):
                    self._attribute(names, value, chain)
            else:
                names[root] = self.node(value)
        return names

    def _attribute(self, names: dict[str, Node], value: Any, chain: tuple[str, ...]) -> None:
        for length, attribute in enumerate(chain[1:], 2):
            value = getattr(value, attribute, ABSENT)
            if value is ABSENT:
                return
            name = ".".join(chain[:length])
            if isinstance(value, ModuleType) and import_of(value) is None:
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
