"""Tuples and tensor descriptors in selection: each member is matched, hinted and reported as a param of its own."""

from __future__ import annotations

import pytest
from nojit.runtime.call.call_facts import (
    Argument,
    CallFacts,
    accepts,
    expression_value,
    leaf_of,
    mismatch,
    pointee,
    slot_kind,
)
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.explain.explanation import choose, explain
from nojit.runtime.expr import expression as expr
from nojit.runtime.table.parts import Axis, Case

from tests.runtime.explain.test_explanation import NOTHING, integer, make_table, pointer


def members(*items: Argument) -> Argument:
    return Argument("tuple", items=items)


def descriptor(dtype: str = "fp16", *block: int) -> Argument:
    return Argument("descriptor", block or (64, 64), dtype)


def test_what_types_say():
    assert (slot_kind("(i32)"), slot_kind("tensordesc<fp16[8]>"), slot_kind("i128")) == ("tuple", "descriptor", "")
    assert (pointee("*fp16"), pointee("*kfp16")) == ("fp16", "fp16")


@pytest.mark.parametrize(
    ("kind", "argument", "reason"),
    [
        ("(*fp16,i32)", members(pointer(16), integer(3)), ""),
        ("(*kfp16,i1)", members(pointer(16), Argument("bool", True)), ""),
        ("(i32,(none,fp32))", members(integer(3), members(NOTHING, Argument("float", 1.0))), ""),
        ("(tensordesc<fp16[64,64]>)", members(descriptor()), ""),
        ("()", members(), ""),
        ("(*fp16,i32)", integer(3), "expected (*fp16,i32), got int 3"),
        ("i32", members(integer(3)), "expected i32, got a tuple (int 3)"),
        ("(*fp16,i32)", members(pointer(16)), "expected 2 members in (*fp16,i32), got 1"),
        ("(i32,(i32,i8))", members(integer(1), members(integer(2), integer(300))), "member 1: member 1: expected i8, got int 300, which does not fit"),
        ("(i32,none)", members(integer(1), integer(1)), "member 1: expected none, got int 1"),
        ("*kfp16", pointer(16, "bf16"), "expected *kfp16, got a pointer to bf16"),
        ("tensordesc<fp16[64,64]>", descriptor(), ""),
        ("tensordesc<fp16[64,64]>", descriptor("bf16"), "expected tensordesc<fp16[64,64]>, got a tensor descriptor of bf16[64,64]"),
        ("tensordesc<fp16[64,64]>", descriptor("fp16", 64), "expected tensordesc<fp16[64,64]>, got a tensor descriptor of fp16[64]"),
        ("tensordesc<fp16[64,64]>", pointer(16), "expected tensordesc<fp16[64,64]>, got a pointer to fp16"),
        ("*fp16", descriptor(), "expected *fp16, got a tensor descriptor of fp16[64,64]"),
    ],
)  # fmt: skip
def test_what_a_slot_takes(kind, argument, reason):
    assert accepts(kind, argument) is not bool(reason)
    assert not reason or mismatch(kind, argument) == reason


def test_leaves_of_a_call():
    arguments = {"x": members(integer(1), members(integer(2))), "n": integer(3)}
    assert [leaf_of(arguments, path) for path in ("x.0", "x.1.0", "n")] == [integer(1), integer(2), integer(3)]
    assert [leaf_of(arguments, path) for path in ("x.2", "x.0.0", "y", "y.0")] == [None] * 4


@pytest.mark.parametrize("argument", [members(integer(1)), descriptor()])
def test_expressions_see_of_what_is_no_number_only_that_it_is_there(argument):
    assert expression_value(argument) is expr.UNSEEN


TUPLES = {
    "params": {"x": "(*fp16,i32)"},
    "hints": ((("x.0", 16), ("x.1", 1)), (("x.0", 16),), ()),
}


@pytest.mark.parametrize(("address", "number", "hints"), [(32, 1, 0), (32, 2, 1), (8, 1, 2)])
def test_hints_on_members(address, number, hints):
    table = make_table(**TUPLES)
    facts = CallFacts({"x": members(pointer(address), integer(number))})
    assert table.columns["hints"][choose(table, facts).row] == hints


def test_reasons_name_the_member():
    facts = CallFacts({"x": members(pointer(8), integer(2))})
    reasons = [reason for _, reason in explain(make_table(**TUPLES), facts).rejected]
    assert reasons == ["expects x.0 divisible by 16, got 0x8", "expects x.0 divisible by 16, got 0x8; expects x.1 equal to 1, got int 2"]  # fmt: skip


def test_a_hint_on_a_member_that_the_call_has_not_does_not_hold():
    table = make_table(
        {"x": "(i32)"},
        signatures=(("(i32,i32)",), ("(i32)",)),
        cases=[Case(0, ()), Case(1, ())],
        hints=((("x.1", 16),), ()),
    )
    row = choose(table, CallFacts({"x": members(integer(16))})).row
    assert table.key(row)[0] == 1
    assert table.columns["hints"][row] == 1


def test_narrower_members_win():
    table = make_table(
        {"x": "(i32,i32)"},
        signatures=(("(i64,i64)",), ("(i32,i64)",), ("(i32,i32)",)),
        cases=[Case(0, ()), Case(1, ()), Case(2, ())],
    )
    assert [
        table.key(choose(table, CallFacts({"x": members(integer(a), integer(b))})).row)[0]
        for a, b in ((1, 1), (1, 1 << 40), (1 << 40, 1))
    ] == [2, 1, 0]


def test_the_block_shape_and_dtype_of_a_descriptor_decide():
    signatures = (("tensordesc<fp16[64,64]>",), ("tensordesc<fp16[128,64]>",), ("tensordesc<bf16[64,64]>",))
    table = make_table(
        {"x": "tensordesc<{dtype}[{ROWS},64]>"},
        signatures=signatures,
        cases=[Case(number, ()) for number in range(3)],
    )
    for number, argument in enumerate((descriptor(), descriptor("fp16", 128, 64), descriptor("bf16"))):
        assert table.key(choose(table, CallFacts({"x": argument})).row)[0] == number
    with pytest.raises(NoMatchingVariantError, match=r'needs x = "tensordesc<fp16\[32,64\]>"'):
        choose(table, CallFacts({"x": descriptor("fp16", 32, 64)}))
    # where the call leaves the block to the config, zeros are no block to build
    with pytest.raises(NoMatchingVariantError, match=r'needs x = "tensordesc<fp32\[64,64\]>"'):
        choose(table, CallFacts({"x": descriptor("fp32", 0, 0)}))
    with pytest.raises(NoMatchingVariantError, match=r'needs x = "tensordesc<fp16\[\.\.\.\]>"'):
        choose(table, CallFacts({"x": descriptor("fp16", 0)}))


@pytest.mark.parametrize(
    ("argument", "remedy"),
    [
        (members(pointer(0), integer(1), integer(2)), 'x = "(*fp16,i32,i32)"'),
        (members(pointer(0, "bf16"), integer(1 << 40)), 'x = "(*bf16,i64)"'),
        (members(NOTHING, Argument("float", 1.0)), 'x = "(none,fp32)"'),
        (members(members(Argument("bool", True)), integer(1 << 63)), 'x = "((i1),u64)"'),
        (members(descriptor(), integer(1)), 'x = "(tensordesc<fp16[64,64]>,i32)"'),
        (NOTHING, 'x = "(*fp16,i32)?"'),
    ],
)
def test_says_what_would_build_a_variant_for_a_tuple(argument, remedy):
    with pytest.raises(NoMatchingVariantError) as caught:
        choose(make_table(**TUPLES), CallFacts({"x": argument}))
    assert f"its manifest needs {remedy}" in str(caught.value)


@pytest.mark.parametrize("argument", [integer(1), descriptor(), pointer(16)])
def test_what_is_no_tuple_is_refused_at_once(argument):
    with pytest.raises(ArgumentError, match=r"x: expected \(\*fp16,i32\), got "):
        choose(make_table(**TUPLES), CallFacts({"x": argument}))


def test_an_address_without_a_type_in_a_tuple():
    table = make_table(
        {"x": "(*{dtype},i32)"},
        axes=(Axis("dtype", is_type=True, values=("fp16", "bf16")),),
        signatures=(("(*fp16,i32)",), ("(*bf16,i32)",)),
        cases=[Case(0, (0,)), Case(1, (1,))],
    )
    with pytest.raises(
        ArgumentError, match=r"x\.0: expected a typed pointer, one of \*bf16, \*fp16; pass a tensor, got an untyped"
    ):
        choose(table, CallFacts({"x": members(pointer(0, ""), integer(1))}))
    assert choose(table, CallFacts({"x": members(pointer(0, "bf16"), integer(1))})).row == 1


def test_pointers_to_constants_need_no_typed_address():
    table = make_table({"x": "*fp16"}, signatures=(("*fp16",), ("*kfp16",)), cases=[Case(0, ()), Case(1, ())])
    assert choose(table, CallFacts({"x": pointer(0, "")})).row == 0
