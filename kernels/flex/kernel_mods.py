"""Score modifications in Triton: each returns the modified score and its derivative by the score.

A modification takes ``(score, batch, head, query, key, inside, first, second, bias)``:

- `score`: fp32, a tile of scaled scores; `query` and `key`: int32 positions that broadcast to the tile;
- `batch` and `head`: int64 numbers; `head` counts query heads, and may differ by row;
- `inside`: the elements of the tile that exist; nothing may be read for others, and their results are ignored;
- `first` and `second`: slots of `nojit.kernels.score_mod.mods`: kind, table, its strides by batch and head, value, reach;
- `bias`: a dense bias and its four strides.

The compiler drops unused derivatives.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def tanh(x):
    """Return the hyperbolic tangent of fp32 values.

    Near 0, where 1 - exp(-2 |x|) would cancel, it is a polynomial (Cephes, tanhf.c).
    """
    falling = tl.exp2(-2.0 * tl.abs(x) * LOG2_E)
    away = (1.0 - falling) / (1.0 + falling)
    square = x * x
    near = ((-5.70498872745e-3 * square + 2.06390887954e-2) * square - 5.37397155531e-2) * square + 1.33314422036e-1
    near = (near * square - 3.33332819422e-1) * square * x + x
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -away, away))


@triton.jit
def height_of(batch, head, slot):
    """Return the alibi slope of a head, or of several heads, if a slot has alibi, else 0."""
    height = (head * 0).to(tl.float32)
    if slot[0] == 1:
        height = tl.load(slot[1] + batch * slot[2] + head * slot[3])
    return height


@triton.jit
def capped(score, has_cap, cap):
    """Return ``cap * tanh(score / cap)`` if `has_cap`, else `score`; and the derivative, computed from the result."""
    cap = tl.where(has_cap, cap, 1.0)
    if has_cap:
        score = cap * tanh(score / cap)
    # without a cap a score may be infinite
    ratio = tl.where(has_cap, score, 0.0) * (1.0 / cap)
    return score, 1.0 - ratio * ratio


@triton.jit
def light(score, batch, head, query, key, inside, first, second, bias):  # noqa: ARG001 - every modification's parameters
    """Apply alibi and a soft cap, in any order, or one of them; for 16-bit operands, in few registers.

    Near 0 this tanh has the absolute error of fp32 near 1, so a score is off by 1e-7 times the cap, far less than the
    rounding of the operands. Both branches compute distances, because the compiler would keep a shared one in
    registers.

    `inside`: elements of the tile that exist.
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
    ratio = tl.where(has_cap, score, 0.0) * (1.0 / cap)
    height = height_of(batch, head, second)
    if height != 0.0:
        score += height * (key - query).to(tl.float32)
    return score, 1.0 - ratio * ratio


@triton.jit
def tilted(score, batch, head, query, key, inside, first, second, bias):  # noqa: ARG001 - as above
    """Apply alibi from either slot, and nothing else: without branches, and with a scalar derivative.

    `inside`: elements of the tile that exist.
    """
    is_first = first[0] == 1
    height_ptr = tl.where(is_first, first[1], second[1])
    height_ptr += batch * tl.where(is_first, first[2], second[2]) + head * tl.where(is_first, first[3], second[3])
    return score + tl.load(height_ptr) * (key - query).to(tl.float32), 1.0


@triton.jit
def bounded(score, batch, head, query, key, inside, first, second, bias):  # noqa: ARG001 - as above
    """Apply a soft cap from either slot, and nothing else: without branches, with the tanh of `light`.

    `inside`: elements of the tile that exist.
    """
    cap = tl.where(first[0] == 3, first[4], second[4])
    score = cap - 2.0 * cap / (1.0 + tl.exp2(score * (2.0 * LOG2_E / cap)))
    ratio = score * (1.0 / cap)
    return score, 1.0 - ratio * ratio


@triton.jit
def relative_place(query, key, reach):
    """Return the index in a relative-bias table of the distance ``key - query``, clamped to `reach`."""
    return tl.minimum(tl.maximum(key - query, -reach), reach) + reach


@triton.jit
def listed(score, batch, head, query, key, inside, first, second, bias):
    """Apply one or two modifications of the library, in order.

    Relative and dense biases load a value for each score and add it. The code has each of these loads only once,
    between the first and the second modification, whichever slot needs it, because their addresses fill registers.

    `inside`: elements of the tile that exist.
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
    """Add a modification's contribution to the gradient of the tensor that it captures, atomically.

    Args:
        grad: fp32 gradient by the scores that the modification returns; 0 for masked elements.
        batch: batch number, int64.
        head: query head, int64.
        query: positions of the queries, int32.
        key: positions of the keys, int32.
        inside: elements of the tile that exist.
        table: the slot's kind, 0 for no gradient; the gradient to add to; its strides by batch and head; the reach.
        bias: the gradient of a dense bias to add to, and its four strides.
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
    """Subtract from an alibi slope's gradient, atomically, the error of rows whose gradients have a wrong sum.

    Args:
        rest: fp32 [M], the excess of each row's sum.
        pull: fp32 [M], the sum of weight times derivative times distance over each row: the error in the slope's
            gradient for each unit of `rest`.
        batch: batch number, int64.
        head: query head, int64.
        table: the slot's kind, 0 for no gradient; the gradient; its strides by batch and head; the reach.
    """
    kind, table_ptr, stride_batch, stride_head, _ = table
    if kind == 1:
        tl.atomic_add(table_ptr + batch * stride_batch + head * stride_head, -tl.sum(rest * pull), sem="relaxed")
