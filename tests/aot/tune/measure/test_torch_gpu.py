"""What the tuner checks of a real GPU before it touches one."""

from __future__ import annotations

from pathlib import Path

import pytest
from nojit.aot.tune.measure.torch_gpu import candidates_of, check_fit
from nojit.runtime import load
from nojit.runtime.bundle.format import TargetInfo
from nojit.runtime.errors import NojitError

from tests.support.bundles import kernel, make_bundle


def test_a_bundle_for_another_device_is_refused(tmp_path: Path) -> None:
    on = TargetInfo("cuda", "sm_80", "sm_80", 32)
    bundle = load(make_bundle(tmp_path / "old.nojit", kernel("copy", {"x_ptr": "*fp32"}, on=on), on=on))
    check_fit(bundle, 80, "old.nojit")
    check_fit(bundle, 89, "old.nojit")
    with pytest.raises(
        NojitError, match=r"expected a bundle for sm_90, got sm_80; build one .* --arch sm_90 - at old.nojit"
    ):
        check_fit(bundle, 90, "old.nojit")


def test_candidates_are_of_one_point_of_the_matrix_whatever_block_they_choose() -> None:
    # an optional param gives a point two cases, as a block that a config chooses does
    configs = [{"num_warps": warps} for warps in (4, 8)]
    table = kernel("copy", {"x": "*{dtype}?"}, matrix={"dtype": ["fp16", "fp32"]}, configs=configs).table
    rows = range(len(table.columns["case"]))
    found = candidates_of(table, rows)
    assert [{table.settings(row)["num_warps"] for row in same} for same in found] == [{4}, {8}]
    assert [len({table.columns["case"][row] for row in same}) for same in found] == [2, 2]
    points = {table.cases[table.columns["case"][row]].values for same in found for row in same}
    assert len(points) == 1
