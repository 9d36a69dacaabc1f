"""Backends of the model: nojit's kernels from a bundle, torch's own, or nojit's kernels compiled by Triton's JIT."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import plain
import preload
import torch
from slots import Prompt, Slots
from torch import Tensor

HERE = Path(__file__).resolve().parent
MANIFESTS = HERE.parents[1] / "manifests"

Place = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function of the heads of new tokens [M, H + 2 * Hkv, D], which it may overwrite, and of the caches of keys and values
[slots, Hkv, N, D], which it writes; returns the rotated queries [M, H, D].
"""


@dataclass(frozen=True)
class Backend:
    """The operators of a model. Matrices are [inputs, outputs]."""

    name: str
    multiply: Callable[[Tensor, Tensor], Tensor]
    norm: Callable[[Tensor, Tensor], Tensor]
    """Norm of rows, with weights."""
    add_norm: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """From rows, a residual and weights: the norm of their sum, and the sum."""
    gate: Callable[[Tensor, Tensor], Tensor]
    """``silu(gate) * up``."""
    embed: Callable[[Tensor, Tensor], Tensor]
    """Rows of embeddings [V, W] for tokens, int32 [M]."""
    placing: Callable[[Tensor, Tensor, Tensor | None], Place]
    """Makes a `Place` from cosines and sines of positions [N, D] and lengths of sequences, int32 [slots]. Row r is the last token of the
    sequence in slot r; without lengths, it is token r of slot 0.
    """
    attend_prompt: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Causal attention of queries [B, H, M, D] to keys and values [B, Hkv, M, D]."""
    attend_cache: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """Attention of queries [B, H, 1, D] to the caches of keys and values [B, Hkv, N, D], with the number of visible keys of each row."""
    choose_first: Callable[[Tensor, Slots, Prompt], None]
    """Chooses the token after a prompt from scores [1, V]."""
    choose_next: Callable[[Tensor, Slots], None]
    """Chooses the next token of each slot from scores [slots, V], and increments the lengths."""
    rehearsing: Callable[[], AbstractContextManager[None]] | None = None
    """Context in which calls select variants without launching; None if the backend has none."""


def make_backend(name: str) -> Backend:
    """Return the backend ``nojit``, ``torch`` or ``jit``; it can run after `begin` has finished."""
    if name == "torch":
        return _torch()
    return _nojit() if name == "nojit" else replace(_nojit(), name=name, rehearsing=None)


def begin(
    name: str, device: torch.device, manifests: Path = MANIFESTS, *, dim: int = 128
) -> AbstractContextManager[object]:
    """Start the work before a backend's first request; a bf16 model with heads of width `dim` can be created meanwhile.

    Args:
        name: name of the backend; ``jit`` needs Triton, a compiler and the manifests.
        device: device of the model.
        manifests: folder of the manifests of the shipped kernels.
        dim: width of a head.

    Returns:
        A context that waits for the work when entered, and undoes it when left.
    """
    if name == "torch":
        return nullcontext()
    if name == "jit":
        return _jit(manifests, device)
    return preload.begin(device.index or 0, dim)


def _torch() -> Backend:
    return Backend(
        name="torch",
        multiply=torch.mm,
        norm=plain.rms_norm,
        add_norm=plain.add_rms_norm,
        gate=plain.swiglu,
        embed=plain.embed,
        placing=plain.placing,
        attend_prompt=plain.attend_prompt,
        attend_cache=plain.attend_cache,
        choose_first=plain.choose_first,
        choose_next=plain.choose_next,
    )


def _nojit() -> Backend:
    # the torch backend imports none of nojit's kernels
    import own
    from nojit.kernels import library
    from nojit.kernels.bmm import mm
    from nojit.kernels.flash_attention import flash_attention
    from nojit.kernels.flex_decoding import flex_decoding
    from nojit.kernels.norm import add_rms_norm, rms_norm
    from nojit.kernels.pointwise import swiglu

    return Backend(
        name="nojit",
        multiply=mm,
        norm=lambda x, weight: rms_norm(x, weight, plain.EPS),
        add_norm=lambda x, residual, weight: add_rms_norm(x, residual, weight, plain.EPS),
        gate=swiglu,
        embed=own.embed,
        placing=own.placing,
        attend_prompt=lambda q, k, v: flash_attention(q, k, v, is_causal=True),
        attend_cache=lambda q, keys, values, lens: flex_decoding(q, keys, values, enable_gqa=True, kv_lens=lens),
        choose_first=own.choose_first,
        choose_next=own.choose_next,
        rehearsing=library.rehearsal,
    )


def _jit(manifests: Path, device: torch.device) -> AbstractContextManager[None]:
    from jit import JitKernels  # imports Triton
    from nojit.kernels import library

    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (8, 0)
    return library.override(JitKernels((manifests, HERE), 10 * major + minor), devices=frozenset({device.type}))
