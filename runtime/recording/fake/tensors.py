"""CUDA tensors without memory: shapes, strides, dtypes and addresses, but no values.

torch's FakeTensorMode infers the outputs of operators, from meta tensors. On top of it, this module decides which calls
create such tensors (all that touch a simulated GPU; tensors of the CPU stay real), and gives each storage an address.

torch without CUDA has no device guard and no autograd thread for CUDA. Therefore Python code sees the device ``cuda:N``
of a tensor, and torch's C++ code sees ``lazy:N``, whose guard every build of torch has and whose gradients the calling
thread computes. The tensors' dispatch keys are CUDA's, so autocast and CUDA's operators apply to them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from nojit.runtime.recording.fake import known
from nojit.runtime.recording.fake.answers import Gpu, index_of
from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.problems import Problems
from torch._library.custom_ops import OPDEFS
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from torch.utils._device import DeviceContext
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["INNER", "Tensors", "address_of", "described"]

_DEVICE: Final = torch.ops.prim.device.default
INNER: Final = "lazy"
"""Type of a simulated CUDA device in torch's C++ code."""
# alignment of the blocks of torch's caching allocator, in bytes
_ALIGNMENT: Final = 512
# highest part of the addresses that the driver gives to devices on Linux; each device has 2^40 bytes
_BASE: Final = 0x7E00_0000_0000
_ADDRESS: Final = "_nojit_address"
# an operator that failed for want of values, and the name by which programs know it
_ASKED: Final = {
    "aten._local_scalar_dense": "Tensor.item()",
    "aten.nonzero": "Tensor.nonzero(), or an index that is a mask",
    "aten.equal": "torch.equal()",
    "aten._unique2": "torch.unique()",
    "aten.masked_select": "torch.masked_select()",
    "aten.repeat_interleave": "torch.repeat_interleave() with repeats in a tensor",
}


def described(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype, shape and device, ``float32[2, 3] on cuda:0``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} on {tensor.device}"


class _Addresses:
    """Gives each storage an address, as torch's caching allocator does: aligned to 512 bytes, and used once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, int] = {}

    def of_storage(self, storage: Any, device: int) -> int:
        """Return the address of a storage of a device, always the same."""
        address: int | None = getattr(storage, _ADDRESS, None)
        if address is None:
            with self._lock:
                address = self._free.get(device, _BASE + (device << 40))
                blocks = -(-max(storage.nbytes(), 1) // _ALIGNMENT)
                self._free[device] = address + blocks * _ALIGNMENT
            # the storage keeps it, for all tensors that share the storage
            setattr(storage, _ADDRESS, address)
        return address


_ADDRESSES: Final = _Addresses()


def address_of(tensor: torch.Tensor) -> int:
    """Return the address of a CUDA tensor without memory, in bytes; 0 if it has no elements, as torch does."""
    if not tensor.numel():
        return 0
    offset: int = tensor.storage_offset() * tensor.itemsize
    return _ADDRESSES.of_storage(tensor.untyped_storage(), tensor.device.index) + offset


class _Inference(FakeTensorMode):  # type: ignore[misc] # a class of torch's
    """torch's FakeTensorMode, whose convolutions keep the layouts of a GPU."""

    def dispatch(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = super().dispatch(func, types, args, kwargs or {})
        layout = _layout_of_convolution(func, args)
        if layout is None:
            return found
        return pytree.tree_map_only(FakeTensor, lambda each: self._with_layout(each, layout), found)

    def _with_layout(self, tensor: Any, layout: torch.memory_format) -> Any:
        if tensor.dim() not in {4, 5}:
            return tensor
        with no_dispatch():
            meta = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", memory_format=layout)
        return FakeTensor(self, meta, tensor.fake_device)


def _inner_device(tensor: Any) -> torch.device:
    if tensor.fake_mode.in_kernel_invocation:
        return torch.device("meta")
    device: torch.device = tensor.fake_device
    return torch.device(INNER, device.index) if device.type == "cuda" else device


def _outer(device: torch.device) -> torch.device:
    return torch.device("cuda", device.index or 0) if device.type == INNER else device


def _outward(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that dispatches an operator, for operators that C++ code calls with the inner name of a device."""

    @functools.wraps(dispatch)
    def call(
        mode: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map_only(torch.device, _outer, (tuple(args), dict(kwargs or {})))
        return dispatch(mode, func, types, args, kwargs)

    return call


def _layout_of_convolution(func: Any, args: Sequence[Any]) -> torch.memory_format | None:
    """Return the channels-last layout of a convolution's results; None if they are contiguous.

    cuDNN keeps the layout of input or weight (`cudnn_conv_suggest_memory_format`). A torch without CUDA does not know it.
    """
    if func not in {torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default}:
        return None
    tensors = [each for each in args[:3] if isinstance(each, FakeTensor) and each.dim() in {4, 5}]
    if not all(each.is_cuda and each.dtype != torch.float64 for each in tensors):
        return None
    layout = torch.channels_last if tensors[0].dim() == 4 else torch.channels_last_3d
    # a layout that is contiguous too counts as contiguous
    last = (each.is_contiguous(memory_format=layout) and not each.is_contiguous() for each in tensors[-2:])
    return layout if any(last) else None


class _Dispatch(TorchDispatchMode):  # type: ignore[misc] # a class of torch's
    """Sends the operators that touch a simulated GPU to the inference of shapes, and all others to torch."""

    def __init__(self, gpu: Gpu, problems: Problems) -> None:
        super().__init__()
        self._gpu = gpu
        self._problems = problems
        self.inference = _Inference(allow_non_fake_inputs=True)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE:
            return _inner_device(args[0]) if isinstance(args[0], FakeTensor) else func(*args)
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
        return _outer(device)

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
        for written in known.written_of(func, args, kwargs):
            if not isinstance(written, FakeTensor):
                self._problems.stop(f"{func}, which writes values of a GPU into {described(written)}")

    def _infer(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        values = known.follow(func, args, kwargs)
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
            known.remember(tensor, value)
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
            known.remember(one, value)
        return found

    def _places_of_masks(self, func: Any, args: Sequence[Any]) -> list[Any] | None:
        """Return the indices of an indexing, with numbers instead of masks of known values; None if a mask is unknown."""
        if func is not torch.ops.aten.index.Tensor:
            return None
        places: list[Any] = []
        for index in args[1]:
            if index is None or index.dtype not in {torch.bool, torch.uint8}:
                places.append(index)
            elif not isinstance(index, FakeTensor) or known.is_known(index):
                mask = known.copy_of(index) if isinstance(index, FakeTensor) else index
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


# -- methods of tensors ----------------------------------------------------------------------------------------------


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
        self._mode = _Dispatch(gpu, problems)
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
            if func is _DEVICE:
                return _inner_device(args[0])
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
            if func is _DEVICE and isinstance(args[0], FakeTensor):
                return _inner_device(args[0])
            return own_infer(mode, func, types, args, kwargs or {})

        self._patches.put(FakeTensorMode, "__torch_dispatch__", infer)
        for owner, name in (
            (FakeTensorMode, "dispatch"),
            (FunctionalTensorMode, "__torch_dispatch__"),
            (ProxyTorchDispatchMode, "__torch_dispatch__"),
        ):
            self._patches.put(owner, name, _outward(getattr(owner, name)))
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
            address: int | None = getattr(storage, _ADDRESS, None)
            if address is not None or storage.device.type != "meta":
                return own(storage) if address is None else address
            # FakeTensor says which device it simulates
            device = getattr(storage, "_fake_device", None)
            return _ADDRESSES.of_storage(storage, getattr(device, "index", None) or 0) if device else own(storage)

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
