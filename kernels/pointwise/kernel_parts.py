"""Device functions for the generated pointwise kernels: positions of tiles, loads, stores, and mathematical functions.

There are two kinds of tiles. A *flat* tile is `BLOCK` adjacent elements, which all operands store in the same order. A
*rectangle* is `BY` x `BX` elements of two of up to four dimensions, with separate strides for each operand. Results are
computed in fp32 for 16-bit operands, otherwise in the operands' dtype, and rounded once at the store. With `EXACT`, for
fp32 results, functions round as well as torch's; without it they are faster, and their errors do not show in 16-bit
results.
"""

# ruff: noqa: PLR1714, RET505 - Triton has no `in`, and compiles only the branch taken

import triton
import triton.language as tl
from nojit.kernels import kernel_functions as functions

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def widen(value):
    """Return 16-bit floats as fp32, and other values unchanged."""
    if value.dtype == tl.float16 or value.dtype == tl.bfloat16:
        return value.to(tl.float32)
    else:
        return value


@triton.jit
def place_tile(tile, n, BLOCK: tl.constexpr, TILES: tl.constexpr):
    """Return tile `tile` of this program: its first element (int64), its lanes, and a mask of the elements below n.

    The first element is int64, since 32 bits would wrap past 2^31.
    """
    first = (tl.program_id(0).to(tl.int64) * TILES + tile) * BLOCK
    lanes = tl.arange(0, BLOCK)
    return first, lanes, lanes < n - first


@triton.jit
def load_tile(ptr, tile, STREAM: tl.constexpr):
    """Load a flat tile, 16-bit floats as fp32; with `STREAM`, L2 evicts it first."""
    first, lanes, mask = tile
    if STREAM:
        return widen(tl.load(ptr + first + lanes, mask=mask, eviction_policy="evict_first"))
    else:
        return widen(tl.load(ptr + first + lanes, mask=mask))


@triton.jit
def store_tile(ptr, tile, value, STREAM: tl.constexpr):
    """Store a flat tile, rounded to the dtype of `ptr`."""
    first, lanes, mask = tile
    if STREAM:
        tl.store(ptr + first + lanes, value.to(ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
    else:
        tl.store(ptr + first + lanes, value.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def place_rectangle(nx, ny, n0, BY: tl.constexpr, BX: tl.constexpr):
    """Return the rectangle of this program: indices along y and x (int64), a mask of those inside, and both outer indices."""
    # the number of programs fits 32 bits, and so does this arithmetic
    tiles_x, tiles_y = tl.cdiv(nx, BX).to(tl.int32), tl.cdiv(ny, BY).to(tl.int32)
    rest, tile_x = tl.program_id(0) // tiles_x, tl.program_id(0) % tiles_x
    outer, tile_y = rest // tiles_y, rest % tiles_y
    y = tile_y.to(tl.int64) * BY + tl.arange(0, BY)[:, None]
    x = tile_x.to(tl.int64) * BX + tl.arange(0, BX)[None, :]
    return y, x, y < ny, x < nx, outer.to(tl.int64) // n0, outer.to(tl.int64) % n0


@triton.jit
def rectangle_pointers(ptr, s1, s0, sy, sx, place, KIND: tl.constexpr):
    """Return pointers [BY, BX] to the elements of a rectangle.

    `KIND` describes the strides: "r", rows are contiguous; "t", columns are contiguous; "c", all elements of a row are
    the same element; "s", any strides.
    """
    y, x, _, _, i1, i0 = place
    first = ptr + i1 * s1 + i0 * s0
    if KIND == "c":
        return first + y * sy
    elif KIND == "r":
        return first + y * sy + x
    elif KIND == "t":
        return first + y + x * sx
    else:
        return first + y * sy + x * sx


@triton.jit
def load_rectangle(ptr, s1, s0, sy, sx, place, KINDS: tl.constexpr, TENSOR: tl.constexpr):
    """Load a rectangle, 16-bit floats as fp32; for the kind "c", a single column.

    `KINDS` has a letter for each tensor, as `rectangle_pointers` describes; `TENSOR` is this tensor's index.
    """
    # this must be a separate statement: Triton 3.6 cannot pass an element of a constexpr as an argument
    KIND: tl.constexpr = KINDS[TENSOR]
    pointers = rectangle_pointers(ptr, s1, s0, sy, sx, place, KIND)
    _, _, inside_y, inside_x, _, _ = place
    if KIND == "c":
        return widen(tl.load(pointers, mask=inside_y))
    else:
        return widen(tl.load(pointers, mask=inside_y & inside_x))


@triton.jit
def store_rectangle(ptr, s1, s0, sy, sx, place, value, KINDS: tl.constexpr):
    """Store a rectangle, rounded to the dtype of `ptr`; the last letter of `KINDS` describes the strides of results."""
    KIND: tl.constexpr = KINDS[-1]
    pointers = rectangle_pointers(ptr, s1, s0, sy, sx, place, KIND)
    _, _, inside_y, inside_x, _, _ = place
    mask = inside_y & inside_x
    tl.store(pointers, tl.broadcast_to(value.to(ptr.dtype.element_ty), mask.shape), mask=mask)


@triton.jit
def divide(x, y, EXACT: tl.constexpr):
    """Return ``x / y``; without `EXACT`, off by up to two units in the last place."""
    if EXACT:
        left, right = tl.broadcast(x, y)
        return tl.div_rn(left, right)
    else:
        return x / y


@triton.jit
def divide_number(NUMBER: tl.constexpr, y, EXACT: tl.constexpr):
    """Return ``NUMBER / y``; without `EXACT`, off by up to two units in the last place."""
    if EXACT:
        return tl.div_rn(tl.full(y.shape, NUMBER, y.dtype), y)
    else:
        return NUMBER / y


@triton.jit
def divide_by_number(x, NUMBER: tl.constexpr, EXACT: tl.constexpr):
    """Return ``x / NUMBER``; without `EXACT`, off by up to two units in the last place."""
    if EXACT:
        return tl.div_rn(x, tl.full(x.shape, NUMBER, x.dtype))
    else:
        return x / NUMBER


@triton.jit
def trunc_divide(x, y):
    """Return ``x / y`` rounded towards 0; the division is always exact, as a fast 6 / 3 may be less than 2."""
    left, right = tl.broadcast(x, y)
    EXACT: tl.constexpr = left.dtype == tl.float32
    quotient = divide(left, right, EXACT)
    return tl.where(quotient < 0, tl.ceil(quotient), tl.floor(quotient))


@triton.jit
def floor_divide(x, y):
    """Return ``x / y`` rounded down to an integer, as in Python; NaN if x is infinite and y is not 0, as in torch.

    A quotient that was rounded up to an integer is one too large. The remainder of x then has another sign than y; an
    fma computes it exactly, since it rounds once.
    """
    left, right = tl.broadcast(x, y)
    EXACT: tl.constexpr = left.dtype == tl.float32
    whole = tl.floor(divide(left, right, EXACT))
    # 0 times an infinite y would be NaN: subtract nothing
    rest = tl.where(whole == 0, left, tl.fma(-whole, right, left))
    whole = tl.where((rest < 0) & (right > 0) | (rest > 0) & (right < 0), whole - 1, whole)
    return tl.where((tl.abs(left) == float("inf")) & (right != 0), float("nan"), whole)


@triton.jit
def times_sigmoid(x, by, EXACT: tl.constexpr):
    """Return ``x / (1 + exp(-by))``: x times the logistic function of `by`.

    exp overflows to inf for very negative values, which gives the correct 0.
    """
    divisor = 1.0 + tl.exp2(-by * LOG2_E)
    if EXACT:
        return tl.div_rn(x, divisor)
    else:
        return x / divisor


@triton.jit
def sigmoid(x, EXACT: tl.constexpr):
    """Return the logistic function ``1 / (1 + exp(-x))``."""
    return divide_number(1.0, 1.0 + exp(-x, EXACT), EXACT)


@triton.jit
def silu(x, EXACT: tl.constexpr):
    """Return ``x * sigmoid(x)``."""
    return times_sigmoid(x, x, EXACT)


@triton.jit
def gelu(x, EXACT: tl.constexpr):
    """Return ``x * Phi(x)``, where Phi is the normal distribution.

    From Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415. fp64 computes Phi with erf, fp32 with an
    approximation; without `EXACT`, fp32 uses a cheaper one, for results rounded to 16 bits.
    """
    if x.dtype == tl.float64:
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif EXACT:
        return functions.gelu(x)
    else:
        return functions.gelu_rounded(x)


@triton.jit
def gelu_tanh(x, EXACT: tl.constexpr):
    """Return the tanh form of gelu: ``0.5 * x * (1 + tanh(u))`` with u = sqrt(2 / pi) (x + 0.044715 x^3).

    From Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415. 0.5 * (1 + tanh(u)) is sigmoid(2u), and 1.5957691
    is 2 * sqrt(2 / pi).
    """
    return times_sigmoid(x, 1.5957691216057308 * (x + 0.044715 * x * x * x), EXACT)


@triton.jit
def exp(x, EXACT: tl.constexpr):
    """Return e to the power of x.

    x is reduced first, since x * log2(e) would lose a digit for each digit before the point. The reduction uses log(2)
    in two parts, and multiplies by a power of two in two steps, since the power may overflow where the result does not:
    Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapter 6.
    """
    if EXACT:
        power = tl.minimum(tl.maximum(tl.floor(x * LOG2_E + 0.5), -260.0), 260.0)
        rest = tl.fma(power, tl.full(power.shape, -0.693145751953125, power.dtype), x)
        rest = tl.fma(power, tl.full(power.shape, -1.428606820309417e-06, power.dtype), rest)
        half = tl.floor(power * 0.5)
        return tl.exp2(rest * LOG2_E) * tl.exp2(half) * tl.exp2(power - half)
    else:
        return tl.exp(x)


@triton.jit
def _tanh_away(x, EXACT: tl.constexpr):
    """Return the hyperbolic tangent for values away from 0; near 0 the precision is lower.

    `EXACT`: True to round as well as torch, for fp32 results; False to be faster, for 16-bit results.
    """
    return 1.0 - divide_number(2.0, exp(2.0 * x, EXACT) + 1.0, EXACT)


@triton.jit
def tanh(x, EXACT: tl.constexpr):
    """Return the hyperbolic tangent: near 0, where 1 - 2 / (exp(2x) + 1) would cancel, by a polynomial.

    fp32 results use the polynomial of Cephes' tanhf.c. 16-bit results need only the first terms of the series, and no
    division: the square of a reciprocal square root is two instructions.
    """
    square = x * x
    if EXACT:
        away = _tanh_away(x, EXACT)
        near = ((-5.70498872745e-3 * square + 2.06390887954e-2) * square - 5.37397155531e-2) * square + 1.33314422036e-1
        # for x = 0 the product is -0 and would change the sign of x; adding 0 makes it +0
        near = ((near * square - 3.33332819422e-1) * square + 0.0) * x + x
        return tl.where(tl.abs(x) < 0.625, near, away)
    elif x.dtype == tl.float64:
        return _tanh_away(x, EXACT)
    else:
        root = tl.rsqrt(tl.exp2(x * 2.8853900817779268) + 1.0)
        near = (square * -0.3333333333333333 + 0.0) * x + x
        return tl.where(tl.abs(x) < 0.03125, near, 1.0 - 2.0 * root * root)


@triton.jit
def sqrt(x, EXACT: tl.constexpr):
    """Return the square root."""
    if EXACT:
        return tl.sqrt_rn(x)
    else:
        return tl.sqrt(x)


@triton.jit
def maximum(x, y):
    """Return the larger value; NaN if either is NaN."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(x, y):
    """Return the smaller value; NaN if either is NaN."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def relu(x):
    """Return x, or 0 if x is negative; NaN stays NaN."""
    return tl.where(x < 0, 0, x)
