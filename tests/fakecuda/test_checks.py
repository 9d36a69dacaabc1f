"""What the fake driver and the fake framework notice: each of these mistakes of a launcher is a violation."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from types import ModuleType
from typing import Any

import pytest

from tests.fakecuda import FakeCuda, TensorMap
from tests.fakecuda.caller import ADD, Caller
from tests.fakecuda.exchange import Managed, SetError, Tensor, api_of
from tests.fakecuda.tensormap import read_tensor_map
from tests.support.cubins import CubinSpec

SUCCESS, INVALID_VALUE, INVALID_CONTEXT, NOT_SUPPORTED, CONTEXT_LOST = 0, 1, 201, 801, 709
COOPERATIVE, CLUSTER, POLICY, PDL, CARVEOUT = 2, 4, 5, 6, 14
FLOAT16, UINT8, FLOAT32, U4_ALIGN16B = 6, 0, 7, 14


@pytest.fixture
def caller(fakecuda: FakeCuda) -> Caller:
    fakecuda.make_current(0)
    return Caller(fakecuda)


# launches


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({3: (1,)}, "launch attribute 3 is not known here"),
        ({COOPERATIVE: (2,)}, "launch attribute 2 is 2"),
        ({PDL: (7,)}, "launch attribute 6 is 7"),
        ({POLICY: (3,)}, "launch attribute 5 is 3"),
        ({CARVEOUT: (101,)}, "launch attribute 14 is 101"),
        ([(PDL, (1,)), (PDL, (1,))], "launch attribute 6 is given twice"),
    ],
)
def test_attributes_are_known_and_sane(caller: Caller, attributes: Any, words: str) -> None:
    kernel = caller.kernel()
    assert caller.launch_ex(kernel, {CARVEOUT: (2**32 - 1,), PDL: (1,), COOPERATIVE: (1,)}) == SUCCESS
    assert caller.launch_ex(kernel, attributes) == INVALID_VALUE
    assert caller.driver.violations() == [words]


def test_dependent_launches_need_sm_90(caller: Caller) -> None:
    kernel = caller.kernel()
    caller.driver.set_devices(89)
    sm_80 = caller.kernel(ADD, sm=80)
    assert caller.launch_ex(sm_80, {PDL: (1,)}) == NOT_SUPPORTED
    assert caller.driver.violations() == ["a dependent launch on a device before sm_90"]
    caller.driver.set_devices(90)
    assert caller.launch_ex(kernel, {PDL: (1,)}) == SUCCESS


def launch_with(caller: Caller, params: Any) -> int:
    numbers = map(c_uint, (1, 1, 1, 128, 1, 1, 0))
    return caller.driver.call("cuLaunchKernel", caller.kernel(), *numbers, None, params, None)


def test_every_argument_is_readable_in_full(caller: Caller) -> None:
    good = caller.params((1, 2, 3, 4), ADD.sizes)
    assert launch_with(caller, good) == SUCCESS
    good[2] = 0x10
    assert launch_with(caller, good) == INVALID_VALUE
    assert launch_with(caller, c_void_p(0x10)) == INVALID_VALUE
    assert caller.driver.violations() == [
        "add: argument 2 is not readable",
        "add: an array of less than 4 arguments",
    ]


def test_function_attributes_that_cannot_be_set_are_noted(caller: Caller) -> None:
    kernel = caller.kernel()
    assert caller.driver.call("cuKernelSetAttribute", 9, 100, kernel, 0) == SUCCESS
    assert caller.driver.call("cuKernelSetAttribute", 9, 101, kernel, 0) == INVALID_VALUE
    assert caller.driver.call("cuKernelSetAttribute", 4, 1, kernel, 0) == INVALID_VALUE
    assert caller.driver.violations() == ["function attribute 4 cannot be set"]


# failures


def test_a_call_fails_by_its_number_whichever_it_is(caller: Caller) -> None:
    driver, count = caller.driver, c_int()
    driver.fail("*", 2, call=2)
    before = driver.calls("*")
    codes = [driver.call("cuDeviceGetCount", byref(count)), driver.call("cuDriverGetVersion", byref(count))]
    codes += [driver.call("cuDeviceGetCount", byref(count)) for _ in range(2)]
    assert codes == [SUCCESS, SUCCESS, 2, SUCCESS]
    assert driver.calls("*") == before + 4
    driver.reset()
    assert driver.calls("*") == 0


@pytest.mark.parametrize("code", [CONTEXT_LOST, INVALID_CONTEXT])
def test_a_lost_context_stays_lost_until_it_is_retained(caller: Caller, code: int) -> None:
    driver, kernel, context, device = caller.driver, caller.kernel(), c_void_p(), c_int()
    assert driver.call("cuKernelSetAttribute", 8, 60_000, kernel, 0) == SUCCESS
    assert caller.launch(kernel, shared_bytes=60_000) == SUCCESS
    driver.lose_context(0, code)
    assert caller.launch(kernel) == code
    assert driver.call("cuCtxGetDevice", byref(device)) == code
    assert driver.call("cuCtxGetCurrent", byref(context)) == SUCCESS
    assert driver.call("cuCtxPushCurrent_v2", context) == code
    assert driver.call("cuDevicePrimaryCtxRetain", byref(context), 0) == SUCCESS
    assert caller.launch(kernel) == SUCCESS
    assert caller.launch(kernel, shared_bytes=60_000) == INVALID_VALUE
    assert "the limit is 49152" in driver.violations()[0]


@pytest.mark.parametrize("name", ["cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemsetD8_v2", "cuDevicePrimaryCtxReset_v2"])
def test_what_waits_breaks_a_capture(caller: Caller, name: str) -> None:
    driver, stream = caller.driver, caller.driver.stream(0)
    arguments: dict[str, tuple[Any, ...]] = {
        "cuMemcpyHtoD_v2": (c_uint64(0), b"", c_size_t(0)),
        "cuMemcpyDtoH_v2": (c_void_p(), c_uint64(0), c_size_t(0)),
        "cuMemsetD8_v2": (c_uint64(0), ctypes.c_ubyte(0), c_size_t(0)),
        "cuDevicePrimaryCtxReset_v2": (0,),
    }
    with driver.capture(stream):
        assert driver.call(name, *arguments[name]) == 900
        assert driver.capture_status(stream) == 2
    assert driver.violations() == [f"{name.removesuffix('_v2')} while a stream is captured"]


# tensor maps


class Maps:
    """Encodes tensor maps; by default a right one, of a [64, 128] tensor of fp16 in boxes of [64, 64]."""

    def __init__(self, driver: FakeCuda) -> None:
        self.driver = driver
        self.memory = ctypes.create_string_buffer(192)
        self.at = (ctypes.addressof(self.memory) + 63) // 64 * 64

    def encode(
        self,
        *,
        shift: int = 0,
        kind: int = FLOAT16,
        address: int = 4096,
        dims: tuple[int, ...] = (128, 64),
        strides: tuple[int, ...] = (256,),
        box: tuple[int, ...] = (64, 64),
        steps: tuple[int, ...] = (1, 1),
        interleave: int = 0,
        swizzle: int = 3,
        promotion: int = 2,
        fill: int = 0,
        rank: int | None = None,
    ) -> int:
        count = len(dims) if rank is None else rank
        return self.driver.call(
            "cuTensorMapEncodeTiled",
            c_void_p(self.at + shift),
            kind,
            c_uint(count),
            c_void_p(address),
            (c_uint64 * 5)(*dims),
            (c_uint64 * 4)(*strides),
            (c_uint * 5)(*box),
            (c_uint * 5)(*steps),
            *map(c_int, (interleave, swizzle, promotion, fill)),
        )

    def content(self) -> bytes:
        return ctypes.string_at(self.at, 128)


WRONG_MAPS: dict[str, tuple[dict[str, Any], str]] = {
    "place": ({"shift": 32}, "a descriptor aligned to 64"),
    "type": ({"kind": 16}, "a known element type"),
    "rank 0": ({"rank": 0}, "a rank of 1 to 5"),
    "rank 6": ({"rank": 6}, "a rank of 1 to 5"),
    "swizzle": ({"swizzle": 7}, "a known interleave, swizzle"),
    "promotion": ({"promotion": 4}, "a known interleave, swizzle"),
    "fill": ({"fill": 2}, "a known interleave, swizzle"),
    "nan for ints": ({"fill": 1, "kind": UINT8}, "a float type where the fill is NaN"),
    "address": ({"address": 4104}, "an address aligned to 16"),
    "dimension 0": ({"dims": (128, 0)}, "a dimension of 1 to 2^32"),
    "dimension": ({"dims": (128, 2**32 + 1)}, "a dimension of 1 to 2^32"),
    "stride": ({"strides": (264,)}, "strides that are multiples of 16"),
    "large stride": ({"strides": (2**40,)}, "below 2^40"),
    "box": ({"box": (64, 257)}, "a box of 1 to 256"),
    "box 0": ({"box": (64, 0)}, "a box of 1 to 256"),
    "step": ({"steps": (1, 9)}, "an element stride of 1 to 8"),
    "inner bytes": ({"box": (4, 64)}, "an inner box that is a multiple of 16 bytes"),
    "swizzle 128": ({"box": (128, 64)}, "fits the swizzle"),
    "swizzle 64": ({"swizzle": 2}, "fits the swizzle"),
    "swizzle 32": ({"swizzle": 1, "box": (32, 64)}, "fits the swizzle"),
    "padded": ({"kind": U4_ALIGN16B, "box": (64, 64)}, "an inner box of 128"),
    "padded address": ({"kind": U4_ALIGN16B, "box": (128, 64), "address": 4112}, "an address aligned to 32"),
}


@pytest.mark.parametrize("case", WRONG_MAPS)
def test_a_tensor_map_keeps_each_rule_of_cuda(caller: Caller, case: str) -> None:
    facts, words = WRONG_MAPS[case]
    maps = Maps(caller.driver)
    assert maps.encode() == SUCCESS
    assert maps.encode(**facts) == INVALID_VALUE
    (violation,) = caller.driver.violations()
    assert words in violation


def test_right_tensor_maps_say_what_they_were_made_of(caller: Caller) -> None:
    maps = Maps(caller.driver)
    for facts in (
        {"dims": (64,), "strides": (), "box": (256,), "kind": UINT8, "swizzle": 0},
        {"dims": (2**32, 3, 2), "strides": (16, 0), "box": (8, 1, 1), "steps": (0, 8, 1), "swizzle": 1, "fill": 1},
        {"kind": U4_ALIGN16B, "box": (128, 8), "strides": (64,)},
        {"kind": FLOAT32, "box": (32, 1), "swizzle": 6},
    ):
        assert maps.encode(**facts) == SUCCESS, facts  # type: ignore[arg-type] # the values are of many types
    assert maps.encode() == SUCCESS
    assert read_tensor_map(maps.content()) == TensorMap(
        FLOAT16, 4096, (128, 64), (256,), (64, 64), (1, 1), interleave=0, swizzle=3, promotion=2, fill=0
    )
    with pytest.raises(ValueError, match="that the fake driver made"):
        read_tensor_map(bytes(128))


def test_a_tensor_map_needs_a_context_and_a_device_that_has_them(caller: Caller) -> None:
    maps = Maps(caller.driver)
    caller.driver.set_devices(80)
    assert maps.encode() == INVALID_VALUE
    caller.driver.set_devices(90)
    caller.driver.make_current(None)
    assert maps.encode() == INVALID_CONTEXT
    assert [text.split(": ")[-1] for text in caller.driver.violations()] == [
        "expected a device of compute capability 9.0 or later",
        "tensor map made without a context",
    ]


def test_a_launch_is_handed_maps_that_were_made(caller: Caller) -> None:
    maps, sizes = Maps(caller.driver), (128, 4)
    kernel = caller.kernel(CubinSpec("copy", sizes))
    caller.driver.set_devices(90, driver_version=13020)
    assert maps.encode() == SUCCESS
    whole = int.from_bytes(maps.content(), "little")
    assert caller.launch(kernel, (whole, 5), sizes) == SUCCESS
    assert caller.driver.last_launch().tensor_map(0).dims == (128, 64)
    for wrong in (whole ^ 1 << 200, 0):
        assert caller.launch(kernel, (wrong, 5), sizes) == INVALID_VALUE
        assert caller.driver.violations() == ["copy: argument 0 is no tensor map"]


SMALL_BIT = 1 << 64 + 21


@pytest.mark.parametrize(
    ("version", "rows", "right"), [(13010, 512, 0), (13010, 513, SMALL_BIT), (13020, 512, 0), (13020, 513, 0)]
)
def test_an_older_drivers_bit_for_small_tensors_is_mended(caller: Caller, version: int, rows: int, right: int) -> None:
    maps, sizes, driver = Maps(caller.driver), (128, 4), caller.driver
    kernel = caller.kernel(CubinSpec("copy", sizes))
    driver.set_devices(90, driver_version=version)
    assert maps.encode(dims=(128, rows)) == SUCCESS
    made = int.from_bytes(maps.content(), "little")
    assert made & SMALL_BIT == (SMALL_BIT if version < 13020 else 0)
    assert caller.launch(kernel, (made & ~SMALL_BIT | right, 5), sizes) == SUCCESS
    assert caller.launch(kernel, (made & ~SMALL_BIT | right ^ SMALL_BIT, 5), sizes) == INVALID_VALUE
    assert driver.violations() == ["copy: argument 0 is a tensor map with the driver's bit for small tensors wrong"]


# scratch memory


class Scratch:
    """Asks the fake framework for memory through its exchange API."""

    def __init__(self, faketorch: ModuleType) -> None:
        self.api = api_of(faketorch.Tensor)

    def allocate(self, size_bytes: int, device: int = 0) -> Any:
        out, shape = ctypes.POINTER(Managed)(), (ctypes.c_int64 * 1)(size_bytes)
        prototype = Tensor(None, 2, device, 1, 1, 8, 1, shape, None, 0)
        assert self.api.allocate(byref(prototype), byref(out), None, SetError(lambda *_: None)) == 0
        return out


def test_scratch_is_of_the_launchs_stream_and_device_and_not_freed(caller: Caller, faketorch: ModuleType) -> None:
    driver, scratch = caller.driver, Scratch(faketorch)
    stream, kernel = driver.stream(0), caller.kernel()
    faketorch.set_stream(0, stream)
    memory, elsewhere = scratch.allocate(100), scratch.allocate(100, device=1)
    assert faketorch.allocation_streams() == [stream, 0]
    address = memory.contents.tensor.data
    assert caller.launch(kernel, (address + 99, 0, 0, 0), stream=stream) == SUCCESS
    assert driver.violations() == []
    assert caller.launch(kernel, (address, 0, 0, 0)) == SUCCESS
    assert caller.launch(kernel, (0, elsewhere.contents.tensor.data, 0, 0)) == SUCCESS
    assert caller.launch(kernel, (0, 0, 0, address + 100), stream=stream) == SUCCESS
    memory.contents.deleter(memory)
    assert caller.launch(kernel, (address, 0, 0, 0), stream=stream) == SUCCESS
    said = [text.split(" is ")[-1] for text in driver.violations()]
    assert said == [
        "scratch memory of another stream",
        "scratch memory of another device",
        "scratch memory that nobody allocated",
        "scratch memory that was freed",
    ]
    elsewhere.contents.deleter(elsewhere)
