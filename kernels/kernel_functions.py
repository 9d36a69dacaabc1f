"""What kernels of several families share, in Triton: few instructions for functions and divisions, and when a kernel starts.

Programmatic dependent launch, where the architecture has it: the kernel that is launched later sets the option ``launch_pdl``, and
calls `wait_for_last` before it reads what the earlier one wrote, which calls `let_next_start`.
"""

import triton
import triton.language as tl


@triton.jit
def gelu(x):
    """Return ``x * Phi(x)`` of fp32 values (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415), off by 4e-7 at most.

    The tail ``Phi(-abs(x))`` is ``t * exp2(q(t) - x * x * log2(e) / 2)`` with ``t = 1 / (1 + 0.318198 * abs(x))`` and a
    polynomial q, fitted so that the tail is right to 8e-8 of itself. The library's erf takes branches for each element, and an
    element's instructions wait for one another, which a program of few warps cannot hide.
    """
    # a square, for a division cares for numbers that these are not: two instructions, and no seven
    root = tl.rsqrt(1.0 + 0.3181980515339463 * tl.abs(x))
    t = root * root
    q = -0.2980310230483802 * t + 1.407855633364644
    q = q * t - 2.424430020371606
    q = q * t + 1.661098983275464
    q = q * t - 0.5517197292937264
    q = q * t + 0.7654650011801851
    q = q * t + 1.4159184444858308
    # of the whole tail: half of erfc
    q = q * t - 2.9761573982738416
    tail = t * tl.exp2(q - 0.7213475204444817 * x * x)
    # the tail of an infinity is 0, which it must not be multiplied by where it is positive
    return x * tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def gelu_rounded(x):
    """Return ``x * Phi(x)`` of fp32 values for results that are rounded to 16 bits, in three quarters of the instructions of `gelu`.

    The tail ``Phi(-abs(x))`` is ``exp2(q(abs(x)))`` with a polynomial q: of every number of 16 bits the result is rounded to the
    nearest or its neighbour, of fp16 in 99 of a hundred to the nearest.
    """
    # so that the tail of an infinity, by which it is multiplied, is no infinity's
    far = tl.minimum(tl.abs(x), 13.5)
    q = 4.585314883343017e-08 * far - 2.645477252372075e-06
    q = q * far + 6.537329318234697e-05
    q = q * far - 0.0009204282541759312
    q = q * far + 0.008366182446479797
    q = q * far - 0.05350281298160553
    q = q * far - 0.459069162607193
    q = q * far - 1.1509582996368408
    q = q * far - 1.0000216960906982
    # a NaN stays where it is not compared, and so does the sign of a zero
    return tl.where(x < 0.0, 0.0, x) - far * tl.exp2(q)


@triton.jit
def let_next_start():
    """Let the next kernel of the stream be launched as soon as all programs of this one have come so far."""
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_last():
    """Wait until the kernel before this one in its stream has ended and what it wrote can be read."""
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_wait()


@triton.jit
def divide(number, by):
    """Return ``number // by`` and ``number % by`` of int32 numbers that are not negative."""
    # a division of signed numbers takes nearly twice the instructions
    quotient = (tl.cast(number, tl.uint32) // tl.cast(by, tl.uint32)).to(tl.int32)
    return quotient, number - quotient * by


@triton.jit
def reciprocal(by):
    """Return what `divide_by` divides by an int32 number with, of 1 and more."""
    # of all bits, which is -1 of a number with a sign
    return tl.cast(by * 0 - 1, tl.uint32) // tl.cast(by, tl.uint32)


@triton.jit
def divide_by(number, by, inverse):
    """Return what `divide` does, in a few instructions; `inverse` is the `reciprocal` of what a loop divides by all the time."""
    # short of the quotient by less than a half, for numbers of 31 bits: rounded down, at most by one
    quotient = tl.umulhi(tl.cast(number, tl.uint32), inverse).to(tl.int32)
    rest = number - quotient * by
    short = rest >= by
    return tl.where(short, quotient + 1, quotient), tl.where(short, rest - by, rest)


@triton.jit
def worked_out_here(sizes):
    """Return int32 sizes of which the compiler knows nothing: what a part of a program works out of them stays in that part.

    Else it is worked out before the loop that starts the parts, for all of them, and kept in registers that no part has to
    spare: a kernel that keeps anything in local memory starts 2 us later.
    """
    given = ()
    for place in tl.static_range(len(sizes)):
        given = given + (_unknown(sizes[place]),)  # noqa: RUF005 - kernels unpack no tuples
    return given


@triton.jit
def _unknown(value):
    return tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r", [value], tl.int32, is_pure=False, pack=1)
