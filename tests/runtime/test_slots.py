"""Where parameters come from, worked out in C, held against the rules in Python: it passes no layout that they refuse."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.launch_codec import Layout
from nojit.runtime.slots import core_slots, packing_of, places_of
from nojit.runtime.table import COLUMNS, Config, KernelTable, Launch, Meaning, Param
from nojit.runtime.type_names import SCALAR_BYTES

NAMES = ("x_ptr", "n", "x", "out_ptr", "scale")
ARGUMENTS = {"x_ptr": 0, "n": 2, "x": 3, "out_ptr": 5, "scale": 6}
SCRATCH = "$global_scratch:*i8 $profile_scratch:*i8"
TYPES = ("none", "*fp16", "*kfp32", "*fp8e4b15", "i32", "i64", "fp64", *SCALAR_BYTES)

Hints = tuple[tuple[str, int], ...]


def table_of(types: Sequence[str], hints: Hints, layout: str) -> KernelTable:
    names = NAMES[: len(types)]
    launch = Launch("k", Layout(layout, "here"), 4, 1, 0, 0, 1, 0, 1, False, False)
    return KernelTable(
        kernel="k",
        params=tuple([Param(name, False) for name in names]),
        grid=(),
        tuning=None,
        axes=(),
        derived=(),
        signatures=(tuple(types),),
        meanings=(Meaning(0, ()),),
        configs=(Config((), (), ""),),
        hint_sets=(hints,),
        derived_values=((),),
        launches=(launch,),
        programs=(),
        columns={name: array("I", [0]) for name in COLUMNS},
    )


def by_python(types: Sequence[str], hints: Hints, layout: str) -> Any:
    table = table_of(types, hints, layout)
    try:
        table.check_row(0, "here")
    except BundleFormatError:
        return None
    places = places_of(ARGUMENTS, dict(zip(NAMES, types, strict=False)))
    return core_slots(table.launches[0], places), tuple([slot.size_bytes for slot in table.launches[0].layout])


def by_c(types: Sequence[str], hints: Hints, layout: str) -> Any:
    table = table_of(types, hints, layout)
    told = _core.plain_row(table, 0, table.launches[0], ARGUMENTS, 90, lambda value: (0, value))
    if told is None:
        return None
    (symbol, sizes, warps, ctas), facts = told
    assert (symbol, warps, ctas, facts["maps"]) == ("k", 4, 1, ())
    return facts["slots"], sizes


def spelled(types: Sequence[str], hints: Hints) -> str:
    ones = {name for name, hint in hints if hint == 1}
    passed = [(name, kind) for name, kind in zip(NAMES, types, strict=False) if kind != "none" and name not in ones]
    return " ".join([*[f"{name}:{kind}" for name, kind in passed], SCRATCH])


signatures = st.lists(st.sampled_from(TYPES), max_size=len(NAMES))
hint_sets = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([1, 16])), unique_by=lambda hint: hint[0])


@given(signatures, hint_sets)
def test_what_is_right_is_worked_out_alike(types: list[str], hints: list[tuple[str, int]]) -> None:
    known: Hints = tuple([hint for hint in hints if hint[0] in NAMES[: len(types)]])
    layout = spelled(types, known)
    told = by_c(types, known, layout)
    assert told is not None
    assert told == by_python(types, known, layout)
    packing = packing_of(table_of(types, known, layout), 0, ARGUMENTS, "here")
    assert (packing.slots, packing.maps) == (told[0], ())


@settings(max_examples=500)
@given(signatures, hint_sets, st.data())
def test_no_layout_is_passed_that_python_refuses(
    types: list[str], hints: list[tuple[str, int]], data: st.DataObject
) -> None:
    layout = spelled(types, tuple(hints))
    place = data.draw(st.integers(0, len(layout)))
    piece = data.draw(st.sampled_from(["", " ", ":", "x", "x_ptr:*fp16 ", "n:i32 ", "*", "i32", "é", "\0"]))
    layout = layout[:place] + piece + layout[place + data.draw(st.integers(0, 3)) :]
    assert by_c(types, tuple(hints), layout) in (None, by_python(types, tuple(hints), layout))


@pytest.mark.parametrize("kind", ["(i32,i32)", "tensordesc<fp16[64]>", "fp8e5", "()", ""])
def test_other_types_are_left_to_python(kind: str) -> None:
    assert by_c([kind], (), f"x_ptr:{kind} {SCRATCH}") is None


def test_strange_hints_are_left_to_python() -> None:
    layout = spelled(["i32"], ())
    assert by_c(["i32"], (("y", 16),), layout) is None
    assert by_c(["i32"], (("x_ptr.0", 16),), layout) is None
    assert by_c(["i32"], (("x_ptr", 16), ("x_ptr", 1)), layout) is None


def test_scratch_pointers_of_another_type_are_right_all_the_same() -> None:
    layout = "x_ptr:*fp16 $global_scratch:*fp32 $profile_scratch:*i8"
    assert by_c(["*fp16"], (), layout) is None
    assert [slot[0] for slot in packing_of(table_of(["*fp16"], (), layout), 0, ARGUMENTS, "here").slots] == [0, -1, -2]


@pytest.mark.parametrize(
    "scratch",
    [
        "",
        "$global_scratch:*i8",
        "$profile_scratch:*i8",
        "$profile_scratch:*i8 $global_scratch:*i8",
        "$global_scratch:*i8 $global_scratch:*i8",
        "$global_scratch:*i8 $profile_scratch:*i8 $profile_scratch:*i8",
        "$global_scratch:i64 $profile_scratch:*i8",
    ],
)
def test_both_scratch_pointers_come_last_in_one_order(scratch: str) -> None:
    layout = f"x_ptr:*fp16 {scratch}".rstrip()
    assert by_c(["*fp16"], (), layout) is None
    with pytest.raises(BundleFormatError, match=r"scratch") as caught:
        packing_of(table_of(["*fp16"], (), layout), 0, ARGUMENTS, "here")
    assert caught.value.rule == "layout"


def test_a_layout_that_is_none_is_refused_by_name() -> None:
    for layout in ("x_ptr", "x_ptr:i32:i32", "\n", "x_ptr:i64 " + SCRATCH):
        with pytest.raises(BundleFormatError) as caught:
            packing_of(table_of(["i32"], (), layout), 0, ARGUMENTS, "here")
        assert caught.value.rule == "layout"
