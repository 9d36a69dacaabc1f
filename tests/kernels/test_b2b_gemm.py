"""b2b_gemm through Triton's interpreter: shapes, strides, both orders, functions, gradients, mistakes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm import CustomActivation, b2b_gemm, functions, launch, reference
from nojit.kernels.products.activations import ACTIVATIONS
from nojit.runtime.errors import ArgumentError
from nojit.runtime.values import FunctionRef
from torch import Tensor

from tests.kernels.accuracy import assert_accurate
from tests.kernels.test_bmm import WAYS, laid_out

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
ORDERS = ("left", "right")

pytestmark = pytest.mark.usefixtures("interpreted")


def operands(m: int, k: int, middle: int, n: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Make factors whose products are about one."""
    sides = ((m, k), (k, middle), (middle, n))
    return [(torch.randn(shape) * max(shape[0], 1) ** (-0.5 * (at > 0))).to(dtype) for at, shape in enumerate(sides)]


def check(given: list[Tensor], **words: Any) -> None:
    exact = reference.b2b_gemm(*(value.double() for value in given), **words)
    assert_accurate(b2b_gemm(*given, **words), exact, reference.b2b_gemm(*given, **words))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("assoc", ORDERS)
@pytest.mark.parametrize("ways", [*zip(*[WAYS] * 3, strict=True), WAYS[:3], WAYS[1:], WAYS[2::-1]], ids=str)
def test_any_strides(ways, assoc, dtype):
    given = operands(33, 40, 37, 25, dtype)
    check([laid_out(value, way) for value, way in zip(given, ways, strict=True)], assoc=assoc, activation="silu")


@pytest.mark.parametrize("seed", range(10))
def test_any_sizes(seed):
    rng = random.Random(seed)
    sizes = [rng.choice((1, 3, 16, 17, 32, 65, 130)) for _ in range(4)]
    given = operands(*sizes, rng.choice(FLOATS))
    assoc, activation = rng.choice(ORDERS), rng.choice(list(ACTIVATIONS))
    check([laid_out(value, rng.choice(WAYS)) for value in given], assoc=assoc, activation=activation)


@pytest.mark.parametrize("assoc", ORDERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation, assoc):
    for dtype in FLOATS:
        given, words = operands(20, 24, 18, 16, dtype), {"activation": activation, "assoc": assoc, "alpha": -0.5}
        exact = reference.b2b_gemm(*(value.double() for value in given), **words)
        # the formula of some activations is off by units of 1, where torch's is by units of the result
        assert_accurate(b2b_gemm(*given, **words), exact, reference.b2b_gemm(*given, **words), slack=5e-7)


def test_the_middle_is_rounded_once():
    """Where it is not, one part in 4096 of the middle would be left in the difference."""
    a, b, c = torch.ones(16, 1).half(), torch.full((1, 16), 1 + 2**-10).half(), torch.ones(16, 16).half() / 16
    exact = torch.full((16, 16), 1.0).half()
    # (1 + 2^-10) * (1 + 2^-11) lies behind the middle between two numbers of fp16
    assert torch.equal(b2b_gemm(a, b, c, alpha=1 + 2**-11), exact * (1 + 2**-9))
    assert torch.equal(b2b_gemm(a, b, c, alpha=1 + 2**-13), exact * (1 + 2**-10))


@pytest.mark.parametrize("activation", ["sigmoid", "gelu"])
@pytest.mark.parametrize("sizes", [(3, 0, 4, 5), (3, 4, 0, 5), (0, 4, 5, 6), (3, 4, 5, 0)], ids=str)
def test_nothing_to_multiply(sizes, activation):
    given = operands(*sizes)
    for assoc in ORDERS:
        words = {"activation": activation, "assoc": assoc}
        torch.testing.assert_close(b2b_gemm(*given, **words), reference.b2b_gemm(*given, **words))


def test_auto_takes_the_order_that_loads_less():
    tall, narrow = torch.ones(4096, 64), torch.ones(64, 64)
    assert launch.chosen((tall, narrow, narrow), "auto") == "left"
    assert launch.chosen((narrow, narrow, tall.T), "auto") == "right"
    assert launch.chosen((tall, narrow, tall.T), "auto") == "left"
    for given in (operands(70, 9, 8, 7), operands(7, 8, 9, 70)):
        check(given, alpha=0.5, assoc="auto")


def test_out_may_lie_any_way():
    given = operands(20, 24, 16, 18)
    for way in WAYS:
        for assoc in ORDERS:
            out = laid_out(torch.full((20, 18), float("nan")), way)
            assert b2b_gemm(*given, assoc=assoc, out=out) is out
            assert_accurate(out, torch.linalg.multi_dot([x.double() for x in given]), reference.b2b_gemm(*given))


def test_calls_are_remembered_by_all_that_they_depend_on():
    given = operands(9, 8, 8, 8)
    words = ({}, {"activation": "relu"}, {"assoc": "right", "activation": "relu"}, {"alpha": 2}, {"alpha": 0.5})
    first = [b2b_gemm(*given, **each) for each in words]
    for each, result in zip(words, first, strict=True):
        again = b2b_gemm(*given, **each)
        assert again.data_ptr() != result.data_ptr()
        assert torch.equal(again, result)
    torch.testing.assert_close(first[3], 4 * first[4])
    assert not torch.equal(first[1], first[2])


def test_torchs_switch_says_how_fp32_is_multiplied():
    words = []
    before = torch.backends.cuda.matmul.allow_tf32
    with library.override(lambda _: lambda *args, **named: words.append(named["PRECISION"])):
        for allowed in (False, True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            b2b_gemm(*operands(3, 4, 5, 6))
    torch.backends.cuda.matmul.allow_tf32 = before
    assert words == ["ieee", "tf32", "ieee"]


@pytest.mark.parametrize("assoc", ORDERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients(activation, assoc):
    words = {"activation": activation, "assoc": assoc, "alpha": 0.75}
    given = [value.requires_grad_() for value in operands(9, 12, 10, 7)]
    wide = [value.detach().double().requires_grad_() for value in given]
    for grad in (torch.randn(9, 7), torch.ones(1).expand(9, 7)):
        right = torch.autograd.grad(reference.b2b_gemm(*wide, **words), wide, grad.double())
        for got, value in zip(torch.autograd.grad(b2b_gemm(*given, **words), given, grad), right, strict=True):
            torch.testing.assert_close(got.double(), value, rtol=1e-4, atol=1e-4)
    (one,) = torch.autograd.grad(b2b_gemm(*(x.detach() for x in given[:2]), given[2], **words), given[2:], grad)
    torch.testing.assert_close(one, got)


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_gradients_of_gradients(activation):
    results = []
    given = [value.requires_grad_() for value in operands(5, 6, 7, 3)]
    wide = [value.detach().double().requires_grad_() for value in given]
    for run, values in ((b2b_gemm, given), (reference.b2b_gemm, wide)):
        (da,) = torch.autograd.grad(run(*values, activation=activation).square().sum(), values[0], create_graph=True)
        results.append(torch.autograd.grad(da.square().sum(), values))
    for got, right in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-3 * float(right.abs().max()))


@pytest.mark.parametrize("gradient", [False, True])
def test_the_operator_is_torchs_kind(gradient):
    given = [value.requires_grad_(gradient) for value in operands(5, 6, 7, 3)]
    torch.library.opcheck(torch.ops.nojit.b2b_gemm.default, (*given, "gelu", 0.5, "right"))
    if not gradient:
        torch.library.opcheck(torch.ops.nojit.b2b_gemm_out.default, (*given, "none", 1.0, "left", torch.empty(5, 3)))

    def several(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return b2b_gemm(a, b, c, activation="tanh") + b2b_gemm(a, b, c, assoc="auto")

    traced = torch.compile(several, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(traced(*given), several(*given))


def test_autocast_casts_as_torchs_products():
    given = operands(5, 6, 7, 3)
    with torch.autocast("cpu", torch.bfloat16):
        result = b2b_gemm(*given, activation="relu")
    assert torch.equal(result, b2b_gemm(*(value.bfloat16() for value in given), activation="relu"))


class TestOnesOwn:
    """A function of one's own, which a manifest builds."""

    SOURCE = "some.module:leaky"

    @pytest.fixture
    def leaky(self, monkeypatch: pytest.MonkeyPatch) -> CustomActivation:
        monkeypatch.setattr(functions, "_CUSTOM", {})
        return CustomActivation(self.SOURCE, torch.nn.functional.leaky_relu)

    def test_it_is_what_kernels_are_asked_for(self, leaky):
        asked = []
        with library.override(lambda _: lambda *args, **named: asked.append((named["activation"], named["FUNCTION"]))):
            for activation in (leaky, self.SOURCE, "relu"):
                b2b_gemm(*operands(3, 4, 5, 6), activation=activation)
        own = FunctionRef(self.SOURCE)
        assert asked == [(0, own), (0, own), (1, functions.LISTED)]

    def test_what_was_not_built_is_refused(self, leaky):
        with pytest.raises(RuntimeError, match="FUNCTION is not built"):
            b2b_gemm(*operands(3, 4, 5, 6), activation=leaky)

    def test_its_gradient_is_asked_for(self, leaky):
        x, grad = torch.randn(5), torch.randn(5)
        with pytest.raises(NotImplementedError, match="expected a gradient of some"):
            functions.differentiate(self.SOURCE, grad, x)
        CustomActivation(self.SOURCE, leaky.twin, lambda grad, x: torch.where(x > 0, grad, 0.01 * grad))
        torch.testing.assert_close(functions.differentiate(self.SOURCE, grad, x)[x > 0], grad[x > 0])
        assert torch.equal(functions.apply(self.SOURCE, x), leaky.twin(x))

    def test_mistakes_are_named(self, leaky):
        with pytest.raises(ArgumentError, match="source: expected a str"):
            CustomActivation(leaky.twin, leaky.twin)
        with pytest.raises(ValueError, match="source: expected 'module:function'"):
            CustomActivation("leaky", leaky.twin)
        with pytest.raises(ArgumentError, match="twin: expected a function of a tensor"):
            CustomActivation("other.module:leaky", None)
        with pytest.raises(ArgumentError, match="gradient: expected a function of two tensors, or None"):
            CustomActivation("other.module:leaky", leaky.twin, "gradient")
        with pytest.raises(ValueError, match="activation: expected 'none'"):
            b2b_gemm(*operands(3, 4, 5, 6), activation="other.module:leaky")

    def test_a_source_has_one_twin_and_one_gradient(self, leaky):
        with pytest.raises(ValueError, match=f"twin: expected .*, as for earlier activations of {self.SOURCE}"):
            CustomActivation(self.SOURCE, torch.relu)
        CustomActivation(self.SOURCE, leaky.twin, torch.mul)
        with pytest.raises(ValueError, match=f"gradient: expected .*, as for earlier activations of {self.SOURCE}"):
            CustomActivation(self.SOURCE, leaky.twin, torch.add)
        assert CustomActivation(self.SOURCE, leaky.twin) == leaky
        assert CustomActivation(self.SOURCE, leaky.twin, torch.mul).gradient is torch.mul
        x = torch.randn(5)
        assert torch.equal(functions.apply(self.SOURCE, x), leaky.twin(x))
        assert torch.equal(functions.differentiate(self.SOURCE, x, x), x * x)


def test_mistakes_are_named():
    a, b, c = operands(5, 6, 7, 3)
    for call, error, words in (
        (lambda: b2b_gemm(a[None], b, c), ValueError, "a: expected 2 dimensions"),
        (lambda: b2b_gemm(a, c, c), ValueError, "b: expected shape .6, 3."),
        (lambda: b2b_gemm(a, b, b), ValueError, "c: expected shape .7, 7."),
        (lambda: b2b_gemm(a, b, c.half()), ArgumentError, "c: expected torch.float32 as a has"),
        (lambda: b2b_gemm(a.int(), b, c), ArgumentError, "a: expected torch.float16"),
        (lambda: b2b_gemm(a, None, c), ArgumentError, "b: expected a tensor"),
        (lambda: b2b_gemm(a, b, c, activation="swish"), ValueError, "activation: expected 'none'"),
        (lambda: b2b_gemm(a, b, c, activation=torch.relu), ValueError, "activation: expected 'none'"),
        (lambda: b2b_gemm(a, b, c, alpha="x"), ArgumentError, "alpha: expected a number"),
        (lambda: b2b_gemm(a, b, c, assoc="middle"), ValueError, "assoc: expected 'left' or 'right' or 'auto'"),
        (
            lambda: b2b_gemm(a, b, c, assoc="auto", activation="relu"),
            ValueError,
            "assoc: expected 'left' or 'right' with",
        ),
        (lambda: b2b_gemm(a, b, c, out=a), ValueError, "out: expected shape"),
        (lambda: b2b_gemm(a, b, c, out=a[:, :3]), ValueError, "out: expected memory of its own"),
        (lambda: b2b_gemm(a, b, c, out=torch.empty(5, 3).half()), ArgumentError, "out: expected torch.float32"),
        (lambda: b2b_gemm(a.clone().requires_grad_(), b, c, out=torch.empty(5, 3)), ValueError, "require no grad"),
    ):
        with pytest.raises(error, match=words):
            call()
