"""Packages of operators that import their modules, and with them torch, only when a name is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module

__all__ = ["lazily"]


def lazily(
    package: str, names: Collection[str], elsewhere: Mapping[str, str] | None = None, *, home: str = "op"
) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package that imports its modules on first use.

    Args:
        package: ``__name__`` of the package.
        names: names that the package exports.
        elsewhere: module of each name that `home` does not define; a full name for a module of another package.
        home: the module that defines all other names.
    """
    homes = dict.fromkeys(names, home) | dict(elsewhere or {})

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(_full_name(package, homes[name])), name)
        # later look-ups find a plain attribute
        setattr(sys.modules[package], name, value)
        return value

    return find


def _full_name(package: str, module: str) -> str:
    return module if module.startswith("nojit.") else f"{package}.{module}"
