"""A table of wrong calls: what is no device tensor, what is of another type, what is missing or too much. None launches."""

from __future__ import annotations

import array
import ctypes
import gc
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime import loader
from nojit.runtime.errors import ArgumentError, NojitError, NoMatchingVariantError
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle
from tests.support.tensors import PointerTensor


class Holder:
    """Whatever attributes a test gives it."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def torch_tensor(device: str) -> Any:
    torch = pytest.importorskip("torch")
    return torch.zeros(4, dtype=torch.float16, device=device)


def numpy_array() -> Any:
    return pytest.importorskip("numpy").zeros(4, "float16")


def pointer(address: Any, **more: Any) -> Holder:
    return Holder(data_ptr=lambda: address, **{"dtype": "fp16", "device": "cuda:0"} | more)


def interface(**words: Any) -> Holder:
    return Holder(__cuda_array_interface__={"typestr": "<f2", "version": 3} | words)


# what stands where a *fp16 is expected, and what the error says of it
NO_TENSORS: dict[str, tuple[Callable[[], Any], str]] = {
    "numpy": (numpy_array, "got ndarray"),
    "torch on the host": (lambda: torch_tensor("cpu"), "got Tensor in host memory"),
    "torch without memory": (lambda: torch_tensor("meta"), "meta"),
    "memoryview": (lambda: memoryview(b"12"), "got memoryview"),
    "bytes": (lambda: b"12", "got bytes"),
    "array": (lambda: array.array("H", [1]), "got array"),
    "ctypes": (ctypes.c_uint16 * 4, "got c_ushort_Array_4"),
    "list": (lambda: [1], "got list"),
    "str": (lambda: "x", "got str"),
    "a type": (lambda: int, "got type"),
    "float": (lambda: 4096.0, "got float 4096.0"),
    "bool": (lambda: True, "got bool True"),
    "negative int": (lambda: -16, "got int -16"),
    "large int": (lambda: 2**64, "got int 18446744073709551616"),
    "pointer on the host": (lambda: pointer(16, device="cpu"), "in host memory"),
    "pointer without dtype": (lambda: Holder(data_ptr=lambda: 16), "no attribute 'dtype'"),
    "pointer of str": (lambda: pointer("x"), "an integer is required"),
    "pointer at address 0": (lambda: pointer(0, numel=lambda: 4), "with memory, got address 0"),
    "pointer that cannot count": (lambda: pointer(0, numel=lambda _: 4), "missing 1 required"),
    "negative pointer": (lambda: pointer(-5), "can't convert negative int"),
    "large pointer": (lambda: pointer(2**70), "too big"),
    "pointer of no dtype": (lambda: pointer(16, dtype="quaternion"), "Triton has no dtype quaternion"),
    "pointer that needs more": (lambda: Holder(data_ptr=lambda _: 16, dtype="fp16"), "missing 1 required"),
    "interface of str": (lambda: interface(data=("x", False)), "an integer is required"),
    "large interface": (lambda: interface(data=(2**70, False)), "too big"),
    "interface without data": (interface, "got Holder"),
    "interface of no dict": (lambda: Holder(__cuda_array_interface__=5), "got Holder"),
    "interface of no dtype": (lambda: interface(data=(16, False), typestr="<c8"), "got Holder"),
    "interface at address 0": (lambda: interface(data=(0, False), shape=(4, 1)), "with memory, got address 0"),
    "masked interface": (lambda: interface(data=(16, False), mask=object()), "an array without a mask"),
    "interface on a str": (lambda: interface(data=(16, False), stream="x"), "an integer is required"),
    "interface to nowhere": (lambda: interface(data=(0x7000_0000, False)), "got address 0x70000000"),
}

X: Any = PointerTensor(0x1000)
OTHER: Any = PointerTensor(0x1000, "torch.float32")

# a call that is wrong as a whole: its error, the argument that the error names, and what it says
WRONG_CALLS: dict[str, tuple[Callable[[Kernel], Any], type[NojitError], str, str]] = {
    "dtype": (lambda k: k[(1,)](OTHER, X, 1, 1.0), NoMatchingVariantError, "", r'x_dtype = \["fp16", "fp32"\]'),
    "both dtypes": (lambda k: k[(1,)](OTHER, OTHER, 1, 1.0), NoMatchingVariantError, "", "got a pointer to fp32"),
    "None": (lambda k: k[(1,)](None, X, 1, 1.0), NoMatchingVariantError, "", r'x = "\*fp16\?"'),
    "None for an int": (lambda k: k[(1,)](X, X, None, 1.0), NojitError, "", "n: expected i32, got None"),
    "tensor for an int": (lambda k: k[(1,)](X, X, X, 1.0), ArgumentError, "n", "expected i32, got a pointer"),
    "tensor for a float": (lambda k: k[(1,)](X, X, 1, X), ArgumentError, "scale", "expected fp32, got a pointer"),
    "None for a float": (lambda k: k[(1,)](X, X, 1, None), NojitError, "", "scale: expected fp32, got None"),
    "float for an int": (lambda k: k[(1,)](X, X, 1.0, 1.0), ArgumentError, "n", r"expected i32, got float 1\.0"),
    "nothing": (lambda k: k[(1,)](), ArgumentError, "x", "expected a value, got nothing"),
    "one missing": (lambda k: k[(1,)](X, X, 1), ArgumentError, "scale", "expected a value, got nothing"),
    "one name missing": (lambda k: k[(1,)](x=X, y=X, scale=1.0), ArgumentError, "n", "expected a value, got nothing"),
    "one too many": (lambda k: k[(1,)](X, X, 1, 1.0, 16, 5), ArgumentError, "", "at most 5 positional arguments, got 6"),
    "twice": (lambda k: k[(1,)](X, X, 1, 1.0, n=1), ArgumentError, "n", "one value, by position or by name"),
    "unknown": (lambda k: k[(1,)](X, X, 1, 1.0, scael=2.0), ArgumentError, "scael", "did you mean 'scale'"),
    "another config": (lambda k: k[(1,)](X, X, 1, 1.0, BLOCK=32), NoMatchingVariantError, "", "BLOCK = 32"),
    "other warps": (lambda k: k[(1,)](X, X, 1, 1.0, num_warps=8), NoMatchingVariantError, "", "num_warps = 8"),
    "warps as str": (lambda k: k[(1,)](X, X, 1, 1.0, num_warps="4"), NoMatchingVariantError, "", "num_warps is 4, got '4'"),
    "warps as bool": (lambda k: k[(1,)](X, X, 1, 1.0, num_warps=True), NoMatchingVariantError, "", "got True"),
    "tensor for a constexpr": (lambda k: k[(1,)](X, X, 1, 1.0, BLOCK=X), ArgumentError, "BLOCK", "got PointerTensor"),
    "grid of str": (lambda k: k["1"](X, X, 1, 1.0), ArgumentError, "", "a grid of 1 to 3 ints"),
    "grid of None": (lambda k: k[None](X, X, 1, 1.0), ArgumentError, "", "a grid of 1 to 3 ints"),
    "grid of a set": (lambda k: k[{1}](X, X, 1, 1.0), ArgumentError, "", "a grid of 1 to 3 ints"),
    "grid that is None": (lambda k: k[lambda _: None](X, X, 1, 1.0), ArgumentError, "", "a grid of 1 to 3 ints"),
    "stream": (lambda k: k[(1,)](X, X, 1, 1.0, stream=object()), ArgumentError, "stream", "expected a stream"),
    "stream that lies": (
        lambda k: k[(1,)](X, X, 1, 1.0, stream=Holder(cuda_stream="x")), ArgumentError, "stream", "expected a stream"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    params = {"x": "*fp16", "y": "*fp16", "n": "i32", "scale": "fp32", "BLOCK": "constexpr"}
    add = kernel("add", params, configs=[{"BLOCK": 16, "num_warps": 4}])
    return make_bundle(tmp_path_factory.mktemp("bundle") / "add.nojit", add)


@pytest.fixture
def add(bundle_path: Path) -> Kernel:
    return loader.load(bundle_path).kernel("add")


def refused(add: Kernel, call: Callable[[Kernel], Any], driver: FakeCuda) -> NojitError:
    """Make the call twice, the second time with all that the first has left in caches; return the second error."""
    errors = []
    for _ in range(2):
        with pytest.raises(NojitError) as caught:
            call(add)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert driver.launch_count() == 0
    return errors[1]


@pytest.mark.parametrize("case", NO_TENSORS)
def test_what_is_no_tensor_on_a_device_is_refused_by_name(add: Kernel, fakecuda: FakeCuda, case: str) -> None:
    make_value, words = NO_TENSORS[case]
    value = make_value()
    for place in ("x", "y"):
        arguments = {"x": X, "y": X} | {place: value}
        error = refused(add, lambda k, arguments=arguments: k[(1,)](**arguments, n=1, scale=1.0), fakecuda)
        assert isinstance(error, ArgumentError)
        assert error.argument == place
        assert words in str(error)
        assert "kernel add" in str(error)


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call_is_refused_and_says_why(add: Kernel, fakecuda: FakeCuda, case: str) -> None:
    call, kind, argument, words = WRONG_CALLS[case]
    error = refused(add, call, fakecuda)
    assert isinstance(error, kind)
    assert not argument or getattr(error, "argument", None) == argument
    with pytest.raises(kind, match=words):
        call(add)


def test_a_right_call_works_after_every_wrong_one(add: Kernel, fakecuda: FakeCuda) -> None:
    for make_value, _ in NO_TENSORS.values():
        with pytest.raises(NojitError):
            add[(1,)](make_value(), X, 1, 1.0)
    for call, _, _, _ in WRONG_CALLS.values():
        with pytest.raises(NojitError):
            call(add)
    add[(1,)](X, X, 1, 1.0, stream=0)
    assert fakecuda.launch_count() == 1


def test_wrong_calls_keep_nothing(add: Kernel, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    values = [make_value() for make_value, _ in NO_TENSORS.values()]
    objects = [*values, X, OTHER, add, faketorch.Tensor]

    def calls() -> None:
        for value in values:
            with pytest.raises(NojitError):
                add[(1,)](value, X, 1, 1.0)
        for call, _, _, _ in WRONG_CALLS.values():
            with pytest.raises(NojitError):
                call(add)

    for _ in range(3):
        calls()
    gc.collect()
    before = [sys.getrefcount(one) for one in objects]
    for _ in range(20):
        calls()
    gc.collect()
    after = [sys.getrefcount(one) for one in objects]
    # a reference that a call keeps would be there 20 times; other threads, too, use what all share: True, "x", int
    assert [place for place, (now, then) in enumerate(zip(after, before, strict=True)) if abs(now - then) >= 20] == []
    assert fakecuda.launch_count() == 0


class Interrupted:
    """A tensor or a stream whose every attribute raises."""

    def __init__(self, error: BaseException) -> None:
        self.__error = error

    def __getattr__(self, name: str) -> Any:
        raise self.__error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError()])
@pytest.mark.parametrize("place", ["x", "stream"])
def test_what_is_not_the_arguments_fault_comes_through(
    add: Kernel, fakecuda: FakeCuda, error: BaseException, place: str
) -> None:
    arguments = {"x": X, "stream": None} | {place: Interrupted(error)}
    with pytest.raises(type(error)):
        add[(1,)](**arguments, y=X, n=1, scale=1.0)
    assert fakecuda.launch_count() == 0


def test_the_cause_of_a_refusal_says_where_it_was_raised(add: Kernel, fakecuda: FakeCuda) -> None:
    with pytest.raises(ArgumentError) as caught:
        add[(1,)](Interrupted(ValueError("no")), X, 1, 1.0)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    frames = traceback.extract_tb(cause.__traceback__)
    assert [frame.name for frame in frames] == ["__getattr__"]
    assert fakecuda.launch_count() == 0
