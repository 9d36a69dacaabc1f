"""Operators of torch's dispatcher: what skips it, and that results, gradients and what watches calls stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.calls.registration import define
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

RUNS: list[str] = []


def _run(x: Tensor, factor: float = 3.0) -> Tensor:
    RUNS.append("recorded" if x.requires_grad else "plain")
    return x * factor


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.factor = inputs[1]


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    assert ctx.needs_input_grad == (True, False)
    assert ctx.saved_tensors[0].shape == grad.shape
    return scaled(grad, ctx.factor), None


scaled = define(
    "of_tests_scaled(Tensor x, float factor=3.0) -> Tensor",
    _run,
    lambda x, *_: torch.empty_like(x),
    backward=_backward,
    save=_save,
)
OP = torch.ops.nojit.of_tests_scaled.default


class Watch(TorchDispatchMode):
    """Notes the operators that the dispatcher calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _on_cpu() -> Iterator[None]:
    RUNS.clear()
    with library.override(lambda name: None):
        yield


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the calls that reach the dispatcher."""
    found: list[str] = []
    whole = type(OP).__call__

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        found.append(self.name())
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(type(OP), "__call__", call)
    return found


def _refuse(*_: Any) -> Any:
    raise AssertionError("expected no node for a call without gradients")


def test_a_call_that_torch_only_runs_skips_the_dispatcher(dispatched, monkeypatch):
    monkeypatch.setattr(torch.autograd.Function, "apply", _refuse)
    y = scaled(torch.tensor([1.0, 2.0]), 2.0)
    assert torch.equal(y, torch.tensor([2.0, 4.0]))
    assert not dispatched
    assert RUNS == ["plain"]


def test_a_call_that_torch_records_skips_the_dispatcher(dispatched):
    x = torch.randn(4, requires_grad=True)
    y = scaled(x, 2.0)
    assert y.grad_fn.name() == "nojit_of_tests_scaledBackward"
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 2.0))
    assert not dispatched
    assert RUNS == ["recorded", "plain"]


def test_an_operator_that_writes_to_an_argument_is_torchs():
    into = define("of_tests_into(Tensor x, Tensor(a!) out) -> ()", lambda x, out: out.copy_(x))
    assert into is torch.ops.nojit.of_tests_into.default


def test_arguments_by_name_go_through_the_dispatcher(dispatched):
    assert torch.equal(scaled(torch.ones(2), factor=2.0), torch.full((2,), 2.0))
    assert dispatched == ["nojit::of_tests_scaled"]
    assert scaled.__name__ == "of_tests_scaled"


def test_both_ways_give_equal_gradients_of_every_order():
    found = []
    for call in (scaled, OP):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        (grad,) = torch.autograd.grad((call(x, 2.0) * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.sum(), x)
        found.append((grad.detach(), second))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_a_default_is_that_of_the_schema(dispatched):
    assert torch.equal(scaled(torch.ones(2)), torch.full((2,), 3.0))
    assert dispatched == ["nojit::of_tests_scaled"]


def test_no_grad_records_nothing(dispatched):
    with torch.no_grad():
        assert not scaled(torch.ones(2, requires_grad=True), 2.0).requires_grad
    assert not dispatched


class Functions(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_a_transform_sees_the_call(dispatched):
    watched = torch.func.vmap(lambda row: scaled(row, 2.0))
    assert torch.equal(watched(torch.ones(2, 2)), torch.full((2, 2), 2.0))
    assert "nojit::of_tests_scaled" in dispatched


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_a_trace_sees_the_call(dispatched):
    x = torch.ones(2, 2)
    traced = torch.jit.trace(lambda value: scaled(value, 2.0), x, check_trace=False)
    assert torch.equal(traced(x), torch.full((2, 2), 2.0))
    assert "nojit::of_tests_scaled" in dispatched


@pytest.mark.parametrize("mode", [Functions, forward_ad.dual_level], ids=["functions", "dual level"])
def test_a_mode_of_torch_sees_the_call(dispatched, mode):
    with mode():
        assert scaled(torch.ones(2, requires_grad=True), 2.0).requires_grad
    assert dispatched


def test_a_mode_sees_the_call():
    with Watch() as watch:
        scaled(torch.ones(2, requires_grad=True), 2.0)
    assert OP in watch.seen


def test_a_tensor_of_another_class_goes_through_the_dispatcher(dispatched):
    class Own(Tensor):
        pass

    assert type(scaled(torch.ones(2).as_subclass(Own), 2.0)) is Own
    assert dispatched


def test_a_tensor_on_a_device_without_kernels_goes_through_the_dispatcher(dispatched):
    assert scaled(torch.ones(2, device="meta", requires_grad=True), 2.0).is_meta
    assert dispatched == ["nojit::of_tests_scaled"]
    assert not RUNS


def test_a_lazily_negated_tensor_goes_through_the_dispatcher(dispatched):
    x = torch.complex(torch.ones(2), torch.ones(2)).conj().imag
    assert torch.equal(scaled(x, 2.0), torch.full((2,), -2.0))
    assert dispatched == ["nojit::of_tests_scaled"]


def test_hooks_of_saved_tensors_are_called(dispatched):
    packed: list[Tensor] = []

    def pack(value: Tensor) -> Tensor:
        packed.append(value)
        return value

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        scaled(x, 2.0)
    assert len(packed) == 1
    assert not dispatched


@pytest.mark.parametrize("grad", [False, True])
def test_a_compiled_call_holds_the_operator(grad):
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    compiled = torch.compile(lambda x: scaled(x, 2.0), backend=backend, fullgraph=True)
    assert torch.equal(compiled(torch.ones(2, requires_grad=grad)), torch.full((2,), 2.0))
    assert OP in seen
