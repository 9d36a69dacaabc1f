"""Calls in every config that can serve them, held to exact results, and variants that no call reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.call import Call
from tests.gpu.replay import Steered
from tests.gpu.shares import read_launched, running_module, write_launched
from tests.kernels.accuracy import assert_accurate


def check(call: Call, steered: Steered) -> None:
    """Make a call in each config in turn; integers must be exact, all else as exact as the call says."""
    exact, torchs = call.exact(), call.torchs()
    slack = call.slack(exact)
    for _ in steered.rounds():
        for value, right, own, factor in zip(call.run(), exact, torchs, call.factors, strict=True):
            if value.is_floating_point():
                assert_accurate(value, right, own, factor, slack)
            else:
                assert value.equal(right)


def reachable(table: Any, row: int) -> bool:
    """Take every variant for one that calls can reach."""
    return True


def assert_all_launched(steered: Steered, *beginnings: str, reaches: Callable[[Any, int], bool] = reachable) -> None:
    """Require that each variant of the kernels whose names begin so was launched; skip where nothing was.

    What the tests of a module leave out is what nobody has tried, so a module runs this after its others.

    Args:
        steered: what gave the kernels.
        beginnings: of kernels' names; all if there are none.
        reaches: whether calls can ask for a row of a table at all.
    """
    _join_shares(steered)
    tallies = {name: tally for name, tally in steered.tallies.items() if name.startswith(beginnings or ("",))}
    if not tallies:
        pytest.skip("runs after the tests that launch")
    missed = [
        f"{name}: {tally.table.label(row)}"
        for name, tally in tallies.items()
        for row in range(tally.variants)
        if row not in tally.rows and reaches(tally.table, row)
    ]
    assert not missed, "no call of the tests runs\n" + "\n".join(missed)


def _join_shares(steered: Steered) -> None:
    """Leave what was launched for the process that judges; there, take over what others left."""
    folder, share = os.environ.get("NOJIT_TEST_LAUNCHED"), os.environ.get("NOJIT_TEST_SHARE")
    if share is not None:
        if folder is not None:
            rows = {name: tally.rows for name, tally in steered.tallies.items()}
            write_launched(Path(folder), running_module(), share, rows)
        pytest.skip("judged where all shares have run")
    if folder is not None:
        for name, rows in read_launched(Path(folder), running_module()).items():
            steered(name)
            steered.tallies[name].rows |= rows
