from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own spelling
from nojit.kernels import library
from nojit.kernels.calls import arguments
from nojit.kernels.calls.arguments import check_apart
from nojit.kernels.pointwise import gelu, reference, silu, swiglu, vector_add
from nojit.kernels.pointwise.problems import PROBLEMS
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate
from tests.support.counting import count_bytecodes

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# operator, reference, torch's own, number of operands
OPERATORS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor], int]] = {
    "vector_add": (vector_add, reference.vector_add, torch.add, 2),
    "gelu": (gelu, reference.gelu, F.gelu, 1),
    "gelu tanh": (
        partial(gelu, approximate="tanh"),
        partial(reference.gelu, approximate="tanh"),
        partial(F.gelu, approximate="tanh"),
        1,
    ),
    "silu": (silu, reference.silu, F.silu, 1),
    "swiglu": (swiglu, reference.swiglu, lambda gate, up: F.silu(gate) * up, 2),
}

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS["test"], ids=lambda problem: problem.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_is_as_accurate_as_torch(name, problem, dtype):
    operator, exact, torchs, count = OPERATORS[name]
    operands = [(torch.randn(problem.shape) * 3).to(dtype) for _ in range(count)]
    result = operator(*operands)
    assert_accurate(result, exact(*(value.double() for value in operands)), torchs(*operands))


@pytest.mark.parametrize("name", OPERATORS)
def test_extremes_come_out_as_torchs(name):
    operator, _, torchs, count = OPERATORS[name]
    x = torch.tensor([float("nan"), 0.0, -0.0, 1e30, -1e30, 100.0, -100.0, -88.7, 1e-40])
    operands = [x] + [torch.ones_like(x)] * (count - 1)
    torch.testing.assert_close(operator(*operands), torchs(*operands), equal_nan=True, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("name", OPERATORS)
def test_infinity_stays(name):
    operator, *_, count = OPERATORS[name]
    assert operator(*[torch.tensor([float("inf")])] * count).item() == float("inf")


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_launches_nothing(name, shape, monkeypatch):
    operator, *_, count = OPERATORS[name]
    monkeypatch.setattr("nojit.kernels.library.get", lambda name: pytest.fail(f"{name} was asked for"))
    assert operator(*[torch.empty(shape)] * count).shape == shape


@pytest.mark.parametrize("name", OPERATORS)
def test_views_keep_their_layout(name):
    operator, exact, torchs, count = OPERATORS[name]
    for arrange in (
        lambda x: x[5:],  # offset: the first element is not aligned
        lambda x: x[:120].view(2, 3, 4, 5).to(memory_format=torch.channels_last),
        lambda x: x[:120].view(8, 15).t(),
        lambda x: x[:120].view(1, 8, 1, 15).transpose(0, 2),
    ):
        operands = [arrange(torch.randn(301)) for _ in range(count)]
        result = operator(*operands)
        assert result.shape == operands[0].shape
        assert [s for s, n in zip(result.stride(), result.shape, strict=True) if n > 1] == [
            s for s, n in zip(operands[0].stride(), result.shape, strict=True) if n > 1
        ]
        assert_accurate(result, exact(*(value.double() for value in operands)), torchs(*operands))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_out_writes_its_own_elements_alone(dtype):
    memory = torch.full((4096,), float("nan"), dtype=dtype)
    memory[:100] = memory[1400:] = 7.0
    x, y = (torch.randn(1300).to(dtype) for _ in range(2))
    out = memory[100:1400]
    assert vector_add(x, y, out=out) is out
    assert torch.equal(out, x + y)
    assert (memory[:100] == 7).all()
    assert (memory[1400:] == 7).all()


def test_out_may_be_an_operand():
    x, y = torch.randn(2000), torch.randn(2000)
    expected = x + y
    vector_add(x, y, out=y)
    assert torch.equal(y, expected)


def test_out_must_not_overlap_in_part():
    memory = torch.randn(2000)
    with pytest.raises(ValueError, match=r"out: expected memory of its own, .*, got an overlap with input"):
        vector_add(memory[:1000], torch.randn(1000), out=memory[1:1001])


def test_views_that_take_turns_are_told_apart_soon(monkeypatch):
    memory = torch.empty(1 << 22)

    def check(
        shape: tuple[int, ...], strides: tuple[int, ...], other: tuple[int, ...], theirs: tuple[int, ...]
    ) -> None:
        check_apart("out", memory.as_strided(shape, strides), "input", memory.as_strided(other, theirs, 1))

    for views in (
        ((32, 64, 64), (52736, 412, 2), (32, 64, 64), (52738, 414, 2)),
        ((64, 128, 512), (40960, 50, 6), (128, 128, 256), (250, 3200, 1000)),
    ):
        assert count_bytecodes(lambda views=views: check(*views)) < 1000
    check((4, 4), (100, 3), (4, 4), (100, 6))
    monkeypatch.setattr(arguments, "_TRIES", 1)
    with pytest.raises(ValueError, match="out: expected memory of its own"):
        check((4, 4), (100, 3), (4, 4), (100, 6))


def test_out_is_not_differentiable():
    x = torch.randn(4, requires_grad=True)
    with pytest.raises(ValueError, match="out= is not differentiable"):
        vector_add(x, x, out=torch.empty(4))
    with torch.no_grad():
        assert torch.equal(vector_add(x, x, out=torch.empty(4)), x + x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: vector_add(x, x[:3]),
            ValueError,
            r"other: expected a shape that broadcasts with \(4, 4\), got \(3, 4",
        ),
        (lambda x: vector_add(x, x.double()), ArgumentError, "other: expected torch.float16 or .*, got torch.float64"),
        (lambda x: vector_add(x, 2.0), ArgumentError, "other: expected a tensor, got float"),
        (lambda x: vector_add(x.long(), x.long()), ArgumentError, "input: expected .*, got torch.int64"),
        (lambda x: silu(x.double()), ArgumentError, "input: expected torch.float16 or torch.bfloat16 or torch.float32"),
        (
            lambda x: vector_add(x, x, out=x[:2]),
            ValueError,
            r"out: expected shape \(4, 4\) of the result, got \(2, 4\)",
        ),
        (
            lambda x: vector_add(x, x, out=x.half()),
            ArgumentError,
            "out: expected torch.float32 on cpu as the result has",
        ),
        (
            lambda x: vector_add(x, x, out=x[0].clone().expand(4, 4)),
            ValueError,
            "out: expected memory of its own for eac",
        ),
        (
            lambda x: gelu(x, "tan"),
            ValueError,
            "approximate: expected 'none' or 'tanh', got 'tan'; did you mean 'tanh'",
        ),
    ],
)
def test_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.randn(4, 4))


def test_refuses_a_device_without_kernels():
    message = "input: expected a tensor on cuda, got cpu"
    with (
        library.override(pytest.fail, devices=frozenset({"cuda"})),
        pytest.raises(ArgumentError, match=message) as caught,
    ):
        silu(torch.randn(4))
    assert caught.value.argument == "input"


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(name):
    operator, _, torchs, count = OPERATORS[name]
    ours = [torch.randn(37, requires_grad=True) for _ in range(count)]
    theirs = [value.detach().clone().requires_grad_() for value in ours]
    grad = torch.randn(37)
    operator(*ours).backward(grad)
    torchs(*theirs).backward(grad)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_sound(name):
    *_, count = OPERATORS[name]
    operands = [torch.randn(6, 5, requires_grad=True) for _ in range(count)]
    words = ["tanh" if "tanh" in name else "none"] if name.startswith("gelu") else []
    torch.library.opcheck(getattr(torch.ops.nojit, name.split()[0]).default, (*operands, *words))


def test_out_operator_is_sound():
    x, y, out = (torch.randn(6) for _ in range(3))
    torch.library.opcheck(torch.ops.nojit.vector_add_out.default, (x, y, out))


def test_traces_without_a_graph_break():
    traced = torch.compile(lambda x, y: swiglu(gelu(x), vector_add(x, y)), backend="eager", fullgraph=True)
    x, y = torch.randn(2, 50), torch.randn(2, 50)
    torch.testing.assert_close(traced(x, y), F.silu(F.gelu(x)) * (x + y))
