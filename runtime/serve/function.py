"""Functions of Triton: those that bundles serve, and those that none does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

from nojit.runtime import _core
from nojit.runtime.base.caller_warning import warn_caller
from nojit.runtime.errors import NojitError, NoMatchingVariantError
from nojit.runtime.fallback.policy import MissWarning
from nojit.runtime.observe.events import emit
from nojit.runtime.observe.hooks import LaunchInfo, Metadata
from nojit.runtime.recording.origins import Origin
from nojit.runtime.serve.driver import current_stream
from nojit.runtime.serve.kernel import ServedKernel

__all__ = ["ADVICE", "Function", "Host", "Unserved"]

ADVICE = (
    "record it with nojit record -o more.nojitrec -- PROGRAM, and build both recordings; NOJIT_MISS=jit compiles it"
)


class Host(Protocol):
    """The package whose functions are served: Triton, or the stand-in."""

    def run(self, function: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, warmup: bool) -> Any:
        """Run a call as if nothing was served. Raises `NojitError` if that is impossible."""

    @property
    def version(self) -> str:
        """Version of Triton; empty for the stand-in."""

    def added(self, function: Any) -> dict[str, Any]:
        """Return the options that Triton adds to every call of a function."""

    def hooks(self, function: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Return functions to call, as lists that the program changes: with each call, before its launch, and after it."""


class Unserved:
    """A function that no bundle serves.

    Args:
        function: the function.
        host: runs its calls.
        miss: ``error``, ``warn`` or ``jit``.
        name: its ``module:qualname``, for the event.
        error: says why it is not served.
    """

    kernel: ServedKernel | None = None

    def __init__(self, function: Any, host: Host, miss: str, name: str, error: NoMatchingVariantError) -> None:
        self.function = function
        self.error = error
        self.misses = 0
        self._host = host
        self._miss = miss
        self._name = name

    def miss(self) -> bool:
        """Count a call; return whether it is the first one, which is an event."""
        self.misses += 1
        first = self.misses == 1
        if first:
            emit("miss", perf_counter_ns(), kernel=self._name, detail=self.error.what)
        return first

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self._call, grid)

    def _call(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        return self.launch(grid, args, kwargs)

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, warmup: bool = False) -> Any:
        """Run a call as the policy says."""
        call = (self.function, grid, args, kwargs)
        return _take_miss(self.error, self._miss, self._host, call, warmup=warmup, first=self.miss())


class Function:
    """A function of Triton that a kernel of a bundle stands for.

    Args:
        function: the function.
        host: runs calls that nothing serves.
        miss: ``error``, ``warn`` or ``jit``.
        kernel: the kernel.
        origin: what it was built from.
    """

    def __init__(self, function: Any, host: Host, miss: str, kernel: ServedKernel, origin: Origin) -> None:
        self.function = function
        self.kernel = kernel
        self.origin = origin
        self.misses = 0
        self.nearest_configs = 0
        self._host = host
        self._miss = miss
        self._added = host.added(function)
        self._detours = 0
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        watched = (*host.hooks(function), *([[True]] if self._added else []))
        self.handle = _core.Served(kernel, self, watched)
        """Answers ``handle[grid](...)`` from C."""

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.kernel.name

    @property
    def arg_names(self) -> list[str]:
        """Names of the kernel's params, options last."""
        return self.kernel.arg_names

    @property
    def launches(self) -> int:
        """Number of calls that were launched from the bundle."""
        return self.handle.launches + self._detours

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.handle[grid]

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, warmup: bool = False) -> Any:
        """Launch a call or, with `warmup`, load its variant; return what answers as Triton's ``CompiledKernel``."""
        if not warmup:
            return self.handle[grid](*args, **kwargs)
        try:
            plan = self.kernel.warmup(*args, **{**self._added, **kwargs}).plan
        except NoMatchingVariantError as error:
            return self._recover(error, grid, args, kwargs, warmup=True)
        for hook in [*self._host.hooks(self.function)[0]]:
            hook(*args, **kwargs)
        return plan.result

    # called by C

    def _detour(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call around which functions of the program are called, in Triton's order."""
        try:
            plan = self.kernel._warm(*args, **{**self._added, **kwargs})  # noqa: SLF001 - selects without loading
        except NoMatchingVariantError as error:
            return self._recover(error, grid, args, kwargs)
        before, enter, leave = self._host.hooks(self.function)
        for hook in [*before]:
            hook(*args, **kwargs)
        if callable(grid):
            grid = grid(self._bound(args, kwargs))
        if not enter and not leave:
            result = self.kernel[grid](*args, **{**self._added, **kwargs})
        else:
            metadata = self._metadata(plan, grid, args, kwargs)
            for hook in [*enter]:
                hook(metadata)
            result = self.kernel[grid](*args, **{**self._added, **kwargs})
            for hook in [*leave]:
                hook(metadata)
        with self._lock:
            self._detours += 1
        return result

    def _recover(
        self, error: NojitError, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, warmup: bool = False
    ) -> Any:
        """Make a call that the kernel refuses as the policy says."""
        missed = isinstance(error, NoMatchingVariantError)
        if not missed and self._miss == "error":
            raise error
        with self._lock:
            self.misses += missed
            first = error.what not in self._warned
            self._warned.add(error.what)
        if isinstance(error, NoMatchingVariantError):
            error = _named(error, self.origin)
        call = (self.function, grid, args, kwargs)
        return _take_miss(error, self._miss, self._host, call, warmup=warmup, first=first)

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all params by name, as a grid function gets them."""
        bound = self.function.signature.bind_partial(
            *args, **{name: value for name, value in kwargs.items() if name in self.function.signature.parameters}
        )
        bound.apply_defaults()
        return dict(bound.arguments)

    def _metadata(self, plan: _core.Plan, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Metadata:
        sides = (*grid, 1, 1)[:3]
        stream = current_stream(plan.device)
        info = LaunchInfo(self.kernel.name, str(plan.label), sides, stream, plan.device)
        metadata = Metadata(info)
        describe = self.function.launch_metadata
        if describe is not None:
            metadata.add(describe, (grid, plan.result.metadata, self._bound(args, kwargs)))
        return metadata


def _named(error: NoMatchingVariantError, origin: Origin) -> NoMatchingVariantError:
    what = f"{origin.module}:{origin.qualname} was recorded, but not this call of it: {error.what}"
    named = NoMatchingVariantError(what, got=error.got, where=error.where, reasons=error.reasons)
    return named.advise(error.advice or ADVICE)


def _take_miss(
    error: NojitError,
    miss: str,
    host: Host,
    call: tuple[Any, Any, tuple[Any, ...], dict[str, Any]],
    *,
    warmup: bool,
    first: bool,
) -> Any:
    """Raise an error, or run its call otherwise."""
    if miss == "error":
        raise error
    if miss == "warn" and first and isinstance(error, NoMatchingVariantError):
        warn_caller(f"{error.finding()}; Triton compiles it", MissWarning)
    function, grid, args, kwargs = call
    return host.run(function, grid, args, kwargs, warmup=warmup)
