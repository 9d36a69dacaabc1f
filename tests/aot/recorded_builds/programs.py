"""Kernels whose calls the tests record."""

from __future__ import annotations

import enum

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

FLAT = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


RED = tl.constexpr(Color.RED)


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, x + 1, mask=offs < n)


@triton.jit
def own_warps(x_ptr, BLOCK: tl.constexpr, num_warps: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) * num_warps)


@triton.jit
def optional(x_ptr, pair, scale, DTYPE: tl.constexpr = tl.float32, MODE: tl.constexpr = "sum"):
    x = tl.load(x_ptr)
    if pair is not None:
        x += tl.load(pair[0]) * pair[1]
    if MODE == "sum":
        x += scale
    tl.store(x_ptr, x.to(DTYPE))


@triton.jit
def stages_at_run_time(x_ptr, num_stages):
    tl.store(x_ptr, num_stages)


@triton.jit(debug=True)
def checked(x_ptr):
    tl.device_assert(tl.load(x_ptr) > 0)


@triton.jit
def with_rest(x_ptr, *rest):
    tl.store(x_ptr, rest[0] + rest[1])


@triton.jit
def colored(x_ptr, COLOR: tl.constexpr):
    if COLOR == RED:
        tl.store(x_ptr, 1)
    else:
        tl.store(x_ptr, 2)


@gluon.jit
def laid_out(x_ptr, BLOCK: gl.constexpr, LAYOUT: gl.constexpr, LAYOUTS: gl.constexpr = ()):
    offs = gl.arange(0, BLOCK, LAYOUT)
    gl.store(x_ptr + offs, offs)
    flat = gl.arange(0, BLOCK, FLAT)
    gl.store(x_ptr + flat, flat + 1)


STEP = 3


@triton.jit
def named_default(x_ptr, STEPS: tl.constexpr = STEP, MORE: tl.constexpr = STEP + 1):
    tl.store(x_ptr, STEPS + MORE)
