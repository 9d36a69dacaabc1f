"""Gluon kernel of products of few rows with 4-bit weights, bound by memory: weights are loaded straight into registers.

The warps of a program share its columns and divide K. Each warp loads whole cache lines of bytes, unpacks them, and
multiplies on tensor cores: columns of b by rows of a. The program adds up the warps' sums in shared memory. A product
does not change if columns of the result are permuted, or if both operands permute K alike. So a thread loads adjacent
elements, and uses them at whichever positions tensor cores expect.
"""

from nojit.kernels.kernel_functions import divide
from nojit.kernels.mixed_mm.kernel_unpack import as_words, halves_of_words, halves_together, parted, unpack_words
from nojit.kernels.products.kernel_tiles import bits, part_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

ROWS = gl.constexpr(16)
"""Rows of bytes that the four threads of a column load, four rows each: 32 rows of w."""


@gluon.constexpr_function
def _layout_of_words(warps, unroll, width, rows):
    """Return the register layout of int32 words of b, [warps * unroll, 4 * rows, 8 * width].

    A thread holds `width` words in each of its rows, and a warp holds whole cache lines.
    """
    registers = [*bits(width, 1, 2, 3), *bits(rows, 1, 1, 3), *bits(unroll, 1, 0, 3)]
    lanes = [*bits(4, rows, 1, 3), *bits(8, width, 2, 3)]
    shape = [warps * unroll, 4 * rows, 8 * width]
    return gl.DistributedLinearLayout(registers, lanes, bits(warps, unroll, 0, 3), [], shape)


@gluon.constexpr_function
def _layout_of_rows(warps, unroll, rows):
    """Return the register layout of int32 pairs of a, [warps * unroll, rows, 16].

    In each row a thread holds four pairs: the 8 elements of K that it multiplies by its bytes of b.
    """
    registers = [*bits(4, 1, 2, 3), *bits(rows // 8, 8, 1, 3), *bits(unroll, 1, 0, 3)]
    lanes = [*bits(4, 4, 2, 3), *bits(8, 1, 1, 3)]
    return gl.DistributedLinearLayout(registers, lanes, bits(warps, unroll, 0, 3), [], [warps * unroll, rows, 16])


@gluon.constexpr_function
def _layout_of_pairs(warps, unroll, width):
    """Return the register layout of int32 pairs of scales, [warps * unroll, 16 * width]; a thread has those of its words."""
    registers = [*bits(2 * width, 1, 1, 2), *bits(unroll, 1, 0, 2)]
    lanes = [[0, 0], [0, 0], *bits(8, 2 * width, 1, 2)]
    return gl.DistributedLinearLayout(registers, lanes, bits(warps, unroll, 0, 2), [], [warps * unroll, 16 * width])


@gluon.jit
def _load_pairs(ptr, rows, depth, cols, n_len, depth_end, stride, LAYOUT: gl.constexpr, WORDS: gl.constexpr):
    """Load the scales (or zero points) of words: those of a word's first two columns, and those of its last two.

    Args:
        ptr: first scale.
        rows: row of the scales for each word: the number of its quantization group.
        depth: first row of w for each word.
        cols: column of each pair of scales.
        n_len: columns of w.
        depth_end: end of the rows to load.
        stride: distance between rows of scales.
        LAYOUT: layout of the pairs, from `_layout_of_pairs`.
        WORDS: layout of the words.
    """
    parent: gl.constexpr = gl.SliceLayout(1, WORDS)
    ptrs = as_words(ptr + rows.to(gl.int64)[:, None] * stride) + cols[None, :]
    COUNT: gl.constexpr = LAYOUT.shape[1] // 8
    inside = gl.max_constancy((depth < depth_end)[:, None] & (2 * cols < n_len)[None, :], [1, COUNT])
    # scales that are not loaded are multiplied by zeros of a, and must be finite
    pairs = gl.load(ptrs, mask=inside, other=0).reshape(LAYOUT.shape[0], LAYOUT.shape[1] // 2, 2)
    first, last = parted(pairs)
    first = gl.convert_layout(first, parent, assert_trivial=True)[:, None, :]
    last = gl.convert_layout(last, parent, assert_trivial=True)[:, None, :]
    return first, last


@gluon.jit
def _multiply(acc, b, a, pairs, dtype: gl.constexpr, GROUPS: gl.constexpr, UNROLL: gl.constexpr):
    """Add the product of a step's words b and rows a to `acc`, [warps, columns, rows]."""
    WARPS: gl.constexpr = acc.shape[0]
    BLOCK_N: gl.constexpr = acc.shape[1]
    BLOCK_M: gl.constexpr = acc.shape[2]
    product: gl.constexpr = acc.type.layout
    # bits of a byte's row: 4 threads, 2 steps of 16, 2 in a register; of its column: 8 threads, then 16 apart, 8 apart
    of_words: gl.constexpr = _layout_of_words(WARPS, UNROLL, BLOCK_N // 32, 2)
    first, second = parted(b.reshape(WARPS * UNROLL, ROWS // 2, 2, BLOCK_N // 4).permute(0, 1, 3, 2))
    first = gl.convert_layout(first, of_words, assert_trivial=True)
    second = gl.convert_layout(second, of_words, assert_trivial=True)
    weights = unpack_words(first, second, pairs, dtype, GROUPS).reshape(WARPS * UNROLL, ROWS // 2, 2 * BLOCK_N)
    weights = halves_of_words(weights, dtype).reshape(WARPS, UNROLL, 4, 2, 8, BLOCK_N // 32, 2, 2, 2, 2)
    weights = weights.permute(0, 5, 7, 8, 4, 1, 3, 6, 2, 9).reshape(WARPS, BLOCK_N, 2 * UNROLL * ROWS)
    given = halves_together(a.reshape(WARPS * UNROLL, BLOCK_M, ROWS // 2, 2)).reshape(WARPS * UNROLL, BLOCK_M, ROWS)
    given = halves_of_words(given, dtype).reshape(WARPS, UNROLL, BLOCK_M, 4, 2, 2, 2).permute(0, 1, 4, 5, 3, 6, 2)
    given = given.reshape(WARPS, 2 * UNROLL * ROWS, BLOCK_M)
    weights = gl.convert_layout(weights, gl.DotOperandLayout(0, product, 2), assert_trivial=True)
    given = gl.convert_layout(given, gl.DotOperandLayout(1, product, 2), assert_trivial=True)
    return mma_v2(weights, given, acc)


@gluon.jit
def _store_sums(acc, out_ptr, col, m_len, n_len, stride_om):
    """Add up the sums of all warps, [warps, columns, rows], in order, and store them as rows from column `col` on."""
    WARPS: gl.constexpr = acc.shape[0]
    BLOCK_N: gl.constexpr = acc.shape[1]
    BLOCK_M: gl.constexpr = acc.shape[2]
    # a thread has all sums of up to 4 adjacent results
    EACH: gl.constexpr = min(4, max(1, BLOCK_N * BLOCK_M // (WARPS * 32)))
    of_results: gl.constexpr = gl.BlockedLayout([WARPS, EACH], [1, 32], [1, WARPS], [1, 0])
    # columns are 16 apart, 8 apart, then 8 threads: see `_multiply`
    acc = acc.reshape(WARPS, BLOCK_N // 16, 2, 8, BLOCK_M).permute(0, 4, 3, 1, 2).reshape(WARPS, BLOCK_M * BLOCK_N)
    total = gl.sum(gl.convert_layout(acc, of_results), 0)
    index = gl.arange(0, BLOCK_N * BLOCK_M, layout=gl.SliceLayout(0, of_results))
    line = index // BLOCK_N
    cols = col + index % BLOCK_N
    out_ptrs = out_ptr + line.to(gl.int64) * stride_om + cols
    gl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=(cols < n_len) & (line < m_len))


@gluon.jit
def _load_step(step, start, steps, left, a_from, b_from, ROTATED: gl.constexpr):
    """Load the pairs of a and the words of b of one step; past the last step, a reads as 0.

    A word is four bytes of b; a pair is two adjacent elements of a, for one byte's row of b.

    Args:
        step: number of the step.
        start: with `ROTATED`, the step of K that step 0 loads.
        steps: number of steps; with `ROTATED`, steps wrap around there.
        left: rows of b, and pairs of each row of a, from the base pointers on.
        a_from: base pointer, offsets, and column (pair) of each element to load of a.
        b_from: base pointer, offsets, row of each word, words between steps, and a mask of the existing columns.
        ROTATED: whether programs start at different steps.
    """
    a_base, a_offsets, a_cols = a_from
    b_base, b_offsets, b_rows, b_step, in_cols = b_from
    STEP: gl.constexpr = ROWS * a_cols.shape[0]
    place = step
    if ROTATED:
        place += start
        place = gl.where(place >= steps, place - steps, place)
    remaining = left - place * STEP
    if ROTATED:
        remaining = gl.where(step < steps, remaining, 0)
    a = gl.load(a_base + place * STEP + a_offsets, mask=a_cols < remaining, other=0)
    return a, gl.load(b_base + place * b_step + b_offsets, mask=in_cols & (b_rows < remaining))


@gluon.jit
def mixed_mm_few_kernel(
    a_ptr,
    b_ptr,
    scales_ptr,
    zeros_ptr,
    out_ptr,
    m_len,
    n_len,
    k_len,
    group_size,
    splits,
    width,
    programs,  # noqa: ARG001 - the configs' rules read it
    stride_am,
    stride_bk,
    stride_sk,
    stride_zk,
    stride_om,
    GROUPS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    UNROLL: gl.constexpr,
):
    """Write ``a @ w`` or, with several `splits`, the sums of parts of K, for at most `BLOCK_M` rows.

    a [m_len, k_len] and b, bytes [k_len / 2, n_len], are row-major with row strides of multiples of 16 bytes; so are
    scales and zero points, [groups, n_len], if `GROUPS` has them. `group_size` is a multiple of 32. The rows of b in a
    step (16 for each warp and `UNROLL`), and `BLOCK_M` rows of a, span less than 2^31 bytes each. The result is
    [splits, m_len, width]. Grid: splits * cdiv(n_len, BLOCK_N).

    `programs`: number of programs, which the manifest's grid reads.
    """
    WARPS: gl.constexpr = gl.num_warps()
    # words of a thread in a row of bytes, and rows of bytes that a program loads per step
    WIDTH: gl.constexpr = BLOCK_N // 32
    STEP: gl.constexpr = WARPS * UNROLL * ROWS
    dtype: gl.constexpr = a_ptr.dtype.element_ty
    of_words: gl.constexpr = _layout_of_words(WARPS, UNROLL, WIDTH, 4)
    of_twos: gl.constexpr = _layout_of_words(WARPS, UNROLL, WIDTH, 2)
    of_rows: gl.constexpr = _layout_of_rows(WARPS, UNROLL, BLOCK_M)
    of_pairs: gl.constexpr = _layout_of_pairs(WARPS, UNROLL, WIDTH)
    product: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    tile = gl.program_id(0)
    split = tile * 0
    # a division takes as long as a load
    if splits > 1:
        tile, split = divide(tile, splits)
    col = tile * BLOCK_N
    first, last = part_of(split, splits, gl.cdiv(k_len, 2 * STEP))
    deep = first.to(gl.int64) * STEP
    left = gl.minimum(last * STEP, k_len // 2) - first * STEP

    parts = gl.arange(0, WARPS * UNROLL, layout=gl.SliceLayout(1, gl.SliceLayout(2, of_words)))
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(0, gl.SliceLayout(2, of_words)))
    words = gl.arange(0, 8 * WIDTH, layout=gl.SliceLayout(0, gl.SliceLayout(1, of_words)))
    b_rows = parts[:, None, None] * ROWS + rows[None, :, None]
    # all words of a thread lie within 16 bytes, and rows are multiples of 16 bytes long
    in_cols = gl.max_constancy((col + 4 * words < n_len)[None, None, :], [1, 1, WIDTH])
    b_base = as_words(b_ptr + deep * stride_bk + col)
    b_offsets = (b_rows * (stride_bk // 4)).to(gl.int32) + words[None, None, :]

    parts = gl.arange(0, WARPS * UNROLL, layout=gl.SliceLayout(1, gl.SliceLayout(2, of_rows)))
    lines = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, gl.SliceLayout(2, of_rows)))
    depth = gl.arange(0, ROWS, layout=gl.SliceLayout(0, gl.SliceLayout(1, of_rows)))
    a_cols = parts[:, None, None] * ROWS + depth[None, None, :]
    # past the last row, load that row again; its result is not stored
    lines = gl.minimum(lines, m_len - 1)[None, :, None]
    a_base = as_words(a_ptr + 2 * deep)
    a_offsets = (lines * (stride_am // 2)).to(gl.int32) + a_cols

    group_parts = gl.arange(0, WARPS * UNROLL, layout=gl.SliceLayout(1, of_pairs))
    group_depth = 2 * first * STEP + group_parts * 2 * ROWS
    group_cols = gl.arange(0, 16 * WIDTH, layout=gl.SliceLayout(0, of_pairs)) + col // 2
    # values of another split-K part, such as infinite scales, must not enter
    depth_end = 2 * (first * STEP + left)

    a_from = (a_base, a_offsets, a_cols)
    # all rows of a thread exist or none does; absent words are multiplied by zeros of a
    b_from = (b_base, b_offsets, b_rows // 4 * 4, STEP // 4 * stride_bk, in_cols)
    steps = last - first
    # programs with few columns need little of a: eight sets of them start at different steps, so that they do not all
    # read the same cache lines
    ROTATED: gl.constexpr = BLOCK_N == 32 and GROUPS == "none"
    start = tile // 16 % 8 * steps // 8
    acc = gl.zeros([WARPS, BLOCK_N, BLOCK_M], gl.float32, product)
    a, b = _load_step(0, start, steps, left, a_from, b_from, ROTATED)
    for step in range(0, steps, 2):
        # two steps per iteration, so that prefetched values stay in their registers; if their number is odd, the last
        # one reads zeros of a
        for ahead in gl.static_range(1, 3):
            next_a, next_b = _load_step(step + ahead, start, steps, left, a_from, b_from, ROTATED)
            pairs = ()
            if GROUPS != "none":
                groups, _ = divide(group_depth, group_size)
                pairs = _load_pairs(
                    scales_ptr, groups, group_depth, group_cols, n_len, depth_end, stride_sk, of_pairs, of_twos
                )
            if GROUPS == "zeros":
                pairs = pairs + _load_pairs(
                    zeros_ptr, groups, group_depth, group_cols, n_len, depth_end, stride_zk, of_pairs, of_twos
                )
            group_depth += 2 * STEP
            acc = _multiply(acc, b, a, pairs, dtype, GROUPS, UNROLL)
            a = next_a
            b = next_b
    if dtype != gl.float16:
        # unpacked weights are a quarter of their value
        acc *= 4
    _store_sums(acc, out_ptr + split.to(gl.int64) * m_len * width, col, m_len, n_len, stride_om)
