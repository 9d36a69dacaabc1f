"""Dispatch of operators: those that touch a simulated GPU are inferred, or refused if they need values; others run on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from nojit.runtime.recording.fake import known_values
from nojit.runtime.recording.fake.addresses import described
from nojit.runtime.recording.fake.answers import Gpu, index_of
from nojit.runtime.recording.fake.inference import Inference, inner_device, outer_device
from nojit.runtime.recording.fake.problems import Problems
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DEVICE_OF", "Dispatch"]

DEVICE_OF: Final = torch.ops.prim.device.default
"""The operator that asks a tensor for its device."""
# an operator that failed for want of values, and the name by which programs know it
_ASKED: Final = {
    "aten._local_scalar_dense": "Tensor.item()",
    "aten.nonzero": "Tensor.nonzero(), or an index that is a mask",
    "aten.equal": "torch.equal()",
    "aten._unique2": "torch.unique()",
    "aten.masked_select": "torch.masked_select()",
    "aten.repeat_interleave": "torch.repeat_interleave() with repeats in a tensor",
}


class Dispatch(TorchDispatchMode):  # type: ignore[misc] # a class of torch's
    """Sends the operators that touch a simulated GPU to the inference of shapes, and all others to torch."""

    def __init__(self, gpu: Gpu, problems: Problems) -> None:
        super().__init__()
        self._gpu = gpu
        self._problems = problems
        self.inference = Inference(allow_non_fake_inputs=True)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is DEVICE_OF:
            return inner_device(args[0]) if isinstance(args[0], FakeTensor) else func(*args)
        if any(_is_foreign(each) for each in types):
            # a tensor subclass takes its operators apart first, and this mode sees the parts
            return NotImplemented
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
        leaves = [self._device(leaf) if isinstance(leaf, torch.device) else leaf for leaf in leaves]
        args, named = pytree.tree_unflatten(leaves, spec)
        if any(
            isinstance(each, FakeTensor) or (isinstance(each, torch.device) and each.type == "cuda") for each in leaves
        ):
            body = _body_of(func)
            if body is not None:
                with self:
                    return body(*args, **named)
            self._refuse_writes(func, args, named)
            return self._infer(func, args, named)
        return self._on_cpu(func, args, named)

    def _device(self, device: torch.device) -> torch.device:
        if device.type == "cuda" and device.index is None:
            return torch.device("cuda", self._gpu.current)
        if device.type == "cuda":
            index_of(device, self._gpu)
        return outer_device(device)

    def _input(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Generator):
            # a generator of the CPU stands for it; what it draws is never read
            return None
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor):
            return self.without_values(leaf)
        return leaf

    def without_values(self, real: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
        """Return a tensor of the same shape, strides and dtype without values, on the same device or another one."""
        if real.layout != torch.strided or real.is_conj() or real.is_neg() or real.device.type == "meta":
            return self.inference.from_tensor(real)
        # the converter of FakeTensorMode keeps weak references, with which a parameter cannot change its device
        with no_dispatch():
            meta = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
        return FakeTensor(self.inference, meta, device or real.device)

    def _refuse_writes(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Stop the program if an operator would write values of a GPU into a tensor of the CPU."""
        for written in known_values.written_of(func, args, kwargs):
            if not isinstance(written, FakeTensor):
                self._problems.stop(f"{func}, which writes values of a GPU into {described(written)}")

    def _infer(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        values = known_values.follow(func, args, kwargs)
        inputs, named = pytree.tree_map(self._input, (tuple(args), kwargs))
        named.pop("pin_memory", None)
        try:
            with self.inference:
                found = func(*inputs, **named)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            asked = _request(error.func, args)
        except UnsupportedOperatorException as error:
            asked = f"{error.func}, an operator without a meta or fake implementation"
        except NotImplementedError as error:
            if "Meta" not in str(error):
                raise
            asked = f"{func}, an operator without a meta or fake implementation"
        else:
            return found if values is NotImplemented else self._with_values(func, found, values)
        if values is not NotImplemented:
            return self._known(values, inputs)
        places = self._places_of_masks(func, args)
        return self._problems.stop(asked) if places is None else self._infer(func, (args[0], places), kwargs)

    def _known(self, values: Any, inputs: Sequence[Any]) -> Any:
        """Return a result whose shape depends on values: tensors of the first input's device."""
        device = next(each.device for each in pytree.tree_leaves(inputs) if isinstance(each, FakeTensor))

        def fake(value: torch.Tensor) -> torch.Tensor:
            tensor = self.without_values(value, device)
            known_values.remember(tensor, value)
            return tensor

        return pytree.tree_map_only(torch.Tensor, fake, values)

    @staticmethod
    def _with_values(func: Any, found: Any, values: Any) -> Any:
        """Remember the values of inferred tensors. Returns real tensors instead of inferred ones of the CPU."""
        pairs = list(zip(pytree.tree_leaves(found), pytree.tree_leaves(values), strict=True))
        tensors = [(one, value) for one, value in pairs if isinstance(one, FakeTensor)]
        if tensors and all(one.device.type == "cpu" for one, _ in tensors) and not func._schema.is_mutable:  # noqa: SLF001 - torch has no other name for it
            return values
        for one, value in tensors:
            known_values.remember(one, value)
        return found

    def _places_of_masks(self, func: Any, args: Sequence[Any]) -> list[Any] | None:
        """Return the indices of an indexing, with numbers instead of masks of known values; None if a mask is unknown."""
        if func is not torch.ops.aten.index.Tensor:
            return None
        places: list[Any] = []
        for index in args[1]:
            if index is None or index.dtype not in {torch.bool, torch.uint8}:
                places.append(index)
            elif not isinstance(index, FakeTensor) or known_values.is_known(index):
                mask = known_values.copy_of(index) if isinstance(index, FakeTensor) else index
                places += self._known(list(mask.nonzero().unbind(1)), args)
            else:
                return None
        return places

    @staticmethod
    def _on_cpu(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        # pinned memory is an allocation of the driver
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if func is torch.ops.aten._pin_memory.default:  # noqa: SLF001 - the operator's name
            return args[0].clone()
        if func is torch.ops.aten.is_pinned.default:
            return False
        return func(*args, **kwargs)


def _body_of(func: Any) -> Callable[..., Any] | None:
    """Return what an operator of `torch.library` runs on a GPU, if that is Python: it may launch kernels."""
    schema = getattr(func, "_schema", func)
    defined = OPDEFS.get(schema.name)
    if defined is not None:
        bodies: dict[str | None, Callable[..., Any]] = defined._backend_fns  # noqa: SLF001 - torch has no other name for it
        return bodies.get("cuda") or bodies.get(None)
    # operators of the older form, `Library.impl`: torch keeps the names of those that are Python
    overload = getattr(schema, "overload_name", "")
    name = schema.name.replace("::", "/") + (f".{overload}" if overload else "")
    for key in ("CUDA", "CompositeExplicitAutograd"):
        if f"{name}/{key}" in torch.library._impls:  # noqa: SLF001 - as above
            keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))  # noqa: SLF001 - as above
            return functools.partial(func.redispatch, keys)
    return None


def _is_foreign(type_: type[Any]) -> bool:
    return not issubclass(type_, FakeTensor) and type_.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _request(func: Any, args: Sequence[Any]) -> str:
    name = str(func).rpartition(".")[0]
    asked = _ASKED.get(name, str(func))
    tensors = [each for each in pytree.tree_leaves(args) if isinstance(each, torch.Tensor)]
    return f"{asked} of {described(tensors[0])}" if tensors else asked
