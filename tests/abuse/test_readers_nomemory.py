"""Memory that runs out at any allocation of a reader in C: MemoryError, no reference lost, and the next read works."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from nojit.runtime import _core
from nojit.runtime.bundle import format as layout
from nojit.runtime.table.parts import MISSING, Case, Config, Launch, Param, TensorMap
from nojit.runtime.table.reading import Layout
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import Tuning

from tests.support.hostile import golden_parts
from tests.support.jsonlies import canonical, edit_index, split_table
from tests.support.starve import needs_sound_python, starved
from tests.support.tables import held

pytestmark = [pytest.mark.usefixtures("locks_that_may_stay_held"), needs_sound_python]

PARTS = golden_parts()
SCALE = 1  # tables are sorted by kernel: fill, scale
NAME, ROWS, TABLE = PARTS.tables[SCALE]
INDEX: dict[str, Any] = {}
edit_index(PARTS, INDEX.update)


def read_table() -> list[Any]:
    # functions in C, for CPython forgets errors of its own where it has no room for a frame in Python
    handle = _core.read_table(TABLE, ROWS, 1 << 20, "here")
    return [handle.part(name) for name in PART_NAMES]


def read_tuning() -> Tuning:
    tuning: Tuning = _core.read_table(tuned_table, 1, 1, "here").part("tuning")
    return tuning


def rank_configs() -> tuple[Any, ...] | None:
    return _core.rank_configs((*tuning_columns, ()), (302, 7), 132)


def rank_configs_by_cost() -> tuple[Any, ...] | None:
    return _core.rank_configs((*tuning_columns, tuning_costs), (302, 7), 132)


def read_index() -> layout.BundleIndex:
    return _core.read_index(canonical_index, "here", layout.RECORDS)


def read_launch() -> Launch:
    return _core.read_launch(launch_json, f"x:(*fp16,i32) {scratch}", "here")


def leaves() -> list[Any]:
    return [
        _core.leaves("(*fp16,(i32,none),=1.5)", "x"),
        _core.constant_of("='a%20b'"),
        _core.descriptor_parts("tensordesc<fp16[64]>"),
    ]


def find_image() -> tuple[Any, ...] | None:
    placed = _core.Placement(b"\1\0\0\0" * 60 + (b"\6\0\0\0\0\0\0\0\6\0\0\0" + bytes(32)) * 10, 60, 0, "here")
    return placed.find(33)


def read_row() -> tuple[Any, ...]:
    return _core.Row(wide_table.handle(), 0, _core.Ids(), 90, 64, "here").entry


def row_constexprs() -> dict[str, Any]:
    return _core.row_constexprs(wide_table.handle(), 0)


wide_names = [f"x{number}" for number in range(40)]
described = ("x39.map:tensormap", "x39.base:*fp16", "x39.shape.0:i32", "x39.stride.0:i64", "x39.pads_nan:i1")
scratch = "$global_scratch:*i8 $profile_scratch:*i8"
wide_layout = " ".join([*[f"{name}:i32" for name in wide_names[:-1]], *described, scratch])
wide_map = TensorMap("x39", 0, 2, 6, (64,), fp4_padded=False)
wide_table = KernelTable(
    kernel="wide",
    params=tuple([Param(name, constexpr=False) for name in wide_names]),
    grid=(),
    tuning=None,
    axes=(),
    derived=(),
    signatures=((*["i32"] * 39, "tensordesc<fp16[64]>"),),
    cases=(Case(0, ()),),
    configs=(Config((), (("num_warps", 4),), ""),),
    hint_sets=((("x3", 16),),),
    derived_values=((),),
    launches=(
        Launch(
            "wide", Layout(wide_layout, ""), 4, 1, 0, 0, 1, 0, 1, cooperative=False, pdl=False, tensor_maps=(wide_map,)
        ),
    ),
    programs=(),
    columns={name: array("I", [0]) for name in _core.COLUMNS},
)
wide_table = held(wide_table)
canonical_index = canonical(INDEX)
device = {"arch": "sm_90", "memory_bytes": 1, "multiprocessors": 132, "name": "NVIDIA H200"}
rows = [[[number, 1 << 40], [*range(40)], [*range(0, 4000, 100)]] for number in range(300, 340)]
tuning_columns = tuple([tuple(map(tuple, column)) for column in zip(*rows, strict=True)])
costs = [[number, f"key0 {number} * multiprocessors cdiv()"] for number in range(40)]
tuning_costs = tuple(map(tuple, costs))
blocks = [{"costs": costs, "cases": [*range(40)], "rows": rows}]
tuned_json = json.loads(split_table(TABLE)[0])
launch_json = canonical(tuned_json["launches"][0] | {"layout": 0})
tuned_json["tuning"] = {"bucket": "pow2", "key": ["n", "n + 1"], "tables": [{"blocks": blocks, "device": device}]}
tuned_json["programs"][2:] = ["n", "n 1 +"]
# as many as the rows name
tuned_json["cases"] *= 40
tuned_json["configs"] = [config | {"requires": ""} for config in tuned_json["configs"]] * 40
tuned_header = canonical(tuned_json)
tuned_table = b"".join(
    [struct.pack("<I", len(tuned_header)), tuned_header, b" " * (-len(tuned_header) % 4), bytes(4 * len(_core.COLUMNS))]
)
PART_NAMES = [name for name in KernelTable.__match_args__ if name not in ("kernel", "launches")]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "read",
    [
        read_table,
        read_tuning,
        rank_configs,
        rank_configs_by_cost,
        read_index,
        read_launch,
        leaves,
        find_image,
        read_row,
        row_constexprs,
    ],
)
def test_a_reader_that_runs_out_of_memory(read: Callable[[], object]) -> None:
    expected = read()
    assert expected is not None
    held = (MISSING, Param, layout.Section, layout.TargetInfo, True, None)
    before = [sys.getrefcount(one) for one in held[:4]]
    for _ in starved(read):
        assert read() == expected
    assert [sys.getrefcount(one) for one in held[:4]] == before
