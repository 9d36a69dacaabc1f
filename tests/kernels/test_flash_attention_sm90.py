"""How the kernel for sm_90 shares out its work, as integers: no GPU, and no interpreter, which Gluon has none of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from nojit.kernels.flash_attention import kernel_sm90 as kernel

sizes = st.integers(1, 70)
lengths = st.sampled_from([1, 7, 127, 128, 129, 1000, 4096, 70_000, 200_000])


@pytest.fixture(autouse=True, scope="module")
def integers():
    """Have the kernel's helpers compute with Python's integers."""
    patch = pytest.MonkeyPatch()
    patch.setattr(kernel, "gl", SimpleNamespace(minimum=min, maximum=max, cdiv=lambda a, b: -(-a // b)))
    patch.setattr(kernel, "divide", divmod)
    patch.setattr(kernel, "divide_by", lambda number, by, _: divmod(number, by))
    yield
    patch.undo()


def order(tiles: int, heads: int, kv_len: int, span: int, ordered: bool) -> list[tuple[int, int]]:
    """List the tile and the head of each piece of work."""
    section = kernel._section_of.fn(heads, kv_len, span, ordered)
    return [kernel._tile_of.fn(number, tiles, section, None, heads, ordered) for number in range(tiles * heads)]


@given(sizes, sizes, lengths, st.sampled_from([1 << 15, 1 << 16, 1 << 18]), st.booleans())
def test_each_tile_of_each_head_is_done_once(tiles, heads, kv_len, span, ordered):
    done = order(tiles, heads, kv_len, span, ordered)
    assert sorted(done) == [(tile, head) for tile in range(tiles) for head in range(heads)]


@given(sizes, sizes, lengths)
def test_of_a_section_the_longest_go_first(tiles, heads, kv_len):
    section = min(max((1 << 16) // kv_len, 1), heads)
    done = order(tiles, heads, kv_len, 1 << 16, True)
    for first in range(0, heads, section):
        inside = [tile for tile, head in done if first <= head < first + section]
        assert inside == sorted(inside, reverse=True)


@given(
    st.integers(0, 5_000),
    st.integers(1, 5_000),
    st.integers(-5_000, 5_000),
    st.sampled_from([(128, 128), (192, 128), (128, 64)]),
    st.booleans(),
)
def test_tiles_of_keys_hold_what_the_queries_see(row_start, kv_len, offset, block, causal):
    block_m, block_n = block
    count, full = kernel._span_of.fn(row_start, kv_len, offset, block_m, block_n, causal)
    seen = [min(kv_len, row + offset + 1) if causal else kv_len for row in range(row_start, row_start + block_m)]
    assert count >= 1
    # what any query sees lies in the tiles that are walked, and no tile is walked for nothing but the first
    assert max(seen) <= count * block_n < max(*seen, 1) + block_n
    # tiles without a mask are seen whole by all
    assert 0 <= full * block_n <= max(min(seen), 0)
