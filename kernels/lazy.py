"""Lazy packages of operators: the first use of a name imports its module, and with it torch."""

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
        package: its ``__name__``.
        names: the names that it exports.
        elsewhere: the modules of the names that `home` does not define.
        home: the module that defines all other names.
    """
    homes = dict.fromkeys(names, home) | dict(elsewhere or {})

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        # later look-ups find a plain attribute
        setattr(sys.modules[package], name, value)
        return value

    return find
