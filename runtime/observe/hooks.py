"""Hooks around every launch, for profilers: NVTX ranges, Proton, or your own functions.

Without hooks, a launch only tests a flag. With a hook, each launch creates a `LaunchInfo` in Python.

::

    hooks.add(lambda info: print(info.kernel, info.grid))
    hooks.add_ranges(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)
    hooks.add_triton(triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook)  # Proton's
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.errors import ArgumentError

__all__ = ["Handle", "Hook", "LaunchInfo", "Metadata", "add", "add_ranges", "add_triton", "remove"]


class LaunchInfo(Record):
    """One launch, as hooks get it."""

    kernel: str
    variant: str
    """Label of the variant: its id, config and bundle."""
    grid: tuple[int, int, int]
    """Number of programs in each dimension, without the factor of clusters."""
    stream: int
    """Handle of the stream; 0 is the default stream."""
    device: int
    """Ordinal of the device."""


Hook: TypeAlias = Callable[[LaunchInfo], object]


class Handle(Record):
    """A registration; two registrations of equal hooks are different."""

    enter: Hook | None
    leave: Hook | None

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


# reentrant: a finalizer may add or remove hooks while this thread holds the lock
_lock = threading.RLock()
# replaced, never changed: a launch uses the hooks that it found
_handles: tuple[Handle, ...] = ()


def add(enter: Hook | None = None, leave: Hook | None = None) -> Handle:
    """Call `enter` before and `leave` after every launch from now on.

    Hooks are entered in the order in which they were added, and left in reverse order. `leave` is called for each `enter` that
    returned, also if the launch fails. If `enter` raises, the kernel is not launched. Exceptions of hooks reach the caller of
    the kernel. Hooks run in the launching thread.

    Returns:
        The handle, for `remove`.

    Raises:
        ArgumentError: a hook cannot be called.
    """
    _check(enter=enter, leave=leave)
    handle = Handle(enter, leave)
    _replace(lambda handles: (*handles, handle))
    return handle


def remove(handle: Handle) -> None:
    """Remove a pair of hooks.

    Raises:
        ValueError: it was never added, or has been removed.
    """

    def without(handles: tuple[Handle, ...]) -> tuple[Handle, ...]:
        if handle not in handles:
            raise ValueError(f"expected the handle of installed hooks, got {handle}")
        return tuple(other for other in handles if other is not handle)

    _replace(without)


def add_ranges(push: Callable[[str], object], pop: Callable[[], object]) -> Handle:
    """Open a range with the kernel's name around every launch.

    Args:
        push: opens a range: ``torch.cuda.nvtx.range_push``, ``nvtx.push_range``.
        pop: closes the innermost range: ``torch.cuda.nvtx.range_pop``, ``nvtx.pop_range``.

    Raises:
        ArgumentError: one of them cannot be called.
    """
    _check(push=push, pop=pop, needed=True)
    return add(lambda info: push(info.kernel), lambda _: pop())


class Metadata:
    """A launch in the form in which Triton describes it to hooks."""

    def __init__(self, info: LaunchInfo) -> None:
        self.data: dict[str, Any] = {
            "name": info.kernel,
            "function": None,
            "stream": info.stream,
            "grid": info.grid,
            "variant": info.variant,
        }
        self._later: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def add(self, function: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> None:
        """Add facts that are computed on request."""
        self._later.append((function, args))

    def get(self) -> dict[str, Any]:
        """Return all facts about the launch."""
        for function, args in self._later:
            self.data = self.data | function(*args)
        self._later.clear()
        return self.data


def add_triton(enter: Callable[[Any], object], leave: Callable[[Any], object]) -> Handle:
    """Call hooks written for Triton, such as Proton's.

    Args:
        enter: ``triton.knobs.runtime.launch_enter_hook``, or any function that takes Triton's launch metadata.
        leave: ``triton.knobs.runtime.launch_exit_hook``, or a similar function.

    Raises:
        ArgumentError: one of them cannot be called.
    """
    _check(enter=enter, leave=leave, needed=True)
    return add(lambda info: enter(Metadata(info)), lambda info: leave(Metadata(info)))


def _check(*, needed: bool = False, **functions: object) -> None:
    """Require functions, or None unless they are needed, so that the error comes now and not at a launch."""
    for name, function in functions.items():
        if not callable(function) and (needed or function is not None):
            what = "expected a function" if needed else "expected a function or None"
            raise ArgumentError(what, got=repr(function), where="a launch hook", argument=name)


def _replace(change: Callable[[tuple[Handle, ...]], tuple[Handle, ...]]) -> None:
    global _handles  # noqa: PLW0603 - the list of hooks is the process's
    with _lock:
        before: tuple[Handle, ...] | None = None
        while _handles is not before:
            before = _handles
            after = change(before)
        _handles = after
        _core.set_hooks(_enter, _leave) if _handles else _core.set_hooks(None, None)


_Entered: TypeAlias = tuple[LaunchInfo, list[Handle]]


def _enter(kernel: str, plan: _core.Plan, grid: tuple[int, int, int], stream: int) -> _Entered:
    info = LaunchInfo(kernel, str(plan.label), grid, stream, plan.device)
    entered: list[Handle] = []
    try:
        for handle in _handles:
            if handle.enter is not None:
                handle.enter(info)
            entered.append(handle)
    except BaseException:
        _leave((info, entered))
        raise
    return info, entered


def _leave(entered: _Entered) -> None:
    info, handles = entered
    problem: BaseException | None = None
    for handle in reversed(handles):
        if handle.leave is not None:
            try:
                handle.leave(info)
            except BaseException as error:  # noqa: BLE001 - raised once the others have been left
                problem = problem or error
    if problem is not None:
        raise problem
