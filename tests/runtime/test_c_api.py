"""The C interface against Python: the driver gets the same launch, byte for byte; and what C alone has."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from nojit import runtime
from nojit.aot.bench.c_calls import Arg
from nojit.runtime.values import DType, FunctionRef

from tests.fakecuda import FakeCuda
from tests.fakecuda.driver import Launch
from tests.runtime.conftest import VECTOR_ADD
from tests.support.bundles import SyntheticKernel, kernel, make_bundle, target
from tests.support.capi import (
    ALLOCATE,
    DECOMPRESS,
    FIND_STREAM,
    LOG,
    RELEASE,
    VERIFY,
    BundleInfo,
    CApi,
    CBundle,
    CError,
    CErrorFacts,
    CKernel,
    ConfigInfo,
    CPlan,
    KernelInfo,
    Options,
    ParamInfo,
    PlanInfo,
    ValueInfo,
)
from tests.support.tensors import PointerTensor

HERE = Path(__file__).parent
FORMAT, INTEGRITY, DRIVER, _MEMORY, ARGUMENT, SYSTEM, TRUST, NO_KERNEL, NO_VARIANT, _NEEDS = range(1, 11)


@dataclass
class Described:
    """A tensor descriptor."""

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...] | None
    padding: str = "zero"
    round_f32_to_tf32: bool = False


@dataclass
class Case:
    """A kernel and calls of it, each (arguments, by name, grid)."""

    params: dict[str, str]
    calls: list[tuple[tuple[Any, ...], dict[str, Any], tuple[int, ...] | None]]
    facts: dict[str, Any] = field(default_factory=dict)
    image: str = "sm_90a"


def at(address: int, dtype: str = "float16") -> PointerTensor:
    return PointerTensor(address, f"torch.{dtype}")


X, Y, ODD = at(0x1000), at(0x2000), at(0x1002)
TILE = Described(at(0x4000), (128, 64), (64, 1), (64, 64))
SCRATCH = {
    "global_scratch_bytes": 640,
    "global_scratch_align": 128,
    "profile_scratch_bytes": 48,
    "profile_scratch_align": 16,
}
CASES = {
    "pointers, ints and constexprs": Case(
        VECTOR_ADD["params"],
        [
            ((X, Y, 1000), {}, None),
            ((X, Y, 1024), {}, None),
            ((ODD, Y, 1024), {}, (7,)),
            ((at(0x1000, "float32"), at(0x2000, "float32"), 0), {}, (3, 2, 1)),
            ((X, Y), {"n": 77, "BLOCK": 256}, None),
            ((X, Y, 5, 256), {"num_warps": 2}, (1,)),
            ((X,), {"n": 16, "y": Y}, (5, 5)),
        ],
        {name: value for name, value in VECTOR_ADD.items() if name != "params"},
    ),
    "numbers of every type": Case(
        {"a": "i8", "b": "i16", "c": "i32", "d": "i64", "e": "u8", "f": "u16", "g": "u32", "h": "u64", "i": "i1"},
        [
            ((-128, -32768, -(2**31), -(2**63), 255, 65535, 2**32 - 1, 2**64 - 1, True), {}, (1,)),
            ((1, 1, 1, 1, 1, 1, 1, 1, False), {}, (1,)),
            ((True, False, True, 16, 32, 48, 64, 80, 1), {}, (1,)),
        ],
    ),
    "floats": Case(
        {"a": "fp16", "b": "bf16", "c": "fp32", "d": "fp64"},
        [((0.1, 0.1, 0.1, 0.1), {}, (1,)), ((3, True, -7, 2**53), {}, (1,)), ((float("inf"), 1e-8, -0.0, 1e300), {}, (1,))],
    ),
    "narrow before wide": Case(
        {"n": "{index}"}, [((5,), {}, (1,)), ((2**40,), {}, (1,)), ((1,), {}, (1,)), ((-16,), {}, (1,))],
        {"matrix": {"index": ["i64", "i32"]}, "hints": [{"n": 16}, {"n": 1}]},
    ),
    "optional": Case(
        {"x": "*fp16?", "n": "i32?", "BLOCK": "constexpr"},
        [((None, None), {}, None), ((X, 5), {}, None), ((None, 16), {}, None), ((X,), {"n": None}, None)],
        {"configs": [{"BLOCK": 4}], "hints": [{"x": 16}, {"n": 16}], "grid": ["BLOCK"]},
    ),
    "defaults": Case(
        {"x": "*fp16", "n": "i32", "s": "fp32", "A": "constexpr", "B": "constexpr"},
        [((X,), {}, None), ((X, 3), {}, None), ((X,), {"s": 0.5, "B": 7}, None), ((X,), {"A": 2}, None)],
        {"matrix": {"A": [1, 2], "B": [7, None]}, "defaults": {"n": 4, "s": 1.5, "A": 1, "B": None}, "grid": ["n * A"]},
    ),
    "constexprs of every kind": Case(
        {"x": "*fp16", "A": "constexpr"},
        [((X,), {"A": value}, None) for value in (1, True, 1.0, None, "relu", DType("fp16"), (1, "a"), -5, 2.5)],
        {"matrix": {"A": [1, True, 1.0, None, "relu", DType("fp16"), DType("bf16"), (1, "a"), -5, 2.5]}, "grid": ["1"]},
    ),
    "dtypes by their names": Case(
        {"x": "*fp16", "A": "constexpr"},
        [((X,), {"A": value}, None) for value in ("bf16", "bfloat16", "torch.float16", DType("bf16"))],
        {"matrix": {"A": [DType("fp16"), DType("bf16")]}, "grid": ["1"]},
    ),
    "tuples": Case(
        {"pair": "(*fp16,i32)", "deep": "(i32,(fp32,(i64,none)),*fp32)", "n": "i32"},
        [
            (((X, 5), (1, (2.5, (3, None)), at(0x3000, "float32")), 9), {}, None),
            (((ODD, 16), (32, (2.0, (48, None)), at(0x3000, "float32")), 9), {}, None),
        ],
        {"hints": [{"pair.0": 16, "pair.1": 16}, {"pair.0": 16, "deep.1.1.0": 16}], "grid": ["n"]},
    ),
    "constants among arguments": Case(
        {"mode": "{mode}", "n": "i32"},
        [((3, 5), {}, (1,)), ((4, 5), {}, (1,))],
        {"matrix": {"mode": ["=3", "i32"]}},
    ),
    "descriptors": Case(
        {"tile": "tensordesc<fp16[64,64]>", "n": "i32"},
        [
            ((TILE, 1), {}, None),
            ((replace(TILE, shape=(100, 60), strides=(72, 1), padding="nan"), 2), {}, None),
            ((replace(TILE, block_shape=None), 3), {}, None),
        ],
        {"grid": ["n"]},
    ),
    "descriptors without maps": Case(
        {"tile": "tensordesc<fp32[16,16]>", "n": "i32"},
        [
            ((Described(at(0x4000, "float32"), (33, 17), (20, 1), (16, 16), round_f32_to_tf32=True), 2), {}, None),
            ((Described(at(0x4010, "float32"), (33, 17), (20, 1), (16, 16), padding="nan"), 2), {}, None),
        ],
        {"grid": ["n"]},
        "sm_80",
    ),
    "descriptors in tuples": Case(
        {"both": "(tensordesc<fp16[64,64]>,(i32,tensordesc<bf16[32,32]>))"},
        [(((TILE, (5, Described(at(0x8000, "bfloat16"), (64, 64), (64, 1), (32, 32)))),), {}, (1,))],
    ),
    "shared memory": Case({"x": "*fp16"}, [((X,), {}, (2,))], {"launch": {"shared_bytes": 200_000}, "configs": [{"num_warps": 8}]}),
    "clusters": Case({"x": "*fp16"}, [((X,), {}, (2, 3, 4)), ((X,), {}, (0,))], {"configs": [{"num_ctas": 4}]}),
    "wide clusters": Case({"x": "*fp16"}, [((X,), {}, (2,))], {"configs": [{"num_ctas": 16}]}),
    "pdl": Case({"x": "*fp16"}, [((X,), {}, (2,))], {"launch": {"pdl": True}}),
    "cooperative": Case({"x": "*fp16"}, [((X,), {}, (2,))], {"launch": {"cooperative": True}}),
    "derived and requires": Case(
        {"x": "*fp16", "n": "i32", "BLOCK": "constexpr", "EVEN": "constexpr"},
        [((X, 64), {}, None), ((X, 65), {}, None), ((X, 7), {}, None)],
        {
            "configs": [{"BLOCK": 64, "requires": "n >= BLOCK"}, {"BLOCK": 8, "num_warps": 1}],
            "derived": {"EVEN": "n % BLOCK == 0"},
            "grid": ["cdiv(n, BLOCK)"],
        },
    ),
    "grids over everything": Case(
        {"x": "*{dtype}", "n": "i32", "m": "i32?", "A": "constexpr"},
        [((X, 100, None), {}, None), ((X, 100, 3), {}, None)],
        {
            "matrix": {"dtype": ["fp16"], "A": [3]}, "defaults": {"A": 3},
            "grid": ["cdiv(n, A * num_warps)", "max(arch, 1) // 30", "next_pow2(n) // 64"],
        },
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def api() -> CApi:
    return CApi()


@pytest.fixture
def open_c(api: CApi, fakecuda: FakeCuda, tmp_path: Path) -> Iterator[Callable[..., CBundle]]:
    opened: list[CBundle] = []

    def build(*kernels: SyntheticKernel, options: Options | None = None, **facts: Any) -> CBundle:
        opened.append(api.open(make_bundle(tmp_path / f"{len(opened)}.nojit", *kernels, **facts), options))
        return opened[-1]

    yield build
    for bundle in opened:
        bundle.close()


@pytest.fixture
def add(open_c: Callable[..., CBundle]) -> CKernel:
    return open_c(kernel("add", **VECTOR_ADD)).kernel("add")


# -- as Python launches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_driver_gets_what_python_gives_it(api: CApi, fakecuda: FakeCuda, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    if case.image == "sm_80":
        fakecuda.set_devices(80)
    made = kernel("k", case.params, **case.facts, on=target(case.image))
    path = make_bundle(tmp_path / "k.nojit", made, on=target(case.image))
    bundle = api.open(path)
    in_c = bundle.kernel("k")
    with runtime.load(path) as opened:
        in_python = opened.kernel("k")
        for args, named, grid in case.calls:
            expected = _launches(fakecuda, lambda a=args, n=named, g=grid: _python(in_python, a, n, g))
            for _ in range(2):  # the second time from the plans
                got = _launches(fakecuda, lambda a=args, n=named, g=grid: in_c.launch(*a, grid=g, **n))
                assert got == expected, (args, named)
    bundle.close()


def _python(launched: Any, args: tuple[Any, ...], named: dict[str, Any], grid: tuple[int, ...] | None) -> None:
    (launched if grid is None else launched[grid])(*args, stream=0, **named)


def _launches(fakecuda: FakeCuda, launch: Callable[[], None]) -> list[Launch]:
    before = fakecuda.launch_count()
    launch()
    return fakecuda.launches()[before:]


def test_scratch_memory_is_allocated_in_the_order_of_the_stream(
    open_c: Callable[..., CBundle], fakecuda: FakeCuda
) -> None:
    scratched = open_c(kernel("k", {"x": "*fp16"}, launch=SCRATCH, configs=[{"num_ctas": 2}])).kernel("k")
    stream = fakecuda.stream()
    before = fakecuda.allocations()
    scratched.launch(X, grid=(3, 2), stream=stream)
    launch = fakecuda.last_launch()
    _, global_scratch, profile_scratch = launch.ints()
    assert global_scratch % 128 == profile_scratch % 16 == 0
    assert 0 not in (global_scratch, profile_scratch)
    assert [name for name, _ in fakecuda.log() if name.startswith(("cuMem", "cuLaunch"))] == [
        "cuMemAllocAsync", "cuMemAllocAsync", "cuLaunchKernelEx", "cuMemFreeAsync", "cuMemFreeAsync",
    ]  # fmt: skip
    assert fakecuda.allocations() == before


def test_the_caller_can_allocate_scratch_memory_and_say_the_stream(
    open_c: Callable[..., CBundle], fakecuda: FakeCuda
) -> None:
    asked: list[tuple[Any, ...]] = []
    stream = fakecuda.stream()

    def allocate(_user: Any, size: int, align: int, device: int, on: int, address: Any) -> int:
        asked.append(("allocate", size, align, device, on))
        address[0] = 0x10000 * len(asked)
        return 0

    options = Options.of(
        allocate=ALLOCATE(allocate),
        release=RELEASE(lambda _user, address, device, on: asked.append(("release", address, device, on))),
        find_stream=FIND_STREAM(lambda _user, _device: stream),
    )
    scratched = open_c(kernel("k", {"x": "*fp16"}, launch=SCRATCH), options=options).kernel("k")
    scratched.launch(X, grid=(3, 2))
    assert fakecuda.last_launch().stream == stream
    assert fakecuda.last_launch().ints()[1:] == (0x10000, 0x20000)
    assert asked == [
        ("allocate", 640 * 6, 128, 0, stream),
        ("allocate", 48 * 6, 16, 0, stream),
        ("release", 0x10000, 0, stream),
        ("release", 0x20000, 0, stream),
    ]


def test_a_second_launch_takes_no_call_but_the_launch(add: CKernel, fakecuda: FakeCuda) -> None:
    stream = fakecuda.stream()
    add.launch(X, Y, 1000, stream=stream)
    with fakecuda.capture(stream):
        before = len(fakecuda.log())
        add.launch(X, Y, 1001, stream=stream)
        assert [name for name, _ in fakecuda.log()[before:]] == ["cuCtxGetCurrent", "cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                                                 "cuLaunchKernel", "cuCtxPopCurrent_v2"]  # fmt: skip


def test_each_device_has_plans_of_its_own(add: CKernel, fakecuda: FakeCuda) -> None:
    for device in (0, 1, 0):
        add.launch(X, Y, 1000, device=device)
        assert fakecuda.last_launch().device == device
    fakecuda.make_current(1)
    add.launch(X, Y, 1000)
    assert fakecuda.last_launch().device == 1


# -- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_launches_values_in_memory(add: CKernel, fakecuda: FakeCuda) -> None:
    plan = add.prepare(X, Y, 1024)
    assert plan.values() == [("x", "*fp16", 8, 16), ("y", "*fp16", 8, 16), ("n", "i32", 4, 16)]
    add.launch(X, Y, 1024)
    expected = fakecuda.last_launch()
    plan.launch([struct.pack("<Q", 0x1000), struct.pack("<Q", 0x2000), struct.pack("<i", 1024)])
    assert fakecuda.last_launch() == expected
    plan.launch([struct.pack("<Q", 0x3000), struct.pack("<Q", 0x5000), struct.pack("<i", 48)], (9, 8, 7))
    assert fakecuda.last_launch().ints()[:3] == (0x3000, 0x5000, 48)
    assert fakecuda.last_launch().grid == (9, 8, 7)
    info = plan.about()
    assert (info.symbol, info.device, info.num_warps, info.value_count) == (b"add", 0, 4, 3)


@pytest.mark.parametrize(
    ("values", "argument"), [((0x1008, 0x2000, 16), 0), ((0x1000, 0x2001, 16), 1), ((0x1000, 0x2000, 17), 2)]
)
def test_a_plan_rechecks_what_it_was_compiled_for(
    add: CKernel, fakecuda: FakeCuda, values: tuple[int, int, int], argument: int
) -> None:
    plan = add.prepare(X, Y, 1024)
    with pytest.raises(CError) as caught:
        plan.launch([struct.pack("<Q", values[0]), struct.pack("<Q", values[1]), struct.pack("<i", values[2])])
    assert (caught.value.code, caught.value.argument) == (ARGUMENT, argument)
    assert "multiple of 16" in caught.value.what
    assert caught.value.where.endswith(f"kernel add argument {'xyn'[argument]}")
    assert fakecuda.launch_count() == 0


def test_a_plan_passes_what_is_compiled_in_by_nothing(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    made = kernel("k", {"x": "*fp16?", "n": "i32", "pair": "(i64,none)"}, hints=[{"n": 1}], grid=["n + 1"])
    plan = open_c(made).kernel("k").prepare(None, 1, (5, None))
    assert plan.values() == [("x", "none", 0, 0), ("n", "i32", 4, 1), ("pair.0", "i64", 8, 0), ("pair.1", "none", 0, 0)]
    plan.launch([None, struct.pack("<i", 1), struct.pack("<q", -3), None])
    assert fakecuda.last_launch().params[0] == struct.pack("<q", -3)
    assert fakecuda.last_launch().grid == (2, 1, 1)
    with pytest.raises(CError, match="expected 1, as the plan was compiled for, got 2"):
        plan.launch([None, struct.pack("<i", 2), struct.pack("<q", -3), None])
    with pytest.raises(CError, match="expected 1, as the plan was compiled for, got -3 - at"):
        plan.launch([None, struct.pack("<i", -3), struct.pack("<q", -3), None])


def test_a_plan_says_the_kind_and_the_dtype_of_each_value(open_c: Callable[..., CBundle]) -> None:
    params = {
        "x": "*bf16", "mask": "*i1", "on": "i1", "n": "i64", "m": "u32", "scale": "fp32", "pair": "(*kfp8e5,none)",
        "three": "=3", "tile": "tensordesc<fp16[64,64]>",
    }  # fmt: skip
    call = (at(0x1000, "bfloat16"), at(0x1000, "bool"), True, 2**40, 5, 0.5, (at(0x1000, "float8_e5m2"), None), 3, TILE)
    plan = open_c(kernel("k", params, grid=["n"])).kernel("k").prepare(*call)
    assert plan.kinds() == [
        ("pointer", "bf16"), ("pointer", "i1"), ("bool", "i1"), ("int", "i64"), ("uint", "u32"), ("float", "fp32"),
        ("pointer", "fp8e5"), ("none", ""), ("none", ""), ("descriptor", "fp16"),
    ]  # fmt: skip


def test_a_plan_computes_the_grid_with_constants(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    made = kernel("k", {"tile": "=3", "n": "i32"}, grid=["cdiv(n, tile)"])
    open_c(made).kernel("k").prepare(3, 7).launch([None, struct.pack("<i", 7)])
    assert fakecuda.last_launch().grid == (3, 1, 1)


def test_a_plan_encodes_descriptors(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    from tests.support.capi import _Pen

    tiled = open_c(kernel("k", {"tile": "tensordesc<fp16[64,64]>", "n": "i32"}, grid=["n"])).kernel("k")
    tiled.launch(TILE, 5)
    expected = fakecuda.last_launch()
    plan = tiled.prepare(TILE, 5)
    plan.launch([bytes(_Pen().descriptor(TILE)), struct.pack("<i", 5)])
    assert fakecuda.last_launch() == expected


def test_a_plan_computes_its_grid_beside_values_of_every_kind(
    open_c: Callable[..., CBundle], fakecuda: FakeCuda
) -> None:
    made = kernel("k", {"on": "i1", "scale": "fp32", "n": "u64"}, grid=["cdiv(n, 2)"])
    plan = open_c(made).kernel("k").prepare(True, 0.5, 7)
    plan.launch([b"\1", struct.pack("<f", 0.5), struct.pack("<Q", 9)])
    assert fakecuda.last_launch().grid == (5, 1, 1)
    assert fakecuda.last_launch().params[:2] == (b"\1", struct.pack("<f", 0.5))
    # the grid cannot be computed of an int of 64 bits
    with pytest.raises(CError, match=r"expected an int for grid\[0\], which is 'cdiv\(n, 2\)'") as caught:
        plan.launch([b"\1", struct.pack("<f", 0.5), struct.pack("<Q", 2**64 - 1)])
    assert caught.value.code == ARGUMENT
    assert fakecuda.launch_count() == 1


def test_grids_of_plans_are_checked(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    plan = open_c(kernel("k", {"n": "i32"})).kernel("k").prepare(5)
    five = [struct.pack("<i", 5)]
    with pytest.raises(CError, match=r"the bundle has no grid for this kernel: expected a grid, got  - at .* kernel k"):
        plan.launch(five)
    with pytest.raises(CError, match=r"expected 0 to 65535, got 65536 - at .* kernel k grid\[2\]"):
        plan.launch(five, (1, 1, 65536))
    plan.launch(five, (7, 0, 1))
    assert fakecuda.launch_count() == 0
    plan.launch(five, (7, 1, 1))
    assert fakecuda.last_launch().grid == (7, 1, 1)


def test_a_plan_refuses_a_descriptor_whose_size_is_not_set(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    plan = open_c(kernel("tile", {"tile": "tensordesc<fp16[64,64]>"}, grid=["1"])).kernel("tile").prepare(TILE)
    with pytest.raises(CError, match="expected nj_tensor_descriptor to have its size set, got 0") as caught:
        plan.launch([bytes(plan.value(0).bytes)])
    assert (caught.value.code, caught.value.argument, fakecuda.launch_count()) == (ARGUMENT, 0, 0)


# -- questions -------------------------------------------------------------------------------------------------------


def test_the_library_says_its_version(api: CApi) -> None:
    header = (HERE.parents[1] / "runtime/engine/include/nojit.h").read_text(encoding="utf-8")
    major, minor = map(int, re.findall(r"#define NOJIT_VERSION_(?:MAJOR|MINOR) (\d+)", header))
    assert api.library.nj_version() == 1000 * major + minor


def test_an_error_is_written_in_one_line_as_far_as_there_is_room(api: CApi, tmp_path: Path) -> None:
    error = CErrorFacts()
    path = os.fsencode(tmp_path / "none.nojit")
    assert api.library.nj_bundle_open(path, None, ctypes.byref(error)) is None
    whole = b"expected open to succeed, got No such file or directory - at " + path
    for room in (0, 1, 10, len(whole), len(whole) + 1, 2000):
        text = ctypes.create_string_buffer(b"?" * 2000, 2000)
        given = text if room else None
        assert api.library.nj_error_text(ctypes.byref(error), given, ctypes.c_size_t(room)) == len(whole)
        assert text.raw[:room] in {whole[: room - 1] + b"\0", whole + b"\0" + b"?" * (room - len(whole) - 1), b""}
        assert text.raw[room:] == b"?" * (2000 - room)
    # neither what was found nor where
    alone = CErrorFacts(code=4, what=b"expected more memory")
    text = ctypes.create_string_buffer(100)
    assert api.library.nj_error_text(ctypes.byref(alone), text, ctypes.c_size_t(100)) == len(text.value)
    assert text.value == b"expected more memory"


def test_a_bundle_and_its_kernels_say_what_they_are(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    bundle = open_c(kernel("add", **VECTOR_ADD), kernel("sub", {"x": "*fp16"}), name="acme", version="1.2")
    info = bundle.about()
    assert (info.name, info.version, info.arch, info.image_arch) == (b"acme", b"1.2", b"sm_90", b"sm_90a")
    assert (info.min_driver, info.kernel_count, len(info.digest)) == (12000, 2, 64)
    assert bundle.kernels() == ["add", "sub"]
    add = bundle.kernel("add")
    assert add.handle.value == bundle.kernel("add").handle.value
    assert add.params() == [("x", False, False), ("y", False, False), ("n", False, False), ("BLOCK", True, False)]
    assert add.config(1) == {"BLOCK": 256, "num_warps": 2, "num_ctas": 1, "num_stages": 3}
    assert add.about().name == b"add"
    assert (add.about().variant_count, add.about().config_count) == (len(add.explain(X, Y, 16)), 2)
    assert bundle.fit(0) > 0
    fakecuda.set_devices(80)
    assert bundle.fit(0) == 0


def test_an_attachment_is_read_once_and_kept(api: CApi, open_c: Callable[..., CBundle]) -> None:
    attached = (("empty", b""), ("notes.txt", b"of a build\0\xff"))
    bundle = open_c(kernel("add", **VECTOR_ADD), attachments=attached)
    at, content = bundle.attachment("notes.txt")
    assert content == b"of a build\0\xff"
    assert bundle.attachments() == ["empty", "notes.txt"]
    assert api.library.nj_bundle_attachment_name(bundle.handle, ctypes.c_size_t(2)) is None
    assert bundle.attachment("notes.txt") == (at, content)
    assert bundle.attachment("empty")[1] == b""
    with pytest.raises(CError, match=r"expected one of 2 attachments: empty, notes.txt, got 'notes' - at .*nojit"):
        bundle.attachment("notes")
    with pytest.raises(CError, match=r"expected one of 0 attachments, got 'notes.txt'") as caught:
        open_c(kernel("add", **VECTOR_ADD)).attachment("notes.txt")
    assert caught.value.code == ARGUMENT


def test_a_damaged_attachment_is_refused_when_it_is_read(api: CApi, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "a.nojit", kernel("add", **VECTOR_ADD), attachments=(("notes.txt", b"of a build"),))
    data = path.read_bytes().replace(b"of a build", b"of a bui1d")
    bundle = api.open_memory(data)
    for _ in range(2):
        with pytest.raises(CError, match=r"expected SHA-256 .* attachment notes.txt") as caught:
            bundle.attachment("notes.txt")
        assert caught.value.code == INTEGRITY
    assert bundle.kernel("add").params()
    bundle.close()


def test_each_variant_has_a_reason(open_c: Callable[..., CBundle]) -> None:
    made = kernel(
        "k", {"x": "*{dtype}", "n": "i32", "A": "constexpr", "B": "constexpr", "E": "constexpr"},
        matrix={"dtype": ["fp16", "fp32"], "A": [1, 2]},
        configs=[{"B": 64, "requires": "n < 1"}, {"B": 8}, {"B": 4}],
        hints=[{"n": 16}], derived={"E": "n % 2 == 0"},
    )  # fmt: skip
    told = open_c(made).kernel("k").explain(X, 5, A=2)
    assert len(told) == 48
    chosen, serves, by_type, constexpr, hint, requires, derived = range(7)
    assert [code for code, *_ in told].count(chosen) == 1
    words = {code: (name, expected, got) for code, _, name, expected, got in told}
    assert set(words) == {chosen, serves, by_type, constexpr, hint, requires, derived}
    assert words[by_type] == ("x", "*fp32", "*fp16 at 0x1000")
    assert words[constexpr] == ("A", "1", "2")
    assert words[requires][1] == "n < 1"
    assert words[derived] == ("E", "True", "False")
    assert words[hint] == ("n", "a multiple of 16", "5")


CONSTANTS = {
    "None": None,
    "True": True,
    "-3": -3,
    "18446744073709551615": 2**64 - 1,
    "1.5": 1.5,
    "'silu'": "silu",
    "bf16": DType("bf16"),
    "kernel.py:relu": FunctionRef("kernel.py:relu"),
    "(1, ('a', 2.5))": (1, ("a", 2.5)),
}
"""Values of constexprs, by the words of a reason."""


def test_a_config_has_values_of_every_kind(open_c: Callable[..., CBundle]) -> None:
    made = kernel("k", {"n": "i32", "A": "constexpr"}, configs=[{"A": value} for value in CONSTANTS.values()])
    built = open_c(made).kernel("k")
    assert [built.config(number)["A"] for number in range(len(CONSTANTS))] == [*CONSTANTS.values()]
    assert [type(built.config(number)["A"]) for number in range(len(CONSTANTS))] == [*map(type, CONSTANTS.values())]


@pytest.mark.parametrize("words", CONSTANTS)
def test_a_reason_words_a_constexpr_of_every_kind(open_c: Callable[..., CBundle], words: str) -> None:
    made = kernel("k", {"n": "i32", "A": "constexpr"}, configs=[{"A": CONSTANTS[words]}, {"A": 77}])
    constexpr = 3
    built = open_c(made).kernel("k")
    told = [reason for reason in built.explain(5, A=77) if reason[0] == constexpr]
    assert [(name, expected, got) for _, _, name, expected, got in told] == [("A", words, "77")]
    told = [reason for reason in built.explain(5, A=CONSTANTS[words]) if reason[0] == constexpr]
    assert ("A", "77", words) in [(name, expected, got) for _, _, name, expected, got in told]


@pytest.mark.parametrize(
    ("kind", "argument", "words"),
    [
        ("*fp16", None, "None"),
        ("*fp16", True, "True"),
        ("i8", 300, "300"),
        ("i8", 2**64 - 1, "18446744073709551615"),
        ("i8", 1.5, "1.5"),
        ("i8", (1, 2), "a tuple of 2"),
        ("i8", TILE, "a descriptor of fp16, rank 2"),
        ("i8", "silu", "a constant"),
    ],
)
def test_a_reason_words_an_argument_of_every_kind(
    open_c: Callable[..., CBundle], kind: str, argument: Any, words: str
) -> None:
    # types of all kinds, so that no argument is refused before the variants are asked
    kinds = ["*fp16", "i8", "i1", "fp32", "none", "(i32)", "tensordesc<fp32[8,8]>", "='gelu'"]
    made = kernel("k", {"x": "{kind}"}, matrix={"kind": kinds})
    told = open_c(made).kernel("k").explain(argument)
    by_type = 2
    assert ("x", kind, words) in [tuple(reason[2:]) for reason in told if reason[0] == by_type]


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "named", "words"),
    [
        ((X, Y), {}, "expected a value, got nothing - at .* kernel add argument n"),
        ((X, Y, 1, 1024, 5), {}, "expected at most 4 positional arguments, got 5"),
        ((X, Y, 1), {"n": 2}, "expected one value, by position or by name, got 'n'"),
        ((X, Y, 1), {"stranger": 2}, "expected the name of a param or an option, got 'stranger'"),
        (("text", Y, 1), {}, "expected an argument of a type that some variant takes"),
    ],
)
def test_a_wrong_call_is_refused(add: CKernel, args: tuple[Any, ...], named: dict[str, Any], words: str) -> None:
    with pytest.raises(CError, match=words) as caught:
        add.launch(*args, grid=(1,), **named)
    assert caught.value.code == ARGUMENT


def test_a_struct_without_its_size_is_refused(
    api: CApi, add: CKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_bundle(tmp_path / "a.nojit", kernel("add", **VECTOR_ADD))
    with pytest.raises(CError, match="expected nj_options to have its size set, got 0"):
        api.open(path, Options(verify=VERIFY(lambda _user, _claim: 1)))
    monkeypatch.setattr("tests.support.capi._setup", lambda *_facts: ctypes.c_size_t(0))
    with pytest.raises(CError, match="expected nj_launch_setup to have its size set, got 0"):
        add.launch(X, Y, 1000)


Fill = Callable[[CBundle, CKernel, CPlan], tuple[str, Any, Any, tuple[int, ...]]]
FILLED: dict[str, Fill] = {
    "nj_bundle_info": lambda bundle, _kernel, _plan: ("nj_bundle_about", bundle.handle, BundleInfo, ()),
    "nj_kernel_info": lambda _bundle, kernel, _plan: ("nj_kernel_about", kernel.handle, KernelInfo, ()),
    "nj_param_info": lambda _bundle, kernel, _plan: ("nj_kernel_param", kernel.handle, ParamInfo, (0,)),
    "nj_config_info": lambda _bundle, kernel, _plan: ("nj_kernel_config", kernel.handle, ConfigInfo, (0,)),
    "nj_plan_info": lambda _bundle, _kernel, plan: ("nj_plan_about", plan.handle, PlanInfo, ()),
    "nj_plan_value_info": lambda _bundle, _kernel, plan: ("nj_plan_value", plan.handle, ValueInfo, (0,)),
}


@pytest.mark.parametrize("name", FILLED)
def test_a_struct_is_filled_as_far_as_its_size_goes(
    api: CApi, open_c: Callable[..., CBundle], fakecuda: FakeCuda, name: str
) -> None:
    bundle = open_c(kernel("add", **VECTOR_ADD))
    add = bundle.kernel("add")
    function, handle, kind, numbers = FILLED[name](bundle, add, add.prepare(X, Y, 1000))
    whole = api.fill(function, handle, kind, *numbers)
    least = max(getattr(kind, field).offset + getattr(kind, field).size for field, _ in kind._fields_)
    # of no size, too short for the first version, and not initialised
    for size in (0, 8, least - 1, 4097, 2**63):
        with pytest.raises(CError, match=f"expected {name} to have its size set, got {size}") as caught:
            api.fill(function, handle, kind, *numbers, size=size)
        assert caught.value.code == ARGUMENT

    class Newer(kind):  # type: ignore[misc, valid-type]
        _fields_ = (("more", ctypes.c_uint64 * 2),)

    newer = Newer(size=ctypes.sizeof(Newer), more=(1, 2))
    assert getattr(api.library, function)(handle, *map(ctypes.c_size_t, numbers), ctypes.byref(newer), None) == 0
    assert (newer.size, list(newer.more)) == (ctypes.sizeof(Newer), [0, 0])
    plain = [field for field, _ in kind._fields_ if field not in {"size", "settings"}]
    assert [getattr(newer, field) for field in plain] == [getattr(whole, field) for field in plain]


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (lambda _add, plan: plan.value(4), "one of 3 values, got 4"),
        (lambda add, _plan: add.param(4), "one of 4 params, got 4"),
        (lambda add, _plan: add.config(2**64 - 1), "one of 2 configs, got 18446744073709551615"),
    ],
)
def test_a_number_of_nothing_is_refused(add: CKernel, of: Callable[[CKernel, CPlan], Any], words: str) -> None:
    with pytest.raises(CError, match=f"expected the number of {words} - at .*nojit kernel add") as caught:
        of(add, add.prepare(X, Y, 1000))
    assert caught.value.code == ARGUMENT


def test_what_is_reserved_has_to_be_zero(
    add: CKernel, open_c: Callable[..., CBundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support import capi

    setup, sized = capi._setup, capi._sized

    def with_reserved(*facts: Any) -> Any:
        made = setup(*facts)
        made.reserved = 7
        return made

    monkeypatch.setattr("tests.support.capi._setup", with_reserved)
    with pytest.raises(CError, match=r"expected nj_launch_setup.reserved to be 0, got 7"):
        add.launch(X, Y, 1000)
    monkeypatch.setattr("tests.support.capi._setup", setup)
    tile = open_c(kernel("tile", {"tile": "tensordesc<fp16[64,64]>"}, grid=["1"])).kernel("tile")

    def described(kind: Any) -> Any:
        made = sized(kind)
        made.reserved[2] = 1
        return made

    monkeypatch.setattr("tests.support.capi._sized", described)
    with pytest.raises(CError, match=r"expected nj_tensor_descriptor.reserved to be 0, got 1") as caught:
        tile.launch(TILE)
    assert caught.value.argument == 0


def test_a_struct_of_a_newer_version_is_read_as_far_as_it_is_known(api: CApi, tmp_path: Path) -> None:
    class Newer(Options):
        _fields_ = (("more", ctypes.c_size_t),)

    path = make_bundle(tmp_path / "a.nojit", kernel("add", **VECTOR_ADD))
    api.open(path, Newer(size=ctypes.sizeof(Newer))).close()
    with pytest.raises(CError, match="expected nj_options to set only what this version knows, 64 bytes, got 72 bytes"):
        api.open(path, Newer(size=ctypes.sizeof(Newer), more=1))


@pytest.mark.parametrize("device", [-2, 64, 1 << 20])
def test_a_device_that_is_none_is_refused(add: CKernel, fakecuda: FakeCuda, device: int) -> None:
    for launch in (add.launch, add.prepare, add.explain):
        with pytest.raises(CError, match=f"expected the ordinal of a device, or NJ_CURRENT_DEVICE, got {device}"):
            launch(X, Y, 1000, device=device)
    with pytest.raises(CError, match="or NJ_CURRENT_DEVICE"):
        add.load(device)
    assert fakecuda.launch_count() == 0


def test_the_current_device_is_loaded_and_asked(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    bundle = open_c(kernel("add", **VECTOR_ADD))
    assert bundle.fit(-1) == bundle.fit(0)
    bundle.kernel("add").load(-1)


def test_a_call_that_nothing_serves_is_refused(add: CKernel) -> None:
    for refused in ((X, Y, 2**40), (at(0x1000, "float64"), Y, 5)):
        with pytest.raises(CError, match="expected a variant that serves the call") as caught:
            add.launch(*refused)
        assert caught.value.code == NO_VARIANT


@pytest.mark.parametrize(
    ("params", "facts", "call", "words"),
    [
        (
            {"n": "i32", "A": "constexpr", "E": "constexpr"}, {"configs": [{"A": 1}], "derived": {"E": "n * 2"}},
            ((5,), {"E": 10}), "expected no value for a constexpr that follows from the call",
        ),
        ({"x": "*fp16"}, {}, ((1.5,), {}), "expected an argument of a type that some variant takes"),
        (
            {"x": "*{dtype}"}, {"matrix": {"dtype": ["fp16", "fp32"]}},
            ((at(0x1000, ""),), {}), "expected a pointer with a dtype: that decides the variant",
        ),
        ({"n": "i32", "A": "constexpr"}, {"matrix": {"A": [1, 2]}}, ((5,), {}), "expected a value for constexpr 'A'"),
    ],
)  # fmt: skip
def test_a_call_that_the_kernel_can_never_take_is_refused(
    open_c: Callable[..., CBundle], params: Any, facts: Any, call: Any, words: str
) -> None:
    args, named = call
    with pytest.raises(CError, match=words) as caught:
        open_c(kernel("k", params, **facts)).kernel("k").launch(*args, grid=(1,), **named)
    assert caught.value.code == ARGUMENT


@pytest.mark.parametrize("value", [X, (1, X), (2, (3, TILE)), Arg(99)])
def test_a_constexpr_that_no_bundle_can_hold_is_refused(open_c: Callable[..., CBundle], value: Any) -> None:
    made = kernel("k", {"x": "*fp16", "A": "constexpr"}, matrix={"A": [1, (1, 2)]}, grid=["1"])
    in_c = open_c(made).kernel("k")
    for call in (lambda: in_c.launch(X, value), lambda: in_c.launch(X, A=value), lambda: in_c.explain(X, A=value)):
        with pytest.raises(CError, match=r"expected None, a bool, a number, a text, .* kernel k argument A") as caught:
            call()
        assert (caught.value.code, caught.value.argument) == (ARGUMENT, 1)
    in_c.launch(X, (1, 2))


@pytest.mark.parametrize(
    "named",
    [
        {"B": tuple(range(257))},
        {"B": (tuple(range(200)), tuple(range(200)))},
        {"A": tuple(range(200)), "B": tuple(range(200))},
    ],
    ids=["in one tuple", "in a tuple of tuples", "in two constexprs"],
)
def test_more_members_of_constexprs_than_a_call_may_have_are_refused(
    open_c: Callable[..., CBundle], named: dict[str, Any]
) -> None:
    made = kernel("k", {"x": "*fp16", "A": "constexpr", "B": "constexpr"}, matrix={"A": [1], "B": [1]}, grid=["1"])
    in_c = open_c(made).kernel("k")
    for call in (in_c.launch, in_c.explain):
        with pytest.raises(CError, match="expected at most 256 members of tuples in one call, got more") as caught:
            call(X, **({"A": 1} | named))
        assert (caught.value.code, caught.value.argument) == (ARGUMENT, 2)
    assert [reason[0] for reason in in_c.explain(X, A=tuple(range(100)), B=tuple(range(156)))] == [3]


def test_an_option_that_no_bundle_can_hold_is_refused(add: CKernel) -> None:
    with pytest.raises(CError, match=r"expected None, a bool, a number, a text, .* argument num_warps"):
        add.launch(X, Y, 1, num_warps=X)


def test_what_is_behind_the_params_may_be_left_out(open_c: Callable[..., CBundle], fakecuda: FakeCuda) -> None:
    """A function's `*args` are a tuple in C, and empty if they are not passed."""
    made = kernel(
        "k", {"n": "i32", "rest": "{rest}"}, matrix={"rest": ["()", "(i32)"]}, defaults={"rest": ()}, grid=["n"]
    )
    in_c = open_c(made).kernel("k")
    in_c.launch(3)
    assert fakecuda.last_launch().params[0] == struct.pack("<i", 3)
    in_c.launch(3, ())
    in_c.launch(3, (7,))
    assert fakecuda.last_launch().params[:2] == (struct.pack("<i", 3), struct.pack("<i", 7))
    with pytest.raises(CError, match="expected a variant that serves the call"):
        in_c.launch(3, (7, 8))


@pytest.mark.parametrize(
    ("kind", "argument", "words"),
    [
        ("*fp16", Arg(99), "expected an argument of a kind of nj_arg_kind, got 99"),
        ("*fp16", Arg(6, 99), "expected a pointer to a dtype of nj_dtype, got 99"),
        ("(i32,i32)", tuple(range(300)), "expected at most 256 members of tuples in one call, got more"),
        ("(*fp16)", (TILE,) * 17, "expected at most 16 tensor descriptors in one call, got more"),
    ],
)
def test_an_argument_that_is_none_is_refused(
    open_c: Callable[..., CBundle], kind: str, argument: Any, words: str
) -> None:
    with pytest.raises(CError, match=words) as caught:
        open_c(kernel("k", {"x": kind})).kernel("k").launch(argument, grid=(1,))
    assert (caught.value.code, caught.value.argument) == (ARGUMENT, 0)


def test_wrong_boxes_of_descriptors_are_refused(open_c: Callable[..., CBundle]) -> None:
    tiled = open_c(kernel("k", {"tile": "tensordesc<fp16[64,64]>"})).kernel("k")
    for box, steps, words in (
        ((257, 64), (1, 1), "box: expected sizes of 1 to 256, got 257"),
        ((64, 64), (9, 1), "steps: expected 1 to 8, and 1 in the last dimension, got 9"),
        ((64, 64), (1, 2), "steps: expected 1 to 8, and 1 in the last dimension, got 2"),
        ((128, 32), (1, 1), "box to be as wide as the kernel's block, got 32"),
        ((64, 64), (8, 1), "box to reach over at most 256 elements, got 512"),
        ((32, 64), (1, 1), "box of as many elements as the kernel's block, got 2048"),
    ):
        wrong = replace(TILE)
        wrong.box, wrong.steps = box, steps  # type: ignore[attr-defined] # read where they are set
        with pytest.raises(CError, match=words):
            tiled.launch(wrong, grid=(1,))


def test_descriptors_of_a_kernel_without_tensor_maps_are_checked(api: CApi, fakecuda: FakeCuda, tmp_path: Path) -> None:
    fakecuda.set_devices(80)
    params = {"tile": "tensordesc<fp32[16,16]>", "ints": "tensordesc<i32[16,16]>"}
    path = make_bundle(tmp_path / "k.nojit", kernel("k", params, on=target("sm_80")), on=target("sm_80"))
    bundle = api.open(path)
    tiled = bundle.kernel("k")
    floats = Described(at(0x4000, "float32"), (33, 17), (20, 1), (16, 16))
    ints = Described(at(0x8000, "int32"), (33, 17), (20, 1), (16, 16))
    tiled.launch(floats, ints, grid=(1,))
    boxed = replace(floats)
    boxed.box = (16, 16)  # type: ignore[attr-defined] # read where it is set
    for tile, other, argument, words in (
        (boxed, ints, 0, "expected a descriptor without a box of its own: the kernel uses no tensor maps"),
        (floats, replace(ints, padding="nan"), 1, "expected a descriptor with padding 'nan' to be of floats, got i32"),
        (
            replace(floats, shape=(2**31, 17)),
            ints,
            0,
            r"expected a descriptor's dimensions below 2\^31, got 2147483648",
        ),
    ):
        with pytest.raises(CError, match=words) as caught:
            tiled.launch(tile, other, grid=(1,))
        assert (caught.value.code, caught.value.argument) == (ARGUMENT, argument)
    assert fakecuda.launch_count() == 1
    bundle.close()


def test_wrong_descriptors_are_refused(open_c: Callable[..., CBundle]) -> None:
    tiled = open_c(kernel("k", {"tile": "tensordesc<fp16[64,64]>"})).kernel("k")
    for wrong, words in (
        (replace(TILE, shape=(0, 5)), "shape: expected positive sizes, got 0"),
        (replace(TILE, strides=(1, 2)), "strides: expected the last to be 1, got 2"),
        (replace(TILE, strides=(63, 1)), "multiples of 16 bytes"),
        (replace(TILE, strides=(2**39, 1)), r"stride of less than 2\^40 bytes, got 549755813888"),
        (replace(TILE, shape=(2**32 + 1, 64)), r"dimension of at most 2\^32, got 4294967297"),
        (replace(TILE, base=at(0x4008)), "aligned to 16 bytes"),
        (replace(TILE, round_f32_to_tf32=True), "to be of fp32, got fp16"),
        (replace(TILE, shape=()), "shape: expected 1 to 5 dimensions, got 0"),
        (replace(TILE, base=at(0x4000, "")), "expected a descriptor of a dtype, got 0"),
    ):
        with pytest.raises(CError, match=words) as caught:
            tiled.launch(wrong, grid=(1,))
        assert (caught.value.code, caught.value.argument) == (ARGUMENT, 0)


def test_grids_are_checked(add: CKernel, open_c: Callable[..., CBundle]) -> None:
    with pytest.raises(CError, match=r"expected 0 to 65535, got 65536 - at .* grid\[1\]"):
        add.launch(X, Y, 5, grid=(1, 65536))
    without = open_c(kernel("k", {"n": "i32"})).kernel("k")
    with pytest.raises(CError, match="the bundle has no grid for this kernel"):
        without.launch(5)
    failing = open_c(kernel("k", {"n": "i32"}, grid=["8 // n"])).kernel("k")
    with pytest.raises(CError, match=r"expected an int for grid\[0\], which is '8 // n'"):
        failing.launch(0)


def test_unknown_kernels_and_files_are_refused(api: CApi, open_c: Callable[..., CBundle], tmp_path: Path) -> None:
    with pytest.raises(CError, match="expected one of 1 kernels, got 'stranger'") as caught:
        open_c(kernel("add", **VECTOR_ADD)).kernel("stranger")
    assert caught.value.code == NO_KERNEL
    with pytest.raises(CError, match="No such file") as caught:
        api.open(tmp_path / "none.nojit")
    assert caught.value.code == SYSTEM
    with pytest.raises(CError, match=r"expected a regular file, got a folder") as caught:
        api.open(tmp_path)
    assert (caught.value.code, caught.value.rule) == (FORMAT, "magic")


def test_a_device_that_runs_no_image_is_refused(add: CKernel, fakecuda: FakeCuda) -> None:
    fakecuda.set_devices(80)
    with pytest.raises(CError, match=r"expected a device that runs sm_90a.*, got sm_80") as caught:
        add.launch(X, Y, 5)
    assert caught.value.code == NO_VARIANT


def test_failures_of_the_driver_are_told(add: CKernel, fakecuda: FakeCuda) -> None:
    fakecuda.fail("cuLaunchKernel", 1)
    with pytest.raises(CError, match="cuLaunchKernel failed, got CUDA_ERROR_INVALID_VALUE") as caught:
        add.launch(X, Y, 5)
    assert (caught.value.code, caught.value.driver_code) == (DRIVER, 1)


def test_without_a_driver_it_says_so(api: CApi, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "k.nojit", kernel("k", {"n": "i32"}))
    code = (
        "import sys; from pathlib import Path; from tests.support.capi import CApi; "
        "CApi().open(Path(sys.argv[1])).kernel('k').launch(5, grid=(1,))"
    )
    environment = os.environ | {"NOJIT_LIBCUDA": str(tmp_path / "none.so")}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], env=environment, capture_output=True, text=True, check=False
    )
    assert "expected a CUDA driver of version 12.0 or later" in ran.stderr


# -- what the caller gives -------------------------------------------------------------------------------------------


def test_a_bundle_lies_in_memory(api: CApi, fakecuda: FakeCuda, tmp_path: Path) -> None:
    data = make_bundle(tmp_path / "k.nojit", kernel("add", **VECTOR_ADD)).read_bytes()
    bundle = api.open_memory(data)
    bundle.kernel("add").launch(X, Y, 5)
    assert fakecuda.launch_count() == 1
    bundle.close()
    with pytest.raises(CError) as caught:
        api.open_memory(data[:-1])
    assert caught.value.code == INTEGRITY


def test_the_caller_decompresses(api: CApi, fakecuda: FakeCuda, tmp_path: Path) -> None:
    import zstandard

    sizes: list[int] = []

    def decompress(_user: Any, frame: int, frame_bytes: int, raw: int, raw_bytes: int) -> int:
        found = zstandard.ZstdDecompressor().decompress(ctypes.string_at(frame, frame_bytes))
        ctypes.memmove(raw, found, raw_bytes)
        sizes.append(raw_bytes)
        return 0

    path = make_bundle(tmp_path / "k.nojit", kernel("add", **VECTOR_ADD))
    options = Options.of(decompress=DECOMPRESS(decompress))
    bundle = api.open(path, options)
    bundle.kernel("add").launch(X, Y, 5)
    assert len(sizes) == 3  # the index, a section and a group
    assert fakecuda.launch_count() == 1
    bundle.close()
    with pytest.raises(CError, match="expected one whole zstd frame"):
        api.open(path, Options.of(decompress=DECOMPRESS(lambda *_: 1)))


def test_the_log_is_told_what_takes_time(open_c: Callable[..., CBundle]) -> None:
    told: list[tuple[Any, ...]] = []

    def take(_user: Any, event: Any) -> None:
        one = event.contents
        told.append((one.kind, one.device, one.kernel, one.variant, one.path, one.digest))
        assert 0 < one.nanoseconds < 60_000_000_000

    bundle = open_c(kernel("add", **VECTOR_ADD), options=Options.of(log=LOG(take)))
    add = bundle.kernel("add")
    add.launch(X, Y, 5, 256)
    opened, load, plan = 1, 2, 3
    variant = add.prepare(X, Y, 5, 256).about().variant
    assert variant > 0
    assert [one[:4] for one in told] == [
        (opened, -1, None, 0),
        (load, 0, b"add", variant),
        (plan, 0, b"add", variant),
    ]
    assert {one[5] for one in told} == {bundle.about().digest}
    assert {one[4][-8:] for one in told} == {b"/0.nojit"}


def test_a_verifier_judges_before_anything_is_parsed(api: CApi, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "k.nojit", kernel("add", **VECTOR_ADD))
    path.with_name("k.intoto.jsonl").write_bytes(b"the statement")
    claims: list[tuple[bytes, int, bytes]] = []

    def judge(_user: Any, claim: Any) -> int:
        one = claim.contents
        claims.append((one.path, len(one.digest), ctypes.string_at(one.statement, one.statement_bytes)))
        return 0

    api.open(path, Options.of(verify=VERIFY(judge))).close()
    assert claims == [(str(path).encode(), 64, b"the statement")]
    with pytest.raises(CError, match=r"nj_options.verify refuses the bundle - at|nj_options.verify refuses") as caught:
        api.open(path, Options.of(verify=VERIFY(lambda *_: 1)))
    assert caught.value.code == TRUST


@pytest.mark.parametrize(
    ("policy", "words"), [("signed", "which NOJIT_TRUST=signed needs"), ("", "expected any or signed")]
)
def test_signatures_that_nobody_verifies_are_refused(api: CApi, tmp_path: Path, policy: str, words: str) -> None:
    path = make_bundle(tmp_path / "k.nojit", kernel("add", **VECTOR_ADD))
    code = "import sys; from pathlib import Path; from tests.support.capi import CApi; CApi().open(Path(sys.argv[1]))"
    environment = os.environ | {"NOJIT_TRUST": policy}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], env=environment, capture_output=True, text=True, check=False
    )
    assert words in ran.stderr


def test_every_image_is_loaded_ahead(add: CKernel, fakecuda: FakeCuda) -> None:
    add.load(0)
    assert fakecuda.calls("cuLibraryLoadData") == 8
    add.launch(X, Y, 5)
    assert fakecuda.calls("cuLibraryLoadData") == 8
