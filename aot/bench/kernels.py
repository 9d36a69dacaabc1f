"""Kernels of the launch benchmark: almost no work, and 1, 4, 12 or 30 arguments."""

# ruff: noqa: ANN001, ANN201, N803, PLR0917 - the manifest has the types, constexprs are in capitals, and the benchmark
# needs many arguments
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def launch_1(out_ptr):
    """1 argument: a one."""
    tl.store(out_ptr, 1.0)


@triton.jit
def launch_4(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """4 arguments: the sum of 2 vectors."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    total = tl.load(x_ptr + lanes, mask=mask)
    total += tl.load(y_ptr + lanes, mask=mask)
    tl.store(out_ptr + lanes, total, mask=mask)


@triton.jit
def launch_12(a_ptr, b_ptr, c_ptr, out_ptr, n, s0, s1, s2, s3, s4, s5, s6, BLOCK: tl.constexpr):
    """12 arguments: the sum of 3 vectors and 7 numbers."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    total = tl.load(a_ptr + lanes, mask=mask)
    total += tl.load(b_ptr + lanes, mask=mask)
    total += tl.load(c_ptr + lanes, mask=mask)
    total += s0 + s1 + s2 + s3 + s4 + s5 + s6
    tl.store(out_ptr + lanes, total, mask=mask)


@triton.jit
def launch_30(
    a_ptr,
    b_ptr,
    c_ptr,
    d_ptr,
    e_ptr,
    out_ptr,
    n,
    s0,
    s1,
    s2,
    s3,
    s4,
    s5,
    s6,
    s7,
    s8,
    s9,
    s10,
    s11,
    s12,
    s13,
    s14,
    s15,
    s16,
    s17,
    s18,
    s19,
    s20,
    s21,
    s22,
    BLOCK: tl.constexpr,
):
    """30 arguments: the sum of 5 vectors and 23 numbers."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    total = tl.load(a_ptr + lanes, mask=mask)
    total += tl.load(b_ptr + lanes, mask=mask)
    total += tl.load(c_ptr + lanes, mask=mask)
    total += tl.load(d_ptr + lanes, mask=mask)
    total += tl.load(e_ptr + lanes, mask=mask)
    total += s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11
    total += s12 + s13 + s14 + s15 + s16 + s17 + s18 + s19 + s20 + s21 + s22
    tl.store(out_ptr + lanes, total, mask=mask)
