"""Detection of patches that a source makes to Triton, so that the keys of its variants include them.

The text of a kernel does not show the effect of a patch. So if a source patches Triton, the keys of its variants
include the content of every file that the source's import loaded.
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
# attributes that Python itself adds to classes (pickling, annotations) and to modules (warnings)
_OF_PYTHON = frozenset({"__slotnames__", "__annotations_cache__", "__warningregistry__"})
# classes that pybind11 makes when they are first used: by AMD's backend, when it first compiles
_LATE = frozenset({("triton._C.libtriton.llvm", "function_list", "iterator")})


class Baseline:
    """Snapshot of the imported modules and of Triton's attributes, taken before the import of a source."""

    def __init__(self) -> None:
        self._modules = frozenset(sys.modules)
        self._told = set(self._modules)
        self._names = dict(_names())

    def patched(self) -> list[str]:
        """Return the names of Triton's attributes that changed since the snapshot; later submodules do not count."""
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
        """Return the modules imported since the snapshot with their files, sorted. Modules without a file are skipped."""
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
        """Return the modules imported since the last call of this method, as (module, file)."""
        new = [(name, str(path)) for name, path in self.reached() if name not in self._told]
        self._told.update(name for name, _ in new)
        return tuple(new)

    def digest(self) -> str:
        """Return a digest of the patched names and of the content of all imported files; empty if nothing is patched.

        The digest does not depend on the files' paths.
        """
        patched = self.patched()
        if not patched:
            return ""
        files = [(name, hashlib.sha256(path.read_bytes()).hexdigest()) for name, path in self.reached()]
        return hashlib.sha256(repr((patched, files)).encode()).hexdigest()


def _names() -> Iterator[tuple[tuple[str, ...], tuple[object, ...]]]:
    """Yield each attribute of Triton's modules, classes and settings: its name, and its `_parts` to compare."""
    for name, module in list(sys.modules.items()):
        if (name == _PATCHED or name.startswith(f"{_PATCHED}.")) and isinstance(module, ModuleType):
            for key, value in _own_names(module):
                yield (name, key), _parts(key, value)
                if _is_own(value):
                    members = (((name, key, member), _parts(member, item)) for member, item in _own_names(value))
                    yield from (pair for pair in members if pair[0] not in _LATE)


def _parts(name: str, value: object) -> tuple[object, ...]:
    """Return the objects that change when a value is replaced or modified in place: the value and its parts."""
    inner: Iterable[object] = ()
    if isinstance(value, property):
        inner = [part for each in (value.fget, value.fset, value.fdel) for part in _parts(name, each)]
    elif isinstance(value, staticmethod | classmethod):
        inner = _parts(name, value.__func__)
    elif isinstance(value, FunctionType):
        inner = _parts_of_function(name, value) if value.__module__.partition(".")[0] == _PATCHED else ()
    # Python's own containers, such as `__builtins__` and `__path__`, change without a patch
    elif isinstance(value, dict) and not name.startswith("__") and value is not sys.modules:
        # jit functions register themselves; a kernel's digest covers those that it calls
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
    """Return whether a value is a class of Triton, or a group of its settings."""
    if isinstance(value, type):
        return value.__module__.partition(".")[0] == _PATCHED
    return type(value).__module__ == f"{_PATCHED}.knobs" and hasattr(value, "__dict__")
