"""Calls of a kernel, from how they are spelled to the bytes that the driver is handed."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime import loader
from nojit.runtime.errors import (
    ArgumentError,
    BundleError,
    NojitError,
    NoMatchingVariantError,
)
from nojit.runtime.kernel import Kernel
from nojit.runtime.values import DType, FunctionRef

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import VECTOR_ADD, Make
from tests.support.bundles import kernel, make_bundle, target

# how a call is spelled


def test_a_launch_hands_the_driver_what_the_call_says(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    make()[(7,)](tensor(0x10008), tensor(0x20000), 100, BLOCK=256)
    launch = fakecuda.last_launch()
    assert launch.symbol == "add"
    assert launch.grid == (7, 1, 1)
    assert launch.block == (64, 1, 1)
    assert launch.ints() == (0x10008, 0x20000, 100, 0, 0)
    assert [len(param) for param in launch.params] == [8, 8, 4, 8, 8]
    assert launch.shared_bytes == 0
    assert launch.attributes == {}


def made(name: str) -> str:
    """Make an equal string that is not the interned one."""
    return (name + " ").strip()


CALLS: dict[str, Callable[[Kernel, Any, Any], Any]] = {
    "all positional": lambda k, x, y: k[(1,)](x, y, 5, 256),
    "named in order": lambda k, x, y: k[(1,)](x=x, y=y, n=5, BLOCK=256),
    "named out of order": lambda k, x, y: k[(1,)](BLOCK=256, n=5, y=y, x=x),
    "mixed": lambda k, x, y: k[(1,)](x, n=5, y=y, BLOCK=256),
    "by an option": lambda k, x, y: k[(1,)](x, y, 5, num_warps=2),
    "by both": lambda k, x, y: k[(1,)](x, y, 5, num_warps=2, BLOCK=256, num_stages=3),
    "a name made at run time": lambda k, x, y: k[(1,)](x, y, **{made("BLOCK"): 256, made("n"): 5}),
    "a list for a grid": lambda k, x, y: k[[1]](x, y, 5, BLOCK=256),
    "a callable grid": lambda k, x, y: k[lambda meta: (meta["BLOCK"] // 256,)](x, y, 5, BLOCK=256),
    "the bundle's grid": lambda k, x, y: k(x, y, 5, BLOCK=256),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_spelling_of_a_call_launches_the_same(
    make: Make, tensor: Any, fakecuda: FakeCuda, call: Callable[[Kernel, Any, Any], Any]
) -> None:
    assert call(make(), tensor(0x1000), tensor(0x2000)) is None
    launch = fakecuda.last_launch()
    assert (launch.grid, launch.block) == ((1, 1, 1), (64, 1, 1))
    assert launch.ints() == (0x1000, 0x2000, 5, 0, 0)


def test_the_bundles_grid_follows_the_call_and_the_config(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    for n, blocks in ((1, 1), (1024, 1), (1025, 2), (2**31 - 1, 2**21)):
        add(tensor(0x1000), tensor(0x2000), n)
        assert fakecuda.last_launch().grid == (blocks, 1, 1)
    add(tensor(0x1000), tensor(0x2000), 1025, num_warps=2)
    assert fakecuda.last_launch().grid == (5, 1, 1)


def test_a_callable_grid_sees_constexprs_options_and_arguments(make: Make, tensor: Any) -> None:
    seen: list[dict[str, Any]] = []
    x, y = tensor(0x1000), tensor(0x2000)
    make()[lambda meta: seen.append(meta) or (1, 2, 3)](x, y, 5)
    assert seen == [{"BLOCK": 1024, "num_warps": 4, "num_ctas": 1, "num_stages": 3, "x": x, "y": y, "n": 5}]


def test_what_a_callable_grid_raises_comes_through(make: Make, tensor: Any) -> None:
    with pytest.raises(KeyError, match="nothing"):
        make()[lambda meta: meta["nothing"]](tensor(0x1000), tensor(0x2000), 5)


def test_defaults_of_params_are_used(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"x": "*fp16?", "n": "i32", "scale": "fp32"}, defaults={"x": None, "scale": 2.0})
    add[(1,)](n=3)
    assert fakecuda.last_launch().params[:2] == (struct.pack("<i", 3), struct.pack("<f", 2.0))
    add[(1,)](tensor(0x1000), 3, 1.0)
    assert fakecuda.last_launch().ints()[0] == 0x1000


def test_a_param_may_be_called_stream(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"stream": "i32", "n": "i32"}, defaults={"stream": 5})
    add[(1,)](stream=7, n=1)
    add[(1,)](n=1, stream=7)
    add[(1,)](n=1, **{chr(ord("s")) + "tream": 7})
    add.bind((1,), n=1, stream=7)()
    assert [launch.ints()[:2] for launch in fakecuda.launches()] == [(7, 1)] * 4
    assert {launch.stream for launch in fakecuda.launches()} == {0}


# which variant runs


def test_hints_follow_each_calls_values(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    kernels = {}
    for address, n in ((0x1000, 16), (0x1008, 16), (0x1000, 17), (0x1010, 32), (0x1000, 0), (0x1000, -16)):
        add[(1,)](tensor(address), tensor(0x2000), n)
        kernels[address, n] = fakecuda.last_launch().kernel
    hinted, plain = kernels[0x1000, 16], kernels[0x1008, 16]
    assert hinted != plain
    assert kernels == {
        (0x1000, 16): hinted,
        (0x1008, 16): plain,
        (0x1000, 17): plain,
        (0x1010, 32): hinted,
        (0x1000, 0): hinted,
        (0x1000, -16): hinted,
    }


def test_an_int_of_one_drops_out_only_where_it_is_one(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32", "stride": "i32"}, hints=[{"stride": 1}])
    add[(1,)](5, 1)
    assert fakecuda.last_launch().ints() == (5, 0, 0)
    add[(1,)](5, 2)
    assert fakecuda.last_launch().ints() == (5, 2, 0, 0)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64", "i1", "i8", "i64", "u8", "u64", "fp8e4nv", "fp8e5"])
def test_the_dtype_of_tensors_chooses(make: Make, tensor: Any, fakecuda: FakeCuda, dtype: str) -> None:
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "i1": "bool", "i8": "int8",
             "i64": "int64", "u8": "uint8", "u64": "uint64", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}  # fmt: skip
    copy = make({"x": "*{dtype}"}, matrix={"dtype": list(names)})
    kernels = set()
    for name in names.values():
        copy[(1,)](tensor(0x1000, name))
        kernels.add(fakecuda.last_launch().kernel)
    assert len(kernels) == len(names)
    copy[(1,)](tensor(0x1000, names[dtype]))
    assert copy.explain(tensor(0x1000, names[dtype])).chosen.startswith(f"dtype={dtype!r}")


def test_none_takes_only_what_was_compiled_for_none(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"x": "*fp16", "bias": "*fp16?"})
    add[(1,)](tensor(0x1000), None)
    assert fakecuda.last_launch().ints() == (0x1000, 0, 0)
    add[(1,)](tensor(0x1000), tensor(0x2000))
    assert fakecuda.last_launch().ints() == (0x1000, 0x2000, 0, 0)
    with pytest.raises(NoMatchingVariantError, match=r'x = "\*fp16\?"'):
        add[(1,)](None, None)


def test_the_narrowest_int_that_fits_wins(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "{int}"}, matrix={"int": ["i64", "i32", "u64"]})
    for value, size in (
        (5, 4),
        (2**31 - 1, 4),
        (-(2**31), 4),
        (2**31, 8),
        (-(2**31) - 1, 8),
        (2**63 - 1, 8),
        (2**64 - 1, 8),
    ):
        add[(1,)](value)
        param = fakecuda.last_launch().params[0]
        assert param == (value % 2**64).to_bytes(8, "little")[:size]
        assert len(param) == size


def test_constexprs_compare_by_type_and_value(make: Make, fakecuda: FakeCuda) -> None:
    values = [
        True,
        1,
        1.0,
        False,
        0,
        0.0,
        -0.0,
        None,
        "1",
        math.nan,
        DType("fp16"),
        "fp16",
        FunctionRef("m:f"),
        (1, 2),
        (True, 2),
    ]
    add = make({"n": "i32", "MODE": "constexpr"}, matrix={"MODE": values})
    for _ in range(2):  # the second time from the plans
        kernels = []
        for value in values:
            add[(1,)](5, MODE=value)
            kernels.append(fakecuda.last_launch().kernel)
        assert len(set(kernels)) == len(values)
    add[(1,)](5, MODE=float("-nan"))
    assert fakecuda.last_launch().kernel == kernels[9]


def test_constexprs_of_other_makes_are_taken_for_what_they_stand_for(make: Make, fakecuda: FakeCuda) -> None:
    import enum

    np = pytest.importorskip("numpy")

    class Mode(enum.IntEnum):
        FAST = 64

    add = make(
        {"n": "i32", "BLOCK": "constexpr"}, configs=[{"BLOCK": 32, "num_warps": 1}, {"BLOCK": 64, "num_warps": 2}]
    )
    # as `tl.constexpr` is, of whose module and name it goes by
    tl_constexpr = type("constexpr", (), {"__module__": "triton.language.core", "value": 64})
    for value in (64, np.int64(64), Mode.FAST, tl_constexpr()):
        add[(1,)](5, BLOCK=value)
        assert fakecuda.last_launch().block == (64, 1, 1)
    tl_constexpr.value = 2  # type: ignore[attr-defined]
    add[(1,)](5, num_warps=tl_constexpr())
    assert fakecuda.last_launch().block == (64, 1, 1)
    with pytest.raises(
        ArgumentError, match="a layout or a member of an enum, got object - at constexpr BLOCK of kernel add"
    ):
        add[(1,)](5, BLOCK=object())


def test_a_member_of_an_enum_is_the_text_or_number_that_it_is_worth(make: Make, fakecuda: FakeCuda) -> None:
    import enum

    class Activation(str, enum.Enum):  # noqa: UP042 - what older programs have
        SILU = "silu"
        RELU = "relu"

    class Size(enum.IntEnum):
        FAST = 64

    add = make({"n": "i32", "MODE": "constexpr"}, matrix={"MODE": ["silu", "relu", 64, ("silu", 64)]})
    for _ in range(2):  # the second time from the plans
        kernels = []
        for given, plain in [(Activation.SILU, "silu"), (Activation.RELU, "relu"), (Size.FAST, 64),
                             ((Activation.SILU, Size.FAST), ("silu", 64))]:  # fmt: skip
            add[(1,)](5, MODE=plain)
            kernels.append(fakecuda.last_launch().kernel)
            add[(1,)](5, MODE=given)
            assert fakecuda.last_launch().kernel == kernels[-1]
        assert len(set(kernels)) == 4


def test_requires_and_derived_decide_anew_for_each_value(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make(
        {"x": "*{dtype}", "k": "i32", "MODE": "constexpr", "BLOCK": "constexpr", "EVEN": "constexpr"},
        matrix={"dtype": ["fp16", "fp32"], "MODE": [DType("fp16"), "fp16"]},
        configs=[
            {
                "BLOCK": 64,
                "num_warps": 8,
                "requires": "aligned(x, 32) and k >= BLOCK and MODE == 'fp16' and dtype == 'fp16'",
            },
            {"BLOCK": 16, "num_warps": 2},
        ],
        derived={"EVEN": "k % BLOCK == 0"},
    )
    seen = {}
    for _ in range(2):
        for dtype, mode, address, k in (
            ("float16", "fp16", 0x1000, 128),
            ("float16", DType("fp16"), 0x1000, 128),
            ("float16", "fp16", 0x1010, 128),
            ("float16", "fp16", 0x1000, 127),
            ("float16", "fp16", 0x1000, 32),
            ("float32", "fp16", 0x1000, 128),
        ):
            add[(1,)](tensor(address, dtype), k, MODE=mode)
            launch = fakecuda.last_launch()
            assert seen.setdefault((dtype, str(mode), address, k), (launch.kernel, launch.block[0])) == (
                launch.kernel,
                launch.block[0],
            )
    assert [block for _, block in seen.values()] == [256, 256, 64, 256, 64, 64]
    # at 0x1010 and with k = 32 the same variant serves
    assert len({which for which, _ in seen.values()}) == 5


def test_an_unchanged_call_asks_python_once(make: Make, tensor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add = make()
    resolved = []
    original = Kernel._plan_of
    monkeypatch.setattr(Kernel, "_plan_of", lambda self, *rest: resolved.append(rest) or original(self, *rest))
    for n in (16, 32, 48):
        add[(1,)](tensor(0x1000), tensor(0x2000), n)
    assert len(resolved) == 1
    add[(1,)](tensor(0x1000), tensor(0x2000), 17)
    assert len(resolved) == 2


@pytest.mark.parametrize("mode", ["a", DType("fp16")])
def test_a_first_call_knows_the_constexprs_that_its_own_spec_brings(
    make: Make, tensor: Any, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    modes = make({"x": "*fp16", "MODE": "constexpr"}, matrix={"MODE": ["a", DType("fp16")]})
    asked = []
    original = Kernel._plan_of
    monkeypatch.setattr(Kernel, "_plan_of", lambda self, *rest: asked.append(rest) or original(self, *rest))
    for _ in range(2):
        modes[(1,)](tensor(0x1000), MODE=mode)
    assert len(asked) == 1


# scalars


@pytest.mark.parametrize(
    ("kind", "value", "packed"),
    [
        ("i8", -128, struct.pack("<b", -128)),
        ("i16", -5, struct.pack("<h", -5)),
        ("i32", -(2**31), struct.pack("<i", -(2**31))),
        ("i64", -(2**63), struct.pack("<q", -(2**63))),
        ("u8", 255, b"\xff"),
        ("u16", 65535, b"\xff\xff"),
        ("u32", 2**32 - 1, b"\xff" * 4),
        ("u64", 2**64 - 1, b"\xff" * 8),
        ("i1", True, b"\1"),
        ("u1", False, b"\0"),
        ("fp64", 0.1, struct.pack("<d", 0.1)),
        ("fp32", 0.1, struct.pack("<f", 0.1)),
        ("fp32", 1e300, struct.pack("<f", math.inf)),
        ("fp16", 0.1, struct.pack("<e", 0.1)),
        # 1 + 2^-11 + 2^-40: one rounding up, where rounding by way of fp32 first would round to even and down
        ("fp16", 1.00048828125 + 2**-40, struct.pack("<e", 1.00048828125 + 2**-40)),
        ("fp16", -math.inf, struct.pack("<e", -math.inf)),
        # 0x3dcccccd cut, not rounded to 0x3dcd
        ("bf16", 0.1, b"\xcc\x3d"),
        ("bf16", -3.0, b"\x40\xc0"),
    ],
)
def test_scalars_are_packed_bit_for_bit(make: Make, fakecuda: FakeCuda, kind: str, value: Any, packed: bytes) -> None:
    make({"s": kind})[(1,)](value)
    assert fakecuda.last_launch().params[0] == packed


def test_numpy_scalars_are_numbers(make: Make, fakecuda: FakeCuda) -> None:
    np = pytest.importorskip("numpy")
    add = make({"n": "i32", "flag": "i1", "scale": "fp32"})
    add[(1,)](np.int64(-3), np.bool_(True), np.float64(0.5))
    assert fakecuda.last_launch().params[:3] == (struct.pack("<i", -3), b"\1", struct.pack("<f", 0.5))
    with pytest.raises(ArgumentError, match="argument n of kernel add"):
        add[(1,)](np.array([1, 2]), True, 0.5)


# explain


@pytest.mark.parametrize("name", ["self", "args", "kwargs", "arguments", "kernel"])
def test_a_param_of_any_name_is_given_by_name(make: Make, fakecuda: FakeCuda, name: str) -> None:
    add: Any = make({name: "i32"})
    add[(1,)](**{name: 5})
    assert add.explain(**{name: 5}).row == add.warmup(**{name: 5}).plan.payload[1] == 0
    assert add.choices(**{name: 5}).rows == (0,)
    add.run(**{name: 6}, grid=(1,))
    add.bind((1,), **{name: 7})()
    assert [launch.ints()[0] for launch in fakecuda.launches()] == [5, 6, 7]


def test_explain_needs_no_driver_and_no_device(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = make_bundle(tmp_path / "a.nojit", kernel("add", **VECTOR_ADD))
    add = loader.load(path).kernel("add")
    x = torch.zeros(64, dtype=torch.float32)
    explanation = add.explain(x, x, 16, arch="sm_90")
    assert explanation.chosen is not None
    assert explanation.chosen.startswith("dtype='fp32' BLOCK=1024")
    assert len(explanation.rejected) == 7
    assert "more hints win" in str(explanation)
    assert str(add.explain(x, x, 16, arch="sm_90a")) == str(explanation)
    for arch in ("hopper", "sm_90b", "sm_90A", "90"):
        with pytest.raises(ArgumentError, match=f"expected an arch such as sm_90 or gfx942, got '{arch}'"):
            add.explain(x, x, 16, arch=arch)


def test_choices_are_the_rows_that_could_serve_a_call(make: Make, tensor: Any) -> None:
    add = make()
    choices = add.choices(tensor(0x10000), tensor(0x20000), 16, arch="sm_90")
    chosen = add.explain(tensor(0x10000), tensor(0x20000), 16, arch="sm_90")
    assert choices.rows[0] == chosen.row
    assert len(choices.rows) == len(set(choices.rows)) <= len(choices.table)
    assert choices.key == chosen.key == {}
    with pytest.raises(NoMatchingVariantError):
        add.choices(tensor(0x10000), tensor(0x20000), 16, arch="sm_90", BLOCK=7)


def test_params_must_agree_between_archs(tmp_path: Path, fakecuda: FakeCuda, tensor: Any) -> None:
    make_bundle(tmp_path / "a.nojit", kernel("add", {"x": "*fp16"}, on=target("sm_80")), on=target("sm_80"))
    make_bundle(tmp_path / "b.nojit", kernel("add", {"y": "*fp16"}))
    with pytest.raises(
        BundleError,
        match="expected kernel add to have the same params in every bundle; rebuild the bundles, got others in",
    ):
        loader.load(tmp_path).kernel("add")[(1,)](tensor(0x1000))


def test_constants_are_matched_and_not_passed(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    types = {"x": "*fp16", "how": "(={a},i32,(={b},*fp16))"}
    matrix = {"a": ["3", "true", "1.5", "'fast'", "dtype:fp16", "function:m:f"], "b": ["0", "-0.0", "nan"]}
    add = make(types, matrix=matrix)
    firsts = (3, True, 1.5, "fast", DType("fp16"), FunctionRef("m:f"))
    seen = set()
    for _ in range(2):
        for first in firsts:
            for second in (0, -0.0, math.nan):
                add[(1,)](tensor(0x1000), (first, 7, (second, tensor(0x2000))))
                assert fakecuda.last_launch().ints()[:3] == (0x1000, 7, 0x2000)
                seen.add((fakecuda.last_launch().kernel, repr(first), repr(second)))
    assert len(seen) == len({kernel for kernel, _, _ in seen}) == 18
    for wrong in (4, False, 1.25, "slow", DType("bf16"), FunctionRef("m:g"), None, (3,), object()):
        with pytest.raises(NojitError):
            add[(1,)](tensor(0x1000), (wrong, 7, (0, tensor(0x2000))))


def test_rest_arguments_are_a_tuple(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    params = {"x": "*fp16", "n": "i32", "rest": "{kinds}", "MODE": "constexpr"}
    matrix = {"kinds": ["()", "(i32)", "(i32,(i32,=2))"], "MODE": [1, 2]}
    add = make(params, matrix=matrix, defaults={"rest": ()})
    x = tensor(0x1000)
    for _ in range(2):
        for call, passed in [
            (lambda: add[(1,)](x, 5, MODE=1), (0x1000, 5)),
            (lambda: add[(1,)](n=5, x=x, MODE=2), (0x1000, 5)),
            (lambda: add[(1,)](x, 5, 6, MODE=1), (0x1000, 5, 6)),
            (lambda: add[(1,)](x, 5, 6, (7, 2), MODE=2, num_warps=4), (0x1000, 5, 6, 7)),
            (lambda: add.bind((1,), MODE=1)(x, 5, 6), (0x1000, 5, 6)),
        ]:
            call()
            assert fakecuda.last_launch().ints()[: len(passed)] == passed
    for wrong in (
        lambda: add[(1,)](x, MODE=1),
        lambda: add[(1,)](x, 5, 6, rest=(7,), MODE=1),
        lambda: add[(1,)](x, 5, 6, 1),
    ):
        with pytest.raises(ArgumentError):
            wrong()
