"""How programs share a product's last wave: every step of K once, in slots that the second kernel adds up in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nojit.kernels.bmm.launch_padded import LINE, aligned
from nojit.kernels.products.agreed_sizes import LEAST_SHARED_STEPS
from nojit.kernels.products.matrices import Layout, mapped
from nojit.kernels.products.shared_wave import COLS, ROWS, sums_shape

from tests.kernels.gluon_stub import load
from tests.kernels.sm90 import KERNELS

LARGE = 132
"""Programs of an H200."""


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """Return what lists the ranges of all workers, and the slots of all tiles."""
    source = tmp_path_factory.mktemp("source") / "share.py"
    source.write_text(
        "def share(ranges, slots, counts, rest, steps):\n"
        "    workers = workers_of(rest, steps, gl.num_programs(0))\n"
        "    worker = gl.program_id(0)\n"
        "    counts.append(workers)\n"
        "    ranges.append([range_of(worker, rest, steps, workers, at) for at in (0, 1)])\n"
        "    if worker < rest:\n"
        "        slots.append(slots_of(worker, rest, steps, workers))\n"
    )
    return load("share", KERNELS / "products/kernel_tiles.py", KERNELS / "products/kernel_wave_shares.py", source)


def shared(share, programs: int, rest: int, steps: int):
    ranges, slots, counts = [], [], []
    share(programs, ranges, slots, counts, rest, steps)
    assert len({*counts}) == 1, "programs disagree"
    return ranges, slots, counts[0]


@given(st.data())
def test_every_step_is_computed_once_and_added_up_in_order(share, data):
    programs = data.draw(st.integers(2, 24) | st.just(LARGE))
    rest, steps = data.draw(st.integers(1, programs - 1)), data.draw(st.integers(1, 400))
    ranges, slots, workers = shared(share, programs, rest, steps)
    assert 1 <= workers <= programs
    # what is in each slot: a tile and a range of steps
    held: dict[int, tuple[int, int, int]] = {}
    for worker, both in enumerate(ranges):
        for tile, first, last in both:
            if first < last:
                assert worker < workers
                assert 0 <= tile < rest
                assert worker + tile not in held, "two ranges in one slot"
                held[worker + tile] = (tile, first, last)
    assert max(held) < programs + rest
    assert len(slots) == rest
    seen = 0
    for tile, (first, last) in enumerate(slots):
        done = 0
        for slot in range(first, last):
            of_tile, start, stop = held[slot]
            assert (of_tile, start) == (tile, done), "slots are in the order of K"
            done = stop
            seen += 1
        assert done == steps
    assert seen == len(held), "nothing is left out"


@given(st.data())
def test_workers_have_nearly_equal_shares(share, data):
    programs = data.draw(st.integers(2, 24) | st.just(LARGE))
    rest, steps = data.draw(st.integers(1, programs - 1)), data.draw(st.integers(1, 400))
    ranges, _, workers = shared(share, programs, rest, steps)
    lengths = [sum(last - first for _, first, last in both) for both in ranges]
    assert max(lengths[:workers]) - min(lengths[:workers]) <= 1
    assert not any(lengths[workers:])
    assert min(lengths[:workers]) >= min(LEAST_SHARED_STEPS, steps)
    # never longer than a tile, and at most an eighth of the programs idle unless shares are short
    assert max(lengths) <= steps
    assert workers >= min(programs - programs // 8, rest * max(1, steps // LEAST_SHARED_STEPS))


@pytest.mark.parametrize(
    ("rest", "workers"), [(1, 7), (2, 14), (8, 56), (44, 132), (66, 132), (60, 120), (88, 132), (131, 131), (24, 120)]
)
def test_who_works(share, rest, workers):
    assert shared(share, LARGE, rest, 47)[2] == workers


@given(st.integers(1, 300), st.integers(1, 100))
def test_rows_of_copies_start_on_lines(rows, vectors):
    of = mapped(Layout((2, rows, 8 * vectors), (rows * 8 * vectors, 8 * vectors, 1)), 2)
    assert of is not None
    copy = aligned(of)
    assert copy.shape == of.shape
    _, between, pitch, _ = copy.strides
    assert pitch % LINE == 0
    assert 0 <= pitch - 8 * vectors < LINE
    assert between == rows * pitch


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 4))
def test_the_workspace_has_a_tile_for_each_slot(rows, cols, batch):
    slots, *sides = sums_shape(batch, rows, cols, LARGE)
    assert LARGE <= slots < 2 * LARGE
    assert sides == [ROWS, COLS]
