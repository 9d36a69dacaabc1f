"""The packed tables of a layout against the layout itself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.packing import HEIGHTS, TILES, Packing, choose_height, choose_tile, pack
from torch import Tensor

CPU = torch.device("cpu")


@st.composite
def layouts(draw) -> tuple[Tensor, int]:
    heads, rows, cols = draw(st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(0, 20)))
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 0.8, 1.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 30)))
    active = torch.rand(heads, rows, cols, generator=generator) < density
    if rows and draw(st.booleans()):
        active[:, 0] = True
    return active, draw(st.sampled_from([16, 32, 64, 128]))


def index_of(active: Tensor) -> Tensor:
    """Number the blocks in the order in which a sparse tensor has them; -1 where there is none."""
    index = torch.full(active.shape, -1, dtype=torch.int64)
    index[active] = torch.arange(int(active.sum()))
    return index


def unpack_strips(tables: tuple[Tensor, ...], shape: tuple[int, ...], group: int) -> Tensor:
    """Rebuild the index from the tasks, each entry of which must be visited once."""
    tasks, entries, blocks, _ = (table.long() for table in tables[:4])
    heads, rows, cols = shape
    strips = -(-rows // group)
    index = torch.full((heads, strips * group, cols), -1)
    for strip, first, end, *_ in tasks.tolist():
        for entry in range(first, end):
            head, row = strip // strips, strip % strips * group
            column, halves = entries[entry].tolist()
            place = index[head, row : row + group, column]
            assert (place == -1).all(), "an entry of a strip comes once"
            place.copy_(blocks[entry])
            here = blocks[entry] >= 0
            upper, lower = here[: -(-group // 2)].any(), here[group // 2 :].any()
            assert halves == int(upper) + 2 * int(lower)
    assert (index[:, rows:] == -1).all()
    return index[:, :rows]


@settings(max_examples=80, deadline=None)
@given(layouts(), st.booleans())
def test_tasks_cover_the_layout_and_its_transpose(layout, narrow):
    active, block = layout
    tables, sizes = pack(active, block, narrow, CPU)
    assert all(table.dtype == torch.int32 and table.is_contiguous() for table in tables)
    index = index_of(active)
    for strips, turned in ((tables[:5], False), (tables[5:10], True)):
        mine = index.mT if turned else index
        height, slots, longest, entries, long, ahead = sizes.strips_of(turned)
        assert torch.equal(unpack_strips(strips, mine.shape, height // block), mine)
        assert torch.equal(unpack_strips((strips[4], *strips[1:]), mine.shape, height // block), mine)
        assert int((strips[0][:, 3] >= 0).sum()) == slots
        whole = strips[4]
        assert (whole[:, 3:] == -1).all()
        lengths = whole[:, 2] - whole[:, 1]
        assert (int(lengths.max()) if len(lengths) else 0, int(lengths.sum())) == (longest, entries)
        mean = entries / max(int((lengths > 0).sum()), 1)
        assert (lengths[:long] > 2 * mean).all()
        assert (lengths[long:] <= 2 * mean).all()
        assert ahead >= 1


@settings(max_examples=80, deadline=None)
@given(layouts(), st.booleans())
def test_tiles_hold_every_block_once(layout, narrow):
    active, block = layout
    tables, sizes = pack(active, block, narrow, CPU)
    (strips, *needs), columns, blocks = tables[10].long().unbind(1), tables[11].long(), tables[12].long()
    group, width = sizes.tile // block, sizes.width // block
    assert columns.shape[1] == width
    assert blocks.shape[1:] == (group, width)
    index = torch.full_like(index_of(active), -1)
    per_head = -(-active.shape[1] // group)
    for tile, row, col in (blocks >= 0).nonzero().tolist():
        head, first = divmod(int(strips[tile]), per_head)
        index[head, first * group + row, columns[tile, col]] = blocks[tile, row, col]
    assert torch.equal(index, index_of(active))
    assert (columns[:, :1] >= 0).all(), "no tile is empty"
    for own, half in zip(needs, (blocks[:, : -(-group // 2)], blocks[:, group // 2 :]), strict=True):
        for tile, need in enumerate(own.tolist()):
            assert need % block == 0
            last = need // block
            assert (half[tile, :, last:] == -1).all()
            assert not last or (half[tile, :, last - 1] >= 0).any()


@settings(max_examples=80, deadline=None)
@given(layouts())
def test_long_strips_are_cut_evenly_and_merged_in_order(layout):
    active, block = layout
    (tasks, _, _, merges, *_), sizes = pack(active, block, True, CPU)
    strip, first, end, slot, merge = tasks.long().unbind(1)
    whole = slot < 0
    assert torch.equal(merge < 0, whole)
    assert slot[~whole].tolist() == list(range(sizes.slots))
    assert len(strip.unique()) == active.shape[0] * -(-active.shape[1] // (sizes.height // block))
    assert (strip[whole].unique(return_counts=True)[1] == 1).all()
    for number, (of, begin, stop) in enumerate(merges.tolist()):
        mine = merge == number
        assert (strip[mine] == of).all()
        assert slot[mine].tolist() == list(range(begin, stop))
        lengths = (end - first)[mine]
        assert lengths.max() - lengths.min() <= 1


def test_one_dense_row_does_not_hold_up_the_others():
    active = torch.eye(64, dtype=torch.bool)
    active[0] = True
    (tasks, *_), sizes = pack(active[None], 64, True, CPU)
    assert sizes.slots == 4
    assert int((tasks[:, 2] - tasks[:, 1]).max()) <= 16


def diagonal(rows: int, reach: int) -> Tensor:
    places = torch.arange(rows)
    return ((places[:, None] - places).abs() <= reach)[None]


def test_windows_are_packed_high_and_scattered_blocks_are_not():
    scattered = torch.rand(2, 128, 128, generator=torch.Generator().manual_seed(1)) < 0.02
    assert choose_height(diagonal(128, 4), 32, True) == 128
    assert choose_height(scattered, 16, True) == 64
    assert choose_height(scattered, 32, True) == 128, "halves are skipped"
    assert choose_height(scattered, 32, False) == 32
    assert choose_tile(diagonal(64, 2), 128, True)[0] == 128
    assert choose_tile(scattered, 32, True) == (64, 128)


@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("narrow", [True, False])
def test_tiles_hold_whole_blocks(block, narrow):
    active = torch.ones(1, 3, 3, dtype=torch.bool)
    height, (tile, width) = choose_height(active, block, narrow), choose_tile(active, block, narrow)
    assert height in HEIGHTS[narrow]
    assert (tile, width) in TILES[narrow]
    assert not height % block
    assert not tile % block
    assert not width % block


def test_a_layout_remembers_its_tables_and_must_name_its_heads():
    layout = BlockLayout(torch.ones(2, 3, dtype=torch.int64), 16)
    with pytest.raises(ValueError, match="expected one with a number of heads"):
        layout.packing("cpu", torch.float16)
    own = layout.for_heads(2)
    packing = own.packing("cpu", torch.float16)
    assert isinstance(packing, Packing)
    assert own.packing("cpu", torch.bfloat16) is packing
    assert own.packing("cpu", torch.float32) is not packing
