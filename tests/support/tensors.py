"""Tensors without a framework: the three ways other than DLPack's C exchange API in which one can be passed."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["Device", "InterfaceTensor", "OldTorch", "PointerTensor", "StreamObject", "WrappingTensor"]

_TYPESTRS = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "int32": "<i4", "int64": "<i8", "bool": "|b1"}


@dataclass(frozen=True, slots=True)
class Device:
    """As ``torch.device``."""

    type: str
    index: int | None


class PointerTensor:
    """Has ``data_ptr()``, ``dtype`` and ``device``, as a tensor of an older framework."""

    def __init__(self, address: int, dtype: str = "torch.float16", device: Device | str = "cuda:0") -> None:
        self._address = address
        self.dtype = dtype
        self.device = device

    def data_ptr(self) -> int:
        return self._address


class InterfaceTensor:
    """Has ``__cuda_array_interface__`` version 3 and nothing else."""

    def __init__(self, address: int, dtype: str = "float16", shape: tuple[int, ...] = (1,), **more: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": _TYPESTRS.get(dtype, dtype),
            "data": (address, False),
            "version": 3,
            "strides": None,
        } | more


class StreamObject:
    """Has ``__cuda_stream__``, as ``cuda.core`` streams do."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


class WrappingTensor:
    """Holds a tensor, and says another dtype of it: as ``triton.reinterpret`` makes them."""

    def __init__(self, base: Any, address: int, dtype: str = "fp16", device: str = "cuda:0") -> None:
        self.base = base
        self.dtype = dtype
        self.device = device
        self._address = address

    def data_ptr(self) -> int:
        return self._address


class OldTorch(ModuleType):
    """Torch as it was before 2.10: tensors without an exchange API, and ``_C`` that knows each device's current stream."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.streams: dict[int, int] = {}
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=self.current)

        class Tensor(PointerTensor):
            """A class of each torch's own."""

            @property
            def __cuda_array_interface__(self) -> dict[str, Any]:
                raise TypeError("tensors that need a gradient have none")

        class Parameter(Tensor):
            """As ``torch.nn.Parameter``."""

        self.Tensor, self.Parameter = Tensor, Parameter

    def current(self, device: int) -> int:
        """Return the handle of the current stream: what Triton asks."""
        return self.streams.get(device, 0)
