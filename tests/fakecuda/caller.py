"""A program that calls the fake driver as it should, but for what a test bends."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p

from tests.fakecuda.driver import FakeCuda
from tests.support.cubins import CubinSpec, build_cubin

__all__ = ["ADD", "Caller"]

SUCCESS = 0
ADD = CubinSpec("add", (8, 8, 4, 8))


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", c_uint),
    )


class Caller:
    """Calls the driver functions that a launch needs."""

    def __init__(self, driver: FakeCuda) -> None:
        self.driver = driver

    def load(self, image: bytes) -> c_void_p:
        library = c_void_p()
        assert self.load_code(image, library) == SUCCESS
        return library

    def load_code(self, image: bytes, library: c_void_p | None = None) -> int:
        library = c_void_p() if library is None else library
        return self.driver.call("cuLibraryLoadData", byref(library), image, None, None, 0, None, None, 0)

    def kernel(self, spec: CubinSpec = ADD, *, sm: int = 90) -> c_void_p:
        image = build_cubin(spec) if sm >= 90 else build_cubin(spec, sm=sm, suffix="", abi=7)
        library, kernel = self.load(image), c_void_p()
        assert self.driver.call("cuLibraryGetKernel", byref(kernel), library, spec.symbol.encode()) == SUCCESS
        return kernel

    def launch(
        self,
        kernel: c_void_p,
        values: tuple[int, ...] = (16, 32, 7, 0),
        sizes: tuple[int, ...] = ADD.sizes,
        *,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (128, 1, 1),
        shared_bytes: int = 0,
        stream: int = 0,
    ) -> int:
        params = self.params(values, sizes)
        numbers = map(c_uint, (*grid, *block, shared_bytes))
        return self.driver.call("cuLaunchKernel", kernel, *numbers, c_void_p(stream), params, None)

    def launch_ex(
        self,
        kernel: c_void_p,
        attributes: dict[int, tuple[int, ...]] | list[tuple[int, tuple[int, ...]]],
        grid: tuple[int, int, int] = (2, 1, 1),
    ) -> int:
        array = (_Attribute * max(1, len(attributes)))()
        pairs = attributes.items() if isinstance(attributes, dict) else attributes
        for slot, (number, words) in zip(array, pairs, strict=False):
            slot.id = number
            slot.value[: len(words)] = words
        config = _Config(grid, (128, 1, 1), 0, None, array, len(attributes))
        return self.driver.call("cuLaunchKernelEx", byref(config), kernel, self.params((1, 2, 3, 4), ADD.sizes), None)

    def params(self, values: tuple[int, ...], sizes: tuple[int, ...]) -> ctypes.Array[c_void_p]:
        buffers = [(value).to_bytes(size, "little") for value, size in zip(values, sizes, strict=True)]
        array = (c_void_p * (len(buffers) + 1))(*(ctypes.cast(c_char_p(buffer), c_void_p) for buffer in buffers))
        self.kept = buffers
        return array
