"""Drivers that lack a newer function: what can be done without it is done."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

from tests.fakecuda import FakeCuda, build_driver
from tests.support.bundles import kernel, make_bundle

LAUNCH = """
import sys
from nojit import runtime
add = runtime.load(sys.argv[1]).kernel("add")
add[(2,)](4096, 7)
"""


def test_a_driver_without_param_info_launches(tmp_path: Path) -> None:
    old = FakeCuda(build_driver(tmp_path, "-DFAKECUDA_OLD_DRIVER"))
    assert not hasattr(ctypes.CDLL(str(old.path)), "cuKernelGetParamInfo")
    path = make_bundle(tmp_path / "add.nojit", kernel("add", {"x_ptr": "*fp16", "n": "i32"}))
    for fail, code in (((), 0), ((("cuLaunchKernel", 0, 1),), 1)):
        environment = old.environment(90, driver_version=12000, fail=fail)
        done = subprocess.run(
            [sys.executable, "-c", LAUNCH, str(path)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
    assert "cuLaunchKernel failed, got CUDA_ERROR_INVALID_VALUE (1)" in done.stderr


FOUND = """
import ctypes, sys
from nojit import runtime
from nojit.runtime import _core
bundle = runtime.load(sys.argv[1])
assert not _core.find_driver(), "nothing has opened one yet"
driver = ctypes.CDLL(sys.argv[2])
driver.fake_calls.restype = ctypes.c_int64
runtime.load(sys.argv[1])
assert _core.find_driver()
assert driver.fake_calls(b"*") == 0
bundle.kernel("add")[(2,)](4096, 7)
"""


def test_loading_a_bundle_finds_a_driver_that_is_open_and_calls_nothing_of_it(
    fakecuda: FakeCuda, tmp_path: Path
) -> None:
    path = make_bundle(tmp_path / "add.nojit", kernel("add", {"x_ptr": "*fp16", "n": "i32"}))
    command = [sys.executable, "-c", FOUND, str(path), str(fakecuda.path)]
    done = subprocess.run(command, env=fakecuda.environment(90), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
