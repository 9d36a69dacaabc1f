"""Kernels that the tests of the simulated GPU launch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def _put(out_ptr, offsets, value):
    tl.store(out_ptr + offsets, value)


@triton.jit
def ways_kernel(
    read_ptr, stored_ptr, added_ptr, helped_ptr, walked_ptr, described_ptr, blocks_ptr, BLOCK: tl.constexpr
):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(read_ptr + offsets)
    here = read_ptr + BLOCK
    value += tl.load(here)
    tl.store(stored_ptr + offsets, value)
    tl.atomic_add(added_ptr + offsets, value)
    _put(helped_ptr, offsets, value)
    walk = walked_ptr
    for _ in range(2):
        tl.store(walk + offsets, value)
        walk += BLOCK
    described = tl.make_tensor_descriptor(described_ptr, [BLOCK], [1], [BLOCK])
    described.store([0], value)
    block = tl.make_block_ptr(blocks_ptr, (BLOCK,), (1,), (0,), (BLOCK,), (0,))
    block = tl.advance(block, (0,))
    tl.store(block, value)


def _double(args):
    return 2 * args["BLOCK"]


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0, "TWICE": _double})
@triton.jit
def tuned_kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, offsets, mask=offsets < n)
