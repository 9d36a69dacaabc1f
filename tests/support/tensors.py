"""Tensors without a framework: the three ways other than DLPack's C exchange API in which one can be passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Device", "InterfaceTensor", "PointerTensor", "StreamObject"]

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
