"""Serves ``import triton`` and its distribution where Triton is not installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nojit.runtime.serve.standin.callbacks import MissingModuleError, recorded

__all__ = ["Finder"]

_ORIGIN: Final = str(Path(__file__).with_name("__init__.py"))
# a folder that does not exist: every submodule is this finder's
_PATH: Final = str(Path(__file__).with_name("triton"))


class Finder:
    """The last of `sys.meta_path`: a Triton that is installed is found before."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of Triton's.

        Raises:
            MissingError: the module is a part of Triton's compiler.
        """
        if name != "triton" and not name.startswith("triton."):
            return None
        if name == "triton._C" or name.startswith("triton._C."):
            raise MissingModuleError(name, "it is Triton's compiler, which nojit's stand-in lacks")
        if name == "triton":
            package = True
        else:
            from nojit.runtime.serve.standin import names  # `import triton` alone reads no table

            if not names.is_module(name):
                return None
            package = names.is_package(name)
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=_ORIGIN, is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [_PATH]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let Python make the module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Let the module find its names when they are asked for."""

        def lookup(name: str) -> Any:
            if name == "__version__" and module.__name__ == "triton":
                return f"{recorded().version}+nojit"
            if name.startswith("__") and name != "__all__":
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            from nojit.runtime.serve.standin import names

            value = names.resolve(module.__name__, name)
            module.__dict__[name] = value
            return value

        module.__dict__["__getattr__"] = lookup
        module.__dict__["__dir__"] = partial(_listed, module.__name__)

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        """Find the distribution ``triton``, for `importlib.metadata`."""
        asked = getattr(context, "name", None)
        return [_Distribution()] if asked is None or asked.lower().replace("_", "-") == "triton" else []

    def invalidate_caches(self) -> None:
        """Do nothing: nothing is cached."""


def _listed(module: str) -> list[str]:
    from nojit.runtime.serve.standin import names

    return names.listed(module)


class _Distribution(importlib.metadata.Distribution):
    """The stand-in, as an installed package."""

    def read_text(self, filename: str) -> str | None:
        """Return one of the files of metadata; None if the stand-in has no such file."""
        return {
            "METADATA": f"Metadata-Version: 2.1\nName: triton\nVersion: {recorded().version}+nojit\nSummary: nojit's stand-in for Triton\n",
            "top_level.txt": "triton\n",
            "INSTALLER": "nojit\n",
        }.get(filename)

    def locate_file(self, path: Any) -> Path:
        """Return the place of a file: the stand-in's folder."""
        return Path(__file__).parent / str(path)
