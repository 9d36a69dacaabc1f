from __future__ import annotations

import pytest
from nojit.aot.types import ELEMENTS, axes_in, check_type, fill, is_hintable, is_optional, split_tuple
from nojit.runtime.errors import ManifestError


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_pointer_to_every_element(element):
    assert check_type(f"*{element}", "here") == f"*{element}"


@pytest.mark.parametrize(
    "spelling",
    ["i1", "u1", "i8", "i64", "u64", "fp16", "bf16", "fp32", "fp64", "none", "(*fp16,i32)", "((i32,i64),*fp32)",
     "tensordesc<fp16[128, 64]>", "tensordesc<bf16[64]>"],
)  # fmt: skip
def test_types_that_triton_has(spelling):
    assert check_type(spelling, "here") == spelling


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("*f16", "expected a pointer to a Triton dtype, such as '*fp16', got '*f16'; did you mean 'fp16'? - at here"),
        ("*fp8e4m3", "got '*fp8e4m3'; did you mean 'fp8e4nv'?"),
        ("**fp16", "got '**fp16'"),
        ("*", "got '*'"),
        ("int32", "expected a type in Triton's spelling, such as '*fp16' or 'i32', got 'int32'; did you mean 'i32'? - at here"),
        ("fp8e4nv", "got 'fp8e4nv'"),
        ("", "got ''"),
        ("i32 ", "got 'i32 '"),
        ("i32\n", "got 'i32\\n'"),
        ("*fp16?", "got '*fp16?'"),
        ("(i32,float)", "got 'float'"),
        ("tensordesc<f16[128]>", "got 'tensordesc<f16[128]>'"),
        ("tensordesc<fp16[]>", "got 'tensordesc<fp16[]>'"),
        ("tensordesc<fp16[-1]>", "got 'tensordesc<fp16[-1]>'"),
    ],
)  # fmt: skip
def test_types_that_it_has_not(spelling, message):
    with pytest.raises(ManifestError) as caught:
        check_type(spelling, "here")
    assert message in str(caught.value)


def test_axes():
    assert axes_in("*{dtype}") == ("dtype",)
    assert axes_in("({a},*{b})") == ("a", "b")
    assert axes_in("*fp16") == ()
    assert fill("({a},*{b}?)", {"a": "i32", "b": "fp16"}) == "(i32,*fp16?)"


def test_optional_is_the_last_mark():
    assert is_optional("*fp16?")
    assert not is_optional("*fp16")


@pytest.mark.parametrize(
    ("spelling", "members"),
    [
        ("()", []),
        ("(i32)", ["i32"]),
        ("(i32,)", ["i32"]),
        ("(*fp16, i32)", ["*fp16", "i32"]),
        ("((i32,i64),tensordesc<fp16[8, 8]>)", ["(i32,i64)", "tensordesc<fp16[8, 8]>"]),
    ],
)
def test_tuples_come_apart_at_their_own_commas(spelling, members):
    assert split_tuple(spelling) == members


@pytest.mark.parametrize(
    ("spelling", "hint", "hintable"),
    [
        ("*fp16", 16, True),
        ("*fp16", 1, False),
        ("i32", 16, True),
        ("i32", 1, True),
        ("u64", 1, True),
        ("i1", 1, False),
        ("fp32", 16, False),
        ("fp32", 1, False),
        ("none", 16, False),
    ],
)
def test_what_triton_specializes(spelling, hint, hintable):
    assert is_hintable(spelling, hint) is hintable
