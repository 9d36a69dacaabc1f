"""grouped_mm through Triton's interpreter: groups, dtypes, sizes, strides, biases, gradients, mistakes."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
import torch
from nojit.kernels.grouped_mm import grouped_mm, reference
from nojit.kernels.problem import requested
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

pytestmark = pytest.mark.usefixtures("interpreted")

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LENGTHS = {
    "one": (40,),
    "all in one": (0, 0, 75, 0),
    "empty at both ends": (0, 3, 0, 0, 17, 0),
    "of one row": (1, 1, 1, 1, 1),
    "whole tiles": (64, 128, 64),
    "ragged": (65, 1, 127, 0, 70),
    "none": (0, 0, 0),
}


def ends(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor(list(accumulate(lengths)), dtype=torch.int32)


def operands(
    lengths: tuple[int, ...], n: int, k: int, dtype: torch.dtype = torch.bfloat16, past: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Make rows for each group and `past` more, weights as layers store them, and the ends."""
    rows = sum(lengths) + past
    return torch.randn(rows, k).to(dtype), torch.randn(len(lengths), n, k).to(dtype).mT, ends(lengths)


def check(result: Tensor, a: Tensor, b: Tensor, offs: Tensor, bias: Tensor | None = None) -> None:
    """Compare all that the groups have; fp64 is exact."""
    exact = reference.grouped_mm(a.double(), b.double(), offs, bias=None if bias is None else bias.double())
    torchs = reference.grouped_mm(a, b, offs) if bias is None else exact.to(a.dtype)
    rows = result.shape[0] if b.dim() == 2 else int(offs[-1])
    assert_accurate(result[:rows], exact[:rows], torchs[:rows])


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_groups(dtype, lengths):
    a, b, offs = operands(lengths, 72, 40, dtype, past=3)
    check(grouped_mm(a, b, offs), a, b, offs)
    for shape in ((72,), (len(lengths), 72)):
        bias = torch.randn(shape).to(dtype)
        check(grouped_mm(a, b, offs, bias=bias), a, b, offs, bias)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_groups_of_the_depth(dtype, lengths):
    rows = sum(lengths) + 5
    a, b = torch.randn(rows, 40).to(dtype).t(), torch.randn(rows, 72).to(dtype)
    # nobody reads what no group has
    a[:, sum(lengths) :], b[sum(lengths) :] = float("nan"), float("nan")
    check(grouped_mm(a, b, ends(lengths)), a, b, ends(lengths))


@pytest.mark.parametrize("seed", range(12))
def test_any_sizes(seed):
    rng = random.Random(seed)
    groups = rng.choice((1, 2, 7, 40))
    lengths = tuple(rng.choice((0, 0, 1, 2, 9, 63, 64, 65)) for _ in range(groups))
    n, k = rng.choice((1, 8, 33, 130)), rng.choice((0, 1, 16, 77, 130))
    a, b, offs = operands(lengths, n, k, rng.choice(DTYPES), past=rng.choice((0, 0, 1, 40)))
    bias = torch.randn(groups, n).to(a.dtype) if rng.random() < 0.5 else None
    check(grouped_mm(a, b, offs, bias=bias), a, b, offs, bias)
    other = torch.randn(a.shape[0], n).to(a.dtype)
    check(grouped_mm(a.mT, other, offs), a.mT, other, offs)


def test_many_groups():
    rng = random.Random(5)
    lengths = tuple(rng.choice((0, 0, 0, 1, 2)) for _ in range(100))
    a, b, offs = operands(lengths, 16, 16)
    check(grouped_mm(a, b, offs), a, b, offs)


def test_any_strides():
    lengths = (5, 0, 12)
    a, b, offs = operands(lengths, 24, 40)
    wide = torch.full((40, 35), float("nan")).bfloat16()
    strange = wide[:, 1:35:2].t().copy_(a)
    shared = torch.randn(24, 40).bfloat16().t().expand(3, -1, -1)
    bias = torch.randn(3, 48).bfloat16()[:, ::2]
    for left, right in ((strange, b), (a, b.contiguous()), (strange, shared), (a[:1].expand(17, -1), b)):
        check(grouped_mm(left, right, offs, bias=bias), left, right, offs, bias)
        check(grouped_mm(left.t(), left, offs), left.t(), left, offs)


def test_rows_past_the_last_end_are_not_written():
    a, b, offs = operands((5, 0, 12), 24, 40, past=60)
    for out in (torch.full((77, 24), 7.0).bfloat16(), torch.full((24, 154), 7.0).bfloat16()[:, ::2].t()):
        assert grouped_mm(a, b, offs, out=out) is out
        check(out, a, b, offs)
        assert (out[17:] == 7).all()
    out = torch.full((3, 40, 24), 7.0).bfloat16()
    other = torch.randn(77, 24).bfloat16()
    check(grouped_mm(a.t(), other, offs, out=out), a.t(), other, offs)


@pytest.mark.parametrize("given", [(5, 3, 90, 12), (-4, 6, 6, 17), (2_000_000_000, 3, 4, 5)], ids=str)
def test_ends_that_make_no_sense_stay_within_the_result(given):
    a, b, _ = operands((5, 0, 12, 0), 24, 40)
    memory = torch.full((40, 24), 7.0).bfloat16()
    grouped_mm(a, b, torch.tensor(given, dtype=torch.int32), out=memory[10:27])
    assert (memory[:10] == 7).all()
    assert (memory[27:] == 7).all()
    assert torch.isfinite(grouped_mm(a.t(), a, torch.tensor(given, dtype=torch.int32))).all()


@pytest.mark.parametrize(("rows", "groups", "n", "k"), [(0, 3, 8, 8), (5, 0, 8, 8), (5, 3, 0, 8), (5, 3, 8, 0)])
def test_nothing_to_multiply(rows, groups, n, k):
    a, b = torch.randn(rows, k).bfloat16(), torch.randn(groups, k, n).bfloat16()
    offs = torch.full((groups,), rows, dtype=torch.int32)
    result = grouped_mm(a, b, offs)
    assert result.shape == (rows, n)
    if groups:
        assert torch.equal(result, torch.zeros(rows, n).bfloat16())
    gradient = grouped_mm(a.t(), torch.randn(rows, n).bfloat16(), offs)
    assert gradient.shape == (groups, k, n)
    if not rows:
        assert not gradient.any()


@pytest.mark.parametrize("shared", [False, True], ids=["a bias for each group", "one bias"])
def test_gradients(shared):
    lengths = (5, 0, 12, 1)
    a, b, offs = operands(lengths, 24, 40, torch.float32, past=3)
    bias = torch.randn(24) if shared else torch.randn(4, 24)
    dout = torch.randn(21, 24)

    def gradients(function, *values: Tensor) -> tuple[Tensor, ...]:
        sources = [value.detach().requires_grad_() for value in values]
        result = function(sources[0], sources[1], offs, bias=sources[2])
        return torch.autograd.grad(result[:18], sources, dout[:18].to(result.dtype))

    exact = gradients(reference.grouped_mm, a.double(), b.double(), bias.double())
    for got, right in zip(gradients(grouped_mm, a, b, bias), exact, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-4)
    assert not gradients(grouped_mm, a, b, bias)[0][18:].any()


def test_gradients_of_products_whose_depth_is_cut():
    offs = ends((5, 0, 12, 1))
    a, b, dout = torch.randn(21, 16).t(), torch.randn(21, 24), torch.randn(4, 16, 24)
    sources = [value.detach().requires_grad_() for value in (a, b)]
    wide = [value.double().detach().requires_grad_() for value in (a, b)]
    got = torch.autograd.grad(grouped_mm(*sources, offs), sources, dout)
    exact = torch.autograd.grad(reference.grouped_mm(*wide, offs), wide, dout.double())
    for one, right in zip(got, exact, strict=True):
        torch.testing.assert_close(one.double(), right, rtol=1e-5, atol=1e-4)


def test_is_differentiable_twice():
    offs = ends((2, 0, 3))
    a, b = torch.randn(5, 4, requires_grad=True), torch.randn(3, 4, 6, requires_grad=True)
    (to_a,) = torch.autograd.grad(grouped_mm(a, b, offs).square().sum(), a, create_graph=True)
    (twice,) = torch.autograd.grad(to_a.square().sum(), b)
    wide = [value.detach().double().requires_grad_() for value in (a, b)]
    (exact_a,) = torch.autograd.grad(reference.grouped_mm(*wide, offs).square().sum(), wide[0], create_graph=True)
    (exact,) = torch.autograd.grad(exact_a.square().sum(), wide[1])
    torch.testing.assert_close(twice.double(), exact, rtol=1e-4, atol=1e-3)


def test_launches_one_kernel_and_nothing_else():
    a, b, offs = operands((5, 0, 12), 24, 40)
    launch, out = requested(lambda: grouped_mm(a, b, offs))
    assert launch.kernel == "grouped_mm"
    assert launch.args[5:9] == (3, 17, 24, 40)
    assert out.shape == (17, 24)
    launch, out = requested(lambda: grouped_mm(a.t(), a, offs))
    assert launch.kernel == "grouped_mm_depth"
    assert out.shape == (3, 40, 40)


def test_the_operator_is_torchs_kind():
    a, b, offs = operands((5, 0, 12), 24, 40, torch.float32)
    bias = torch.randn(3, 24)
    for given in ((a, b, offs, bias, False), (a, b, offs, None, True), (a.t(), torch.randn(17, 8), offs, None, False)):
        learned = [
            value.detach().requires_grad_() if isinstance(value, Tensor) and value.is_floating_point() else value
            for value in given
        ]
        torch.library.opcheck(torch.ops.nojit.grouped_mm.default, tuple(learned))
        out = torch.empty(17, 24) if given[1].dim() == 3 else torch.empty(3, 40, 8)
        torch.library.opcheck(torch.ops.nojit.grouped_mm_out.default, (*given[:4], out))


def test_traces_without_a_graph_break():
    a, b, offs = operands((5, 0, 12), 24, 40)
    bias = torch.randn(24).bfloat16()

    def several(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
        out = torch.empty(17, 24, dtype=torch.bfloat16)
        grouped_mm(a, b, offs, out=out)
        return grouped_mm(a, b, offs, bias=bias) + out

    traced = torch.compile(several, backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(a, b, offs), several(a, b, offs))


def test_torch_agrees():
    a, b, offs = operands((5, 0, 12), 24, 40)
    torch.testing.assert_close(grouped_mm(a, b, offs), torch.nn.functional.grouped_mm(a, b, offs=offs))
    other = torch.randn(17, 24).bfloat16()
    ours, torchs = grouped_mm(a.t(), other, offs), torch.nn.functional.grouped_mm(a.t(), other, offs=offs)
    torch.testing.assert_close(ours, torchs)


A, B, OFFS = torch.ones(6, 8), torch.ones(3, 8, 4), torch.tensor([2, 4, 6], dtype=torch.int32)


@pytest.mark.parametrize(
    ("given", "words", "error", "message"),
    [
        ((A[None], B, OFFS), {}, ValueError, r"mat_a: expected 2 dimensions \[M, K\]"),
        ((A, B[None], OFFS), {}, ValueError, r"mat_b: expected 3 dimensions \[groups, K, N\], or 2"),
        ((A, B.half(), OFFS), {}, ArgumentError, "mat_b: expected torch.float32 as mat_a has"),
        ((A.int(), B.int(), OFFS), {}, ArgumentError, "mat_a: expected torch.float16"),
        ((A, B.mT, OFFS), {}, ValueError, "mat_b: expected 8 rows, as many as mat_a has columns, got 4"),
        ((A, B, OFFS.long()), {}, ArgumentError, "offs: expected torch.int32"),
        ((A, B, OFFS[None]), {}, ValueError, r"offs: expected 1 dimensions \[groups\]"),
        ((A, B, OFFS[:2]), {}, ValueError, "offs: expected 3 elements, as many as mat_b has matrices, got 2"),
        ((A, B, OFFS.repeat(2)[::2]), {}, ValueError, "offs: expected contiguous elements"),
        ((A, B, None), {}, ArgumentError, "offs: expected a tensor"),
        ((A, B, OFFS), {"bias": torch.ones(3)}, ValueError, r"bias: expected shape \(4,\) \[N\]"),
        ((A, B, OFFS), {"bias": torch.ones(2, 4)}, ValueError, r"bias: expected shape \(3, 4\) \[groups, N\]"),
        ((A, B, OFFS), {"bias": torch.ones(4).half()}, ArgumentError, "bias: expected torch.float32 as mat_a has"),
        ((A.t(), A, OFFS), {"bias": torch.ones(8)}, ValueError, "bias: expected None where K is cut"),
        ((A, B, OFFS), {"out_dtype": torch.bfloat16}, ArgumentError, "out_dtype: expected None or torch.float32"),
        ((A, B, OFFS), {"out": torch.ones(6, 5)}, ValueError, r"out: expected shape \(6, 4\) \[M, N\]"),
        ((A.t(), A, OFFS), {"out": torch.ones(6, 5)}, ValueError, r"out: expected shape \(3, 8, 8\) \[groups, M, N\]"),
        ((A, B, OFFS), {"out": torch.ones(4).expand(6, 4)}, ValueError, "out: expected a tensor without repeated"),
        ((A, B, OFFS), {"out": A[:, :4]}, ValueError, "out: expected memory of its own, as the kernel reads mat_a"),
    ],
)
def test_mistakes_are_named(given, words, error, message):
    with pytest.raises(error, match=message):
        grouped_mm(*given, **words)


def test_out_takes_no_gradients():
    with pytest.raises(ValueError, match="out: expected operands and an out that require no grad"):
        grouped_mm(A, B.clone().requires_grad_(), OFFS, out=torch.empty(6, 4))
