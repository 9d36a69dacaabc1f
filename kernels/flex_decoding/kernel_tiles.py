"""Device functions that the decoding kernels share: assignment of work, and stores.

A program owns a *tile*, up to `BLOCK_M` rows of queries that read the same head of keys and values, and one *split*, a
part of the keys that they see. Rows are packed: row r of a group of `pack` heads is query ``r // pack`` of head ``r %
pack``, so that keys and values are read once for all of these heads.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LN_2, LOG2_E, log_sums, outputs_of

WORD = tl.constexpr(32)
"""Keys in a 32-bit word of a bitmap."""


@triton.jit
def place_program(tiles, splits, groups):
    """Return the tile, the split, the group of heads and the batch of this program.

    Tiles that read the same keys are consecutive, and run at the same time.
    """
    number = tl.program_id(0)
    rest = number // tiles
    pair = rest // splits
    return number % tiles, rest % splits, pair % groups, pair // groups


@triton.jit
def part_of(split, splits, count):
    """Return the range [first, end) of a split's steps; `count` steps are divided evenly, the first splits take one more."""
    least = count // splits
    more = count - least * splits
    first = split * least + tl.minimum(split, more)
    return first, first + least + tl.where(split < more, 1, 0)


@triton.jit
def band_at(query, left, right, length):
    """Return the first key and the exclusive end that a query sees in a band; `length` is the number of keys."""
    return tl.maximum(query + left, 0), tl.minimum(query + right + 1, length)


@triton.jit
def length_of(lens_ptr, has_lens, index_b, kv_len):
    """Return the number of keys of a batch: from device memory if `has_lens`, but at most the capacity `kv_len`."""
    said = tl.load(lens_ptr + index_b, mask=has_lens != 0, other=kv_len)
    return tl.maximum(tl.minimum(said, kv_len), 0)


@triton.jit
def load_queries(q_ptr, heads, queries, inside, stride_qh, stride_qm, head_dim, BLOCK_D: tl.constexpr):
    """Load a tile of queries; rows that are not `inside`, and columns past `head_dim`, read as 0."""
    cols = tl.arange(0, BLOCK_D)
    ptrs = q_ptr + (heads.to(tl.int64) * stride_qh + queries.to(tl.int64) * stride_qm)[:, None] + cols[None, :]
    return tl.load(ptrs, mask=inside[:, None] & (cols < head_dim)[None, :], other=0.0)


@triton.jit
def modify(scores, index_b, own, places, keys, seen, first, second, bias, SCORE_MOD: tl.constexpr):
    """Modify scores with the function `SCORE_MOD` (see `nojit.kernels.flex.kernel_mods`); return them in base 2."""
    heads = own.to(tl.int64)[:, None]
    scores, _ = SCORE_MOD(scores, index_b, heads, places[:, None], keys[None, :], seen, first, second, bias)
    return scores * LOG2_E


@triton.jit
def store_results(
    acc, row_sum, row_max, out_ptr, lse_ptr, part_ptr, has_lse, index_b, heads, own, queries, inside, split, splits, q_len,
    v_dim, width, stride_ob, stride_oh, stride_om, BLOCK_DV: tl.constexpr,
):  # fmt: skip
    """Write the output of a tile and, if requested, its log-sums; with several splits, write a part instead.

    Parts are fp32 [batch, heads, q_len, splits, width]: `v_dim` numbers of the output, then their log-sum in base 2. If
    a row sees nothing in a split, only the log-sum, -inf, is written.
    """
    out = outputs_of(acc, row_sum)
    sums = log_sums(row_max, row_sum)
    cols = tl.arange(0, BLOCK_DV)
    in_cols = (cols < v_dim)[None, :]
    numbers = (index_b * heads + own) * q_len + queries
    if splits == 1:
        rows = index_b * stride_ob + own.to(tl.int64) * stride_oh + queries.to(tl.int64) * stride_om
        out_ptrs = out_ptr + rows[:, None] + cols[None, :]
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=inside[:, None] & in_cols)
        if has_lse != 0:
            tl.store(lse_ptr + numbers, sums * LN_2, mask=inside)
    else:
        part_ptrs = part_ptr + (numbers * splits + split) * width
        seen = inside & (row_sum > 0.0)
        tl.store(part_ptrs[:, None] + cols[None, :], out, mask=seen[:, None] & in_cols)
        tl.store(part_ptrs + v_dim, sums, mask=inside)
