"""scaled_grouped_mm through Triton's interpreter: groups, scales, sizes, strides, devices without fp8, mistakes."""

from __future__ import annotations

import random

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.problem import requested
from nojit.kernels.scaled_grouped_mm import launch as launch_module
from nojit.kernels.scaled_grouped_mm import reference, scaled_grouped_mm
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate
from tests.kernels.test_grouped_mm import LENGTHS, ends
from tests.kernels.test_scaled_mm import E4, E5

pytestmark = pytest.mark.usefixtures("interpreted")

KINDS = ("ends", "tiles")


def operands(
    lengths: tuple[int, ...], n: int, k: int, kind: str = "ends", past: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Make rows for each group and `past` more, which are NaN, weights as layers store them, scales, and the ends."""
    rows, groups = sum(lengths) + past, len(lengths)
    a = torch.randn(rows, k).to(E4)
    a.view(torch.uint8)[sum(lengths) :] = 0x7F
    high, wide = -(-k // 128), -(-n // 128)
    shapes = ((rows,), (groups, n)) if kind == "ends" else ((rows, high), (groups, high, wide))
    scales = (torch.rand(shape) + 0.5 for shape in shapes)
    return a, torch.randn(groups, n, k).to(E4).mT, *scales, ends(lengths)  # type: ignore[return-value]


def check(result: Tensor, *given: Tensor) -> None:
    """Compare all that the groups have; fp64 is exact."""
    rows = int(given[4][-1])
    exact = reference.scaled_grouped_mm(*given)[:rows]
    torchs = reference.scaled_grouped_mm(*given, dtype=torch.float32)[:rows].to(result.dtype)
    assert_accurate(result[:rows], exact, torchs)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_groups(kind, lengths):
    given = operands(lengths, 144, 272, kind, past=3)
    result = scaled_grouped_mm(*given)
    assert result.dtype == torch.bfloat16
    check(result, *given)


@pytest.mark.parametrize("seed", range(10))
def test_any_sizes(seed):
    rng = random.Random(seed)
    lengths = tuple(rng.choice((0, 0, 1, 2, 9, 63, 64, 65)) for _ in range(rng.choice((1, 2, 7, 40))))
    n, k = rng.choice((16, 48, 128, 144)), rng.choice((0, 16, 80, 128, 272))
    given = operands(lengths, n, k, rng.choice(KINDS), past=rng.choice((0, 0, 1, 40)))
    check(scaled_grouped_mm(*given, use_fast_accum=rng.random() < 0.5), *given)


def test_the_reference_multiplies_each_group_by_its_own_scales():
    a, b, scale_a, scale_b, offs = operands((2, 3), 144, 160, "tiles")
    found = reference.scaled_grouped_mm(a, b, scale_a, scale_b, offs)
    for row, group, col in ((0, 0, 0), (1, 0, 130), (2, 1, 127), (4, 1, 143)):
        terms = (
            float(a[row, k]) * float(scale_a[row, k // 128]) * float(b[group, k, col]) * float(scale_b[group, k // 128, col // 128])
            for k in range(160)
        )  # fmt: skip
        assert float(found[row, col]) == pytest.approx(sum(terms), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_any_strides(kind):
    a, b, scale_a, scale_b, offs = operands((5, 0, 12), 48, 272, kind)
    wide = torch.full((17, 300), 99.0).to(E4)
    apart = wide[:, 1:273].copy_(a)
    spread = torch.full((3, 48, 275), 99.0).to(E4)[:, :, 3:].copy_(b.mT).mT
    shared = b[:1].expand(3, -1, -1)
    scale_a = scale_a.repeat_interleave(2, 0)[::2]
    scale_b = scale_b.mT.contiguous().mT
    for left, right in ((apart, b), (a, spread), (a, shared), (a[:1].expand(17, -1), b)):
        check(scaled_grouped_mm(left, right, scale_a, scale_b, offs), left, right, scale_a, scale_b, offs)


def test_scales_may_have_a_dimension_more_or_be_shared():
    a, b, scale_a, scale_b, offs = operands((5, 0, 12), 48, 80)
    expected = scaled_grouped_mm(a, b, scale_a, scale_b, offs)
    assert torch.equal(scaled_grouped_mm(a, b, scale_a[:, None], scale_b[:, None], offs), expected)
    given = a, b, scale_a[:1].expand(17), scale_b[:, :1].expand(-1, 48), offs
    check(scaled_grouped_mm(*given), *given)


def test_rows_past_the_last_end_are_not_written():
    given = operands((5, 0, 12), 48, 80, past=60)
    for out in (torch.full((77, 48), 7.0).bfloat16(), torch.full((48, 154), 7.0).bfloat16()[:, ::2].t()):
        assert scaled_grouped_mm(*given, out=out) is out
        check(out, *given)
        assert (out[17:] == 7).all()


@pytest.mark.parametrize("wrong", [(5, 3, 90, 12), (-4, 6, 6, 17), (2_000_000_000, 3, 4, 5)], ids=str)
def test_ends_that_make_no_sense_stay_within_the_result(wrong):
    *given, _ = operands((5, 0, 12, 0), 32, 48)
    memory = torch.full((40, 32), 7.0).bfloat16()
    scaled_grouped_mm(*given, torch.tensor(wrong, dtype=torch.int32), out=memory[10:27])
    assert (memory[:10] == 7).all()
    assert (memory[27:] == 7).all()


@pytest.mark.parametrize(("lengths", "n", "k"), [((0, 0, 0), 32, 16), ((5, 2), 0, 16), ((5, 2), 32, 0)])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_multiply(kind, lengths, n, k):
    given = operands(lengths, n, k, kind)
    assert torch.equal(scaled_grouped_mm(*given), torch.zeros(sum(lengths), n).bfloat16())


@pytest.mark.parametrize("kind", KINDS)
def test_devices_without_fp8_multiply_bytes(kind, monkeypatch):
    monkeypatch.setattr(launch_module, "takes_bytes", lambda *_: True)
    asked = []
    source = library.CURRENT.source
    given = operands((5, 0, 70), 48, 272, kind)
    with library.override(lambda name: asked.append(name) or source.kernel(name)):
        for _ in range(2):
            check(scaled_grouped_mm(*given), *given)
    assert asked == ["scaled_grouped_mm_bytes"]


def test_fast_sums_are_asked_for_over_maps_alone():
    for kind in KINDS:
        given = launch_module.Operands(*operands((5, 20), 48, 272, kind))
        for fast in (False, True):
            call = launch_module.prepare(given, None, fast, maps_run=lambda _: True)
            assert call.constexprs == {"SCALES": kind, "FAST": fast and kind == "ends"}
            assert "FAST" not in launch_module.prepare(given, None, fast).constexprs


def test_calls_are_remembered_by_all_that_they_depend_on():
    a, b, *scales, offs = operands((5, 0, 12), 48, 272)
    blocks = operands((5, 0, 12), 48, 272, "tiles")[2:4]
    calls = (
        lambda: scaled_grouped_mm(a, b, *scales, offs),
        lambda: scaled_grouped_mm(a, b, *blocks, offs),
        lambda: scaled_grouped_mm(a, b[:1], scales[0], scales[1][:1], offs[2:]),
        lambda: scaled_grouped_mm(a, b, *scales, offs, out_dtype=torch.bfloat16),
    )
    first = [call() for call in calls]
    for call, result in zip(calls, first, strict=True):
        again = call()
        assert again.data_ptr() != result.data_ptr()
        assert torch.equal(again, result)
    assert torch.equal(first[0], first[3])
    scales[0].mul_(2.0)
    assert torch.equal(calls[0](), 2 * first[0])


def test_launches_one_kernel_and_nothing_else():
    given = operands((5, 0, 12), 48, 80)
    launch, out = requested(lambda: scaled_grouped_mm(*given))
    assert launch.kernel == "scaled_grouped_mm"
    assert launch.args[6:10] == (3, 17, 48, 80)
    assert out.shape == (17, 48)


def test_the_operator_is_torchs_kind():
    given = operands((5, 0, 12), 32, 80)
    # what looks at the schema multiplies operands, and torch does not multiply fp8
    utilities = (
        "test_faketensor",
        "test_autograd_registration",
        "test_aot_dispatch_static",
        "test_aot_dispatch_dynamic",
    )
    torch.library.opcheck(torch.ops.nojit.scaled_grouped_mm.default, (*given, False), test_utils=utilities)
    out = torch.empty(17, 32, dtype=torch.bfloat16)
    torch.library.opcheck(torch.ops.nojit.scaled_grouped_mm_out.default, (*given, True, out), test_utils=utilities)


def test_traces_without_a_graph_break():
    a, b, scale_a, scale_b, offs = operands((5, 0, 12), 32, 80)

    def several(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
        out = torch.empty(17, 32, dtype=torch.bfloat16)
        scaled_grouped_mm(a, b, scale_a, scale_b, offs, out=out)
        return scaled_grouped_mm(a, b, scale_a, scale_b, offs) + out

    traced = torch.compile(several, backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(a, b, offs), several(a, b, offs))


def test_there_are_no_gradients():
    a, b, scale_a, scale_b, offs = operands((5, 0, 12), 32, 80)
    learned = scale_b.clone().requires_grad_()
    with pytest.raises(ValueError, match="scale_b: expected a tensor that requires no grad, as fp8 products have no"):
        scaled_grouped_mm(a, b, scale_a, learned, offs)
    with torch.no_grad():
        again = scaled_grouped_mm(a, b, scale_a, learned, offs)
    assert torch.equal(again, scaled_grouped_mm(a, b, scale_a, scale_b, offs))


A, B, SA, SB, OFFS = operands((2, 0, 4), 32, 144)
BLOCKS_A, BLOCKS_B = torch.ones(6, 2), torch.ones(3, 2, 1)


@pytest.mark.parametrize(
    ("given", "words", "error", "message"),
    [
        ((A.float(), B, SA, SB, OFFS), {}, ArgumentError, "mat_a: expected torch.float8_e4m3fn, got torch.float32"),
        ((A, B.to(E5), SA, SB, OFFS), {}, ArgumentError, "mat_b: expected torch.float8_e4m3fn as mat_a has"),
        ((None, B, SA, SB, OFFS), {}, ArgumentError, "mat_a: expected a tensor, got NoneType"),
        ((A[None], B, SA, SB, OFFS), {}, ValueError, r"mat_a: expected 2 dimensions \[M, K\]"),
        ((A, B[0], SA, SB, OFFS), {}, ValueError, r"mat_b: expected 3 dimensions .* \(to cut K, call grouped_mm"),
        (
            (A[:, :64], B, SA, SB, OFFS),
            {},
            ValueError,
            "mat_b: expected 64 rows, as many as mat_a has columns, got 144",
        ),
        ((A[:, :72], B[:, :72], SA, SB, OFFS), {}, ValueError, "mat_a: expected a multiple of 16 columns, got 72"),
        ((A, B[:, :, :24], SA, SB, OFFS), {}, ValueError, "mat_b: expected a multiple of 16 columns, got 24"),
        ((A, B.contiguous(), SA, SB, OFFS), {}, ValueError, "mat_b: expected contiguous columns"),
        ((A.t().contiguous().t(), B, SA, SB, OFFS), {}, ValueError, "mat_a: expected contiguous rows"),
        ((A, B, SA.half(), SB, OFFS), {}, ArgumentError, "scale_a: expected torch.float32, got torch.float16"),
        ((A, B, SA, 1.0, OFFS), {}, ArgumentError, "scale_b: expected a tensor, got float"),
        ((A, B, SA, SB[:2], OFFS), {}, ValueError, r"scale_a, scale_b: expected shapes \(6,\) and \(3, 32\) for rows"),
        ((A, B, SA, BLOCKS_B, OFFS), {}, ValueError, r"or \(6, 2\) and \(3, 2, 1\) for blocks, got \(6,\) and"),
        ((A, B, BLOCKS_A, SB, OFFS), {}, ValueError, "scale_a, scale_b: expected shapes"),
        ((A, B, SA, SB, OFFS.long()), {}, ArgumentError, "offs: expected torch.int32"),
        ((A, B, SA, SB, OFFS[:2]), {}, ValueError, "offs: expected 3 elements, as many as mat_b has matrices, got 2"),
        ((A, B, SA, SB, OFFS), {"out_dtype": torch.float32}, ArgumentError, "out_dtype: expected None or torch.bfloat"),
        ((A, B, SA, SB, OFFS), {"use_fast_accum": None}, ArgumentError, "use_fast_accum: expected a bool"),
        ((A, B, SA, SB, OFFS), {"out": torch.ones(6, 32)}, ArgumentError, "out: expected torch.bfloat16"),
        ((A, B, SA, SB, OFFS), {"out": torch.ones(6, 48).bfloat16()}, ValueError, r"out: expected shape \(6, 32\)"),
    ],
)
def test_mistakes_are_named(given, words, error, message):
    with pytest.raises(error, match=message):
        scaled_grouped_mm(*given, **words)


def test_out_may_overlap_no_operand():
    memory = torch.zeros(6 * 32, dtype=torch.int16)
    scale = memory.view(torch.float32)[:6]
    with pytest.raises(ValueError, match="out: expected memory of its own, as the kernel reads scale_a"):
        scaled_grouped_mm(A, B, scale, SB, OFFS, out=memory.view(torch.bfloat16).view(6, 32))
