"""Score modifications, in Triton: each returns the modified score and its derivative by the score.

A modification takes ``(score, batch, head, query, key, inside, first, second, bias)``:

- `score`: fp32, a tile of scores that are scaled already; `query` and `key`: int32 places that broadcast to the tile;
- `batch` and `head`: int64 numbers; `head` counts query heads, and may differ by row;
- `inside`: which elements of the tile exist; of the others nothing may be read, and any result will do;
- `first` and `second`: slots of `nojit.kernels.flex.mods`: kind, table, its strides by batch and head, value, reach;
- `bias`: a dense bias and its four strides.

Derivatives that are not used are not computed: the compiler drops them.
"""

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
def height_of(batch, head, slot):
    """Return the slope of a head, or of each of several, if a slot has alibi, else 0: a branch over few numbers."""
    height = (head * 0).to(tl.float32)
    if slot[0] == 1:
        height = tl.load(slot[1] + batch * slot[2] + head * slot[3])
    return height


@triton.jit
def capped(score, has_cap, cap):
    """Return ``cap * tanh(score / cap)`` if there is a cap, and the derivative, which follows from the result."""
    cap = tl.where(has_cap, cap, 1.0)
    if has_cap:
        score = cap * tanh(score / cap)
    # without a cap a score may be infinite
    bent = tl.where(has_cap, score, 0.0) * (1.0 / cap)
    return score, 1.0 - bent * bent


@triton.jit
def light(score, batch, head, query, key, inside, first, second, bias):  # noqa: ARG001 - every modification's parameters
    """Apply alibi and a soft cap, in any order, or one of them, in few registers, for operands of 16 bits.

    Near 0 this hyperbolic tangent is as good as one of fp32 is near 1, so a score is off by 1e-7 caps, which is nothing
    beside the rounding of operands. Distances are taken in branches, as what two places share would be kept.
    """
    height = height_of(batch, head, first)
    if height != 0.0:
        score += height * (key - query).to(tl.float32)
    is_first = first[0] == 3
    has_cap = is_first | (second[0] == 3)
    cap = tl.where(has_cap, tl.where(is_first, first[4], second[4]), 1.0)
    if has_cap:
        score = cap - 2.0 * cap / (1.0 + tl.exp2(score * (2.0 * LOG2_E / cap)))
    # without a cap a score may be infinite
    bent = tl.where(has_cap, score, 0.0) * (1.0 / cap)
    height = height_of(batch, head, second)
    if height != 0.0:
        score += height * (key - query).to(tl.float32)
    return score, 1.0 - bent * bent


@triton.jit
def tilted(score, batch, head, query, key, inside, first, second, bias):  # noqa: ARG001 - as above
    """Apply alibi, which is in either slot, and nothing else: without branches, and with a derivative that is no tensor."""
    is_first = first[0] == 1
    height_ptr = tl.where(is_first, first[1], second[1])
    height_ptr += batch * tl.where(is_first, first[2], second[2]) + head * tl.where(is_first, first[3], second[3])
    return score + tl.load(height_ptr) * (key - query).to(tl.float32), 1.0


@triton.jit
def bounded(score, batch, head, query, key, inside, first, second, bias):  # noqa: ARG001 - as above
    """Apply a soft cap, which is in either slot, and nothing else: without branches, as `light` does."""
    cap = tl.where(first[0] == 3, first[4], second[4])
    score = cap - 2.0 * cap / (1.0 + tl.exp2(score * (2.0 * LOG2_E / cap)))
    bent = score * (1.0 / cap)
    return score, 1.0 - bent * bent


@triton.jit
def relative_place(query, key, reach):
    """Return where a table of distances has that from query to key."""
    return tl.minimum(tl.maximum(key - query, -reach), reach) + reach


@triton.jit
def listed(score, batch, head, query, key, inside, first, second, bias):
    """Apply one or two modifications of the library, in order.

    Those that look each score up, a table of distances and a dense bias, only add: between what is computed before and
    after, each of them comes once, whichever slot it is in, as addresses fill registers.
    """
    distance = (key - query).to(tl.float32)
    score, slope = capped(score + height_of(batch, head, first) * distance, first[0] == 3, first[4])
    if (first[0] == 2) | (second[0] == 2):
        is_first = first[0] == 2
        row_ptr = tl.where(is_first, first[1], second[1])
        row_ptr += batch * tl.where(is_first, first[2], second[2]) + head * tl.where(is_first, first[3], second[3])
        score += tl.load(row_ptr + relative_place(query, key, tl.where(is_first, first[5], second[5])))
    if (first[0] == 4) | (second[0] == 4):
        bias_ptr, stride_batch, stride_head, stride_query, stride_key = bias
        head_ptr = bias_ptr + batch * stride_batch + head * stride_head
        ptrs = head_ptr + query.to(tl.int64) * stride_query + key.to(tl.int64) * stride_key
        score += tl.load(ptrs, mask=inside, other=0.0).to(tl.float32)
    score, factor = capped(score + height_of(batch, head, second) * distance, second[0] == 3, second[4])
    return score, slope * factor


@triton.jit
def add_gradient(grad, batch, head, query, key, inside, table, bias):
    """Add what one modification's scores give to the gradient of what it captures, atomically.

    Args:
        grad: fp32, the gradient of its results; 0 where nothing is seen.
        batch: as for modifications, and so are `head`, `query`, `key` and `inside`.
        head: likewise.
        query: likewise.
        key: likewise.
        inside: likewise.
        table: the kind, 0 if no gradient is wanted; what to add to, its strides by batch and head, and the reach.
        bias: what to add the gradient of a dense bias to, and its four strides.
    """
    kind, table_ptr, stride_batch, stride_head, reach = table
    row_ptr = table_ptr + batch * stride_batch + head * stride_head
    if kind == 1:
        tl.atomic_add(row_ptr, tl.sum(grad * (key - query).to(tl.float32)), sem="relaxed")
    if kind == 2:
        tl.atomic_add(row_ptr + relative_place(query, key, reach), grad, mask=inside, sem="relaxed")
    if kind == 4:
        bias_ptr, bias_batch, bias_head, bias_query, bias_key = bias
        head_ptr = bias_ptr + batch * bias_batch + head * bias_head
        ptrs = head_ptr + query.to(tl.int64) * bias_query + key.to(tl.int64) * bias_key
        tl.atomic_add(ptrs, grad, mask=inside, sem="relaxed")


@triton.jit
def subtract_unbalanced(rest, pull, batch, head, table):
    """Take back, atomically, what a slope's gradient got from rows whose gradients do not sum to what they should.

    Args:
        rest: fp32 [M], by how much the rows' sums are too large.
        pull: fp32 [M], sums of weights times derivatives times distances: what a slope's gradient gets of 1 in `rest`.
        batch: as for `add_gradient`, and so are `head` and `table`.
        head: likewise.
        table: likewise.
    """
    kind, table_ptr, stride_batch, stride_head, _ = table
    if kind == 1:
        tl.atomic_add(table_ptr + batch * stride_batch + head * stride_head, -tl.sum(rest * pull), sem="relaxed")
