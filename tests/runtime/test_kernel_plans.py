"""Plans are found again only for calls that would choose the same variant: whatever the calls, whatever their order."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit.runtime import _core, loader
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.kernel import Kernel
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable
from nojit.runtime.values import DType

from tests.fakecuda import FakeCuda
from tests.support.bundles import SyntheticKernel, kernel, make_bundle

WORDS: dict[str, Any] = {
    "params": {
        "x": "*{dtype}",
        "bias": "*fp32?",
        "n": "{int}",
        "k": "i32",
        "flag": "i1",
        "scale": "fp32",
        "MODE": "constexpr",
        "BLOCK": "constexpr",
        "EVEN": "constexpr",
        "WIDE": "constexpr",
    },
    "matrix": {"dtype": ["fp16", "fp32"], "int": ["i32", "i64"], "MODE": [0, False, DType("a"), "a"]},
    "configs": [
        {"BLOCK": 64, "num_warps": 8, "requires": "aligned(x, 32) and k >= BLOCK and (MODE == 'a' or dtype == 'fp32')"},
        {"BLOCK": 32, "num_warps": 4, "requires": "has(bias) or k // (n - 16) == 2"},
        {"BLOCK": 16, "num_warps": 2},
    ],
    "hints": [{"x": 16}, {"x": 16, "n": 16}, {"k": 1}, {"bias": 16, "n": 16, "k": 16}],
    "derived": {"EVEN": "k % BLOCK == 0", "WIDE": "next_pow2(k) > BLOCK and flag == true"},
    "defaults": {"MODE": 0, "bias": None},
}
RICH = kernel("rich", **WORDS)


def tuned(bucket: str) -> SyntheticKernel:
    """Make the same kernel with a table for some of its cases."""
    rows = tuple(
        TuningRow(at, use, tuple(range(len(use))))
        for at, use in (((0, 0), (2,)), ((1, 64), (1, 2)), ((16, 16), (2, 0)), ((16, 4096), (1,)), ((128, 128), (2, 1)))
    )
    blocks = (TuningBlock.of(range(20), rows), TuningBlock.of((24, 25, 31), rows[2:]))
    table = TuningTable(TunedDevice("Fake GPU sm_90", "sm_90", 132, 140 << 30), blocks)
    return kernel(f"rich_{bucket}", **WORDS, tuning=Tuning(("k", "n * k"), bucket, (table,)))


INTS = st.sampled_from(
    [0, 1, 2, 15, 16, 17, 32, 63, 64, 128, -1, -16, 2**31 - 1, 2**31, -(2**31), 2**62 + 1, 2**63, 2**64]
)
ADDRESSES = st.sampled_from([0, 8, 16, 24, 32, 48, 64])


def tensors(module: ModuleType) -> st.SearchStrategy[Any]:
    return st.builds(module.Tensor, ADDRESSES, st.sampled_from(["float16", "float32", "int32"]))


def calls(module: ModuleType) -> st.SearchStrategy[dict[str, Any]]:
    wrong = st.sampled_from([True, 1.5, None, "x"])
    return st.fixed_dictionaries(
        {
            "x": st.one_of(tensors(module), tensors(module), ADDRESSES, wrong),
            "n": st.one_of(INTS, INTS, wrong),
            "k": INTS,
            "flag": st.one_of(st.booleans(), st.booleans(), INTS),
            "scale": st.sampled_from([0.5, 1.5, 2]),
        },
        optional={
            "bias": st.one_of(st.none(), st.builds(module.Tensor, ADDRESSES, st.just("float32")), ADDRESSES),
            "MODE": st.sampled_from([0, False, 0.0, DType("a"), "a", "b"]),
            "BLOCK": st.sampled_from([64, 32, 16, 8]),
            "num_warps": st.sampled_from([8, 4, 2]),
        },
    )


def launched(one: Kernel, call: dict[str, Any], driver: FakeCuda) -> tuple[Any, ...]:
    """Say what a call does: the variant and the bytes of its arguments, or the error."""
    before = driver.launch_count()
    try:
        one[(1,)](**call)
    except (ArgumentError, NoMatchingVariantError) as error:
        assert driver.launch_count() == before
        return type(error), str(error)
    assert driver.launch_count() == before + 1
    launch = driver.last_launch()
    return launch.kernel, launch.block, launch.params


@pytest.fixture(scope="module")
def rich_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("rich") / "rich.nojit", RICH, *map(tuned, _core.BUCKETS))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_warm_kernel_does_what_a_fresh_one_does(
    data: st.DataObject, rich_path: Path, fakecuda: FakeCuda, faketorch: ModuleType
) -> None:
    with loader.load(rich_path) as bundle:
        warm = bundle.kernel(data.draw(st.sampled_from(bundle.kernels)))
        for call in data.draw(st.lists(calls(faketorch), min_size=2, max_size=8)):
            fresh = Kernel(warm.name, warm._bundles.bundles)
            expected = launched(fresh, call, fakecuda)
            assert launched(warm, call, fakecuda) == expected
            assert launched(warm, call, fakecuda) == expected


SLOTS = {"i8": (-(2**7), 2**7), "i16": (-(2**15), 2**15), "i32": (-(2**31), 2**31), "i64": (-(2**63), 2**63),
         "u8": (0, 2**8), "u16": (0, 2**16), "u32": (0, 2**32), "u64": (0, 2**64)}  # fmt: skip


@pytest.fixture(scope="module")
def slots_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernels = [kernel(f"take_{kind}", {"n": kind}) for kind in SLOTS]
    return make_bundle(tmp_path_factory.mktemp("slots") / "slots.nojit", *kernels)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(list(SLOTS)),
    values=st.lists(
        st.one_of(
            st.integers(-(2**66), 2**66),
            st.integers(-300, 300),
            st.sampled_from([edge + near for low, end in SLOTS.values() for edge in (low, end) for near in (-1, 0, 1)]),
            st.booleans(),
            st.floats(),
        ),
        max_size=6,
    ),
)
def test_ints_arrive_whole_or_not_at_all(kind: str, values: list[Any], slots_path: Path, fakecuda: FakeCuda) -> None:
    low, end = SLOTS[kind]
    with loader.load(slots_path) as bundle:
        take = bundle.kernel(f"take_{kind}")
        for value in values:
            if isinstance(value, int) and low <= value < end:
                take[(1,)](value)
                width = len(fakecuda.last_launch().params[0])
                assert 8 * width == int(kind[1:])
                assert fakecuda.last_launch().params[0] == int(value).to_bytes(width, "little", signed=low < 0)
            else:
                with pytest.raises((ArgumentError, NoMatchingVariantError), match=f"expected {kind}, got"):
                    take[(1,)](value)
