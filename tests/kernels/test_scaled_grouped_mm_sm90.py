"""scaled_grouped_mm over tensor maps, step by step without a device: see `tests.kernels.gluon_stub` for what that shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.scaled_grouped_mm import launch as launch_module
from nojit.kernels.scaled_grouped_mm import scaled_grouped_mm

from tests.kernels import sm90
from tests.kernels.test_grouped_mm import LENGTHS, ends
from tests.kernels.test_scaled_grouped_mm import E4, KINDS, check, operands

# as few stages as work: the more often they are used again, the more is seen
TILES = {
    "128 x 256": {"BLOCK_M": 128, "BLOCK_N": 256, "GROUP": 2, "STAGES": 2},
    "128 x 128": {"BLOCK_M": 128, "BLOCK_N": 128, "GROUP": 1, "STAGES": 3},
    "64 x 256": {"BLOCK_M": 64, "BLOCK_N": 256, "GROUP": 4, "STAGES": 2},
    "64 x 128": {"BLOCK_M": 64, "BLOCK_N": 128, "GROUP": 4, "STAGES": 4},
}
chosen: dict[str, int] = {}
asked: list[str] = []


def provide(name: str):
    """Give kernels as Python."""
    return sm90.noted(sm90.provide(name, lambda: chosen), name, asked)


@pytest.fixture(autouse=True, params=TILES.values(), ids=TILES.keys())
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device of a few processors that takes maps."""
    monkeypatch.setattr(launch_module, "has_maps", lambda _: True)
    chosen.clear()
    chosen.update(request.param)
    asked.clear()
    with library.override(provide):
        yield


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_groups(kind, lengths):
    given = operands(lengths, 272, 400, kind, past=5)
    for fast in (False, True):
        check(scaled_grouped_mm(*given, use_fast_accum=fast), *given)
    assert set(asked) == {"scaled_grouped_mm_sm90"}


@pytest.mark.parametrize(("n", "k"), [(16, 16), (80, 144), (144, 256)])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes(kind, n, k):
    given = operands((5, 0, 70), n, k, kind)
    check(scaled_grouped_mm(*given), *given)
    assert asked == ["scaled_grouped_mm_sm90"]


def test_matrices_and_scales_that_groups_share():
    a, b, scale_a, scale_b, offs = operands((5, 0, 70), 80, 144)
    given = a, b[:1].expand(3, -1, -1), scale_a[:1].expand(75), scale_b[:1, :1].expand(3, 80), offs
    check(scaled_grouped_mm(*given), *given)
    assert asked == ["scaled_grouped_mm_sm90"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_no_group_are_not_written(kind):
    given = operands((5, 0, 70, 64), 80, 144, kind, past=60)
    wide = torch.full((199, 96), 7.0).bfloat16()
    out = wide[:, 8:88]
    assert scaled_grouped_mm(*given, out=out) is out
    check(out, *given)
    assert (wide[139:] == 7).all()
    assert (wide[:, :8] == 7).all()
    assert (wide[:, 88:] == 7).all()
    assert asked == ["scaled_grouped_mm_sm90"]


@pytest.mark.parametrize("wrong", [(5, 3, 90, 12), (-4, 6, 6, 17), (2_000_000_000, 3, 4, 5)], ids=str)
def test_ends_that_make_no_sense_stay_within_the_result(wrong):
    *given, _ = operands((5, 0, 12, 0), 32, 48)
    memory = torch.full((40, 32), 7.0).bfloat16()
    scaled_grouped_mm(*given, torch.tensor(wrong, dtype=torch.int32), out=memory[10:27])
    assert (memory[:10] == 7).all()
    assert (memory[27:] == 7).all()


def fp8(*shape: int) -> torch.Tensor:
    return torch.ones(shape).to(E4)


ONES = torch.ones(8), torch.ones(2, 32)


@pytest.mark.parametrize(
    ("a", "b", "scales"),
    [
        pytest.param(fp8(8 * 80 + 1)[1:].view(8, 80), fp8(2, 32, 80).mT, ONES, id="unaligned"),
        pytest.param(fp8(8, 88)[:, :80], fp8(2, 32, 80).mT, ONES, id="rows of no 16 bytes"),
        pytest.param(fp8(8, 80), fp8(2, 32, 88)[:, :, :80].mT, ONES, id="columns of no 16 bytes"),
        pytest.param(fp8(1, 80).expand(8, -1), fp8(2, 32, 80).mT, ONES, id="repeated"),
        pytest.param(fp8(8, 0), fp8(2, 32, 0).mT, ONES, id="no depth"),
        pytest.param(fp8(8, 80), fp8(2, 32, 80).mT, (ONES[0], torch.ones(2, 64)[:, ::2]), id="scales apart"),
    ],
)
def test_what_maps_cannot_describe_goes_over_pointers(a, b, scales):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        scaled_grouped_mm(a, b, *scales, ends((4, 4)))
    assert names == ["scaled_grouped_mm"]
