"""Tuned tables from recordings: what autotuners of the program chose on its GPU, by the keys and axes of a manifest. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from nojit.aot.manifest.options import OPTIONS
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.recording.file import Recording
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedDevice, TunedEntry, TunedRow, TunedTable
from nojit.runtime.types.names import element_name
from nojit.runtime.values import Value, decode_value, identity

__all__ = ["TOOL", "Chosen", "device_of"]

TOOL: Final = "nojit manifest"
"""``origin.tool`` of the tables."""
_SUFFIX: Final = ".dtype"


def device_of(recording: Recording) -> TunedDevice | None:
    """Return the GPU on which a recording's autotuners measured; None if there were several, or only simulated ones."""
    found: set[TunedDevice] = set()
    for process in recording.processes.values():
        name, arch = str(process.get("device") or ""), str(process.get("arch") or "")
        counts: tuple[Any, Any] = process.get("multiprocessors"), process.get("memory_bytes")
        if process.get("fake") or not name or not arch or not all(type(each) is int and each > 0 for each in counts):
            if arch:
                return None
            continue
        found.add(TunedDevice(name, arch, *map(int, counts)))
    return found.pop() if len(found) == 1 else None


class Chosen:
    """The winners of a kernel, in the words of its manifest.

    Args:
        winners: the recorded winners of the kernel.
        key: the ints of the manifest's tuning key.
        axes: values of each axis of the manifest.
        dtype: the axis of a dtype, and the params that have it; no params if there is no such axis.
        tunable: constexprs that every config sets.
    """

    def __init__(
        self,
        winners: Iterable[Mapping[str, Any]],
        *,
        key: Sequence[str],
        axes: Mapping[str, Sequence[Value]],
        dtype: tuple[str, Sequence[str]],
        tunable: Iterable[str],
    ) -> None:
        self._winners = winners
        self._key = key
        self._axes = axes
        self._dtype = dtype
        self._tunable = set(tunable)

    def table(self, kernel: str, device: TunedDevice, origin: Sequence[tuple[str, str]]) -> TunedTable | None:
        """Return the table of a kernel; None if the manifest can tell none of the winners apart from others."""
        best: dict[Any, tuple[float, str, TunedConfig]] = {}
        cases: dict[Any, tuple[tuple[str, tuple[Value, ...]], ...]] = {}
        for line in self._winners:
            read = self._read(line)
            if read is None:
                continue
            at, where, config = read
            case = tuple((name, identity(value)) for name, value in where)
            cases.setdefault(case, tuple((name, (value,)) for name, value in where))
            time_ns = line.get("time_ns")
            rank = math.inf if time_ns is None else float(time_ns), repr(config), config
            if (case, at) not in best or rank[:2] < best[case, at][:2]:
                best[case, at] = rank
        if not best:
            return None
        configs = list(dict.fromkeys(config for _, _, config in best.values()))
        entries = [
            TunedEntry(
                where,
                tuple(
                    _row(at, configs.index(config), time_ns)
                    for (owner, at), (time_ns, _, config) in sorted(best.items(), key=lambda item: item[0][1])
                    if owner == case
                ),
            )
            for case, where in sorted(cases.items(), key=lambda item: str(item[0]))
        ]
        return TunedTable(kernel, tuple(self._key), device, tuple(origin), tuple(configs), tuple(entries))

    def _read(
        self, line: Mapping[str, Any]
    ) -> tuple[tuple[int, ...], tuple[tuple[str, Value], ...], TunedConfig] | None:
        try:
            pairs = {str(name): decode_value(value, "key") for name, value in line["key"]}
            options = [(name, value) for name, value in line["config"].get("options", []) if name in OPTIONS]
            given = {str(name): decode_value(value, "config") for name, value in [*line["config"]["kwargs"], *options]}
        except (BundleFormatError, LookupError, TypeError, ValueError):
            return None
        at = tuple(pairs.get(name) for name in self._key)
        where = self._where(pairs)
        if where is None or not self._tunable <= given.keys():
            return None
        numbers = tuple(value for value in at if type(value) is int and value >= 0)
        return (numbers, where, TunedConfig(tuple(given.items()), "")) if len(numbers) == len(at) else None

    def _where(self, pairs: Mapping[str, Value]) -> tuple[tuple[str, Value], ...] | None:
        """Return the axes of a winner's case; None if the key has a value that the axis lacks."""
        found: list[tuple[str, Value]] = []
        axis, params = self._dtype
        for name, values in self._axes.items():
            if name == axis and params:
                elements = {
                    element_name(str(pairs[f"{each}{_SUFFIX}"])) for each in params if f"{each}{_SUFFIX}" in pairs
                }
                value: Value = elements.pop() if len(elements) == 1 else None
            elif name in pairs:
                value = pairs[name]
            else:
                continue
            if identity(value) not in [identity(each) for each in values]:
                return None
            found.append((name, value))
        return tuple(found)


def _row(at: tuple[int, ...], config: int, time_ns: float) -> TunedRow:
    return TunedRow(at, (config,), () if math.isinf(time_ns) else (round(time_ns / 1000, 2),))
