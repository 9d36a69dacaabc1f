"""Builder of a kernel's variant table: it stores each distinct fact once, and one row per compiled variant."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from nojit.aot.manifest.types import plain
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime import _core
from nojit.runtime.expr.expression import ExpressionError
from nojit.runtime.expr.postfix import postfix
from nojit.runtime.table.parts import Axis, Case, Config, Derived, Launch, Param
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import Tuning
from nojit.runtime.tuning.resolution import resolve
from nojit.runtime.tuning.tuned_tables import TunedCost, TunedEntry, TunedRow, TunedTable
from nojit.runtime.values import Value, identity

__all__ = ["KernelContent", "build_table"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KernelContent:
    """One kernel with its compiled variants."""

    name: str
    params: tuple[Param, ...]
    grid: tuple[str, ...]
    tuning: Tuning | None
    axes: tuple[Axis, ...]
    derived: tuple[Derived, ...]
    variants: tuple[tuple[Variant, CompiledVariant], ...]
    """The variants with their compiled forms, in the order of the plan, in which preferred configs come first."""
    tuned: tuple[TunedTable, ...] = ()
    """Tuned tables for devices of the arch, checked against the manifest."""
    batch: tuple[str, ...] = ()
    """Names of the integer params that grow with the batch size."""


class _Pool(Generic[T]):
    """Collection that numbers distinct values from 0, in the order of insertion.

    ``True``, ``1`` and ``1.0`` are distinct.
    """

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: T) -> int:
        """Return the number of a value; a new value is added with the next number."""
        number = self._numbers.setdefault(repr(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


def build_table(kernel: KernelContent, images: dict[bytes, int]) -> KernelTable:
    """Return the variant table of one kernel.

    Args:
        kernel: the kernel, with at least one compiled variant.
        images: number in the bundle of each distinct image of the kernel.
    """
    signatures: _Pool[tuple[str, ...]] = _Pool()
    cases: _Pool[Case] = _Pool()
    configs: _Pool[Config] = _Pool()
    hint_sets: _Pool[tuple[tuple[str, int], ...]] = _Pool()
    derived_values: _Pool[tuple[Value, ...]] = _Pool()
    launches: _Pool[Launch] = _Pool()
    runtime = [param.name for param in kernel.params if not param.constexpr]
    places = [{identity(value): i for i, value in enumerate(axis.values)} for axis in kernel.axes]
    # number configs in the manifest's order, which is the order of preference
    for variant, _ in sorted(kernel.variants, key=lambda pair: pair[0].config_number):
        configs.number(variant.config)
    rows = []
    for variant, compiled in kernel.variants:
        types = dict(variant.signature)
        signature = signatures.number(tuple(plain(types[name]) for name in runtime))
        point = tuple(place[identity(value)] for place, (_, value) in zip(places, variant.axes, strict=True))
        rows.append(
            (
                cases.number(Case(signature, point)),
                configs.number(variant.config),
                hint_sets.number(variant.hints),
                derived_values.number(tuple(value for _, value in variant.derived)),
                launches.number(compiled.launch),
                images[compiled.image],
                compiled.registers,
                compiled.spill_bytes,
            )
        )
    rows.sort()
    table = KernelTable(
        kernel=kernel.name,
        params=kernel.params,
        grid=kernel.grid,
        tuning=kernel.tuning,
        axes=kernel.axes,
        derived=kernel.derived,
        signatures=tuple(signatures.values),
        cases=tuple(cases.values),
        configs=tuple(configs.values),
        hint_sets=tuple(hint_sets.values),
        derived_values=tuple(derived_values.values),
        launches=tuple(launches.values),
        programs=(),
        columns={name: array("I", column) for name, column in zip(_core.COLUMNS, zip(*rows, strict=True), strict=True)},
        batch=kernel.batch,
    )
    return _with_tables(replace(table, programs=tuple(map(_program, table.expressions()))), kernel.tuned)


def _with_tables(table: KernelTable, tuned: Sequence[TunedTable]) -> KernelTable:
    if table.tuning is None or not tuned:
        return table
    tables = tuple(resolve(_keep_built(each, table.configs), table) for each in tuned)
    return replace(table, tuning=Tuning(table.tuning.key, table.tuning.bucket, tables))


def _keep_built(table: TunedTable, configs: Iterable[Config]) -> TunedTable:
    """Return a tuned table without the configs that no built variant has.

    The profile `core` builds only some configs, and others may have failed to compile.
    """
    built = {(repr(config.constexprs + config.options), config.requires) for config in configs}
    kept = [number for number, config in enumerate(table.configs) if (repr(config.settings), config.requires) in built]
    numbers = {old: new for new, old in enumerate(kept)}
    entries = [
        TunedEntry(entry.where, rows, _keep_costs(entry.costs, numbers))
        for entry in table.entries
        if (rows := _keep_rows(entry.rows, numbers))
    ]
    used = tuple(table.configs[number] for number in kept)
    return replace(table, configs=used, entries=tuple(entries))


def _keep_rows(rows: Iterable[TunedRow], numbers: Mapping[int, int]) -> tuple[TunedRow, ...]:
    filtered = (_keep_row(row, numbers) for row in rows)
    return tuple(row for row in filtered if row.use)


def _keep_costs(costs: Iterable[TunedCost], numbers: Mapping[int, int]) -> tuple[TunedCost, ...]:
    return tuple(TunedCost(numbers[cost.config], cost.ps) for cost in costs if cost.config in numbers)


def _keep_row(row: TunedRow, numbers: Mapping[int, int]) -> TunedRow:
    kept = [place for place, old in enumerate(row.use) if old in numbers]
    us = tuple(row.us[place] for place in kept) if row.us else ()
    return TunedRow(row.at, tuple(numbers[row.use[place]] for place in kept), us)


def _program(text: str) -> str:
    try:
        return postfix(text)
    except ExpressionError:
        # `_check_readable` reports the invalid term when it reads the table back
        return ""
