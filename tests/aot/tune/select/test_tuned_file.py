"""What is written reads back as it was, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.tune.select.tuned_file import device_slug, render_tuned, write_tuned
from nojit.runtime.errors import PackageError, TuningError
from nojit.runtime.tuning.tuned_tables import (
    TunedConfig,
    TunedCost,
    TunedDevice,
    TunedEntry,
    TunedRow,
    TunedTable,
    read_tuned,
)
from nojit.runtime.values import DType, FunctionRef

DEVICE = TunedDevice("NVIDIA H200", "sm_90", 132, 150754820096)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    WORDS,
    st.none(),
    WORDS.map(DType),
    WORDS.map(FunctionRef),
)
VALUES = st.one_of(LEAVES, st.lists(LEAVES, min_size=1, max_size=3).map(tuple))
NAMES = st.text('abcXYZ_09 ."é', min_size=1, max_size=6).filter(lambda name: name != "requires")


def table(**changes: object) -> TunedTable:
    facts: dict[str, object] = {
        "kernel": "toy",
        "key": ("m", "n * heads"),
        "device": DEVICE,
        "origin": (("tool", "nojit tune select 0.1.0"),),
        "configs": (TunedConfig((("BLOCK", 64), ("num_warps", 4)), ""),),
        "entries": (TunedEntry((), (TunedRow((1, 2), (0,), (3.25,)),)),),
    }
    return TunedTable(**(facts | changes))


def without_path(one: TunedTable) -> list[object]:
    return [getattr(one, name) for name in TunedTable.__match_args__ if name != "path"]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(NAMES, VALUES, min_size=1, max_size=4),
    st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=3).map(tuple), max_size=3),
    st.dictionaries(NAMES, WORDS, max_size=3),
)
def test_any_values_and_names_survive(tmp_path_factory, configs, where, origin) -> None:
    one = table(
        origin=tuple(origin.items()),
        configs=(TunedConfig(tuple(configs.items()), "aligned(x, 16)"),),
        entries=(
            TunedEntry(
                tuple(where.items()),
                (TunedRow((0, 7), (0,), ()), TunedRow((8, 7), (0,), (0.5,))),
                (TunedCost(0, "7 * cdiv(m, multiprocessors) + heads"),),
            ),
        ),
        names=("m", "heads"),
    )
    path = tmp_path_factory.mktemp("tuned") / "a.toml"
    path.write_text(render_tuned(one), encoding="utf-8")
    assert without_path(read_tuned(path)) == without_path(one)


def test_the_text_is_made_to_be_read() -> None:
    assert render_tuned(table()) == (
        'schema = 1\nkernel = "toy"\nkey = ["m", "n * heads"]\n\n'
        '[device]\nname = "NVIDIA H200"\narch = "sm_90"\nmultiprocessors = 132\nmemory_bytes = 150754820096\n\n'
        '[origin]\ntool = "nojit tune select 0.1.0"\n\n'
        "[[config]] # 0\nBLOCK = 64\nnum_warps = 4\n\n"
        "[[entry]]\nrows = [\n    { at = [1, 2], use = [0], us = [3.25] },\n]\n"
    )


@pytest.mark.parametrize("kernel", ["../toy", "a/b", "", "-toy", "to\ny", "toy\n"])
def test_a_kernels_name_cannot_leave_the_folder(tmp_path: Path, kernel: str) -> None:
    with pytest.raises(TuningError, match="expected a "):
        write_tuned(table(kernel=kernel), tmp_path / "tables", force=True)
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PackageError, match="expected a folder to write to, got a file"):
        write_tuned(table(), tmp_path / "file")


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = write_tuned(table(), tmp_path)
    assert write_tuned(table(), tmp_path) == path
    for text in ("# mine\n", '[origin]\ntool = "hand"\n', "not = = toml", "origin = 3\n"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(TuningError, match="replace it anyway with --force"):
            write_tuned(table(), tmp_path)
        assert path.read_text(encoding="utf-8") == text
    assert write_tuned(table(), tmp_path, force=True) == path
    assert without_path(read_tuned(path)) == without_path(table())


@pytest.mark.parametrize(
    ("name", "slug"), [("NVIDIA H200", "nvidia-h200"), ("A/b  C", "a-b-c"), ("é", "device"), ("../x", "x")]
)
def test_a_devices_name_becomes_a_word(name: str, slug: str) -> None:
    assert device_slug(TunedDevice(name, "sm_90", 1, 1)) == slug
