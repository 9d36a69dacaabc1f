"""What a real driver does when things go wrong, each in a process of its own, since some of them end the process's CUDA."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

START = """
import ctypes, os, sys, time
from nojit import runtime

bundle = runtime.load(sys.argv[1])
copy = bundle.kernel("copy")
cuda = ctypes.CDLL("libcuda.so.1")


class Memory:
    dtype = "float32"
    device = "cuda:0"

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


def check(code):
    assert code == 0, code


def start():
    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))


def allocate(value):
    address = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)))
    check(cuda.cuMemsetD32_v2(address, value, ctypes.c_size_t(1024)))
    return Memory(address.value)


def first(memory):
    value = ctypes.c_uint32()
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(value), ctypes.c_uint64(memory.address), ctypes.c_size_t(4)))
    return value.value


def launch(x, out):
    copy[(1,)](x, out, 1024, BLOCK=1024)
"""


@pytest.fixture
def run(launch_bundle: Path):
    def run_script(body: str) -> str:
        code = START + textwrap.dedent(body)
        done = subprocess.run(
            [sys.executable, "-c", code, str(launch_bundle)], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run_script


def test_a_kernel_that_writes_nowhere_ends_the_process_s_cuda_and_is_named(run) -> None:
    said = run(
        """
        start()
        x, out = allocate(7), allocate(0)
        launch(x, out)
        assert first(out) == 7 and runtime.healthy()
        launch(x, Memory(0x10))
        deadline = time.monotonic() + 30
        while runtime.healthy():
            assert time.monotonic() < deadline
        try:
            launch(x, out)
        except runtime.DriverError as error:
            print(error.code, error)
        """
    )
    assert said.startswith("700 ")
    assert "the process must be restarted; last launch: copy-" in said


def test_a_fork_is_told_to_spawn(run) -> None:
    said = run(
        """
        start()
        x, out = allocate(7), allocate(0)
        launch(x, out)
        if os.fork() == 0:
            try:
                launch(x, out)
            except runtime.DriverError as error:
                print(error, flush=True)
            print(runtime.healthy(), flush=True)
            os._exit(0)
        assert os.wait()[1] == 0
        launch(x, out)
        assert first(out) == 7
        """
    )
    assert "CUDA was initialised before fork" in said
    assert said.rstrip().endswith("False")


def test_a_reset_of_the_device_is_survived(run) -> None:
    run(
        """
        start()
        launch(allocate(7), allocate(0))
        check(cuda.cuCtxSynchronize())
        check(cuda.cuDevicePrimaryCtxReset_v2(0))
        start()
        x, out = allocate(9), allocate(0)
        bundle.kernel("arguments_1")[(1,)](out)
        assert first(out) == 0x42280000, "what is used first after a reset is loaded, and stores 42.0"
        launch(x, out)
        assert first(out) == 9
        """
    )


def test_no_context_of_the_caller_s_is_needed(run) -> None:
    run(
        """
        start()
        x, out = allocate(5), allocate(0)
        check(cuda.cuCtxSetCurrent(None))
        launch(x, out)
        context = ctypes.c_void_p()
        check(cuda.cuCtxGetCurrent(ctypes.byref(context)))
        assert context.value is None, "the caller's context was left as it was"
        start()
        assert first(out) == 5
        """
    )


def test_asking_for_health_leaves_a_capture_alone(run) -> None:
    run(
        """
        import torch
        x, out = torch.full((1024,), 3.0, device="cuda"), torch.zeros(1024, device="cuda")
        launch(x, out)
        out.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(x, out)
            assert runtime.healthy()
            launch(x, out)
        graph.replay()
        torch.cuda.synchronize()
        assert (out == 3).all()
        """
    )
