"""The attention that a GPU runs for `scaled_dot_product_attention` in a graph of torch.compile.

A torch without CUDA would take it apart into matrix products and a softmax, and Inductor would generate kernels that no GPU runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from nojit.runtime.recording.fake.answers import Gpu
from nojit.runtime.target import arch_number
from torch._C import DispatchKey

__all__ = ["choose_attention"]

_OPERATOR: Final = torch.ops.aten.scaled_dot_product_attention.default
_KEY: Final = DispatchKey.CompositeImplicitAutograd
_HALVES: Final = (torch.float16, torch.bfloat16)
# cuDNN 9.15.1 and newer, as CUDA 13 has it, come first there (torch's sdp_utils.cpp, check_prefer_cudnn_attention)
_CUDNN_FIRST: Final = (90, 100, 103)
_OLDEST: Final = 80
_DIMENSIONS: Final = 4
_ALIGNED: Final = 8
_CUDNN_HEAD_MAX: Final = 128
_FLASH_HEAD_MAX: Final = 256


def choose_attention(gpu: Gpu, report: Callable[[str], object]) -> Callable[[], None]:
    """Let graphs of torch.compile have the attention of a GPU; return a function that ends it.

    Args:
        gpu: the simulated GPUs.
        report: is told of attention that is taken apart although a GPU may have another one, and of a mask that torch converts.
    """
    own = _OPERATOR._op_dk  # noqa: SLF001 - what a kernel of Python calls for torch's own

    def attention(  # noqa: PLR0917 - torch's signature
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if query.device.type != "cpu":
            kind = _kind_of(arch_number(gpu.arch), query, key, value, attn_mask)
            if kind is _CUDNN and attn_mask is not None and attn_mask.dtype == torch.bool:
                # the number that torch masks with depends on its version
                report(
                    "scaled_dot_product_attention with a bool attn_mask, which torch makes additive for cuDNN: pass an additive one"
                )
            if kind is not None:
                given = (attn_mask, _trains(query, key, value)) if kind is not _FLASH else ()
                return kind(query, key, value, *given, dropout_p, is_causal, scale=scale)[0]
            report(
                "scaled_dot_product_attention, for which a GPU may have another implementation than torch's own formula"
            )
        named = {"scale": scale, "enable_gqa": enable_gqa}
        return own(_KEY, query, key, value, attn_mask, dropout_p, is_causal, **named)

    _OPERATOR.py_impl(_KEY)(attention)

    def end() -> None:
        del _OPERATOR.py_kernels[_KEY]
        _OPERATOR._dispatch_cache.clear()  # noqa: SLF001 - as py_impl does

    return end


_FLASH: Final = torch.ops.aten._scaled_dot_product_flash_attention.default  # noqa: SLF001 - the operator's name
_CUDNN: Final = torch.ops.aten._scaled_dot_product_cudnn_attention.default  # noqa: SLF001 - as above
_EFFICIENT: Final = torch.ops.aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001 - as above


def _kind_of(arch: int, query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Return the operator that a GPU runs, in torch's order of preference; None if this module knows none."""
    tensors = (query, key, value)
    width = query.shape[-1]
    if (
        arch < _OLDEST
        or any(each.dim() != _DIMENSIONS or each.shape[-1] != width for each in tensors)
        or width % _ALIGNED
    ):
        return None
    half = all(each.dtype in _HALVES for each in tensors)
    enabled = torch.backends.cuda
    if half and arch in _CUDNN_FIRST and width <= _CUDNN_HEAD_MAX and enabled.cudnn_sdp_enabled():
        return _CUDNN
    if half and mask is None and width <= _FLASH_HEAD_MAX and enabled.flash_sdp_enabled():
        return _FLASH
    heads = {each.shape[1] for each in tensors}
    if mask is None and len(heads) == 1 and query.dtype != torch.float64 and enabled.mem_efficient_sdp_enabled():
        return _EFFICIENT
    return None


def _trains(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
