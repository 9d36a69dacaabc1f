"""Estimated times of weight gradients choose tiles and parts that keep the device busy, and no more parts than boxes."""

from __future__ import annotations

import pytest
from nojit.kernels.conv import weight_grad_costs
from nojit.kernels.conv.plan_costs import plans
from nojit.kernels.products.tile_costs import Work


def work(rows: int, cols: int, boxes: int) -> Work:
    """Return the product of a weight gradient on 132 SMs."""
    return Work((1, rows, cols, 64 * boxes), 132, 64, 1.0, (False, False))


@pytest.mark.parametrize("tiles", [weight_grad_costs.FEW, weight_grad_costs.MAPPED, weight_grad_costs.STRIPS])
def test_parts_of_weight_gradients_have_boxes_each(tiles):
    found = list(plans(tiles, work(128, 128, 5), merges=False))
    assert {plan.parts for plan in found} == {1, 2, 3, 4, 5}
    assert {(plan.rows, plan.cols) for plan in found} == {(tile.rows, tile.cols) for tile in tiles}


def test_weight_gradients_of_many_positions_and_few_channels_keep_all_processors_busy():
    best = min(plans(weight_grad_costs.FEW, work(216, 48, 10000), merges=False))
    count = -(-216 // best.rows) * -(-48 // best.cols) * best.parts
    assert count >= 0.9 * 132


def test_a_merge_counts_also_for_a_single_part():
    alone, merged = (
        min(plan.ns for plan in plans(weight_grad_costs.FEW, work(64, 32, 1), merges=merges))
        for merges in (False, True)
    )
    assert merged > alone + 1000
