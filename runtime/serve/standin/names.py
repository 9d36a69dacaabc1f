"""The names of every module of Triton, for the version that was recorded, and their values."""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from nojit.runtime.serve.standin import opaque
from nojit.runtime.serve.standin.callbacks import ADVICE, recorded
from nojit.runtime.serve.standin.registry import implemented

__all__ = ["find", "is_module", "is_package", "listed", "resolve", "table"]

_FILE: Final = Path(__file__).with_name("names.json")


@cache
def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def table() -> dict[str, dict[str, Any]]:
    """Return the names of every module, as the recorded version of Triton has them."""
    return _of_version(".".join(recorded().version.split(".")[:2]))


@cache
def _of_version(version: str) -> dict[str, dict[str, Any]]:
    read = _read()
    found = {module: dict(names) for module, names in read["names"].items()}
    # a version without a table of its own is nearer to the newest one
    other = read["others"].get(version, {"lacks": {}, "has": {}})
    for module, names in other["lacks"].items():
        for name in list(found[module]) if names == "*" else names:
            del found[module][name]
    for module, names in other["has"].items():
        found.setdefault(module, {}).update(names)
    return {module: names for module, names in found.items() if other["lacks"].get(module) != "*"}


def is_module(full: str) -> bool:
    """Say whether Triton has a module of this name, so far as programs mean it."""
    return full == "triton" or full in table()


def is_package(full: str) -> bool:
    """Say whether a module has submodules."""
    return full == "triton" or "__path__" in table()[full]


def listed(module: str) -> list[str]:
    """List the names of a module, for `dir`."""
    prefix = f"{module}."
    below = {name.removeprefix(prefix) for name in table() if name.startswith(prefix)}
    return sorted({*table()[module], *(name for name in below if "." not in name)} - {"__path__"})


def resolve(module: str, name: str) -> Any:
    """Return the value of a name of one of Triton's modules.

    Raises:
        AttributeError: Triton has no such name.
    """
    spec = table().get(module, {}).get(name)
    real = _completed(module)
    if name in real and spec is not None:
        return real[name]
    if spec is None:
        if is_module(full := f"{module}.{name}"):
            return importlib.import_module(full)
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}: nojit's stand-in has the names of Triton {recorded().version}; {ADVICE}",
            name=name,
        )
    if isinstance(spec, str) and spec.startswith("="):
        return find(spec[1:])
    return opaque.make(module, name, spec, find)


@cache
def _completed(module: str) -> dict[str, Any]:
    """Return the implemented names of a module; their classes have every method of Triton's."""
    given = table().get(module, {})
    return {name: opaque.complete(value, given.get(name)) for name, value in implemented(module).items()}


def find(full: str) -> Any:
    """Return a module, or the value of ``module:name``."""
    module, _, name = full.partition(":")
    if module == "builtins":
        return getattr(importlib.import_module("builtins"), name)
    if not is_module(module):
        # a part of Triton's compiler, with no more than a name
        return opaque.value(full.replace(":", "."))
    found = importlib.import_module(module)
    for part in filter(None, name.split(".")):
        found = getattr(found, part)
    return found
