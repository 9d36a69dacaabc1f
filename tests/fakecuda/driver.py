"""Script the fake driver and read back what it saw, through the control functions that its library exports."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fakecuda.tensormap import TensorMap, read_tensor_map

__all__ = ["CallsHeld", "FakeCuda", "Launch"]

DEFAULT_DRIVER_VERSION = 13000
COOPERATIVE, CLUSTER_DIMENSION, CLUSTER_SCHEDULING, PDL = 2, 4, 5, 6


class _Attr(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_ubyte * 64))


class _Record(ctypes.Structure):
    """``struct fake_launch_record`` of state.h."""

    _fields_ = (
        ("symbol", ctypes.c_char * 256),
        ("kernel", ctypes.c_void_p),
        ("stream", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("carveout", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("params", ctypes.c_uint32),
        ("param_bytes", ctypes.c_uint32),
        ("offsets", ctypes.c_uint16 * 512),
        ("sizes", ctypes.c_uint16 * 512),
        ("bytes", ctypes.c_ubyte * 4096),
        ("attrs", ctypes.c_uint32),
        ("attr", _Attr * 8),
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch that the fake accepted."""

    symbol: str
    kernel: int
    """The CUkernel, which tells variants of one symbol apart."""
    stream: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    carveout: int
    """Percent of the L1 cache that the function was set to take as shared memory; -1 leaves it to the driver."""
    device: int
    params: tuple[bytes, ...]
    """The bytes of each argument, as many as the image's param has."""
    attributes: dict[int, bytes]
    """Launch attributes by CUlaunchAttributeID, 64 bytes each."""

    @property
    def cluster(self) -> tuple[int, int, int] | None:
        """The cluster dimensions asked for."""
        value = self.attributes.get(CLUSTER_DIMENSION)
        return None if value is None else (_u32(value, 0), _u32(value, 1), _u32(value, 2))

    @property
    def cooperative(self) -> bool:
        return bool(_u32(self.attributes.get(COOPERATIVE, bytes(4)), 0))

    @property
    def pdl(self) -> bool:
        """Whether programmatic stream serialization was asked for."""
        return bool(_u32(self.attributes.get(PDL, bytes(4)), 0))

    def ints(self) -> tuple[int, ...]:
        """The arguments as unsigned little-endian integers."""
        return tuple(int.from_bytes(value, "little") for value in self.params)

    def tensor_map(self, argument: int) -> TensorMap:
        """What a tensor map among the arguments was made of."""
        return read_tensor_map(self.params[argument])


def _u32(value: bytes, index: int) -> int:
    return int.from_bytes(value[4 * index : 4 * index + 4], "little")


class CallsHeld:
    """Calls of one function wait in the fake while this is open; see `FakeCuda.hold`."""

    def __init__(self, driver: FakeCuda, function: str) -> None:
        self._driver = driver
        self._function = function

    def wait(self, threads: int = 1) -> None:
        """Block until so many threads stand in the function."""
        reached = self._driver.library.fake_await(self._function.encode(), threads)
        assert reached >= threads, f"{reached} of {threads} threads came to {self._function}"


class FakeCuda:
    """The fake ``libcuda.so.1``, in this process.

    The library keeps one state, however often it is opened: the runtime under test and this object see the same.
    Handles (contexts, libraries, kernels, streams) outlive `reset`, since the runtime may hold them.

    Args:
        path: what `build.build_driver` built.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.fake_calls.restype = ctypes.c_int64
        self.library.fake_launches.restype = ctypes.c_uint64
        self.library.fake_logged.restype = ctypes.c_uint64
        self.library.fake_log_entry.restype = ctypes.c_char_p
        self.library.fake_stream_create.restype = ctypes.c_void_p

    @property
    def folder(self) -> Path:
        """The folder to put on ``LD_LIBRARY_PATH``."""
        return self.path.parent

    def call(self, function: str, *arguments: object) -> int:
        """Call a driver function directly and return its code."""
        return int(getattr(self.library, function)(*arguments))

    def fail(self, function: str, code: int, *, call: int | None = None) -> None:
        """Make calls of `function` return `code`: the next one for ``call=0``, the one after for 1, all for None.

        ``*`` stands for all functions together: ``call=3`` is the fourth driver call from here, whichever it is. The sticky codes (700, 702, 710, 714 to 719) make every later call fail too, as on a device.
        """
        known = self.library.fake_fail(function.encode(), ctypes.c_int64(-1 if call is None else call), code)
        assert known >= 0, f"the fake has no {function}"

    def calls(self, function: str) -> int:
        """Count the calls of `function`, or of all for ``*``, since the last `reset`."""
        count = int(self.library.fake_calls(function.encode()))
        assert count >= 0, f"the fake has no {function}"
        return count

    def log(self) -> list[tuple[str, int]]:
        """Return each call and the code it gave, oldest first; the last 4096 at most."""
        end = int(self.library.fake_logged())
        code = ctypes.c_int32()
        entries = []
        for index in range(max(0, end - 4096), end):
            name = self.library.fake_log_entry(ctypes.c_uint64(index), ctypes.byref(code))
            if name is not None:
                entries.append((name.decode(), code.value))
        return entries

    def launches(self) -> list[Launch]:
        """Return the launches since the last `reset`, oldest first; the last 256 at most."""
        count = self.launch_count()
        return [self._launch(index) for index in range(max(0, count - 256), count)]

    def launch_count(self) -> int:
        """Count the launches since the last `reset`."""
        return int(self.library.fake_launches())

    def last_launch(self) -> Launch:
        """Return the newest launch."""
        count = self.launch_count()
        assert count, "nothing was launched"
        return self._launch(count - 1)

    def _launch(self, index: int) -> Launch:
        record = _Record()
        assert self.library.fake_launch(ctypes.c_uint64(index), ctypes.byref(record))
        content = bytes(record.bytes)
        spans = zip(record.offsets[: record.params], record.sizes[: record.params], strict=True)
        return Launch(
            symbol=record.symbol.decode(),
            kernel=record.kernel,
            stream=record.stream,
            grid=(record.grid[0], record.grid[1], record.grid[2]),
            block=(record.block[0], record.block[1], record.block[2]),
            shared_bytes=record.shared_bytes,
            carveout=record.carveout,
            device=record.device,
            params=tuple(content[start : start + size] for start, size in spans),
            attributes={attr.id: bytes(attr.value) for attr in record.attr[: record.attrs]},
        )

    def violations(self) -> list[str]:
        """Return, and forget, what a right caller never does. Those left at a test's end fail it."""
        buffer = ctypes.create_string_buffer(1 << 16)
        self.library.fake_take_violations(buffer, ctypes.c_size_t(len(buffer)))
        return buffer.value.decode().splitlines()

    def reset(self) -> None:
        """Forget scripts, counts, launches, captures, pinned memory and every thread's current context; two sm_90 devices."""
        self.library.fake_reset()
        self.library.fake_unpin_memory()
        self.set_devices(90, 90)

    def set_devices(self, *capabilities: int, driver_version: int = DEFAULT_DRIVER_VERSION) -> None:
        """Have one device per compute capability (90 for 9.0), and a driver of that CUDA version."""
        array = (ctypes.c_uint * len(capabilities))(*capabilities)
        self.library.fake_set_devices(len(capabilities), array, driver_version)

    def set_size(self, device: int, multiprocessors: int, memory_bytes: int) -> None:
        """Say how large a device is, until the devices are set anew: else 132 multiprocessors and 140 GiB."""
        self.library.fake_set_size(device, multiprocessors, ctypes.c_size_t(memory_bytes))

    def delay(self, function: str, turns: int) -> None:
        """Let each call of `function` first yield the processor up to `turns` times, at random."""
        assert self.library.fake_delay(function.encode(), turns) >= 0, f"the fake has no {function}"

    @contextlib.contextmanager
    def hold(self, function: str) -> Iterator[CallsHeld]:
        """Make calls of `function` wait inside the fake until the block ends."""
        assert self.library.fake_hold(function.encode(), 1) >= 0, f"the fake has no {function}"
        try:
            yield CallsHeld(self, function)
        finally:
            self.library.fake_hold(function.encode(), 0)

    def stream(self, device: int = 0, *, non_blocking: bool = True) -> int:
        """Make a stream of `device`, as a framework would have done; return its handle."""
        return int(self.library.fake_stream_create(device, int(non_blocking)))

    @contextlib.contextmanager
    def capture(self, stream: int) -> Iterator[None]:
        """Capture `stream` into a graph; calls that no capture survives are violations."""
        assert self.library.fake_stream_capture(ctypes.c_void_p(stream), 1) == 0
        try:
            yield
        finally:
            self.library.fake_stream_capture(ctypes.c_void_p(stream), 0)

    def capture_status(self, stream: int) -> int:
        """Return 0 for none, 1 for active, 2 for invalidated."""
        return int(self.library.fake_stream_status(ctypes.c_void_p(stream)))

    def add_memory(self, address: int, size_bytes: int, device: int = 0) -> None:
        """Make the driver know memory at `address`."""
        self.library.fake_add_memory(ctypes.c_uint64(address), ctypes.c_size_t(size_bytes), device)

    def lose_context(self, device: int = 0, code: int = 709) -> None:
        """Destroy the primary context, as another library's reset does: calls in it give `code` until it is retained again.

        What was raised for its kernels (shared memory, cluster size) is forgotten; libraries and kernels stay good.
        """
        self.library.fake_lose_context(device, code)

    def pin_memory(self, address: int, size_bytes: int, view: int) -> None:
        """Make the driver know pinned host memory at `address`, which every device reaches at `view`, until `reset`."""
        self.library.fake_pin_memory(ctypes.c_uint64(address), ctypes.c_size_t(size_bytes), ctypes.c_uint64(view))

    def watch_memory(self, function: int) -> None:
        """Have each launch ask ``faketorch.watch()`` about the addresses that it is handed; 0 ends it."""
        self.library.fake_watch_memory(ctypes.c_void_p(function))

    def make_current(self, device: int | None) -> None:
        """Set this thread's current context to `device`'s primary one, or to none, as an application would."""
        context = ctypes.c_void_p()
        if device is not None:
            assert self.call("cuInit", 0) == 0
            assert self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device) == 0
        assert self.call("cuCtxSetCurrent", context) == 0

    def context(self) -> tuple[int, int | None]:
        """Return the depth of this thread's context stack, and the device on top of it."""
        device = ctypes.c_int()
        depth = int(self.library.fake_context_depth(ctypes.byref(device)))
        return depth, None if device.value < 0 else device.value

    def contexts_retained(self, device: int) -> int:
        """Count the references to the primary context of `device`."""
        return int(self.library.fake_context_retained(device))

    def libraries(self) -> int:
        """Count the libraries loaded and not unloaded, over the whole process."""
        return int(self.library.fake_live_libraries())

    def allocations(self) -> int:
        """Count the live allocations, over the whole process."""
        return int(self.library.fake_live_blocks())

    def environment(
        self,
        *capabilities: int,
        driver_version: int = DEFAULT_DRIVER_VERSION,
        fail: tuple[tuple[str, int, int], ...] = (),
    ) -> dict[str, str]:
        """Make the environment of a subprocess that finds the fake instead of a driver.

        Args:
            capabilities: one for each device.
            driver_version: what ``cuDriverGetVersion`` says.
            fail: of (function, call number or -1, code).
        """
        return os.environ | {
            "NOJIT_LIBCUDA": str(self.path),
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKECUDA_DEVICES": ",".join(map(str, capabilities or (90, 90))),
            "FAKECUDA_DRIVER": str(driver_version),
            "FAKECUDA_FAIL": ";".join(f"{function}:{call}:{code}" for function, call, code in fail),
        }
