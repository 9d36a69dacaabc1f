"""The kernels and the functions that launch them: ``out = activation(x[:, :d]) * x[:, d:]``."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from .bundled import bundled


@triton.jit
def _silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))


@bundled
@triton.jit
def gate_kernel(x_ptr, out_ptr, columns, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < columns
    gate = tl.load(x_ptr + row * 2 * columns + places, inside).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * columns + columns + places, inside).to(tl.float32)
    tl.store(out_ptr + row * columns + places, ACTIVATION(gate) * up, inside)


def silu_and_mul(out, x):
    """Write ``silu(gate) * up`` into `out` of ``[rows, columns]``; `x` of ``[rows, 2 * columns]`` holds both, contiguous."""
    return _launch(out, x, _silu)


def gelu_and_mul(out, x):
    """Write ``gelu(gate) * up``, as `silu_and_mul`."""
    return _launch(out, x, _gelu)


def _launch(out, x, activation):
    rows, columns = out.shape
    grid = rows, triton.cdiv(columns, 1024)
    gate_kernel[grid](x, out, columns, ACTIVATION=activation, BLOCK=1024, num_warps=4)
    return out
