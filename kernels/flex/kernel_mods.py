"""Score modifications, in Triton: each returns the modified score and its derivative by the score.

A modification takes ``(score, batch, head, query, key, inside, first, second, bias)``:

- `score`: fp32, a tile of scores that are scaled already; `query` and `key`: int32 places that broadcast to the tile;
- `batch` and `head`: int64 numbers; `head` counts query heads;
- `inside`: which elements of the tile exist; of the others nothing may be read, and any result will do;
- `first` and `second`: slots of `nojit.kernels.flex.mods`: kind, table, its strides by batch and head, value, reach;
- `bias`: a dense bias and its four strides.

Derivatives that are not used are not computed: the compiler drops them.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)
# ruff: noqa: PLR0917 - a modification has as many parameters

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def tanh(x):
    """Return the hyperbolic tangent: near 0, where 1 - exp(-2 |x|) would cancel, by a polynomial (Cephes, tanhf.c)."""
    falling = tl.exp2(-2.0 * tl.abs(x) * LOG2_E)
    away = (1.0 - falling) / (1.0 + falling)
    square = x * x
    near = ((-5.70498872745e-3 * square + 2.06390887954e-2) * square - 5.37397155531e-2) * square + 1.33314422036e-1
    near = (near * square - 3.33332819422e-1) * square * x + x
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -away, away))


@triton.jit
def alibi(score, batch, head, query, key, slot):
    """Add a slope times the distance from query to key."""
    _, table_ptr, stride_batch, stride_head, _, _ = slot
    slope = tl.load(table_ptr + batch * stride_batch + head * stride_head)
    return score + slope * (key - query).to(tl.float32)


@triton.jit
def relative_place(query, key, reach):
    """Return where a table of distances has that from query to key."""
    return tl.minimum(tl.maximum(key - query, -reach), reach) + reach


@triton.jit
def relative_bias(score, batch, head, query, key, slot):
    """Add what a table has for the distance from query to key."""
    _, table_ptr, stride_batch, stride_head, _, reach = slot
    row_ptr = table_ptr + batch * stride_batch + head * stride_head
    return score + tl.load(row_ptr + relative_place(query, key, reach))


@triton.jit
def soft_cap(score, slot):
    """Return ``cap * tanh(score / cap)``, and its derivative."""
    cap = slot[4]
    bent = tanh(score / cap)
    return cap * bent, 1.0 - bent * bent


@triton.jit
def dense_bias(score, batch, head, query, key, inside, bias):
    """Add an element of a dense bias."""
    bias_ptr, stride_batch, stride_head, stride_query, stride_key = bias
    head_ptr = bias_ptr + batch * stride_batch + head * stride_head
    ptrs = head_ptr + query.to(tl.int64) * stride_query + key.to(tl.int64) * stride_key
    return score + tl.load(ptrs, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def one_of_the_list(score, slope, batch, head, query, key, inside, slot, bias):
    """Apply the modification whose number a slot has; `slope` is the derivative so far."""
    kind = slot[0]
    if kind == 1:
        score = alibi(score, batch, head, query, key, slot)
    elif kind == 2:
        score = relative_bias(score, batch, head, query, key, slot)
    elif kind == 3:
        score, factor = soft_cap(score, slot)
        slope *= factor
    elif kind == 4:
        score = dense_bias(score, batch, head, query, key, inside, bias)
    return score, slope


@triton.jit
def listed(score, batch, head, query, key, inside, first, second, bias):
    """Apply one or two modifications of the library, in order; their numbers are those of `nojit.kernels.flex.mods`."""
    ones = tl.where(inside, 1.0, 1.0)
    score, slope = one_of_the_list(score, ones, batch, head, query, key, inside, first, bias)
    return one_of_the_list(score, slope, batch, head, query, key, inside, second, bias)
