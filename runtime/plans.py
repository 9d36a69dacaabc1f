"""Plans out of rows: a variant of a table, its image loaded, as the C core launches it."""

from __future__ import annotations

from functools import partial
from typing import Any

from nojit.runtime import _core
from nojit.runtime.call import Argument, CallFacts, expression_value
from nojit.runtime.errors import ArgumentError, BundleError, typed
from nojit.runtime.images import Entry, Source
from nojit.runtime.keys import push_constant, row_constexprs, row_names, row_programs
from nojit.runtime.record import Record
from nojit.runtime.table import KernelTable
from nojit.runtime.values import Value

__all__ = ["grid_error", "make_plan"]


class _Label(Record):
    """Names a variant in errors: put into words when there is one."""

    table: KernelTable
    row: int
    bundle: str

    def __str__(self) -> str:
        return f"{self.table.variant_id(self.row)} ({self.table.label(self.row)}) of bundle {self.bundle}"


def make_plan(
    source: Source, table: KernelTable, row: int, device: int, *, arguments: int, ids: _core.Ids
) -> _core.Plan:
    """Load a row's image for a device, and say how it is launched there.

    Args:
        source: where the image is.
        table: the kernel's variants there.
        row: one of them.
        device: the ordinal.
        arguments: how many a call has, params and options together.
        ids: gets every value that a program of the grid can hold.

    Raises:
        BundleError: the image, or what the table says of it, is not what was built, or more than the core takes.
        DriverError: the driver refuses it.
    """
    where = source.where(table.kernel)
    places = {param.name: place for place, param in enumerate(table.params)}
    launch = table.launches[table.columns["launch"][row]]
    entry, facts = _core.plain_row(
        table, row, launch, places, source.arch, partial(push_constant, ids)
    ) or _checked_row(table, row, places, source, ids)
    function = source.images.function(table, row, device, entry)
    try:
        return _core.Plan(
            label=_Label(table, row, source.images.file.id),
            function=function,
            device=device,
            arguments=arguments,
            payload=(source, row),
            **facts,
        )
    except ValueError as error:
        raise BundleError(str(error), where=where) from None


def _checked_row(
    table: KernelTable, row: int, places: dict[str, int], source: Source, ids: _core.Ids
) -> tuple[Entry, dict[str, Any]]:
    """Say what a row gives a plan as `_core.plain_row` does, of any kernel, and name the rule that is broken."""
    from nojit.runtime.slots import packing_of  # noqa: PLC0415 - most rows are plain

    where = source.where(table.kernel)
    packing = packing_of(table, row, places, where)
    launch = table.launches[table.columns["launch"][row]]
    return source.images.entry(table, row), {
        "slots": packing.slots,
        "maps": packing.maps,
        "grid": row_programs(table, row_names(table, row), ids, source.arch, where),
        "meta": row_constexprs(table, row),
        "block_threads": 32 * launch.num_warps,
        "num_ctas": launch.num_ctas,
        "shared_bytes": launch.shared_bytes,
        "cooperative": launch.cooperative,
        "pdl": launch.pdl,
        "global_scratch": (launch.global_scratch_bytes, launch.global_scratch_align),
        "profile_scratch": (launch.profile_scratch_bytes, launch.profile_scratch_align),
    }


def grid_error(table: KernelTable, row: int, dimension: int, call: CallFacts) -> ArgumentError:
    """Make the error for a call of a row where the bundle's grid comes to no int."""
    from nojit.runtime import expr  # noqa: PLC0415 - for an error alone

    names: dict[str, Argument | Value] = {**row_names(table, row), **call.arguments, "arch": call.arch}
    text = table.grid[dimension]
    try:
        value = expr.parse(text).evaluate({name: expression_value(value) for name, value in names.items()})
    except expr.ExpressionError as error:
        got = error.message
    else:
        got = typed(value)
    what = f"expected an int for grid[{dimension}], which is {text!r}"
    return ArgumentError(what, got=got, where=f"kernel {table.kernel}")
