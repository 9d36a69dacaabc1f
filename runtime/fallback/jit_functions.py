"""The functions from which Triton's JIT compiles kernels, for calls without a matching variant.

`register_source` registers the function of a kernel. Triton is imported with the function's own module: at the first miss, and never
under the policy ``error``.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from nojit.runtime.discovery.debug_twins import TWIN
from nojit.runtime.errors import ArgumentError

__all__ = [
    "UnavailableError",
    "function_of",
    "load",
    "load_named",
    "register_source",
]

# modules that know the sources of bundles, so that nobody needs to register them
_KNOWN: Final = {"nojit-kernels": "nojit.kernels.manifest_kernels"}
_PLACE: Final = re.compile(r"[\w.]+:\w+\Z")
_WRAPPERS: Final = ("Autotuner", "Heuristics")

_lock = threading.Lock()
# by bundle (empty for any) and kernel
_sources: dict[tuple[str, str], object] = {}


class UnavailableError(Exception):
    """Raised if the JIT cannot run a call; the message is the reason, as a clause."""


def register_source(kernel: str, source: object, *, bundle: str = "") -> None:
    """Register the function of a kernel, from which Triton's JIT compiles calls without a matching variant; see ``NOJIT_MISS``.

    Kernels of nojit's own library need no registration. A second registration of a kernel replaces the first.

    Args:
        kernel: name of the kernel in the bundle.
        source: a ``@triton.jit`` or Gluon function, or ``module:function``, which is imported at the first miss.
        bundle: name of the bundle, if several have a kernel of this name; empty for any.

    A bundle can name a function as the value of a constexpr. nojit imports it only from the module of a registered source. To allow
    another one, register it too, under its own name.

    Raises:
        ArgumentError: `source` is neither a function nor ``module:function``.
    """
    if not (_PLACE.match(source) if isinstance(source, str) else hasattr(source, "__getitem__")):
        got = repr(source) if isinstance(source, str) else type(source).__name__
        what = "expected a @triton.jit function or module:function"
        raise ArgumentError(what, got=got, where=f"source of kernel {kernel}", argument="source")
    with _lock:
        _sources[bundle, kernel] = source


def function_of(kernel: str, bundle: str) -> Any:
    """Return the function of a bundle's kernel.

    Raises:
        UnavailableError: no source is registered, or it cannot be imported.
    """
    # a twin has the sources of its bundle
    own = bundle.removesuffix(TWIN)
    for place in ((bundle, kernel), (own, kernel), ("", kernel)):
        if place in _sources:
            return load(_sources[place])
    known = _KNOWN.get(own)
    source = import_module(known).source_of(kernel) if known else None
    if source is None:
        raise UnavailableError("its source is not registered: call runtime.register_source")
    return load(source)


def load_named(place: str) -> Any:
    """Import the function that a bundle names as the value of a constexpr.

    A bundle is data and must not choose what a process imports, so the function's module must contain a registered source.

    Raises:
        UnavailableError: the module contains no registered source, the function cannot be imported, or is not Triton's.
    """
    module = place.partition(":")[0]
    if module not in _registered_modules() and not _is_the_librarys(module):
        why = f"the bundle names the function {place}, and no registered source is in {module}"
        raise UnavailableError(f"{why}: call runtime.register_source")
    return load(place)


def _registered_modules() -> set[str]:
    with _lock:
        sources = [*_sources.values()]
    return {_module_of(source) for source in sources}


def _module_of(source: object) -> str:
    if isinstance(source, str):
        return source.partition(":")[0]
    function: Any = _unwrapped(source)
    # the module of the Python function that Triton wraps; other objects have the module of their class
    return str(getattr(getattr(function, "fn", None), "__module__", "") or vars(function).get("__module__", ""))


def _is_the_librarys(module: str) -> bool:
    # reading the manifests takes a while; only for a module that they can name
    return module.startswith("nojit.kernels.") and any(
        module in import_module(known).modules() for known in _KNOWN.values()
    )


@cache
def load(source: object) -> Any:
    """Return a function, imported by its place or given as an object, without the decorators around it.

    Raises:
        UnavailableError: the function cannot be imported, or is not Triton's.
    """
    found: Any = source
    if isinstance(source, str):
        if find_spec("triton") is None:
            raise UnavailableError("Triton is not installed: pip install triton")
        module, _, name = source.partition(":")
        try:
            found = getattr(import_module(module), name)
        except MemoryError:
            raise
        except Exception as error:
            raise UnavailableError(f"{source} cannot be imported: {type(error).__name__}: {error}") from error
    found = _unwrapped(found)
    if not hasattr(found, "__getitem__"):
        raise UnavailableError(f"{source} is no @triton.jit function: register one with runtime.register_source")
    return found


def _unwrapped(found: Any) -> Any:
    while type(found).__name__ in _WRAPPERS:
        found = found.fn
    return found
