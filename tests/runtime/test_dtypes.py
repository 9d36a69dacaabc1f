"""A dtype as a constexpr: in whatever spelling a call gives it, it is the one that was built."""

from __future__ import annotations

from typing import Any

import pytest
from nojit.runtime import _core
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.kernel import Kernel
from nojit.runtime.serve.standin import dtypes as standin_dtypes
from nojit.runtime.types.names import dtype_name, element_name
from nojit.runtime.values import DType

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make

# of each of Triton's dtypes, what else a call may say
SPELLINGS: dict[str, tuple[str, ...]] = {
    "fp16": ("fp16", "float16", "torch.float16", "half"),
    "bf16": ("bf16", "bfloat16", "torch.bfloat16"),
    "fp32": ("fp32", "float32", "float"),
    "int8": ("i8", "int8", "torch.int8"),
    "int32": ("i32", "int32"),
    "uint8": ("u8", "uint8"),
    "int1": ("i1", "bool", "int1"),
    "fp8e4nv": ("fp8e4nv", "float8_e4m3fn"),
}


@pytest.fixture
def cast(make: Make) -> Kernel:
    return make({"n": "i32", "TO": "constexpr"}, matrix={"TO": [DType(name) for name in SPELLINGS]}, grid=["n"])


def launched(kernel: Kernel, fakecuda: FakeCuda, to: Any) -> int:
    kernel(5, TO=to)
    return fakecuda.last_launch().kernel


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_string_is_the_dtype_that_it_spells(cast: Kernel, fakecuda: FakeCuda, name: str) -> None:
    built = launched(cast, fakecuda, DType(name))
    for spelled in SPELLINGS[name]:
        assert [launched(cast, fakecuda, spelled) for _ in range(2)] == [built] * 2
        assert cast.explain(5, TO=spelled, arch="sm_90").case == {"TO": DType(name)}
        assert cast.bind((1,), TO=spelled)(5) is None
        assert fakecuda.last_launch().kernel == built
    assert len({launched(cast, fakecuda, DType(other)) for other in SPELLINGS}) == len(SPELLINGS)


def test_a_spelling_is_decided_once(cast: Kernel, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    spelled = [each for name in ("fp16", "bf16") for each in SPELLINGS[name]]
    for each in spelled:
        cast(5, TO=each)
    monkeypatch.setattr(Kernel, "_plan_of", None)
    for each in spelled:
        cast(5, TO=each)


def test_dtypes_of_frameworks_are_tritons(cast: Kernel, fakecuda: FakeCuda) -> None:
    torch, np = pytest.importorskip("torch"), pytest.importorskip("numpy")
    same: dict[str, tuple[Any, ...]] = {
        "fp16": (torch.float16, np.float16, np.dtype("float16")),
        "bf16": (torch.bfloat16,),
        "fp32": (torch.float32, torch.float, np.float32),
        "int8": (torch.int8, np.int8, np.dtype("int8")),
        "int32": (torch.int32, np.int32),
        "uint8": (torch.uint8, np.uint8),
        "int1": (torch.bool, np.bool_, np.dtype("bool")),
        "fp8e4nv": (torch.float8_e4m3fn,),
    }
    for name, given in same.items():
        built = launched(cast, fakecuda, DType(name))
        assert [launched(cast, fakecuda, each) for each in given * 2] == [built] * (2 * len(given))


def test_tritons_own_dtypes_are_taken(cast: Kernel, fakecuda: FakeCuda) -> None:
    tl = pytest.importorskip("triton.language")
    for name in SPELLINGS:
        built = launched(cast, fakecuda, DType(name))
        assert launched(cast, fakecuda, tl.dtype(name)) == built
        assert launched(cast, fakecuda, tl.constexpr(tl.dtype(name))) == built


def test_a_string_stays_one_where_strings_were_built(make: Make, fakecuda: FakeCuda) -> None:
    words = make({"n": "i32", "MODE": "constexpr"}, matrix={"MODE": ["bf16", "gelu"]}, grid=["n"])
    words(5, MODE="bf16")
    for other in ("bfloat16", DType("bf16")):
        with pytest.raises(NoMatchingVariantError):
            words(5, MODE=other)
    both = make({"n": "i32", "TO": "constexpr"}, matrix={"TO": ["bf16", DType("bf16"), DType("fp16")]}, grid=["n"])
    kernels = [launched(both, fakecuda, mode) for mode in ("bf16", DType("bf16"), DType("fp16"))] * 2
    assert len(set(kernels)) == 3
    with pytest.raises(NoMatchingVariantError):
        both(5, TO="fp16")


def test_one_spelling_may_be_a_string_of_one_constexpr_and_a_dtype_of_another(make: Make, fakecuda: FakeCuda) -> None:
    params = {"n": "i32", "MODE": "constexpr", "TO": "constexpr"}
    add = make(params, matrix={"MODE": ["bf16", "bfloat16"], "TO": [DType("bf16"), DType("fp16")]}, grid=["n"])
    chosen = {}
    for mode in ("bf16", "bfloat16"):
        for to in ("bf16", "bfloat16", "fp16", DType("bf16")):
            for _ in range(2):
                add(5, MODE=mode, TO=to)
                chosen.setdefault((mode, "fp16" if to == "fp16" else "bf16"), set()).add(fakecuda.last_launch().kernel)
    assert [len(kernels) for kernels in chosen.values()] == [1] * 4
    assert len(set.union(*chosen.values())) == 4
    for mode in (DType("bf16"), "fp16"):
        with pytest.raises(NoMatchingVariantError):
            add(5, MODE=mode, TO="bf16")


def test_dtypes_of_configs_and_of_tuples_may_be_spelled_too(make: Make, fakecuda: FakeCuda) -> None:
    params = {"n": "i32", "ACC": "constexpr"}
    add = make(params, configs=[{"ACC": DType("fp16")}, {"ACC": DType("fp32")}], grid=["n"])
    assert launched_with(add, fakecuda, ACC="float32") == launched_with(add, fakecuda, ACC=DType("fp32"))
    assert launched_with(add, fakecuda, ACC="fp16") != launched_with(add, fakecuda, ACC="float32")
    pairs = [(DType("fp16"), 1), (DType("fp32"), 1)]
    pair = make({"n": "i32", "PAIR": "constexpr"}, matrix={"PAIR": pairs}, grid=["n"])
    for built in pairs:
        assert launched_with(pair, fakecuda, PAIR=(built[0].name, 1)) == launched_with(pair, fakecuda, PAIR=built)


def launched_with(kernel: Kernel, fakecuda: FakeCuda, **named: Any) -> int:
    kernel(5, **named)
    return fakecuda.last_launch().kernel


def test_derived_constexprs_see_one_name_whatever_the_spelling(make: Make, fakecuda: FakeCuda) -> None:
    params = {"n": "i32", "TO": "constexpr", "WIDE": "constexpr"}
    add = make(
        params, matrix={"TO": [DType("bf16"), DType("fp32")]}, derived={"WIDE": "TO == 'fp32' and n > 3"}, grid=["n"]
    )
    for n in (2, 5):
        for name, spelled in (("bf16", "bfloat16"), ("fp32", "float32"), ("fp32", "torch.float32")):
            kernels = set()
            for to in (DType(name), spelled, DType(name), spelled):
                add(n, TO=to)
                kernels.add(fakecuda.last_launch().kernel)
            assert len(kernels) == 1


def test_variants_of_a_dtype_are_loaded_ahead(cast: Kernel, fakecuda: FakeCuda) -> None:
    assert cast.preload(only={"TO": "bfloat16"}) == 1
    assert cast.preload(only={"TO": ["bf16", "float16"]}) == 2
    loads = fakecuda.calls("cuLibraryLoadData")
    cast(5, TO="half")
    assert fakecuda.calls("cuLibraryLoadData") == loads
    with pytest.raises(ArgumentError, match="only: expected TO to be"):
        cast.preload(only={"TO": "fp64"})


def test_a_dtype_that_was_not_built_is_said_as_one(cast: Kernel) -> None:
    for to in ("fp64", "float64"):
        with pytest.raises(NoMatchingVariantError, match=r'TO = \[.*{ dtype = "fp64" }\]'):
            cast(5, TO=to)
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"expected a dtype that Triton has, got torch.complex64 - at constexpr TO"):
        cast(5, TO=torch.complex64)
    with pytest.raises(NoMatchingVariantError, match="'quaternion'"):
        cast(5, TO="quaternion")


@pytest.mark.parametrize("name", ["|b1", "|i1", "torch.|u1", "<f4", "", "Float32", "numpy.float32", "fp16 "])
def test_what_names_no_dtype_is_none(name: str) -> None:
    assert element_name(name) is None
    assert dtype_name(name) is None


def test_the_stand_in_has_every_dtype_of_the_engine() -> None:
    known = {dtype_name(name) for name, *_ in _core.dtypes()}
    assert {*standin_dtypes.DType.SINT_TYPES, *standin_dtypes.DType.UINT_TYPES, *standin_dtypes.DType.FP_TYPES} == known
