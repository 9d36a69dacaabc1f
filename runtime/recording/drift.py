"""Fingerprints of closures, which bundles hold, and how a live function differs from one.

A fingerprint has hashes instead of texts and constants. It leads from the kernel's names to everything that its compile reaches.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from typing import Any

from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.recording.closure import Closure
from nojit.runtime.recording.closure_nodes import ABSENT, Node, NodeWriter
from nojit.runtime.recording.source_text import scope_of, text_of
from nojit.runtime.recording.triton_functions import kind_of, place_of

__all__ = ["drift_of", "fingerprint"]


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
        if _sha256(text_of(live)[0]) != recorded["text"]:
            return f"the source text of {place} differs"
        for name, reference in recorded["names"]:
            value = _resolve(live, name)
            if isinstance(reference, int):
                if not kind_of(value):
                    return f"{name} in {place} is no longer a function of Triton"
                queue.append((reference, value))
            elif _sha256(canonical_json(NodeWriter().node(value))) != reference:
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


def _resolve(live: Any, name: str) -> Any:
    """Return what a name of a fingerprint stands for now: a global, an attribute of a module, an item, or with ``=`` a default."""
    base, *places = name.replace("]", "").split("[")
    if base.endswith("="):
        param = inspect.signature(live.fn).parameters.get(base[:-1])
        value: Any = ABSENT if param is None else param.default
    else:
        root, *attributes = base.split(".")
        value = scope_of(live).get(root, ABSENT)
        for attribute in attributes:
            value = getattr(value, attribute, ABSENT)
    for place in places:
        try:
            value = value[int(place)]
        except (TypeError, IndexError):
            return ABSENT
    return value
