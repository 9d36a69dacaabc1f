"""Plans out of rows: a variant of a table, its image loaded, as the C core launches it."""

from __future__ import annotations

from collections.abc import Mapping

from nojit.runtime import _core, expr
from nojit.runtime.call import Argument, CallFacts, expression_value
from nojit.runtime.errors import ArgumentError, BundleError, typed
from nojit.runtime.images import Source
from nojit.runtime.keys import Interner, row_names, row_programs
from nojit.runtime.record import Record
from nojit.runtime.slots import packing_of
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
    source: Source, table: KernelTable, row: int, device: int, *, arguments: int, interner: Interner
) -> _core.Plan:
    """Load a row's image for a device, and say how it is launched there.

    Args:
        source: where the image is.
        table: the kernel's variants there.
        row: one of them.
        device: the ordinal.
        arguments: how many a call has, params and options together.
        interner: gets every value that a program of the grid can hold.

    Raises:
        BundleError: the image, or what the table says of it, is not what was built, or more than the core takes.
        DriverError: the driver refuses it.
    """
    where = source.where(table.kernel)
    launch = table.launches[table.columns["launch"][row]]
    places = {param.name: place for place, param in enumerate(table.params)}
    packing = packing_of(table, row, places, where)
    names = row_names(table, row)
    function = source.images.function(table, row, device, packing.sizes)
    grid = row_programs(table, names, interner, source.arch, where)
    try:
        return _core.Plan(
            label=_Label(table, row, source.images.file.id),
            function=function,
            device=device,
            arguments=arguments,
            slots=packing.slots,
            maps=packing.maps,
            grid=grid,
            meta=_without_types(table, names),
            payload=(source, row),
            block_threads=32 * launch.num_warps,
            num_ctas=launch.num_ctas,
            shared_bytes=launch.shared_bytes,
            cooperative=launch.cooperative,
            pdl=launch.pdl,
            global_scratch=(launch.global_scratch_bytes, launch.global_scratch_align),
            profile_scratch=(launch.profile_scratch_bytes, launch.profile_scratch_align),
        )
    except ValueError as error:
        raise BundleError(str(error), where=where) from None


def _without_types(table: KernelTable, names: Mapping[str, Value]) -> dict[str, Value]:
    """Return what a callable grid sees of a row: its constexprs and options."""
    seen = dict(names)
    for axis in table.axes:
        if axis.is_type:
            seen.pop(axis.name, None)
    return seen


def grid_error(table: KernelTable, row: int, dimension: int, call: CallFacts) -> ArgumentError:
    """Make the error for a call of a row where the bundle's grid comes to no int."""
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
