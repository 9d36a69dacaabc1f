"""Mask functions that provide intervals of visible positions, and functions that combine masks.

A mask is a function ``mask_mod(b, h, q_idx, kv_idx) -> bool``, as in torch. The masks here also provide the interval of
keys of each query, so that they need not be evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeGuard, runtime_checkable

import torch
from nojit.kernels.block_mask.evaluation import MaskMod
from nojit.kernels.block_mask.intervals import Spans, clip, intersect
from nojit.kernels.calls.arguments import check_int, check_tensors, refuse_type, refuse_value
from torch import Tensor

__all__ = ["Causal", "Documents", "Intervals", "Prefix", "Window", "and_masks", "knows_intervals", "or_masks"]


@runtime_checkable
class Intervals(Protocol):
    """Interface of mask functions that provide intervals of visible positions."""

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        """Return whether a query sees a key."""

    def spans(self, batch: int, q_len: int, kv_len: int, device: torch.device) -> Spans | None:
        """Return the intervals of visible keys and queries for the batch with index `batch`, equal for all heads.

        Rows are [M, 2], the first and the end of the keys of each query; columns are [N, 2], of the queries of each key. None
        if intervals cannot express the mask.
        """


def _check_integers(argument: str, value: Tensor, dims: tuple[int, int]) -> None:
    check_tensors(**{argument: value})
    if value.is_floating_point() or value.is_complex():
        refuse_type(argument, "integers", value.dtype)
    if value.dim() not in dims:
        refuse_value(argument, f"{dims[0]} or {dims[1]} dimensions", value.dim())


@dataclass(frozen=True, slots=True)
class Window:
    """Mask in which query m sees the keys from m + shift - left to m + shift + right; a bound of None is absent.

    With `shift` N - M the last query is aligned with the last key.
    """

    left: int | None
    right: int | None
    shift: int = 0

    def __post_init__(self) -> None:
        for name, value in (("left", self.left), ("right", self.right), ("shift", self.shift)):
            if value is not None or name == "shift":
                check_int(name, value)

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG002 - torch's signature
        """Return whether a query sees a key."""
        place = q_idx + self.shift
        seen = torch.ones_like(place == kv_idx)
        if self.left is not None:
            seen = seen & (kv_idx >= place - self.left)
        if self.right is not None:
            seen = seen & (kv_idx <= place + self.right)
        return seen

    def spans(self, batch: int, q_len: int, kv_len: int, device: torch.device) -> Spans:  # noqa: ARG002 - the protocol's
        """Return the intervals of the band, rows [M, 2] and columns [N, 2]."""
        left = -q_len if self.left is None else max(self.shift - self.left, -q_len)
        right = kv_len if self.right is None else min(self.shift + self.right, kv_len)
        rows, cols = (torch.arange(count, device=device) for count in (q_len, kv_len))
        return Spans(
            clip(rows + left, rows + right + 1, kv_len),
            clip(cols - right, cols - left + 1, q_len),
        )


class Causal(Window):
    """Mask in which query m sees the keys up to m + shift.

    Shift 0 aligns the first query with the first key, N - M the last query with the last key.
    """

    __slots__ = ()

    def __init__(self, shift: int = 0) -> None:
        super().__init__(None, 0, shift)


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Mask in which query m sees the keys up to m, and all keys of a prefix, such as a bidirectional prompt."""

    lengths: Tensor
    """Number of keys in the prefix: integers [B], or one integer for all batches."""

    def __post_init__(self) -> None:
        """Validate the lengths."""
        _check_integers("lengths", self.lengths, (0, 1))

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG002 - torch's signature
        """Return whether a query sees a key."""
        length = self.lengths[b] if self.lengths.dim() else self.lengths
        return (kv_idx <= q_idx) | (kv_idx < length)

    def spans(self, batch: int, q_len: int, kv_len: int, device: torch.device) -> Spans:
        """Return the intervals: rows [M, 2] start at the first key, columns [N, 2] end at the last query."""
        length = (self.lengths[batch] if self.lengths.dim() else self.lengths).to(device)
        rows, cols = (torch.arange(count, device=device) for count in (q_len, kv_len))
        return Spans(
            clip(torch.zeros_like(rows), torch.maximum(rows + 1, length), kv_len),
            clip(torch.where(cols < length, 0, cols), torch.full_like(cols, q_len), q_len),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Mask in which a query sees the keys of its own document, for several sequences packed into one."""

    ids: Tensor
    """The document number of each position, integers [L] or [B, L], for queries and keys alike.

    L is at least the number of queries and of keys. Positions of one document should be consecutive; otherwise the mask
    is stored as bitmaps.
    """

    def __post_init__(self) -> None:
        """Validate the document numbers."""
        _check_integers("ids", self.ids, (1, 2))

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG002 - torch's signature
        """Return whether a query sees a key."""
        if self.ids.dim() == 1:
            return self.ids[q_idx] == self.ids[kv_idx]
        return self.ids[b, q_idx] == self.ids[b, kv_idx]

    def spans(self, batch: int, q_len: int, kv_len: int, device: torch.device) -> Spans | None:
        """Return the documents' bounds as rows [M, 2] and columns [N, 2]; None if a document is not consecutive.

        Raises:
            ValueError: there are more queries or keys than `ids`.
        """
        count = max(q_len, kv_len)
        if self.ids.shape[-1] < count:
            refuse_value("ids", f"the documents of {count} positions", self.ids.shape[-1])
        ids = (self.ids if self.ids.dim() == 1 else self.ids[batch]).to(device)[:count]
        names, places, counts = ids.unique_consecutive(return_inverse=True, return_counts=True)
        if len(names.unique()) < len(names):
            return None
        ends = counts.cumsum(0)
        first, end = (ends - counts)[places], ends[places]
        return Spans(clip(first[:q_len], end[:q_len], kv_len), clip(first[:kv_len], end[:kv_len], q_len))


@dataclass(frozen=True, slots=True)
class _And:
    masks: tuple[MaskMod, ...]

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        seen = b.new_ones((), dtype=torch.bool)
        for mask in self.masks:
            seen = seen & mask(b, h, q_idx, kv_idx)
        return seen

    def spans(self, batch: int, q_len: int, kv_len: int, device: torch.device) -> Spans | None:
        """Return the intervals of the intersection of all masks; None if one of them has no intervals."""
        found = [mask.spans(batch, q_len, kv_len, device) if knows_intervals(mask) else None for mask in self.masks]
        known = [each for each in found if each is not None]
        if not known or len(known) < len(found):
            return None
        result = known[0]
        for each in known[1:]:
            result = intersect(result, each)
        return result


@dataclass(frozen=True, slots=True)
class _Or:
    masks: tuple[MaskMod, ...]

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        seen = b.new_zeros((), dtype=torch.bool)
        for mask in self.masks:
            seen = seen | mask(b, h, q_idx, kv_idx)
        return seen


def knows_intervals(mask: MaskMod) -> TypeGuard[Intervals]:
    """Return whether a mask function provides intervals of visible positions."""
    return isinstance(mask, Intervals)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return a mask that is True where all of `mask_mods` are; without arguments, everywhere.

    Raises:
        ArgumentError: an argument is not callable.
    """
    return _And(_checked(mask_mods))


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return a mask that is True where any of `mask_mods` is; without arguments, nowhere.

    Raises:
        ArgumentError: an argument is not callable.
    """
    return _Or(_checked(mask_mods))


def _checked(mask_mods: tuple[MaskMod, ...]) -> tuple[MaskMod, ...]:
    for mask in mask_mods:
        if not callable(mask):
            refuse_type("mask_mods", "functions of (b, h, q_idx, kv_idx)", type(mask).__name__)
    return mask_mods
