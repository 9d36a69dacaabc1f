"""Torch operators of rotary position embedding (Su et al. 2021, https://arxiv.org/abs/2104.09864), with their gradients.

The gradient of a rotation is the rotation back, which is the same operator. A norm before it has the gradient of `rms_norm`.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from typing import Any, Final, cast

import torch
from nojit.kernels import library
from nojit.kernels.calls.arguments import check_flags, check_number, check_result, check_tensors, refuse_value
from nojit.kernels.calls.memos import RecipeWriter, new_memo
from nojit.kernels.calls.registration import define
from nojit.kernels.calls.torch_state import differentiates, is_plain, written
from nojit.kernels.norm import rms_norm_bwd
from nojit.kernels.rotary.checks import Operands, Tensors, check_apart_all, check_operands, check_out, check_written
from nojit.kernels.rotary.launch import rotate
from torch import Tensor

__all__ = ["rotary", "rotary_qk", "rotary_to_cache"]

_EPS: Final = torch.finfo(torch.float32).eps
"""Torch's default eps of norms, for every dtype."""
# the output may be the query
_MEMO: Final = new_memo(operands=12, limit=1024, in_place=(0,))
_GRAD: Final = "a call without gradients (torch.no_grad())"


def rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Rotate pairs of columns of each head by the position of its token.

    Args:
        x: [..., tokens, heads, head_dim], fp16, bf16 or fp32, any strides. Rows that are not contiguous are copied first.
        cos: [max_position, rotary_dim / 2], of the dtype of x or fp32; columns of x from rotary_dim on stay as they are.
        sin: as `cos`.
        positions: the row of cos and sin of each token, int32 or int64, [..., tokens] or [tokens] for all sequences; all
            must be at least 0 and below max_position, which nojit does not check. None means 0 to tokens - 1.
        interleaved: rotate columns 2 * i and 2 * i + 1 (GPT-J) instead of i and i + rotary_dim / 2 (GPT-NeoX).
        out: where to write the result, with a last stride of 1; it may be x itself, but must not overlap x otherwise.

    Returns:
        A contiguous tensor of the shape and dtype of x, or `out`; computed in fp32 and rounded once. Differentiable in x.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape, cos or sin that require a gradient, or `out` in a call that requires one.
    """
    if not torch.compiler.is_dynamo_compiling():
        known: Tensor | None = _MEMO(
            x, None, None, None, None, cos, sin, positions, None, None, None, out, library.CURRENT.source,
            "rotary", None, interleaved, out is x,
        )  # fmt: skip
        if known is not None:
            return known
    tensors = (x, None, None, None, None, cos, sin, positions, None, None, None)
    check_tensors(x=x, cos=cos, sin=sin, **({} if positions is None else {"positions": positions}))
    check_flags(interleaved=interleaved)
    if out is not None:
        check_result(out)
    operands = Operands(*tensors, 0.0, bool(interleaved))
    if is_plain(x, cos, sin, positions, out):
        (result,) = _remember(operands, out, ("rotary", None, interleaved, out is x))
        return result if out is None else out
    check_operands(operands, "x")
    if out is None:
        return _traced(operands)[0]
    check_out(out, x)
    _traced_into(operands, {"out": out})
    return out


def rotary_qk(
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    query_weight: Tensor | None = None,
    key_weight: Tensor | None = None,
    eps: float | None = None,
    interleaved: bool = False,
    inplace: bool = False,
) -> tuple[Tensor, Tensor]:
    """Rotate query and key in one launch; with weights, normalize each head before.

    Args:
        query: [..., tokens, heads, head_dim], fp16, bf16 or fp32, any strides. Rows that are not contiguous are copied
            first.
        key: [..., tokens, key heads, head_dim], of the same dtype and device.
        cos: [max_position, rotary_dim / 2], of the dtype of query or fp32; columns from rotary_dim on are not rotated.
        sin: as `cos`.
        positions: the row of cos and sin of each token, as for `rotary`.
        query_weight: [head_dim], of the query's dtype: divide each head of query by its root mean square and multiply it
            by this weight, as ``rms_norm`` does, before the rotation.
        key_weight: as `query_weight`, for key; both are given, or none.
        eps: added to the mean of the squares; None means 2**-23, as for ``rms_norm``.
        interleaved: rotate columns 2 * i and 2 * i + 1 (GPT-J) instead of i and i + rotary_dim / 2 (GPT-NeoX).
        inplace: write the results to query and key, which must not overlap each other and have a last stride of 1.

    Returns:
        Both results, contiguous unless they are in place; computed in fp32 and rounded once. Differentiable in query and
        key, and once in the weights; not in place.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape, cos or sin that require a gradient, or `inplace` in a call that requires one.
    """
    if not torch.compiler.is_dynamo_compiling():
        known: tuple[Tensor, Tensor] | None = _MEMO(
            query, key, None, query_weight, key_weight, cos, sin, positions, None, None, None, None,
            library.CURRENT.source, "rotary_qk", eps, interleaved, inplace,
        )  # fmt: skip
        if known is not None:
            return known
    tensors = (query, key, None, query_weight, key_weight, cos, sin, positions, None, None, None)
    given = {"query": query, "key": key, "cos": cos, "sin": sin}
    operands = _operands(tensors, given, eps, interleaved)
    check_flags(inplace=inplace)
    if is_plain(*tensors):
        first, second = _remember(operands, None, ("rotary_qk", eps, interleaved, inplace))
        return first, second
    check_operands(operands)
    if not inplace:
        return _traced(operands)
    check_written("query", query)
    check_written("key", key)
    _traced_into(operands, {"query": query, "key": key})
    return query, key


def rotary_to_cache(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    slot_mapping: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    *,
    query_weight: Tensor | None = None,
    key_weight: Tensor | None = None,
    eps: float | None = None,
    interleaved: bool = False,
    return_key: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Rotate query and key as `rotary_qk` does, and write key and value to a paged cache, in one launch.

    Args:
        query: [..., tokens, heads, head_dim], fp16, bf16 or fp32, any strides. Rows that are not contiguous are copied
            first.
        key: [..., tokens, key heads, head_dim], of the same dtype and device.
        value: [..., tokens, key heads, value dim], of the same dtype and device.
        cos: [max_position, rotary_dim / 2], of the dtype of query or fp32.
        sin: as `cos`.
        positions: the row of cos and sin of each token, as for `rotary`.
        slot_mapping: the row of the caches for each token, int64 [..., tokens]: slot s is row ``s % page size`` of page
            ``s // page size``. Tokens with a negative slot are not written. Slots must be below pages * page size, and
            differ, which nojit does not check.
        key_cache: [pages, key heads, page size, head_dim], as ``flex_decoding`` reads it; any strides, the last 1; the
            page size is a power of two.
        value_cache: [pages, key heads, page size, value dim].
        query_weight: [head_dim], as for `rotary_qk`.
        key_weight: [head_dim], as for `rotary_qk`.
        eps: added to the mean of the squares; None means 2**-23.
        interleaved: rotate columns 2 * i and 2 * i + 1 (GPT-J) instead of i and i + rotary_dim / 2 (GPT-NeoX).
        return_key: also return the rotated key.

    Returns:
        The rotated query, contiguous, and if requested the rotated key; computed in fp32 and rounded once.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or stride.
        NotImplementedError: a gradient is required; `rotary_qk` has gradients.
    """
    if not torch.compiler.is_dynamo_compiling():
        known: Tensor | tuple[Tensor, Tensor] | None = _MEMO(
            query, key, value, query_weight, key_weight, cos, sin, positions, slot_mapping, key_cache, value_cache, None,
            library.CURRENT.source, "rotary_to_cache", eps, interleaved, return_key,
        )  # fmt: skip
        if known is not None:
            return known
    tensors = (query, key, value, query_weight, key_weight, cos, sin, positions, slot_mapping, key_cache, value_cache)
    given = {"query": query, "key": key, "value": value, "cos": cos, "sin": sin}
    given |= {"slot_mapping": slot_mapping, "key_cache": key_cache, "value_cache": value_cache}
    operands = _operands(tensors, given, eps, interleaved)
    check_flags(return_key=return_key)
    if is_plain(*tensors):
        results = _remember(operands, None, ("rotary_to_cache", eps, interleaved, return_key))
        return results if return_key else results[0]
    check_operands(operands)
    if differentiates(*tensors):
        raise NotImplementedError("rotary_to_cache has no gradients: use rotary_qk, or torch.no_grad()")
    turned, rotated = _cache_op(*tensors, operands.eps, operands.interleaved, bool(return_key))
    written(key_cache)
    written(value_cache)
    return (turned, rotated) if return_key else turned


def _operands(tensors: Tensors, required: dict[str, Any], eps: float | None, interleaved: bool) -> Operands:
    """Check the types of a call's arguments, and return its operands.

    Args:
        tensors: the tensors in the order of `Operands`.
        required: those that must not be None, by argument name.
        eps: the caller's number.
        interleaved: the caller's flag.
    """
    names = {3: "query_weight", 4: "key_weight", 7: "positions"}
    optional = {name: tensors[place] for place, name in names.items() if tensors[place] is not None}
    check_tensors(**required, **optional)
    check_flags(interleaved=interleaved)
    number = _EPS if eps is None else check_number("eps", eps)
    return Operands(*tensors, number, bool(interleaved))


def _remember(operands: Operands, out: Tensor | None, words: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Run a new call without torch's dispatcher, and cache its launch arguments for replays.

    Args:
        operands: the operands.
        out: the output of `rotary`, or None.
        words: name of the operator, its eps, whether pairs are interleaved, and its own flag; that of `rotary` is whether
            the output is the operand.
    """
    name, _, _, flag = words
    check_operands(operands, "x" if name == "rotary" else "query")
    tensors = operands.tensors
    writer = RecipeWriter(*tensors, out)
    *own, target = writer.operands
    mine = Operands(*cast(Tensors, tuple(own)), operands.eps, operands.interleaved)
    in_place = name != "rotary_to_cache" and flag
    outs: dict[str, Tensor] = {}
    if target is not None:
        check_out(target, mine.query)
        outs = {"out": target}
    elif in_place:
        assert mine.key is not None  # noqa: S101 - the operator has a key
        outs = {"query": mine.query, "key": mine.key}
        for argument, value in outs.items():
            check_written(argument, value)
    elif mine.key_cache is not None and mine.value_cache is not None:
        outs = {"key_cache": mine.key_cache, "value_cache": mine.value_cache}
    check_apart_all(outs, mine)
    query_out, key_out = (mine.query, mine.key) if in_place else (target, None)
    makes_key = name != "rotary_to_cache" or bool(flag)
    results = tuple(
        each for each in rotate(mine, query_out, key_out, makes_key=makes_key, caller=writer) if each is not None
    )
    if outs:
        writer.touch(*outs.values())
    _MEMO.remember(writer.recipe(*results), *tensors, out, writer.source, *words)
    return results


def _rotated(operands: Operands) -> tuple[Any, ...]:
    """Return the arguments of the traced operators without a cache."""
    tensors = operands.tensors
    return (*tensors[:2], *tensors[3:8], operands.eps, operands.interleaved, operands.conjugate)


def _traced(operands: Operands) -> tuple[Tensor, Tensor]:
    """Run the operator through torch's dispatcher; without a key, the second result is empty."""
    query, key = _op(*_rotated(operands))
    return query, key


def _traced_into(operands: Operands, outs: dict[str, Tensor]) -> None:
    """Run the operator that writes to existing tensors through torch's dispatcher.

    Args:
        operands: the operands.
        outs: the outputs by argument name: that of the query, then that of the key.
    """
    if differentiates(*operands.tensors, *outs.values()):
        refuse_value(next(iter(outs)), _GRAD, "operands that require grad")
    targets = [*outs.values(), None][:2]
    _into_op(*_rotated(operands), *targets)
    for out in outs.values():
        written(out)


def _given(
    query: Tensor,
    key: Tensor | None,
    query_weight: Tensor | None,
    key_weight: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    eps: float,
    interleaved: bool,
    conjugate: bool,
) -> Operands:
    tensors = (query, key, None, query_weight, key_weight, cos, sin, positions, None, None, None)
    operands = Operands(*tensors, eps, interleaved, conjugate)
    check_operands(operands)
    return operands


def _run(query: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    turned, key = rotate(_given(query, *rest))
    return turned, query.new_empty(0) if key is None else key


def _run_into(*args: Any) -> None:
    *given, query_out, key_out = args
    operands = _given(*given)
    rotate(operands, query_out, key_out)


def _run_cache(*args: Any) -> tuple[Tensor, Tensor]:
    *given, eps, interleaved, return_key = args
    operands = Operands(*cast(Tensors, tuple(given)), eps, interleaved)
    check_operands(operands)
    turned, key = rotate(operands, makes_key=return_key)
    return turned, turned.new_empty(0) if key is None else key


def _fake(query: Tensor, key: Tensor | None, *_: object) -> tuple[Tensor, Tensor]:
    return _like(query), query.new_empty(0) if key is None else _like(key)


def _fake_into(*_: object) -> None:
    """Trace the in-place operator, which returns nothing."""


def _fake_cache(query: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _like(query), _like(key) if rest[-1] else query.new_empty(0)


def _like(value: Tensor) -> Tensor:
    return torch.empty_like(value, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    del output
    query, key, query_weight, key_weight, *tables, ctx.eps, ctx.interleaved, ctx.conjugate = inputs
    ctx.set_materialize_grads(False)
    ctx.has_norm = query_weight is not None
    kept = (query, key, query_weight, key_weight) if ctx.has_norm else (None,) * 4
    ctx.save_for_backward(*kept, *tables)


def _backward(ctx: Any, grad_query: Tensor | None, grad_key: Tensor | None) -> tuple[Tensor | None, ...]:
    query, key, query_weight, key_weight, *tables = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    # without a key, its gradient is that of an empty tensor
    given = [
        grad if need else None for grad, need in ((grad_query, any(wanted[::2][:2])), (grad_key, any(wanted[1:4:2])))
    ]
    grads = [grad for grad in given if grad is not None]
    found: list[Tensor | None] = [None] * 10
    if not grads:
        return tuple(found)
    turned = _op(
        grads[0], grads[1] if len(grads) > 1 else None, None, None, *tables, 0.0, ctx.interleaved, not ctx.conjugate
    )
    own = iter(turned)
    places = ((0, query, query_weight), (1, key, key_weight))
    for (place, x, weight), grad in zip(places, given, strict=True):
        if grad is None:
            continue
        back = next(own)
        if ctx.has_norm:
            weighs = wanted[place + 2]
            back, of_weight = rms_norm_bwd(back, None, x, weight, ctx.eps, weighs)
            found[place + 2] = of_weight if weighs else None
        found[place] = back if wanted[place] else None
    return tuple(found)


_NORMS: Final = "Tensor? query_weight, Tensor? key_weight, Tensor cos, Tensor sin, Tensor? positions"
_NUMBERS: Final = "float eps, bool interleaved"
_op = define(
    f"rotary(Tensor query, Tensor? key, {_NORMS}, {_NUMBERS}, bool conjugate) -> (Tensor, Tensor)",
    _run,
    _fake,
    backward=_backward,
    save=_save,
)
_into_op = define(
    f"rotary_out(Tensor query, Tensor? key, {_NORMS}, {_NUMBERS}, bool conjugate, Tensor(a!) query_out, "
    "Tensor(b!)? key_out) -> ()",
    _run_into,
    _fake_into,
)
_cache_op = define(
    f"rotary_to_cache(Tensor query, Tensor key, Tensor value, {_NORMS}, Tensor slot_mapping, Tensor(a!) key_cache, "
    f"Tensor(b!) value_cache, {_NUMBERS}, bool return_key) -> (Tensor, Tensor)",
    _run_cache,
    _fake_cache,
)
