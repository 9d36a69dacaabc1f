"""Calls that no kernel can take: each says which argument, what was expected and what was got."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from nojit.runtime.errors import (
    ArgumentError,
    BundleError,
    NoMatchingVariantError,
)
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make


class Loud:
    """Something whose attributes cannot even be asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} today")


WRONG_ARGUMENTS: list[tuple[str, Any, str]] = [
    ("i32", 2**31, "which does not fit"),
    ("i32", -(2**31) - 1, "which does not fit"),
    ("i32", 2**70, "which does not fit"),
    ("u32", -1, "which does not fit"),
    ("u64", 2**64, "which does not fit"),
    ("i32", 1.0, r"expected i32, got float 1\.0"),
    ("i32", math.nan, "expected i32, got float nan"),
    ("i32", "1", "got str"),
    ("i1", 2, "expected i1, got int 2"),
    ("i1", -1, "expected i1, got int -1"),
    ("i1", 1.0, r"expected i1, got float 1\.0"),
    ("fp32", 2**70, "expected fp32, got int 1180591620717411303424"),
    ("fp16", 2**20, "expected a number that fits fp16"),
    ("*fp16", 1.5, r"expected \*fp16, got float 1\.5"),
    ("*fp16", -1, r"expected \*fp16, got int -1"),
    ("*fp16", 2**64, r"expected \*fp16, got int 18446744073709551616"),
    ("*fp16", True, r"expected \*fp16, got bool True"),
    ("*fp16", b"x", "got bytes"),
    ("*fp16", (1, 2), r"expected \*fp16, got a tuple \(int 1, int 2\)"),
    ("fp16", 1e6, "expected a number that fits fp16"),
    ("i32", Loud(), "no block_shape today"),
    # Triton's has a value
    ("i32", type("constexpr", (), {})(), "got constexpr"),
]


@pytest.mark.parametrize(
    ("kind", "value", "message"), WRONG_ARGUMENTS, ids=[f"{k}-{v!r:.20}" for k, v, _ in WRONG_ARGUMENTS]
)
def test_a_wrong_argument_is_refused_by_name(
    make: Make, fakecuda: FakeCuda, kind: str, value: Any, message: str
) -> None:
    add = make({"first": "i32", "thing": kind})
    for _ in range(2):
        with pytest.raises((ArgumentError, NoMatchingVariantError), match=message) as caught:
            add[(1,)](1, value)
        assert "thing" in str(caught.value)
        assert "add" in str(caught.value)
    assert fakecuda.launch_count() == 0


WRONG_CALLS: dict[str, tuple[Callable[[Kernel], Any], str, str]] = {
    "unknown": (lambda k: k[(1,)](1, 2, BLOK=4), "unexpected argument 'BLOK'; did you mean 'BLOCK'", "BLOK"),
    "unknown option": (lambda k: k[(1,)](1, 2, num_warp=4), "did you mean 'num_warps'", "num_warp"),
    "twice": (lambda k: k[(1,)](1, 2, n=3), "expected one value, by position or by name - at argument n", "n"),
    "missing": (lambda k: k[(1,)](1), "expected a value, got nothing - at argument n of kernel add", "n"),
    "too many": (lambda k: k[(1,)](1, 2, 3, 4), "expected at most 3 positional arguments, got 4 - at kernel add", ""),
    "grid of 0": (lambda k: k[()](1, 2), "expected a grid of 1 to 3 ints, or a callable, got 0 dimensions", ""),
    "grid of 4": (lambda k: k[(1, 1, 1, 1)](1, 2), "expected a grid of 1 to 3 ints, .* got 4 dimensions", ""),
    "grid list": (lambda k: k[[1] * 5](1, 2), "expected a grid of 1 to 3 ints, .* got 5 dimensions", ""),
    "grid int": (lambda k: k[1](1, 2), "expected a grid of 1 to 3 ints, or a callable, got int 1", ""),
    "grid float": (lambda k: k[(1, 2.0)](1, 2), r"expected an int, got float 2\.0 - at argument grid\[1\]", "grid[1]"),
    "grid bool": (lambda k: k[(True,)](1, 2), r"got bool - at argument grid\[0\]|got bool True", "grid[0]"),
    "grid huge": (lambda k: k[(2**70,)](1, 2), r"expected an int, got int 1180", "grid[0]"),
    "grid of a callable": (lambda k: k[lambda _: 5](1, 2), "expected a grid of 1 to 3 ints", ""),
    "x": (lambda k: k[(2**31,)](1, 2), r"expected 0 to 2147483647, got 2147483648 - at argument grid\[0\]", "grid[0]"),
    "y": (lambda k: k[(1, 65536)](1, 2), r"expected 0 to 65535, got 65536 - at argument grid\[1\]", "grid[1]"),
    "z": (lambda k: k[(1, 1, 65536)](1, 2), r"expected 0 to 65535, got 65536 - at argument grid\[2\]", "grid[2]"),
    "negative": (lambda k: k[(1, -1)](1, 2), r"expected 0 to 65535, got -1 - at argument grid\[1\]", "grid[1]"),
    "no grid": (lambda k: k(1, 2), r"the bundle has no grid for this kernel: expected kernel\[grid\]", ""),
    "stream": (lambda k: k[(1,)](1, 2, stream="x"), "expected a stream: an int, or an object with", "stream"),
    "stream bool": (lambda k: k[(1,)](1, 2, stream=True), "expected a stream", "stream"),
    "stream negative": (lambda k: k[(1,)](1, 2, stream=-1), "expected a stream", "stream"),
}


@pytest.mark.parametrize(("call", "message", "argument"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_says_what_was_expected(
    make: Make, fakecuda: FakeCuda, call: Callable[[Kernel], Any], message: str, argument: str
) -> None:
    add = make({"m": "i32", "n": "i32", "BLOCK": "constexpr"}, configs=[{"BLOCK": 16, "num_warps": 4}])
    with pytest.raises(ArgumentError, match=message) as caught:
        call(add)
    assert caught.value.argument == argument
    assert fakecuda.launch_count() == 0


HUGE = 10**5000
HUGE_CALLS: dict[str, tuple[Callable[[Kernel], Any], str]] = {
    "int": (lambda k: k[(1,)](HUGE, 1.0, (1,), 0x1000, 2), "expected i32, got int, which does not fit"),
    "float": (lambda k: k[(1,)](1, HUGE, (1,), 0x1000, 2), r"expected fp32, got int; pass int\.0"),
    "member": (lambda k: k[(1,)](1, 1.0, (HUGE,), 0x1000, 2), "member 0: expected i32, got int, which does not fit"),
    "address": (lambda k: k[(1,)](1, 1.0, (1,), HUGE, 2), r"expected \*fp16, got int"),
    "matrix": (lambda k: k[(1,)](1, 1.0, (1,), 0x1000, HUGE), "MODE is 2, got int"),
    "config": (lambda k: k[(1,)](1, 1.0, (1,), 0x1000, 2, BLOCK=HUGE), "BLOCK is 16, got int"),
    "option": (lambda k: k[(1,)](1, 1.0, (1,), 0x1000, 2, num_warps=HUGE), "num_warps is 4, got int"),
    "grid": (lambda k: k[(HUGE,)](1, 1.0, (1,), 0x1000, 2), r"expected an int, got int - at argument grid\[0\]"),
    "computed grid": (lambda k: k[lambda _: (HUGE,)](1, 1.0, (1,), 0x1000, 2), "expected an int, got int"),
    "stream": (lambda k: k[(1,)](1, 1.0, (1,), 0x1000, 2, stream=HUGE), "expected a stream"),
}


@pytest.mark.parametrize(("call", "message"), HUGE_CALLS.values(), ids=HUGE_CALLS)
def test_an_int_that_python_does_not_write_is_refused_like_any_other(
    make: Make, fakecuda: FakeCuda, call: Callable[[Kernel], Any], message: str
) -> None:
    params = {"n": "i32", "f": "fp32", "t": "(i32)", "x": "*fp16", "MODE": "constexpr", "BLOCK": "constexpr"}
    configs = [{"BLOCK": 16, "num_warps": 4, "requires": "n < MODE * 100"}]
    add = make(params, matrix={"MODE": [2]}, configs=configs, hints=[{"n": 16}])
    with pytest.raises((ArgumentError, NoMatchingVariantError), match=message):
        call(add)
    assert fakecuda.launch_count() == 0


def test_a_matrix_constexpr_is_never_chosen_for_the_caller(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32", "CAUSAL": "constexpr"}, matrix={"CAUSAL": [False, True]})
    with pytest.raises(ArgumentError, match="expected a value for CAUSAL, one of False, True"):
        add[(1,)](1)
    with pytest.raises(NoMatchingVariantError, match="CAUSAL"):
        add[(1,)](1, CAUSAL=1)
    add = make({"n": "i32", "CAUSAL": "constexpr"}, matrix={"CAUSAL": [False, True]}, defaults={"CAUSAL": True})
    add[(1,)](1)
    default = fakecuda.last_launch().kernel
    add[(1,)](1, CAUSAL=True)
    assert fakecuda.last_launch().kernel == default


def test_a_derived_constexpr_is_not_passed(make: Make) -> None:
    add = make({"k": "i32", "EVEN": "constexpr"}, derived={"EVEN": "k % 2 == 0"})
    with pytest.raises(ArgumentError, match="EVEN"):
        add[(1,)](4, EVEN=True)


def test_a_grid_that_cannot_be_computed_says_why(make: Make) -> None:
    add = make({"n": "i32", "d": "i32"}, grid=["cdiv(n, d)", "n == d"])
    with pytest.raises(ArgumentError, match=r"expected an int for grid\[0\], which is 'cdiv\(n, d\)', got cdiv needs"):
        add(1, 0)
    with pytest.raises(ArgumentError, match=r"expected an int for grid\[1\], which is 'n == d', got bool False"):
        add(1, 2)


@pytest.mark.parametrize("grid", [(0,), (0, 5), (5, 0, 5), (65536, 1, 0)])
def test_a_zero_grid_launches_nothing(make: Make, tensor: Any, fakecuda: FakeCuda, grid: tuple[int, ...]) -> None:
    make()[grid](tensor(0x1000), tensor(0x2000), 5)
    assert fakecuda.launch_count() == 0


def test_a_param_of_an_options_name_is_refused(make: Make) -> None:
    message = "expected each param or option once, got 'num_stages' twice - at .* kernel add"
    with pytest.raises(BundleError, match=message):
        make({"n": "i32", "num_stages": "i32"})


def ints(count: int) -> dict[str, str]:
    return {f"n{i}": "i32" for i in range(count)}


CONSTEXPRS = {f"C{i}": 1 for i in range(64)}
KINDS = [f"tensordesc<fp16[{2**i},{2**j}]>" for i in range(8) for j in range(8)][:61]
# the table, what is asked of the kernel, and what is refused
TOO_MUCH: dict[str, tuple[dict[str, Any], Callable[[Kernel], Any], str]] = {
    "params": ({"params": ints(510)}, lambda k: k, "512 params and options, got 513"),
    "types": (
        {"params": {"x": "{kind}"}, "matrix": {"kind": KINDS}},
        lambda k: k[(1,)](0x1000),
        "60 types of one param, got 61",
    ),
    "leaves in tuples": (
        {"params": {"t": f"({','.join(['(i32)'] * 129)})"}},
        lambda k: k[(1,)](1),
        "256 leaves and tuples within",
    ),
    "leaves": ({"params": {"t": f"({','.join(['i32'] * 257)})"}}, lambda k: k[(1,)](1), "256 leaves"),
    "facts": (
        {
            "params": dict.fromkeys((f"t{i}" for i in range(250)), "(i32)") | dict.fromkeys(CONSTEXPRS, "constexpr"),
            "configs": [CONSTEXPRS],
        },
        lambda k: k[(1,)](*[(1,)] * 250),
        "2048 words of facts that choose a variant, got 2",
    ),
    "expressions": (
        {"params": {"n": "i32"}, "configs": [{"requires": f"n != {number}"} for number in range(4097)]},
        lambda k: k[(1,)](1),
        "4096 expressions over arguments that choose a variant, got more",
    ),
    "maps": (
        {"params": dict.fromkeys((f"d{i}" for i in range(17)), "tensordesc<fp16[16]>")},
        lambda k: k._plan_of(0, 0),
        "16 tensor maps, got 17",
    ),
}


@pytest.mark.parametrize(("table", "use", "message"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_table_of_more_than_the_core_takes_is_refused(
    make: Make, table: dict[str, Any], use: Callable[[Kernel], Any], message: str
) -> None:
    with pytest.raises(BundleError, match=rf"expected .*at most {message}.* - at .* kernel add"):
        use(make(**table))
