"""mm, bmm and baddbmm through Triton's interpreter: shapes, strides, dtypes, epilogues, gradients, mistakes."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm import baddbmm, bmm, mm, reference
from nojit.kernels.products.activations import ACTIVATIONS, FUNCTIONS
from nojit.kernels.products.matrices import Layout, mapped
from nojit.kernels.products.splits import splits_of
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

FLOATS = (torch.float16, torch.bfloat16, torch.float32)

pytestmark = pytest.mark.usefixtures("interpreted")


def laid_out(value: Tensor, how: str) -> Tensor:
    """Store the same matrices some other way."""
    if how == "columns":
        return value.mT.contiguous().mT
    if how == "gaps":
        wide = value.new_full((*value.shape[:-2], value.shape[-2] + 1, value.shape[-1] * 2), 99)
        wide[..., : value.shape[-2], ::2] = value
        return wide[..., : value.shape[-2], ::2]
    if how == "offset":
        flat = value.new_full((value.numel() + 1,), 99)
        flat[1:] = value.flatten()
        return flat[1:].view(value.shape)
    return value


WAYS = ("rows", "columns", "gaps", "offset")


def operands(batch: int, m: int, n: int, k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, m, k).to(dtype), torch.randn(batch, k, n).to(dtype)


def check(a: Tensor, b: Tensor) -> None:
    exact = a.double() @ b.double()
    assert_accurate(bmm(a, b), exact, a @ b)
    assert_accurate(mm(a[0], b[0]), exact[0], a[0] @ b[0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("way_a", "way_b"), list(product(WAYS, WAYS)))
def test_any_strides(way_a, way_b, dtype):
    a, b = operands(2, 33, 40, 70, dtype)
    check(laid_out(a, way_a), laid_out(b, way_b))


@pytest.mark.parametrize("seed", range(12))
def test_any_sizes(seed):
    rng = random.Random(seed)
    batch, m, n, k = rng.randint(1, 4), *(rng.choice((1, 3, 16, 17, 64, 65, 100, 130)) for _ in range(3))
    a, b = operands(batch, m, n, k, rng.choice(FLOATS))
    check(laid_out(a, rng.choice(WAYS)), laid_out(b, rng.choice(WAYS)))


def test_integers_are_exact():
    a = torch.randint(-128, 128, (2, 33, 700), dtype=torch.int8)
    b = torch.randint(-128, 128, (2, 700, 20), dtype=torch.int8)
    result = bmm(a, b)
    assert result.dtype == torch.int32
    assert torch.equal(result, reference.bmm(a, b))
    assert torch.equal(mm(a[0], b[0]), result[0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation, dtype):
    a, b = operands(2, 20, 24, 16, dtype)
    exact = reference.bmm(a.double(), b.double(), activation=activation)
    torchs = reference.bmm(a.float(), b.float(), activation=activation).to(dtype)
    assert_accurate(bmm(a, b, activation=activation), exact, torchs)
    assert_accurate(mm(a[0], b[0], activation=activation), exact[0], torchs[0])


def test_activations_of_what_is_not_finite():
    a = torch.tensor([[float("inf"), float("-inf"), float("nan"), 0.0]]).T
    one = torch.ones(1, 1)
    # torch's own gelu makes a NaN of infinity on a CPU
    for activation in ACTIVATIONS.keys() - {"gelu"}:
        right = FUNCTIONS[activation](a)
        torch.testing.assert_close(mm(a, one, activation=activation), right, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(3, 20, 24), (20, 24), (24,), (20, 1), (3, 1, 1), ()], ids=str)
def test_inputs_broadcast(shape, dtype):
    a, b = operands(3, 20, 24, 16, dtype)
    source = torch.randn(shape).to(dtype)
    words = {"beta": 0.5, "alpha": -2.0}
    exact = torch.baddbmm(source.double(), a.double(), b.double(), **words)
    assert_accurate(baddbmm(source, a, b, **words), exact, torch.baddbmm(source, a, b, **words))


def test_an_input_that_counts_for_nothing_is_not_read():
    a, b = operands(2, 20, 24, 16, torch.float32)
    source = torch.full((24,), float("nan"))
    assert torch.equal(baddbmm(source, a, b, beta=0), bmm(a, b))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_deep_products_are_cut_into_parts(dtype):
    a, b = operands(2, 9, 33, 2100, dtype)
    assert splits_of(2, 9, 33, 2100, 132) > 1
    source = torch.randn(33).to(dtype)
    exact = torch.baddbmm(source.double(), a.double(), b.double()).relu()
    torchs = torch.baddbmm(source.float(), a.float(), b.float()).relu().to(dtype)
    assert_accurate(baddbmm(source, a, b, activation="relu"), exact, torchs)


def test_parts_are_as_many_as_keep_a_device_busy():
    assert splits_of(1, 4096, 4096, 4096, 132) == 1
    assert splits_of(1, 1, 1024, 4096, 132) == 8
    assert splits_of(1, 1, 64, 4096, 132) == 8
    assert splits_of(1, 1, 64, 1 << 20, 132) == 16
    assert splits_of(1, 1, 64, 256, 132) == 1
    assert splits_of(0, 1, 64, 256, 132) == 1


@pytest.mark.parametrize(("batch", "m", "n", "k"), [(2, 3, 4, 0), (0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5)])
def test_nothing_to_multiply(batch, m, n, k):
    a, b = operands(batch, m, n, k, torch.float32)
    assert torch.equal(bmm(a, b), torch.zeros(batch, m, n))
    source = torch.randn(batch, m, n)
    torch.testing.assert_close(baddbmm(source, a, b, beta=2.0), 2.0 * source)


def test_out_may_lie_any_way_and_be_the_input():
    a, b = operands(2, 20, 24, 16, torch.float32)
    for way in WAYS:
        out = laid_out(torch.full((2, 20, 24), float("nan")), way)
        assert bmm(a, b, out=out) is out
        torch.testing.assert_close(out, a @ b)
        before = out.clone()
        assert baddbmm(out, a, b, out=out) is out
        torch.testing.assert_close(out, before + a @ b)


def test_calls_are_remembered_by_all_that_they_depend_on():
    a, b = operands(1, 9, 33, 2100, torch.float32)
    source = torch.randn(33)
    calls = (
        lambda: mm(a[0], b[0]),
        lambda: bmm(a, b),
        lambda: bmm(a, b, activation="relu"),
        lambda: baddbmm(source, a, b),
        lambda: baddbmm(source, a, b, alpha=2),
        lambda: baddbmm(source, a, b, beta=0),
        lambda: bmm(a.half(), b.half()),
        lambda: bmm(b.mT, a.mT),
    )
    first = [call() for call in calls]
    for call, result in zip(calls, first, strict=True):
        again = call()
        assert again.data_ptr() != result.data_ptr()
        assert torch.equal(again, result)
    torch.testing.assert_close(first[4] - source, 2 * (first[3] - source), atol=1e-3, rtol=1e-4)
    assert torch.equal(first[5], first[1])
    with pytest.raises(ValueError, match="input: expected 2 dimensions"):
        mm(a, b)
    with pytest.raises(ArgumentError, match="input: expected a tensor"):
        baddbmm(None, a, b)


def test_operands_have_torchs_names():
    a, b = operands(2, 5, 7, 6, torch.float32)
    assert torch.equal(mm(input=a[0], mat2=b[0]), mm(a[0], b[0]))
    assert torch.equal(bmm(input=a, mat2=b), bmm(a, b))
    source = torch.ones(7)
    assert torch.equal(baddbmm(input=source, batch1=a, batch2=b), baddbmm(source, a, b))
    with pytest.raises(ValueError, match="batch2: expected 2 matrices as batch1 has"):
        baddbmm(source, a, b[:1])


def test_torchs_switch_says_how_fp32_is_multiplied():
    a, b = operands(1, 9, 8, 7, torch.float32)
    words = []
    before = torch.backends.cuda.matmul.allow_tf32
    with library.override(lambda _: lambda *args, **named: words.append(named["PRECISION"])):
        for allowed in (False, True, False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            bmm(a, b)
    torch.backends.cuda.matmul.allow_tf32 = before
    assert words == ["ieee", "tf32", "ieee", "tf32"]


def test_more_products_than_a_grid_is_wide():
    a, b = torch.randn(1, 2, 3).expand(70_000, -1, -1), torch.randn(1, 3, 1).expand(70_000, -1, -1)
    grids = []
    with library.override(
        lambda _: lambda *args, **named: grids.append([named[size] for size in ("batch", "m_len", "n_len", "k_len")])
    ):
        assert bmm(a, b).shape == (70_000, 2, 1)
    assert grids == [[70_000, 2, 1, 3]]


@pytest.mark.parametrize("adds", [False, True])
def test_gradients(adds):
    a, b = (x.requires_grad_() for x in operands(2, 9, 12, 10, torch.float32))
    source = torch.randn(9, 1, requires_grad=True)
    wide = [x.detach().double().requires_grad_() for x in (source, a, b)]
    words = {"beta": 0.5, "alpha": 2.0}
    ours = baddbmm(source, a, b, **words) if adds else bmm(a, b)
    right = torch.baddbmm(*wide, **words) if adds else wide[1] @ wide[2]
    grad = torch.randn(right.shape)
    own = (source, a, b) if adds else (a, b)
    exact = torch.autograd.grad(right, wide if adds else wide[1:], grad.double())
    for got, value in zip(torch.autograd.grad(ours, own, grad), exact, strict=True):
        torch.testing.assert_close(got.double(), value, rtol=1e-5, atol=1e-5)


def test_gradients_of_one_operand_of_sums_and_of_shared_matrices():
    a, b = operands(3, 9, 12, 10, torch.float32)
    shared = torch.randn(10, 12, requires_grad=True)
    bmm(a, shared.expand(3, -1, -1)).sum().backward()
    torch.testing.assert_close(shared.grad, a.sum((0, 1))[:, None].expand(-1, 12))
    a.requires_grad_()
    mm(a[0], b[0]).sum().backward()
    torch.testing.assert_close(a.grad[0], b[0].sum(1).expand(9, -1))


def test_gradients_of_gradients_and_of_activations():
    results = []
    a, b = (x.requires_grad_() for x in operands(1, 5, 6, 7, torch.float32))
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    for run, pair in ((bmm, (a, b)), (reference.bmm, wide)):
        (da,) = torch.autograd.grad(run(*pair, activation="silu").square().sum(), pair[0], create_graph=True)
        results.append(torch.autograd.grad(da.square().sum(), pair))
    for got, right in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-3 * float(right.abs().max()))


@pytest.mark.parametrize("gradient", [False, True])
def test_the_operator_is_torchs_kind(gradient):
    a, b = (x.requires_grad_(gradient) for x in operands(2, 5, 6, 7, torch.float32))
    torch.library.opcheck(torch.ops.nojit.bmm.default, (None, a, b, 0.0, 1.0, "none"))
    torch.library.opcheck(torch.ops.nojit.bmm.default, (torch.ones(6), a, b, 0.5, 2.0, "none"))
    if not gradient:
        out = torch.empty(2, 5, 6)
        torch.library.opcheck(torch.ops.nojit.bmm_out.default, (None, a, b, 0.0, 1.0, "gelu", out))


@pytest.mark.parametrize("gradient", [False, True])
def test_traces_without_a_graph_break(gradient):
    a, b = (x.requires_grad_(gradient) for x in operands(2, 5, 6, 7, torch.float32))

    def several(a: Tensor, b: Tensor) -> Tensor:
        return baddbmm(bmm(a, b, activation="relu"), a, b, alpha=0.5) + mm(a[0], b[0], activation="tanh")

    traced = torch.compile(several, backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(a, b), several(a, b))


def test_autocast_casts_as_torchs_products():
    a, b = operands(2, 5, 6, 7, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        result = bmm(a, b)
        assert result.dtype == torch.bmm(a, b).dtype == torch.bfloat16
    assert torch.equal(result, bmm(a.bfloat16(), b.bfloat16()))


def test_mistakes_are_named():
    a, b = operands(2, 5, 6, 7, torch.float32)
    for call, error, words in (
        (lambda: bmm(a[0], b), ValueError, "input: expected 3 dimensions"),
        (lambda: mm(a, b), ValueError, "input: expected 2 dimensions"),
        (lambda: bmm(a, b[:1]), ValueError, "mat2: expected 2 matrices as input has, got 1"),
        (lambda: bmm(a, a), ValueError, "mat2: expected 7 rows, as many as input has columns, got 5"),
        (lambda: bmm(a, b.half()), ArgumentError, "mat2: expected torch.float32 as input has"),
        (lambda: bmm(a.double(), b.double()), ArgumentError, "input: expected torch.float16"),
        (lambda: bmm(a, b, activation="swish"), ValueError, "activation: expected 'none'"),
        (lambda: bmm(a, b, out=a), ValueError, "out: expected shape"),
        (lambda: bmm(a, b, out=torch.empty(2, 5, 6).half()), ArgumentError, "out: expected torch.float32"),
        (lambda: bmm(a, b, out=torch.empty(1).expand(2, 5, 6)), ValueError, "without repeated elements"),
        (lambda: bmm(a[:, :, :6], b[:, :6], out=a[:, :, 1:]), ValueError, "out: expected memory of its own"),
        (lambda: baddbmm(torch.ones(7), a, b), ValueError, "input: expected a shape that broadcasts"),
        (lambda: baddbmm(torch.ones(6).half(), a, b), ArgumentError, "input: expected torch.float32"),
        (lambda: baddbmm(a, a, b, beta="x"), ArgumentError, "beta: expected a number"),
        (lambda: bmm(a.char(), b.char(), activation="relu"), ArgumentError, "activation: expected 'none' for int8"),
    ):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_dtype_is_taken_if_it_is_the_results_own(dtype, trained):
    a, b = (x.requires_grad_(trained) for x in operands(2, 5, 6, 7, dtype))
    calls = (
        lambda **words: mm(a[0], b[0], **words),
        lambda **words: bmm(a, b, **words),
        lambda **words: baddbmm(a[:, :, :6], a, b, **words),
    )
    other = torch.float16 if dtype == torch.float32 else torch.float32
    for call in calls:
        assert torch.equal(call(out_dtype=dtype), call())
        with pytest.raises(ArgumentError, match=f"out_dtype: expected None or {dtype}, the only .* got {other}"):
            call(out_dtype=other)


def test_the_dtype_of_bytes_and_under_autocast_is_the_results_too():
    a, b = operands(1, 5, 6, 7, torch.float32)
    assert mm(a[0].char(), b[0].char(), out_dtype=torch.int32).dtype == torch.int32
    with torch.autocast("cpu", torch.bfloat16):
        assert bmm(a, b, out_dtype=torch.bfloat16).dtype == torch.bfloat16
        with pytest.raises(ArgumentError, match=r"out_dtype: expected None or torch\.bfloat16"):
            bmm(a, b, out_dtype=torch.float32)


def test_results_of_bytes_take_no_memory_of_theirs():
    memory = torch.zeros(400, dtype=torch.int8)
    a, out = memory[:16].view(4, 4), memory.view(torch.int32)
    with pytest.raises(ValueError, match="out: expected memory that overlaps no int8 operand"):
        mm(a, a, out=out[:16].view(4, 4))
    assert mm(a, a, out=out[4:20].view(4, 4)).sum() == 0


def test_results_may_lie_between_operands():
    memory = torch.randn(6, 12)
    a, b, out = memory[:, :4], memory[:4, 4:8], memory[:, 8:]
    right = a @ b
    assert mm(a, b, out=out) is out
    torch.testing.assert_close(out, right)


def test_out_takes_no_gradients():
    a, b = operands(2, 5, 6, 7, torch.float32)
    with pytest.raises(ValueError, match="require no grad"):
        bmm(a.requires_grad_(), b, out=torch.empty(2, 5, 6))


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (((2, 8, 16), (128, 16, 1)), (False, 1)),
        (((2, 8, 16), (128, 1, 8)), (True, 1)),
        (((2, 8, 16), (0, 16, 1)), (False, 0)),
        (((1, 1, 16), (5, 3, 1)), (False, 0)),
        (((2, 8, 16), (128, 0, 1)), None),
        (((2, 8, 16), (129, 16, 1)), None),
        (((2, 8, 15), (120, 15, 1)), None),
        (((2, 0, 16), (0, 16, 1)), None),
        (((2, 8, 16), (256, 32, 2)), None),
    ],
)
def test_what_maps_describe(layout, expected):
    found = mapped(Layout(*layout), 2)
    assert (None if found is None else (found.is_transposed, found.step)) == expected


@pytest.mark.parametrize("trained", [False, True])
def test_what_is_added_is_named_alike_with_and_without_gradients(trained):
    batch1, batch2 = torch.ones(1, 4, 4, requires_grad=trained), torch.ones(1, 4, 4)
    with pytest.raises(ArgumentError, match="as batch1 has"):
        baddbmm(torch.ones(4, 4, dtype=torch.float16), batch1, batch2)
