"""Any number in any slot: packed bit for bit as Triton packs it, or refused; never cut to fit, never taken for another type."""

from __future__ import annotations

import ctypes
import enum
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit.runtime import loader
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle

INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
BOOLS = ("i1", "u1")
LIMITS = [0, 1, *(sign * (2**bits + near) for bits in (7, 8, 15, 16, 31, 32, 63, 64, 70) for near in (-1, 0, 1) for sign in (1, -1))]  # fmt: skip
ANY_INT = st.one_of(st.sampled_from(LIMITS), st.integers(), st.integers(-(2**64), 2**64))
ANY_FLOAT = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(width=16, allow_nan=False),
    st.floats(-70_000, 70_000),
    st.sampled_from([65504.0, 65519.99, 65520.0, 2.0**-24, 2.0**-25, 3.4e38, 3.5e38, -0.0]),
)
quick = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Index:
    """Has ``__index__`` and nothing else."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Real(float):
    """A float of another class."""


class Whole(int):
    """An int of another class."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Kernel]]:
    """A kernel for each scalar type, and others that tell hints and widths apart."""
    path = tmp_path_factory.mktemp("bundle") / "scalars.nojit"
    one_each = [kernel(f"take_{kind}", {"value": kind}) for kind in (*INTS, *FLOATS, *BOOLS)]
    widths = kernel("widths", {"n": "{int}"}, matrix={"int": ["i32", "i64", "u64"]})
    hints = kernel("hints", {"x": "*fp16", "n": "i32", "m": "i32"}, hints=[{"x": 16, "n": 16}, {"m": 1}])
    grids = [kernel("grid_1", {"n": "i32"}), kernel("grid_4", {"n": "i32"}, configs=[{"num_warps": 4, "num_ctas": 4}])]
    bundle = loader.load(make_bundle(path, *one_each, widths, hints, *grids))
    yield {name: bundle.kernel(name) for name in bundle.kernels}
    bundle.close()


def launched(fakecuda: FakeCuda, add: Kernel, *arguments: Any) -> list[bytes] | None:
    """The arguments' bytes but for the scratch pointers, or None if the call was refused."""
    before = fakecuda.launch_count()
    try:
        add[(1,)](*arguments)
    except (ArgumentError, NoMatchingVariantError):
        assert fakecuda.launch_count() == before
        return None
    assert fakecuda.launch_count() == before + 1
    return list(fakecuda.last_launch().params[:-2])


def packed_int(kind: str, value: int) -> bytes | None:
    """What an int is in a slot, or None if it does not fit."""
    bits, signed = int(kind[1:]), kind[0] == "i"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    return value.to_bytes(bits // 8, "little", signed=signed) if low <= value < high else None


def packed_float(kind: str, value: float) -> bytes | None:
    """What a float is in a slot, or None if it does not fit."""
    if kind == "fp64":
        return struct.pack("<d", value)
    if kind == "fp16":
        try:
            return struct.pack("<e", value)
        except OverflowError:
            return None
    single = bytes(ctypes.c_float(value))
    return single if kind == "fp32" else single[2:]


@quick
@given(kind=st.sampled_from(INTS), value=ANY_INT)
def test_an_int_is_packed_whole_or_refused(
    fakecuda: FakeCuda, kernels: dict[str, Kernel], kind: str, value: int
) -> None:
    expected = packed_int(kind, value)
    for spelled in (value, Whole(value), Index(value)):
        assert launched(fakecuda, kernels[f"take_{kind}"], spelled) == (None if expected is None else [expected])


@quick
@given(kind=st.sampled_from(FLOATS), value=ANY_FLOAT)
def test_a_float_is_packed_as_triton_packs_it(
    fakecuda: FakeCuda, kernels: dict[str, Kernel], kind: str, value: float
) -> None:
    expected = packed_float(kind, value)
    for spelled in (value, Real(value)):
        assert launched(fakecuda, kernels[f"take_{kind}"], spelled) == (None if expected is None else [expected])


@quick
@given(
    kind=st.sampled_from((*INTS, *FLOATS, *BOOLS)),
    value=st.one_of(ANY_INT, ANY_FLOAT, st.booleans(), st.none(), st.text(max_size=3), st.binary(max_size=9),
                    st.complex_numbers(), st.decimals(), st.lists(st.integers(), max_size=2)),
)  # fmt: skip
def test_numbers_become_what_triton_makes_of_them_and_nothing_else_does(
    fakecuda: FakeCuda, kernels: dict[str, Kernel], kind: str, value: Any
) -> None:
    expected = None
    if kind in BOOLS and isinstance(value, int) and value in (0, 1):
        expected = bytes([value])
    elif kind in INTS and isinstance(value, int):
        expected = packed_int(kind, int(value))
    elif kind in FLOATS and (isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**64)):
        expected = packed_float(kind, float(value))
    assert launched(fakecuda, kernels[f"take_{kind}"], value) == (None if expected is None else [expected])


@quick
@given(value=ANY_INT)
def test_the_narrowest_width_that_holds_an_int_is_taken(
    fakecuda: FakeCuda, kernels: dict[str, Kernel], value: int
) -> None:
    fitting = [packed for kind in ("i32", "i64", "u64") if (packed := packed_int(kind, value)) is not None]
    assert launched(fakecuda, kernels["widths"], value) == (fitting[:1] or None)


@quick
@given(
    call=st.tuples(st.integers(16, 2**64 - 1), st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1, 2, 16])),
)
def test_a_hint_is_used_only_where_it_holds(
    fakecuda: FakeCuda, tensor: Any, kernels: dict[str, Kernel], call: tuple[int, int, int]
) -> None:
    address, n, m = call
    for where, number in ((address, n), (address & ~15, n), (address & ~15, n & ~15)):
        values = launched(fakecuda, kernels["hints"], tensor(where), number, m)
        # a hint of 1 is compiled in, so that the param is gone; two hints win over one
        gone = m == 1 and not (where % 16 == 0 and number % 16 == 0)
        last = [] if gone else [struct.pack("<i", m)]
        assert values == [struct.pack("<Q", where), struct.pack("<i", number), *last]


@quick
@given(
    grid=st.lists(
        st.one_of(
            st.sampled_from([0, 1, 65535, 65536, 2**29, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, -1]), st.integers()
        ),
        min_size=1,
        max_size=3,
    ),
    ctas=st.sampled_from([1, 4]),
)
def test_a_grid_is_launched_whole_or_refused(
    fakecuda: FakeCuda, kernels: dict[str, Kernel], grid: list[int], ctas: int
) -> None:
    whole = (*grid, 1, 1)[:3]
    limits = ((2**31 - 1) // ctas, 65535, 65535)
    add, before = kernels[f"grid_{ctas}"], fakecuda.launch_count()
    if not all(0 <= size <= limit for size, limit in zip(whole, limits, strict=True)):
        with pytest.raises(ArgumentError, match="grid"):
            add[tuple(grid)](1)
        assert fakecuda.launch_count() == before
        return
    add[tuple(grid)](1)
    assert fakecuda.launch_count() == before + (0 not in whole)
    if 0 not in whole:
        assert fakecuda.last_launch().grid == (whole[0] * ctas, *whole[1:])


def test_enums_and_numpys_numbers_are_what_they_stand_for(fakecuda: FakeCuda, kernels: dict[str, Kernel]) -> None:
    np = pytest.importorskip("numpy")

    class Size(enum.IntEnum):
        LARGE = 2**31 - 1

    assert launched(fakecuda, kernels["take_i32"], Size.LARGE) == [b"\xff\xff\xff\x7f"]
    for value in (np.int8(-1), np.int64(-1), np.array(-1)):
        assert launched(fakecuda, kernels["take_i32"], value) == [b"\xff" * 4]
    assert launched(fakecuda, kernels["take_u64"], np.uint64(2**64 - 1)) == [b"\xff" * 8]
    assert launched(fakecuda, kernels["take_u8"], np.int64(256)) is None
    assert launched(fakecuda, kernels["take_i1"], np.bool_(True)) == [b"\1"]
    assert launched(fakecuda, kernels["take_i32"], np.bool_(True)) == [b"\1\0\0\0"]
    for value in (np.float16(1.5), np.float32(1.5), np.float64(1.5)):
        assert launched(fakecuda, kernels["take_fp32"], value) == [struct.pack("<f", 1.5)]
        assert launched(fakecuda, kernels["take_i32"], value) is None
    assert launched(fakecuda, kernels["take_fp64"], np.float64(0.1)) == [struct.pack("<d", 0.1)]
    assert launched(fakecuda, kernels["take_fp64"], np.int64(1)) == [struct.pack("<d", 1.0)]
    assert launched(fakecuda, kernels["take_i32"], np.float64(1)) is None
