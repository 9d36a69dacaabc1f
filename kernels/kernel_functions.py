"""Device functions of several families: fast activations and divisions, and programmatic dependent launch.

Programmatic dependent launch lets a kernel start before the previous one has ended, on architectures that have it. The
later kernel sets the option ``launch_pdl`` and calls `wait_for_last` before it reads results of the earlier one; the
earlier kernel calls `let_next_start`.
"""

import triton
import triton.language as tl


@triton.jit
def gelu(x):
    """Return ``x * Phi(x)`` of fp32 values, with an error of at most 4e-7.

    Phi is the normal distribution (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415). The tail
    ``Phi(-abs(x))`` is ``t * exp2(q(t) - x * x * log2(e) / 2)`` with ``t = 1 / (1 + 0.318198 * abs(x))`` and a
    polynomial q, fitted to a relative error of 8e-8. Triton's erf branches for each element, and its instructions
    depend on one another; a program of few warps cannot hide that latency.
    """
    # rsqrt of a square: two instructions, where a division takes seven for cases that do not occur here
    root = tl.rsqrt(1.0 + 0.3181980515339463 * tl.abs(x))
    t = root * root
    q = -0.2980310230483802 * t + 1.407855633364644
    q = q * t - 2.424430020371606
    q = q * t + 1.661098983275464
    q = q * t - 0.5517197292937264
    q = q * t + 0.7654650011801851
    q = q * t + 1.4159184444858308
    # the whole tail: half of erfc
    q = q * t - 2.9761573982738416
    tail = t * tl.exp2(q - 0.7213475204444817 * x * x)
    # the tail of an infinity is 0: do not multiply +inf by it
    return x * tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def gelu_rounded(x):
    """Return ``x * Phi(x)`` of fp32 values, for results rounded to 16 bits, with 3/4 of the instructions of `gelu`.

    The tail ``Phi(-abs(x))`` is ``exp2(q(abs(x)))`` with a polynomial q. For every 16-bit x the result rounds to the
    nearest 16-bit value or a neighbour of it; for 99 % of fp16 numbers to the nearest.
    """
    # clamp, so that infinity is not multiplied by a tail of 0
    far = tl.minimum(tl.abs(x), 13.5)
    q = 4.585314883343017e-08 * far - 2.645477252372075e-06
    q = q * far + 6.537329318234697e-05
    q = q * far - 0.0009204282541759312
    q = q * far + 0.008366182446479797
    q = q * far - 0.05350281298160553
    q = q * far - 0.459069162607193
    q = q * far - 1.1509582996368408
    q = q * far - 1.0000216960906982
    # a select keeps NaN and the sign of zero
    return tl.where(x < 0.0, 0.0, x) - far * tl.exp2(q)


@triton.jit
def silu(x):
    """Return ``x * logistic(x)`` of fp32 values."""
    # rsqrt of a square: two instructions, where a division takes seven
    root = tl.rsqrt(1.0 + tl.exp2(-1.4426950408889634 * x))
    return x * (root * root)


@triton.jit
def let_next_start():
    """Let the stream's next kernel launch once all programs of this kernel have called this function."""
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_last():
    """Wait until the previous kernel of the stream has ended and its results can be read."""
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_wait()


@triton.jit
def divide(number, by):
    """Return ``number // by`` and ``number % by`` of int32 numbers that are not negative, in few instructions."""
    # a signed division takes nearly twice the instructions
    quotient = (tl.cast(number, tl.uint32) // tl.cast(by, tl.uint32)).to(tl.int32)
    return quotient, number - quotient * by


@triton.jit
def reciprocal(by):
    """Return the number that `divide_by` takes as `inverse`, for a divisor `by` of at least 1 (int32)."""
    # all bits set: -1 as a signed number
    return tl.cast(by * 0 - 1, tl.uint32) // tl.cast(by, tl.uint32)


@triton.jit
def divide_by(number, by, inverse):
    """Return ``number // by`` and ``number % by`` without a division; `inverse` is ``reciprocal(by)``."""
    # for numbers of 31 bits this is the quotient, or one less
    quotient = tl.umulhi(tl.cast(number, tl.uint32), inverse).to(tl.int32)
    rest = number - quotient * by
    short = rest >= by
    return tl.where(short, quotient + 1, quotient), tl.where(short, rest - by, rest)


@triton.jit
def small_reciprocal(by):
    """Return the number that `divide_small` takes as `inverse`, for a divisor `by` of at least 1 (int32)."""
    # 2**31 / by, rounded up
    return tl.cast(by * 0 + 2147483647, tl.uint32) // tl.cast(by, tl.uint32) + 1


@triton.jit
def divide_small(number, by, inverse):
    """Return ``number // by`` and ``number % by`` where ``number * by`` is below 2**31; `inverse` is ``small_reciprocal(by)``.

    It takes half the instructions of `divide_by`.
    """
    # the inverse is too large by less than 1, and the product by less than 1 / by
    quotient = tl.umulhi(tl.cast(number + number, tl.uint32), inverse).to(tl.int32)
    return quotient, number - quotient * by


@triton.jit
def opaque(sizes):
    """Return int32 `sizes` as values that the compiler cannot see through, in a warp-specialized kernel.

    Values derived from them are then computed in this partition. Otherwise the compiler computes them before the
    partitions start, and keeps them in registers that no partition can spare. A kernel that spills to local memory
    starts 2 us later.
    """
    given = ()
    for place in tl.static_range(len(sizes)):
        given = given + (_opaque(sizes[place]),)  # noqa: RUF005 - kernels unpack no tuples
    return given


@triton.jit
def _opaque(value):
    return tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r", [value], tl.int32, is_pure=False, pack=1)
