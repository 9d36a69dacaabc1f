"""Score modifications in the forms that kernels and torch's operators take, and their validation."""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.calls.arguments import check_like, refuse_type, refuse_value
from nojit.kernels.calls.strides import named
from nojit.kernels.score_mod.mods import ALIBI, NO_SLOT, RELATIVE, CustomMod, ScoreMod, Slot, is_listed
from nojit.runtime.values import FunctionRef
from torch import Tensor

__all__ = [
    "NO_MOD",
    "Captured",
    "Modification",
    "captured",
    "check_captured",
    "check_mod",
    "described",
    "mod_arguments",
    "modification_of",
    "rebuilt",
    "words_of",
]


_MANIFEST_LINE: Final = '{ function = "mine.py:my_mod" } in the axis SCORE_MOD of the manifest of flex attention'


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
) -> tuple[dict[str, Tensor], dict[str, int | float]]:
    """Return the pointers of a modification, and its numbers, by the names of params.

    Args:
        mod: the modification.
        unread: any fp32 tensor, passed in place of absent tables; kernels do not read it.
        unread_bias: any tensor of the queries' dtype, passed in place of an absent bias; kernels do not read it.
    """
    first, second, bias = mod.first, mod.second, mod.bias
    strides: tuple[int, ...] = (0, 0, 0, 0)
    if bias is not None:
        strides = tuple(0 if size == 1 else stride for size, stride in zip(bias.shape, bias.stride(), strict=True))
    pointers = {
        "first_ptr": unread if first.table is None else first.table,
        "second_ptr": unread if second.table is None else second.table,
        "bias_ptr": unread_bias if bias is None else bias,
    }
    numbers = {
        "first_kind": first.kind,
        "first_stride_b": first.stride_batch,
        "first_stride_h": first.stride_head,
        "first_value": first.value,
        "first_reach": first.reach,
        "second_kind": second.kind,
        "second_stride_b": second.stride_batch,
        "second_stride_h": second.stride_head,
        "second_value": second.value,
        "second_reach": second.reach,
    }
    return pointers, numbers | named("bias_stride_", "bhmn", strides)


def check_mod(score_mod: object) -> ScoreMod:
    """Require a score modification of `nojit.kernels.score_mod.mods`, and return it.

    Raises:
        ArgumentError: another object, for example a plain Python function; the message has the manifest line that
            builds a user's function.
    """
    if not (isinstance(score_mod, CustomMod) or is_listed(score_mod)):
        refuse_type(
            "score_mod",
            "a modification of nojit.kernels.flex, as kernels are built ahead of time (for one of your own, write a "
            f"@triton.jit function, build it with {_MANIFEST_LINE}, and pass CustomMod('mine.py:my_mod', ...))",
            getattr(score_mod, "__name__", type(score_mod).__name__),
        )
    return score_mod


def check_captured(mod: ScoreMod | Modification, query: Tensor, kv_len: int) -> None:
    """Require that the tensors that a modification captures match the operands.

    `mod`: the score modification as kernels take it.

    Raises:
        ArgumentError: a wrong dtype or device.
        ValueError: a wrong shape.
    """
    batch, heads, q_len, _ = query.shape
    for slot in mod.slots:
        table = slot.table
        if table is None:
            continue
        if table.device != query.device:
            refuse_type("score_mod", f"a table on {query.device} as query is", table.device)
        last = sum((size - 1) * stride for size, stride in zip(table.shape, table.stride(), strict=True))
        needed = max(batch - 1, 0) * slot.stride_batch + max(heads - 1, 0) * slot.stride_head + 2 * slot.reach
        if not table.numel() or needed > last or not _has_rows(slot, batch, heads):
            refuse_value("score_mod", f"a table for {batch} batches and {heads} heads", f"shape {tuple(table.shape)}")
    if mod.bias is not None:
        check_like("score_mod", mod.bias, "query", query)
        shape = (batch, heads, q_len, kv_len)
        if any(own not in {1, size} for own, size in zip(mod.bias.shape, shape, strict=True)):
            refuse_value("score_mod", f"a bias of {shape} [B, H, M, N], or 1 for some", tuple(mod.bias.shape))


def _has_rows(slot: Slot, batch: int, heads: int) -> bool:
    """Return whether a slot's table has a row for each head and, if it has a batch dimension, for each batch."""
    sizes: tuple[int, ...] = () if slot.table is None else tuple(slot.table.shape)
    if slot.kind == RELATIVE:
        sizes = sizes[:-1]
    elif slot.kind != ALIBI:
        # a user's own function may read its table in any way
        return True
    is_shared = slot.kind == RELATIVE and sizes[-1] == 1
    return (is_shared or sizes[-1] >= heads) and (len(sizes) == 1 or sizes[0] >= batch)
