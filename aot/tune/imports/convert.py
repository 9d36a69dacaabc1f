"""Conversion of imported measurements into a tuned table. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nojit.aot.tune.imports.importers import ForeignFile, ForeignRow, Settings
from nojit.aot.tune.select.portfolio import loss_curve, smallest
from nojit.aot.tune.select.selection import Bounds
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import TuningError
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedDevice, TunedEntry, TunedRow, TunedTable
from nojit.runtime.values import Value

__all__ = ["TableRequest", "to_tuned"]


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Facts that the imported files do not contain: the kernel, its key, the device."""

    kernel: str
    key: tuple[str, ...]
    """Expressions over the kernel's params."""
    take: tuple[str, ...]
    """The name of a file's value for each key expression; empty for the format's default."""
    where: tuple[tuple[str, tuple[Value, ...]], ...]
    """The measured cases: each axis with its values."""
    device: TunedDevice
    rename: Mapping[str, str]
    """From a file's name of a constexpr to the kernel's name."""
    origin: tuple[tuple[str, str], ...]
    """Entries of the table's ``origin``."""


def to_tuned(files: Sequence[ForeignFile], request: TableRequest, bounds: Bounds) -> TunedTable:
    """Convert the configs of all files to one tuned table; if the files have times, keep only a portfolio.

    Raises:
        TuningError: a requested value or name is missing; two entries have the same key; or no portfolio within `bounds`
            serves every problem.
    """
    _check_names(files, request.rename)
    found: dict[tuple[int, ...], tuple[str, dict[Settings, float | None]]] = {}
    for file in files:
        for row in file.rows:
            at = _key_of(row, file, request)
            times = {_renamed(settings, request.rename, file.path): us for settings, us in row.times}
            if at in found and (found[at][0] == file.path or found[at][1] != times):
                got = (
                    f"{at} in {found[at][0]} too; tell them apart with more --key and --take, or import one file alone"
                )
                raise TuningError("expected each problem once: leave out a file", got=got, where=file.path)
            found[at] = (file.path, times)
    rows = {at: times for at, (_, times) in sorted(found.items())}
    return _table(rows, _kept(list(rows.values()), bounds), request)


def _key_of(row: ForeignRow, file: ForeignFile, request: TableRequest) -> tuple[int, ...]:
    take = request.take or file.default
    if len(take) != len(request.key):
        values = ", ".join(row.values) or "none"
        what = f"expected one value of the file for each --key ({len(request.key)})"
        got = f"{len(take)} ({', '.join(take) or 'none'}); name {len(request.key)} with --take, from {values}"
        raise TuningError(what, got=got, where=file.path)
    for name in take:
        if name not in row.values:
            got = f"{name!r}{did_you_mean(name, tuple(row.values))}"
            raise TuningError(
                f"expected --take to name values of the file ({', '.join(row.values) or 'it has none'})",
                got=got,
                where=file.path,
            )
    return tuple(row.values[name] for name in take)


def _check_names(files: Sequence[ForeignFile], rename: Mapping[str, str]) -> None:
    known = {name for file in files for row in file.rows for settings, _ in row.times for name, _ in settings}
    for name in rename:
        if name not in known:
            got = f"{name!r}{did_you_mean(name, sorted(known))}"
            raise TuningError(f"expected --rename to name a setting of the files ({', '.join(sorted(known))})", got=got)


def _renamed(settings: Settings, rename: Mapping[str, str], where: str) -> Settings:
    renamed = {rename.get(name, name): value for name, value in settings}
    if len(renamed) < len(settings):
        raise TuningError(
            "expected --rename to give each setting a name of its own", got=", ".join(rename.values()), where=where
        )
    return tuple(sorted(renamed.items(), key=lambda setting: (setting[0].islower(), setting[0])))


def _kept(rows: Sequence[Mapping[Settings, float | None]], bounds: Bounds) -> list[Settings]:
    """Return the configs of the portfolio; all configs if any time is missing, because they cannot be compared then."""
    configs = list(dict.fromkeys(settings for times in rows for settings in times))
    if any(us is None for times in rows for us in times.values()):
        return configs
    costs = [[_cost(times, config) for config in configs] for times in rows]
    curve = loss_curve(costs, bounds.loss, bounds.configs)
    if not curve:
        what = f"expected {bounds.configs} configs or fewer that serve all {len(rows)} problems"
        raise TuningError(what, got=f"none among {len(configs)} configs; allow more with --max-configs")
    return [configs[place] for place in smallest(curve, bounds.loss).configs]


def _cost(times: Mapping[Settings, float | None], config: Settings) -> float:
    us = times.get(config)
    return math.inf if us is None else us / min(known for known in times.values() if known is not None)


def _table(
    rows: Mapping[tuple[int, ...], Mapping[Settings, float | None]], kept: Iterable[Settings], request: TableRequest
) -> TunedTable:
    numbers = {settings: number for number, settings in enumerate(kept)}
    made = []
    for at, times in rows.items():
        order = [settings for settings in times if settings in numbers]
        us = tuple(round(known, 2) for known in map(times.__getitem__, order) if known is not None)
        made.append(TunedRow(at, tuple(numbers[settings] for settings in order), us))
    return TunedTable(
        kernel=request.kernel,
        key=request.key,
        device=request.device,
        origin=request.origin,
        configs=tuple(TunedConfig(settings, "") for settings in numbers),
        entries=(TunedEntry(request.where, tuple(made)),),
    )
