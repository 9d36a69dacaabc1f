"""What kernels of several families share, in Triton: functions in few instructions, and starting before the last kernel has ended.

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
    """Return ``x * Phi(x)`` of fp32 values for results that are rounded to 16 bits: the tail is right to 4e-5 of itself.

    As `gelu`, with a polynomial of three steps less; no more than a sixth of half a place of fp16 is lost.
    """
    root = tl.rsqrt(1.0 + 0.26 * tl.abs(x))
    t = root * root
    q = -0.5533219575881958 * t + 1.0654473304748535
    q = q * t + 0.23273903131484985
    q = q * t + 1.5318048000335693
    q = q * t - 3.276716709136963
    tail = t * tl.exp2(q - 0.7213475204444817 * x * x)
    return x * tl.where(x < 0.0, tail, 1.0 - tail)


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
