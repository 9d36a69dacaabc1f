"""The package whose functions are served: Triton, or the stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nojit.runtime.errors import NojitError

__all__ = ["ATTRIBUTE", "StandinHost", "TritonHost"]

ATTRIBUTE: Final = "_nojit_served"
"""Attribute of a function of Triton that holds what serves it: the handle of a `Function`, or an `Unserved`."""


class TritonHost:
    """Triton, as it runs calls that nothing serves.

    Args:
        run: ``JITFunction.run`` as it was.
        knobs: ``triton.knobs``.
        version: the version of Triton.
    """

    def __init__(self, run: Any, knobs: Any, version: str) -> None:
        self.version = version
        self._run = run
        self._knobs = knobs

    def run(self, function: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, warmup: bool) -> Any:
        """Let Triton compile and launch."""
        return self._run(function, *args, grid=grid, warmup=warmup, **kwargs)

    def added(self, function: Any) -> dict[str, Any]:
        """Return what ``JITFunction.run`` adds to the options of a call, unless it is the default."""
        compilation = self._knobs.compilation
        options = {
            "debug": function.debug or self._knobs.runtime.debug,
            "instrumentation_mode": getattr(compilation, "instrumentation_mode", ""),
            "fpsan_homomorphic_casts": getattr(compilation, "fpsan_homomorphic_casts", False),
        }
        return {name: value for name, value in options.items() if value}

    def hooks(self, function: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the function's ``pre_run_hooks`` and the process's launch hooks."""
        runtime = self._knobs.runtime
        return function.pre_run_hooks, _calls_of(runtime.launch_enter_hook), _calls_of(runtime.launch_exit_hook)


class StandinHost:
    """The stand-in for an absent Triton, which compiles nothing and calls ``pre_run_hooks`` itself."""

    version = ""

    def run(self, function: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, warmup: bool) -> Any:
        """Refuse: nothing can compile the call.

        Raises:
            NojitError: always.
        """
        del grid, args, kwargs, warmup
        what = "no bundle serves this call, and Triton is not installed to compile it"
        raise NojitError(what, where=f"{function.module}:{function.__qualname__}").advise("pip install triton")

    def added(self, function: Any) -> dict[str, Any]:
        """Return nothing: the stand-in passes ``debug`` with the call."""
        del function
        return {}

    def hooks(self, function: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the process's launch hooks."""
        del function
        from triton import knobs

        runtime = knobs.runtime
        return [], _calls_of(runtime.launch_enter_hook), _calls_of(runtime.launch_exit_hook)


def _calls_of(hook: Any) -> list[Any]:
    """Return the functions of a chain of hooks, as the chain's own list; older Tritons have one function or None."""
    calls = getattr(hook, "calls", None)
    if isinstance(calls, list):
        return calls
    return [] if hook is None else [hook]
