"""Mask and score modification of a flex attention call, in the forms that kernels and torch's operators take."""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.flex.mods import NO_SLOT, ScoreMod, Slot
from nojit.kernels.flex.tables import MaskTables, Side
from nojit.runtime.values import FunctionRef
from torch import Tensor

__all__ = [
    "NO_MOD",
    "Captured",
    "Modification",
    "kv_strides",
    "mask_facts",
    "modification_of",
    "rebuilt",
    "words_of",
]

MIN_WIDTH: Final = 64
"""The smallest tile width (padded head dimension) for which kernels are built."""


class Modification(NamedTuple):
    """A score modification in the form that kernels take: Triton function, two slots of captured values, dense bias."""

    function: FunctionRef | None
    first: Slot
    second: Slot
    bias: Tensor | None

    @property
    def slots(self) -> tuple[Slot, Slot]:
        """The two slots of captured values; an unused one is `NO_SLOT`."""
        return self.first, self.second


NO_MOD: Final = Modification(None, NO_SLOT, NO_SLOT, None)

Captured = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Captured tensors: the table of the first slot, that of the second slot, the dense bias; None if absent."""


def modification_of(mod: ScoreMod | None) -> Modification:
    """Return `mod` in the form that kernels take; None gives a modification without a function."""
    return NO_MOD if mod is None else Modification(mod.function, *mod.slots, mod.bias)


def captured(mod: Modification) -> Captured:
    """Return the tensors that a modification captures.

    `mod`: the score modification as kernels take it.
    """
    return mod.first.table, mod.second.table, mod.bias


def described(mod: Modification) -> tuple[str | None, list[int], list[float]]:
    """Return a modification without its tensors: function, integers of both slots, floats of both slots.

    `mod`: the score modification as kernels take it.
    """
    numbers = [
        number
        for slot in (mod.first, mod.second)
        for number in (slot.kind, slot.stride_batch, slot.stride_head, slot.reach)
    ]
    name = None if mod.function is None else mod.function.name
    return name, numbers, [mod.first.value, mod.second.value]


def words_of(mod: Modification) -> tuple[object, ...]:
    """Return the parts of `described` as parts of a cache key; empty without a modification.

    `mod`: the score modification as kernels take it.
    """
    if mod.function is None:
        return ()
    one, two = mod.first, mod.second
    first = (one.kind, one.stride_batch, one.stride_head, one.reach, one.value)
    return (mod.function.name, *first, two.kind, two.stride_batch, two.stride_head, two.reach, two.value)


def rebuilt(function: str | None, numbers: list[int], values: list[float], tensors: Captured) -> Modification:
    """Return a modification from the parts that `described` and `captured` return."""
    first, second = (
        Slot(kind, table, by_batch, by_head, value, reach)
        for (kind, by_batch, by_head, reach), value, table in zip(
            (numbers[:4], numbers[4:]), values, tensors[:2], strict=True
        )
    )
    return Modification(None if function is None else FunctionRef(function), first, second, tensors[2])


def mod_arguments(
    mod: Modification, unread: Tensor, unread_bias: Tensor
) -> tuple[tuple[Tensor, ...], tuple[int | float, ...]]:
    """Return the kernel arguments of a modification: its pointers, then its numbers.

    Args:
        mod: the modification.
        unread: any fp32 tensor, passed in place of absent tables; kernels do not read it.
        unread_bias: any tensor of the queries' dtype, passed in place of an absent bias; kernels do not read it.
    """
    tables = (unread if slot.table is None else slot.table for slot in (mod.first, mod.second))
    pointers = (*tables, unread_bias if mod.bias is None else mod.bias)
    strides = (0, 0, 0, 0)
    if mod.bias is not None:
        strides = tuple(
            0 if size == 1 else stride for size, stride in zip(mod.bias.shape, mod.bias.stride(), strict=True)
        )  # type: ignore[assignment]  # there are four
    numbers = (
        number
        for slot in (mod.first, mod.second)
        for number in (slot.kind, slot.stride_batch, slot.stride_head, slot.value, slot.reach)
    )
    return pointers, (*numbers, *strides)


def mask_facts(tables: MaskTables) -> tuple[int, int, int, int, int]:
    """Return the integer arguments of a mask: a band's bounds, block size, the tables' strides by batch and head.

    `tables`: the mask.
    """
    by_batch = tables.heads if tables.batches > 1 else 0
    return tables.left, tables.right, tables.block, by_batch, int(tables.heads > 1)


def mask_pointers(tables: MaskTables, side: Side) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mask tables that a kernel reads: spans and blocks of one side, and the bitmaps.

    `tables`: the mask.
    """
    return side.spans, side.blocks, tables.bits


def kv_strides(operand: Tensor, batch: int) -> tuple[int, int, int]:
    """Return the strides of keys or values by batch, head and row; the first is 0 if one batch serves all `batch` batches."""
    by_batch, by_head, by_row, _ = operand.stride()
    return 0 if operand.shape[0] == 1 < batch else by_batch, by_head, by_row
