"""Calls like one that was checked before: a look-up, the allocation of results, and launches.

The first call of a kind is checked, and made through a `Recording`, which writes down what it allocates and launches: as a
recipe, in which operands and results have places. A *memo* keeps the recipe under all that the call was made of: the
library's source, the words it was called with, and of each operand dtype, device, shape, strides, whether its address
is a multiple of 16, and whether it requires a gradient. In the same memo later calls find it, and follow it in C.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

import torch
from nojit.kernels import library
from nojit.kernels.dispatch import PLAIN, autocasts
from nojit.runtime._core import Described, Memo, Recipe
from torch import Tensor
from torch.autograd.graph import increment_version

__all__ = ["DIRECT", "Caller", "Memo", "Recording", "made_and_remembered", "new_contiguous", "new_memo"]

_CONSTANT: Final = -1
_MOST_MADE: Final = 128
"""Operands of a recipe, and what its steps make of them, at most: the core's ``NJ_MADE_MAX``."""


class Caller(Protocol):
    """Makes the calls of an operator."""

    def make(self, function: Callable[..., Tensor], *args: Any, **named: Any) -> Tensor:
        """Call a function that makes a tensor."""

    def launch(self, kernel: str, *args: Any, **named: Any) -> None:
        """Launch a kernel."""

    def constant(self, *tensors: Tensor) -> None:
        """Say that tensors are the same for all calls of the kind."""


class _Direct:
    """Makes calls, and no more."""

    def make(self, function: Callable[..., Tensor], *args: Any, **named: Any) -> Tensor:
        return function(*args, **named)

    def launch(self, kernel: str, *args: Any, **named: Any) -> None:
        library.get(kernel)(*args, **named)

    def constant(self, *tensors: Tensor) -> None:
        del tensors


DIRECT: Final[Caller] = _Direct()


def new_contiguous(caller: Caller, like: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Make a contiguous tensor, with nothing in it, on the device of another and of its dtype or the one given.

    torch reads sizes that are arguments of their own in 0.9 us less than a tuple of them, and the device and dtype of another
    tensor for nothing: half of what it takes to allocate a result.
    """
    if dtype is not None and dtype != like.dtype:
        like = like.new_empty(0, dtype=dtype)
        caller.constant(like)
    sizes = shape or ((),)
    return caller.make(Tensor.new_empty, like, *sizes)


class Recording:
    """Makes the calls of an operator and writes them down.

    Attributes:
        operands: the operands, to be used instead of those that were given: one that was given twice is two here.
        source: where the kernels are from that later calls launch.
    """

    def __init__(self, *operands: Tensor | None) -> None:
        self._launching = library.CURRENT.source
        self.source = self._launching.rehearses or self._launching
        self._steps: list[Any] = []
        self._made = 0
        self._places: dict[int, int] = {}
        # no other object may come to live at their addresses
        self._held: list[object] = []
        self.operands = tuple(map(self._enter, operands))
        self._count = self._made

    def _enter(self, operand: Tensor | None) -> Tensor | None:
        if operand is not None and id(operand) in self._places:
            operand = operand.detach()
        self._name(operand, self._made)
        self._made += 1
        return operand

    def _name(self, value: object, place: int) -> None:
        self._places[id(value)] = place
        self._held.append(value)

    def stands(self, view: Tensor, of: Tensor) -> Tensor:
        """Say that a view starts where a tensor does, so that a launch may take either; return the view.

        Raises:
            ValueError: it starts elsewhere.
        """
        # what is empty has no address
        if view.numel() and view.data_ptr() != of.data_ptr():
            raise ValueError("view: expected one that starts where its tensor does")
        self._name(view, self._places[id(of)])
        return view

    def constant(self, *tensors: Tensor) -> None:
        """Say that tensors are the same for all calls of the kind."""
        for tensor in tensors:
            self._name(tensor, _CONSTANT)

    def make(self, function: Callable[..., Tensor], *args: Any, **named: Any) -> Tensor:
        """Call a function that makes a tensor, and write that down."""
        result = function(*args, **named)
        self._name(result, self._write(function, args, named, keeps=True))
        return result

    def launch(self, kernel: str, *args: Any, **named: Any) -> None:
        """Launch a kernel, and write that down."""
        self._launching.kernel(kernel)(*args, **named)
        self._write(self.source.kernel(kernel), args, named, keeps=False)

    def touch(self, tensor: Tensor) -> None:
        """Tell autograd that a tensor has changed, so that a gradient which needs what it held is refused; write that down."""
        increment_version(tensor)
        self._write(increment_version, (tensor,), {}, keeps=False)

    @property
    def fits(self) -> bool:
        """Whether a recipe holds all that was made."""
        return self._made <= _MOST_MADE

    def recipe(self, *results: Tensor) -> Recipe:
        """Return what was written, to give `results`: a tensor, or a tuple of several."""
        return Recipe(self._count, tuple(self._steps), tuple(self._places[id(result)] for result in results))

    def _write(self, function: Any, args: tuple[Any, ...], named: dict[str, Any], *, keeps: bool) -> int:
        arguments = [*args, *named.values()]
        places = tuple(
            (at, place) for at, value in enumerate(arguments) if (place := self._place_of(value)) != _CONSTANT
        )
        for at, _ in places:
            arguments[at] = None
        return self._add((function, tuple(arguments), tuple(named), places, keeps))

    def _add(self, step: tuple[Any, ...]) -> int:
        """Add a step; return the place of what it makes."""
        self._steps.append(step)
        place = self._made
        self._made += step[-1]
        return place

    def _place_of(self, value: object) -> int:
        if isinstance(value, Tensor):
            return self._places[id(value)]
        if not isinstance(value, Described):
            return _CONSTANT
        base = self._places[id(value.base)]
        return base if base == _CONSTANT else self._add((value.geometry, (None,), (), ((0, base),), True))


def made_and_remembered(
    memo: Memo,
    operands: Sequence[Tensor | None],
    out: Tensor | None,
    words: Sequence[object],
    make: Callable[[list[Any], Tensor | None, Recording], Tensor],
    *,
    lasts: Callable[[Tensor], bool] | None = None,
) -> Tensor:
    """Make the first call of its kind, and have a memo remember it.

    Args:
        memo: of the operands and `out`, made with `in_place`.
        operands: the call's.
        out: what it writes to; None if it allocates its result.
        words: what else it was called with.
        make: makes the call of the recording's own operands and `out`, checks included, and returns the result.
        lasts: says of the result whether another call like this one would be made alike; if None, it would.
    """
    recording = Recording(*operands, out)
    *own, target = recording.operands
    result = make(own, target, recording)
    if target is not None:
        recording.touch(target)
    if recording.fits and (lasts is None or lasts(result)):
        memo.remember(recording.recipe(result), *operands, out, recording.source, *words)
    return result if out is None else out


def new_memo(
    operands: int, limit: int, *, in_place: Collection[int] | None = None, under_autocast: bool = False
) -> Memo:
    """Make a memo for calls of so many operands that nothing but their kernels has to see.

    ``memo(*operands, source, *words)`` makes a call whose like was remembered and returns its results, else None;
    ``memo.remember(recipe, *operands, source, *words)`` remembers one.

    Args:
        operands: how many; None may stand for each.
        limit: recipes to keep, a power of two; of more, those that were not used lately go.
        in_place: if the last operand is one that calls write to, where it is not None: which of the others it may be, by
            number. A call whose others it may share memory with otherwise is not made.
        under_autocast: whether it makes calls under autocast too, as where that has cast the operands already.
    """
    mask = sum(1 << number for number in in_place or ())
    states = () if under_autocast else ((autocasts, False),)
    return Memo(PLAIN, states, operands, limit, in_place is not None, mask)
