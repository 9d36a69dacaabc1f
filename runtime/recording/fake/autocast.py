"""torch.autocast("cuda") for tensors without memory.

torch's autocast kernels test whether a tensor's device is CUDA in C++, where these tensors have another device. Kernels of
this module replace them for the time of a simulation. torch's own kernels tell the dtype that each
operator casts to, with tensors that are on CUDA in C++.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

__all__ = ["replace_kernels"]

_KEY: Final = "AutocastCUDA"
_LOWER: Final = torch.bfloat16
# torch warns of their use
_DEPRECATED: Final = ("aten::chain_matmul", "aten::frobenius_norm", "aten::nuclear_norm")
# a value for each type of an operator's schema
_VALUES: Final[dict[str, Any]] = {"int": 1, "SymInt": 1, "float": 1.0, "bool": False, "number": 1, "Scalar": 1}


class _Probe(torch.Tensor):  # type: ignore[misc] # a class of torch's
    """A tensor that is on CUDA in C++, and that operators only look at."""

    @staticmethod
    def of(dtype: torch.dtype) -> torch.Tensor:
        """Return a probe of a dtype."""
        probe: torch.Tensor = torch.Tensor._make_wrapper_subclass(_Probe, (2, 2), dtype=dtype, device="cuda")  # noqa: SLF001 - torch's way to make one
        return probe

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _Seen(func, args, kwargs or {})


class _Seen(Exception):  # noqa: N818 - it ends a probe, and is no error
    """The first operator that an autocast kernel called."""

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        super().__init__(str(func))
        self.func = func
        self.args_of_func = args
        self.kwargs = kwargs


def _first_call(op: Any, dtype: torch.dtype) -> _Seen | Exception | None:
    """Return the first operator that an autocast kernel calls for tensors of a dtype, or the error that it raises."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for argument in op._schema.arguments:  # noqa: SLF001 - torch has no other name for it
        if argument.name == "dim" and argument.has_default_value():
            # torch warns of products without it
            named["dim"] = 0
        elif not argument.kwarg_only and not argument.has_default_value():
            args.append(_value(str(argument.type), dtype))
    try:
        with torch.autocast("cuda", dtype=_LOWER, cache_enabled=False):
            op(*args, **named)
    except _Seen as seen:
        return seen
    except (RuntimeError, IndexError, TypeError) as error:
        return error
    return None


def _value(type_: str, dtype: torch.dtype) -> Any:
    if type_.startswith("Optional"):
        return None
    if type_ == "Tensor":
        return _Probe.of(dtype)
    if type_ == "List[Tensor]":
        return [_Probe.of(dtype), _Probe.of(dtype)]
    if type_.startswith("List"):
        return [1, 1] if "Optional" not in type_ else [None]
    return "ij,jk->ik" if type_ == "str" else _VALUES.get(type_, 1)


def _cast_of(seen: _Seen | Exception | None) -> torch.dtype | None:
    """Return the dtype that the call casts to; None if it casts nothing."""
    if isinstance(seen, _Seen) and seen.func is torch.ops.aten._to_copy.default:  # noqa: SLF001 - the operator's name
        dtype: torch.dtype | None = seen.kwargs.get("dtype")
        return dtype
    return None


@functools.cache
def _policies() -> dict[str, str]:
    """Return, by operator, what autocast does: ``lower``, ``float32``, ``widest``, ``dtype`` or ``refuse``."""
    return {
        name: _policy(_overload(name))
        for name in torch._C._dispatch_get_all_op_names()  # noqa: SLF001 - torch has no other list of them
        if name.startswith("aten::")
        and not name.startswith(_DEPRECATED)
        and torch._C._dispatch_has_kernel_for_dispatch_key(name, _KEY)  # noqa: SLF001 - as above
    }


def _overload(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _policy(op: Any) -> str:
    lower = _first_call(op, _LOWER)
    if "autocast" in str(lower):
        return "refuse"
    if _cast_of(_first_call(op, torch.float32)) is _LOWER:
        return "lower"
    if _cast_of(lower) is torch.float32:
        return "float32"
    arguments = op._schema.arguments  # noqa: SLF001 - torch has no other name for it
    if any(argument.name == "dtype" for argument in arguments):
        return "dtype"
    # several tensors get the widest of their dtypes; a norm of one tensor is computed in float32
    tensors = [argument for argument in arguments if "Tensor" in str(argument.type)]
    return "widest" if len(tensors) > 1 or str(tensors[0].type) == "List[Tensor]" else "float32"


def replace_kernels(is_own: Callable[[Any], bool]) -> Callable[[], None]:
    """Replace the autocast kernels of CUDA. Returns the function that puts torch's own back.

    `is_own`: whether a tensor is one without memory.
    """
    policies = _policies()
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # torch warns of kernels that are replaced
        warnings.simplefilter("ignore", UserWarning)
        for name, policy in policies.items():
            library.impl(name.removeprefix("aten::"), _kernel(_overload(name), policy, is_own), _KEY)
    destroy: Callable[[], None] = library._destroy  # noqa: SLF001 - torch has no other way
    return destroy


def _with_dtype(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with float32 as the dtype of the result, unless the call names one."""
    names = [argument.name for argument in op._schema.arguments]  # noqa: SLF001 - torch has no other name for it
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("dtype") is not None:
        return args, kwargs
    place = names.index("dtype")
    return args[:place], {**dict(zip(names[place:], args[place:], strict=False)), **kwargs, "dtype": torch.float32}


def _kernel(op: Any, policy: str, is_own: Callable[[Any], bool]) -> Callable[..., Any]:
    def is_cast(value: Any) -> bool:
        return is_own(value) and value.is_cuda and value.is_floating_point() and value.dtype != torch.float64

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype: torch.dtype | None = None
        cast = [each for each in pytree.tree_leaves((args, kwargs)) if is_cast(each)]
        if policy == "refuse":
            raise RuntimeError(f"{op} is unsafe to autocast: use its variant with logits")
        if policy == "lower":
            dtype = torch.get_autocast_dtype("cuda")
        elif policy == "float32":
            dtype = torch.float32
        elif policy == "widest" and cast:
            dtype = functools.reduce(torch.promote_types, [each.dtype for each in cast])
        elif policy == "dtype" and args and is_cast(args[0]):
            args, kwargs = _with_dtype(op, args, kwargs)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)):  # noqa: SLF001 - as torch's kernels do
            if dtype is not None:
                args, kwargs = pytree.tree_map(
                    lambda each: each.to(dtype) if is_cast(each) and each.dtype != dtype else each, (args, kwargs)
                )
            return op(*args, **kwargs)

    return kernel
