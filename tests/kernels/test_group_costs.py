"""Which tile grouped products run with on sm_90."""

from __future__ import annotations

import pytest
from nojit.kernels.grouped_mm import cost as of_halves
from nojit.kernels.products.group_costs import GroupWork
from nojit.kernels.scaled_grouped_mm import cost as of_bytes

from tests.kernels.test_manifests import expand

SMS = 132


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        pytest.param((8, 42352, 384, 2432), (128, 128), id="179 us by 128 x 256, 127 by 128 x 128"),
        pytest.param((256, 16, 256, 2176), (64, 64), id="14 us by 64 x 128, 10 by 64 x 64"),
        pytest.param((32, 24680, 1024, 4096), (64, 256), id="315 us by 64 x 256, 331 by 128 x 128"),
    ],
)
def test_halves_run_with_the_fastest_tile(sizes, tile):
    assert of_halves.tile_of(sizes, SMS) == tile


@pytest.mark.parametrize(
    ("sizes", "has_blocks", "tile"),
    [
        pytest.param((16, 27926, 384, 1792), True, (128, 128), id="90 us by 64 x 256, 52 by 128 x 128"),
        pytest.param((8, 665, 896, 3456), True, (64, 128), id="19 us by 64 x 256, 15 by 64 x 128"),
        pytest.param((8, 70016, 384, 2304), False, (128, 128), id="161 us by 128 x 256, 121 by 128 x 128"),
    ],
)
def test_bytes_run_with_the_fastest_tile(sizes, has_blocks, tile):
    assert of_bytes.tile_of(sizes, SMS, has_blocks=has_blocks, fast=False) == tile


@pytest.mark.parametrize(
    ("rows", "cols", "tile"),
    [(64, 4096, (64, 128)), (65, 4096, (64, 256)), (1024, 4096, (128, 256)), (1024, 128, (64, 128))],
)
def test_tall_tiles_add_up_in_tensor_cores_for_many_rows_only(rows, cols, tile):
    assert of_bytes.tile_of((4, 4 * rows, cols, 512), SMS, has_blocks=False, fast=True) == tile


def test_a_long_product_runs_with_the_usual_tile():
    # 6.3 ms by 64 x 256, 7.5 ms by 128 x 256
    assert of_halves.tile_of((256, 131072, 2048, 7168), SMS) == (64, 256)


def test_rows_fall_into_random_groups():
    assert GroupWork(4, 2, 64, 64, 2, SMS).full == 1.75


@pytest.mark.parametrize(
    ("name", "tiles"), [("grouped_mm_sm90", of_halves.TILES), ("scaled_grouped_mm_sm90", of_bytes.TILES)]
)
def test_every_tile_of_the_model_is_built(name, tiles):
    built = {
        tuple(dict(each.constexprs)[side] for side in ("BLOCK_M", "BLOCK_N")) for each in expand(name, "sm_90").variants
    }
    assert built == {(tile.rows, tile.cols) for tile in tiles}
