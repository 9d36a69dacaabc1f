"""Pointwise kernels over dense memory: one program handles `TILES` tiles of `BLOCK` neighbouring elements each.

All of them share one shape: pointers to `n` elements each, read in memory order whatever the tensors' strides are, with
the mathematics in fp32 and one rounding at the store. `n` may pass 2^31. With `STREAM` what is read and written is
marked as the first to leave the cache: nothing of it is needed twice. No config changes a bit of a result.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)
# ruff: noqa: PLR0917 - a launch passes its facts by position, many of them

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _place_tile(tile, n, BLOCK: tl.constexpr, TILES: tl.constexpr):
    """Place a tile of this program: its first element, as int64 (32 bits would wrap past 2^31), lanes, those below n."""
    first = (tl.program_id(0).to(tl.int64) * TILES + tile) * BLOCK
    lanes = tl.arange(0, BLOCK)
    return first, lanes, lanes < n - first


@triton.jit
def _load(ptr, tile, STREAM: tl.constexpr):
    """Load a tile as fp32."""
    first, lanes, mask = tile
    if STREAM:
        return tl.load(ptr + first + lanes, mask=mask, eviction_policy="evict_first").to(tl.float32)
    else:  # noqa: RET505 - Triton compiles the arm that is taken
        return tl.load(ptr + first + lanes, mask=mask).to(tl.float32)


@triton.jit
def _store(ptr, tile, value, STREAM: tl.constexpr):
    """Store a tile of fp32 values, rounded to the pointer's type."""
    first, lanes, mask = tile
    if STREAM:
        tl.store(ptr + first + lanes, value.to(ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
    else:
        tl.store(ptr + first + lanes, value.to(ptr.dtype.element_ty), mask=mask)


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
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, TILES: tl.constexpr, STREAM: tl.constexpr):
    """Write ``x + y``."""
    for number in tl.static_range(TILES):
        tile = _place_tile(number, n, BLOCK, TILES)
        total = _load(x_ptr, tile, STREAM) + _load(y_ptr, tile, STREAM)
        _store(out_ptr, tile, total, STREAM)


@triton.jit
def gelu_fwd_kernel(
    x_ptr,
    out_ptr,
    n,
    APPROXIMATE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    STREAM: tl.constexpr,
):
    """Write the Gaussian error linear unit of x (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415).

    `APPROXIMATE` is "none" for ``x * Phi(x)`` through erf, or "tanh" for the paper's tanh form.
    """
    for number in tl.static_range(TILES):
        tile = _place_tile(number, n, BLOCK, TILES)
        x = _load(x_ptr, tile, STREAM)
        if APPROXIMATE == "tanh":
            # 0.5 * (1 + tanh(u)) is sigmoid(2u); 1.5957691 is 2 * sqrt(2 / pi)
            u = 1.5957691216057308 * (x + 0.044715 * x * x * x)
            y = _times_sigmoid(x, u, x_ptr.dtype.element_ty == tl.float32)
        else:
            tl.static_assert(APPROXIMATE == "none", "APPROXIMATE is 'none' or 'tanh'")
            y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
        _store(out_ptr, tile, y, STREAM)


@triton.jit
def silu_fwd_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, TILES: tl.constexpr, STREAM: tl.constexpr):
    """Write ``x * sigmoid(x)``."""
    for number in tl.static_range(TILES):
        tile = _place_tile(number, n, BLOCK, TILES)
        x = _load(x_ptr, tile, STREAM)
        _store(out_ptr, tile, _times_sigmoid(x, x, x_ptr.dtype.element_ty == tl.float32), STREAM)


@triton.jit
def swiglu_fwd_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr, TILES: tl.constexpr, STREAM: tl.constexpr):
    """Write ``silu(gate) * up``, rounded once (Shazeer 2020, https://arxiv.org/abs/2002.05202, without its matmuls)."""
    for number in tl.static_range(TILES):
        tile = _place_tile(number, n, BLOCK, TILES)
        gate = _load(gate_ptr, tile, STREAM)
        up = _load(up_ptr, tile, STREAM)
        _store(out_ptr, tile, _times_sigmoid(gate, gate, gate_ptr.dtype.element_ty == tl.float32) * up, STREAM)
