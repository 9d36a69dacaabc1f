"""Replay of cached calls: a look-up, the allocation of results, and launches.

The first call of a specialization is validated and run through a `RecipeWriter`, which writes a *recipe*: the allocations
and launches, with operands and results by index. A *memo* is a cache of recipes. Its key is the library's source, the
non-tensor arguments, and for each operand its dtype, device, shape, strides, whether its address is a multiple of 16,
and whether it requires a gradient. Later calls with the same key replay the recipe in C.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

import torch
from nojit.kernels import library
from nojit.kernels.calls.torch_state import PLAIN, autocasts
from nojit.runtime._core import MADE_MAX, Described, Memo, Recipe
from torch import Tensor

__all__ = ["DIRECT", "Caller", "Memo", "RecipeWriter", "made_and_remembered", "new_contiguous", "new_memo"]

_CONSTANT: Final = -1


class Caller(Protocol):
    """Interface through which an operator allocates tensors and launches kernels."""

    def make(self, function: Callable[..., Tensor], *args: Any, **named: Any) -> Tensor:
        """Call a function that allocates or converts a tensor, and return the tensor."""

    def launch(self, kernel: str, /, *args: Any, **named: Any) -> None:
        """Launch the kernel with the manifest name `kernel`; pass its params by name, most of them in the manifest's order."""

    def constant(self, *tensors: Tensor) -> None:
        """Declare tensors that are the same in all calls with the same cache key."""


class _Direct:
    """Caller that allocates and launches only."""

    def make(self, function: Callable[..., Tensor], *args: Any, **named: Any) -> Tensor:
        return function(*args, **named)

    def launch(self, kernel: str, /, *args: Any, **named: Any) -> None:
        library.get(kernel)(*args, **named)

    def constant(self, *tensors: Tensor) -> None:
        del tensors


DIRECT: Final[Caller] = _Direct()


def new_contiguous(caller: Caller, like: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialized contiguous tensor on the device of `like`, with the dtype of `like` unless `dtype` is given.

    torch parses sizes passed as separate arguments 0.9 us faster than a tuple, and takes device and dtype from another
    tensor at no cost: together half the time of allocating a result. A shape that is that of `like` need not be parsed, but
    a dimension of size 1 would keep any stride it has.

    `caller`: allocates and launches, or also records both for replays.
    """
    if dtype is not None and dtype != like.dtype:
        like = like.new_empty(0, dtype=dtype)
        caller.constant(like)
    if like.shape == shape and 1 not in shape and like.is_contiguous():
        return caller.make(torch.empty_like, like)
    sizes = shape or ((),)
    return caller.make(Tensor.new_empty, like, *sizes)


def _modified(*tensors: Tensor) -> None:
    # torch.autograd.graph.increment_version, without a look at what it was given
    torch._C._increment_version(tensors)  # noqa: SLF001


class RecipeWriter:
    """Caller that allocates and launches, and records both for replays.

    Attributes:
        operands: the operands for the operator to use. They replace the given ones, since an operand that was given
            twice must be two objects here.
        source: the kernel source of later calls.
    """

    def __init__(self, *operands: Tensor | None) -> None:
        self._launching = library.CURRENT.source
        self.source = self._launching.rehearses or self._launching
        self._steps: list[Any] = []
        self._made = 0
        self._places: dict[int, int] = {}
        # keep the objects alive, so that no other object gets their ids
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
        """Declare that `view` starts at the address of `of`, so that a launch may take either; return the view.

        Raises:
            ValueError: the view starts at another address.
        """
        # an empty tensor has no address
        if view.numel() and view.data_ptr() != of.data_ptr():
            raise ValueError("view: expected one that starts where its tensor does")
        self._name(view, self._places[id(of)])
        return view

    def constant(self, *tensors: Tensor) -> None:
        """Declare tensors that are the same in all calls with the same cache key."""
        for tensor in tensors:
            self._name(tensor, _CONSTANT)

    def make(self, function: Callable[..., Tensor], *args: Any, **named: Any) -> Tensor:
        """Call a function that allocates or converts a tensor; record the call, and return the tensor."""
        result = function(*args, **named)
        self._name(result, self._write(function, args, named, keeps=True))
        return result

    def launch(self, kernel: str, /, *args: Any, **named: Any) -> None:
        """Launch the kernel with the manifest name `kernel`, and record the launch."""
        self._launching.kernel(kernel)(*args, **named)
        self._write(self.source.kernel(kernel), args, named, keeps=False)

    def touch(self, *tensors: Tensor) -> None:
        """Tell autograd that tensors were modified, so that it refuses gradients of old values; record this as one step."""
        _modified(*tensors)
        self._write(_modified, tensors, {}, keeps=False)

    @property
    def fits(self) -> bool:
        """True if a recipe can hold as many tensors as were recorded."""
        return self._made <= MADE_MAX

    def recipe(self, *results: Tensor) -> Recipe:
        """Return the recorded recipe; its replay returns `results`, one tensor or a tuple."""
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
        """Append a step to the recipe; return the index of the step's result."""
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
    make: Callable[[list[Any], Tensor | None, RecipeWriter], Tensor],
    *,
    may_replay: Callable[[Tensor], bool] | None = None,
) -> Tensor:
    """Run the first call of a specialization, and cache its recipe.

    Args:
        memo: the cache, from `new_memo` with `in_place`; its operands are `operands` and `out`.
        operands: the tensors of the call.
        out: the tensor to write to; None to allocate the result.
        words: the non-tensor arguments of the call.
        make: validates and runs the call, with the writer's operands and output, and returns the result.
        may_replay: returns whether equal calls may replay the recipe, given the result; None if they always may.
    """
    writer = RecipeWriter(*operands, out)
    *own, target = writer.operands
    result = make(own, target, writer)
    if target is not None:
        writer.touch(target)
    if writer.fits and (may_replay is None or may_replay(result)):
        memo.remember(writer.recipe(result), *operands, out, writer.source, *words)
    return result if out is None else out


def new_memo(
    operands: int, limit: int, *, in_place: Collection[int] | None = None, under_autocast: bool = False
) -> Memo:
    """Return a cache of recipes for calls with `operands` tensors for which `is_plain` holds.

    ``memo(*operands, source, *words)`` replays a cached call and returns its results, or None if the call is not
    cached; ``memo.remember(recipe, *operands, source, *words)`` caches a recipe.

    Args:
        operands: the number of operands; each may be None.
        limit: the number of recipes to keep, a power of two; a new one may replace one that was not used of late.
        in_place: None if no operand is an output. Otherwise the last operand is the output (or None), and these are the
            indices of the operands that may be the same tensor as the output. The memo does not replay a call whose
            output may overlap another operand.
        under_autocast: replay calls under autocast as well, for operands that autocast has already cast.
    """
    mask = sum(1 << number for number in in_place or ())
    states = () if under_autocast else ((autocasts, False),)
    return Memo(PLAIN, states, operands, limit, in_place is not None, mask)
