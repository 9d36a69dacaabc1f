"""Evaluation of programs with torch's operators: as the reference for kernels, and for second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import torch
from nojit.kernels.pointwise.program import FUNCTIONS, Program, Step
from torch import Tensor
from torch.nn import functional

__all__ = ["chosen", "evaluate", "wide"]

_OPERATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": abs,
    "add": lambda x, y: x + y,
    "cos": torch.cos,
    "div": lambda x, y: x / y,
    "eq": lambda x, y: x == y,
    "erf": torch.erf,
    "exp": torch.exp,
    "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "ge": lambda x, y: x >= y,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gt": lambda x, y: x > y,
    "le": lambda x, y: x <= y,
    "log": torch.log,
    "lt": lambda x, y: x < y,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": lambda x, y: x * y,
    "ne": lambda x, y: x != y,
    "neg": lambda x: -x,
    "relu": torch.relu,
    "relu_grad": lambda x, grad: torch.ops.aten.threshold_backward(grad, x, 0),
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "sin": torch.sin,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "sub": lambda x, y: x - y,
    "tanh": torch.tanh,
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}
_TENSORS_ONLY: Final = FUNCTIONS.keys() - {"abs", "where"}
"""Functions for which torch's version refuses Python numbers."""


def wide(value: Tensor) -> Tensor:
    """Return a tensor in the dtype that kernels compute in: fp32 for 16-bit floats, otherwise unchanged."""
    return value.float() if value.dtype in {torch.float16, torch.bfloat16} else value


def evaluate(program: Program, operands: Mapping[str, Tensor | float]) -> tuple[Any, ...]:
    """Compute all results of a program in the dtypes of the operands; a result that depends on no operand is a number.

    Args:
        program: the program to evaluate.
        operands: tensors, which may broadcast, and scalars, by name.
    """
    like = next(value for value in operands.values() if isinstance(value, Tensor))
    found: list[Any] = []
    for step in program.steps:
        found.append(_compute(step, [found[arg] for arg in step.args], operands, like))
    return tuple(found[place] for place in program.results)


def _compute(step: Step, args: list[Any], operands: Mapping[str, Tensor | float], like: Tensor) -> Any:
    if step.op in {"input", "scalar"}:
        return operands[str(step.value)]
    if step.op == "number":
        return step.value
    if step.op == "where":
        # a comparison of two numbers is a bool, not a tensor
        return torch.where(*args) if isinstance(args[0], Tensor) else args[1 if args[0] else 2]
    if step.op in _TENSORS_ONLY or (step.op == "div" and not any(isinstance(arg, Tensor) for arg in args)):
        args = [arg if isinstance(arg, Tensor) else torch.as_tensor(arg, device=like.device) for arg in args]
    return _OPERATIONS[step.op](*args)


@lru_cache(maxsize=256)
def chosen(program: Program, needed: tuple[bool, ...]) -> Program:
    """Return the program with only those results for which `needed` is True."""
    results = tuple(place for place, need in zip(program.results, needed, strict=True) if need)
    return Program(program.inputs, program.scalars, program.steps, results).pruned()
