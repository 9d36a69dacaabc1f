"""Calls of every pointwise operator that reach every variant of its kernels, made of the operators' specs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from nojit.kernels.pointwise import op
from nojit.kernels.pointwise.evaluation import evaluate
from nojit.kernels.pointwise.op_from_spec import load_operators
from nojit.kernels.pointwise.spec import OperatorSpec
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, view

# those of arguments that operators of other names serve, too
OPERATORS = load_operators(Path(__file__).resolve().parents[2] / "kernels/pointwise/operators.toml")
SCALARS = {"min": -0.5, "max": 1.0, "value": 0.3, "alpha": -0.7, "weight": 0.3}

Make = Callable[[torch.dtype, int], Tensor]
# the last chunk starts at an aligned address
LAYOUTS: dict[str, Make] = {
    "flat": lambda dtype, seed: view((96, 128), dtype, seed),
    "flat unaligned": lambda dtype, seed: view((7, 33), dtype, seed, offset=1),
    "rows": lambda dtype, seed: view((64, 96), dtype, seed).chunk(2, -1)[1],
    "wide rows": lambda dtype, seed: view((6, 2048), dtype, seed).chunk(2, -1)[1],
    "unaligned rows": lambda dtype, seed: view((5, 66), dtype, seed)[:, 1:34],
    "every other": lambda dtype, seed: view((31, 66), dtype, seed)[:, ::2],
}
KINDS: dict[str, Make] = {
    "r": lambda dtype, seed: view((64, 96), dtype, seed),
    "c": lambda dtype, seed: view((64, 1), dtype, seed),
    "t": lambda dtype, seed: view((96, 64), dtype, seed).t(),
}


def generated_calls() -> Iterator[Call]:
    for spec, dtype in itertools.product([operator.spec for operator in OPERATORS.values()], DTYPES):
        ways = {name: [make] * len(spec.inputs) for name, make in LAYOUTS.items()}
        ways |= {kinds: [KINDS[letter] for letter in kinds] for kinds in spec.kinds}
        for word, (name, makes) in itertools.product(spec.words or ("",), ways.items()):
            yield _call(spec, word, dtype, name, makes, gradients=False)
            if spec.gradient:
                yield _call(spec, word, dtype, name, makes, gradients=True)


def huge_rectangle_calls() -> Iterator[Call]:
    """Rows, and what is read element by element, past 2^31 elements: compared where 32 bits would wrap."""
    rows, width, last = (1 << 15) + 3, 1 << 16, slice(-2, None)
    for name, step in (("rows", 1), ("every other", 2)):

        def operands(step: int = step) -> tuple[Tensor, Tensor]:
            gate, up = view((rows, 2 * width), torch.bfloat16, 1).chunk(2, -1)
            return gate[:, ::step], up[:, ::step]

        def exact(wide: torch.dtype, operands: Callable[[], tuple[Tensor, Tensor]] = operands) -> Outputs:
            gate, up = (value[last].to(wide) for value in operands())
            return (torch.nn.functional.silu(gate) * up,)

        yield Call(
            f"swiglu bfloat16 huge {name}",
            lambda operands=operands: (op.swiglu(*operands())[last].clone(),),
            lambda exact=exact: exact(torch.float64),
            lambda exact=exact: exact(torch.bfloat16),
            (2.0,),
        )


def _call(spec: OperatorSpec, word: str, dtype: torch.dtype, name: str, makes: list[Make], *, gradients: bool) -> Call:
    named = {each: SCALARS[each] for each in spec.scalars} | ({spec.choice: word} if word else {})

    def ours(*operands: Tensor) -> Tensor:
        return OPERATORS[spec.name](*operands, **named)

    def torchs(*operands: Tensor) -> Tensor:
        (result,) = evaluate(spec.programs[word], dict(zip(spec.inputs, operands, strict=True)) | named)
        return result

    def run(function: Callable[..., Tensor], wide: torch.dtype) -> Outputs:
        operands = [make(dtype, seed).to(wide).requires_grad_(gradients) for seed, make in enumerate(makes)]
        result = function(*operands)
        if not gradients:
            return (result,)
        grad = view(tuple(result.shape), dtype, 9).to(wide)
        return (result.detach(), *torch.autograd.grad(result, operands, grad))

    return Call(
        f"{spec.name} {word} {str(dtype)[6:]} {name}{' gradients' if gradients else ''}",
        lambda: run(ours, dtype),
        lambda: run(torchs, torch.float64),
        lambda: run(torchs, dtype),
        (2.0,) + (3.0,) * (len(makes) if gradients else 0),
    )
