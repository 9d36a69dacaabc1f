"""Generated operators against torch: dtypes, broadcasting, strides, gradients, ``out=``; those that ship and random ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own spelling
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit.kernels import library, pointwise
from nojit.kernels.pointwise.__main__ import generate
from nojit.kernels.pointwise.evaluation import evaluate
from nojit.kernels.pointwise.op_from_spec import Operator, load_operators
from nojit.kernels.pointwise.program import Program
from nojit.kernels.pointwise.promotion import promote
from nojit.runtime.errors import ArgumentError
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn import functional

from tests.kernels.accuracy import assert_accurate
from tests.kernels.expressions import expressions
from tests.kernels.interpreter import Interpreter

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# the operator, torch's own, how many operands
OPERATORS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], int]] = {
    "add": (pointwise.add, torch.add, 2),
    "sub": (pointwise.sub, torch.sub, 2),
    "add alpha": (partial(pointwise.add, alpha=-0.7), partial(torch.add, alpha=-0.7), 2),
    "sub alpha": (partial(pointwise.sub, alpha=3), partial(torch.sub, alpha=3), 2),
    "mul": (pointwise.mul, torch.mul, 2),
    "div": (pointwise.div, torch.div, 2),
    "div trunc": (partial(pointwise.div, rounding_mode="trunc"), partial(torch.div, rounding_mode="trunc"), 2),
    "div floor": (partial(pointwise.div, rounding_mode="floor"), partial(torch.div, rounding_mode="floor"), 2),
    "relu": (pointwise.relu, torch.relu, 1),
    "gelu": (pointwise.gelu, F.gelu, 1),
    "gelu tanh": (partial(pointwise.gelu, approximate="tanh"), partial(F.gelu, approximate="tanh"), 1),
    "silu": (pointwise.silu, F.silu, 1),
    "sigmoid": (pointwise.sigmoid, torch.sigmoid, 1),
    "tanh": (pointwise.tanh, torch.tanh, 1),
    "exp": (pointwise.exp, torch.exp, 1),
    "swiglu": (pointwise.swiglu, lambda gate, up: F.silu(gate) * up, 2),
    "geglu": (pointwise.geglu, lambda gate, up: F.gelu(gate) * up, 2),
    "reglu": (pointwise.reglu, lambda gate, up: F.relu(gate) * up, 2),
    "add_relu": (pointwise.add_relu, lambda x, y: F.relu(x + y), 2),
    "add_silu": (pointwise.add_silu, lambda x, y: F.silu(x + y), 2),
    "add_gelu": (pointwise.add_gelu, lambda x, y: F.gelu(x + y), 2),
    "clamp from below": (partial(pointwise.clamp, min=0), partial(torch.clamp, min=0), 1),
    "clamp from above": (partial(pointwise.clamp, max=0.25), partial(torch.clamp, max=0.25), 1),
    "clamp": (partial(pointwise.clamp, min=-0.5, max=1), partial(torch.clamp, min=-0.5, max=1), 1),
    "addcmul": (partial(pointwise.addcmul, value=0.3), partial(torch.addcmul, value=0.3), 3),
    "lerp": (pointwise.lerp, torch.lerp, 3),
    "lerp by less": (partial(pointwise.lerp, weight=0.3), partial(torch.lerp, weight=0.3), 2),
    "lerp by more": (partial(pointwise.lerp, weight=0.8), partial(torch.lerp, weight=0.8), 2),
}

# shapes of up to three operands, and what is done to each
LAYOUTS: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[[Tensor], Tensor]]] = {
    "contiguous": (((7, 33), (7, 33), (7, 33)), lambda x: x),
    "rows": (((7, 33), (33,), (1, 33)), lambda x: x),
    "columns": (((7, 33), (7, 1), (7, 1)), lambda x: x),
    "aligned columns": (((4, 48), (4, 1), (4, 1)), lambda x: x),
    "first a column": (((7, 1), (7, 33), (33,)), lambda x: x),
    "one element": (((7, 33), (), (1, 1)), lambda x: x),
    "both ways": (((7, 1), (33,), (1,)), lambda x: x),
    "every other": (((7, 66), (7, 66), (7, 66)), lambda x: x[:, ::2]),
    "chunks": (((5, 64), (5, 64), (5, 64)), lambda x: x.chunk(2, -1)[1]),
    "transposed": (((48, 16), (48, 16), (48, 16)), lambda x: x.t()),
    "unaligned": (((7, 33), (7, 33), (7, 33)), lambda x: x[1:, 1:]),
    "channels last": (((2, 3, 4, 5), (2, 3, 4, 5), (1, 3, 1, 1)), lambda x: x.to(memory_format=torch.channels_last)),
    "five dims": (((2, 3, 1, 2, 4), (2, 1, 3, 1, 4), (1, 3, 1, 2, 1)), lambda x: x.transpose(0, 1)),
    "alternating": (((2, 3, 2, 3, 2), (2, 1, 2, 1, 2), (1, 3, 1, 3, 1)), lambda x: x),
    "empty": (((3, 0), (1,), (3, 1)), lambda x: x),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_is_as_accurate_as_torch(name, dtype):
    operator, torchs, count = OPERATORS[name]
    operands = [(torch.randn(3, 171) * 3).to(dtype) for _ in range(count)]
    exact = torchs(*(value.double() for value in operands))
    assert_accurate(operator(*operands), exact, torchs(*operands))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["relu", "add", "swiglu", "addcmul"])
def test_any_layout(name, layout):
    operator, torchs, count = OPERATORS[name]
    shapes, arrange = LAYOUTS[layout]
    operands = [arrange(torch.randn(shape)) for shape in shapes[:count]]
    result, expected = operator(*operands), torchs(*operands)
    torch.testing.assert_close(result, expected)
    out = torch.full_like(expected, float("nan")).mT.clone().mT if expected.dim() > 1 else torch.empty_like(expected)
    assert operator(*operands, out=out) is out
    assert torch.equal(out, result)


@pytest.mark.usefixtures("interpreted")
def test_a_transposed_operand():
    for turned in itertools.product((False, True), repeat=2):
        for size in (32, 33):
            x, y = (torch.randn(size, size).t() if turn else torch.randn(size, size) for turn in turned)
            assert torch.equal(pointwise.mul(x, y), x * y)


@pytest.mark.usefixtures("interpreted")
def test_the_result_lies_as_the_first_operand_of_its_shape():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert pointwise.add(torch.randn(3, 1, 1), x).stride() == x.stride()
    assert pointwise.relu(x[..., ::2]).is_contiguous() == torch.relu(x[..., ::2]).is_contiguous()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "dtypes",
    [pair for pair in itertools.product((*FLOATS, torch.int32, torch.bool), repeat=2) if set(pair) & set(FLOATS)],
)
@pytest.mark.parametrize("dims", [(2, 2), (2, 0), (0, 2), (0, 0)])
def test_dtypes_are_promoted_as_torchs(dtypes, dims):
    x, y = (torch.ones((3, 2)[:dim], dtype=dtype) for dtype, dim in zip(dtypes, dims, strict=True))
    expected = x * y
    if expected.dtype in FLOATS:
        result = pointwise.mul(x, y)
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)


@pytest.mark.parametrize(
    "dtypes", list(itertools.product((*FLOATS, torch.float64, torch.int8, torch.int64, torch.bool), repeat=2))
)
def test_promotion_is_torchs(dtypes):
    for dims in itertools.product((0, 1), repeat=2):
        tensors = [torch.ones((2,)[:dim], dtype=dtype) for dtype, dim in zip(dtypes, dims, strict=True)]
        assert promote(tensors, floats=False) == torch.result_type(*tensors)
        assert promote(tensors, floats=True) == torch.div(*tensors).dtype


@pytest.mark.usefixtures("interpreted")
def test_ints_become_floats_where_results_are():
    x = torch.arange(-3, 4)
    torch.testing.assert_close(pointwise.sigmoid(x), torch.sigmoid(x))
    torch.testing.assert_close(pointwise.div(x, x + 10), x / (x + 10))


@pytest.mark.parametrize(("operator", "torchs"), [(pointwise.add, torch.add), (pointwise.sub, torch.sub)])
def test_alpha_is_torchs(interpreted, operator, torchs):
    launched = []
    x, whole = torch.randn(3, 5), torch.arange(5)
    with library.override(lambda name: launched.append(name) or interpreted(name)):
        for alpha in (1, 1.0, 2, -0.5, 0, float("inf")):
            for operands in ((x, x + 1), (x, whole), (whole, x)):
                result = operator(*operands, alpha=alpha)
                torch.testing.assert_close(result, torchs(*operands, alpha=alpha), equal_nan=True)
                assert operator(*operands, alpha=alpha, out=result.clone()).equal(result) or alpha == float("inf")
            assert any(name.startswith("add_scaled") for name in launched) == (alpha != 1)
    assert {"add_scaled", "add_scaled_rectangles"} < set(launched)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("operator", [pointwise.add, pointwise.sub])
def test_what_alpha_is_refused(operator):
    x, whole = torch.randn(3, 5), torch.arange(5)
    for call, error, message in (
        (lambda: operator(whole, whole, alpha=2), ArgumentError, "input: expected torch.float16 .*, got torch.int64"),
        (lambda: operator(whole, whole, alpha=0.5), ArgumentError, "input: expected torch.float16 .*, got torch.int64"),
        (lambda: operator(x, x, alpha=True), ArgumentError, "alpha: expected a number, not a bool"),
        (lambda: operator(x, x, alpha=torch.tensor(2.0)), ArgumentError, "alpha: expected a number, got Tensor"),
        (lambda: operator(x, x, alpha=1e39), ValueError, "alpha: expected a number that fp32 holds, got 1e"),
        (lambda: operator(x, x, out=x[0], alpha=2), ValueError, "out: expected shape"),
        (lambda: operator(3, x, alpha=2), ArgumentError, "input: expected a tensor, got int"),
    ):
        with pytest.raises(error, match=message):
            call()


def assert_identical(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(found)[~found.isnan()], torch.signbit(expected)[~expected.isnan()])


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("how", ["trunc", "floor"])
def test_quotients_are_rounded_as_torchs(how):
    edges = [0.0, 1.0, 3.0, float("inf"), 1e-40, 1e30, 0.1, 0.3, 2.5, 1e-45, 3.4e38]
    values = torch.tensor([float("nan"), *edges, *(-edge for edge in edges)])
    x, y = values[:, None], values[None]
    assert_identical(pointwise.div(x, y, rounding_mode=how), torch.div(x, y, rounding_mode=how))
    # just below a whole number, to which the quotient is rounded
    divisor = torch.rand(4096) + 0.5
    below = torch.nextafter(torch.arange(1.0, 4097) * divisor, torch.zeros(()))
    for one in (below, -below):
        assert_identical(pointwise.div(one, divisor, rounding_mode=how), torch.div(one, divisor, rounding_mode=how))
    for dtype in (torch.float16, torch.bfloat16):
        x, y = (torch.randn(4096) * 100).to(dtype), torch.randn(4096).to(dtype)
        exact = torch.div(x.double(), y.double(), rounding_mode=how).to(dtype)
        assert_identical(pointwise.div(x, y, rounding_mode=how), exact)
    whole, two = torch.arange(-5, 6), torch.tensor(2.0)
    assert_identical(pointwise.div(whole, two, rounding_mode=how), torch.div(whole, two, rounding_mode=how))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("how", ["trunc", "floor"])
def test_rounded_quotients_have_gradients_of_0(how):
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    gradients = torch.autograd.grad(pointwise.div(x, y, rounding_mode=how).sum(), (x, y))
    assert [gradient.shape for gradient in gradients] == [x.shape, y.shape]
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.usefixtures("interpreted")
def test_how_quotients_are_not_rounded():
    x, whole = torch.ones(3), torch.arange(3)
    with pytest.raises(ValueError, match="rounding_mode: expected 'trunc' or 'floor', got 'none'"):
        pointwise.div(x, x, rounding_mode="none")
    with pytest.raises(ValueError, match="rounding_mode: expected 'trunc' or 'floor', got 3"):
        pointwise.div(x, x, rounding_mode=3)
    with pytest.raises(ArgumentError, match=r"input: expected floats, as results are floats, got torch\.int64"):
        pointwise.div(whole, whole, rounding_mode="floor")


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh"])
def test_fp32_is_exact_to_few_units(name):
    operator, torchs, _ = OPERATORS[name]
    x = torch.cat(
        [torch.linspace(-87, 88.7, 999), torch.logspace(-30, 0, 99), torch.tensor([float("inf"), -float("inf")])]
    )
    exact = torchs(x.double())
    torch.testing.assert_close(operator(x).double(), exact, rtol=4e-7, atol=0)
    assert operator(torch.tensor([float("nan")])).isnan().all()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "gelu tanh", "silu"])
def test_a_zero_keeps_its_sign(name, dtype):
    operator, torchs, _ = OPERATORS[name]
    x = torch.tensor([-0.0, 0.0], dtype=dtype)
    # with fp32 some processors' libraries lose it
    assert torch.equal(torch.signbit(operator(x)), torch.signbit(torchs(x.double())))
    assert not operator(x).any()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float16, 0.015), (torch.bfloat16, 0.001)], ids=str)
def test_gelu_of_every_value_of_16_bits_is_rounded_to_it_or_its_neighbour(dtype, apart):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite()]
    exact = x.double() * torch.special.log_ndtr(x.double()).exp()
    # where results or tails are no normal numbers places are lost
    normal = exact.abs() > max(torch.finfo(dtype).smallest_normal, 1e-36)
    x, right = x[normal], exact[normal].to(dtype).view(torch.int16).int()
    distance = (pointwise.gelu(x).view(torch.int16).int() - right).abs()
    assert int(distance.max()) <= 1
    assert float((distance != 0).float().mean()) < apart


@pytest.mark.usefixtures("interpreted")
def test_gelu_is_exact_to_few_units_in_its_tail_too():
    x = torch.cat([torch.linspace(-6, 9, 4001), torch.logspace(-30, 0, 99), -torch.logspace(-30, 0, 99)])
    # torch's cancels there, in fp64 too
    exact = x.double() * torch.special.ndtr(x.double())
    torch.testing.assert_close(pointwise.gelu(x).double(), exact, rtol=4e-6, atol=0)
    torch.testing.assert_close(pointwise.gelu(x).double(), exact, rtol=0, atol=5e-7)
    edges = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e30, -0.0])
    torch.testing.assert_close(pointwise.gelu(edges), functional.gelu(edges.double()).float(), equal_nan=True)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["relu", "clamp", "reglu"])
def test_nan_stays(name):
    operator, _, count = OPERATORS[name]
    assert operator(*[torch.tensor([float("nan")])] * count).isnan().all()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "layout", ["contiguous", "rows", "columns", "one element", "chunks", "alternating", "five dims", "both ways"]
)
@pytest.mark.parametrize(
    "name",
    [
        "add",
        "sub alpha",
        "div",
        "gelu",
        "gelu tanh",
        "silu",
        "swiglu",
        "geglu",
        "reglu",
        "clamp",
        "addcmul",
        "lerp",
        "lerp by less",
        "lerp by more",
    ],
)
def test_gradients(name, layout, dtype):
    operator, torchs, count = OPERATORS[name]
    shapes, arrange = LAYOUTS[layout]
    whole = [torch.randn(shape).to(dtype) for shape in shapes[:count]]
    found = []
    for function, wide in ((operator, None), (torchs, None), (torchs, torch.float64)):
        leaves = [value.detach().to(wide or dtype, copy=True).requires_grad_() for value in whole]
        result = function(*(arrange(leaf) for leaf in leaves))
        grad = torch.cos(torch.arange(result.numel()).double()).view(result.shape).to(dtype).to(wide or dtype)
        found.append(torch.autograd.grad(result, leaves, grad))
    for mine, theirs, exact in zip(*found, strict=True):
        assert_accurate(mine, exact, theirs, factor=3, slack=float(exact.abs().max()) * 2e-6)


@pytest.mark.usefixtures("interpreted")
def test_gradients_of_expanded_gradients_and_of_one_operand_alone():
    gate, up = torch.randn(4, 32, requires_grad=True), torch.randn(4, 32)
    pointwise.swiglu(gate, up).sum().backward()
    expected = torch.autograd.grad((F.silu(gate) * up).sum(), gate)[0]
    torch.testing.assert_close(gate.grad, expected)


@pytest.mark.usefixtures("interpreted")
def test_the_gradient_of_a_divisor_is_finite_where_torchs_is():
    found = []
    for function in (pointwise.div, torch.div):
        x, y = torch.tensor([0.0, 1e-30, 1.0]).requires_grad_(), torch.tensor([1e-30, 1e-20, 2.0]).requires_grad_()
        found.append(torch.autograd.grad(function(x, y), (x, y), torch.tensor([1e20, 1e20, 3.0])))
    assert found[0][1].isfinite().all()
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["gelu", "gelu tanh", "silu", "swiglu", "tanh", "mul"])
def test_gradients_of_gradients(name):
    operator, torchs, count = OPERATORS[name]
    found = []
    for function in (operator, torchs):
        torch.manual_seed(1)
        leaves = [torch.randn(9, requires_grad=True) for _ in range(count)]
        first = torch.autograd.grad(function(*leaves).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(value.square().sum() for value in first), leaves))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["relu", "reglu", "add_relu"])
def test_what_is_linear_in_pieces_has_a_second_derivative_of_0(name):
    operator, torchs, count = OPERATORS[name]
    rest = [torch.full((1,), 2.0)] * (count - 1)
    for function in (operator, torchs):
        x = torch.tensor([-3.0, 0.0, 1.0, float("nan")], requires_grad=True)
        (first,) = torch.autograd.grad(function(function(x, *rest), *rest).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.tolist() == [0, 0, 0, 0]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["mul", "geglu", "clamp", "addcmul"])
def test_operators_are_sound(name):
    *_, count = OPERATORS[name]
    operands = [torch.randn(shape, requires_grad=True) for shape in ((6, 5), (5,), (6, 1))[:count]]
    rest = {"clamp": (-1.0, 1.0), "addcmul": (0.5,)}.get(name, ())
    torch.library.opcheck(getattr(torch.ops.nojit, name).default, (*operands, *rest))


OTHER_PLACES = (
    pointwise.add,
    lambda x, meta: pointwise.add(meta, x),
    pointwise.swiglu,
    lambda x, meta: pointwise.addcmul(x, x, meta),
    lambda x, meta: pointwise.add(x, x, out=meta),
    lambda x, meta: pointwise.add(x, meta, out=torch.empty_like(x)),
    lambda x, meta: pointwise.gelu(x, out=meta),
)


@pytest.mark.parametrize("interpreting", [True, False])
@pytest.mark.parametrize("call", OTHER_PLACES)
def test_operands_of_two_devices_are_refused(call, interpreting, request):
    if interpreting:
        request.getfixturevalue("interpreted")
    with pytest.raises(ArgumentError, match=r"expected .* on (meta|cpu|cuda)"):
        call(torch.ones(9), torch.ones(9, device="meta"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: pointwise.add(x.int(), x.int()), "input: expected torch.float16 or .*, got torch.int32"),
        (lambda x: pointwise.gelu(x.double()), "input: expected torch.float16 or .*, got torch.float64"),
        (lambda x: pointwise.add(x, x[:2]), r"other: expected a shape that broadcasts with \(3, 4\), got \(2, 4\)"),
        (lambda x: pointwise.add(x, x, out=x[:2]), r"out: expected shape \(3, 4\) of the result, got \(2, 4\)"),
        (lambda x: pointwise.add(x, x, out=x.half()), "out: expected torch.float32 on meta as the result has"),
    ],
)
def test_results_without_memory_are_checked_as_others_are(call, message):
    with pytest.raises((ArgumentError, ValueError), match=message):
        call(torch.ones(3, 4, device="meta"))
    with FakeTensorMode(), pytest.raises((ArgumentError, ValueError), match=message.replace("meta", "cpu")):
        call(torch.ones(3, 4))


@pytest.mark.usefixtures("interpreted")
def test_gradient_operators_are_sound():
    operands = [torch.randn(6, 5) for _ in range(3)]
    torch.library.opcheck(torch.ops.nojit.swiglu_bwd.default, operands)
    torch.library.opcheck(torch.ops.nojit.gelu_bwd.default, (*operands[:2], "tanh"))


@pytest.mark.usefixtures("interpreted")
def test_traces_without_a_graph_break():
    def function(x: Tensor, y: Tensor) -> Tensor:
        return pointwise.clamp(pointwise.mul(x, y.t()), -1, 1) + pointwise.addcmul(x, x, x, value=2)

    x, y = torch.randn(4, 6), torch.randn(6, 4)
    traced = torch.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(traced(x, y), function(x, y))


# -- operators of one's own --------------------------------------------------------------------------------------------

BUNDLE = '[bundle]\nname = "own"\nversion = "1"\narchs = ["sm_90"]\n'


class Workshop:
    """Makes operators, and the kernels that they launch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "built").mkdir()
        self.interpreter = Interpreter(folder / "built")
        self.count = 0

    def make(self, inputs: tuple[str, ...], expression: str, rest: str = "") -> Operator:
        self.count += 1
        name = f"own_{self.count}"
        names = ", ".join(f'"{each}"' for each in inputs)
        entry = f'[[operator]]\nname = "{name}"\ninputs = [{names}]\nexpression = "{expression}"\n{rest}\n'
        specs = self.folder / f"{name}.toml"
        specs.write_text(f"schema = 1\n{BUNDLE}{entry}")
        for file, text in generate(specs).items():
            (self.folder / "built" / file).write_text(text)
        return load_operators(specs)[name]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path_factory.mktemp("own"))
    yield workshop
    workshop.interpreter.close()


@st.composite
def arrangements(draw: st.DrawFn) -> tuple[tuple[int, ...], list[dict[str, Any]]]:
    """Draw a shape, and for three operands which dimensions they repeat along, how they are turned and cut out."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 33]), max_size=4)))
    operands = [
        {
            "repeated": draw(st.sets(st.integers(0, 3), max_size=2)) if number else set(),
            "order": draw(st.permutations(range(len(shape)))),
            "step": draw(st.sampled_from([1, 1, 1, 2])),
            "offset": draw(st.sampled_from([0, 0, 1, 16])),
        }
        for number in range(3)
    ]
    return shape, operands


def arranged(shape: tuple[int, ...], how: dict[str, Any], dtype: torch.dtype) -> Tensor:
    sizes = [1 if place in how["repeated"] else size for place, size in enumerate(shape)]
    order = how["order"]
    inner = [sizes[place] for place in order]
    if inner:
        inner[-1] *= how["step"]
    flat = (torch.rand(how["offset"] + int(torch.Size(inner).numel())) * 4 - 2).to(dtype)
    value = flat[how["offset"] :].view(inner)
    if inner:
        value = value[..., :: how["step"]].permute([order.index(place) for place in range(len(order))])
    assert list(value.shape) == sizes
    return value


SMOOTH = ("silu", "sigmoid", "tanh", "relu", "abs", "erf", "gelu", "gelu_tanh")


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=expressions(("x", "y", "z"), SMOOTH),
    arrangement=arrangements(),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
)
def test_random_expressions(workshop, text, arrangement, dtype):
    inputs = tuple(name for name in "xyz" if re.search(rf"\b{name}\b", text))
    operator = workshop.make(inputs, text, 'dtypes = ["bf16", "fp32", "fp64"]\ngradient = true')
    shape, ways = arrangement
    operands = [arranged(shape, how, dtype).requires_grad_() for how in ways[: len(inputs)]]
    wide = [operand.detach().double().requires_grad_() for operand in operands]
    with library.override(workshop.interpreter):
        result = operator(*operands)
        program = operator.spec.programs[""]
        (exact,) = evaluate(program, dict(zip(inputs, wide, strict=True)))
        grad = torch.ones_like(result)
        got = torch.autograd.grad(result, operands, grad)
    expected = torch.autograd.grad(exact, wide, grad.double(), allow_unused=True, materialize_grads=True)
    assert result.dtype == dtype
    # what cancels is as good as the largest step
    steps = tuple(place for place, step in enumerate(program.steps) if step.op not in {"lt", "number"})
    named = dict(zip(inputs, (value.detach() for value in wide), strict=True))
    largest = max(float(value.abs().max()) for value in evaluate(Program(inputs, (), program.steps, steps), named))
    epsilon = max(float(torch.finfo(dtype).eps), 1e-9)
    torch.testing.assert_close(
        result.detach().double(),
        exact.detach(),
        rtol=2 * epsilon,
        atol=8e-6 * largest if epsilon > 1e-9 else 1e-9 * largest,
    )
    for mine, theirs in zip(got, expected, strict=True):
        scale = max(1.0, largest) * (1 + float(theirs.abs().max())) * max(1, result.numel() // mine.numel())
        torch.testing.assert_close(mine.double(), theirs, rtol=4 * epsilon, atol=max(16 * epsilon, 1e-5) * scale)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_rounded_quotients_of_and_by_numbers(workshop, dtype):
    text = "floor_divide(x, 0.3) * trunc_divide(5, y) + floor_divide(2, y) - trunc_divide(x, 0.7)"
    operator = workshop.make(("x", "y"), text, 'dtypes = ["bf16", "fp32", "fp64"]')
    x, y = (torch.randn(7, 20) * 4).to(dtype), (torch.randn(20) * 4).to(dtype)
    with library.override(workshop.interpreter):
        result = operator(x, y)
    (exact,) = evaluate(operator.spec.programs[""], {"x": x.double(), "y": y.double()})
    torch.testing.assert_close(result, exact.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_ints_are_exact(workshop, dtype):
    operator = workshop.make(
        ("x", "y"),
        "where(x < y, x * 3 - y, abs(x) + maximum(x, square(y)))",
        'dtypes = ["i8", "i16", "i32", "i64", "fp32"]',
    )
    x, y = (torch.randint(-5, 6, shape, dtype=dtype) for shape in ((7, 20), (20,)))
    with library.override(workshop.interpreter):
        result = operator(x, y)
    assert torch.equal(result, torch.where(x < y, x * 3 - y, x.abs() + torch.maximum(x, y * y)))


@pytest.mark.usefixtures("interpreted")
def test_lerp_ends_where_torchs_does():
    x, y = torch.randn(3, 5) * 1e6, torch.randn(5)
    for weight in (0, 1, 0.5, 1.0, -0.25, 1.75, float("nan"), 0.49999997):
        torch.testing.assert_close(pointwise.lerp(x, y, weight), torch.lerp(x, y.expand(3, 5), weight), equal_nan=True)
    assert torch.equal(pointwise.lerp(x, y, 1), y.expand(3, 5))
    with pytest.raises(ArgumentError, match="weight: expected a number, got str"):
        pointwise.lerp(x, y, "x")
    with pytest.raises(ValueError, match="weight: expected a number that fp32 holds"):
        pointwise.lerp(x, y, 1e39)


def test_a_derivative_of_ones_own(workshop):
    rest = 'derivative = { x = "grad * where(abs(x) < 1, 1, 0)" }\ngradient = true'
    operator = workshop.make(("x",), "where(x > 0, 1, -1)", rest)
    x = torch.tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)
    with library.override(workshop.interpreter):
        y = operator(x)
        y.sum().backward()
    assert y.tolist() == [-1, -1, 1, 1]
    assert x.grad.tolist() == [0, 1, 1, 0]


def test_gradcheck_in_fp64(workshop):
    operator = workshop.make(
        ("x", "y"), "tanh(x) * exp(-square(y)) / (2 + sin(x))", 'dtypes = ["fp64"]\ngradient = true'
    )
    x, y = (
        torch.randn(3, 4, dtype=torch.float64, requires_grad=True),
        torch.randn(4, dtype=torch.float64, requires_grad=True),
    )
    with library.override(workshop.interpreter):
        assert torch.autograd.gradcheck(operator, (x, y))
        assert torch.autograd.gradgradcheck(operator, (x, y))


def test_arguments_by_name_are_checked(workshop):
    operator = workshop.make(("x", "y"), "x + s * y", 'scalars = ["s"]')
    x = torch.ones(3)
    with library.override(workshop.interpreter):
        assert operator(x, y=x, s=2).tolist() == [3, 3, 3]
        for call in (
            lambda: operator(x),
            lambda: operator(x, x, x, s=1),
            lambda: operator(x, x, x=x, s=1),
            lambda: operator(x, x),
        ):
            with pytest.raises(ArgumentError, match="expected arguments x, y, s"):
                call()
        with pytest.raises(ArgumentError, match="s: expected a number"):
            operator(x, x, s=x)


@pytest.mark.usefixtures("interpreted")
def test_a_clamp_is_flat_at_nan():
    x = torch.tensor([float("nan"), -1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    found, right = (torch.autograd.grad(clamp(x, 0.0, 1.0).sum(), x)[0] for clamp in (pointwise.clamp, torch.clamp))
    assert torch.equal(found, right)


def test_a_clamp_has_a_limit():
    with pytest.raises(ValueError, match="min: expected a number for min, for max or for both, got neither"):
        pointwise.clamp(torch.ones(2))
    with pytest.raises(ValueError, match="max: expected a number to compare with, got NaN"):
        pointwise.clamp(torch.ones(2), 0, float("nan"))


@pytest.mark.usefixtures("interpreted")
def test_ints_become_floats_where_torchs_do():
    x, large = torch.tensor([-3, 5]), torch.tensor([16777217])
    assert torch.equal(pointwise.clamp(x, 0.5), x.clamp(0.5))
    for call in (
        lambda: pointwise.clamp(large, 2),
        lambda: pointwise.clamp(large, max=16777219),
        lambda: pointwise.addcmul(large, large, large, value=1),
    ):
        with pytest.raises(ArgumentError, match=r"input: expected floats, or a float for .*, got torch.int64"):
            call()


def test_numbers_past_the_range_of_fp32_are_refused():
    x = torch.ones(2)
    for call in (
        lambda: pointwise.addcmul(x, x, x, value=1e39),
        lambda: pointwise.clamp(x, max=10**39),
        lambda: pointwise.clamp(x, -3.4028236e38),
    ):
        with pytest.raises(ValueError, match=r"(value|min|max): expected a number that fp32 holds, got -?[13]"):
            call()
