"""Kernels whose params are annotated with a framework's class, as in ``x: torch.Tensor``."""

import triton
import triton.language as tl

from tests.runtime.recording.programs import frame as fr


@triton.jit
def helper(value: fr.Tensor, scale: "fr.Tensor"):
    return value * scale


@triton.jit
def kernel(x_ptr: fr.Tensor, y_ptr: fr.Tensor, n: int, quoted: "fr.Tensor", BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(y_ptr + places, helper(tl.load(x_ptr + places, places < n), quoted), places < n)
