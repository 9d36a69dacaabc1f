"""Score modifications: functions of attention scores that kernels are built with.

A modification is one object. It names its ``@triton.jit`` function, which also computes the derivative
(`nojit.kernels.flex.kernel_mods`), and holds the tensors that the function captures. Called as ``mod(score, batch,
head, q_idx, k_idx)`` it is an equivalent `score_mod` of torch's ``flex_attention``.

Kernels are built with these functions:

- `LISTED`: all modifications of the library and chains of two, selected by number at run time, so that they need no
  variants of their own; the tiles are half the size.
- `LIGHT`: alibi, a soft cap, or both, for 16-bit operands; these load no value for each score. The sm_90 forward kernel
  has only this function, and gradients use it where it suffices.
- `TILTED` (alibi alone) and `BOUNDED` (a cap alone): the sm_90 backward kernel has these as well, since it has no
  registers to spare.
- A user's own function: `CustomMod` names it, and one line in a manifest builds it, in the axis ``SCORE_MOD`` of the
  flex attention kernels:

    SCORE_MOD = [{ none = true }, { function = "nojit.kernels.flex.kernel_mods:listed" }, { function = "mine.py:my_mod"
    }]

A function captures up to two *slots*, each an fp32 table and three numbers, and one dense *bias* in the queries' dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeGuard

import torch
from nojit.kernels.calls.arguments import check_dtype, check_int, check_number, refuse_type, refuse_value
from nojit.runtime.values import FunctionRef
from torch import Tensor

__all__ = [
    "LIGHT",
    "LISTED",
    "NO_SLOT",
    "Alibi",
    "Chain",
    "CustomMod",
    "DenseBias",
    "RelativeBias",
    "ScoreMod",
    "Slot",
    "SoftCap",
    "alibi_slopes",
    "is_listed",
    "lightest",
]

LISTED: Final = FunctionRef("nojit.kernels.flex.kernel_mods:listed")
"""The Triton function of all modifications of the library."""
LIGHT: Final = FunctionRef("nojit.kernels.flex.kernel_mods:light")
"""The Triton function of alibi, a soft cap and both, for 16-bit operands."""
TILTED: Final = FunctionRef("nojit.kernels.flex.kernel_mods:tilted")
BOUNDED: Final = FunctionRef("nojit.kernels.flex.kernel_mods:bounded")
"""The Triton function of a soft cap alone, for 16-bit operands; `TILTED` is that of alibi alone."""
ALIBI, RELATIVE, CAP, BIAS = range(1, 5)
"""The number that selects each modification in `kernel_mods.listed`."""


class Slot(NamedTuple):
    """The values that one modification captures, except a dense bias."""

    kind: int
    """Number of the modification; 0 for none, and in the slots of users' own functions."""
    table: Tensor | None = None
    """Fp32, [H], [B, H], [H, L] or [B, H, L], with a stride of 1 along L."""
    stride_batch: int = 0
    """Stride of the table by batch, in elements; 0 if all batches share it."""
    stride_head: int = 0
    """Stride of the table by head, in elements; 0 if all heads share it."""
    value: float = 0.0
    """A float that the modification needs, such as a cap."""
    reach: int = 0
    """The largest distance with a value of its own in a relative-bias table, in positions."""


NO_SLOT: Final = Slot(0)


class ScoreMod(Protocol):
    """Interface of the argument `score_mod` of ``flex_attention``: a Triton function, its captured values, and a torch formula.

    Not a plain function: `CustomMod` makes one from a user's Triton function and torch formula.
    """

    @property
    def function(self) -> FunctionRef:
        """The Triton function that kernels are built with."""

    @property
    def slots(self) -> tuple[Slot, Slot]:
        """The two slots of captured values; an unused one is `NO_SLOT`."""

    @property
    def bias(self) -> Tensor | None:
        """The captured dense bias, [B, H, M, N] in the queries' dtype, with size 1 for shared dimensions; or None."""

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:
        """Return the modified score, computed by torch."""


class _Listed:
    """Base class of the library's modifications."""

    __slots__ = ()

    @property
    def function(self) -> FunctionRef:
        return LISTED

    @property
    def slot(self) -> Slot:
        raise NotImplementedError

    @property
    def slots(self) -> tuple[Slot, Slot]:
        return self.slot, NO_SLOT

    @property
    def bias(self) -> Tensor | None:
        return None

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:
        raise NotImplementedError


def alibi_slopes(heads: int, device: torch.device | str | None = None) -> Tensor:
    """Return the slopes of Press et al. 2021 (https://arxiv.org/abs/2108.12409): fp32 [H], 2^(-8 (h + 1) / H)."""
    places = torch.arange(1, heads + 1, device=device, dtype=torch.float32)
    return torch.exp2(places * (-8.0 / heads))


@dataclass(frozen=True, slots=True, eq=False)
class Alibi(_Listed):
    """Modification ``score + slopes[h] * (k_idx - q_idx)``."""

    slopes: Tensor
    """Slope of each head, fp32 [H] or [B, H]."""

    def __post_init__(self) -> None:
        _check_table("slopes", self.slopes, (1, 2))

    @property
    def slot(self) -> Slot:
        """Slot with the slopes."""
        by_batch = 0 if self.slopes.dim() == 1 else self.slopes.stride(0)
        return Slot(ALIBI, self.slopes, by_batch, self.slopes.stride(-1))

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:
        """Return the modified score, computed by torch."""
        slope = self.slopes[head] if self.slopes.dim() == 1 else self.slopes[batch, head]
        return score + slope * (k_idx - q_idx)


@dataclass(frozen=True, slots=True, eq=False)
class RelativeBias(_Listed):
    """Modification ``score + table[h, clamp(k_idx - q_idx, -R, R) + R]``; R is the largest distance with a value."""

    table: Tensor
    """Fp32 [H, 2 R + 1] or [B, H, 2 R + 1]; H may be 1 if all heads share it."""

    def __post_init__(self) -> None:
        _check_table("table", self.table, (2, 3))
        length = self.table.shape[-1]
        if length % 2 == 0:
            refuse_value("table", "an odd number of distances, 2 R + 1", length)
        if self.table.stride(-1) != 1 and length > 1:
            refuse_value("table", "a last stride of 1 (try .contiguous())", self.table.stride(-1))

    @property
    def slot(self) -> Slot:
        """Slot with the table and its largest distance."""
        table = self.table
        by_batch = 0 if table.dim() == 2 else table.stride(0)
        by_head = 0 if table.shape[-2] == 1 else table.stride(-2)
        return Slot(RELATIVE, table, by_batch, by_head, reach=table.shape[-1] // 2)

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:
        """Return the modified score, computed by torch."""
        reach = self.table.shape[-1] // 2
        place = (k_idx - q_idx).clamp(-reach, reach) + reach
        head = torch.zeros_like(head) if self.table.shape[-2] == 1 else head
        return score + (self.table[head, place] if self.table.dim() == 2 else self.table[batch, head, place])


@dataclass(frozen=True, slots=True)
class SoftCap(_Listed):
    """Modification ``cap * tanh(score / cap)``."""

    cap: float

    def __post_init__(self) -> None:
        if check_number("cap", self.cap) <= 0.0:
            refuse_value("cap", "a number above 0", self.cap)

    @property
    def slot(self) -> Slot:
        """Slot with the cap."""
        return Slot(CAP, value=float(self.cap))

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:  # noqa: ARG002 - torch's signature
        """Return the modified score, computed by torch."""
        return self.cap * torch.tanh(score / self.cap)


@dataclass(frozen=True, slots=True, eq=False)
class DenseBias(_Listed):
    """Modification ``score + values[b, h, q_idx, k_idx]``."""

    values: Tensor
    """[B, H, M, N] in the queries' dtype, any strides; a dimension of size 1 is shared."""

    def __post_init__(self) -> None:
        if not isinstance(self.values, Tensor):
            refuse_type("values", "a tensor", type(self.values).__name__)
        if self.values.dim() != 4:
            refuse_value("values", "4 dimensions [B, H, M, N]", f"shape {tuple(self.values.shape)}")

    @property
    def slot(self) -> Slot:
        """Slot that marks the presence of a dense bias, without values."""
        return Slot(BIAS)

    @property
    def bias(self) -> Tensor:
        """The tensor to add, `values`."""
        return self.values

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:
        """Return the modified score, computed by torch."""
        places = (
            torch.zeros_like(place) if size == 1 else place
            for size, place in zip(self.values.shape, (batch, head, q_idx, k_idx), strict=True)
        )
        return score + self.values[tuple(places)]


@dataclass(frozen=True, slots=True, eq=False)
class Chain(_Listed):
    """Modification ``second(first(score))`` of two modifications of the library; not two relative or two dense biases.

    A user's own function cannot be part of a chain. Instead, call the library's function from it
    (`nojit.kernels.flex.kernel_mods`) and pass on the slot.
    """

    first: ScoreMod
    second: ScoreMod

    def __post_init__(self) -> None:
        for name, mod in (("first", self.first), ("second", self.second)):
            if not isinstance(mod, _Listed) or isinstance(mod, Chain):
                how = " (one's own can call the library's in its function)" if isinstance(mod, CustomMod) else ""
                refuse_type(name, f"one modification of the library{how}", type(mod).__name__)
        kinds = [mod.slots[0].kind for mod in (self.first, self.second)]
        if kinds[0] == kinds[1] and kinds[0] in {RELATIVE, BIAS}:
            refuse_value("second", "no second bias of the same kind (add them up)", type(self.second).__name__)

    @property
    def slots(self) -> tuple[Slot, Slot]:
        """The slots of the first and of the second modification."""
        return self.first.slots[0], self.second.slots[0]

    @property
    def bias(self) -> Tensor | None:
        """The dense bias of either modification; None if neither has one."""
        return self.second.bias if self.first.bias is None else self.first.bias

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:
        """Return the modified score, computed by torch."""
        return self.second(self.first(score, batch, head, q_idx, k_idx), batch, head, q_idx, k_idx)


@dataclass(frozen=True, slots=True, eq=False)
class CustomMod:
    """A modification written by a user: a ``@triton.jit`` function that a manifest builds, and its equivalent in torch.

    The function has the parameters of `kernel_mods.listed` and returns the modified score and its derivative by the
    score. It reads captured values from the slots given here. Queries, keys and values have gradients; captured tensors
    have none. Calls with few queries and many keys use flex decoding, so build the function for both families.
    """

    source: str
    """Name of the Triton function as in the manifest: ``module:function`` or ``file.py:function``."""
    twin: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    """The equivalent `score_mod` in torch."""
    slots: tuple[Slot, Slot] = (NO_SLOT, NO_SLOT)
    """The two slots of captured values."""
    bias: Tensor | None = None
    """A dense bias, [B, H, M, N] as in `DenseBias`; or None."""
    function: FunctionRef = field(init=False)
    """The Triton function that kernels are built with."""

    def __post_init__(self) -> None:
        if ":" not in str(self.source):
            refuse_value("source", "module:function or file.py:function", repr(self.source))
        if not callable(self.twin):
            refuse_type("twin", "a torch function", type(self.twin).__name__)
        if [type(slot) for slot in self.slots] != [Slot, Slot]:
            refuse_type("slots", "a tuple of two Slots (NO_SLOT where there is none)", repr(self.slots))
        if self.bias is not None:
            # DenseBias validates the bias
            DenseBias(self.bias)
        slots = tuple(_checked(f"slots[{place}]", slot) for place, slot in enumerate(self.slots))
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "function", FunctionRef(self.source))

    def __call__(self, score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, k_idx: Tensor) -> Tensor:
        """Return the modified score, computed by torch with `twin`."""
        return self.twin(score, batch, head, q_idx, k_idx)


def _checked(argument: str, slot: Slot) -> Slot:
    """Validate a user's slot, the argument named `argument`; return it with its value as a float."""
    if slot.table is not None:
        _check_table(f"{argument}.table", slot.table, (1, 2, 3))
    for name in ("stride_batch", "stride_head", "reach"):
        check_int(f"{argument}.{name}", getattr(slot, name))
    return slot._replace(value=check_number(f"{argument}.value", slot.value))


def lightest(function: FunctionRef | None, slots: tuple[Slot, Slot]) -> FunctionRef | None:
    """Return the function with the fewest registers that is equivalent to `function` for 16-bit operands.

    `slots`: the modification's captured values.
    """
    kinds = [slot.kind for slot in slots]
    needs_all = RELATIVE in kinds or BIAS in kinds or kinds == [CAP, CAP]
    return LIGHT if function == LISTED and not needs_all else function


def cheapest(function: FunctionRef | None, slots: tuple[Slot, Slot]) -> FunctionRef | None:
    """Return the function with the least work that is equivalent to `function` for 16-bit operands.

    Only the sm_90 backward kernel is built with all of these functions.

    `slots`: the modification's captured values.
    """
    function = lightest(function, slots)
    kinds = [slot.kind for slot in slots if slot.kind]
    if function != LIGHT or len(kinds) != 1:
        return function
    return TILTED if kinds == [ALIBI] else BOUNDED


def is_listed(mod: object) -> TypeGuard[_Listed]:
    """Return whether `mod` is a modification of the library."""
    return isinstance(mod, _Listed)


def _check_table(argument: str, table: object, dims: tuple[int, ...]) -> None:
    if not isinstance(table, Tensor):
        refuse_type(argument, "a tensor", type(table).__name__)
    check_dtype(argument, table, (torch.float32,))
    if table.dim() not in dims:
        refuse_value(argument, f"{' or '.join(map(str, dims))} dimensions", f"shape {tuple(table.shape)}")
