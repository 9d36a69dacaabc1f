"""Importers: what Triton and LLM servers write, and what nobody should."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.tune.imports.convert import TableRequest, to_tuned
from nojit.aot.tune.imports.importers import read_foreign
from nojit.aot.tune.select.selection import Bounds
from nojit.aot.tune.select.tuned_file import write_tuned
from nojit.runtime.errors import TuningError
from nojit.runtime.tuning.tuned_tables import TunedDevice, read_tuned

DEVICE = TunedDevice("NVIDIA H100 80GB HBM3", "sm_90", 132, 85045280768)
SERVER = "E=8,N=14336,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json"


def config(block: int, warps: int = 4) -> dict[str, Any]:
    # as `triton.Config.__dict__` has it
    rest = {"num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None, "ir_override": None}
    return {"kwargs": {"BLOCK": block}, "num_warps": warps, **rest}


def cache(folder: Path, n: int, times: dict[int, float], name: str = "") -> Path:
    path = folder / (name or f"{n}.autotune.json")
    timings = [[config(block), [ms, ms * 0.9, ms * 1.1]] for block, ms in times.items()]
    path.write_text(json.dumps({"key": [n, 64, "torch.float16"], "configs_timings": timings}))
    return path


def server(folder: Path, document: Any, name: str = SERVER) -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def moe(m: int, warps: int = 4) -> dict[str, int]:
    return {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": 64, "GROUP_SIZE_M": 1, "num_warps": warps, "num_stages": 4}


def wanted(*key: str, **changes: Any) -> TableRequest:
    facts: dict[str, Any] = {"take": (), "where": (), "device": DEVICE, "rename": {}, "origin": ()}
    return TableRequest("toy", key, **(facts | changes))


def test_a_cache_of_triton_is_read(tmp_path: Path) -> None:
    file = read_foreign(cache(tmp_path, 4096, {64: 0.02, 128: 0.01, 256: float("inf")}))
    assert (file.format, file.default) == ("triton", ("0", "1"))
    (row,) = file.rows
    assert row.values == {"0": 4096, "1": 64}
    assert [us for _, us in row.times] == [10.0, 20.0]
    assert dict(row.times[0][0]) == {"BLOCK": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 3}


def test_a_cache_that_triton_itself_describes(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    path = tmp_path / "x.autotune.json"
    described = triton.Config({"BLOCK": 32}, num_warps=8, maxnreg=64).__dict__
    # a tuning without quantiles has one number
    path.write_text(json.dumps({"key": [7], "configs_timings": [[described, 0.5]]}))
    (row,) = read_foreign(path).rows
    expected = {"BLOCK": 32, "num_warps": 8, "num_stages": 3, "num_ctas": 1, "maxnreg": 64}
    assert (dict(row.times[0][0]), row.times[0][1]) == (expected, 500.0)


def test_caches_make_a_table_of_a_portfolio(tmp_path: Path) -> None:
    files = [
        read_foreign(cache(tmp_path, n, times))
        for n, times in ((1024, {64: 0.010, 128: 0.0102, 256: 0.03}), (4096, {64: 0.08, 128: 0.04, 256: 0.0401}))
    ]
    table = to_tuned(files, wanted("n", "heads", where=(("dtype", ("fp16",)),)), Bounds(0.05))
    assert [dict(one.settings)["BLOCK"] for one in table.configs] == [128]
    both = to_tuned(files, wanted("n", "heads"), Bounds(0.0))
    assert [dict(one.settings)["BLOCK"] for one in both.configs] == [64, 128]
    assert both.entries[0].rows[0].us == (10.0, 10.2)
    read = read_tuned(write_tuned(table, tmp_path))
    assert (read.configs, read.entries) == (table.configs, table.entries)


def test_a_servers_file_is_read_with_its_name(tmp_path: Path) -> None:
    file = read_foreign(server(tmp_path, {"triton_version": "3.6.0", "64": moe(64), "1": moe(16)}))
    assert (file.format, file.device_name, file.triton) == ("server", DEVICE.name, "3.6.0")
    assert [row.values for row in file.rows] == [{"E": 8, "N": 14336, "M": 1}, {"E": 8, "N": 14336, "M": 64}]
    table = to_tuned([file], wanted("tokens", rename={"BLOCK_SIZE_M": "BLOCK_M"}), Bounds())
    assert [dict(one.settings)["BLOCK_M"] for one in table.configs] == [16, 64]
    assert [(row.at, row.use, row.us) for row in table.entries[0].rows] == [((1,), (0,), ()), ((64,), (1,), ())]
    assert read_tuned(write_tuned(table, tmp_path)).entries == table.entries
    more = to_tuned([file], wanted("tokens", "n", take=("M", "N")), Bounds())
    assert more.entries[0].rows[0].at == (1, 14336)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"key": ("n",)},
            "expected one value of the file for each --key (1), got 2 (0, 1); name 1 with --take, from 0, 1 - at",
        ),
        ({"take": ("0", "2")}, "expected --take to name values of the file (0, 1), got '2'"),
        ({"rename": {"BLOK": "B"}}, "did you mean 'BLOCK'"),
        ({"rename": {"BLOCK": "num_warps"}}, "expected --rename to give each setting a name of its own"),
    ],
)
def test_what_does_not_fit_the_files_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = read_foreign(cache(tmp_path, 1024, {64: 0.01}))
    facts = {"key": ("n", "heads")} | change
    with pytest.raises(TuningError, match=re.escape(message)):
        to_tuned([file], wanted(*facts.pop("key"), **facts), Bounds())


def test_two_files_that_disagree_on_a_problem_are_refused(tmp_path: Path) -> None:
    one = read_foreign(cache(tmp_path, 1024, {64: 0.01}))
    other = read_foreign(cache(tmp_path, 1024, {64: 0.02}, "other.autotune.json"))
    with pytest.raises(TuningError, match="expected each problem once"):
        to_tuned([one, other], wanted("n", "heads"), Bounds())
    assert (
        len(to_tuned([one, one.__class__(**{**_facts(one), "path": "again"})], wanted("n", "heads"), Bounds()).configs)
        == 1
    )


def _facts(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def test_problems_without_a_config_in_common_need_more_configs(tmp_path: Path) -> None:
    files = [read_foreign(cache(tmp_path, n, {n: 0.01})) for n in (64, 128)]
    with pytest.raises(TuningError, match="--max-configs"):
        to_tuned(files, wanted("n", "heads"), Bounds(0.05, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON"),
        ("[1]", "expected a JSON object, got list"),
        ("{}", "expected the key 'configs_timings'"),
        ('{"config_timings": []}', "did you mean 'configs_timings'"),
        ("[" * 100_000, "expected JSON"),
        ("\x00", "expected JSON"),
        ('{"1": {"A": 1}, "1": {"A": 2}}', "each key of an object once"),
        ('{"1": {}}', "expected at least one setting, got none"),
        ('{"01": {"A": 1}}', "expected a number of tokens as a key, such as '16': rename this key, got '01'"),
        ('{"²": {"A": 1}, "1": {"A": 1}}', "expected only numbers of tokens"),
        (
            '{"1": {"A": 1}, "x": 1}',
            "expected only numbers of tokens and 'triton_version' as keys: remove this key, got 'x'",
        ),
        ('{"1": 3}', "expected a config, got 3"),
        ('{"1": {"A": [1]}}', r"expected a bool, a 64-bit number or a string, got \[1\] - at .*\$\.1\.A"),
        ('{"1": {"A": null}}', "expected a bool"),
        ('{"1": {"A": NaN}}', "a 64-bit number or a string, got nan"),
        ('{"1": {"A b": 1}}', "expected the name of a constexpr"),
        ('{"1": {"A": 99999999999999999999}}', "a 64-bit number"),
        ('{"1": {"A": 1}, "triton_version": 3}', "expected the version of Triton"),
        ('{"key": [1], "configs_timings": []}', "array that is not empty"),
        ('{"configs_timings": [[{"kwargs": {"A": 1}}, 1]]}', "array that is not empty, got None"),
        ('{"key": [-1], "configs_timings": [[{"kwargs": {"A": 1}}, 1]]}', "an integer from 0"),
        ('{"key": [1], "configs_timings": [3]}', "expected a pair of a config and its times, got 3"),
        ('{"key": [1], "configs_timings": [[{"A": 1}, 1]]}', "expected a config with kwargs"),
        ('{"key": [1], "configs_timings": [[{"kwargs": {"A": 1}, "num_warp": 1}, 1]]}', "did you mean 'num_warps'"),
        ('{"key": [1], "configs_timings": [[{"kwargs": {"A": 1}, "pre_hook": "f"}, 1]]}', "expected no pre_hook"),
        ('{"key": [1], "configs_timings": [[{"kwargs": {"A": 1}}, [NaN]]]}', "expected times in milliseconds"),
        ('{"key": [1], "configs_timings": [[{"kwargs": {"A": 1}}, "1"]]}', "expected times in milliseconds"),
        (
            '{"key": [1], "configs_timings": [[{"kwargs": {"A": 1}}, [Infinity]]]}',
            "expected a config with a finite time",
        ),
    ],
)
def test_hostile_files_are_refused_in_words(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TuningError, match=message):
        read_foreign(server(tmp_path, text, "x.json"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "configs_timings", "kwargs", "num_warps", "1", "64", "A", "triton_version"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, document: Any) -> None:
    path = server(tmp_path_factory.mktemp("any"), document, "x.json")
    try:
        file = read_foreign(path)
    except TuningError:
        return
    assert file.rows
