"""What of a descriptor reaches a compiled kernel, in which order, with and without tensor maps."""

from __future__ import annotations

from typing import Any

import pytest
from nojit.aot.compile.triton.param_layout import layout_of, leaves_of, nested, passed_of, place_in, tensor_maps_of
from nojit.aot.variants.expand import expand_kernel
from nojit.runtime.bundle.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.table.parts import Slot, TensorMap

from tests.aot.entries import spec

PASSED = (("x", "i32"), ("a", "tensordesc<fp16[64,32]>"), ("t.1", "tensordesc<fp32[16]>"), ("t.2.0", "*kfp16"))
SCRATCH = [(GLOBAL_SCRATCH, "*i8"), (PROFILE_SCRATCH, "*i8")]


def slots(**how: bool) -> list[tuple[str, str]]:
    return [(slot.source, slot.type) for slot in layout_of(PASSED, **how)]  # type: ignore[arg-type]


def test_tensor_maps_with_shape_and_strides():
    assert slots(tensor_maps=True, rounds_tf32=True) == [
        ("x", "i32"),
        ("a.map", "tensormap"),
        ("a.shape.0", "i32"),
        ("a.shape.1", "i32"),
        ("a.stride.0", "i64"),
        ("a.stride.1", "i64"),
        ("t.1.map", "tensormap"),
        ("t.1.shape.0", "i32"),
        ("t.1.stride.0", "i64"),
        ("t.2.0", "*kfp16"),
        *SCRATCH,
    ]


@pytest.mark.parametrize("rounds_tf32", [False, True])
def test_descriptors_come_apart_without(rounds_tf32):
    flag = [("a.rounds_tf32", "i1")] if rounds_tf32 else []
    assert slots(tensor_maps=False, rounds_tf32=rounds_tf32)[1 : 11 + len(flag)] == [
        ("a.base", "*fp16"),
        ("a.shape.0", "i64"),
        ("a.shape.1", "i64"),
        ("a.stride.0", "i64"),
        ("a.stride.1", "i64"),
        ("a.pads_nan", "i1"),
        *flag,
        ("a.shape.0", "i32"),
        ("a.shape.1", "i32"),
        ("a.stride.0", "i64"),
        ("a.stride.1", "i64"),
    ]


def test_types_are_nested_as_triton_has_them():
    kind = "(a:(i32,*fp16),b:(x:i32,y:none))"
    found = nested(kind, (2,), {(2, 0, 0): 1, (2, 1, 1): None})
    assert found == (("constexpr", "*fp16"), ("i32", "constexpr"))
    assert (found._fields, found.b._fields, type(found.a)) == (("a", "b"), ("x", "y"), tuple)
    assert nested("i32", (0,), {}) == "i32"
    assert nested("", (0,), {(0,): 3}) == "constexpr"
    assert nested("()", (0,), {}) == ()
    assert place_in("x.1.0", ("n", "x")) == (1, 1, 0)


def test_what_is_passed():
    (variant, *_) = expand_kernel(
        spec(params={"x": "(a: *fp16?, b: (i32, i64))", "y": "none", "z": "i32"}, hints=[{"x.1.1": 1, "x.0": 16}]),
        "sm_90",
        "here",
    ).variants
    assert passed_of(("z", "BLOCK", "y", "x"), variant) == [("z", "i32"), ("x.0", "*fp16"), ("x.1.0", "i32")]
    assert list(leaves_of(variant)) == [
        ("x.0", "*fp16"),
        ("x.1.0", "i32"),
        ("x.1.1", "i64"),
        ("y", "none"),
        ("z", "i32"),
    ]


def test_nothing_passed_leaves_the_scratch_pointers():
    assert layout_of((), tensor_maps=False, rounds_tf32=False) == (
        Slot(GLOBAL_SCRATCH, "*i8"),
        Slot(PROFILE_SCRATCH, "*i8"),
    )


def entry(**facts: Any) -> dict[str, Any]:
    return {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [64, 32], "fp4_padded": False, **facts}


def test_tensor_maps_belong_to_the_descriptors_in_order():
    maps = tensor_maps_of(PASSED, [entry(), entry(swizzle=0, elem_size=4, elem_type=7, block_size=[16])])
    assert maps == (TensorMap("a", 3, 2, 6, (64, 32), False), TensorMap("t.1", 0, 4, 7, (16,), False))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([entry()], "expected 2 tensor maps, got 1"),
        ([entry()] * 3, "expected 2 tensor maps, got 3"),
        ([entry(), entry(is_im2col=True)], "got one for im2col, which nojit does not support"),
    ],
)
def test_metadata_that_fit_no_launch(metadata, message):
    with pytest.raises(ValueError, match=message):
        tensor_maps_of(PASSED, metadata)


@pytest.mark.triton
def test_element_types_are_numbered_as_tritons_launcher_numbers_them():
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    for theirs, host in TMA_DTYPE_DEVICE_TO_HOST.items():
        (found,) = tensor_maps_of(PASSED[1:2], [entry(elem_type=theirs)])
        assert found.element_type == host
