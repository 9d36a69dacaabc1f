"""Plans out of rows: a variant of a table, its image loaded, as the engine launches it."""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import typed
from nojit.runtime.call.constexprs import row_constexprs, row_names
from nojit.runtime.errors import ArgumentError, BundleError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nojit.runtime.call.call_facts import Argument, CallFacts
    from nojit.runtime.first_call.arch_bundle import ArchBundle
    from nojit.runtime.table.table import KernelTable
    from nojit.runtime.values import Value

__all__ = ["grid_error", "make_plan", "read_row"]


class _Label(Record):
    """Name of a variant in errors; reads the table only if there is an error."""

    table: KernelTable
    row: int
    bundle: str

    def __str__(self) -> str:
        return f"{self.table.variant_id(self.row)} ({self.table.label(self.row)}) of bundle {self.bundle}"


def read_row(bundle: ArchBundle, table: KernelTable, row: int, *, arguments: int, ids: _core.Ids) -> _core.Row:
    """Return a row as plans need it, read and checked by the engine.

    Args:
        bundle: the bundle with the row's image.
        table: the kernel's variants in this bundle.
        row: number of the variant in `table`.
        arguments: number of a call's params and options together.
        ids: gets every value that a program of the grid can hold.

    Raises:
        BundleError: the row is malformed, or exceeds a limit of the engine.
    """
    return _core.Row(table.handle(), row, ids, bundle.arch, arguments, bundle.where(table.kernel))


def make_plan(bundle: ArchBundle, table: KernelTable, row: int, device: int, read: _core.Row) -> _core.Plan:
    """Load a row's image on a device, and return its plan.

    Args:
        bundle: the bundle with the image.
        table: the kernel's variants in this bundle.
        row: number of the variant in `table`.
        device: ordinal of the device.
        read: the row, of `read_row`.

    Raises:
        BundleError: the image or its entry in the table differs from the build's, or exceeds a limit of the engine.
        DriverError: the driver refuses the image.
    """
    function = bundle.images.function(table, row, device, read)
    try:
        return _core.Plan(
            label=_Label(table, row, bundle.images.file.id),
            function=function,
            device=device,
            row=read,
            meta=row_constexprs(table, row),
            payload=(bundle, row),
        )
    except ValueError as error:
        raise BundleError(str(error), where=bundle.where(table.kernel)) from None


def grid_error(table: KernelTable, row: int, dimension: int, call: CallFacts) -> ArgumentError:
    """Make the error for a call of a row where the bundle's grid is no int."""
    from nojit.runtime.call.call_facts import expression_value
    from nojit.runtime.expr import expression as expr

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
