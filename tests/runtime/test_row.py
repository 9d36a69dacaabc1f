"""What the engine reads of rows, held against what the specification says of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.bench.cases import CASES
from nojit.aot.pack.sections import encode_table
from nojit.runtime import _core
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, BundleFormatError
from nojit.runtime.first_call.arch_bundle import ArchBundle
from nojit.runtime.first_call.images import Images
from nojit.runtime.table.parts import Missing
from nojit.runtime.table.reading import Layout, decode_table
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import DType, FunctionRef, Value, identity

from tests.runtime.conftest import VECTOR_ADD
from tests.support.bundles import SyntheticKernel, kernel, make_bundle, target
from tests.support.instructions import launch_kernel
from tests.support.tables import held

BUNDLES = sorted((Path(__file__).resolve().parents[2] / "artifacts").glob("*.nojit"))

VALUES: tuple[Value, ...] = (
    *(True, False, 1, 0, -3, 1 << 40, -(1 << 63), 1.0, 0.1, -0.0, math.nan, math.inf, None),
    *(
        "",
        "fp16",
        "é",
        DType("fp16"),
        DType("bf16"),
        FunctionRef("ops:gelu"),
        (),
        (1, (2.5, "a")),
        (DType("fp16"), None),
    ),
)
# more than an instruction holds
WIDE = 1 << 63


def by_type(values: dict[str, Value]) -> dict[str, tuple[Any, ...]]:
    """Make ``True``, ``1`` and ``1.0`` three values."""
    return {name: identity(value) for name, value in values.items()}


def read(bundle: ArchBundle, table: KernelTable, row: int) -> _core.Row:
    return _core.Row(table.handle(), row, _core.Ids(), bundle.arch, len(table.params) + 8, "here")


def constexprs_of(table: KernelTable, row: int) -> dict[str, Value]:
    """Say what each constexpr and option is: what comes later has the last word."""
    case, config = table.cases[table.columns["case"][row]], table.configs[table.columns["config"][row]]
    values: dict[str, Value] = {
        param.name: param.default
        for param in table.params
        if param.constexpr and not isinstance(param.default, Missing)
    }
    values.update(config.options)
    axes = zip(table.axes, case.values, strict=True)
    values.update({axis.name: axis.values[place] for axis, place in axes if not axis.is_type})
    values.update(config.constexprs)
    derived = table.derived_values[table.columns["derived"][row]]
    values.update({one.name: value for one, value in zip(table.derived, derived, strict=True)})
    return values


def is_read_right(bundle: ArchBundle, table: KernelTable, row: int) -> None:
    launch = table.launches[table.columns["launch"][row]]
    entry = read(bundle, table, row).entry
    sizes = tuple(slot.size_bytes for slot in launch.layout)
    assert entry == (launch.symbol, sizes, launch.num_warps, launch.num_ctas)
    told = _core.row_constexprs(table.handle(), row)
    assert by_type(told) == by_type(constexprs_of(table, row))


SCALE = {"x_ptr": "*fp32", "n": "i32", "A": "constexpr"}
SCRATCH = {
    "global_scratch_bytes": 640,
    "global_scratch_align": 128,
    "profile_scratch_bytes": 48,
    "profile_scratch_align": 16,
}

ROWS = (
    *map(launch_kernel, CASES.values()),
    kernel("vector_add", **VECTOR_ADD),
    kernel("nothing", {}, grid=["1", "2", "3"]),
    kernel("callers_grid", SCALE, matrix={"A": VALUES}),
    # each value is pushed by some program, compared with another
    kernel(
        "values", SCALE | {"B": "constexpr"}, matrix={"A": VALUES}, configs=[{"B": value} for value in VALUES],
        grid=["A == B", "n == A or B == none"],
    ),
    kernel(
        "types",
        {"x_ptr": "*{dtype}", "y_ptr": "*k{dtype}?", "n": "{index}", "m": "u8?", "s": "fp64", "b": "u1"},
        matrix={"dtype": ["fp16", "fp8e4nv", "i1"], "index": ["i32", "i64"]},
        hints=[{"n": 16}, {"n": 1}, {"x_ptr": 16, "n": 1, "m": 16}],
        grid=["cdiv(n, 64)", "(dtype == index) == (dtype == m)"],
    ),
    # parts of descriptors: as maps, or taken apart where the target has none
    kernel(
        "descriptors",
        {"desc": "tensordesc<{dtype}[64,32]>", "n": "i32", "other": "tensordesc<fp32[1,2,3,4,8]>", "x_ptr": "*fp16?"},
        matrix={"dtype": ["fp16", "fp8e4nv"]}, hints=[{"n": 16}, {"n": 1}], grid=["cdiv(n, 64)"],
    ),
    # what has the last word: a default, an option, an axis, a config, what is derived
    kernel(
        "order",
        {"x_ptr": "*fp32", "n": "i32", **dict.fromkeys(("A", "B", "C", "D", "E"), "constexpr")},
        matrix={"B": [2, True]},
        configs=[{"A": 5, "C": 1.0, "num_warps": 8}, {"A": None, "C": DType("fp16"), "num_stages": 1}],
        derived={"D": "n % 16 == 0", "E": "n < A"},
        defaults={"A": 1, "B": 1, "C": 1, "D": 1, "E": 1, "n": 7},
        grid=["n * A + num_warps * num_stages", "min(n, B) // num_ctas", "C == none or D and E"],
    ),
    kernel("defaulted", SCALE | {"B": "constexpr"}, configs=[{"A": 1}], defaults={"A": 2, "B": None}, grid=["A", "B == none"]),
    # the arch goes before a constexpr of that name, and a constexpr before an axis
    kernel("archs", SCALE | {"arch": "constexpr"}, matrix={"A": [1]}, configs=[{"arch": 7}], grid=["n * arch + A"]),
    kernel(
        "shadowed", {"x_ptr": "*{dtype}", "n": "i32", "dtype": "constexpr"}, matrix={"dtype": ["fp16", "bf16"]},
        configs=[{"dtype": 3}], grid=["n // dtype"],
    ),
    kernel("strings", SCALE, configs=[{"A": "a"}], grid=["n + 1", "A == 'a'"]),
    *(
        kernel(f"launch_of_{name}", SCALE, configs=[{"A": 1, "num_warps": 2, "num_ctas": 2}], launch=facts, grid=["n"])
        for name, facts in {
            "shared": {"shared_bytes": 232_448, "num_warps": 12},
            "scratch": SCRATCH,
            "cooperative": {"cooperative": True},
            "pdl": {"pdl": True},
        }.items()
    ),
    kernel("tuples", {"pair": "(*fp16,(i32,none,i64))", "n": "i32"}, hints=[{"pair.1.0": 1}], grid=["n"]),
    kernel("callers", {"x_ptr": "*fp32"}),
)  # fmt: skip


@pytest.fixture(scope="module", params=["sm_90a", "sm_80"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchBundle]:
    path = tmp_path_factory.mktemp("rows") / f"{request.param}.nojit"
    with BundleFile(make_bundle(path, *ROWS, on=target(request.param))) as file:
        yield ArchBundle.of(Images(file))


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.table.kernel)
def test_rows_are_read_right(bundle: ArchBundle, one: SyntheticKernel) -> None:
    table = bundle.table(one.table.kernel)
    assert len(table) > 0
    for row in range(len(table)):
        is_read_right(bundle, table, row)


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_rows_of_bundles_that_were_built_are_read_right(path: Path) -> None:
    with BundleFile(path) as file:
        bundle = ArchBundle.of(Images(file))
        for table in map(bundle.table, file.kernels):
            for row in range(len(table)):
                is_read_right(bundle, table, row)


def test_a_grid_holds_no_int_of_more_than_64_bits(any_bundle: ArchBundle) -> None:
    table = held(kernel("wide", SCALE, configs=[{"A": WIDE}], grid=["A"]).table)
    with pytest.raises(BundleError, match="expected an expression over the kernel's params"):
        read(any_bundle, table, 0)


def test_there_is_no_row_behind_the_last(any_bundle: ArchBundle) -> None:
    table = held(ROWS[0].table)
    for row in (-1, len(table)):
        with pytest.raises(IndexError):
            read(any_bundle, table, row)
        with pytest.raises(IndexError):
            _core.row_constexprs(table.handle(), row)


@settings(deadline=None)
@given(data=st.data())
def test_a_layout_is_read_right_or_refused(bundle: ArchBundle, data: st.DataObject) -> None:
    table = bundle.table("descriptors")
    row = data.draw(st.integers(0, len(table) - 1))
    launch = table.launches[table.columns["launch"][row]]
    words = " ".join(f"{slot.source}:{slot.type}" for slot in launch.layout).split(" ")
    maps = list(launch.tensor_maps)
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(words) - 1))
        change = data.draw(st.sampled_from(["drop", "swap", "twice", "type", "part", "dimension", "map"]))
        source_of, kind = words[place].split(":")
        if change == "drop":
            del words[place]
        elif change == "swap":
            words[place], words[0] = words[0], words[place]
        elif change == "twice":
            words.insert(place, words[place])
        elif change == "type":
            words[place] = (
                f"{source_of}:{data.draw(st.sampled_from(['i32', 'i64', 'i1', '*fp16', '*fp8e4nv', 'tensormap']))}"
            )
        elif change == "part":
            part = data.draw(
                st.sampled_from(["map", "base", "shape", "stride", "pads_nan", "rounds_tf32", "mapped", ""])
            )
            words[place] = f"{source_of.split('.')[0]}.{part}:{kind}"
        elif change == "dimension":
            words[place] = (
                f"{source_of.rpartition('.')[0]}.{data.draw(st.sampled_from(['0', '1', '4', '5', '00']))}:{kind}"
            )
        elif maps:
            number = data.draw(st.integers(0, len(maps) - 1))
            changed = data.draw(st.sampled_from([{"source": "n"}, {"source": "desc"}, {"block": (1,)}, {"swizzle": 1}]))
            maps[number] = replace(maps[number], **changed)
    changed_launch = replace(launch, layout=Layout(" ".join(words), "here"), tensor_maps=tuple(maps))
    launches = list(table.launches)
    launches[table.columns["launch"][row]] = changed_launch
    changed_table = held(replace(table, launches=tuple(launches)))
    # parts of a descriptor may be left out
    with contextlib.suppress(BundleFormatError):
        is_read_right(bundle, changed_table, row)


NAMES = ("n", "m", "s", *"ABCDE", "dtype", "arch", "num_warps", "num_stages", "0", "2", "true", "none")
# the last two have no program
EXPRESSIONS = st.recursive(
    st.sampled_from((*NAMES, "'a'", "stranger")),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "//", "<", "==", "and", "or"]), inner).map(
            "({0[0]} {0[1]} {0[2]})".format
        ),
        st.tuples(inner, inner).map("cdiv({0[0]}, {0[1]})".format),
        inner.map("(not {})".format),
    ),
    max_leaves=6,
)
CONSTEXPRS = st.sampled_from((*VALUES, WIDE))


@st.composite
def kernels(draw: st.DrawFn) -> SyntheticKernel:
    """Draw a kernel each of whose constexprs has a value: of an axis, of a config, derived or by default."""
    types = st.sampled_from(["*{dtype}", "*fp32?", "i32", "u64?", "fp16", "i1"])
    runtime = draw(st.dictionaries(st.sampled_from(["x_ptr", "n", "m", "s"]), types, max_size=3))
    params = dict(draw(st.permutations([*runtime.items(), *dict.fromkeys("ABCDE", "constexpr").items()])))
    given_by = {name: draw(st.sampled_from(["axis", "config", "derived", "default"])) for name in "ABCD"} | {
        "E": "default"
    }
    defaulted = {name for name in params if given_by.get(name) == "default" or draw(st.booleans())}
    options = {"num_warps": st.sampled_from([2, 8]), "num_stages": st.integers(1, 4)}
    values = {name: CONSTEXPRS for name, place in given_by.items() if place == "config"}
    axes = {"dtype": ["fp16", "fp32"]} if "*{dtype}" in runtime.values() else {}
    several = st.lists(CONSTEXPRS, min_size=1, max_size=2, unique_by=identity)
    return kernel(
        "drawn",
        params,
        matrix=axes | {name: draw(several) for name, place in given_by.items() if place == "axis"},
        configs=draw(st.lists(st.fixed_dictionaries(values, optional=options), min_size=1, max_size=2)),
        hints=[{name: draw(st.sampled_from([1, 16]))} for name in runtime],
        derived={name: draw(EXPRESSIONS) for name, place in given_by.items() if place == "derived"},
        defaults={name: draw(CONSTEXPRS) for name in params if name in defaulted},
        grid=draw(st.lists(EXPRESSIONS, max_size=3)),
        launch={
            "cooperative": draw(st.booleans()),
            "pdl": draw(st.booleans()),
            "shared_bytes": draw(st.integers(0, 9)),
        },
    )


@pytest.fixture(scope="module")
def any_bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchBundle]:
    path = make_bundle(tmp_path_factory.mktemp("rows") / "any.nojit", ROWS[0])
    with BundleFile(path) as file:
        yield ArchBundle.of(Images(file))


@settings(deadline=None)
@given(one=kernels())
def test_drawn_rows_are_read_right_or_refused(any_bundle: ArchBundle, one: SyntheticKernel) -> None:
    table = decode_table(encode_table(one.table), "drawn", len(one.table), len(one.images), "here")
    for row in range(len(table)):
        assert by_type(_core.row_constexprs(table.handle(), row)) == by_type(constexprs_of(table, row))
        # an expression may be too long, or ask for a name that is no param
        with contextlib.suppress(BundleError):
            is_read_right(any_bundle, table, row)
