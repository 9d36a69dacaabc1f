"""In which order kernels of dense products take pieces of work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.gluon_stub import load
from tests.kernels.sm90 import KERNELS

BLOCKS = (64, 128)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return what lists where each of so many pieces is."""
    source = tmp_path_factory.mktemp("source") / "place.py"
    source.write_text(
        "def place(found, sizes, steps, splits, group):\n"
        f"    found.append(place_piece(gl.program_id(0), *sizes, steps, splits, {BLOCKS[0]}, {BLOCKS[1]}, group))\n"
    )
    return load("place", KERNELS / "products/kernel_tiles.py", source)


def in_order(batch: int, tiles: tuple[int, int], *, steps: int, splits: int, group: int) -> Iterator[tuple[int, ...]]:
    """List pieces as they are promised: `group` tiles down, then across, then the next of them, parts and products last."""
    down, across = tiles
    for index in range(batch):
        for split in range(splits):
            first, last = (steps // splits * part + min(part, steps % splits) for part in (split, split + 1))
            for start in range(0, down, group):
                for col in range(across):
                    for row in range(start, min(start + group, down)):
                        yield index, split, row * BLOCKS[0], col * BLOCKS[1], first, last


@given(st.data())
def test_every_piece_is_placed_in_order(place, data):
    batch, down, across, splits = (data.draw(st.integers(1, most)) for most in (3, 20, 7, 4))
    steps, group = data.draw(st.integers(splits, 40)), data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    # the last tiles need not be whole
    sizes = tuple(
        tiles * block - data.draw(st.integers(0, block - 1))
        for tiles, block in zip((down, across), BLOCKS, strict=True)
    )
    wanted = list(in_order(batch, (down, across), steps=steps, splits=splits, group=group))
    found: list[tuple[int, ...]] = []
    place(len(wanted), found, sizes, steps, splits, group)
    assert found == wanted
