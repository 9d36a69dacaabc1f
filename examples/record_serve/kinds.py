"""A program with kernels of the kinds that `program.py` lacks: tensor descriptors, a named tuple, Gluon. Prints a digest of each result.

    python examples/record_serve/kinds.py

Descriptors need Hopper or newer. On a machine without a GPU, run it under ``nojit record --fake sm_90`` with ``--no-digest``.
"""

import argparse
import hashlib
import sys
from typing import NamedTuple

try:
    import torch
    import triton
    import triton.language as tl
    from torch import Tensor
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch triton")


class Bounds(NamedTuple):
    """Limits of a value."""

    low: float
    high: float


@triton.jit
def transpose_kernel(x, out, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    out.store([column, row], x.load([row, column]).T)


@triton.jit
def double_kernel(x_ptr, rows, columns, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    x.store([row, column], x.load([row, column]) * 2)


@triton.jit
def clamp_kernel(x_ptr, bounds, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, places < n)
    tl.store(x_ptr + places, tl.minimum(tl.maximum(x, bounds.low), bounds.high), places < n)


@gluon.jit
def shift_kernel(x_ptr, n, amount, BLOCK: gl.constexpr, layout: gl.constexpr):
    places = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(x_ptr + places, gl.load(x_ptr + places, mask=places < n) + amount, mask=places < n)


def transpose(x: Tensor, block: int = 64) -> Tensor:
    """Return `x.T`, with tensor descriptors of the host."""
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    described = (TensorDescriptor.from_tensor(each, [block, block]) for each in (x, out))
    transpose_kernel[triton.cdiv(x.shape[0], block), triton.cdiv(x.shape[1], block)](*described, BLOCK=block)
    return out


def double(x: Tensor, block: int = 32) -> None:
    """Double `x`, with a tensor descriptor that the kernel makes: it needs scratch memory."""
    rows, columns = x.shape
    double_kernel[triton.cdiv(rows, block), triton.cdiv(columns, block)](x, rows, columns, BLOCK=block)


def clamp(x: Tensor, bounds: Bounds) -> None:
    """Limit `x` to `bounds`."""
    clamp_kernel[(triton.cdiv(x.numel(), 1024),)](x, bounds, x.numel(), BLOCK=1024)


def shift(x: Tensor, amount: float) -> None:
    """Add `amount` to `x`, with Gluon."""
    layout = gl.BlockedLayout([4], [32], [4], [0])
    shift_kernel[(triton.cdiv(x.numel(), 512),)](x, x.numel(), amount, BLOCK=512, layout=layout)


def main() -> None:
    """Run each kernel and print a digest of each result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-digest", action="store_true", help="print no digest: results are not read")
    given = parser.parse_args()
    triton.set_allocator(lambda size, _alignment, _stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    for dtype, rows in ((torch.float16, 256), (torch.float32, 192)):
        x = torch.linspace(-3, 3, rows * 128, device="cuda").to(dtype).view(rows, 128)
        out = transpose(x)
        double(out)
        clamp(out, Bounds(-4.5, 5.5))
        shift(out, 0.25)
        if not given.no_digest:
            print(dtype, hashlib.sha256(out.float().cpu().numpy().tobytes()).hexdigest())
    print("ran")


if __name__ == "__main__":
    main()
