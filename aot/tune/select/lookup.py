"""Look-up of problems in tuned tables by the runtime's rules, without a bundle. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nojit.aot.tune.store.records import Config, Problem
from nojit.runtime.tuning.lookup import bucket_of, closest_device, nearest, ranked
from nojit.runtime.tuning.resolution import block_of
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedDevice, TunedTable
from nojit.runtime.values import identity

__all__ = ["LookupResult", "find_config", "look_up", "table_for"]


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The row of a tuned table that serves a problem: its own, or else the nearest one."""

    at: tuple[int, ...]
    """The buckets of the nearest row."""
    exact: bool
    """Whether the problem's own buckets are those of the row."""
    use: tuple[TunedConfig, ...]
    """The configs for the problem, best first."""


def table_for(tables: Sequence[TunedTable], kernel: str, device: TunedDevice) -> TunedTable | None:
    """Return the table that the runtime would use on a device: of the same arch, from the most similar device; None without one."""
    fitting = [table for table in tables if table.kernel == kernel and table.device.arch == device.arch]
    return fitting[closest_device([table.device for table in fitting], device)] if fitting else None


def look_up(table: TunedTable, bucket: str, problem: Problem, multiprocessors: int) -> LookupResult | None:
    """Return the configs of a table in order for a problem; None if the table does not cover its case.

    Args:
        table: the tuned table.
        bucket: the rule that rounds key values.
        problem: the problem.
        multiprocessors: number of multiprocessors of the device.
    """
    entry = next((entry for entry in table.entries if entry.covers(problem.case)), None)
    if entry is None:
        return None
    block = block_of(table, entry, (), range(len(table.configs)), bucket)
    key = tuple(bucket_of(bucket, value) for value in problem.key)
    problems, _, _ = block.columns()
    at = problems[nearest(problems, key)]
    order = ranked(block, key, multiprocessors)
    return LookupResult(at, at == key, tuple(table.configs[number] for number in order))


def find_config(configs: Mapping[int, Config], tuned: TunedConfig) -> int | None:
    """Return the number of a table's config among the measured ones; None if it was not measured."""
    return next((number for number, config in configs.items() if _fits(config, tuned)), None)


def _fits(config: Config, tuned: TunedConfig) -> bool:
    return config.requires == tuned.requires and all(
        name in config.settings and identity(config.settings[name]) == identity(value) for name, value in tuned.settings
    )
