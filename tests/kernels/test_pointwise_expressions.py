"""Expressions of pointwise operators: read, refused, differentiated."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.kernels.pointwise.derivatives import gradients
from nojit.kernels.pointwise.evaluation import evaluate
from nojit.kernels.pointwise.parser import MAX_DEPTH, MAX_LENGTH, parse
from nojit.kernels.pointwise.program import FUNCTIONS, MAX_STEPS
from nojit.runtime.expr.operations import ExpressionError

from tests.kernels.expressions import expressions

INPUTS = ("x", "y", "z")
# each function, where it is smooth enough for finite differences: of 0.5 to 1.5
SMOOTH = {name: ", ".join(INPUTS[: function.arity]) for name, function in FUNCTIONS.items()} | {
    "clamp": "x, 0.3 * y, 3",
    "where": "x + 9 < y, x * y, x / y",
    "maximum": "x + 9, y",
    "minimum": "x + 9, y",
}


def operands(dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return {name: (torch.rand(5, dtype=torch.float64) + 0.5).to(dtype).requires_grad_() for name in INPUTS}


def used(text: str, names: tuple[str, ...] = INPUTS) -> tuple[str, ...]:
    return tuple(name for name in names if re.search(rf"\b{name}\b", text))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_differentiated_right(name):
    program = parse(f"{name}({SMOOTH[name]}) * x + 2", used(SMOOTH[name]))
    steps = gradients(program)

    class Ours(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *values):
            ctx.save_for_backward(*values)
            return evaluate(program, dict(zip(program.inputs, values, strict=True)))[0]

        @staticmethod
        def backward(ctx, grad):
            named = {"grad": grad} | dict(zip(program.inputs, ctx.saved_tensors, strict=True))
            return tuple(torch.as_tensor(value, dtype=grad.dtype).expand_as(grad) for value in evaluate(steps, named))

    given_ = operands()
    assert torch.autograd.gradcheck(Ours.apply, [given_[name] for name in program.inputs])


@settings(max_examples=60, deadline=None)
@given(text=expressions(INPUTS), seed=st.integers(0, 99))
def test_gradients_of_random_expressions_are_autograds(text, seed):
    program = parse(text, used(text))
    torch.manual_seed(seed)
    values = {name: torch.randn(7, dtype=torch.float64, requires_grad=True) for name in program.inputs}
    (result,) = evaluate(program, values)
    grad = torch.randn(7, dtype=torch.float64)
    expected = torch.autograd.grad(result, list(values.values()), grad, allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        got = evaluate(gradients(program), {"grad": grad} | values)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(mine, dtype=torch.float64).expand(7), theirs, equal_nan=True)


def test_ties_and_edges_are_torchs():
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    for text, torchs in (
        ("maximum(x, y)", torch.maximum),
        ("minimum(x, y)", torch.minimum),
        ("abs(x) + 0 * y", lambda x, y: x.abs() + 0 * y),
        ("relu(x) + 0 * y", lambda x, y: x.relu() + 0 * y),
        ("0 * relu(x) + y", lambda x, y: 0 * x.relu() + y),
        ("clamp(x, 0, 1) + 0 * y", lambda x, y: x.clamp(0, 1) + 0 * y),
    ):
        ours = {"x": x.clone(), "y": torch.zeros(4)}
        theirs = [value.clone().requires_grad_() for value in ours.values()]
        expected = torch.autograd.grad(torchs(*theirs), theirs, torch.ones(4))
        got = evaluate(gradients(parse(text, ("x", "y"))), {"grad": torch.ones(4)} | ours)
        for mine, other in zip(got, expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(mine).float().expand(4), other)


@pytest.mark.parametrize("scalar", [0.5, -2.0, 0.0])
@pytest.mark.parametrize(
    "text",
    [
        "silu(s) * x",
        "x / (1 / s)",
        "maximum(s, 0.1) * x * x",
        "where(abs(s) < 1, x * x, 1) + x",
        "where(s < x, exp(s) * x, trunc_divide(s, 0.3) * x)",
    ],
)
def test_what_is_made_of_numbers_alone_is_computed_by_torch_too(text, scalar):
    program = parse(text, ("x",), ("s",))
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    (expected,) = evaluate(program, {"x": x, "s": torch.tensor(scalar, dtype=torch.float64)})
    slope = torch.autograd.grad(expected.sum(), x)[0]
    operands = {"x": x.detach(), "s": scalar}
    torch.testing.assert_close(evaluate(program, operands)[0], expected.detach())
    (found,) = evaluate(gradients(program), {"grad": torch.ones(5, dtype=torch.float64)} | operands)
    torch.testing.assert_close(found, slope, equal_nan=True)


def test_steps_are_shared_and_numbers_computed():
    program = parse("sqrt(2) * silu(x) + sqrt(2) * silu(x)", ("x",))
    assert [step.op for step in program.steps] == ["number", "input", "silu", "mul", "add"]
    assert program.steps[0].value == 2**0.5


def test_what_is_a_float_for_ints_too():
    for text, floats in (("x + 1", False), ("x / 2", True), ("x * 2.0", True), ("exp(x)", True), ("abs(x)", False)):
        assert parse(text, ("x",)).floats is floats


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an operand, got the end at column 0"),
        ("silu(x", r"expected '\)', got the end at column 6"),
        ("silo(x)", "expected a function, got 'silo'; did you mean 'silu'"),
        ("silu(x, x)", "expected 1 arguments of silu, got 2"),
        ("where(x > 0, x)", "expected 3 arguments of where, got 2"),
        ("where(x, x, x)", "expected a comparison first in where, got ','"),
        ("where(1 > 2, x, x)", "expected an operand in the comparison"),
        ("x > 0", "a comparison stands in where"),
        ("silu + x", "got 'silu': a function, which takes arguments"),
        ("xx", "expected one of x, got 'xx'; did you mean 'x'"),
        ("grad * x", "expected one of x, got 'grad'"),
        ("1 / 0 * x", "div of 1, 0 has no value at column 2"),
        ("exp(1000) * x", "exp of 1000 has no value"),
        ("sqrt(-1) * x", "sqrt of -1 has no value"),
        ("silu(2) * x", "expected an input or scalar as an argument of silu, got numbers alone"),
        ("clamp(1, x, x)", "expected an operand to clamp"),
        ("1e99 * x", "expected a number that fp32 or 64 bits hold"),
        ("99999999999999999999 * x", "expected a number that fp32 or 64 bits hold"),
        ("3000000000 * 9000000000 * 2 * x", "is out of range"),
        ("2", "expected the expression to use 'x'"),
        ("(" * 100 + "x" + ")" * 100, f"at most {MAX_DEPTH} levels"),
        ("-" * 100 + "x", f"at most {MAX_DEPTH} levels"),
        ("x" + " + x" * MAX_LENGTH, f"at most {MAX_LENGTH} characters"),
        ("+".join(f"{number}*x" for number in range(600)), f"expected at most {MAX_STEPS} steps, got more"),
        (None, "expected text"),
    ],
)
def test_an_expression_is_refused(text, message):
    with pytest.raises(ExpressionError, match=message):
        parse(text, ("x",))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "x.__class__",
        "x; import os",
        "x\n@triton.jit",
        "eval(x)",
        "lambda: x",
        "x if x else x",
        "x[0]",
        "{x}",
        "x := 1",
        "x ** 2",
        "x // 2",
        "x # comment",
        "f'{x}'",
        "x\\\n",
        "x\0",
        "\uff58",
        "0x10 * x",
        "1_0 * x",
        "1j * x",
    ],
)
def test_what_python_would_take_is_refused(text):
    with pytest.raises(ExpressionError):
        parse(text, ("x",))


@pytest.mark.parametrize("name", ["", "X", "x y", "x;", "class", "grad", "out", "exp", "x" * 40, "é", "__x", None, 3])
def test_a_name_is_refused(name):
    with pytest.raises(ValueError, match="expected a name for an input or scalar"):
        parse("x", (name,))


def test_names_are_told_apart():
    with pytest.raises(ValueError, match="distinct names"):
        parse("x", ("x", "x"))
    with pytest.raises(ValueError, match="expected 1 to 8 inputs"):
        parse("2", ())


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="xy()+-*/<>=.,019e \n'\"_silugrandwhe[]{}", max_size=40))
def test_whatever_comes_is_read_or_refused(text):
    with contextlib.suppress(ExpressionError):
        parse(text, ("x", "y"))
