"""Validation of the operands and options of flex attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nojit.kernels.attention.checks import check_rows
from nojit.kernels.calls.arguments import (
    FLOATS,
    check_choice,
    check_dtype,
    check_flags,
    check_int,
    check_like,
    check_rank,
    check_shape,
    check_tensor,
    refuse_type,
    refuse_value,
)
from nojit.kernels.flex.call import Modification
from nojit.kernels.flex.mods import ALIBI, RELATIVE, CustomMod, ScoreMod, Slot, is_listed
from nojit.runtime.wording import did_you_mean
from torch import Tensor

__all__ = [
    "check_captured",
    "check_heads",
    "check_mod",
    "check_operands",
    "check_options",
    "check_torchs_options",
]

OPTIONS: Final = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")
"""Keys that the argument `kernel_options` accepts as a config."""
_HINTS: Final = ("ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "WRITE_DQ", "USE_TMA")
"""Keys of `kernel_options` that are performance hints for torch's kernels: accepted without effect."""
_MANIFEST_LINE: Final = '{ function = "mine.py:my_mod" } in the axis SCORE_MOD of the manifest of flex attention'


def check_operands(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """Require query [B, H, M, D], key and value with matching shapes, dtypes and devices that kernels support.

    Raises:
        ArgumentError: a wrong dtype or device.
        ValueError: a wrong shape or stride.
    """
    check_tensor("query", query)
    check_dtype("query", query, FLOATS)
    check_like("key", key, "query", query)
    check_like("value", value, "query", query)
    check_rank("query", query, "B, H, M, D")
    check_rank("key", key, "B, Hkv, N, D")
    check_rank("value", value, "B, Hkv, N, Dv")
    batch, heads, _, dim = query.shape
    kv_batch, kv_heads, kv_len, _ = key.shape
    if kv_batch not in {1, batch}:
        refuse_value("key", f"{batch} batches as query has, or 1", kv_batch)
    check_shape("key", key, (kv_batch, kv_heads, kv_len, dim), "B, Hkv, N, D")
    check_shape("value", value, (kv_batch, kv_heads, kv_len, value.shape[3]), "B, Hkv, N, Dv")
    check_heads(heads, kv_heads, enable_gqa)
    check_rows(query=query, key=key, value=value)


def check_heads(heads: int, kv_heads: int, enable_gqa: bool) -> None:
    """Require equal numbers of query and key heads; with `enable_gqa`, a number of key heads that divides that of query heads.

    Raises:
        ValueError: another number.
    """
    if heads == kv_heads:
        return
    if not enable_gqa:
        refuse_value("key", f"{heads} heads as query has (enable_gqa=True lets queries share them)", kv_heads)
    if not kv_heads or heads % kv_heads:
        refuse_value("key", f"a number of heads that divides the {heads} of query", kv_heads)


def check_mod(score_mod: object) -> ScoreMod:
    """Require a score modification of `nojit.kernels.flex.mods`, and return it.

    Raises:
        ArgumentError: another object, for example a plain Python function; the message has the manifest line that
            builds a user's function.
    """
    if not (isinstance(score_mod, CustomMod) or is_listed(score_mod)):
        refuse_type(
            "score_mod",
            "a modification of nojit.kernels.flex.mods, as kernels are built ahead of time (for one of your own, write a "
            f"@triton.jit function, build it with {_MANIFEST_LINE}, and pass CustomMod('mine.py:my_mod', ...))",
            getattr(score_mod, "__name__", type(score_mod).__name__),
        )
    return score_mod


def check_captured(mod: ScoreMod | Modification, query: Tensor, kv_len: int) -> None:
    """Require that the tensors that a modification captures match the operands.

    `mod`: the score modification as kernels take it.

    Raises:
        ArgumentError: a wrong dtype or device.
        ValueError: a wrong shape.
    """
    batch, heads, q_len, _ = query.shape
    for slot in mod.slots:
        table = slot.table
        if table is None:
            continue
        if table.device != query.device:
            refuse_type("score_mod", f"a table on {query.device} as query is", table.device)
        last = sum((size - 1) * stride for size, stride in zip(table.shape, table.stride(), strict=True))
        needed = max(batch - 1, 0) * slot.stride_batch + max(heads - 1, 0) * slot.stride_head + 2 * slot.reach
        if not table.numel() or needed > last or not _has_rows(slot, batch, heads):
            refuse_value("score_mod", f"a table for {batch} batches and {heads} heads", f"shape {tuple(table.shape)}")
    if mod.bias is not None:
        check_like("score_mod", mod.bias, "query", query)
        shape = (batch, heads, q_len, kv_len)
        if any(own not in {1, size} for own, size in zip(mod.bias.shape, shape, strict=True)):
            refuse_value("score_mod", f"a bias of {shape} [B, H, M, N], or 1 for some", tuple(mod.bias.shape))


def _has_rows(slot: Slot, batch: int, heads: int) -> bool:
    """Return whether a slot's table has a row for each head and, if it has a batch dimension, for each batch."""
    sizes: tuple[int, ...] = () if slot.table is None else tuple(slot.table.shape)
    if slot.kind == RELATIVE:
        sizes = sizes[:-1]
    elif slot.kind != ALIBI:
        # a user's own function may read its table in any way
        return True
    is_shared = slot.kind == RELATIVE and sizes[-1] == 1
    return (is_shared or sizes[-1] >= heads) and (len(sizes) == 1 or sizes[0] >= batch)


def check_options(options: object) -> dict[str, int]:
    """Return the config that `kernel_options` gives, option by option.

    Raises:
        ArgumentError: not a mapping, or a value that is not an int.
        ValueError: an unknown key.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        refuse_type("kernel_options", "a mapping", type(options).__name__)
    given: dict[str, Any] = dict(options)
    for name, value in given.items():
        if name not in OPTIONS:
            refuse_value("kernel_options", " or ".join(OPTIONS), f"{name!r}{did_you_mean(str(name), OPTIONS)}")
        check_int(f"kernel_options[{name!r}]", value)
    return given


def check_torchs_options(options: object) -> tuple[dict[str, int], bool]:
    """Return the config in torch's `kernel_options`, and whether the options allow flex decoding for few queries.

    Raises:
        ArgumentError: not a mapping, or a value of a wrong type.
        ValueError: an unknown key, an unsupported backend or rounding.
    """
    if not isinstance(options, Mapping):
        return check_options(options), True
    given = dict(options)
    backend = given.pop("BACKEND", "AUTO")
    check_choice("kernel_options['BACKEND']", backend, ("AUTO", "TRITON"))
    forced, prescaled = given.pop("FORCE_USE_FLEX_ATTENTION", False), given.pop("PRESCALE_QK", False)
    flags = {"FORCE_USE_FLEX_ATTENTION": forced, "PRESCALE_QK": prescaled}
    flags |= {name: given.pop(name) for name in _HINTS if name in given}
    check_flags(**{f"kernel_options[{name!r}]": flag for name, flag in flags.items()})
    if prescaled:
        refuse_value("kernel_options['PRESCALE_QK']", "False, as products are scaled in fp32", prescaled)
    # as in torch, options for the forward pass take precedence
    own = {name.removeprefix("fwd_"): given.pop(name) for name in list(given) if str(name).startswith("fwd_")}
    config = check_options(given | own)
    return config, not (config or forced or backend == "TRITON")
