"""Triton kernel of ``f(alpha * a @ b) @ c`` for any strides and any architecture."""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_tiles import activate, multiply, place_tile, spread


@triton.jit
def listed(x, activation):
    """Apply the library activation with the number `activation` to fp32 values `x`; return fp32."""
    return activate(x, activation)


@triton.jit
def b2b_gemm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    m_len,
    n_len,
    k_len,
    middle_len,
    activation,
    alpha,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    stride_om,
    stride_on,
    PRECISION: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_L: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``f(alpha * a @ b) @ c``: a [m_len, k_len], b [k_len, middle_len], c [middle_len, n_len]; any strides.

    `FUNCTION` is f: it takes fp32 values and the number `activation`; its result is rounded to the operands' dtype.
    Each program writes a tile [BLOCK_M, BLOCK_N] of the result. It computes `BLOCK_L` columns of the intermediate
    product at a time and multiplies them by rows of c. Grid: cdiv(m_len, BLOCK_M) * cdiv(n_len, BLOCK_N).
    """
    row, col = place_tile(tl.program_id(0), m_len, n_len, BLOCK_M, BLOCK_N, GROUP)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    lanes = tl.arange(0, BLOCK_K)
    in_rows = (rows < m_len)[:, None]
    in_cols = (cols < n_len)[None, :]
    a_ptrs = spread(a_ptr, rows, lanes, stride_am, stride_ak)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, middle_len, BLOCK_L):
        across = start + tl.arange(0, BLOCK_L)
        in_middle = across < middle_len
        b_ptrs = spread(b_ptr, lanes, across, stride_bk, stride_bn)
        middle = tl.zeros((BLOCK_M, BLOCK_L), tl.float32)
        middle = multiply(
            middle, a_ptrs, b_ptrs, in_rows, in_middle[None, :], k_len, stride_ak, stride_bk, PRECISION, BLOCK_K
        )
        # columns past middle_len must be 0, also if the function maps 0 to another value
        middle = tl.where(in_middle[None, :], FUNCTION(middle * alpha, activation), 0.0)
        c_ptrs = spread(c_ptr, across, cols, stride_cm, stride_cn)
        c = tl.load(c_ptrs, mask=in_middle[:, None] & in_cols, other=0.0)
        acc = tl.dot(middle.to(a_ptr.dtype.element_ty), c, acc, input_precision=PRECISION)
    out_ptrs = spread(out_ptr, rows, cols, stride_om, stride_on)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=in_rows & in_cols)
