"""A program's kernels of the kinds that serving must bind as Triton does."""

import triton
import triton.language as tl


@triton.jit
def scaled(x):
    return x * 2


@triton.jit
def shifted(x):
    return x + 3


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr = 64):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def apply(x_ptr, scale, FN: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, FN(tl.load(x_ptr + offs) * scale).to(DTYPE))


@triton.jit
def total(out_ptr, *pointers):
    added = tl.load(pointers[0])
    for i in tl.static_range(1, len(pointers)):
        added += tl.load(pointers[i])
    tl.store(out_ptr, added)


@triton.jit
def pair(x_ptr, both, flag):
    if flag:
        tl.store(x_ptr, tl.load(both[0]) + both[1])


@triton.jit
def copy(desc, out_ptr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    tl.store(out_ptr + rows[:, None] * BLOCK + columns[None, :], desc.load([0, 0]))


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 32}, num_warps=1),
        triton.Config({"BLOCK": 64}, num_warps=2),
        triton.Config({"BLOCK": 128}, num_warps=4),
    ],
    key=["n"],
)
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) + 1, mask=offs < n)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"]), "EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def guessed(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = None if EVEN else offs < n
    tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 1, mask=mask)


@triton.jit
def unrecorded(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0)
