# ruff: noqa: F722, F821, E741, N803, PLR0917 - annotations of every form, which a future import would make text
"""Kernels with params of every form."""

import triton
import triton.language as tl


@triton.jit
def one(x_ptr, n, BLOCK: tl.constexpr, flag=True):
    """Do nothing."""


@triton.jit(do_not_specialize=["n", 0], do_not_specialize_on_alignment=["m"], noinline=True, debug=True, version=3)
def two(x, n, m, k: "tl.constexpr" = 4, *, last: tl.constexpr = None):
    pass


@triton.jit
def three(
    a: tl.int32,
    b: "*fp32",
    c: tl.pointer_type(tl.float16),
    d: "const *i8",
    e: "u64",
    f: tl.const,
    g: float,
    h: bool,
    i: "int32_t",
    j: int,
    k: "fp16*",
    l: "*k i8",
    m: "Tensor",
    n: "tl.float16",
    o: tl.tensor,
    *rest,
):
    pass
