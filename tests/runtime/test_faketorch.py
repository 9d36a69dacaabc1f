"""The fake framework speaks DLPack's C exchange API as a real one does."""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, byref, c_int64, c_void_p
from types import ModuleType

import pytest

from tests.fakecuda.exchange import Managed, SetError, Tensor, api_of


def test_a_tensor_is_exported_as_it_was_made(faketorch: ModuleType) -> None:
    made = faketorch.Tensor(0x1000, "bfloat16", (2, 3), device=1, strides=(6, 2), byte_offset=4)
    out, references = Tensor(), sys.getrefcount(made)
    assert api_of(faketorch.Tensor).export_tensor(made, byref(out)) == 0
    assert (out.data, out.device_type, out.device_id, out.byte_offset) == (0x1000, 2, 1, 4)
    assert (out.code, out.bits, out.lanes, out.ndim) == (4, 16, 1, 2)
    assert (out.shape[:2], out.strides[:2]) == ([2, 3], [6, 2])
    assert faketorch.counts()["exports"] == 1
    assert sys.getrefcount(made) == references
    faketorch.fail("export")
    with pytest.raises(BufferError, match="told to fail"):
        api_of(faketorch.Tensor).export_tensor(made, byref(out))


def test_streams_belong_to_devices(faketorch: ModuleType) -> None:
    faketorch.set_stream(1, 0xABC0)
    api, stream = api_of(faketorch.Tensor), c_void_p()
    assert api.current_stream(2, 0, byref(stream)) == 0
    assert stream.value is None
    assert api.current_stream(2, 1, byref(stream)) == 0
    assert stream.value == 0xABC0
    assert faketorch.counts()["streams"] == 2


def test_allocations_are_counted_and_freed(faketorch: ModuleType) -> None:
    errors: list[bytes] = []
    report = SetError(lambda _context, kind, _message: errors.append(kind))
    api, out, shape = api_of(faketorch.Tensor), POINTER(Managed)(), (c_int64 * 1)(1000)
    prototype = Tensor(None, 2, 1, 1, 1, 8, 1, shape, None, 0)
    assert api.allocate(byref(prototype), byref(out), None, report) == 0
    assert out.contents.tensor.data % 512 == 0
    assert faketorch.allocations() == [(out.contents.tensor.data, 1000, 1)]
    out.contents.deleter(out)
    assert (faketorch.counts()["allocated"], faketorch.counts()["freed"]) == (1, 1)
    faketorch.fail("allocate")
    assert api.allocate(byref(prototype), byref(out), None, report) == -1
    assert errors == [b"MemoryError"]


def test_types_differ_in_the_api_they_offer(faketorch: ModuleType) -> None:
    assert (api_of(faketorch.Tensor).major, api_of(faketorch.Tensor).previous) == (1, None)
    assert api_of(faketorch.NewerTensor).major == 2
    assert api_of(faketorch.NewerTensor).previous == ctypes.addressof(api_of(faketorch.Tensor))
    assert api_of(faketorch.ForeignTensor).previous is None
    assert not api_of(faketorch.SlowTensor).export_tensor
