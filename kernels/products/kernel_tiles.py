"""Device functions that Triton kernels of dense products share: order of tiles, K loops, epilogues, partial sums.

Gluon kernels use `place_piece`, `part_of` and `activate` as well. Offsets that grow with a tensor are 64-bit.
"""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import divide, gelu, gelu_rounded

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.constexpr_function
def bits(count, length, dim, rank):
    """Return the bases of a linear register layout for an index that counts to `count` in steps of `length` along `dim`.

    `count` is a power of two; each basis is a list of `rank` coordinates.
    """
    return [[length << bit if at == dim else 0 for at in range(rank)] for bit in range(count.bit_length() - 1)]


@triton.jit
def place_piece(number, m_len, n_len, steps, splits, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return the location of piece of work `number`: matrix, split-K part, first row, first column, first step, end of steps.

    Consecutive pieces go down `GROUP` tiles (a power of two) before they go across, so that programs that run at the
    same time read few rows and columns.
    """
    tiles_m = (m_len + BLOCK_M - 1) // BLOCK_M
    tiles_n = (n_len + BLOCK_N - 1) // BLOCK_N
    height = tl.minimum(tiles_m, GROUP)
    shift = number * 0
    for bit in tl.static_range(1, GROUP.bit_length()):
        shift += tl.where(height >> bit > 0, 1, 0)
    across = number >> shift
    down = number & (height - 1)
    index = number * 0
    split = index
    first = index
    last = index + steps
    # no copy can start before this is known, and usually no division is needed. A division takes a tenth of a
    # microsecond, and so does each branch around one. So a single branch skips all of them
    if (number >= height * tiles_n) | (height & (height - 1) != 0) | (splits > 1):
        tile = number
        if number >= tiles_m * tiles_n:
            index, tile = divide(number, tiles_m * tiles_n)
        if splits > 1:
            index, split = divide(index, splits)
            first, last = part_of(split, splits, steps)
        start = index * 0
        if tile >= GROUP * tiles_n:
            start, tile = divide(tile, GROUP * tiles_n)
            start = start * GROUP
        across = tile // GROUP
        down = tile % GROUP
        if tiles_m - start < GROUP:
            across, down = divide(tile, tiles_m - start)
        down += start
    return index, split, down * BLOCK_M, across * BLOCK_N, first, last


@triton.jit
def place_tile(number, m_len, n_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return the first row and the first column of tile `number`, in the order of `place_piece`."""
    _, _, row, col, _, _ = place_piece(number, m_len, n_len, 0, 1, BLOCK_M, BLOCK_N, GROUP)
    return row, col


@triton.jit
def part_of(split, splits, steps):
    """Return the range [first, end) of the steps of split-K part `split`; `splits` parts share `steps` steps."""
    first = split * 0
    last = steps
    if splits > 1:
        share, longer = divide(steps, splits)
        first = split * share + tl.minimum(split, longer)
        last = first + share + (split < longer)
    return first, last


@triton.jit
def activate(x, activation, ROUNDED: tl.constexpr = False):
    """Apply the activation with the given number, of `nojit.kernels.products.activations`, to fp32 values.

    `ROUNDED` states that results are then rounded to 16 bits. Numbers from 4 on share one formula, ``scale *
    logistic(u) + shift``, to save code in every tile. Its exp overflows to inf for very negative u, which gives the
    correct 0.
    """
    if activation == 1:
        x = tl.where(x < 0.0, 0.0, x)
    elif activation == 2:
        x = x * x
    elif activation == 3:
        x = gelu_rounded(x) if ROUNDED else gelu(x)
    elif activation > 3:
        # 0.5 * (1 + tanh(u)) is the logistic function of 2u; 1.5957691 is 2 * sqrt(2 / pi)
        cubic = tl.where(activation == 4, 0.07135481627313802 * x * x, 0.0)
        slope = tl.where(activation == 4, 1.5957691216057308, tl.where(activation == 7, 2.0, 1.0))
        logistic = 1.0 / (1.0 + tl.exp2(-x * (slope + cubic) * LOG2_E))
        scale = tl.where(activation < 6, x, tl.where(activation == 7, 2.0, 1.0))
        x = scale * logistic - tl.where(activation == 7, 1.0, 0.0)
    return x


@triton.jit
def add_product(acc, a, b, PRECISION: tl.constexpr):
    """Return ``acc + a @ b`` for one step of K.

    fp32 products are first summed up within the step, so that the error grows with the number of steps and not with K.
    """
    # setting max_num_imprecise_acc only keeps Triton from fusing the addition
    if a.dtype == tl.float32 and PRECISION == "ieee":
        acc += tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=a.shape[1])
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc


@triton.jit
def multiply(
    acc, a_ptrs, b_ptrs, in_rows, in_cols, depth, stride_ak, stride_bk, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Add the product of a [BLOCK_M, depth] and b [depth, BLOCK_N] to `acc`; the pointers are those of the first step of K.

    Only the rest after the last whole step is masked, so that any depth needs no further variant.
    """
    for _ in range(depth // BLOCK_K):
        a = tl.load(a_ptrs, mask=in_rows, other=0)
        b = tl.load(b_ptrs, mask=in_cols, other=0)
        acc = add_product(acc, a, b, PRECISION)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    left = depth % BLOCK_K
    if left > 0:
        lanes = tl.arange(0, BLOCK_K)
        a = tl.load(a_ptrs, mask=in_rows & (lanes < left)[None, :], other=0)
        b = tl.load(b_ptrs, mask=in_cols & (lanes < left)[:, None], other=0)
        acc = add_product(acc, a, b, PRECISION)
    return acc


@triton.jit
def spread(ptr, rows, cols, stride_row, stride_col):
    """Return pointers to the elements of a tile at `rows` and `cols`."""
    return ptr + rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col


@triton.jit
def apply_epilogue(acc, input_ptrs, inside, alpha, beta, activation):
    """Return ``activation(alpha * acc + beta * input)``; if beta is 0, the input is not read."""
    acc *= alpha
    if beta != 0.0:
        acc += beta * tl.load(input_ptrs, mask=inside, other=0.0).to(tl.float32)
    return activate(acc, activation)
