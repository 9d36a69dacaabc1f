"""The toolchain of this process: its tools by version and digest, its settings, and the archs it compiles for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import triton
from nojit.aot.backends.interface import Backend
from nojit.aot.backends.registry import vendor_of, vendors
from nojit.aot.compile.toolchain.digests import file_digest, tree_digest
from nojit.aot.compile.toolchain.triton_settings import read_settings, settings_words
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import CompileError
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars, getenv
from triton.compiler import make_backend

__all__ = ["archs", "backend_of", "gpu_target", "min_driver", "read_own_settings", "toolchain", "triton_backend"]


def toolchain(arch: str) -> tuple[tuple[str, str], ...]:
    """Return the inputs of every image for `arch`: versions and digests of the tools, and the settings that are set.

    Raises:
        CompileError: a setting has a value that builds refuse, or a tool cannot be read.
    """
    try:
        tools = {"triton": triton.__version__, "triton.digest": _triton_digest(backend_of(arch).folder())}
        for name, tool in backend_of(arch).tools(arch).items():
            tools |= {name: tool.version, f"{name}.digest": file_digest(tool.path)}
    except OSError as error:
        where = str(error.filename or "")
        raise CompileError("expected a toolchain that can be read", got=worded(error), where=where) from None
    settings = settings_words(read_own_settings())
    if settings:
        tools["settings"] = settings
    return tuple(sorted(tools.items()))


def min_driver(arch: str) -> int:
    """Return the oldest CUDA version whose driver loads images for `arch` (13000 for 13.0)."""
    return backend_of(arch).min_driver(arch)


def archs() -> tuple[str, ...]:
    """Return the archs that this toolchain can build; empty if a tool does not list its targets."""
    return tuple(arch for vendor in vendors() for arch in vendor.backend().archs())


@lru_cache(maxsize=64)
def backend_of(arch: str) -> Backend:
    """Return the vendor's module that compiles for an arch."""
    return vendor_of(arch).backend()


def _triton_digest(backend: Path) -> str:
    """Return the digest of the files of the installed Triton, and of a backend's folder elsewhere; computed once per process."""
    # another distribution can provide a backend
    own = any(map(backend.is_relative_to, [Path(folder).resolve() for folder in triton.__path__]))
    return _digest_of((*triton.__path__, *([] if own else [str(backend)])))


@lru_cache(maxsize=8)
def _digest_of(folders: tuple[str, ...]) -> str:
    return tree_digest([*folders])


def read_own_settings() -> tuple[tuple[str, str], ...]:
    """Return the settings of Triton that are set and can change generated code, with their values.

    Raises:
        CompileError: a setting has a value that builds refuse.
    """
    hooks = [each for each in (vendor.backend().instrumentation() for vendor in vendors()) if each]
    if hooks:
        raise CompileError(
            "expected kernels without instrumentation, such as that of triton.profiler", got=str(hooks[0])
        )
    return read_settings(knobs, getenv, get_cache_invalidating_env_vars())


@lru_cache(maxsize=64)
def triton_backend(arch: str) -> Any:
    """Return Triton's backend object for an arch."""
    return make_backend(gpu_target(arch))


def gpu_target(arch: str) -> Any:
    """Return Triton's target object for an arch."""
    return backend_of(arch).target(arch)
