"""Torch operators made from specs: type promotion, broadcasting, any strides, ``out=``, gradients, tracing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls import registration
from nojit.kernels.calls.arguments import (
    check_apart,
    check_choice,
    check_like_device,
    check_number,
    check_result,
    check_tensor,
    check_tensors,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.memos import DIRECT, Caller, RecipeWriter, made_and_remembered, new_memo
from nojit.kernels.calls.torch_state import differentiates, is_plain, written
from nojit.kernels.pointwise.checks import alike, apart, converted, fitted, result_like, same
from nojit.kernels.pointwise.evaluation import chosen, evaluate, wide
from nojit.kernels.pointwise.launch import Launcher
from nojit.kernels.pointwise.promotion import DTYPES, broadcast, promote
from nojit.kernels.pointwise.source import parts
from nojit.kernels.pointwise.spec import OperatorSpec, read_specs
from torch import Tensor

__all__ = ["OTHERS", "Operator", "define", "load_operators", "load_own"]

_KNOWN: Final[dict[str, Operator]] = {}
OTHERS: Final = frozenset({
    "add_rms_norm", "b2b_gemm", "block_sparse_dsd", "block_sparse_sdd", "block_sparse_softmax", "block_sparse_softmax_",
    "block_sparse_softmax_backward", "bmm", "conv", "conv_input_grad", "conv_weight_grad", "flash_attention",
    "flash_attention_backward", "flex_attention", "flex_attention_backward", "flex_decoding", "gated_mm", "grouped_mm", "mm_plus_mm",
    "rms_norm", "rotary", "rotary_to_cache", "scaled_grouped_mm", "scaled_mm", "uint4x2_mixed_mm",
})  # fmt: skip
"""Names of the library's other operators, which a spec must not use: torch has one namespace for all."""
MOST_REMEMBERED: Final = 4096
"""The most calls that an operator caches for replays: a server that batches sequences of any length makes thousands."""


class Operator:
    """A pointwise operator, registered with torch as ``nojit::<name>``.

    Call it with its input tensors by position or name, and with its scalars, choice and ``out`` by name. Inputs of
    different dtypes are first converted to a common dtype by torch's promotion rules.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec: Final = spec
        self._floats = any(program.floats for program in spec.programs.values())
        self._floats_of_ints = any(program.floats_of_ints for program in spec.programs.values())
        self._dtypes = tuple(DTYPES[dtype] for dtype in spec.dtypes)
        places = range(len(spec.inputs))
        self._memo: Final = new_memo(operands=len(places) + 1, limit=MOST_REMEMBERED, in_place=places)
        forward, *backward = parts(spec)
        self._forward = Launcher(spec, forward)
        self._slope = next(iter(spec.derivatives.values()))
        self._backward = Launcher(spec, backward[0]) if backward else None
        self._words = tuple(spec.words)
        self._register()

    def __call__(self, *operands: Tensor, out: Tensor | None = None, **named: Any) -> Tensor:
        """Compute the result, a new tensor or `out`.

        Raises:
            ArgumentError: a wrong type, dtype or device, or an extra or missing argument.
            ValueError: a wrong shape, string or `out`.
        """
        spec = self.spec
        values = dict(zip(spec.inputs, operands, strict=False))
        given = values | named
        wanted = (*spec.inputs, *spec.scalars, *((spec.choice,) if spec.choice else ()))
        if len(operands) > len(spec.inputs) or values.keys() & named.keys() or given.keys() != set(wanted):
            refuse_type(spec.name, f"arguments {', '.join(wanted)}", ", ".join(map(str, (*values, *named))) or "none")
        scalars = [given[name] for name in spec.scalars]
        return self.call([given[name] for name in spec.inputs], given.get(spec.choice, ""), scalars, out)

    def call(
        self, tensors: Sequence[Tensor], word: str = "", scalars: Sequence[float] = (), out: Tensor | None = None
    ) -> Tensor:
        """Compute the result for arguments in the spec's order.

        Args:
            tensors: input tensors.
            word: value of the choice, or an empty string.
            scalars: numbers.
            out: where to write the result; None for a new tensor.
        """
        if not torch.compiler.is_dynamo_compiling():
            known: Tensor | None = self._memo(*tensors, out, library.CURRENT.source, word, *scalars)
            if known is not None:
                return known
        if self._words:
            check_choice(self.spec.choice, word, self._words)
        words = (word, *scalars)
        if scalars:
            scalars = [check_number(name, value) for name, value in zip(self.spec.scalars, scalars, strict=True)]
            self._refuse_ints(tensors, words[1:])
        # call is_plain in any case: it refuses tangents. Tensors that pass are None or on a device that kernels run on
        if is_plain(*tensors, out) and None is not tensors[0]:
            return self._remember(words, tensors, word, scalars, out)
        return self._dispatch(tensors, word, scalars, out)

    def _refuse_ints(self, tensors: Sequence[Tensor], scalars: Sequence[object]) -> None:
        """Refuse calls whose result torch computes in ints: all operands are ints, and the operation is defined for ints.

        An infinite scalar counts as a float.
        """
        check_tensors(**dict(zip(self.spec.inputs, tensors, strict=True)))
        whole = all(isinstance(value, int) or value in (-math.inf, math.inf) for value in scalars)
        if whole and not self._floats_of_ints and not any(tensor.is_floating_point() for tensor in tensors):
            what = f"floats, or a float for {' or '.join(self.spec.scalars)}, as results are floats"
            refuse_type(self.spec.inputs[0], what, tensors[0].dtype)

    def _dispatch(self, tensors: Sequence[Tensor], word: str, scalars: Sequence[float], out: Tensor | None) -> Tensor:
        """Run the operator through torch's dispatcher, for tracing and gradients.

        `word`: the value of the operator's choice, such as ``tanh``, or empty without one; `scalars`: the operator's
        numbers, such as a slope.
        """
        check_tensors(**dict(zip(self.spec.inputs, tensors, strict=True)))
        rest = (*((word,) if self._words else ()), *scalars)
        if out is None:
            result: Tensor = self._op(*tensors, *rest)
            return result
        check_result(out)
        if differentiates(*tensors, out):
            refuse_value("out", "arguments that require no grad, as out= is not differentiable", "one that does")
        self._out_op(*tensors, *rest, out)
        return written(out)

    def _remember(
        self,
        words: tuple[object, ...],
        tensors: Sequence[Tensor],
        word: str,
        scalars: Sequence[float],
        out: Tensor | None,
    ) -> Tensor:
        """Run a new call without torch's dispatcher, and cache its launch arguments for replays.

        `words` are the non-tensor arguments as the caller gave them, part of the cache key.

        `scalars`: the operator's numbers, such as a slope.
        """

        def make(operands: list[Tensor], target: Tensor | None, writer: RecipeWriter) -> Tensor:
            if target is None:
                return self._compute(operands, self._check(operands), word, scalars, writer)
            self.run_into(operands, word, scalars, target, writer)
            return target

        def may_replay(result: Tensor) -> bool:
            # a conversion of ints depends on torch's default dtype, which may change
            return any(tensor.dtype == result.dtype for tensor in tensors)

        return made_and_remembered(self._memo, tensors, out, words, make, may_replay=may_replay)

    def _run(self, tensors: Sequence[Tensor], word: str, scalars: Sequence[float]) -> Tensor:
        """Validate a call from torch's dispatcher and compute the result into a new tensor.

        `word`: the value of the operator's choice, such as ``tanh``, or empty without one; `scalars`: the operator's
        numbers, such as a slope.
        """
        first = tensors[0]
        if first.dtype in self._dtypes and alike(first, tensors):
            out = torch.empty_like(first)
            self._forward.launch_flat((*tensors, out), first.numel(), word, scalars)
            return out
        return self._compute(tensors, self._check(tensors), word, scalars)

    def _compute(
        self,
        tensors: Sequence[Tensor],
        dtype: torch.dtype,
        word: str,
        scalars: Sequence[float],
        caller: Caller = DIRECT,
    ) -> Tensor:
        """Compute the result of validated operands, in the common dtype `dtype`.

        `caller`: allocates and launches, or also records both for replays; `word`: the value of the operator's choice,
        such as ``tanh``, or empty without one; `scalars`: the operator's numbers, such as a slope.
        """
        out = result_like(self.spec.inputs, tensors, dtype, caller)
        self._forward.launch(converted(tensors, dtype, caller), [out], word, scalars, caller)
        return out

    def run_into(
        self,
        tensors: Sequence[Tensor],
        word: str,
        scalars: Sequence[float],
        out: Tensor,
        caller: Caller = DIRECT,
    ) -> None:
        """Check the arguments, in the spec's order, and compute the result into `out`, without torch's dispatcher.

        Args:
            tensors: input tensors.
            word: value of the choice, or an empty string.
            scalars: numbers.
            out: where to write the result.
            caller: allocates and launches, or also records both for replays.
        """
        first = tensors[0]
        if first.dtype in self._dtypes and alike(first, (*tensors, out)) and apart(out, tensors):
            self._forward.launch_flat((*tensors, out), first.numel(), word, scalars, caller)
            return
        check_tensors(**dict(zip(self.spec.inputs, tensors, strict=True)))
        dtype = self._check(tensors)
        self._check_out(tensors, out, dtype)
        self._forward.launch(converted(tensors, dtype, caller), [out], word, scalars, caller)

    def _check_out(self, tensors: Sequence[Tensor], out: Tensor, dtype: torch.dtype) -> None:
        check_tensor("out", out)
        self._check_fit(tensors, out, dtype)
        for name, tensor in zip(self.spec.inputs, tensors, strict=True):
            if tensor.dtype == dtype and not same(tensor, out):
                check_apart("out", out, name, tensor)

    def _check_fit(self, tensors: Sequence[Tensor], out: Tensor, dtype: torch.dtype) -> None:
        """Require that `out` has the result's shape, dtype and device."""
        shape = broadcast(self.spec.inputs, tensors)
        if out.dtype != dtype or out.device != tensors[0].device:
            refuse_type("out", f"{dtype} on {tensors[0].device} as the result has", f"{out.dtype} on {out.device}")
        if out.shape != shape:
            refuse_value("out", f"shape {tuple(shape)} of the result", tuple(out.shape))
        if any(stride == 0 < size - 1 for size, stride in zip(out.shape, out.stride(), strict=True)):
            refuse_value("out", "memory of its own for each element", f"strides {out.stride()}")

    def _check(self, tensors: Sequence[Tensor]) -> torch.dtype:
        """Require tensors that kernels can read; return their common dtype."""
        for name, tensor in zip(self.spec.inputs, tensors, strict=True):
            check_tensor(name, tensor)
        return self._check_kinds(tensors)

    def _check_kinds(self, tensors: Sequence[Tensor]) -> torch.dtype:
        """Require tensors on one device, of dtypes that kernels are built for; return their common dtype."""
        names = self.spec.inputs
        for name, tensor in zip(names[1:], tensors[1:], strict=True):
            check_like_device(name, tensor, names[0], tensors[0])
        dtype = promote(tensors, floats=self._floats)
        if dtype not in self._dtypes:
            place = next((place for place, tensor in enumerate(tensors) if tensor.dtype not in self._dtypes), 0)
            refuse_type(names[place], " or ".join(map(str, self._dtypes)), dtype)
        return dtype

    def _run_backward(self, tensors: Sequence[Tensor], word: str, scalars: Sequence[float]) -> tuple[Tensor, ...]:
        """Compute the gradients by all inputs from the tensors that the derivative's program names.

        `word`: the value of the operator's choice, such as ``tanh``, or empty without one; `scalars`: the operator's
        numbers, such as a slope.
        """
        assert self._backward is not None  # noqa: S101 - registered only with one
        dtype = promote(tensors, floats=False)
        shape_like = result_like(self._slope.inputs, tensors, dtype)
        outs = [shape_like, *(torch.empty_like(shape_like) for _ in self.spec.inputs[1:])]
        self._backward.launch(converted(tensors, dtype), outs, word, scalars)
        return tuple(outs)

    def _differentiate(self, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors, (word, scalars, kinds) = ctx.saved_tensors, ctx.rest
        needed = ctx.needs_input_grad[: len(tensors)]
        if self._backward is not None and not torch.is_grad_enabled():
            found = self._gradients(grad, tensors, word, scalars)
        else:
            found = self._torchs_gradients(grad, tensors, word, scalars, needed)
        fits = [
            fitted(value, shape, dtype, grad) if need else None
            for value, (shape, dtype), need in zip(found, kinds, needed, strict=True)
        ]
        return (*fits, *([None] if self._words else ()), *(None for _ in scalars))

    def _gradients(
        self, grad: Tensor, tensors: Sequence[Tensor | None], word: str, scalars: Sequence[float]
    ) -> Sequence[Tensor]:
        """Compute the gradients by all inputs with the gradient kernel.

        `word`: the value of the operator's choice, such as ``tanh``, or empty without one; `scalars`: the operator's
        numbers, such as a slope.
        """
        named = {"grad": registration.dense(grad)} | dict(zip(self.spec.inputs, tensors, strict=True))
        numbers = dict(zip(self.spec.scalars, scalars, strict=True))
        rest = (*([word] if self._words else ()), *(numbers[name] for name in self._slope.scalars))
        found = self._backward_op(*(named[name] for name in self._slope.inputs), *rest)
        return found if len(tensors) > 1 else [found]

    def _torchs_gradients(
        self,
        grad: Tensor,
        tensors: Sequence[Tensor | None],
        word: str,
        scalars: Sequence[float],
        needed: Sequence[bool],
    ) -> Sequence[Any]:
        """Compute the needed gradients with torch's operators, which are differentiable in turn.

        `word`: the value of the operator's choice, such as ``tanh``, or empty without one; `scalars`: the operator's
        numbers, such as a slope.
        """
        named = {"grad": grad} | dict(zip(self.spec.inputs, tensors, strict=True))
        values = {name: wide(tensor) for name, tensor in named.items() if tensor is not None}
        values |= dict(zip(self.spec.scalars, scalars, strict=True))
        results = iter(evaluate(chosen(self.spec.derivatives[word], tuple(needed)), values))
        return [next(results) if need else None for need in needed]

    def _register(self) -> None:
        spec, name = self.spec, self.spec.name
        words = [f"str {spec.choice}"] if spec.choice else []
        args = ", ".join(
            [*(f"Tensor {each}" for each in spec.inputs), *words, *(f"float {each}" for each in spec.scalars)]
        )
        self._op = registration.define(
            f"{name}({args}) -> Tensor",
            lambda *given: self._run(*self._checked(given)),
            self._fake,
            backward=self._differentiate,
            save=self._save,
        )

        def into(*given: Any) -> None:
            *values, out = given
            self.run_into(*self._checked(values), out)

        self._out_op = registration.define(f"{name}_out({args}, Tensor(a!) out) -> ()", into, self._fake_into)
        if self._backward is not None:
            self._register_backward(words)

    def _register_backward(self, words: list[str]) -> None:
        name, slope, count = f"{self.spec.name}_bwd", self._slope, len(self.spec.inputs)
        args = ", ".join(
            [*(f"Tensor {each}" for each in slope.inputs), *words, *(f"float {each}" for each in slope.scalars)]
        )
        results = f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"

        def run(*given: Any) -> Any:
            found = self._run_backward(*self._split(given, len(slope.inputs)))
            return found if count > 1 else found[0]

        def fake(*given: Any) -> Any:
            tensors = given[: len(slope.inputs)]
            like = result_like(slope.inputs, tensors, promote(tensors, floats=False))
            found = (like, *(torch.empty_like(like) for _ in range(count - 1)))
            return found if count > 1 else found[0]

        self._backward_op = registration.define(f"{name}({args}) -> {results}", run, fake)

    def _split(self, given: Sequence[Any], count: int = 0) -> tuple[Sequence[Tensor], str, Sequence[float]]:
        """Split flat arguments into tensors, value of the choice, and scalars.

        `count` is the number of tensors; 0 means that of the operator's inputs.

        `given`: tensors, then the choice, then scalars.
        """
        count = count or len(self.spec.inputs)
        words = 1 if self._words else 0
        return given[:count], given[count] if words else "", given[count + words :]

    def _checked(self, given: Sequence[Any]) -> tuple[Sequence[Tensor], str, Sequence[float]]:
        """Split flat arguments and validate them: torch's dispatcher checks only that they are tensors and numbers.

        `given`: tensors, then the choice, then scalars.
        """
        split = self._split(given)
        for name, tensor in zip(self.spec.inputs, split[0], strict=True):
            check_tensor(name, tensor)
        return split

    def _fake(self, *given: Any) -> Tensor:
        tensors = given[: len(self.spec.inputs)]
        return result_like(self.spec.inputs, tensors, self._check_kinds(tensors))

    def _fake_into(self, *given: Any) -> None:
        *values, out = given
        tensors = values[: len(self.spec.inputs)]
        self._check_fit(tensors, out, self._check_kinds(tensors))

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG002 - torch's signature
        tensors, word, scalars = self._split(inputs)
        needed = ctx.needs_input_grad[: len(tensors)]
        # the gradient kernel computes all gradients in any case
        program = self._slope if self._backward is not None else chosen(self.spec.derivatives[word], tuple(needed))
        reads = [name in program.inputs for name in self.spec.inputs]
        ctx.save_for_backward(*(tensor if read else None for tensor, read in zip(tensors, reads, strict=True)))
        ctx.rest = (word, scalars, [(tensor.shape, tensor.dtype) for tensor in tensors])


def define(spec: OperatorSpec) -> Operator:
    """Register an operator with torch and return it; registering an equal spec again returns the same operator.

    Raises:
        ValueError: another operator has its name.
    """
    # register the library's operators first, so that a clash of names is reported here and not at a later import
    from nojit.kernels.pointwise import op  # noqa: F401 - which defines operators itself

    if spec.name in OTHERS:
        raise ValueError(f"expected a name that no operator of the library has, got {spec.name!r}")
    return _register(spec)


def _register(spec: OperatorSpec) -> Operator:
    known = _KNOWN.get(spec.name)
    if known is None:
        known = _KNOWN[spec.name] = Operator(spec)
    if known.spec != spec:
        raise ValueError(f"expected a name that no other operator has, got {spec.name!r}")
    return known


def load_operators(path: Path | str) -> Mapping[str, Operator]:
    """Register the operators of a file of specs; return them by name.

    Raises:
        ManifestError: a spec is invalid.
        OSError: the file cannot be read.
        ValueError: another operator has one of the names.
    """
    return {spec.name: define(spec) for spec in read_specs(Path(path)).operators}


def load_own() -> Mapping[str, Operator]:
    """Register the operators that nojit ships; return them by name."""
    return {spec.name: _register(spec) for spec in read_specs(Path(__file__).with_name("operators.toml")).operators}
