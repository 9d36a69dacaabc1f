"""Pointwise kernels. Generated from kernels/pointwise/operators.toml by `python -m nojit.kernels.pointwise`: edit that instead.

Each operator has a flat kernel over `n` elements that all operands store in the same order, with `TILES` tiles of `BLOCK` per
program, and a rectangle kernel with tiles of `BY` x `BX`. `nojit.kernels.pointwise.kernel_parts` describes both.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)
# ruff: noqa: ARG001, F841, PLR0917 - a launch passes its facts by position, many of them, some for the grid alone

import triton
import triton.language as tl
from nojit.kernels.pointwise import kernel_parts as parts


@triton.jit
def vector_add_fwd_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``input + other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_other = parts.load_tile(other_ptr, tile, STREAM)
        result_0 = in_input + in_other
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def vector_add_fwd_rectangles_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    other_s1,
    other_s0,
    other_sy,
    other_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``input + other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_other = parts.load_rectangle(other_ptr, other_s1, other_s0, other_sy, other_sx, place, KINDS, 1)
    result_0 = in_input + in_other
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def gelu_fwd_kernel(
    input_ptr,
    out_ptr,
    n,
    APPROXIMATE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``gelu(input)`` or ``gelu_tanh(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        if APPROXIMATE == "none":
            result_0 = parts.gelu(in_input, EXACT)
        elif APPROXIMATE == "tanh":
            result_0 = parts.gelu_tanh(in_input, EXACT)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def gelu_fwd_rectangles_kernel(
    input_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    APPROXIMATE: tl.constexpr,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``gelu(input)`` or ``gelu_tanh(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    if APPROXIMATE == "none":
        result_0 = parts.gelu(in_input, EXACT)
    elif APPROXIMATE == "tanh":
        result_0 = parts.gelu_tanh(in_input, EXACT)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def gelu_bwd_kernel(
    grad_ptr,
    input_ptr,
    grad_input_ptr,
    n,
    APPROXIMATE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write the gradients of ``gelu(input)`` or ``gelu_tanh(input)``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_input_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_grad = parts.load_tile(grad_ptr, tile, STREAM)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        if APPROXIMATE == "none":
            t3 = in_input * 0.7071067811865476
            t4 = tl.erf(t3)
            t7 = 1.0 + t4
            t8 = 0.5 * t7
            t10 = in_input * in_input
            t11 = (-0.5) * t10
            t13 = parts.exp(t11, EXACT)
            t14 = 0.3989422804014327 * t13
            t15 = in_input * t14
            t16 = t8 + t15
            result_0 = in_grad * t16
        elif APPROXIMATE == "tanh":
            t2 = in_input * in_input
            t5 = 0.07135481627260025 * t2
            t6 = 1.5957691216057308 + t5
            t7 = in_input * t6
            t8 = parts.sigmoid(t7, EXACT)
            t9 = -t7
            t10 = parts.sigmoid(t9, EXACT)
            t12 = 0.21406444881780076 * t2
            t13 = 1.5957691216057308 + t12
            t14 = in_input * t13
            t15 = t14 * t10
            t17 = 1.0 + t15
            t18 = t8 * t17
            result_0 = in_grad * t18
        parts.store_tile(grad_input_ptr, tile, result_0, STREAM)


@triton.jit
def gelu_bwd_rectangles_kernel(
    grad_ptr,
    input_ptr,
    grad_input_ptr,
    nx,
    ny,
    n0,
    n1,
    grad_s1,
    grad_s0,
    grad_sy,
    grad_sx,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    grad_input_s1,
    grad_input_s0,
    grad_input_sy,
    grad_input_sx,
    APPROXIMATE: tl.constexpr,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write the gradients of ``gelu(input)`` or ``gelu_tanh(input)``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_input_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_grad = parts.load_rectangle(grad_ptr, grad_s1, grad_s0, grad_sy, grad_sx, place, KINDS, 0)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 1)
    if APPROXIMATE == "none":
        t3 = in_input * 0.7071067811865476
        t4 = tl.erf(t3)
        t7 = 1.0 + t4
        t8 = 0.5 * t7
        t10 = in_input * in_input
        t11 = (-0.5) * t10
        t13 = parts.exp(t11, EXACT)
        t14 = 0.3989422804014327 * t13
        t15 = in_input * t14
        t16 = t8 + t15
        result_0 = in_grad * t16
    elif APPROXIMATE == "tanh":
        t2 = in_input * in_input
        t5 = 0.07135481627260025 * t2
        t6 = 1.5957691216057308 + t5
        t7 = in_input * t6
        t8 = parts.sigmoid(t7, EXACT)
        t9 = -t7
        t10 = parts.sigmoid(t9, EXACT)
        t12 = 0.21406444881780076 * t2
        t13 = 1.5957691216057308 + t12
        t14 = in_input * t13
        t15 = t14 * t10
        t17 = 1.0 + t15
        t18 = t8 * t17
        result_0 = in_grad * t18
    parts.store_rectangle(
        grad_input_ptr, grad_input_s1, grad_input_s0, grad_input_sy, grad_input_sx, place, result_0, KINDS
    )


@triton.jit
def silu_fwd_kernel(
    input_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``silu(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        result_0 = parts.silu(in_input, EXACT)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def silu_fwd_rectangles_kernel(
    input_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``silu(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    result_0 = parts.silu(in_input, EXACT)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def silu_bwd_kernel(
    grad_ptr,
    input_ptr,
    grad_input_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write the gradients of ``silu(input)``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_input_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_grad = parts.load_tile(grad_ptr, tile, STREAM)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        t2 = parts.sigmoid(in_input, EXACT)
        t4 = 1.0 - t2
        t5 = in_input * t4
        t6 = 1.0 + t5
        t7 = t2 * t6
        result_0 = in_grad * t7
        parts.store_tile(grad_input_ptr, tile, result_0, STREAM)


@triton.jit
def silu_bwd_rectangles_kernel(
    grad_ptr,
    input_ptr,
    grad_input_ptr,
    nx,
    ny,
    n0,
    n1,
    grad_s1,
    grad_s0,
    grad_sy,
    grad_sx,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    grad_input_s1,
    grad_input_s0,
    grad_input_sy,
    grad_input_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write the gradients of ``silu(input)``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_input_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_grad = parts.load_rectangle(grad_ptr, grad_s1, grad_s0, grad_sy, grad_sx, place, KINDS, 0)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 1)
    t2 = parts.sigmoid(in_input, EXACT)
    t4 = 1.0 - t2
    t5 = in_input * t4
    t6 = 1.0 + t5
    t7 = t2 * t6
    result_0 = in_grad * t7
    parts.store_rectangle(
        grad_input_ptr, grad_input_s1, grad_input_s0, grad_input_sy, grad_input_sx, place, result_0, KINDS
    )


@triton.jit
def swiglu_fwd_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``silu(gate) * up``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_gate = parts.load_tile(gate_ptr, tile, STREAM)
        in_up = parts.load_tile(up_ptr, tile, STREAM)
        t1 = parts.silu(in_gate, EXACT)
        result_0 = t1 * in_up
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def swiglu_fwd_rectangles_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    gate_s1,
    gate_s0,
    gate_sy,
    gate_sx,
    up_s1,
    up_s0,
    up_sy,
    up_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``silu(gate) * up``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_gate = parts.load_rectangle(gate_ptr, gate_s1, gate_s0, gate_sy, gate_sx, place, KINDS, 0)
    in_up = parts.load_rectangle(up_ptr, up_s1, up_s0, up_sy, up_sx, place, KINDS, 1)
    t1 = parts.silu(in_gate, EXACT)
    result_0 = t1 * in_up
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def swiglu_bwd_kernel(
    grad_ptr,
    gate_ptr,
    up_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write the gradients of ``silu(gate) * up``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_gate_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_grad = parts.load_tile(grad_ptr, tile, STREAM)
        in_gate = parts.load_tile(gate_ptr, tile, STREAM)
        in_up = parts.load_tile(up_ptr, tile, STREAM)
        t2 = parts.silu(in_gate, EXACT)
        t4 = in_grad * in_up
        result_1 = in_grad * t2
        t6 = parts.sigmoid(in_gate, EXACT)
        t8 = 1.0 - t6
        t9 = in_gate * t8
        t10 = 1.0 + t9
        t11 = t6 * t10
        result_0 = t4 * t11
        parts.store_tile(grad_gate_ptr, tile, result_0, STREAM)
        parts.store_tile(grad_up_ptr, tile, result_1, STREAM)


@triton.jit
def swiglu_bwd_rectangles_kernel(
    grad_ptr,
    gate_ptr,
    up_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    nx,
    ny,
    n0,
    n1,
    grad_s1,
    grad_s0,
    grad_sy,
    grad_sx,
    gate_s1,
    gate_s0,
    gate_sy,
    gate_sx,
    up_s1,
    up_s0,
    up_sy,
    up_sx,
    grad_gate_s1,
    grad_gate_s0,
    grad_gate_sy,
    grad_gate_sx,
    grad_up_s1,
    grad_up_s0,
    grad_up_sy,
    grad_up_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write the gradients of ``silu(gate) * up``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_gate_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_grad = parts.load_rectangle(grad_ptr, grad_s1, grad_s0, grad_sy, grad_sx, place, KINDS, 0)
    in_gate = parts.load_rectangle(gate_ptr, gate_s1, gate_s0, gate_sy, gate_sx, place, KINDS, 1)
    in_up = parts.load_rectangle(up_ptr, up_s1, up_s0, up_sy, up_sx, place, KINDS, 2)
    t2 = parts.silu(in_gate, EXACT)
    t4 = in_grad * in_up
    result_1 = in_grad * t2
    t6 = parts.sigmoid(in_gate, EXACT)
    t8 = 1.0 - t6
    t9 = in_gate * t8
    t10 = 1.0 + t9
    t11 = t6 * t10
    result_0 = t4 * t11
    parts.store_rectangle(grad_gate_ptr, grad_gate_s1, grad_gate_s0, grad_gate_sy, grad_gate_sx, place, result_0, KINDS)
    parts.store_rectangle(grad_up_ptr, grad_up_s1, grad_up_s0, grad_up_sy, grad_up_sx, place, result_1, KINDS)


@triton.jit
def geglu_fwd_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``gelu(gate) * up``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_gate = parts.load_tile(gate_ptr, tile, STREAM)
        in_up = parts.load_tile(up_ptr, tile, STREAM)
        t1 = parts.gelu(in_gate, EXACT)
        result_0 = t1 * in_up
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def geglu_fwd_rectangles_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    gate_s1,
    gate_s0,
    gate_sy,
    gate_sx,
    up_s1,
    up_s0,
    up_sy,
    up_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``gelu(gate) * up``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_gate = parts.load_rectangle(gate_ptr, gate_s1, gate_s0, gate_sy, gate_sx, place, KINDS, 0)
    in_up = parts.load_rectangle(up_ptr, up_s1, up_s0, up_sy, up_sx, place, KINDS, 1)
    t1 = parts.gelu(in_gate, EXACT)
    result_0 = t1 * in_up
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def geglu_bwd_kernel(
    grad_ptr,
    gate_ptr,
    up_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write the gradients of ``gelu(gate) * up``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_gate_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_grad = parts.load_tile(grad_ptr, tile, STREAM)
        in_gate = parts.load_tile(gate_ptr, tile, STREAM)
        in_up = parts.load_tile(up_ptr, tile, STREAM)
        t2 = parts.gelu(in_gate, EXACT)
        t4 = in_grad * in_up
        result_1 = in_grad * t2
        t7 = in_gate * 0.7071067811865476
        t8 = tl.erf(t7)
        t11 = 1.0 + t8
        t12 = 0.5 * t11
        t14 = in_gate * in_gate
        t15 = (-0.5) * t14
        t17 = parts.exp(t15, EXACT)
        t18 = 0.3989422804014327 * t17
        t19 = in_gate * t18
        t20 = t12 + t19
        result_0 = t4 * t20
        parts.store_tile(grad_gate_ptr, tile, result_0, STREAM)
        parts.store_tile(grad_up_ptr, tile, result_1, STREAM)


@triton.jit
def geglu_bwd_rectangles_kernel(
    grad_ptr,
    gate_ptr,
    up_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    nx,
    ny,
    n0,
    n1,
    grad_s1,
    grad_s0,
    grad_sy,
    grad_sx,
    gate_s1,
    gate_s0,
    gate_sy,
    gate_sx,
    up_s1,
    up_s0,
    up_sy,
    up_sx,
    grad_gate_s1,
    grad_gate_s0,
    grad_gate_sy,
    grad_gate_sx,
    grad_up_s1,
    grad_up_s0,
    grad_up_sy,
    grad_up_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write the gradients of ``gelu(gate) * up``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_gate_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_grad = parts.load_rectangle(grad_ptr, grad_s1, grad_s0, grad_sy, grad_sx, place, KINDS, 0)
    in_gate = parts.load_rectangle(gate_ptr, gate_s1, gate_s0, gate_sy, gate_sx, place, KINDS, 1)
    in_up = parts.load_rectangle(up_ptr, up_s1, up_s0, up_sy, up_sx, place, KINDS, 2)
    t2 = parts.gelu(in_gate, EXACT)
    t4 = in_grad * in_up
    result_1 = in_grad * t2
    t7 = in_gate * 0.7071067811865476
    t8 = tl.erf(t7)
    t11 = 1.0 + t8
    t12 = 0.5 * t11
    t14 = in_gate * in_gate
    t15 = (-0.5) * t14
    t17 = parts.exp(t15, EXACT)
    t18 = 0.3989422804014327 * t17
    t19 = in_gate * t18
    t20 = t12 + t19
    result_0 = t4 * t20
    parts.store_rectangle(grad_gate_ptr, grad_gate_s1, grad_gate_s0, grad_gate_sy, grad_gate_sx, place, result_0, KINDS)
    parts.store_rectangle(grad_up_ptr, grad_up_s1, grad_up_s0, grad_up_sy, grad_up_sx, place, result_1, KINDS)


@triton.jit
def reglu_fwd_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``relu(gate) * up``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_gate = parts.load_tile(gate_ptr, tile, STREAM)
        in_up = parts.load_tile(up_ptr, tile, STREAM)
        t1 = parts.relu(in_gate)
        result_0 = t1 * in_up
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def reglu_fwd_rectangles_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    gate_s1,
    gate_s0,
    gate_sy,
    gate_sx,
    up_s1,
    up_s0,
    up_sy,
    up_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``relu(gate) * up``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_gate = parts.load_rectangle(gate_ptr, gate_s1, gate_s0, gate_sy, gate_sx, place, KINDS, 0)
    in_up = parts.load_rectangle(up_ptr, up_s1, up_s0, up_sy, up_sx, place, KINDS, 1)
    t1 = parts.relu(in_gate)
    result_0 = t1 * in_up
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def reglu_bwd_kernel(
    grad_ptr,
    gate_ptr,
    up_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write the gradients of ``relu(gate) * up``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_gate_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_grad = parts.load_tile(grad_ptr, tile, STREAM)
        in_gate = parts.load_tile(gate_ptr, tile, STREAM)
        in_up = parts.load_tile(up_ptr, tile, STREAM)
        t2 = parts.relu(in_gate)
        t4 = in_grad * in_up
        result_1 = in_grad * t2
        result_0 = tl.where(in_gate <= 0, 0, t4)
        parts.store_tile(grad_gate_ptr, tile, result_0, STREAM)
        parts.store_tile(grad_up_ptr, tile, result_1, STREAM)


@triton.jit
def reglu_bwd_rectangles_kernel(
    grad_ptr,
    gate_ptr,
    up_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    nx,
    ny,
    n0,
    n1,
    grad_s1,
    grad_s0,
    grad_sy,
    grad_sx,
    gate_s1,
    gate_s0,
    gate_sy,
    gate_sx,
    up_s1,
    up_s0,
    up_sy,
    up_sx,
    grad_gate_s1,
    grad_gate_s0,
    grad_gate_sy,
    grad_gate_sx,
    grad_up_s1,
    grad_up_s0,
    grad_up_sy,
    grad_up_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write the gradients of ``relu(gate) * up``, from the gradient of the result."""
    EXACT: tl.constexpr = grad_gate_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_grad = parts.load_rectangle(grad_ptr, grad_s1, grad_s0, grad_sy, grad_sx, place, KINDS, 0)
    in_gate = parts.load_rectangle(gate_ptr, gate_s1, gate_s0, gate_sy, gate_sx, place, KINDS, 1)
    in_up = parts.load_rectangle(up_ptr, up_s1, up_s0, up_sy, up_sx, place, KINDS, 2)
    t2 = parts.relu(in_gate)
    t4 = in_grad * in_up
    result_1 = in_grad * t2
    result_0 = tl.where(in_gate <= 0, 0, t4)
    parts.store_rectangle(grad_gate_ptr, grad_gate_s1, grad_gate_s0, grad_gate_sy, grad_gate_sx, place, result_0, KINDS)
    parts.store_rectangle(grad_up_ptr, grad_up_s1, grad_up_s0, grad_up_sy, grad_up_sx, place, result_1, KINDS)


@triton.jit
def sub_fwd_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``input - other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_other = parts.load_tile(other_ptr, tile, STREAM)
        result_0 = in_input - in_other
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def sub_fwd_rectangles_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    other_s1,
    other_s0,
    other_sy,
    other_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``input - other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_other = parts.load_rectangle(other_ptr, other_s1, other_s0, other_sy, other_sx, place, KINDS, 1)
    result_0 = in_input - in_other
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def add_scaled_fwd_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    n,
    alpha_value,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``input + alpha * other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_other = parts.load_tile(other_ptr, tile, STREAM)
        t3 = alpha_value * in_other
        result_0 = in_input + t3
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def add_scaled_fwd_rectangles_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    other_s1,
    other_s0,
    other_sy,
    other_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    alpha_value,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``input + alpha * other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_other = parts.load_rectangle(other_ptr, other_s1, other_s0, other_sy, other_sx, place, KINDS, 1)
    t3 = alpha_value * in_other
    result_0 = in_input + t3
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def mul_fwd_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``input * other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_other = parts.load_tile(other_ptr, tile, STREAM)
        result_0 = in_input * in_other
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def mul_fwd_rectangles_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    other_s1,
    other_s0,
    other_sy,
    other_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``input * other``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_other = parts.load_rectangle(other_ptr, other_s1, other_s0, other_sy, other_sx, place, KINDS, 1)
    result_0 = in_input * in_other
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def div_fwd_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    n,
    ROUNDING_MODE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``input / other`` or ``trunc_divide(input, other)`` or ``floor_divide(input, other)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_other = parts.load_tile(other_ptr, tile, STREAM)
        if ROUNDING_MODE == "none":
            result_0 = parts.divide(in_input, in_other, EXACT)
        elif ROUNDING_MODE == "trunc":
            result_0 = parts.trunc_divide(in_input, in_other)
        elif ROUNDING_MODE == "floor":
            result_0 = parts.floor_divide(in_input, in_other)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def div_fwd_rectangles_kernel(
    input_ptr,
    other_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    other_s1,
    other_s0,
    other_sy,
    other_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    ROUNDING_MODE: tl.constexpr,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``input / other`` or ``trunc_divide(input, other)`` or ``floor_divide(input, other)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_other = parts.load_rectangle(other_ptr, other_s1, other_s0, other_sy, other_sx, place, KINDS, 1)
    if ROUNDING_MODE == "none":
        result_0 = parts.divide(in_input, in_other, EXACT)
    elif ROUNDING_MODE == "trunc":
        result_0 = parts.trunc_divide(in_input, in_other)
    elif ROUNDING_MODE == "floor":
        result_0 = parts.floor_divide(in_input, in_other)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def relu_fwd_kernel(
    input_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``relu(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        result_0 = parts.relu(in_input)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def relu_fwd_rectangles_kernel(
    input_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``relu(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    result_0 = parts.relu(in_input)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def sigmoid_fwd_kernel(
    input_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``sigmoid(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        result_0 = parts.sigmoid(in_input, EXACT)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def sigmoid_fwd_rectangles_kernel(
    input_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``sigmoid(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    result_0 = parts.sigmoid(in_input, EXACT)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def tanh_fwd_kernel(
    input_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``tanh(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        result_0 = parts.tanh(in_input, EXACT)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def tanh_fwd_rectangles_kernel(
    input_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``tanh(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    result_0 = parts.tanh(in_input, EXACT)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def exp_fwd_kernel(
    input_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``exp(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        result_0 = parts.exp(in_input, EXACT)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def exp_fwd_rectangles_kernel(
    input_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``exp(input)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    result_0 = parts.exp(in_input, EXACT)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def clamp_fwd_kernel(
    input_ptr,
    out_ptr,
    n,
    min_value,
    max_value,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``clamp(input, min, max)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        t3 = in_input < min_value
        t4 = tl.where(t3, min_value, in_input)
        t5 = t4 > max_value
        result_0 = tl.where(t5, max_value, t4)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def clamp_fwd_rectangles_kernel(
    input_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    min_value,
    max_value,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``clamp(input, min, max)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    t3 = in_input < min_value
    t4 = tl.where(t3, min_value, in_input)
    t5 = t4 > max_value
    result_0 = tl.where(t5, max_value, t4)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def addcmul_fwd_kernel(
    input_ptr,
    tensor1_ptr,
    tensor2_ptr,
    out_ptr,
    n,
    value_value,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``input + value * tensor1 * tensor2``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_tensor1 = parts.load_tile(tensor1_ptr, tile, STREAM)
        in_tensor2 = parts.load_tile(tensor2_ptr, tile, STREAM)
        t3 = value_value * in_tensor1
        t5 = t3 * in_tensor2
        result_0 = in_input + t5
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def addcmul_fwd_rectangles_kernel(
    input_ptr,
    tensor1_ptr,
    tensor2_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    tensor1_s1,
    tensor1_s0,
    tensor1_sy,
    tensor1_sx,
    tensor2_s1,
    tensor2_s0,
    tensor2_sy,
    tensor2_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    value_value,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``input + value * tensor1 * tensor2``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_tensor1 = parts.load_rectangle(tensor1_ptr, tensor1_s1, tensor1_s0, tensor1_sy, tensor1_sx, place, KINDS, 1)
    in_tensor2 = parts.load_rectangle(tensor2_ptr, tensor2_s1, tensor2_s0, tensor2_sy, tensor2_sx, place, KINDS, 2)
    t3 = value_value * in_tensor1
    t5 = t3 * in_tensor2
    result_0 = in_input + t5
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def lerp_fwd_kernel(
    input_ptr,
    end_ptr,
    weight_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``where(abs(weight) < 0.5, input + weight * (end - input), end - (end - input) * (1 - weight))``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_end = parts.load_tile(end_ptr, tile, STREAM)
        in_weight = parts.load_tile(weight_ptr, tile, STREAM)
        t1 = tl.abs(in_weight)
        t3 = t1 < 0.5
        t6 = in_end - in_input
        t7 = in_weight * t6
        t8 = in_input + t7
        t10 = 1.0 - in_weight
        t11 = t6 * t10
        t12 = in_end - t11
        result_0 = tl.where(t3, t8, t12)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def lerp_fwd_rectangles_kernel(
    input_ptr,
    end_ptr,
    weight_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    end_s1,
    end_s0,
    end_sy,
    end_sx,
    weight_s1,
    weight_s0,
    weight_sy,
    weight_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``where(abs(weight) < 0.5, input + weight * (end - input), end - (end - input) * (1 - weight))``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_end = parts.load_rectangle(end_ptr, end_s1, end_s0, end_sy, end_sx, place, KINDS, 1)
    in_weight = parts.load_rectangle(weight_ptr, weight_s1, weight_s0, weight_sy, weight_sx, place, KINDS, 2)
    t1 = tl.abs(in_weight)
    t3 = t1 < 0.5
    t6 = in_end - in_input
    t7 = in_weight * t6
    t8 = in_input + t7
    t10 = 1.0 - in_weight
    t11 = t6 * t10
    t12 = in_end - t11
    result_0 = tl.where(t3, t8, t12)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def lerp_number_fwd_kernel(
    input_ptr,
    end_ptr,
    out_ptr,
    n,
    weight_value,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``where(abs(weight) < 0.5, input + weight * (end - input), end - (end - input) * (1 - weight))``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_end = parts.load_tile(end_ptr, tile, STREAM)
        t1 = tl.abs(weight_value)
        t3 = t1 < 0.5
        t6 = in_end - in_input
        t7 = weight_value * t6
        t8 = in_input + t7
        t10 = 1.0 - weight_value
        t11 = t6 * t10
        t12 = in_end - t11
        result_0 = tl.where(t3, t8, t12)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def lerp_number_fwd_rectangles_kernel(
    input_ptr,
    end_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    end_s1,
    end_s0,
    end_sy,
    end_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    weight_value,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``where(abs(weight) < 0.5, input + weight * (end - input), end - (end - input) * (1 - weight))``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_end = parts.load_rectangle(end_ptr, end_s1, end_s0, end_sy, end_sx, place, KINDS, 1)
    t1 = tl.abs(weight_value)
    t3 = t1 < 0.5
    t6 = in_end - in_input
    t7 = weight_value * t6
    t8 = in_input + t7
    t10 = 1.0 - weight_value
    t11 = t6 * t10
    t12 = in_end - t11
    result_0 = tl.where(t3, t8, t12)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def add_relu_fwd_kernel(
    input_ptr,
    residual_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``relu(input + residual)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_residual = parts.load_tile(residual_ptr, tile, STREAM)
        t2 = in_input + in_residual
        result_0 = parts.relu(t2)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def add_relu_fwd_rectangles_kernel(
    input_ptr,
    residual_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    residual_s1,
    residual_s0,
    residual_sy,
    residual_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``relu(input + residual)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_residual = parts.load_rectangle(
        residual_ptr, residual_s1, residual_s0, residual_sy, residual_sx, place, KINDS, 1
    )
    t2 = in_input + in_residual
    result_0 = parts.relu(t2)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def add_silu_fwd_kernel(
    input_ptr,
    residual_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``silu(input + residual)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_residual = parts.load_tile(residual_ptr, tile, STREAM)
        t2 = in_input + in_residual
        result_0 = parts.silu(t2, EXACT)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def add_silu_fwd_rectangles_kernel(
    input_ptr,
    residual_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    residual_s1,
    residual_s0,
    residual_sy,
    residual_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``silu(input + residual)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_residual = parts.load_rectangle(
        residual_ptr, residual_s1, residual_s0, residual_sy, residual_sx, place, KINDS, 1
    )
    t2 = in_input + in_residual
    result_0 = parts.silu(t2, EXACT)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)


@triton.jit
def add_gelu_fwd_kernel(
    input_ptr,
    residual_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write ``gelu(input + residual)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    for number in tl.static_range(TILES):
        tile = parts.place_tile(number, n, BLOCK, TILES)
        in_input = parts.load_tile(input_ptr, tile, STREAM)
        in_residual = parts.load_tile(residual_ptr, tile, STREAM)
        t2 = in_input + in_residual
        result_0 = parts.gelu(t2, EXACT)
        parts.store_tile(out_ptr, tile, result_0, STREAM)


@triton.jit
def add_gelu_fwd_rectangles_kernel(
    input_ptr,
    residual_ptr,
    out_ptr,
    nx,
    ny,
    n0,
    n1,
    input_s1,
    input_s0,
    input_sy,
    input_sx,
    residual_s1,
    residual_s0,
    residual_sy,
    residual_sx,
    out_s1,
    out_s0,
    out_sy,
    out_sx,
    KINDS: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
):
    """Write ``gelu(input + residual)``."""
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    place = parts.place_rectangle(nx, ny, n0, BY, BX)
    in_input = parts.load_rectangle(input_ptr, input_s1, input_s0, input_sy, input_sx, place, KINDS, 0)
    in_residual = parts.load_rectangle(
        residual_ptr, residual_s1, residual_s0, residual_sy, residual_sx, place, KINDS, 1
    )
    t2 = in_input + in_residual
    result_0 = parts.gelu(t2, EXACT)
    parts.store_rectangle(out_ptr, out_s1, out_s0, out_sy, out_sx, place, result_0, KINDS)
