"""Root mean square norms through Triton's interpreter."""

from __future__ import annotations

import random

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.norm import add_rms_norm, op, reference, rms_norm
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# each config's rows, and rows longer than any tile
WIDTHS = (1, 16, 100, 256, 257, 1000, 1024, 2000, 4096, 5000, 8192, 9000, 9001, 16384, 17000)


def check(x: Tensor, residual: Tensor | None, weight: Tensor | None, eps: float | None = None) -> None:
    """Hold both operators to the exact result, and poison what they leave out."""
    wide = [None if value is None else value.double() for value in (x, residual, weight)]
    if residual is None:
        exact = reference.rms_norm(wide[0], wide[2], eps)
        assert_accurate(rms_norm(x, weight, eps), exact, reference.rms_norm(x, weight, eps))
        return
    total = x + residual
    # the sum is rounded before it is normalized
    exact = reference.rms_norm(total.double(), wide[2], eps)
    out, summed = add_rms_norm(x, residual, weight, eps)
    assert torch.equal(summed, total)
    assert_accurate(out, exact, reference.rms_norm(total, weight, eps))


@pytest.mark.usefixtures("interpreted")
class TestForward:
    """Values."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("width", WIDTHS)
    def test_every_width(self, width, dtype):
        x, residual, weight = (
            torch.randn(5, width).to(dtype),
            torch.randn(5, width).to(dtype),
            torch.rand(width).to(dtype),
        )
        for added in (None, residual):
            for scaled in (None, weight):
                check(x, added, scaled)

    @pytest.mark.parametrize("seed", range(8))
    def test_any_shape_and_strides(self, seed):
        rng = random.Random(seed)
        width = rng.choice((3, 16, 48, 300))
        whole = torch.randn(3, 4, 2 * width + 1)
        views = (
            whole[..., :width],
            whole[:, 1:, 1 : width + 1],
            whole[::2, :, :width],
            whole[..., : 2 * width : 2],
            whole.transpose(0, 1)[..., :width],
            whole[:1, :1].expand(2, 5, -1)[..., :width],
            whole[0, 0, :width],
        )
        x = rng.choice(views)
        residual = rng.choice([view for view in views if view.shape == x.shape])
        check(x, residual, torch.randn(2 * width)[::2], 1e-5)

    def test_what_is_not_evenly_apart_is_copied_and_not_written(self):
        x = torch.randn(4, 6, 32).transpose(0, 1)[:, ::2]
        before = x.clone()
        check(x, None, torch.randn(32))
        assert torch.equal(x, before)

    @pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 8)], ids=str)
    def test_nothing_to_normalize(self, shape):
        out, total = add_rms_norm(torch.empty(shape), torch.empty(shape))
        assert out.shape == total.shape == rms_norm(torch.empty(shape)).shape == shape

    def test_large_and_small_values(self):
        x = torch.tensor([[1e-30] * 16, [1e15] * 16, [0.0] * 16])
        torch.testing.assert_close(rms_norm(x), reference.rms_norm(x))
        assert rms_norm(torch.full((1, 16), float("nan"))).isnan().all()

    def test_eps_is_torchs(self):
        x = torch.randn(4, 64) * 1e-4
        torch.testing.assert_close(rms_norm(x), torch.nn.functional.rms_norm(x, (64,)))
        torch.testing.assert_close(rms_norm(x, eps=1e-3), torch.nn.functional.rms_norm(x, (64,), eps=1e-3))


@pytest.mark.usefixtures("interpreted")
class TestGradients:
    """Gradients of all operands."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("width", [1, 48, 300, 5000, 9000])
    def test_as_exact_as_torchs(self, width, dtype):
        rows = 3 if width > 1000 else 9
        x, residual = (torch.randn(rows, width).to(dtype).requires_grad_() for _ in range(2))
        weight = torch.rand(width).to(dtype).requires_grad_()
        grads = [torch.randn(rows, width).to(dtype) for _ in range(2)]

        def gradients(function, wide: bool) -> tuple[Tensor, ...]:
            given = [value.detach().double() if wide else value.detach() for value in (x, residual, weight)]
            leaves = [value.requires_grad_() for value in given]
            outs = function(*leaves)
            return torch.autograd.grad(outs, leaves, [grad.double() if wide else grad for grad in grads])

        exact, torchs = gradients(reference.add_rms_norm, True), gradients(reference.add_rms_norm, False)
        for got, right, own in zip(gradients(add_rms_norm, False), exact, torchs, strict=True):
            assert_accurate(got, right, own, 3.0)

    @pytest.mark.parametrize("width", [3, 300, 9000])
    @pytest.mark.parametrize("rows", [1, 3, 5, 8])
    def test_without_eps(self, rows, width):
        x, weight = torch.randn(rows, width).requires_grad_(), torch.rand(width).requires_grad_()
        grad = torch.randn(rows, width)
        found = torch.autograd.grad(rms_norm(x, weight, 0.0), (x, weight), grad)
        right = torch.autograd.grad(reference.rms_norm(x, weight, 0.0), (x, weight), grad)
        for got, expected in zip(found, right, strict=True):
            torch.testing.assert_close(got, expected)

    def test_of_each_operand_alone(self):
        x, weight = torch.randn(6, 40), torch.rand(40)
        grad = torch.randn(6, 40)
        for wanted in (0, 1):
            for given in ((x, weight), (x, None))[: 2 - wanted]:
                found = []
                for function in (rms_norm, reference.rms_norm):
                    own = [None if value is None else value.clone() for value in given]
                    own[wanted].requires_grad_()
                    found.append(torch.autograd.grad(function(*own), own[wanted], grad)[0])
                torch.testing.assert_close(*found)

    def test_of_the_sum_alone_and_of_the_norm_alone(self):
        for place in (0, 1):
            x, residual = (torch.randn(4, 32).requires_grad_() for _ in range(2))
            found = torch.autograd.grad(add_rms_norm(x, residual)[place].sum(), (x, residual))
            right = torch.autograd.grad(reference.add_rms_norm(x, residual)[place].sum(), (x, residual))
            for got, expected in zip(found, right, strict=True):
                torch.testing.assert_close(got, expected)

    @pytest.mark.parametrize(
        "dtypes", [(torch.bfloat16, torch.float32), (torch.float32, torch.float16), (torch.float16, torch.bfloat16)]
    )
    @pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
    def test_dtypes_that_differ_are_torchs(self, dtypes):
        x, weight = torch.randn(5, 40).to(dtypes[0]).requires_grad_(), torch.rand(40).to(dtypes[1]).requires_grad_()
        residual = torch.randn(5, 40).to(dtypes[1]).requires_grad_()
        wide = [value.detach().double() for value in (x, weight)]
        results = [rms_norm(x, weight), reference.rms_norm(*wide), reference.rms_norm(x, weight)]
        assert_accurate(*(result.detach() for result in results))
        found, right = (f(x, residual, weight) for f in (add_rms_norm, reference.add_rms_norm))
        grads = [torch.autograd.grad([each.sum() for each in both], (x, residual, weight)) for both in (found, right)]
        for got, expected in zip((*found, *grads[0]), (*right, *grads[1]), strict=True):
            assert got.dtype == expected.dtype
            torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)

    @pytest.mark.parametrize("added", [False, True])
    def test_a_second_derivative_is_refused(self, added):
        x = torch.randn(3, 8).requires_grad_()
        out = add_rms_norm(x, torch.ones(3, 8))[0] if added else rms_norm(x)
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivative"):
            torch.autograd.grad(grad.square().sum(), x)

    def test_of_views_and_of_nothing(self):
        x = torch.randn(5, 3, 24).transpose(0, 1).requires_grad_()
        got, right = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (rms_norm, reference.rms_norm))
        torch.testing.assert_close(got, right, atol=1e-4, rtol=1e-4)
        empty, weight = torch.empty(0, 8).requires_grad_(), torch.ones(8).requires_grad_()
        (of_empty, of_weight) = torch.autograd.grad(rms_norm(empty, weight).sum(), (empty, weight))
        assert of_empty.shape == (0, 8)
        assert torch.equal(of_weight, torch.zeros(8))

    @pytest.mark.parametrize("added", [False, True])
    def test_the_operator_is_torchs_kind(self, added):
        x, residual, weight = (torch.randn(4, 24).requires_grad_() for _ in range(3))
        weight = weight[0].detach().requires_grad_()
        operator = torch.ops.nojit.add_rms_norm.default if added else torch.ops.nojit.rms_norm.default
        torch.library.opcheck(operator, (x, residual, weight, 1e-6) if added else (x, weight, 1e-6))
        traced = torch.compile(add_rms_norm if added else rms_norm, backend="aot_eager", fullgraph=True)
        given = (x, residual, weight) if added else (x, weight)
        results = [function(*given) for function in (traced, add_rms_norm if added else rms_norm)]
        torch.testing.assert_close(*results)


def test_a_call_like_one_before_is_a_look_up():
    launches: list[str] = []
    x, weight = torch.randn(4, 64), torch.randn(64)
    with library.override(lambda name: lambda *_, **__: launches.append(name)):
        for _ in range(3):
            rms_norm(x, weight)
            add_rms_norm(x, x, weight)
        assert op._MEMO(x, None, weight, library.CURRENT.source, None) is not None
        assert op._MEMO(x, x, weight, library.CURRENT.source, 1e-6) is None
    assert launches == ["rms_norm_fwd"] * 7


@pytest.mark.usefixtures("interpreted")
def test_mistakes_are_named():
    x, weight = torch.randn(3, 8), torch.randn(8)
    for call, error, words in (
        (lambda: rms_norm(torch.tensor(1.0)), ValueError, "input: expected at least one dimension"),
        (lambda: rms_norm(x.int()), ArgumentError, "input: expected torch.float16"),
        (lambda: rms_norm(x, weight[:4]), ValueError, "weight: expected shape .8,."),
        (lambda: rms_norm(x, weight.int()), ArgumentError, "weight: expected torch.float32 as input has"),
        (lambda: add_rms_norm(x, x[:2].half()), ValueError, "residual: expected shape .3, 8."),
        (lambda: rms_norm(x, weight, "1"), ArgumentError, "eps: expected a number"),
        (lambda: rms_norm([1.0]), ArgumentError, "input: expected a tensor"),
        (lambda: add_rms_norm(x, x[:2], weight), ValueError, "residual: expected shape .3, 8."),
        (lambda: add_rms_norm(x, None), ArgumentError, "residual: expected a tensor"),
        (lambda: add_rms_norm(x, x.half().to("meta")), ArgumentError, "residual: expected a tensor on cpu as input is"),
    ):
        with pytest.raises(error, match=words):
            call()
