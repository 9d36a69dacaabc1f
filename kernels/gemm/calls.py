"""Cache of prepared calls of matrix products, which may have an output argument."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from torch import Tensor

__all__ = ["Kept", "keep"]

T = TypeVar("T")

_MOST: Final = 4096


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A prepared call, and the memory extents of its tensors."""

    call: T
    spans: tuple[int, ...]
    """For each tensor, the bytes from its first element to the end of its last one."""

    def lie_apart(self, tensors: Sequence[Tensor]) -> bool:
        """Return whether the first tensor lies in memory entirely before or after each of the others.

        This check is fast. A False does not prove that elements overlap.
        """
        first = tensors[0].data_ptr()
        end = first + self.spans[0]
        for tensor, span in zip(tensors[1:], self.spans[1:], strict=True):
            start = tensor.data_ptr()
            if start < end and first < start + span:
                return False
        return True


def keep(calls: dict[Hashable, Kept[T]], facts: Hashable, call: T, tensors: Sequence[Tensor]) -> Kept[T]:
    """Cache a call under the key `facts`; a full cache is cleared first, since calls in use are soon prepared again."""
    if len(calls) >= _MOST:
        calls.clear()
    return calls.setdefault(facts, Kept(call, tuple(map(_span_bytes, tensors))))


def _span_bytes(tensor: Tensor) -> int:
    if not tensor.numel():
        return 0
    last: int = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    span: int = (last + 1) * tensor.itemsize
    return span
