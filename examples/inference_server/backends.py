"""Whose kernels a model runs: nojit's from a bundle, torch's own, or nojit's compiled by Triton's JIT."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
EPS = 1e-5
"""What norms add to the mean square."""

EVERYWHERE = ("bmm_merge", "flex_decoding", "flex_decoding_merge", "rms_norm_fwd", "swiglu", "swiglu_rectangles")
"""The kernels that the model launches on any device."""
ON_HOPPER = ("bmm_sm90", "flash_attention_fwd_sm90")
ELSEWHERE = ("bmm", "flash_attention_fwd")


@dataclass(frozen=True)
class Backend:
    """The operators of a model, and what makes them ready. Matrices are [inputs, outputs]."""

    name: str
    multiply: Callable[[Tensor, Tensor], Tensor]
    norm: Callable[[Tensor, Tensor], Tensor]
    """From rows and weights."""
    add_norm: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """From rows, a residual and weights: the norm of the sum, and the sum."""
    gate: Callable[[Tensor, Tensor], Tensor]
    """``silu(gate) * up``."""
    attend_prompt: Callable[[Tensor, Tensor, Tensor], Tensor]
    """From queries [B, H, M, D], keys and values [B, Hkv, M, D]; a token sees itself and what is before it."""
    attend_cache: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """From queries [B, H, 1, D], a cache of keys and one of values [B, Hkv, N, D], and how many of them each row sees."""
    ready: Callable[[], AbstractContextManager[object]] = nullcontext
    """Does what comes before the first request, and undoes it."""


def make_backend(name: str, device: torch.device, manifests: Path = MANIFESTS, *, dim: int = 128) -> Backend:
    """Return the backend ``nojit``, ``torch`` or ``jit``; the last one needs Triton, a compiler and the manifests.

    What is made ready is for a model in bf16 with heads of width `dim`.
    """
    if name == "torch":
        return _torch()
    if name == "nojit":
        return replace(_nojit(), ready=lambda: preloaded(device, dim))
    return replace(_nojit(), name="jit", ready=lambda: _jit(manifests, device))


def _torch() -> Backend:
    def add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return functional.rms_norm(total, weight.shape, weight, EPS), total

    def attend_cache(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        # heads that share keys stand as queries of one head: torch then need not repeat the keys
        grouped = q.reshape(len(q), keys.shape[1], -1, q.shape[-1])
        visible = torch.arange(keys.shape[2], device=q.device) < seen[:, None, None, None]
        return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=visible).reshape(q.shape)

    return Backend(
        name="torch",
        multiply=torch.mm,
        norm=lambda x, weight: functional.rms_norm(x, weight.shape, weight, EPS),
        add_norm=add_norm,
        gate=lambda gate, up: functional.silu(gate) * up,
        attend_prompt=lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        attend_cache=attend_cache,
    )


def _nojit() -> Backend:
    # what serves with torch alone needs nothing of nojit's kernels
    from nojit.kernels.bmm import mm  # noqa: PLC0415
    from nojit.kernels.flash_attention import flash_attention  # noqa: PLC0415
    from nojit.kernels.flex_decoding import flex_decoding  # noqa: PLC0415
    from nojit.kernels.norm import add_rms_norm, rms_norm  # noqa: PLC0415
    from nojit.kernels.pointwise import swiglu  # noqa: PLC0415

    return Backend(
        name="nojit",
        multiply=mm,
        norm=lambda x, weight: rms_norm(x, weight, EPS),
        add_norm=lambda x, residual, weight: add_rms_norm(x, residual, weight, EPS),
        gate=swiglu,
        attend_prompt=lambda q, k, v: flash_attention(q, k, v, is_causal=True),
        attend_cache=lambda q, keys, values, seen: flex_decoding(q, keys, values, enable_gqa=True, kv_lens=seen),
    )


def launched(dim: int) -> Mapping[str, Any]:
    """Say which variants a model launches that has heads of width `dim`: values of constexprs, of the kernels that have them."""
    # widths are rounded up to what is built: from 16 on, for decoding from 64
    width = max(16, 1 << (dim - 1).bit_length())
    widths = {width, max(width, 64)}
    return {
        "dtype": "bf16",
        "TRANS_A": False,
        "EPILOGUE": False,
        "SCORE_MOD": None,
        "PAGED": False,
        "BLOCK_D": widths,
        "BLOCK_DV": widths,
    }


@contextmanager
def preloaded(device: torch.device, dim: int) -> Iterator[int]:
    """Load the images that the model launches into the driver; give how many.

    Raises:
        KernelNotFoundError: no bundle at hand holds one of the kernels.
        NoMatchingVariantError: one has nothing for the device.
    """
    from nojit.kernels import library  # noqa: PLC0415 - as above

    hopper = torch.cuda.get_device_capability(device)[0] == 9
    names = EVERYWHERE + (ON_HOPPER if hopper else ELSEWHERE)
    yield sum(library.get(name).load_variants(device.index or 0, launched(dim)) for name in names)


def _jit(manifests: Path, device: torch.device) -> AbstractContextManager[None]:
    from jit import JitKernels  # noqa: PLC0415 - imports Triton
    from nojit.kernels import library  # noqa: PLC0415 - as above

    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (8, 0)
    return library.override(JitKernels(manifests, 10 * major + minor), devices=frozenset({device.type}))
