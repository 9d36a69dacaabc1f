"""Whose kernels a model runs: nojit's from a bundle, torch's own, or nojit's compiled by Triton's JIT."""

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
"""From heads of new tokens [M, H + 2 * Hkv, D], which it may write to, and a cache of keys and one of values
[slots, Hkv, N, D], which it writes to: the turned queries [M, H, D]."""


@dataclass(frozen=True)
class Backend:
    """The operators of a model. Matrices are [inputs, outputs]."""

    name: str
    multiply: Callable[[Tensor, Tensor], Tensor]
    norm: Callable[[Tensor, Tensor], Tensor]
    """From rows and weights."""
    add_norm: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """From rows, a residual and weights: the norm of the sum, and the sum."""
    gate: Callable[[Tensor, Tensor], Tensor]
    """``silu(gate) * up``."""
    embed: Callable[[Tensor, Tensor], Tensor]
    """From words [V, W] and tokens, int32 [M]: the tokens' rows."""
    placing: Callable[[Tensor, Tensor, Tensor | None], Place]
    """From cosines and sines of positions [N, D], and lengths of sequences, int32 [slots]: what turns heads and writes to the
    cache. Row r is the last token of slot r's sequence; without lengths it is token r of slot 0's."""
    attend_prompt: Callable[[Tensor, Tensor, Tensor], Tensor]
    """From queries [B, H, M, D], keys and values [B, Hkv, M, D]; a token sees itself and what is before it."""
    attend_cache: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """From queries [B, H, 1, D], a cache of keys and one of values [B, Hkv, N, D], and how many of them each row sees."""
    choose_first: Callable[[Tensor, Slots, Prompt], None]
    """From scores [1, V] chooses the token behind a prompt."""
    choose_next: Callable[[Tensor, Slots], None]
    """From scores [slots, V] chooses the next token of each slot; sequences grow by it."""
    rehearsing: Callable[[], AbstractContextManager[None]] | None = None
    """Within it calls choose what calls like them will launch, and launch nothing; None where there is nothing to choose."""


def make_backend(name: str) -> Backend:
    """Return the backend ``nojit``, ``torch`` or ``jit``, which runs from when `begin` has what it needs ready."""
    if name == "torch":
        return _torch()
    return _nojit() if name == "nojit" else replace(_nojit(), name=name, rehearsing=None)


def begin(
    name: str, device: torch.device, manifests: Path = MANIFESTS, *, dim: int = 128
) -> AbstractContextManager[object]:
    """Begin what comes before a backend's first request: a model in bf16 with heads of width `dim` can be made meanwhile.

    Args:
        name: the backend's; ``jit`` needs Triton, a compiler and the manifests.
        device: where the model runs.
        manifests: of the shipped kernels.
        dim: the width of heads.

    Returns:
        What waits for it when it is entered, and undoes it when it is left.
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
    # what serves with torch alone needs nothing of nojit's kernels
    import own  # noqa: PLC0415
    from nojit.kernels import library  # noqa: PLC0415
    from nojit.kernels.bmm import mm  # noqa: PLC0415
    from nojit.kernels.flash_attention import flash_attention  # noqa: PLC0415
    from nojit.kernels.flex_decoding import flex_decoding  # noqa: PLC0415
    from nojit.kernels.norm import add_rms_norm, rms_norm  # noqa: PLC0415
    from nojit.kernels.pointwise import swiglu  # noqa: PLC0415

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
    from jit import JitKernels  # noqa: PLC0415 - imports Triton
    from nojit.kernels import library  # noqa: PLC0415 - as above

    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (8, 0)
    return library.override(JitKernels((manifests, HERE), 10 * major + minor), devices=frozenset({device.type}))
