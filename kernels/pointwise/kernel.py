"""Pointwise kernels over dense memory: one program handles `BLOCK` neighbouring elements.

All of them share one shape: pointers to `n` elements each, read in memory order whatever the tensors' strides are, with
the mathematics in fp32 and one rounding at the store. `n` may pass 2^31.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _first_element(BLOCK: tl.constexpr):
    """The first element of this program, as int64: 32 bits would wrap past 2^31 elements."""
    return tl.program_id(0).to(tl.int64) * BLOCK


@triton.jit
def _times_sigmoid(x, by, EXACT: tl.constexpr):
    """Return ``x / (1 + exp(-by))``, which is x times the logistic function of `by`, all fp32.

    exp overflows to inf for very negative values, which gives the right 0. The fast division may be off by two units in
    the last place: too much for fp32 results, and nothing to 16-bit ones.
    """
    divisor = 1.0 + tl.exp2(-by * LOG2_E)
    if EXACT:
        return tl.div_rn(x, divisor)
    else:  # noqa: RET505 - Triton compiles the arm that is taken
        return x / divisor


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Write ``x + y``."""
    first = _first_element(BLOCK)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < n - first
    x = tl.load(x_ptr + first + lanes, mask=mask)
    y = tl.load(y_ptr + first + lanes, mask=mask)
    total = x.to(tl.float32) + y.to(tl.float32)
    tl.store(out_ptr + first + lanes, total.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gelu_fwd_kernel(x_ptr, out_ptr, n, APPROXIMATE: tl.constexpr, BLOCK: tl.constexpr):
    """Write the Gaussian error linear unit of x (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415).

    `APPROXIMATE` is "none" for ``x * Phi(x)`` through erf, or "tanh" for the paper's tanh form.
    """
    first = _first_element(BLOCK)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < n - first
    x = tl.load(x_ptr + first + lanes, mask=mask).to(tl.float32)
    if APPROXIMATE == "tanh":
        # 0.5 * (1 + tanh(u)) is sigmoid(2u); 1.5957691 is 2 * sqrt(2 / pi)
        u = 1.5957691216057308 * (x + 0.044715 * x * x * x)
        y = _times_sigmoid(x, u, x_ptr.dtype.element_ty == tl.float32)
    else:
        tl.static_assert(APPROXIMATE == "none", "APPROXIMATE is 'none' or 'tanh'")
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + first + lanes, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def silu_fwd_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Write ``x * sigmoid(x)``."""
    first = _first_element(BLOCK)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < n - first
    x = tl.load(x_ptr + first + lanes, mask=mask).to(tl.float32)
    y = _times_sigmoid(x, x, x_ptr.dtype.element_ty == tl.float32)
    tl.store(out_ptr + first + lanes, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_fwd_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Write ``silu(gate) * up``, rounded once (Shazeer 2020, https://arxiv.org/abs/2002.05202, without its matmuls)."""
    first = _first_element(BLOCK)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < n - first
    gate = tl.load(gate_ptr + first + lanes, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + first + lanes, mask=mask).to(tl.float32)
    y = _times_sigmoid(gate, gate, gate_ptr.dtype.element_ty == tl.float32) * up
    tl.store(out_ptr + first + lanes, y.to(out_ptr.dtype.element_ty), mask=mask)
