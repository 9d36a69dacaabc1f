"""Timing of device work, and checks of results, for the other benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from contest import OURS
from torch import Tensor

__all__ = ["check", "compiled", "device_ms", "race", "time_ms"]

FLUSH_BYTES = 1 << 28
SPAN_MS = 4.0
"""The least duration of one replay of `device_ms`, unless it holds `MOST` calls."""
MOST = 16

Call = Callable[[], object]
Span = tuple[torch.cuda.Event, torch.cuda.Event]
"""Events before and after the timed work."""


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile a function for one shape, with torch's most thorough autotuning."""
    torch.compiler.reset()
    return torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)


def check(where: str, value: Tensor, expected: Tensor, apart: float) -> None:
    """Exit if a result has an error above a share of the largest value, or is NaN.

    Args:
        where: the group and the shape.
        value: the result.
        expected: the reference, of any dtype.
        apart: the share.
    """
    right = expected.float()
    off = float((value.float() - right).abs().max() / right.abs().max())
    if not off <= apart:
        raise SystemExit(f"{where}: off by {off:.3g} of the largest value")


def race(calls: Mapping[str, Call], rounds: int, where: str) -> dict[str, float | None]:
    """Return the median device time of each contender, in milliseconds; None for one that refuses the call.

    Args:
        calls: callables that can be captured. An error of `OURS` is raised; those of other contenders are printed.
        rounds: the number of turns.
        where: the group and the shape, for messages.
    """
    ready = {name: call for name, call in calls.items() if name.startswith(OURS) or _runs(name, call, where)}
    return dict.fromkeys(calls) | device_ms(ready, rounds)


def _runs(name: str, call: Call, where: str) -> bool:
    """Call a contender once, which also triggers torch.compile; return whether it runs."""
    try:
        call()
    except Exception as refused:  # noqa: BLE001 - compilers raise any exception
        reason = next(iter(str(refused).splitlines()), "")
        print(f"{where}: {name} is left out: {type(refused).__name__}: {reason}")
        return False
    return True


def time_ms(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the median time of each call in milliseconds, launched by the host after an L2 flush."""
    flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    events: dict[str, list[Span]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            flushed.zero_()
            events[name].append(_timed(call))
    return _medians(events)


def device_ms(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the median device time of each call in milliseconds, without the overhead of graphs and timers.

    That overhead is several microseconds, as long as a small kernel. So one graph holds many calls, each after an L2 flush,
    and another graph the flushes alone; the difference is divided by the number of calls. Flushes only read, so that no
    write-back falls into the time of a call.

    Args:
        calls: callables that can be captured.
        rounds: the number of turns.
    """
    flushed = torch.zeros(FLUSH_BYTES // 4, device="cuda")
    rough = time_ms(calls, 3)
    count = {name: max(2, min(MOST, int(SPAN_MS / ms))) for name, ms in rough.items()}
    graphs = {name: _repeated(call, flushed, count[name]) for name, call in calls.items()}
    flushes = {number: _repeated(None, flushed, number) for number in {*count.values()}}
    events: dict[str, list[Span]] = {name: [] for name in graphs}
    alone: dict[int, list[Span]] = {number: [] for number in flushes}
    for _ in range(rounds):
        for name, graph in graphs.items():
            events[name].append(_timed(graph.replay))
        for number, graph in flushes.items():
            alone[number].append(_timed(graph.replay))
    less = _medians(alone)
    return {name: (ms - less[count[name]]) / count[name] for name, ms in _medians(events).items()}


def _repeated(call: Call | None, flushed: Tensor, count: int) -> torch.cuda.CUDAGraph:
    if call is not None:
        call()
    flushed.amax()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    own = torch.cuda.current_stream()
    with torch.cuda.graph(graph, stream=None if own == torch.cuda.default_stream() else own):
        for _ in range(count):
            flushed.amax()
            if call is not None:
                call()
    return graph


def _timed(call: Call) -> Span:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    call()
    last.record()
    return first, last


def _medians(events: dict[Any, list[Span]]) -> dict[Any, float]:
    torch.cuda.synchronize()
    return {name: statistics.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in events.items()}
