"""Packages of operators: a name imports its module, and torch with it, when it is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module

__all__ = ["lazily"]


def lazily(
    package: str, names: Collection[str], elsewhere: Mapping[str, str] | None = None, *, home: str = "op"
) -> Callable[[str], object]:
    """Return what a package calls ``__getattr__``, so that importing it stays cheap.

    Args:
        package: its ``__name__``.
        names: what it exports.
        elsewhere: the modules of those names that are not in `home`.
        home: the module that has the others.
    """
    homes = dict.fromkeys(names, home) | dict(elsewhere or {})

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        # from then on it is an attribute like any other
        setattr(sys.modules[package], name, value)
        return value

    return find
