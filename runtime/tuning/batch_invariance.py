"""One order of configs for each case, so that results do not depend on the batch: ``NOJIT_BATCH_INVARIANT=1``.

Another tile, or another split of a sum, rounds differently. With one order, some calls run configs that are slower for their size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from nojit.runtime import _core
from nojit.runtime.base.environment import BATCH_INVARIANT
from nojit.runtime.errors import SettingError
from nojit.runtime.expr.expression import ExpressionError, parse
from nojit.runtime.table.parts import Config
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable

__all__ = ["is_batch_invariant", "settled"]


def is_batch_invariant(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether results must not depend on the batch, according to the current environment.

    Args:
        environment: the environment; the process's if None.

    Raises:
        SettingError: ``NOJIT_BATCH_INVARIANT`` is neither 0 nor 1.
    """
    said = (os.environ if environment is None else environment).get(BATCH_INVARIANT, "0")
    if said not in {"0", "1"}:
        raise SettingError("expected 0 or 1", got=repr(said), where=BATCH_INVARIANT)
    return said == "1"


def settled(tuning: Tuning | None, table: KernelTable, arch: str) -> Tuning:
    """Return a tuning with one order of configs for each case, for calls of all sizes.

    Configs whose ``requires`` uses no batch param come first; the others serve calls that these cannot. Within both groups, measured
    configs come first, by their mean slowdown over all problems; then the others, in the order of the table.

    Args:
        tuning: the measurements, if there are any.
        table: the kernel's variants, with their batch params.
        arch: arch of the target, for a table that represents every device if nothing was measured.
    """
    measured = tuning.tables if tuning is not None else ()
    tables = measured or (TuningTable(TunedDevice("", arch, 0, 0), ()),)
    return Tuning((), "exact", tuple([TuningTable(each.device, tuple(_blocks(each, table))) for each in tables]))


def _blocks(measured: TuningTable, table: KernelTable) -> Iterator[TuningBlock]:
    free = [not _asks(config, table.batch) for config in table.configs]
    listed = {case for block in measured.blocks for case in block.cases}
    rest = tuple([case for case in range(len(table.cases)) if case not in listed])
    for cases, best in [*((block.cases, _mean_order(block)) for block in measured.blocks), (rest, ())]:
        if cases:
            rank = {config: place for place, config in enumerate(best)}
            order = sorted(
                range(len(table.configs)), key=lambda config: (not free[config], rank.get(config, len(rank)), config)
            )
            yield TuningBlock.of(cases, [TuningRow((), tuple(order), (0,) * len(order))])


def _asks(config: Config, names: Sequence[str]) -> bool:
    """Return whether the ``requires`` of a config uses one of some params."""
    if not config.requires:
        return False
    try:
        return not parse(config.requires).names.isdisjoint(names)
    except ExpressionError:
        # a check of the table reports this error; at a call, the expression counts as false
        return True


def _mean_order(block: TuningBlock) -> list[int]:
    """Order the configs of a block by their mean slowdown over its problems."""
    _, use, behinds = block.columns()
    # a config that only some rows have counts elsewhere as an octave behind the row's slowest
    sums = _core.behind_in_sum(use, behinds)
    return sorted(sums, key=lambda config: (sums[config], config))
