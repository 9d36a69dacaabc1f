"""Turn tuned tables, which name configs, axes and params, into the numbers of a kernel's table."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import TYPE_CHECKING

from nojit.runtime import _core
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import TuningError
from nojit.runtime.table.parts import Config
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TuningBlock, TuningRow, TuningTable
from nojit.runtime.tuning.costs import cost_words
from nojit.runtime.tuning.lookup import bucket_of, config_words
from nojit.runtime.values import Value, identity, spell

if TYPE_CHECKING:
    from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedEntry, TunedRow, TunedTable

__all__ = ["DEFAULT_BUCKET", "block_of", "config_number", "resolve", "rows_of"]

DEFAULT_BUCKET = "quarter_pow2"
_OCTAVE = 1000
"""Units of a row's ``behind`` in an octave: thousandths."""
_PLACE_BEHIND = 30
"""How far each config of a row is behind the one before if nobody says what they took: 2 %."""


def resolve(tuned: TunedTable, table: KernelTable) -> TuningTable:
    """Turn the names of a tuned table into the numbers of a kernel's table.

    Of several entries that cover a case the first counts; of several rows in one bucket, too. Entries that cover
    nothing in `table` are left out: it may hold fewer cases than were measured.

    Args:
        tuned: what was measured.
        table: the kernel's variants for the device's arch.

    Raises:
        TuningError: a config, an axis or a param that `table` lacks, or another key than `table` has.
    """
    bucket = _check_key(tuned, table)
    for number, entry in enumerate(tuned.entries):
        _check_axes(entry, table, f"{tuned.path} $.entry[{number}].where")
    configs = [
        config_number(table, config, f"{tuned.path} $.config[{number}]") for number, config in enumerate(tuned.configs)
    ]
    covered: dict[int, list[int]] = {}
    for number in range(len(table.cases)):
        values = table.axis_values(number)
        first = next((place for place, entry in enumerate(tuned.entries) if entry.covers(values)), None)
        if first is not None:
            covered.setdefault(first, []).append(number)
    blocks = [block_of(tuned, tuned.entries[place], cases, configs, bucket) for place, cases in sorted(covered.items())]
    return TuningTable(tuned.device, tuple(blocks))


def block_of(
    tuned: TunedTable, entry: TunedEntry, cases: Sequence[int], configs: Sequence[int], bucket: str
) -> TuningBlock:
    """Turn an entry of a tuned table into a block; `configs` gives the number of each config of the file."""
    costs: dict[int, str] = {}
    for cost in entry.costs:
        costs.setdefault(configs[cost.config], cost_words(cost.ps, tuned.names))
    return TuningBlock.of(cases, rows_of(entry, configs, bucket), costs.items())


def rows_of(entry: TunedEntry, configs: Sequence[int], bucket: str) -> tuple[TuningRow, ...]:
    """Round the rows of an entry to their buckets, ascending; `configs` gives the number of each config of the file."""
    rows: dict[tuple[int, ...], TuningRow] = {}
    for row in entry.rows:
        at = tuple([bucket_of(bucket, value) for value in row.at])
        behind: dict[int, int] = {}
        for number, far in zip(row.use, _behind(row), strict=True):
            behind.setdefault(configs[number], far)
        rows.setdefault(at, TuningRow(at, tuple(behind), tuple(behind.values())))
    return tuple([rows[at] for at in sorted(rows)])


def _behind(row: TunedRow) -> list[int]:
    """Say how far each config of a row is behind its fastest, in thousandths of an octave."""
    if not row.us:
        return [place * _PLACE_BEHIND for place in range(len(row.use))]
    best = log2(min(row.us))
    return [min(round(_OCTAVE * (log2(time) - best)), _core.BEHIND_MAX) for time in row.us]


def _check_key(tuned: TunedTable, table: KernelTable) -> str:
    """Check a tuned table's key against the kernel's, and return the bucket to use."""
    from nojit.runtime.expr.expression import parse

    where = f"{tuned.path} $.key"
    runtime = table.runtime_params()
    for text in tuned.key:
        for name in sorted(parse(text).names.difference(runtime)):
            near = did_you_mean(name, runtime)
            raise TuningError(f"expected runtime params of kernel {table.kernel}", got=f"{name!r}{near}", where=where)
    if table.tuning is None:
        return DEFAULT_BUCKET
    if tuple(map(parse, tuned.key)) != tuple(map(parse, table.tuning.key)):
        what = f"expected the key of kernel {table.kernel}: {', '.join(table.tuning.key)}"
        raise TuningError(what, got=", ".join(tuned.key), where=where)
    return table.tuning.bucket


def _check_axes(entry: TunedEntry, table: KernelTable, where: str) -> None:
    known = [axis.name for axis in table.axes]
    for name, _ in entry.where:
        if name not in known:
            what = f"expected axes of kernel {table.kernel}"
            raise TuningError(what, got=f"{name!r}{did_you_mean(name, known)}", where=where)


def config_number(table: KernelTable, config: TunedConfig, where: str) -> int:
    """Find a config in a kernel's table: the one that has all its settings.

    Args:
        table: the kernel's variants.
        config: settings that it leaves out may be anything, as long as one config fits.
        where: the file and its place there, for errors.

    Raises:
        TuningError: no config fits, or several do.
    """
    fitting = [number for number, built in enumerate(table.configs) if _fits(config.settings, config.requires, built)]
    if len(fitting) == 1:
        return fitting[0]
    _check_settings(table, config, where)
    words = " ".join([f"{name}={spell(value)}" for name, value in config.settings])
    words += f" requires {config.requires!r}" if config.requires else ""
    if fitting:
        what = f"expected the settings of one config of kernel {table.kernel}: name more of its options"
        raise TuningError(what, got=f"{words}, which {len(fitting)} have", where=where)
    built = "; ".join(map(config_words, table.configs[:8]))
    raise TuningError(f"expected a config of kernel {table.kernel}, such as {built}", got=words, where=where)


def _fits(settings: Sequence[tuple[str, Value]], requires: str, built: Config) -> bool:
    values = dict(built.constexprs + built.options)
    return built.requires == requires and all(
        name in values and identity(values[name]) == identity(value) for name, value in settings
    )


def _check_settings(table: KernelTable, config: TunedConfig, where: str) -> None:
    known = list(dict.fromkeys([name for built in table.configs for name, _ in built.constexprs + built.options]))
    for name, _ in config.settings:
        if name not in known:
            what = f"expected constexprs and options of the configs of kernel {table.kernel}"
            raise TuningError(what, got=f"{name!r}{did_you_mean(name, known)}", where=where)
