"""Derivatives of programs in reverse mode: each step is differentiated once, and the gradients reuse the forward steps.

As in torch, a tie of ``maximum`` or ``minimum`` gives each side half of the gradient, and ``relu`` and ``abs`` have
gradient 0 at 0.
"""

# ruff: noqa: ARG001, ARG005 - all rules have one signature, used or not

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nojit.kernels.pointwise.program import Builder, Program, Step

__all__ = ["gradients"]

_OPPOSITES: Final = {"lt": "ge", "gt": "le"}
_Rule = Callable[[Builder, int, Step, int], Sequence[int | None]]


def gradients(program: Program) -> Program:
    """Return the program that computes the gradients by all inputs, in their order, from ``grad`` and the inputs.

    Args:
        program: a program with one result, and no input called ``grad``.

    Raises:
        ValueError: the gradients have too many steps.
    """
    builder = Builder()
    grad = builder.add("input", value="grad")
    places: list[int] = []
    for step in program.steps:
        places.append(builder.add(step.op, *(places[arg] for arg in step.args), value=step.value))
    reached: dict[int, list[int]] = {program.results[0]: [grad]}
    for old in range(len(program.steps) - 1, -1, -1):
        step = program.steps[old]
        if old not in reached or step.op not in _RULES:
            continue
        here = Step(step.op, tuple(places[arg] for arg in step.args), step.value)
        parts = _RULES[step.op](builder, builder.total(*reached[old]), here, places[old])
        for arg, part in zip(step.args, parts, strict=True):
            if part is not None:
                reached.setdefault(arg, []).append(part)
    found = {
        step.value: builder.total(*reached.get(old, ())) for old, step in enumerate(program.steps) if step.op == "input"
    }
    results = tuple(found[name] for name in program.inputs)
    return Program(("grad", *program.inputs), program.scalars, tuple(builder.steps), results).pruned()


def _add(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    return grad, grad


def _sub(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    return grad, builder.apply("neg", grad)


def _mul(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    left, right = step.args
    return builder.product(grad, right), builder.product(grad, left)


def _div(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    # do not reuse grad / y as a factor: it may overflow where the gradient by y does not
    part = builder.apply("div", place, step.args[1])
    return builder.apply("div", grad, step.args[1]), builder.apply("neg", builder.product(grad, part))


def _maximum(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    return _larger(builder, grad, *step.args)


def _minimum(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    return _larger(builder, grad, step.args[1], step.args[0])


def _larger(builder: Builder, grad: int, left: int, right: int) -> tuple[int, int]:
    zero, half = builder.number(0), builder.product(grad, builder.number(0.5))
    same = builder.add("eq", left, right)
    ours, theirs = (
        builder.add("where", same, half, builder.add("where", builder.add("gt", one, other), grad, zero))
        for one, other in ((left, right), (right, left))
    )
    return ours, theirs


def _where(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    zero = builder.number(0)
    test, bound, value = step.args
    asked = builder.steps[test]
    if asked.op in _OPPOSITES and asked.args == (value, bound):
        # the parser writes clamp with such a bound: NaN is on neither side, and torch's clamp has gradient 0 there
        kept = builder.add("where", builder.add(_OPPOSITES[asked.op], value, bound), grad, zero)
    else:
        kept = builder.add("where", test, zero, grad)
    return None, builder.add("where", test, grad, zero), kept


def _abs(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    zero = builder.number(0)
    below = builder.add("where", builder.add("lt", step.args[0], zero), builder.apply("neg", grad), zero)
    return (builder.add("where", builder.add("gt", step.args[0], zero), grad, below),)


def _relu(builder: Builder, grad: int, step: Step, place: int) -> Sequence[int | None]:
    if builder.number_at(grad) == 0:
        return (grad,)
    # a separate step, whose derivative is 0: a where would have none
    return (builder.add("relu_grad", step.args[0], grad),)


def _slope(rule: Callable[[Builder, int, int], int]) -> _Rule:
    """Return the differentiation rule of a unary function; `rule` builds the derivative from builder, operand and result."""
    return lambda builder, grad, step, place: (builder.product(grad, rule(builder, step.args[0], place)),)


def _one_minus(builder: Builder, place: int) -> int:
    return builder.apply("sub", builder.number(1), place)


def _sigmoid(builder: Builder, x: int, y: int) -> int:
    return builder.product(y, _one_minus(builder, y))


def _silu(builder: Builder, x: int, y: int) -> int:
    sigmoid = builder.add("sigmoid", x)
    rest = builder.product(x, _one_minus(builder, sigmoid))
    return builder.product(sigmoid, builder.total(builder.number(1), rest))


def _gauss(builder: Builder, x: int, scale: float, width: float) -> int:
    """Build ``scale * exp(width * x * x)``; return the index of its step."""
    inner = builder.product(builder.number(width), builder.product(x, x))
    return builder.product(builder.number(scale), builder.apply("exp", inner))


def _gelu(builder: Builder, x: int, y: int) -> int:
    inner = builder.apply("erf", builder.product(x, builder.number(math.sqrt(0.5))))
    share = builder.product(builder.number(0.5), builder.total(builder.number(1), inner))
    return builder.total(share, builder.product(x, _gauss(builder, x, 1 / math.sqrt(2 * math.pi), -0.5)))


def _gelu_tanh(builder: Builder, x: int, y: int) -> int:
    """Build the derivative of ``x * sigmoid(u)``, where u = 2 sqrt(2 / pi) (x + 0.044715 x^3).

    ``1 - sigmoid(u)`` is multiplied by a large factor, so it must keep its digits where sigmoid(u) is nearly 1.
    """
    scale, square = 2 * math.sqrt(2 / math.pi), builder.product(x, x)
    inner = builder.total(builder.number(scale), builder.product(builder.number(scale * 0.044715), square))
    place = builder.product(x, inner)
    sigmoid, other = builder.add("sigmoid", place), builder.add("sigmoid", builder.apply("neg", place))
    slope = builder.total(builder.number(scale), builder.product(builder.number(3 * scale * 0.044715), square))
    rest = builder.product(builder.product(x, slope), other)
    return builder.product(sigmoid, builder.total(builder.number(1), rest))


_RULES: Final[Mapping[str, _Rule]] = {
    "abs": _abs,
    "add": _add,
    "cos": _slope(lambda b, x, y: b.apply("neg", b.add("sin", x))),
    "div": _div,
    "erf": _slope(lambda b, x, y: _gauss(b, x, 2 / math.sqrt(math.pi), -1.0)),
    "exp": _slope(lambda b, x, y: y),
    "gelu": _slope(_gelu),
    "gelu_tanh": _slope(_gelu_tanh),
    "log": _slope(lambda b, x, y: b.apply("div", b.number(1), x)),
    "maximum": _maximum,
    "minimum": _minimum,
    "mul": _mul,
    "neg": lambda b, grad, step, place: (b.apply("neg", grad),),
    "relu": _relu,
    "rsqrt": _slope(lambda b, x, y: b.apply("div", b.product(b.number(-0.5), y), x)),
    "sigmoid": _slope(_sigmoid),
    "silu": _slope(_silu),
    "sin": _slope(lambda b, x, y: b.add("cos", x)),
    "sqrt": _slope(lambda b, x, y: b.apply("div", b.number(0.5), y)),
    "square": _slope(lambda b, x, y: b.product(b.number(2), x)),
    "sub": _sub,
    "tanh": _slope(lambda b, x, y: _one_minus(b, b.product(y, y))),
    "where": _where,
}
