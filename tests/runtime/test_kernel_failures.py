"""A driver that fails, breaks, is reset, forked or missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.errors import (
    DriverError,
)

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import VECTOR_ADD, Make
from tests.support.bundles import kernel, make_bundle

# failures of the driver


def test_a_failed_launch_names_the_variant(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    message = (
        r"cuLaunchKernel failed, got CUDA_ERROR_INVALID_VALUE \(1\) - at add-[0-9a-f]{12} \(dtype='fp16' BLOCK=1024"
    )
    with pytest.raises(DriverError, match=message):
        add[(1,)](tensor(0x1000), tensor(0x2000), 16)
    add[(1,)](tensor(0x1000), tensor(0x2000), 16)
    assert fakecuda.launch_count() == 1


def test_a_reset_of_the_device_costs_one_retry(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32"}, launch={"shared_bytes": 60_000})
    add[(1,)](1)
    for function in ("cuLaunchKernel", "cuCtxPushCurrent_v2"):
        retained = fakecuda.calls("cuDevicePrimaryCtxRetain")
        fakecuda.fail(function, 709, call=0)
        add[(1,)](2)
        assert fakecuda.last_launch().ints()[0] == 2
        assert fakecuda.calls("cuDevicePrimaryCtxRetain") == retained + 1
    assert fakecuda.calls("cuKernelSetAttribute") == 6, "the new context has to be told again"
    fakecuda.fail("cuLaunchKernel", 709)
    with pytest.raises(DriverError, match="CUDA_ERROR_CONTEXT_IS_DESTROYED"):
        add[(1,)](3)


SCRIPT_START = """
import os, sys
sys.path.insert(0, {root!r})
from nojit import runtime
from nojit.runtime.errors import DriverError
from tests.support.tensors import PointerTensor
add = runtime.load({path!r}).kernel("add")
x, y = PointerTensor(0x1000), PointerTensor(0x2000)
"""


def run_script(body: str, path: Path, environment: dict[str, str]) -> str:
    script = SCRIPT_START.format(root=str(Path(__file__).parents[2]), path=str(path)) + body
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def add_path(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "add.nojit", kernel("add", **VECTOR_ADD))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another interpreter"])
def test_a_second_import_is_refused_and_kernels_go_on(fakecuda: FakeCuda, add_path: Path, elsewhere: bool) -> None:
    again = """
modules = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("nojit")}
try:
    import nojit.runtime._core
except ImportError as error:
    print(f"ImportError: {error}")
sys.modules.update(modules)
"""
    if elsewhere:
        pytest.importorskip("_xxsubinterpreters", reason="this Python calls it otherwise")
        again = """
import _xxsubinterpreters as interpreters
try:
    interpreters.run_string(interpreters.create(), f"import sys; sys.path[:0] = {sys.path}; import nojit.runtime._core")
except interpreters.RunFailedError as error:
    print(str(error).replace("<class 'ImportError'>", "ImportError"))
"""
    launching = "add[(1,)](x, y, 5)\nadd[(1,)](PointerTensor(0x1000, 'fp32'), PointerTensor(0x2000, 'fp32'), 16)\n"
    line = run_script(f"add[(1,)](x, y, 5)\n{again}\n{launching}", add_path, fakecuda.environment(90))
    assert line.startswith("ImportError: ")
    # from Python 3.12 on an interpreter by itself says so
    assert "to be imported once in a process" in line or "does not support loading in subinterpreters" in line


@pytest.mark.parametrize("code", [700, 702, 710, *range(714, 720)])
def test_a_broken_context_says_that_the_process_must_restart(fakecuda: FakeCuda, add_path: Path, code: int) -> None:
    body = """
assert runtime.healthy()
add[(3, 2)](x, y, 5)
for _ in range(2):
    try:
        add[(1,)](x, y, 16)
    except DriverError as error:
        assert not runtime.healthy()
        print(error.code, error)
"""
    lines = run_script(body, add_path, fakecuda.environment(90, fail=(("cuLaunchKernel", 1, code),))).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"{code} ")
        assert "the process must be restarted; last launch: add-" in line
        assert "with grid (3, 2, 1)" in line


def test_a_fork_after_initialisation_says_so(fakecuda: FakeCuda, add_path: Path) -> None:
    body = """
add[(1,)](x, y, 5)
read, write = os.pipe()
if os.fork() == 0:
    for n in (5, 16):  # with a plan and without one
        try:
            add[(1,)](x, y, n)
        except DriverError as error:
            os.write(write, f"{error.code} {error}\\n".encode())
    os.write(write, f"{runtime.healthy()}\\n".encode())
    os._exit(0)
os.wait()
print(os.read(read, 4096).decode(), end="")
add[(1,)](x, y, 5)
"""
    first, second, healthy = run_script(body, add_path, fakecuda.environment(90)).splitlines()
    assert first.startswith("3 CUDA was initialised before fork; use spawn")
    assert second.startswith("3 CUDA was initialised before fork; use spawn")
    assert healthy == "False"


def test_a_fork_before_initialisation_is_fine(fakecuda: FakeCuda, add_path: Path) -> None:
    body = """
pid = os.fork()
add[(1,)](x, y, 5)
if pid == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    run_script(body, add_path, fakecuda.environment(90))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"NOJIT_LIBCUDA": "/nowhere/libcuda.so.1"}, "expected a CUDA driver of version 12.0 or later"),
        ({"NOJIT_LIBCUDA": "libm.so.6"}, "no cuInit"),
        ({"NOJIT_LIBCUDA": "/nowhere/\udcff.so"}, r"/nowhere/\xff.so: cannot open"),
        # longer than what is kept of a message, whose end falls into a letter for one of the two
        ({"NOJIT_LIBCUDA": "/nowhere/" + 400 * "é"}, "expected a CUDA driver of version 12.0 or later"),
        ({"NOJIT_LIBCUDA": "/nowhere/x" + 400 * "é"}, "expected a CUDA driver of version 12.0 or later"),
        ({"FAKECUDA_FAIL": "cuInit:0:999"}, "cuInit failed, got CUDA_ERROR_UNKNOWN (999)"),
        ({"FAKECUDA_FAIL": "cuDevicePrimaryCtxRetain:0:2"}, "cuDevicePrimaryCtxRetain failed"),
        ({"FAKECUDA_FAIL": "cuCtxGetCurrent:0:2"}, "cuCtxGetCurrent failed"),
    ],
)
def test_a_driver_that_does_not_start_is_a_typed_error(
    fakecuda: FakeCuda, add_path: Path, change: dict[str, str], message: str
) -> None:
    body = """
try:
    add[(1,)](x, y, 5)
except DriverError as error:
    print(error)
if "FAKECUDA_FAIL" in os.environ:
    add[(1,)](x, y, 5)
"""
    environment = fakecuda.environment(90) | change
    if "FAKECUDA_FAIL" not in change:
        del environment["FAKECUDA_FAIL"]
    assert message in run_script(body, add_path, environment)
