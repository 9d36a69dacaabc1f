"""The fake driver tells right calls from wrong ones: otherwise the tests built on it prove nothing."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import pytest

from tests.fakecuda import FakeCuda, Launch
from tests.fakecuda.caller import ADD, Caller
from tests.support.cubins import CubinSpec, build_cubin, param_offsets
from tests.support.triton_kernels import compile_scale_kernel

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
INVALID_CONTEXT, NO_BINARY, INVALID_HANDLE, NOT_FOUND, ILLEGAL_ADDRESS = 201, 209, 400, 500, 700
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_IMPLICIT, CLUSTER_SIZE = 900, 901, 906, 912
MAX_DYNAMIC_SHARED = 8


@pytest.fixture
def caller(fakecuda: FakeCuda) -> Caller:
    fakecuda.make_current(0)
    return Caller(fakecuda)


def test_a_launch_is_recorded_byte_for_byte(caller: Caller) -> None:
    stream = caller.driver.stream(0)
    assert caller.launch(caller.kernel(), (1 << 40, 2, 3, 4), grid=(5, 6, 7), shared_bytes=64, stream=stream) == SUCCESS
    launch = caller.driver.last_launch()
    assert launch.symbol == "add"
    assert (launch.grid, launch.block, launch.shared_bytes) == ((5, 6, 7), (128, 1, 1), 64)
    assert (launch.stream, launch.device) == (stream, 0)
    assert launch.params == (
        (1 << 40).to_bytes(8, "little"),
        bytes([2, *bytes(7)]),
        bytes([3, 0, 0, 0]),
        b"\4" + bytes(7),
    )
    assert launch.attributes == {}


def test_a_packed_buffer_is_read_like_pointers(caller: Caller) -> None:
    kernel = caller.kernel()
    buffer = (
        (1).to_bytes(8, "little") + (2).to_bytes(8, "little") + (3).to_bytes(8, "little") + (4).to_bytes(8, "little")
    )

    def launch(size: int) -> int:
        extra = (c_void_p * 5)(
            1, ctypes.cast(c_char_p(buffer), c_void_p), 2, ctypes.addressof(length := c_size_t(size))
        )
        assert length.value == size
        numbers = map(c_uint, (1, 1, 1, 128, 1, 1, 0))
        return caller.driver.call("cuLaunchKernel", kernel, *numbers, None, None, extra)

    assert launch(32) == SUCCESS
    assert caller.driver.last_launch().ints() == (1, 2, 3, 4)
    assert launch(28) == INVALID_VALUE
    assert "a buffer of 28 bytes, image needs 32" in caller.driver.violations()[0]


WRONG_LAUNCHES: dict[str, tuple[dict[str, Any], str]] = {
    "zero grid": ({"grid": (0, 1, 1)}, "grid 0 x 1 x 1"),
    "grid x": ({"grid": (1 << 31, 1, 1)}, "grid 2147483648"),
    "grid y": ({"grid": (1, 65536, 1)}, "grid 1 x 65536"),
    "grid z": ({"grid": (1, 1, 65536)}, "x 65536"),
    "fewer warps": ({"block": (96, 1, 1)}, "image needs 128 x 1 x 1"),
    "empty block": ({"block": (0, 1, 1)}, "block of 0 threads"),
    "shared past 48 KiB": ({"shared_bytes": 49153}, "the limit is 49152"),
    "too few arguments": ({"values": (1, 2, 3), "sizes": (8, 8, 4)}, "argument 3 is a null pointer"),
}


@pytest.mark.parametrize("case", WRONG_LAUNCHES)
def test_a_wrong_launch_is_refused_and_noted(caller: Caller, case: str) -> None:
    facts, words = WRONG_LAUNCHES[case]
    assert caller.launch(caller.kernel(), **facts) == INVALID_VALUE
    (violation,) = caller.driver.violations()
    assert words in violation
    assert caller.driver.launch_count() == 0


def test_shared_memory_rises_only_by_attribute_and_device(caller: Caller) -> None:
    kernel, driver = caller.kernel(), caller.driver

    def set_attribute(value: int, device: int) -> int:
        return driver.call("cuKernelSetAttribute", MAX_DYNAMIC_SHARED, value, kernel, device)

    assert set_attribute(232449, 0) == INVALID_VALUE
    assert set_attribute(232448, 1) == SUCCESS
    assert caller.launch(kernel, shared_bytes=100_000) == INVALID_VALUE
    assert set_attribute(100_000, 0) == SUCCESS
    assert caller.launch(kernel, shared_bytes=100_000) == SUCCESS
    assert caller.launch(kernel, shared_bytes=100_001) == INVALID_VALUE
    assert len(driver.violations()) == 2


def test_context_decides_where_a_launch_goes(caller: Caller) -> None:
    kernel, driver = caller.kernel(), caller.driver
    driver.make_current(1)
    assert caller.launch(kernel) == SUCCESS
    assert driver.last_launch().device == 1
    assert caller.launch(kernel, stream=driver.stream(0)) == INVALID_HANDLE
    assert caller.launch(kernel, stream=0xDEAD0) == INVALID_HANDLE
    driver.make_current(None)
    assert caller.launch(kernel) == INVALID_CONTEXT


def test_context_stack_pushes_and_pops(caller: Caller) -> None:
    driver, context, popped = caller.driver, c_void_p(), c_void_p()
    assert driver.call("cuDevicePrimaryCtxRetain", byref(context), 1) == SUCCESS
    assert driver.call("cuCtxPushCurrent_v2", context) == SUCCESS
    assert driver.context() == (2, 1)
    assert driver.call("cuCtxPopCurrent_v2", byref(popped)) == SUCCESS
    assert popped.value == context.value
    assert driver.context() == (1, 0)
    seen: list[tuple[int, int | None]] = []
    thread = threading.Thread(target=lambda: seen.append(driver.context()))
    thread.start()
    thread.join()
    assert seen == [(0, None)], "another thread has its own stack"
    driver.reset()
    assert driver.context() == (0, None)
    assert driver.call("cuCtxPopCurrent_v2", None) == INVALID_CONTEXT
    assert driver.violations() == ["context popped off an empty stack"]


def test_functions_die_with_a_context_reset_and_kernels_do_not(caller: Caller) -> None:
    kernel, function = caller.kernel(), c_void_p()
    assert caller.driver.call("cuKernelGetFunction", byref(function), kernel) == SUCCESS
    assert caller.launch(function) == SUCCESS
    caller.driver.make_current(1)
    assert caller.launch(function) == INVALID_HANDLE
    caller.driver.make_current(0)
    assert caller.driver.call("cuDevicePrimaryCtxReset_v2", 0) == SUCCESS
    assert caller.launch(function) == INVALID_HANDLE
    assert caller.launch(kernel) == SUCCESS


@pytest.mark.parametrize(
    ("device", "image", "code"),
    [
        (90, (90, "a", 8), SUCCESS),
        (90, (90, "a", 7), SUCCESS),
        (89, (80, "", 7), SUCCESS),
        (90, (80, "", 7), NO_BINARY),
        (80, (86, "", 7), NO_BINARY),
        (103, (100, "", 8), SUCCESS),
        (103, (100, "a", 8), NO_BINARY),
        (90, (100, "a", 8), NO_BINARY),
    ],
)
def test_an_image_loads_where_its_arch_runs(
    fakecuda: FakeCuda, device: int, image: tuple[int, str, int], code: int
) -> None:
    sm, suffix, abi = image
    fakecuda.set_devices(device)
    fakecuda.make_current(0)
    assert Caller(fakecuda).load_code(build_cubin(ADD, sm=sm, suffix=suffix, abi=abi)) == code


def test_garbage_is_no_image(caller: Caller) -> None:
    assert caller.load_code(b"not a cubin" * 10) == 200
    assert caller.load_code(b"\x7fELF" + bytes(100)) == 200


def test_kernels_and_params_are_those_of_the_image(caller: Caller) -> None:
    sizes = (8, 4, 2, 1, 8, 128, 4)
    library = caller.load(build_cubin(CubinSpec("one"), CubinSpec("two", sizes)))
    kernel, offset, size = c_void_p(), c_size_t(), c_size_t()
    assert caller.driver.call("cuLibraryGetKernel", byref(kernel), library, b"three") == NOT_FOUND
    assert caller.driver.call("cuLibraryGetKernel", byref(kernel), library, b"two") == SUCCESS
    seen = []
    for index in range(len(sizes)):
        assert (
            caller.driver.call("cuKernelGetParamInfo", kernel, c_size_t(index), byref(offset), byref(size)) == SUCCESS
        )
        seen.append((offset.value, size.value))
    assert seen == list(zip(param_offsets(sizes), sizes, strict=True))
    assert param_offsets(sizes) == [0, 8, 12, 14, 16, 48, 176]
    beyond = c_size_t(len(sizes))
    assert caller.driver.call("cuKernelGetParamInfo", kernel, beyond, byref(offset), byref(size)) == INVALID_VALUE


def test_use_after_unload_is_noted(caller: Caller) -> None:
    library, kernel = caller.load(build_cubin(ADD)), c_void_p()
    loaded = caller.driver.libraries()
    assert caller.driver.call("cuLibraryGetKernel", byref(kernel), library, b"add") == SUCCESS
    assert caller.driver.call("cuLibraryUnload", library) == SUCCESS
    assert caller.driver.libraries() == loaded - 1
    assert caller.launch(kernel) == INVALID_HANDLE
    assert caller.driver.call("cuLibraryUnload", library) == INVALID_HANDLE
    assert caller.driver.violations() == ["launch after the library was unloaded", "library unloaded twice"]


def test_clusters_must_fit_image_grid_and_limit(caller: Caller) -> None:
    clustered = caller.kernel(CubinSpec("add", ADD.sizes, num_ctas=2))
    assert caller.launch_ex(clustered, {4: (2, 1, 1), 5: (1,), 6: (1,)}) == SUCCESS
    launch = caller.driver.last_launch()
    assert launch.cluster == (2, 1, 1)
    assert launch.pdl
    assert not launch.cooperative
    assert caller.launch_ex(clustered, {}, grid=(3, 1, 1)) == CLUSTER_SIZE
    assert caller.launch_ex(clustered, {4: (4, 1, 1)}, grid=(4, 1, 1)) == CLUSTER_SIZE
    sixteen = caller.kernel(CubinSpec("add", ADD.sizes, num_ctas=16))
    assert caller.launch_ex(sixteen, {}, grid=(16, 1, 1)) == CLUSTER_SIZE
    assert caller.driver.call("cuKernelSetAttribute", 14, 1, sixteen, 0) == SUCCESS
    assert caller.launch_ex(sixteen, {}, grid=(16, 1, 1)) == SUCCESS
    assert len(caller.driver.violations()) == 3


def test_cooperative_grids_must_be_resident(caller: Caller) -> None:
    kernel = caller.kernel()
    assert caller.launch_ex(kernel, {2: (1,)}, grid=(132 * 16, 1, 1)) == SUCCESS
    assert caller.driver.last_launch().cooperative
    assert caller.launch_ex(kernel, {2: (1,)}, grid=(132 * 16 + 1, 1, 1)) == 720


def test_failures_come_when_scripted(caller: Caller) -> None:
    driver, count = caller.driver, c_int()
    driver.fail("cuDeviceGetCount", OUT_OF_MEMORY, call=1)
    assert [driver.call("cuDeviceGetCount", byref(count)) for _ in range(3)] == [SUCCESS, OUT_OF_MEMORY, SUCCESS]
    driver.fail("cuDeviceGetCount", 999)
    assert [driver.call("cuDeviceGetCount", byref(count)) for _ in range(2)] == [999, 999]
    assert driver.calls("cuDeviceGetCount") == 5
    assert driver.log()[-1] == ("cuDeviceGetCount", 999)
    driver.reset()
    assert driver.call("cuDeviceGetCount", byref(count)) == SUCCESS
    assert driver.calls("cuDeviceGetCount") == 1
    with pytest.raises(AssertionError, match="has no cuFoo"):
        driver.fail("cuFoo", 1)


def test_sticky_errors_stick(caller: Caller) -> None:
    kernel, count = caller.kernel(), c_int()
    caller.driver.fail("cuLaunchKernel", ILLEGAL_ADDRESS, call=0)
    assert caller.launch(kernel) == ILLEGAL_ADDRESS
    assert caller.launch(kernel) == ILLEGAL_ADDRESS
    assert caller.driver.call("cuDeviceGetCount", byref(count)) == ILLEGAL_ADDRESS


def test_nothing_is_allocated_freed_or_unloaded_in_a_capture(caller: Caller) -> None:
    driver, kernel, address = caller.driver, caller.kernel(), c_uint64()
    library, stream = caller.load(build_cubin(ADD)), driver.stream(0)
    calls: dict[str, Callable[[], int]] = {
        "cuMemAlloc": lambda: driver.call("cuMemAlloc_v2", byref(address), c_size_t(64)),
        "cuMemFree": lambda: driver.call("cuMemFree_v2", c_uint64(0)),
        "cuMemAllocAsync": lambda: driver.call("cuMemAllocAsync", byref(address), c_size_t(64), c_void_p(stream)),
        "cuLibraryUnload": lambda: driver.call("cuLibraryUnload", library),
        "cuCtxSynchronize": lambda: driver.call("cuCtxSynchronize"),
    }
    for name, call in calls.items():
        with driver.capture(stream):
            assert caller.launch(kernel, stream=stream) == SUCCESS
            assert call() == CAPTURE_UNSUPPORTED
            assert driver.capture_status(stream) == 2
            assert caller.launch(kernel, stream=stream) == CAPTURE_INVALIDATED
        assert driver.violations() == [f"{name} while a stream is captured"]


def test_loading_in_a_capture_needs_a_recent_driver(caller: Caller) -> None:
    stream = caller.driver.stream(0)
    with caller.driver.capture(stream):
        caller.load(build_cubin(ADD))
        assert caller.driver.capture_status(stream) == 1
    caller.driver.set_devices(90, driver_version=12020)
    with caller.driver.capture(stream):
        assert caller.load_code(build_cubin(ADD)) == CAPTURE_UNSUPPORTED
    assert len(caller.driver.violations()) == 1


def test_the_legacy_stream_breaks_the_capture_of_a_blocking_one(caller: Caller) -> None:
    kernel = caller.kernel()
    with caller.driver.capture(caller.driver.stream(0, non_blocking=False)):
        assert caller.launch(kernel) == CAPTURE_IMPLICIT
    assert caller.driver.violations()
    with caller.driver.capture(caller.driver.stream(0)):
        assert caller.launch(kernel) == SUCCESS


def test_memory_has_content_bounds_and_a_device(caller: Caller) -> None:
    driver, address, ordinal = caller.driver, c_uint64(), c_int()
    live = driver.allocations()
    assert driver.call("cuMemAlloc_v2", byref(address), c_size_t(16)) == SUCCESS
    inner = c_uint64(address.value + 8)
    assert driver.call("cuMemcpyHtoD_v2", inner, b"abcdefgh", c_size_t(8)) == SUCCESS
    assert driver.call("cuMemcpyHtoD_v2", inner, b"abcdefghi", c_size_t(9)) == INVALID_VALUE
    back = ctypes.create_string_buffer(16)
    assert driver.call("cuMemcpyDtoH_v2", back, address, c_size_t(16)) == SUCCESS
    assert back.raw == bytes(8) + b"abcdefgh"
    assert driver.call("cuPointerGetAttribute", byref(ordinal), 9, inner) == SUCCESS
    assert ordinal.value == 0
    assert driver.call("cuPointerGetAttribute", byref(ordinal), 9, c_uint64(address.value + 16)) == INVALID_VALUE
    assert driver.call("cuMemFree_v2", address) == SUCCESS
    assert driver.call("cuMemFree_v2", address) == INVALID_VALUE
    assert "not allocated" in driver.violations()[0]
    assert driver.allocations() == live


def test_old_entry_points_are_traps(caller: Caller) -> None:
    assert caller.driver.call("cuMemAlloc") == 801
    assert caller.driver.violations() == ["cuMemAlloc is of an old ABI: resolve its _v2"]


def test_entry_points_are_found_by_name(caller: Caller) -> None:
    found, status = c_void_p(), c_int()

    def look_up(name: bytes) -> int:
        tail = (byref(found), 13000, c_uint64(0), byref(status))
        return caller.driver.call("cuGetProcAddress_v2", name, *tail)

    assert look_up(b"cuMemAlloc") == SUCCESS
    assert found.value == ctypes.cast(caller.driver.library.cuMemAlloc_v2, c_void_p).value
    assert look_up(b"cuMem") == NOT_FOUND


def test_errors_have_names(caller: Caller) -> None:
    name = c_char_p()
    assert caller.driver.call("cuGetErrorName", 209, byref(name)) == SUCCESS
    assert name.value == b"CUDA_ERROR_NO_BINARY_FOR_GPU"
    assert caller.driver.call("cuGetErrorName", 12345, byref(name)) == INVALID_VALUE


def test_held_calls_wait_for_their_release(caller: Caller) -> None:
    image, codes = build_cubin(ADD), list[int]()
    threads = [threading.Thread(target=lambda: codes.append(caller.load_code(image))) for _ in range(3)]
    with caller.driver.hold("cuLibraryLoadData") as held:
        for thread in threads:
            thread.start()
        held.wait(3)
        assert codes == []
    for thread in threads:
        thread.join()
    assert codes == [SUCCESS] * 3


def test_many_threads_lose_no_launch(caller: Caller) -> None:
    kernel, driver = caller.kernel(), caller.driver
    driver.delay("cuLaunchKernel", 3)

    def work() -> None:
        driver.make_current(0)
        for _ in range(50):
            assert caller.launch(kernel) == SUCCESS

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert driver.launch_count() == driver.calls("cuLaunchKernel") == 400
    assert len(driver.launches()) == 256


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_driver(caller: Caller) -> None:
    kernel = caller.kernel()
    child = os.fork()
    if child == 0:
        codes = (caller.launch(kernel), caller.driver.call("cuInit", 0), caller.driver.call("cuCtxSynchronize"))
        os._exit(0 if codes == (NOT_INITIALIZED,) * 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert caller.launch(kernel) == SUCCESS


SUBPROCESS = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
count, version, major = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
assert driver.cuDeviceGetCount(ctypes.byref(count)) == 3, "before cuInit"
assert [driver.cuInit(0), driver.cuInit(0)] == [100, 0]
driver.cuDeviceGetCount(ctypes.byref(count))
driver.cuDriverGetVersion(ctypes.byref(version))
driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 2)
print(count.value, version.value, major.value)
"""


def test_a_subprocess_is_scripted_by_its_environment(fakecuda: FakeCuda) -> None:
    environment = fakecuda.environment(80, 90, 100, driver_version=12040, fail=(("cuInit", 0, 100),))
    done = subprocess.run(
        [sys.executable, "-c", SUBPROCESS], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3", "12040", "10"]


@pytest.mark.triton
@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_images_of_triton_are_read_right(fakecuda: FakeCuda, arch: int) -> None:
    pytest.importorskip("triton")
    fakecuda.set_devices(arch)
    fakecuda.make_current(0)
    caller, kernel = Caller(fakecuda), c_void_p()
    library = caller.load(compile_scale_kernel(arch, num_warps=2))
    assert fakecuda.call("cuLibraryGetKernel", byref(kernel), library, b"scale_kernel") == SUCCESS
    values, sizes = (16, 32, 7, 0x40000000, 0, 0), (8, 8, 4, 4, 8, 8)
    assert caller.launch(kernel, values, sizes, block=(64, 1, 1)) == SUCCESS
    assert fakecuda.last_launch().ints() == values
    assert caller.launch(kernel, values, sizes, block=(128, 1, 1)) == INVALID_VALUE
    assert "image needs 64 x 1 x 1" in fakecuda.violations()[0]


def test_tensor_maps_keep_the_rules_of_cuda(caller: Caller) -> None:
    memory = ctypes.create_string_buffer(192)
    aligned = (ctypes.addressof(memory) + 63) // 64 * 64

    def encode(*, at: int = aligned, address: int = 4096, stride: int = 256, box: tuple[int, int] = (64, 64)) -> int:
        dims, strides = (c_uint64 * 2)(128, 64), (c_uint64 * 1)(stride)
        boxes, steps = (c_uint * 2)(*box), (c_uint * 2)(1, 1)
        tail = (c_int(0), c_int(3), c_int(2), c_int(0))
        head = (c_void_p(at), 6, c_uint(2), c_void_p(address), dims, strides)
        return caller.driver.call("cuTensorMapEncodeTiled", *head, boxes, steps, *tail)

    assert encode() == SUCCESS
    for wrong in ({"at": aligned + 16}, {"address": 4104}, {"stride": 24}, {"box": (64, 257)}, {"box": (128, 64)}):
        assert encode(**wrong) == INVALID_VALUE
        assert caller.driver.violations()


def test_launches_are_forgotten_by_reset(caller: Caller) -> None:
    assert caller.launch(caller.kernel()) == SUCCESS
    assert [type(launch) for launch in caller.driver.launches()] == [Launch]
    caller.driver.reset()
    assert caller.driver.launches() == []
