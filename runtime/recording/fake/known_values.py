"""Values of GPU tensors that the CPU can know exactly, without a GPU.

A tensor that a program made from constants or from a tensor of the CPU has known values: ``torch.tensor(lengths,
device="cuda")``, its slices, and integers computed from it. A tensor of the CPU, the *copy*, follows it. Values are never
guessed: results of floating-point arithmetic, random numbers and outputs of kernels are unknown, because a GPU may compute
other bits, and a launch that may write to a tensor makes all tensors of that storage unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

__all__ = ["copy_of", "follow", "forget", "is_known", "remember"]

aten = torch.ops.aten
_COPY: Final = "_nojit_copy"
_UNKNOWN: Final = "_nojit_unknown"
# largest tensor to follow, in elements
_ELEMENTS_MAX: Final = 1 << 20
# they move elements, or fill with a constant, and compute nothing
_MOVES: Final = frozenset(
    {
        "_to_copy",
        "alias",
        "arange",
        "cat",
        "clone",
        "constant_pad_nd",
        "contiguous",
        "copy",
        "copy_",
        "detach",
        "fill",
        "fill_",
        "flip",
        "full",
        "full_like",
        "gather",
        "index",
        "index_select",
        "lift_fresh",
        "lift_fresh_copy",
        "masked_fill",
        "masked_fill_",
        "masked_select",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "repeat",
        "repeat_interleave",
        "roll",
        "scalar_tensor",
        "stack",
        "where",
        "zero_",
        "zeros",
        "zeros_like",
        "_local_scalar_dense",
        "_reshape_copy",
        "_unsafe_view",
        "equal",
    }
)
# their results have no rounding
_COMPARES: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"})
# they take shapes from their inputs and no values
_FILLS: Final = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
# their memory is not initialized, or the device chooses among equal elements or among writes to one element
_UNSURE: Final = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "sort",
        "topk",
        "kthvalue",
        "median",
        "mode",
        "argmax",
        "argmin",
        "index_copy",
        "index_copy_",
        "index_put",
        "index_put_",
        "scatter",
        "scatter_",
        "max.dim",
        "min.dim",
        "resize_",
        "set_",
    }
)


def is_known(tensor: Any) -> bool:
    """Return whether the values of a tensor without memory are known."""
    return hasattr(tensor, _COPY) and not getattr(tensor.untyped_storage(), _UNKNOWN, False)


def copy_of(tensor: Any) -> torch.Tensor:
    """Return the tensor of the CPU that has a tensor's values."""
    copy: torch.Tensor = getattr(tensor, _COPY)
    return copy


def remember(tensor: Any, copy: torch.Tensor) -> None:
    """Keep a tensor's values."""
    setattr(tensor, _COPY, copy)


def forget(tensor: torch.Tensor) -> None:
    """Make the values of a tensor unknown, and those of all tensors that share its storage."""
    setattr(tensor.untyped_storage(), _UNKNOWN, True)


def follow(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Compute an operator on the copies of its inputs, inputs that it writes to included.

    Call it before the operator runs on the tensors without memory. If the result is unknown, the tensors that the operator
    writes to become unknown.

    Returns:
        What the operator returns for the copies; `NotImplemented` if that is unknown.
    """
    name = func._schema.name.partition("::")[2]  # noqa: SLF001 - torch has no other name for it
    result = _computed(func, name, args, kwargs) if _is_exact(func, name, args, kwargs) else NotImplemented
    if result is NotImplemented:
        for written in written_of(func, args, kwargs):
            if isinstance(written, FakeTensor):
                forget(written)
    return result


def written_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """List the tensors that an operator writes to."""
    if func.namespace == "c10d":
        # schemas of collectives do not say which
        return [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    found: list[torch.Tensor] = []
    for place, argument in enumerate(func._schema.arguments):  # noqa: SLF001 - as above
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            found += [each for each in pytree.tree_leaves(given) if isinstance(each, torch.Tensor)]
    return found


def _is_exact(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    full_name = str(func).removeprefix("aten.")
    unsure = not _UNSURE.isdisjoint((name, full_name)) or torch.Tag.nondeterministic_seeded in func.tags
    if unsure or func.namespace != "aten":
        return False
    tensors = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    if name in _FILLS:
        return all(each.numel() <= _ELEMENTS_MAX for each in tensors)
    if not all(
        each.numel() <= _ELEMENTS_MAX and (not isinstance(each, FakeTensor) or is_known(each)) for each in tensors
    ):
        return False
    if name in _MOVES or name in _COMPARES or func.is_view:
        return True
    # without tensors, it is a factory
    return bool(tensors) and not any(map(_is_inexact, tensors))


def _is_inexact(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _computed(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    fills = name in _FILLS

    def real(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        if not isinstance(leaf, FakeTensor):
            return leaf
        if fills and not is_known(leaf):
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)
        return copy_of(leaf)

    if not _is_small(func, args):
        return NotImplemented
    args, kwargs = pytree.tree_map(real, (tuple(args), {**kwargs}))
    kwargs.pop("pin_memory", None)
    try:
        result = func(*args, **kwargs)
    except (RuntimeError, IndexError, NotImplementedError):
        # the tensors without memory get the same error
        return NotImplemented
    tensors = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
    if name not in _MOVES and not func.is_view and any(map(_is_inexact, tensors)):
        return NotImplemented
    return result


def _is_small(func: Any, args: Sequence[Any]) -> bool:
    """Return whether the sizes that a factory gets are small enough."""
    name = func._schema.name.partition("::")[2]  # noqa: SLF001 - torch has no other name for it
    if name == "arange":
        numbers = [each for each in args if isinstance(each, (int, float))]
        return all(abs(each) <= _ELEMENTS_MAX for each in numbers)
    sizes = next((each for each in args if isinstance(each, (list, tuple, torch.Size))), ())
    product = 1
    for size in sizes:
        product *= size if isinstance(size, int) and size > 0 else 1
    return product <= _ELEMENTS_MAX
