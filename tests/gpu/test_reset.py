"""A device that is reset under a running program: kernels are launched again, those with raised limits among them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.replay import build_here

# no torch: its own state would not survive the reset
SCRIPT = """
import ctypes, struct, sys
from nojit import runtime

bundle, driver = sys.argv[1:3]
cuda = ctypes.CDLL(driver)
matmul = runtime.load(bundle).kernel("matmul")
configs = [
    {"BLOCK": 128, "BLOCK_K": 64, "num_stages": 3, "num_warps": 8},
    {"BLOCK": 64, "BLOCK_K": 32, "num_stages": 2},
    {"BLOCK": 128, "BLOCK_K": 64, "num_stages": int(sys.argv[3]), "num_warps": 8},
]
ONE, SIZE, INNER = 0x3C00, 128, 1024

def check(code):
    assert code == 0, f"the driver gave {code}"

def launch_all():
    # contents are lost with the context
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    size = 2 * SIZE * INNER
    a, b, c = (ctypes.c_uint64() for _ in range(3))
    for memory in (a, b, c):
        check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)))
    ones = struct.pack("<H", ONE) * (size // 2)
    for config in configs:
        for memory in (a, b):
            check(cuda.cuMemcpyHtoD_v2(memory, ones, ctypes.c_size_t(size)))
        check(cuda.cuMemsetD8_v2(c, ctypes.c_ubyte(0), ctypes.c_size_t(size)))
        matmul[(1,)](a.value, b.value, c.value, INNER, **config)
        check(cuda.cuCtxSynchronize())
        count = config["BLOCK"] ** 2
        out = (ctypes.c_char * (2 * count))()
        check(cuda.cuMemcpyDtoH_v2(out, c, ctypes.c_size_t(2 * count)))
        values = set(struct.unpack(f"<{count}e", out.raw))
        assert values == {float(INNER)}, (config, values)

check(cuda.cuInit(0))
launch_all()
for _ in range(2):
    check(cuda.cuDevicePrimaryCtxReset_v2(0))
    launch_all()
assert runtime.healthy()
print("launched")
"""


def test_every_config_is_launched_again_after_a_reset(device: object, tmp_path: Path) -> None:
    import torch

    major, minor = torch.cuda.get_device_capability()
    bundle = build_here([Path(__file__).with_name("launch")], f"sm_{major}{minor}", tmp_path)
    stages = "7" if (major, minor) == (9, 0) else "3"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(bundle), "libcuda.so.1", stages],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode != 0:
        pytest.fail(done.stderr)
    assert done.stdout == "launched\n"
