"""Kernels as programs write them, with helpers, globals and names of several kinds."""

import enum
import math

import triton
import triton.language as tl
from triton.language.extra import libdevice

from tests.runtime.recording.programs import helpers
from tests.runtime.recording.programs.helpers import shift


class Activation(enum.IntEnum):
    NONE = 0
    RELU = 1


SCALE = tl.constexpr(2)
PAIR = (tl.constexpr(3), tl.float16)
FUNCTIONS = (shift,)
RELU = tl.constexpr(Activation.RELU.value)


@triton.jit
def squash(x, limit=2.5):
    return tl.where(x > limit, x, libdevice.tanh(x)) * math.pi


@triton.jit(noinline=True)
def apart(n):
    return n + 1


@triton.jit
def through(x):
    return squash(x) + helpers.shift(x) + helpers.BIAS


@triton.jit(do_not_specialize=["n"])
def kernel(x_ptr, n, m: tl.int64, BLOCK: tl.constexpr, DTYPE: tl.constexpr = tl.float32, ACT: "tl.constexpr" = None):
    """Its text has a docstring."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    x = through(x) * SCALE + shift(x) + apart(m)
    if ACT is not None:
        x = tl.maximum(x, RELU)
    tl.store(x_ptr + offs, x.to(DTYPE), mask=offs < n)


def make(scale):
    factor = tl.constexpr(scale)

    @triton.jit
    def scaled(x_ptr, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        tl.store(x_ptr + offs, tl.load(x_ptr + offs) * factor)

    return scaled


@triton.jit
def with_activation(x_ptr, ACT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, ACT(tl.load(x_ptr + offs)))
