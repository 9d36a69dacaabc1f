"""Triton kernels of root mean square norms, forward and backward: a program owns one or several groups of `ROWS` rows.

    y = x * rstd * weight,  rstd = (mean(x**2) + eps) ** -0.5        (Zhang and Sennrich 2019,
    https://arxiv.org/abs/1910.07467)

Rows that fit into `BLOCK` columns (`WHOLE`) are read once. Longer rows are read twice, the first time only for their
sums.
"""

# ruff: noqa: C901 - constexpr branches are resolved at compile time

import triton
import triton.language as tl


@triton.jit
def _load_sum(input_ptrs, residual_ptrs, cols, mask):
    """Load a tile of the input, plus the residual if there is one; the sum is rounded as it will be stored."""
    x = tl.load(input_ptrs + cols[None, :], mask=mask, other=0.0)
    if residual_ptrs is not None:
        residual = tl.load(residual_ptrs + cols[None, :], mask=mask, other=0.0)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
    return x


@triton.jit
def _scale(x, weight_ptr, weighs, cols, width):
    """Return the fp32 tile x, multiplied by the weights of its columns if `weighs` is 1."""
    if weighs != 0:
        x *= tl.load(weight_ptr + cols, mask=cols < width, other=0.0).to(tl.float32)[None, :]
    return x


@triton.jit
def _rstd_of(squares, width, eps):
    """Return rstd [ROWS, 1] from the squares [ROWS, BLOCK] of rows; 0 if the squares overflow fp32, as in torch."""
    return tl.rsqrt(tl.sum(squares, 1) / width + eps)[:, None]


@triton.jit
def rms_norm_fwd_kernel(
    input_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    rows,
    width,
    weighs,
    eps,
    stride_input,
    stride_residual,
    EIGHTHS: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``(input + residual) * rstd * weight`` and, if there is a residual, ``input + residual``.

    input and residual are [rows, width] with row strides `stride_input` and `stride_residual`, in elements; the results
    are contiguous. The weight is used if `weighs` is 1. `EIGHTHS` states that 8 divides the width and the strides, so that
    16 bytes are loaded at a time. Grid: cdiv(rows, ROWS).
    """
    if EIGHTHS:
        # tells the compiler that they are multiples of 8
        width = width // 8 * 8
        stride_input = stride_input // 8 * 8
        stride_residual = stride_residual // 8 * 8
    places = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    wide = places.to(tl.int64)[:, None]
    in_rows = (places < rows)[:, None]
    lanes = tl.arange(0, BLOCK)
    input_ptrs = input_ptr + wide * stride_input
    residual_ptrs = None if residual_ptr is None else residual_ptr + wide * stride_residual
    out_ptrs = out_ptr + wide * width
    if WHOLE:
        mask = in_rows & (lanes < width)[None, :]
        x = _load_sum(input_ptrs, residual_ptrs, lanes, mask)
        # loaded before the sum, which all threads wait for
        weight = tl.load(weight_ptr + lanes, mask=lanes < width * weighs, other=1.0).to(tl.float32)
        if sum_ptr is not None:
            tl.store(sum_ptr + wide * width + lanes[None, :], x, mask=mask)
        values = x.to(tl.float32)
        y = values * _rstd_of(values * values, width, eps) * weight[None, :]
        tl.store(out_ptrs + lanes[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        squares = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, width, BLOCK):
            cols = start + lanes
            mask = in_rows & (cols < width)[None, :]
            x = _load_sum(input_ptrs, residual_ptrs, cols, mask)
            if sum_ptr is not None:
                tl.store(sum_ptr + wide * width + cols[None, :], x, mask=mask)
            squares += x.to(tl.float32) * x.to(tl.float32)
        rstd = _rstd_of(squares, width, eps)
        for start in range(0, width, BLOCK):
            cols = start + lanes
            mask = in_rows & (cols < width)[None, :]
            x = _load_sum(input_ptrs, residual_ptrs, cols, mask)
            y = _scale(x.to(tl.float32) * rstd, weight_ptr, weighs, cols, width)
            tl.store(out_ptrs + cols[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _load_pair(grad_ptrs, input_ptrs, cols, mask):
    """Load a tile of the gradient and a tile of the normalized tensor, both as fp32."""
    grad = tl.load(grad_ptrs + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    return grad, tl.load(input_ptrs + cols[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _store_gradient(grad_input_ptrs, grad_sum_ptrs, cols, mask, value):
    """Store a tile of the input's gradient, plus the gradient of the sum if there is one."""
    if grad_sum_ptrs is not None:
        value += tl.load(grad_sum_ptrs + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(grad_input_ptrs + cols[None, :], value.to(grad_input_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def _clear(ptr, width, BLOCK: tl.constexpr):
    """Write zeros to `width` elements."""
    for start in range(0, width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        tl.store(ptr + cols, tl.zeros((BLOCK,), tl.float32), mask=cols < width)
    tl.debug_barrier()


@triton.jit
def rms_norm_bwd_kernel(
    grad_ptr,
    grad_sum_ptr,
    input_ptr,
    weight_ptr,
    grad_input_ptr,
    partial_ptr,
    rows,
    width,
    weighs,
    shares,
    programs,
    eps,
    stride_grad,
    stride_grad_sum,
    stride_input,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient by the input and, if `shares` is 1, each program's part of the gradient by the weight.

    The parts are fp32 [programs, width]. grad and grad_sum are [rows, width]; grad_sum, the gradient by the sum of
    input and residual, is added to the input's gradient. Results are contiguous. Program p takes the groups of `ROWS`
    rows p, p + programs, and so on. Long rows are read three times: for their squares, for their products with the
    gradient, and for the result. Grid: programs.
    """
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    share_ptr = partial_ptr + program.to(tl.int64) * width
    share = tl.zeros((ROWS, BLOCK), tl.float32)
    if not WHOLE and shares != 0:
        _clear(share_ptr, width, BLOCK)
    for run in range(program, tl.cdiv(rows, ROWS), programs):
        places = run * ROWS + tl.arange(0, ROWS)
        wide = places.to(tl.int64)[:, None]
        in_rows = (places < rows)[:, None]
        grad_ptrs, input_ptrs = grad_ptr + wide * stride_grad, input_ptr + wide * stride_input
        grad_sum_ptrs = None if grad_sum_ptr is None else grad_sum_ptr + wide * stride_grad_sum
        x = tl.zeros((ROWS, BLOCK), tl.float32)
        grad = tl.zeros((ROWS, BLOCK), tl.float32)
        squares = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, BLOCK if WHOLE else width, BLOCK):
            cols = start + lanes
            grad, x = _load_pair(grad_ptrs, input_ptrs, cols, in_rows & (cols < width)[None, :])
            squares += x * x
        # if eps is 0, rstd past the last row is inf, and 0 times inf is NaN
        rstd = tl.where(in_rows, _rstd_of(squares, width, eps), 0.0)
        products = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, BLOCK if WHOLE else width, BLOCK):
            cols = start + lanes
            if not WHOLE:
                grad, x = _load_pair(grad_ptrs, input_ptrs, cols, in_rows & (cols < width)[None, :])
            # rows past the end are 0 and add nothing
            normal = x * rstd
            products += _scale(grad, weight_ptr, weighs, cols, width) * normal
            if WHOLE:
                share += grad * normal
            elif shares != 0:
                known = tl.load(share_ptr + cols, mask=cols < width, other=0.0)
                tl.store(share_ptr + cols, known + tl.sum(grad * normal, 0), mask=cols < width)
        mean = (tl.sum(products, 1) / width)[:, None]
        if not WHOLE:
            # the next group of rows reads this program's part, perhaps in other threads
            tl.debug_barrier()
        for start in range(0, BLOCK if WHOLE else width, BLOCK):
            cols = start + lanes
            mask = in_rows & (cols < width)[None, :]
            if not WHOLE:
                grad, x = _load_pair(grad_ptrs, input_ptrs, cols, mask)
            slope = _scale(grad, weight_ptr, weighs, cols, width)
            _store_gradient(grad_input_ptr + wide * width, grad_sum_ptrs, cols, mask, (slope - x * rstd * mean) * rstd)
    if WHOLE and shares != 0:
        tl.store(share_ptr + lanes, tl.sum(share, 0), mask=lanes < width)
