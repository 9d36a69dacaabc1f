"""What kernels for sm_90 wait for in global memory, as the compiler writes it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("triton")

import triton
from nojit.kernels.kernel_sm90_copies import wait_for_count
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon._runtime import GluonASTSource


@gluon.jit
def wait_kernel(pointer, count):
    wait_for_count(pointer, count)


def test_who_waits_acquires_and_lets_the_copy_engine_see_it() -> None:
    source = GluonASTSource(wait_kernel, {"pointer": "*i32", "count": "i32"}, {})
    options = {"num_warps": 1, "enable_fp_fusion": True}
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    order = r"ld\.acquire\.gpu\.global\.b32 .*\bbra\b.*fence\.proxy\.async\.global;"
    assert re.search(order, ptx, re.DOTALL)
