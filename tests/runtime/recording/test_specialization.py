"""What Triton's binder finds of a call, as a recorded specialization."""

from typing import NamedTuple

import numpy as np
import pytest
import triton.language as tl
from nojit.runtime.errors import ArgumentError
from nojit.runtime.recording.specialization import digest_of, functions_among, read_specialization
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.runtime.recording.programs import helpers, kernels

pytestmark = pytest.mark.triton


class Pair(NamedTuple):
    ptr: object
    n: int


class Tensor:
    """A tensor as Triton asks: an address and a dtype."""

    def __init__(self, address=4096, dtype="fp16"):
        self.address, self.dtype, self.shape = address, getattr(tl, {"fp16": "float16"}[dtype]), (256, 256)

    def data_ptr(self):
        return self.address

    def stride(self):
        return (256, 1)


def read(*args, function=kernels.kernel, **kwargs):
    kwargs = {"BLOCK": 64, **kwargs}
    backend = make_backend(GPUTarget("cuda", 90, 32))
    binder = create_function_from_signature(function.signature, function.params, backend)
    bound, found, options = binder(*args, **kwargs)
    return read_specialization(function, bound, found, options, arch="sm_90", closures={"": "c"})


@pytest.mark.parametrize(
    ("value", "kind", "hints"),
    [
        (Tensor(4096), "*fp16", [["x_ptr", 16]]),
        (Tensor(4098), "*fp16", []),
        (None, "none", []),
        (1, "i32", [["x_ptr", 1]]),
        (16, "i32", [["x_ptr", 16]]),
        (7, "i32", []),
        (1 << 31, "i64", [["x_ptr", 16]]),
        (1 << 63, "u64", [["x_ptr", 16]]),
        (True, "i1", []),
        (1.5, "fp32", []),
        (tl.constexpr(4), "=4", []),
        (tl.constexpr("silu"), "='silu'", []),
        (helpers.shift, "=function:tests.runtime.recording.programs.helpers:shift", []),
        ((Tensor(), 1, None), "(*fp16, i32, none)", [["x_ptr.0", 16], ["x_ptr.1", 1]]),
        (Pair(Tensor(2), 48), "(ptr: *fp16, n: i32)", [["x_ptr.1", 16]]),
        (TensorDescriptor(Tensor(), [256, 256], [256, 1], [64, 64]), "tensordesc<fp16[64,64]>", []),
    ],
)
def test_types_and_hints_are_those_of_tritons_binder(value, kind, hints):
    found = read(value, 7, 5)
    assert found["types"][0] == ["x_ptr", kind]
    assert [pair for pair in found["hints"] if pair[0].startswith("x_ptr")] == hints


def test_an_annotated_param_keeps_its_type_and_takes_no_one():
    found = read(Tensor(), 7, 1)
    assert found["types"][2] == ["m", "i64"]
    assert ["m", 1] not in found["hints"]


def test_defaults_are_constexprs_too():
    assert read(Tensor(), 7, 5)["constexprs"] == [["BLOCK", 64], ["DTYPE", {"dtype": "fp32"}], ["ACT", None]]


def test_only_options_that_the_call_passed_count():
    assert read(Tensor(), 7, 5, num_warps=8, debug=False, instrumentation_mode="")["options"] == [["num_warps", 8]]
    assert read(Tensor(), 7, 5, debug=True)["options"] == [["debug", True]]


def test_functions_are_found_in_tuples_too():
    assert functions_among({"a": (1, (helpers.shift,)), "b": tl.constexpr(kernels.squash)}) == {
        "tests.runtime.recording.programs.helpers:shift": helpers.shift,
        "tests.runtime.recording.programs.kernels:squash": kernels.squash,
    }


def test_numbers_of_numpy_are_numbers():
    assert read(Tensor(), 16, 5, BLOCK=np.int64(64))["constexprs"][0] == ["BLOCK", 64]


def test_a_constexpr_that_no_bundle_holds_is_an_error_that_names_it():
    with pytest.raises(ArgumentError, match="ACT of kernel kernel"):
        read(Tensor(), 7, 5, ACT=object())


def test_equal_calls_have_one_digest():
    assert digest_of(read(Tensor(512), 7, 5)) == digest_of(read(Tensor(1024), 9, 3))
    assert digest_of(read(Tensor(512), 7, 5)) != digest_of(read(Tensor(514), 7, 5))
