"""Triton kernels of batched matrix products, for any strides and any architecture, and the sum over split-K parts."""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import wait_for_last
from nojit.kernels.products.kernel_tiles import apply_epilogue, multiply, place_piece, spread


@triton.jit
def bmm_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    input_ptr,
    partial_ptr,
    batch,
    m_len,
    n_len,
    k_len,
    splits,
    width,
    activation,
    alpha,
    beta,
    stride_az,
    stride_am,
    stride_ak,
    stride_bz,
    stride_bk,
    stride_bn,
    stride_cz,
    stride_cm,
    stride_cn,
    stride_oz,
    stride_om,
    stride_on,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write ``activation(alpha * a @ b + beta * input)``: a [batch, m_len, k_len], b [batch, k_len, n_len]; any strides.

    With `splits` > 1 (split-K), K is cut into `splits` parts. A program multiplies one part and writes its sums to
    `partial_ptr`, fp32 [splits, batch, m_len, width]; `bmm_merge_kernel` then adds up the parts and applies alpha, beta
    and the activation. Products of integers are exact, and alpha, beta and the activation do not apply to them. Grid:
    batch * splits * cdiv(m_len, BLOCK_M) * cdiv(n_len, BLOCK_N).
    """
    steps = tl.cdiv(k_len, BLOCK_K)
    index_z, split, row, col, first, last = place_piece(
        tl.program_id(0), m_len, n_len, steps, splits, BLOCK_M, BLOCK_N, GROUP
    )
    index_z = index_z.to(tl.int64)
    rows = row + tl.arange(0, BLOCK_M)
    cols = col + tl.arange(0, BLOCK_N)
    in_rows = (rows < m_len)[:, None]
    in_cols = (cols < n_len)[None, :]
    lanes = tl.arange(0, BLOCK_K)
    start = first.to(tl.int64) * BLOCK_K
    a_ptrs = spread(a_ptr + index_z * stride_az + start * stride_ak, rows, lanes, stride_am, stride_ak)
    b_ptrs = spread(b_ptr + index_z * stride_bz + start * stride_bk, lanes, cols, stride_bk, stride_bn)
    depth = tl.minimum(last * BLOCK_K, k_len) - first * BLOCK_K
    if out_ptr.dtype.element_ty == tl.int32:
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    acc = multiply(acc, a_ptrs, b_ptrs, in_rows, in_cols, depth, stride_ak, stride_bk, PRECISION, BLOCK_K)
    inside = in_rows & in_cols
    out_ptrs = spread(out_ptr + index_z * stride_oz, rows, cols, stride_om, stride_on)
    if out_ptr.dtype.element_ty == tl.int32:
        tl.store(out_ptrs, acc, mask=inside)
    elif splits == 1:
        input_ptrs = spread(input_ptr + index_z * stride_cz, rows, cols, stride_cm, stride_cn)
        acc = apply_epilogue(acc, input_ptrs, inside, alpha, beta, activation)
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        partial_ptr += (split * batch.to(tl.int64) + index_z) * m_len * width
        tl.store(spread(partial_ptr, rows, cols, width, 1), acc, mask=inside)


@triton.jit
def bmm_merge_kernel(
    partial_ptr,
    out_ptr,
    input_ptr,
    batch,
    m_len,
    n_len,
    splits,
    width,
    activation,
    alpha,
    beta,
    stride_cz,
    stride_cm,
    stride_cn,
    stride_oz,
    stride_om,
    stride_on,
    BLOCK: tl.constexpr,
):
    """Add up split-K parts, fp32 [splits, batch, m_len, width], in order, and write the result of `bmm_kernel`, rounded once.

    It applies alpha, beta and the activation. Grid: batch * m_len * cdiv(n_len, BLOCK).
    """
    wait_for_last()
    across = tl.cdiv(n_len, BLOCK)
    cols = tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0) // across % m_len
    index_z = (tl.program_id(0) // across // m_len).to(tl.int64)
    inside = cols < n_len
    size = batch.to(tl.int64) * m_len * width
    partial_ptrs = partial_ptr + (index_z * m_len + row) * width + cols
    acc = tl.zeros((BLOCK,), tl.float32)
    for _ in range(splits):
        acc += tl.load(partial_ptrs, mask=inside, other=0.0)
        partial_ptrs += size
    wide = cols.to(tl.int64)
    input_ptrs = input_ptr + index_z * stride_cz + row * stride_cm + wide * stride_cn
    acc = apply_epilogue(acc, input_ptrs, inside, alpha, beta, activation)
    out_ptrs = out_ptr + index_z * stride_oz + row * stride_om + wide * stride_on
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
