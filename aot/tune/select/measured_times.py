"""Measurements for selection, evaluation and report: one time, or one error, for each problem and config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nojit.aot.tune.select.clock_drift import drifts_of_rungs
from nojit.aot.tune.store.database import Database
from nojit.aot.tune.store.records import Config, Device, KernelFacts, Measurement, Problem, Pruned, Run
from nojit.runtime.table.tuning import TunedDevice

__all__ = ["MeasuredTimes", "Sample", "Unfit", "collect"]


@dataclass(frozen=True, slots=True)
class Sample:
    """The time of one config for one problem."""

    us: float
    """Median in microseconds, scaled to the conditions of the problem's last rung."""
    noise: float
    """Half the width of the median's 95% interval, as a share of the median."""
    rung: int
    """The last rung of the config."""
    last: bool
    """Whether `rung` is the last rung of the problem too."""
    clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class Unfit:
    """A config that was wrong or failed for a problem."""

    status: str
    """``wrong`` or ``failed``."""
    detail: str


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """All measurements of one kernel on one kind of device."""

    kernel: KernelFacts
    device: TunedDevice
    problems: Mapping[int, Problem]
    configs: Mapping[int, Config]
    """Configs that were measured for some problem."""
    samples: Mapping[tuple[int, int], Sample]
    """Times by problem and config."""
    unfit: Mapping[tuple[int, int], Unfit]
    """Wrong and failed configs by problem and config; such a pair has no sample."""
    runs: tuple[tuple[Run, Device], ...]
    pruned: tuple[Pruned, ...]

    def timed(self, problem: int) -> dict[int, Sample]:
        """Return the samples of one problem by config, fastest first."""
        found = {config: sample for (one, config), sample in self.samples.items() if one == problem}
        return dict(sorted(found.items(), key=lambda item: (item[1].us, item[0])))


def collect(database: Database, use: str | None = None, kernels: Iterable[str] = ()) -> tuple[MeasuredTimes, ...]:
    """Return the measurements of each kernel and kind of device, sorted by name.

    Args:
        database: the database to read.
        use: only problems of this use, such as ``tune`` or ``held_out``; all if None.
        kernels: only these kernels; all if empty.
    """
    wanted = set(kernels)
    devices = database.devices()
    kinds = sorted({device.kind() for device in devices.values()}, key=lambda kind: (kind.name, kind.arch))
    found = []
    for number, kernel in sorted(database.kernels().items(), key=lambda item: item[1].name):
        for kind in kinds if not wanted or kernel.name in wanted else ():
            alike = {one for one, device in devices.items() if device.kind() == kind}
            taken = [one for device in sorted(alike) for one in database.measurements(number, device, use)]
            if taken:
                found.append(_measured_times(database, number, kind, use, taken))
    return tuple(found)


def _measured_times(
    database: Database, kernel: int, kind: TunedDevice, use: str | None, taken: list[Measurement]
) -> MeasuredTimes:
    pairs: dict[tuple[int, int], list[Measurement]] = {}
    for one in taken:
        pairs.setdefault((one.problem, one.config), []).append(one)
    newest = {pair: _newest(ones) for pair, ones in pairs.items()}
    fit = {pair: ones for pair, ones in newest.items() if all(one.status == "ok" for one in ones)}
    rungs: dict[int, dict[int, dict[int, float]]] = {}
    for (problem, config), ones in fit.items():
        for one in sorted(ones, key=lambda one: one.taken):
            rungs.setdefault(problem, {}).setdefault(one.rung, {})[config] = one.median_us or 0.0
    drifts = {problem: drifts_of_rungs(times) for problem, times in rungs.items()}
    devices, runs = database.devices(), database.runs()
    used = sorted({one.run for one in taken})
    measured = {config for _, config in pairs}
    problems = database.problems(kernel, use)
    return MeasuredTimes(
        kernel=database.kernels()[kernel],
        device=kind,
        problems={number: problems[number] for number in sorted({problem for problem, _ in pairs})},
        configs={number: config for number, config in database.configs(kernel).items() if number in measured},
        samples={pair: _sample(ones, drifts[pair[0]]) for pair, ones in sorted(fit.items())},
        unfit={pair: _unfit(ones) for pair, ones in sorted(newest.items()) if pair not in fit},
        runs=tuple((runs[number], devices[runs[number].device]) for number in used),
        pruned=tuple(dict.fromkeys(one for one in database.pruned(kernel) if one.run in used)),
    )


def _newest(measurements: list[Measurement]) -> list[Measurement]:
    """Return the measurements of the newest machine code; older ones no longer count."""
    last = max(measurements, key=lambda one: one.taken)
    return [one for one in measurements if one.image == last.image]


def _sample(measurements: list[Measurement], drifts: Mapping[int, float]) -> Sample:
    best = max(measurements, key=lambda one: (one.rung, one.taken))
    us = (best.median_us or 0.0) * drifts[best.rung]
    return Sample(us, best.noise or 0.0, best.rung, best.rung == max(drifts), best.clock_mhz)


def _unfit(measurements: list[Measurement]) -> Unfit:
    bad = next(one for one in measurements if one.status != "ok")
    return Unfit(bad.status, bad.detail)
