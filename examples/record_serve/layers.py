"""Layers of a small model in plain Triton: autotuned, with heuristics, a helper, a function as a constexpr, and a backward pass.

Nothing here knows nojit.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def gelu(x):
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + places, places < n, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / n + eps)
    weight = tl.load(weight_ptr + places, places < n, other=0)
    tl.store(out_ptr + row * n + places, x * scale * weight, places < n)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=2, num_stages=3),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def linear_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    sizes,
    m,
    n,
    k,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    stride_x, stride_weight = sizes
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = start + depth < k
        x = tl.load(
            x_ptr + rows[:, None] * stride_x + start + depth[None, :], (rows < m)[:, None] & inside[None, :], other=0
        )
        weight = tl.load(
            weight_ptr + columns[None, :] * stride_weight + start + depth[:, None],
            (columns < n)[None, :] & inside[:, None],
            other=0,
        )
        total = tl.dot(x, weight, total)
    if ACTIVATION is not None:
        total = ACTIVATION(total)
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], total, (rows < m)[:, None] & (columns < n)[None, :])


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out_ptr + places, tl.load(x_ptr + places, inside) + tl.load(y_ptr + places, inside), inside)


@triton.jit
def scale_kernel(x_ptr, factor_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out_ptr + places, tl.load(x_ptr + places, inside) * tl.load(factor_ptr), inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Return `x` `[rows, n]` with rows of mean square 1, times `weight` `[n]`."""
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, weight, out, x.stride(0), x.shape[1], eps)
    return out


def linear(x: Tensor, weight: Tensor, activation: Any = None) -> Tensor:
    """Return `activation(x @ weight.T)` for `x` `[m, k]` and `weight` `[n, k]`."""
    (m, k), n = x.shape, weight.shape[0]
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)

    def grid(meta: dict[str, int]) -> tuple[int, int]:
        return triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"])

    linear_kernel[grid](x, weight, out, (x.stride(0), weight.stride(0)), m, n, k, ACTIVATION=activation)
    return out


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return _scale(x, factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return _scale(gradients[0].contiguous(), factor), None


def _scale(x: Tensor, factor: Tensor) -> Tensor:
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, factor, out, x.numel(), BLOCK=1024)
    return out


def scaled(x: Tensor, factor: Tensor) -> Tensor:
    """Return `x * factor`, with a backward pass for `x`; `factor` holds one number."""
    return _Scaled.apply(x, factor)  # type: ignore[no-any-return, no-untyped-call] # torch types neither


def add(x: Tensor, y: Tensor) -> Tensor:
    """Return `x + y`."""
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512, num_warps=2)
    return out
