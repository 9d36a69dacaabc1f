"""A kernel of a bundle as an operator of torch: traced whole, told what it writes to, and launched as the kernel is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nojit.runtime.errors import ArgumentError
from nojit.runtime.kernel import Kernel
from nojit.runtime.values import DType

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make

torch = pytest.importorskip("torch", minversion="2.9")

from nojit.torch import CustomOp, custom_op  # noqa: E402

PARAMS = {"x_ptr": "*{dtype}", "bias_ptr": "*fp32?", "out_ptr": "*{dtype}", "n": "i32", "scale": "fp32", "ACT": "constexpr",
          "BLOCK": "constexpr", "EVEN": "constexpr"}  # fmt: skip
WORDS: dict[str, Any] = {
    "matrix": {"dtype": ["fp16", "fp32"], "ACT": ["", "relu"]},
    "configs": [{"BLOCK": 64, "num_warps": 2}, {"BLOCK": 256, "num_warps": 4}],
    "derived": {"EVEN": "n % BLOCK == 0"},
    "grid": ["cdiv(n, BLOCK)"],
}

# as the fake driver launches nothing, what is traced is seen in what is launched; its memory is the host's, pinned
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def pinned(fakecuda: FakeCuda) -> Callable[..., Any]:
    """Make tensors that the fake driver knows as pinned, at the same address."""

    def make(*shape: int, dtype: Any = torch.float32, **how: Any) -> Any:
        tensor = torch.zeros(*shape, dtype=dtype, **how)
        fakecuda.pin_memory(tensor.data_ptr(), tensor.nbytes, tensor.data_ptr())
        return tensor

    return make


@pytest.fixture
def all_memory(monkeypatch: pytest.MonkeyPatch, fakecuda: FakeCuda) -> None:
    """Let all memory of the process be pinned, what torch's compiler allocates too."""
    fakecuda.pin_memory(1 << 12, 1 << 47, 1 << 12)


@pytest.fixture
def scale(make: Make) -> CustomOp:
    return custom_op("nojit_tests::scale", make(PARAMS, **WORDS), mutates_args=["out_ptr"], ACT="relu")


def sent(fakecuda: FakeCuda) -> list[tuple[int, ...]]:
    return [launch.ints()[:4] for launch in fakecuda.launches()]


def test_it_is_launched_as_the_kernel_is(scale: CustomOp, pinned: Any, fakecuda: FakeCuda) -> None:
    x, bias, out = pinned(300), pinned(300), pinned(300)
    assert str(scale.overload._schema) == (
        "nojit_tests::scale(Tensor x_ptr, Tensor? bias_ptr, Tensor(a2!) out_ptr, SymInt n, float scale) -> ()"
    )
    assert scale(x, bias, out, 300, 2.0) is None
    assert sent(fakecuda) == [(x.data_ptr(), bias.data_ptr(), out.data_ptr(), 300)]
    assert fakecuda.last_launch().grid == (5, 1, 1), "the bundle's"
    scale(x, None, out, n=300, scale=2)
    scale(x_ptr=x, bias_ptr=None, out_ptr=out, n=300, scale=2.0)
    assert len(fakecuda.launches()) == 3
    assert len(fakecuda.launches()[1].params) < len(fakecuda.launches()[0].params), "None is compiled in"


def test_a_whole_graph_holds_it(scale: CustomOp, fakecuda: FakeCuda, all_memory: None) -> None:
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def layer(x: Any, factor: float) -> Any:
        out = torch.empty_like(x)
        scale(x, None, out, x.numel(), factor)
        return out + 1

    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for _ in range(3):
        compiled(torch.zeros(8, 16), 2.0)
    assert len(graphs) == 1
    assert sum(node.target is scale.overload for node in graphs[0].graph.nodes) == 1
    assert [launch.ints()[2] for launch in fakecuda.launches()] == [128] * 3


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_it_writes_to_is_kept_apart(scale: CustomOp, fakecuda: FakeCuda, all_memory: None, dynamic: bool) -> None:
    def layer(x: Any) -> Any:
        out = x + 1
        before = out * 2
        scale(x, None, out, x.numel(), 2.0)
        scale(out, None, x, x.numel(), 3.0)
        return before, out

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for count in (64, 128):
        x = torch.zeros(count)
        launched = fakecuda.launch_count()
        compiled(x)
        first, second = fakecuda.launches()[launched:]
        assert (first.ints()[2], second.ints()[2]) == (count, count)
        assert first.ints()[1] == second.ints()[0], "the second reads what the first wrote"


def test_torch_finds_it_sound(scale: CustomOp, all_memory: None) -> None:
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic", "test_autograd_registration")
    torch.library.opcheck(
        scale.overload, (torch.zeros(64), torch.zeros(64), torch.zeros(64), 64, 2.0), test_utils=tests
    )


def test_it_is_exported(scale: CustomOp) -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            out = torch.empty_like(x)
            scale(x, None, out, x.numel(), 2.0)
            return out

    program = torch.export.export(Layer(), (torch.zeros(64),))
    assert "nojit_tests.scale" in str(program.graph)


def test_writing_to_a_tensor_is_seen_by_autograd(scale: CustomOp, pinned: Any, fakecuda: FakeCuda) -> None:
    x, out = pinned(64), pinned(64)
    version = out._version
    scale(x, None, out, 64, 2.0)
    assert (out._version, x._version) == (version + 1, x._version)
    weight = pinned(64, requires_grad=True)
    product = (weight * out).sum()
    scale(x, None, out, 64, 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_gradients_are_what_is_registered(make: Make, pinned: Any, fakecuda: FakeCuda) -> None:
    op = custom_op("nojit_tests::graded", make(PARAMS, **WORDS), mutates_args=["out_ptr"], ACT="")
    x, out = pinned(64, requires_grad=True), pinned(64)
    op(x, None, out, 64, 2.0)
    assert not out.requires_grad
    assert fakecuda.launch_count() == 1


def test_grid_constexprs_options_and_arguments_may_be_fixed(make: Make, pinned: Any, fakecuda: FakeCuda) -> None:
    kernel = make(PARAMS, **WORDS)
    x, out = pinned(300), pinned(300)
    grid = {"tuple": (7,), "function": lambda meta: (meta["BLOCK"], 2)}
    for name, given in grid.items():
        op = custom_op(
            f"nojit_tests::fixed_{name}",
            kernel,
            mutates_args=["out_ptr"],
            grid=given,
            bias_ptr=None,
            BLOCK=256,
            num_warps=4,
        )
        assert str(op.overload._schema).endswith(
            "(Tensor x_ptr, Tensor(a1!) out_ptr, SymInt n, float scale, str ACT) -> ()"
        )
        for act in ("relu", ""):
            op(x, out, 300, 2.0, act)
            assert fakecuda.last_launch().block == (128, 1, 1)
            assert fakecuda.last_launch().grid == ((7, 1, 1) if name == "tuple" else (256, 2, 1))
            assert fakecuda.last_launch().ints()[:3] == (x.data_ptr(), out.data_ptr(), 300)


def test_params_of_every_kind_become_torchs(make: Make, pinned: Any, fakecuda: FakeCuda) -> None:
    params = {"xs": "(*fp32,*fp32)", "shape": "(i32,i32)?", "flag": "i1", "wide": "{index}", "TO": "constexpr", "MAYBE": "constexpr",
              "MANY": "constexpr", "SOME": "constexpr"}  # fmt: skip
    matrix = {
        "index": ["i32", "i64"],
        "TO": [DType("fp16"), DType("bf16")],
        "MAYBE": [None, 3],
        "MANY": [True, False],
        "SOME": [0.5, 1.5],
    }
    kernel = make(params, matrix=matrix, defaults={"shape": None, "MANY": True, "SOME": 0.5})
    op = custom_op("nojit_tests::kinds", kernel, mutates_args=["xs"], grid=(1,))
    assert str(op.overload._schema) == (
        "nojit_tests::kinds(Tensor(a0!)[] xs, SymInt[]? shape, bool flag, SymInt wide, ScalarType TO, int? MAYBE, "
        "bool MANY=True, float SOME=0.5) -> ()"
    )
    xs = [pinned(4), pinned(4)]
    for shape in ([3, 5], None):
        op(xs, shape, True, 1 << 40, torch.bfloat16, None)
        expected = [tensor.data_ptr() for tensor in xs] + (shape or []) + [1, 1 << 40]
        assert list(fakecuda.last_launch().ints()[: len(expected)]) == expected


@pytest.mark.parametrize("value", ['say "hi"', "a\\b", "\u00e9", "a\nb", float("inf"), 0.5])
def test_a_default_is_torchs_if_it_can_spell_it(make: Make, pinned: Any, fakecuda: FakeCuda, value: Any) -> None:
    params = {"x_ptr": "*fp32", "ACT": "constexpr"}
    kernel = make(params, matrix={"ACT": [value, type(value)(1)]}, defaults={"ACT": value}, grid=["1"])
    operator = custom_op("nojit_tests::default", kernel, mutates_args=["x_ptr"])
    (_, param) = operator.overload._schema.arguments
    assert param.default_value in (None, value)
    operator(pinned(1), value)
    if param.has_default_value():
        operator(x_ptr=pinned(1))
    assert len(fakecuda.launches()) == 1 + param.has_default_value()


def test_the_members_of_args_are_passed_one_by_one(make: Make, pinned: Any, fakecuda: FakeCuda) -> None:
    params = {"n": "i32", "args": "(*fp32,*fp32)", "BLOCK": "constexpr", "MODE": "constexpr"}
    kernel = make(params, matrix={"MODE": ["a", "b"]}, configs=[{"BLOCK": 64}], defaults={"args": ()})
    op = custom_op("nojit_tests::rest", kernel, mutates_args=["args"], grid=(1,))
    xs = [pinned(4), pinned(4)]
    kernel[(1,)](5, *xs, MODE="b")
    op(5, xs, "b")
    first, second = fakecuda.launches()
    assert first.ints() == second.ints() == (5, xs[0].data_ptr(), xs[1].data_ptr(), 0, 0)
    with pytest.raises(ArgumentError, match=r"expected no fixed argument before \*args, got n"):
        custom_op("nojit_tests::rest", kernel, mutates_args=["args"], grid=(1,), n=5)


WRONG: list[tuple[Callable[[Kernel], Any], str, str]] = [
    (lambda k: custom_op("scale", k, mutates_args=[]), "expected a name such as acme::scale_rows, got 'scale'", "name"),
    (lambda k: custom_op("a::b", k, mutates_args=["out"]), "pointers: x_ptr, .*, got 'out'; did you mean 'out_ptr'", "mutates_args"),
    (lambda k: custom_op("a::b", k, mutates_args=["n"]), "expected mutates_args to name pointers", "mutates_args"),
    (lambda k: custom_op("a::b", k, mutates_args=[], BLOK=3), "unexpected argument 'BLOK'; did you mean 'BLOCK'", "BLOK"),
    (lambda k: custom_op("a::b", k.fn.run, mutates_args=[]), "expected a kernel of a bundle, got method", "kernel"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_is_wrong_is_said_when_it_is_registered(make: Make, case: int) -> None:
    call, words, argument = WRONG[case]
    with pytest.raises(ArgumentError, match=words) as caught:
        call(make(PARAMS, **WORDS))
    assert caught.value.argument == argument


@pytest.mark.parametrize("kind", ["tensordesc<fp16[64,64]>", "(*fp16,i32)", "{kind}"])
def test_what_an_operator_cannot_take_is_said_with_what_to_do_instead(make: Make, kind: str) -> None:
    kernel = make({"thing": kind}, matrix={"kind": ["i32", "fp32"]} if "kind" in kind else {})
    with pytest.raises(
        ArgumentError, match=r"thing to be fixed, or of one type .* torch\.library\.custom_op, got"
    ) as caught:
        custom_op("nojit_tests::odd", kernel, mutates_args=[])
    assert caught.value.argument == "thing"


def test_a_call_that_nothing_serves_says_so(scale: CustomOp, pinned: Any) -> None:
    with pytest.raises(LookupError, match="no variant serves this call"):
        scale(pinned(4, dtype=torch.float64), None, pinned(4, dtype=torch.float64), 4, 2.0)
