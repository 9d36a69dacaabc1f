"""Notices what a source patches in Triton: the keys of its variants must tell them from those of sources that do not.

What a patch does cannot be seen in the kernel, so whoever patches Triton has keys that follow from every file that its import
reached.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from operator import is_
from pathlib import Path
from types import FunctionType, ModuleType

__all__ = ["Baseline"]

_PATCHED = "triton"
# what Python itself writes into classes that are pickled or asked for annotations, and into modules that warn
_OF_PYTHON = frozenset({"__slotnames__", "__annotations_cache__", "__warningregistry__"})


class Baseline:
    """What was imported before a source was, and what Triton looked like."""

    def __init__(self) -> None:
        self._modules = frozenset(sys.modules)
        self._told = set(self._modules)
        self._names = dict(_names())

    def patched(self) -> list[str]:
        """Name what differs in the modules of Triton that were imported then; submodules that came since do not count."""
        now = dict(_names())
        gone = self._names.keys() - now.keys()
        known = {module for module, *_ in self._names}
        other = {
            place
            for place, value in now.items()
            if place[0] in known
            and not isinstance(value[0], ModuleType)
            and not _are_same(self._names.get(place, ()), value)
        }
        return sorted(".".join(place) for place in gone | other)

    def reached(self) -> list[tuple[str, Path]]:
        """List the modules that were imported since, sorted, each with its file; some name one that is not there."""
        found = []
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if (
                name not in self._modules
                and isinstance(file, str)
                and Path(file).is_absolute()
                and Path(file).is_file()
            ):
                found.append((name, Path(file)))
        return sorted(found)

    def news(self) -> tuple[tuple[str, str], ...]:
        """List the modules that were imported since this was asked last, as `reached`."""
        new = [(name, str(path)) for name, path in self.reached() if name not in self._told]
        self._told.update(name for name, _ in new)
        return tuple(new)

    def digest(self) -> str:
        """Return a digest of what shapes a source's patches of Triton, wherever it lies; empty if it patches nothing."""
        patched = self.patched()
        if not patched:
            return ""
        files = [(name, hashlib.sha256(path.read_bytes()).hexdigest()) for name, path in self.reached()]
        return hashlib.sha256(repr((patched, files)).encode()).hexdigest()


def _names() -> Iterator[tuple[tuple[str, ...], tuple[object, ...]]]:
    """List what Triton's modules, the classes in them and its settings hold, each with what it is made of."""
    for name, module in list(sys.modules.items()):
        if (name == _PATCHED or name.startswith(f"{_PATCHED}.")) and isinstance(module, ModuleType):
            for key, value in _own_names(module):
                yield (name, key), _parts(key, value)
                if _is_own(value):
                    yield from (((name, key, member), _parts(member, item)) for member, item in _own_names(value))


def _parts(name: str, value: object) -> tuple[object, ...]:
    """Return a value, and what can be changed in it without another being put in its place."""
    inner: Iterable[object] = ()
    if isinstance(value, property):
        inner = [part for each in (value.fget, value.fset, value.fdel) for part in _parts(name, each)]
    elif isinstance(value, staticmethod | classmethod):
        inner = _parts(name, value.__func__)
    elif isinstance(value, FunctionType):
        inner = _parts_of_function(name, value) if value.__module__.partition(".")[0] == _PATCHED else ()
    # Python's own, such as `__builtins__` and `__path__`, anybody changes
    elif isinstance(value, dict) and not name.startswith("__") and value is not sys.modules:
        # jit functions register themselves; a kernel's digest covers those that it reaches
        held = [pair for pair in value.items() if not hasattr(type(pair[1]), "cache_key")]
        inner = [part for pair in held for part in pair]
    elif isinstance(value, list | set) and not name.startswith("__"):
        inner = value
    return (value, *inner)


def _parts_of_function(name: str, function: FunctionType) -> tuple[object, ...]:
    wrapped = _parts(name, function.__wrapped__) if hasattr(function, "__wrapped__") else ()
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return (function.__code__, *defaults, *wrapped)


def _are_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


def _own_names(value: object) -> list[tuple[str, object]]:
    return [(name, item) for name, item in list(vars(value).items()) if name not in _OF_PYTHON]


def _is_own(value: object) -> bool:
    """Say whether something is a class of Triton's, or a group of its settings."""
    if isinstance(value, type):
        return value.__module__.partition(".")[0] == _PATCHED
    return type(value).__module__ == f"{_PATCHED}.knobs" and hasattr(value, "__dict__")
