"""What kernels share, in Triton's interpreter: a process of its own, as `tests.kernels.interpreter` says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

# a kernel's source must be a file
DIVISIONS = """
import torch
import triton
import triton.language as tl
from nojit.kernels.kernel_functions import divide, divide_by, divide_small, reciprocal, small_reciprocal

COUNT = 1024
MOST = 2**31 - 1

@triton.jit
def kernel(numbers_ptr, small_ptr, by_ptr, out_ptr, COUNT: tl.constexpr):
    places = tl.arange(0, COUNT)
    numbers = tl.load(numbers_ptr + places)
    by = tl.load(by_ptr)
    quotient, rest = divide(numbers, by)
    tl.store(out_ptr + places, quotient)
    tl.store(out_ptr + COUNT + places, rest)
    quotient, rest = divide_by(numbers, by, reciprocal(by))
    tl.store(out_ptr + 2 * COUNT + places, quotient)
    tl.store(out_ptr + 3 * COUNT + places, rest)
    quotient, rest = divide_small(tl.load(small_ptr + places), by, small_reciprocal(by))
    tl.store(out_ptr + 4 * COUNT + places, quotient)
    tl.store(out_ptr + 5 * COUNT + places, rest)

torch.manual_seed(0)
powers = [2**bit + off for bit in range(31) for off in (-1, 0, 1) if 0 < 2**bit + off <= MOST]
for by in [*powers, 3, 5, 7, 100, 641, 65521, MOST - 1, MOST, *torch.randint(1, MOST, (40,)).tolist()]:
    multiples = by * torch.randint(0, MOST // by + 1, (COUNT // 4,))
    near = torch.cat([multiples, (multiples - 1).clamp_min(0), torch.arange(COUNT // 4), MOST - torch.arange(COUNT // 4)])
    numbers, out = near.int(), torch.empty(6, COUNT, dtype=torch.int32)
    # a product with the divisor has 31 bits
    small = (near % (MOST // by + 1)).int()
    kernel[(1,)](numbers, small, torch.tensor([by], dtype=torch.int32), out, COUNT=COUNT)
    right = torch.stack([numbers // by, numbers % by] * 2 + [small // by, small % by])
    assert torch.equal(out, right.int()), by
"""


def test_divisions_are_exact(tmp_path: Path) -> None:
    script = tmp_path / "divisions.py"
    script.write_text(DIVISIONS)
    subprocess.run([sys.executable, str(script)], env=os.environ | {"TRITON_INTERPRET": "1"}, check=True, timeout=600)
