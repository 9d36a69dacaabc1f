"""Launch arguments that the attention kernels over pointers share, by the names of their params."""

from __future__ import annotations

from typing import Any

from nojit.kernels.calls.strides import kv_strides, named
from torch import Tensor

__all__ = ["qkv_arguments"]


def qkv_arguments(q: Tensor, k: Tensor, v: Tensor, kv_batch: int) -> dict[str, Any]:
    """Return queries, keys and values, their sizes and their strides.

    Args:
        q: [B, H, M, D].
        k: [B or 1, heads of keys, N, D].
        v: [B or 1, heads of keys, N, Dv].
        kv_batch: number of batches for which the kernel reads k and v; if they have one for all, its stride is 0.
    """
    return {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        "group": q.shape[1] // v.shape[1],
        "q_len": q.shape[2],
        "kv_len": v.shape[2],
        "head_dim": q.shape[3],
        "v_dim": v.shape[3],
        **named("stride_q", "bhm", q.stride()[:3]),
        **named("stride_k", "bhn", kv_strides(k, kv_batch)),
        **named("stride_v", "bhn", kv_strides(v, kv_batch)),
    }
