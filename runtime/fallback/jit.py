"""What becomes of a call that no variant serves: the policy ``NOJIT_MISS``, and where the functions of kernels are found.

===== ================================================================================================
error it raises; the default
warn  Triton's JIT makes it, and a `MissWarning` says so, once for each kernel and kind of call
jit   Triton's JIT makes it
===== ================================================================================================

The policy is read at the first miss of a process, and holds from then on. `register_source` says which function a kernel is
compiled from. Triton is imported with the function's own module: not before a call misses, and not under ``error``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from nojit.runtime.discovery.twins import TWIN
from nojit.runtime.errors import ArgumentError, SettingError, did_you_mean

__all__ = [
    "POLICIES",
    "VARIABLE",
    "MissWarning",
    "UnavailableError",
    "function_of",
    "load",
    "load_named",
    "policy",
    "policy_of",
    "register_source",
]

VARIABLE = "NOJIT_MISS"
POLICIES: Final = ("error", "warn", "jit")

# of bundles that nobody needs to register sources for: the module that knows them
_KNOWN: Final = {"nojit-kernels": "nojit.kernels.manifests"}
_PLACE: Final = re.compile(r"[\w.]+:\w+\Z")
_WRAPPERS: Final = ("Autotuner", "Heuristics")

_lock = threading.Lock()
# by bundle, or nothing, and kernel
_sources: dict[tuple[str, str], object] = {}


class MissWarning(UserWarning):
    """No variant serves a call, and Triton's JIT made it."""


class UnavailableError(Exception):
    """The JIT cannot make a call; says why, as a clause."""


@cache
def policy() -> str:
    """Return the policy of this process.

    Raises:
        SettingError: ``NOJIT_MISS`` names none.
    """
    return policy_of(os.environ)


def policy_of(environment: Mapping[str, str]) -> str:
    """Return the policy that an environment names.

    Raises:
        SettingError: ``NOJIT_MISS`` names none.
    """
    named = environment.get(VARIABLE, POLICIES[0])
    if named not in POLICIES:
        what = f"expected {', '.join(POLICIES[:-1])} or {POLICIES[-1]}"
        raise SettingError(what, got=f"{named!r}{did_you_mean(named, POLICIES)}", where=VARIABLE)
    return named


def register_source(kernel: str, source: object, *, bundle: str = "") -> None:
    """Say which function a kernel is compiled from, for calls that no variant serves; see ``NOJIT_MISS``.

    Kernels of nojit's own library are known. A kernel that is registered again is compiled from the last function.

    Args:
        kernel: its name in the bundle.
        source: a ``@triton.jit`` or Gluon function, or ``module:function``, which is imported when a call misses.
        bundle: what the bundle is called, where several have a kernel of this name; any if empty.

    A bundle can name a function as the value of a constexpr. It is imported only from the module of a registered source. To
    allow another one, register it too, under its own name.

    Raises:
        ArgumentError: `source` is neither.
    """
    if not (_PLACE.match(source) if isinstance(source, str) else hasattr(source, "__getitem__")):
        got = repr(source) if isinstance(source, str) else type(source).__name__
        what = "expected a @triton.jit function or module:function"
        raise ArgumentError(what, got=got, where=f"source of kernel {kernel}", argument="source")
    with _lock:
        _sources[bundle, kernel] = source


def function_of(kernel: str, bundle: str) -> Any:
    """Return the function that a kernel of a bundle is compiled from.

    Raises:
        UnavailableError: nobody says which it is, or it cannot be imported.
    """
    # the sources of a twin are its bundle's
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
    """Return the function that a bundle names as the value of a constexpr.

    A bundle is data, and must not choose what is imported: only modules count that hold a registered source.

    Raises:
        UnavailableError: its module holds no registered source, it cannot be imported, or is no function of Triton's.
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
    # of the Python function, where Triton wraps one: other objects have the module of their class
    return str(getattr(getattr(function, "fn", None), "__module__", "") or vars(function).get("__module__", ""))


def _is_the_librarys(module: str) -> bool:
    # whose manifests are read only for a module that can be theirs
    return module.startswith("nojit.kernels.") and any(
        module in import_module(known).modules() for known in _KNOWN.values()
    )


@cache
def load(source: object) -> Any:
    """Return a function by its place, or as it is, taken out of what decorators wrap around it.

    Raises:
        UnavailableError: it cannot be imported, or is no function of Triton's.
    """
    found: Any = source
    if isinstance(source, str):
        if find_spec("triton") is None:
            raise UnavailableError("Triton is not installed")
        module, _, name = source.partition(":")
        try:
            found = getattr(import_module(module), name)
        except MemoryError:
            raise
        except Exception as error:
            raise UnavailableError(f"{source} cannot be imported: {type(error).__name__}: {error}") from error
    found = _unwrapped(found)
    if not hasattr(found, "__getitem__"):
        raise UnavailableError(f"{source} is no @triton.jit function")
    return found


def _unwrapped(found: Any) -> Any:
    while type(found).__name__ in _WRAPPERS:
        found = found.fn
    return found
