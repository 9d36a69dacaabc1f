"""CUDA tensors without memory: shapes, strides, dtypes and addresses, but no values.

`Tensors` replaces the functions of torch that make, move and read tensors. `nojit.runtime.recording.fake.dispatch` decides
which calls make tensors without memory: all that touch a simulated GPU. Tensors of the CPU stay real.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from nojit.runtime.recording.fake.addresses import ADDRESSES, address_of, described
from nojit.runtime.recording.fake.answers import Gpu, index_of
from nojit.runtime.recording.fake.dispatch import DEVICE_OF, Dispatch
from nojit.runtime.recording.fake.inference import inner_device, outward
from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.problems import Problems
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
)
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Tensors"]


def _become(old: torch.Tensor, new: torch.Tensor) -> None:
    """Give a tensor object the content of another one, as `tensor.data = new` does on a GPU."""
    gradient, requires_grad = old.grad, old.requires_grad
    is_parameter = isinstance(old, torch.nn.Parameter)
    with torch.no_grad():
        new = new.detach()
    new.requires_grad_(requires_grad)
    # attributes that the program set stay
    own = {**new.__dict__, **{name: value for name, value in old.__dict__.items() if name not in new.__dict__}}
    if is_parameter:
        own["_is_param"] = True
    plain = torch.nn.Parameter if is_parameter else torch.Tensor
    old_class = type(new) if isinstance(new, FakeTensor) else plain
    torch._C._swap_tensor_impl(old, new)  # noqa: SLF001 - as torch.utils.swap_tensors does, which refuses weak references
    old.__class__ = old_class
    old.__dict__.clear()
    old.__dict__.update(own)
    if gradient is not None and (gradient.device, gradient.dtype, gradient.shape) == (old.device, old.dtype, old.shape):
        old.grad = gradient


def _apply(module: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
    """Replacement for Module._apply: parameters keep their identity when they move to a simulated GPU, as on a GPU."""
    if recurse:
        for child in module.children():
            child._apply(function)  # noqa: SLF001 - subclasses override it
    for parameter in module._parameters.values():  # noqa: SLF001 - this is Module's own method
        if parameter is None:
            continue
        gradient = parameter.grad
        with torch.no_grad():
            applied = function(parameter)
            applied_gradient = None if gradient is None else function(gradient)
        if applied is not parameter:
            parameter.data = applied
        if applied_gradient is not None:
            parameter.grad = applied_gradient.requires_grad_(gradient.requires_grad)
    for name, buffer in module._buffers.items():  # noqa: SLF001 - as above
        if buffer is not None:
            module._buffers[name] = function(buffer)  # noqa: SLF001 - as above
    return module


def _default_device() -> torch.device | None:
    """Return the device of the innermost ``with torch.device(...)``, or that of torch.set_default_device."""
    modes = (mode for mode in reversed(_get_current_function_mode_stack()) if isinstance(mode, DeviceContext))
    return next((mode.device for mode in modes), None)


class Tensors:
    """Tensors of simulated GPUs in this process.

    Args:
        gpu: the simulated GPUs.
        problems: what reports requests that need values.
        patches: what keeps torch's own functions until the simulation ends.
    """

    def __init__(self, gpu: Gpu, problems: Problems, patches: Patches) -> None:
        self._gpu = gpu
        self._problems = problems
        self._patches = patches
        self._mode = Dispatch(gpu, problems)
        # None until the mode is entered
        self._lifts: bool | None = None

    def start(self) -> None:
        """Create tensors of simulated GPUs from now on, in this thread and in threads that start later."""
        self._patch_fake_tensors()
        self._patch_storages()
        self._patch_tensors()
        self._patch_threads()
        self._patches.put(torch.nn.Module, "_apply", _apply)
        # torch.tensor(..., device="cuda") then copies a tensor of the CPU
        self._lifts = torch._C._only_lift_cpu_tensors()  # noqa: SLF001 - as FakeTensorMode does
        torch._C._set_only_lift_cpu_tensors(True)  # noqa: SLF001 - as above
        self._mode.__enter__()

    def stop(self) -> None:
        """Stop creating such tensors. The caller undoes the patches."""
        if self._lifts is not None:
            self._mode.__exit__(None, None, None)
            torch._C._set_only_lift_cpu_tensors(self._lifts)  # noqa: SLF001 - as in start
            self._lifts = None

    @property
    def mode(self) -> TorchDispatchMode:
        """The context in which tensors are created on simulated GPUs, for code that torch runs outside of it."""
        return self._mode

    def is_own(self, tensor: Any) -> bool:
        """Return whether a value is a tensor of this simulation."""
        return isinstance(tensor, FakeTensor) and tensor.fake_mode is self._mode.inference

    def _patch_fake_tensors(self) -> None:
        own, own_type, is_own = FakeTensor.__dict__["__torch_dispatch__"].__func__, torch.Tensor.type, self.is_own

        def dispatch(
            cls: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            if func is DEVICE_OF:
                return inner_device(args[0])
            return own(cls, func, types, args, kwargs or {})

        def type_(tensor: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
            if dtype is None and is_own(tensor) and tensor.is_cuda:
                return torch.empty(0, dtype=tensor.dtype, device="cpu").type().replace("torch.", "torch.cuda.")
            return own_type(tensor, dtype, *args, **kwargs)

        self._patch_inference()
        for name in ("numpy", "__array__", "__dlpack__", "__reduce_ex__"):
            self._patches.put(FakeTensor, name, self._refusing(name))
        self._patches.put(FakeTensor, "type", type_)
        self._patches.put(FakeTensor, "__torch_dispatch__", classmethod(dispatch))
        self._patches.put(FakeTensor, "data_ptr", lambda tensor: self._data_ptr(tensor))  # noqa: PLW0108 - a method
        self._patches.put(FakeTensor, "is_cuda", property(lambda tensor: tensor.device.type == "cuda"))
        self._patches.put(FakeTensor, "record_stream", lambda tensor, stream: None)  # noqa: ARG005 - nothing runs
        # it would create a tensor of the current GPU
        self._patches.put(fake_tensor, "init_gpu_context", lambda device: None)  # noqa: ARG005 - its signature

    def _patch_inference(self) -> None:
        """Let the tensors of every FakeTensorMode call CUDA devices by the inner name in C++, those of torch.compile too."""
        own_infer = FakeTensorMode.__torch_dispatch__

        def infer(
            mode: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            if func is DEVICE_OF and isinstance(args[0], FakeTensor):
                return inner_device(args[0])
            return own_infer(mode, func, types, args, kwargs or {})

        self._patches.put(FakeTensorMode, "__torch_dispatch__", infer)
        for owner, name in (
            (FakeTensorMode, "dispatch"),
            (FunctionalTensorMode, "__torch_dispatch__"),
            (ProxyTorchDispatchMode, "__torch_dispatch__"),
        ):
            self._patches.put(owner, name, outward(getattr(owner, name)))
        # torch would create a tensor of the current GPU
        self._patches.put(FakeTensorMode, "avoid_device_init", True)

    def _data_ptr(self, tensor: Any) -> Any:
        if not self.is_own(tensor):
            return torch._C.TensorBase.data_ptr(tensor)  # noqa: SLF001 - the replaced method
        if tensor.device.type != "cuda":
            self._problems.stop(f"Tensor.data_ptr() of {described(tensor)} with values of a GPU")
        return address_of(tensor)

    def _refusing(self, name: str) -> Callable[..., Any]:
        """Return a method that stops the program, because it needs the tensor's values."""

        def refused(tensor: Any, *_args: Any, **_kwargs: Any) -> Any:
            if tensor.device.type == "cuda" and name in {"numpy", "__array__"}:
                raise TypeError(f"can't convert {tensor.device} device type tensor to numpy.")
            return self._problems.stop(f"Tensor.{name}() of {described(tensor)}")

        return refused

    def _patch_storages(self) -> None:
        own = torch.UntypedStorage.data_ptr

        def data_ptr(storage: Any) -> int:
            address = ADDRESSES.given_to(storage)
            if address is not None or storage.device.type != "meta":
                return own(storage) if address is None else address
            # FakeTensor says which device it simulates
            device = getattr(storage, "_fake_device", None)
            return ADDRESSES.of_storage(storage, getattr(device, "index", None) or 0) if device else own(storage)

        self._patches.put(torch.UntypedStorage, "data_ptr", data_ptr)

    def _patch_tensors(self) -> None:
        """Name the number of each CUDA device in calls for which torch would ask its CUDA part for the current one."""
        own_to, own_data = torch.Tensor.to, torch.Tensor.data

        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            args = tuple(
                self._numbered(arg) if isinstance(arg, (str, torch.device, int)) and not isinstance(arg, bool) else arg
                for arg in args
            )
            return own_to(tensor, *args, **self._numbered_in(kwargs))

        def cuda(
            tensor: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
        ) -> Any:
            index = index_of(device, self._gpu)
            return own_to(tensor, torch.device("cuda", index), non_blocking=non_blocking, memory_format=memory_format)

        def set_data(tensor: Any, value: Any) -> None:
            if self.is_own(tensor) or self.is_own(value):
                _become(tensor, value)
            else:
                own_data.__set__(tensor, value)

        self._patches.put(torch.Tensor, "to", functools.wraps(own_to)(to))
        self._patches.put(torch.Tensor, "cuda", functools.wraps(torch.Tensor.cuda)(cuda))
        self._patches.put(torch.Tensor, "data", property(own_data.__get__, set_data))
        self._patches.put(torch.Tensor, "pin_memory", lambda tensor, *args, **kwargs: tensor.clone())  # noqa: ARG005
        for name in ("tensor", "as_tensor", "asarray"):
            self._patches.put(torch, name, self._numbering(getattr(torch, name)))

        own_new_tensor, own_new = torch.Tensor.new_tensor, torch.Tensor.new

        def new_tensor(tensor: Any, data: Any, **kwargs: Any) -> Any:
            return own_new_tensor(tensor, data, **self._numbered_in({"device": tensor.device, **kwargs}))

        def new(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.is_own(tensor):
                return own_new(tensor, *args, **kwargs)
            sizes = all(isinstance(each, int) for each in args) or isinstance(args[0], torch.Size)
            return tensor.new_empty(*args) if sizes else tensor.new_tensor(*args)

        self._patches.put(torch.Tensor, "new_tensor", functools.wraps(own_new_tensor)(new_tensor))
        self._patches.put(torch.Tensor, "new", functools.wraps(own_new)(new))

    def _numbering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            default = _default_device()
            if default is not None:
                kwargs.setdefault("device", default)
            return function(*args, **self._numbered_in(kwargs))

        return call

    def _numbered_in(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        device = kwargs.get("device")
        return kwargs if device is None else {**kwargs, "device": self._numbered(device)}

    def _numbered(self, device: Any) -> Any:
        if isinstance(device, int):
            return torch.device("cuda", index_of(device, self._gpu))
        if str(device).partition(":")[0] == "cuda":
            return torch.device("cuda", index_of(device, self._gpu))
        return device

    def _patch_threads(self) -> None:
        # a dispatch mode holds for one thread
        mode = self._mode
        own = threading.Thread._bootstrap_inner  # type: ignore[attr-defined] # noqa: SLF001 - what each thread runs

        def bootstrap(thread: Any) -> None:
            with mode:
                own(thread)

        self._patches.put(threading.Thread, "_bootstrap_inner", bootstrap)
