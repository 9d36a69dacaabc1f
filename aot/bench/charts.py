"""Charts of the results. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nojit.aot.bench.cold_start import ColdStartBench
from nojit.aot.bench.launch import LaunchBench
from nojit.aot.bench.plot import Bar, Chart, Group

__all__ = ["cold_start_chart", "launch_chart"]


def launch_chart(bench: LaunchBench) -> Chart:
    """Return a chart of each contender's median, grouped by number of arguments."""
    groups = []
    for arguments in _in_order(figure.arguments for figure in bench.figures):
        bars = tuple(
            Bar(
                figure.contender,
                (("median us", figure.median_us),),
                f"{figure.median_us:.2f} us{_times(figure.median_ratio)}",
            )
            for figure in bench.figures
            if figure.arguments == arguments
        )
        groups.append(Group(f"{arguments} argument{'s' if arguments > 1 else ''}", bars))
    text = (
        f"median of {bench.rounds} interleaved rounds of {bench.launches} launches; {bench.environment.get('gpu', '')}"
    )
    return Chart("Host time of one launch", text, tuple(groups))


def cold_start_chart(bench: ColdStartBench) -> Chart:
    """Return a chart of the stages of each process start, grouped by number of kernels."""
    groups = []
    for kernels in _in_order(figure.kernels for figure in bench.figures):
        bars = tuple(
            Bar(
                figure.way,
                tuple((f"{stage.name}, ms", stage.ms) for stage in figure.stages),
                f"{figure.median_ms:.0f} ms{_times(figure.ratio)}",
            )
            for figure in bench.figures
            if figure.kernels == kernels
        )
        groups.append(Group(f"{kernels} kernel{'s' if kernels > 1 else ''}", bars))
    text = f"median of {bench.rounds} processes each; {bench.environment.get('gpu', '')}"
    return Chart("Process start to completion of its last kernel", text, tuple(groups))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f", {ratio:.2f} x"


def _in_order(numbers: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(numbers))
