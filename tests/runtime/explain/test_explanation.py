import itertools
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.explain.explanation import Argument, CallFacts, accepts, best, choose, explain
from nojit.runtime.explain.selection import Selection
from nojit.runtime.expr.postfix import postfix
from nojit.runtime.table.parts import MISSING, Axis, Case, Config, Derived, Launch, Param
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable
from nojit.runtime.tuning.lookup import Lookup, TuningDecision
from nojit.runtime.values import DType, identity

from tests.reference.selection import serving
from tests.support.tables import held


def pointer(address, dtype="fp16"):
    return Argument("pointer", address, dtype)


def integer(value):
    return Argument("int", value)


NOTHING = Argument("none")


def config(requires="", options=(("num_warps", 4),), **constexprs):
    return Config(tuple(constexprs.items()), tuple(options), requires)


def make_table(params, *, axes=(), cases=None, signatures=None, configs=(), hints=((),), derived=(), keep=None):
    """A table of the full product, or of the key tuples that `keep` keeps.

    Args:
        params: name to type, ``constexpr``, or ``(constexpr, default)``.
        derived: ``(name, expression, values)``.
    """
    runtime = [kind for kind in params.values() if isinstance(kind, str) and kind != "constexpr"]
    signatures = tuple(signatures or (tuple(runtime),))
    if cases is None:
        points = itertools.product(*(range(len(axis.values)) for axis in axes))
        cases = [Case(0, point) for point in points]
    derived_values = tuple(itertools.product(*(values for _, _, values in derived)))
    configs = tuple(configs) or (config(),)
    pools = (cases, configs, hints, derived_values)
    keys = [key for key in itertools.product(*map(range, map(len, pools))) if keep is None or keep(key)]
    columns = {name: array("I", [0] * len(keys)) for name in _core.COLUMNS}
    for place, name in enumerate(_core.COLUMNS[:4]):
        columns[name] = array("I", [key[place] for key in keys])
    given = [axis.name for axis in axes if not axis.is_type] + [name for name, _, _ in derived]
    given += [name for config in configs for name, _ in config.constexprs]
    params = dict(params) | {name: "constexpr" for name in given if name not in params}
    table = KernelTable(
        kernel="add",
        params=tuple(
            Param(name, kind == "constexpr" or isinstance(kind, tuple), kind[1] if isinstance(kind, tuple) else MISSING)
            for name, kind in params.items()
        ),
        grid=(),
        tuning=None,
        axes=tuple(axes),
        derived=tuple(Derived(name, expression) for name, expression, _ in derived),
        signatures=signatures,
        cases=tuple(cases),
        configs=configs,
        hint_sets=tuple(tuple(hint_set) for hint_set in hints),
        derived_values=derived_values,
        launches=(Launch("add", (), 4, 1, 0, 0, 1, 0, 1, False, False),),
        programs=(),
        columns=columns,
    )
    return held(replace(table, programs=tuple(map(postfix, table.expressions()))))


def by_dtype(*dtypes, **kwargs):
    """x_ptr: *{dtype}, n: i32."""
    axis = Axis("dtype", is_type=True, values=dtypes)
    return make_table(
        {"x_ptr": "*{dtype}", "n": "i32", **kwargs.pop("params", {})},
        axes=(axis, *kwargs.pop("axes", ())),
        signatures=tuple((f"*{dtype}", "i32") for dtype in dtypes),
        cases=kwargs.pop("cases", None) or [Case(i, (i,)) for i in range(len(dtypes))],
        **kwargs,
    )


def call(x=None, n=None, **rest):
    constexprs = rest.pop("constexprs", {})
    options = rest.pop("options", {})
    return CallFacts({"x_ptr": x or pointer(4096), "n": n or integer(100), **rest}, constexprs, options)


def chosen(table, facts):
    return table.key(choose(table, facts).row)


def preferring(*orders):
    """Make a tuning that orders the configs of each case thus, whatever the call."""
    device = TunedDevice("a device", "sm_90", 132, 1 << 37)
    blocks = [
        TuningBlock.of((case,), (TuningRow((1,), order, (0,) * len(order)),))
        for case, order in enumerate(orders)
        if order
    ]
    table = TuningTable(device, tuple(blocks))
    return Lookup(Tuning(("n",), "exact", (table,)), table, "here")


# --- slots


@pytest.mark.parametrize(
    ("slot", "argument", "fits"),
    [
        ("*fp16", pointer(0, "fp16"), True),
        ("*fp16", pointer(0, "bf16"), False),
        ("*fp16", pointer(0, ""), True),
        ("*fp16", integer(0), False),
        ("*fp16", NOTHING, False),
        ("none", NOTHING, True),
        ("none", pointer(0), False),
        ("none", integer(0), False),
        ("i32", integer((1 << 31) - 1), True),
        ("i32", integer(1 << 31), False),
        ("i32", integer(-(1 << 31)), True),
        ("i32", integer(-(1 << 31) - 1), False),
        ("i64", integer(1 << 31), True),
        ("i64", integer(1 << 63), False),
        ("u64", integer(1 << 63), True),
        ("u64", integer((1 << 64) - 1), True),
        ("u64", integer(1 << 64), False),
        ("u64", integer(-1), False),
        ("i8", integer(127), True),
        ("i8", integer(128), False),
        ("u8", integer(255), True),
        ("u16", integer(65_536), False),
        ("i32", Argument("bool", True), False),
        ("i32", Argument("float", 1.0), False),
        ("i32", NOTHING, False),
        ("i1", Argument("bool", True), True),
        ("u1", Argument("bool", False), True),
        ("i1", integer(1), False),
        ("fp32", Argument("float", 1.0), True),
        ("bf16", Argument("float", float("nan")), True),
        ("fp64", integer(1), False),
        ("fp16", Argument("bool", True), False),
        ("(*fp16,i32)", NOTHING, False),
        ("tensordesc<fp16[64,64]>", Argument("descriptor"), False),
        # a constant of more than 63 bits is that number alone
        ("=18446744073709551615", integer((1 << 64) - 1), True),
        ("=18446744073709551615", integer(-1), False),
        ("=9223372036854775808", integer(1 << 62), False),
        ("=-9223372036854775809", integer(-(1 << 63) - 1), False),
        # texts that name no type
        ("='open", Argument("constant", "open"), False),
        ("=none", NOTHING, False),
        ("fp8e5", Argument("float", 1.0), False),
        ("i128", integer(0), False),
        ("tensordesc<fp16[0]>", Argument("descriptor", (0,), "fp16"), False),
    ],
)
def test_accepts(slot, argument, fits):
    assert accepts(slot, argument) is fits


@pytest.mark.parametrize(
    ("kind", "argument", "hint", "holds"),
    [
        ("i32", integer(1), 1, True),
        ("i32", integer(-1), 1, False),
        ("i32", integer(-32), 16, True),
        ("u64", integer((1 << 64) - 16), 16, True),
        ("*fp16", pointer(1), 1, False),
        ("i1", Argument("bool", True), 1, False),
        ("fp32", Argument("float", 1.0), 1, False),
        ("none", NOTHING, 16, False),
        ("fp32", Argument("float", 16.0), 16, False),
        ("i1", Argument("bool", False), 16, False),
        ("tensordesc<fp16[8]>", Argument("descriptor", (8,), "fp16"), 16, False),
    ],
)
def test_hint_holds(kind, argument, hint, holds):
    table = make_table({"x": kind}, hints=((("x", hint),),))
    assert Selection(table, CallFacts({"x": argument})).engine.failing(0) == (() if holds else (0,))


# --- case


def test_the_pointer_type_decides():
    table = by_dtype("fp16", "bf16")
    assert chosen(table, call(pointer(16, "bf16"))) == (1, 0, 0, 0)
    assert chosen(table, call(pointer(16, "fp16"))) == (0, 0, 0, 0)


CAUSAL = Axis("CAUSAL", is_type=False, values=(False, True))


def test_a_matrix_constexpr_takes_the_given_value_then_the_default():
    table = make_table({"n": "i32", "CAUSAL": ("constexpr", True)}, axes=(CAUSAL,))
    n = {"n": integer(1)}
    assert chosen(table, CallFacts(n))[0] == 1
    assert chosen(table, CallFacts(n, {"CAUSAL": False}))[0] == 0


def test_a_matrix_constexpr_without_value_is_an_error():
    table = make_table({"n": "i32", "CAUSAL": "constexpr"}, axes=(CAUSAL,))
    with pytest.raises(
        ArgumentError, match="expected a value for CAUSAL, one of False, True - at kernel add"
    ) as caught:
        choose(table, CallFacts({"n": integer(1)}))
    assert caught.value.argument == "CAUSAL"


@pytest.mark.parametrize(
    ("value", "row"), [(True, 0), (1, 1), (1.0, 2), ("1", 3), (None, 4), (DType("fp16"), 5), ("fp16", 6), (-0.0, 7)]
)
def test_constexprs_compare_by_type_and_value(value, row):
    axis = Axis("V", is_type=False, values=(True, 1, 1.0, "1", None, DType("fp16"), "fp16", -0.0, 0.0))
    table = make_table({"V": "constexpr"}, axes=(axis,))
    assert choose(table, CallFacts({}, {"V": value})).row == row


def test_none_takes_only_slots_compiled_for_none():
    table = make_table({"b_ptr": "*fp16"}, signatures=(("*fp16",), ("none",)), cases=[Case(0, ()), Case(1, ())])
    assert chosen(table, CallFacts({"b_ptr": NOTHING}))[0] == 1
    assert chosen(table, CallFacts({"b_ptr": pointer(0)}))[0] == 0


WIDTHS = (("i64", "i64"), ("i64", "i32"), ("i32", "i32"))


@pytest.mark.parametrize(("m", "n", "signature"), [(1, 1, 2), (1 << 40, 1, 1), (1, 1 << 40, 0), (1 << 40, 1 << 40, 0)])
def test_narrower_ints_win_before_configs_and_hints(m, n, signature):
    hints = ((), (("m", 1),))
    table = make_table(
        {"m": "i64", "n": "i64"},
        signatures=WIDTHS,
        cases=[Case(i, ()) for i in range(3)],
        configs=(config(B=1), config(B=2)),
        hints=hints,
        # the narrowest has only the second config, and no hints
        keep=lambda key: key[0] != 2 or (key[1] == 1 and key[2] == 0),
    )
    row = chosen(table, CallFacts({"m": integer(m), "n": integer(n)}))
    assert row[0] == signature
    assert row[1] == (1 if signature == 2 else 0)


def test_wider_ints_serve_where_the_narrow_ones_have_no_variant():
    table = make_table(
        {"n": "i32"},
        signatures=(("i32",), ("i64",)),
        cases=[Case(0, ()), Case(1, ())],
        hints=((), (("n", 16),)),
        keep=lambda key: key[0] == 1 or key[2] == 1,
    )
    assert chosen(table, CallFacts({"n": integer(32)})) == (0, 0, 1, 0)
    assert chosen(table, CallFacts({"n": integer(33)})) == (1, 0, 0, 0)


# --- configs and hints

CONFIGS = (config(BLOCK=128), config(BLOCK=64), config(BLOCK=64, options=(("num_warps", 8),)))


def with_configs(**kwargs):
    return by_dtype("fp16", params={"BLOCK": "constexpr"}, configs=CONFIGS, **kwargs)


@pytest.mark.parametrize(
    ("preference", "considered"),
    [((2, 0), (2, 0, 1)), ((1,), (1, 0, 2)), ((), (0, 1, 2))],
)
def test_configs_go_by_preference_then_by_order(preference, considered):
    assert choose(with_configs(), call(), preferring(preference)).considered == considered


@pytest.mark.parametrize(
    ("constexprs", "options", "row"),
    [({"BLOCK": 64}, {}, 1), ({"BLOCK": 64}, {"num_warps": 8}, 2), ({}, {"num_warps": 8}, 2), ({"BLOCK": 128}, {}, 0)],
)
def test_the_callers_config_overrides_the_preference(constexprs, options, row):
    assert choose(with_configs(), call(constexprs=constexprs, options=options), preferring((0, 1, 2))).row == row


@pytest.mark.parametrize("value", [64.0, "64", True])
def test_the_callers_config_compares_by_type(value):
    table = by_dtype("fp16", params={"BLOCK": "constexpr"}, configs=(config(BLOCK=64), config(BLOCK=1)))
    with pytest.raises(NoMatchingVariantError, match="BLOCK is 64, got"):
        choose(table, call(constexprs={"BLOCK": value}))


def test_a_config_that_leaves_a_constexpr_out_was_built_with_its_default():
    table = by_dtype("fp16", params={"GROUP": ("constexpr", 1)}, configs=(config(), config(GROUP=8)))
    assert choose(table, call(constexprs={"GROUP": 8})).row == 1
    assert choose(table, call(constexprs={"GROUP": 1})).considered == (0,)


HINTS = ((), (("x_ptr", 16),), (("n", 16), ("x_ptr", 16)), (("n", 1), ("x_ptr", 16)))


@pytest.mark.parametrize(
    ("address", "n", "hints"),
    [
        (4096, 32, 2),
        (4096, 0, 2),
        (4096, -16, 2),
        (4096, 33, 1),
        (4096, 1, 3),
        (4098, 32, 0),
        (4104, 1, 0),
        ((1 << 64) - 16, 7, 1),
    ],
)
def test_most_hints_that_hold_win(address, n, hints):
    table = by_dtype("fp16", hints=HINTS)
    assert chosen(table, call(pointer(address), integer(n)))[2] == hints


def test_configs_come_before_hints():
    table = with_configs(hints=HINTS, keep=lambda key: key[1] != 1 or key[2] == 0)
    assert table.key(choose(table, call(n=integer(32)), preferring((1,))).row) == (0, 1, 0, 0)


def test_requires():
    configs = (config("aligned(x_ptr, 16) and n >= BLOCK and dtype == 'fp16'", BLOCK=64), config(BLOCK=32))
    table = by_dtype("fp16", "bf16", params={"BLOCK": "constexpr"}, configs=configs)
    assert chosen(table, call(n=integer(64)))[1] == 0
    assert chosen(table, call(n=integer(63)))[1] == 1
    assert chosen(table, call(pointer(4104), integer(64)))[1] == 1
    assert chosen(table, call(pointer(4096, "bf16"), integer(64)))[1] == 1


def test_requires_sees_options_defaults_and_arch():
    requires = "num_warps == 4 and GROUP == 1 and arch == 90"
    table = by_dtype("fp16", params={"GROUP": ("constexpr", 1)}, configs=(config(requires), config(GROUP=2)))
    assert chosen(table, replace(call(), arch=90))[1] == 0
    assert chosen(table, replace(call(), arch=100))[1] == 1
    assert chosen(table, call())[1] == 1


@pytest.mark.parametrize("requires", ["n * 9223372036854775807 > 0", "n // 0 == 0", "n", "m == 1", "x_ptr == 0"])
def test_requires_that_cannot_be_evaluated_does_not_hold(requires):
    table = by_dtype("fp16", configs=(config(requires), config(options=(("num_warps", 8),))))
    assert chosen(table, call())[1] == 1


EVEN_K = ("EVEN_K", "n % BLOCK == 0", (True, False))


@pytest.mark.parametrize(("n", "even_128", "even_64"), [(4096, True, True), (4160, False, True), (4112, False, False)])
def test_derived_constexprs_follow_the_call_and_the_config(n, even_128, even_64):
    table = by_dtype(
        "fp16",
        params={"BLOCK": "constexpr", "EVEN_K": "constexpr"},
        configs=(config(BLOCK=128), config(BLOCK=64)),
        derived=(EVEN_K,),
    )
    considered = [table.constexprs(row) for row in choose(table, call(n=integer(n))).considered]
    assert [(values["BLOCK"], values["EVEN_K"]) for values in considered] == [(128, even_128), (64, even_64)]


def test_derived_values_compare_by_type():
    table = by_dtype("fp16", params={"ONE": "constexpr"}, derived=(("ONE", "n // n", (True, 1.0, 1)),))
    assert chosen(table, call())[3] == 2


def test_a_derived_value_that_cannot_be_evaluated_fits_nothing():
    table = by_dtype("fp16", params={"D": "constexpr"}, derived=(("D", "1 // (n - 100) == 0", (True, False)),))
    with pytest.raises(NoMatchingVariantError, match=r"D is '1 // .*', which cannot be evaluated: division by zero"):
        choose(table, call(n=integer(100)))


# --- refusals


@pytest.mark.parametrize(
    ("facts", "message", "argument"),
    [
        (CallFacts({"x_ptr": pointer(0)}), "missing argument 'n'", "n"),
        (call(m=integer(1)), "unexpected argument 'm'", "m"),
        (call(constexprs={"BLOK": 1}), "unexpected argument 'BLOK'; did you mean 'BLOCK'?", "BLOK"),
        (call(constexprs={"n": 1}), "unexpected argument 'n'", "n"),
        (call(constexprs={"dtype": "fp16"}), "unexpected argument 'dtype'", "dtype"),
        (call(options={"num_warp": 1}), "unexpected argument 'num_warp'; did you mean 'num_warps'?", "num_warp"),
        (call(constexprs={"EVEN_K": True}), "EVEN_K follows from the call; leave it out", "EVEN_K"),
        (call(integer(7)), r"x_ptr: expected \*fp16, got int 7; expected \*bf16, got int 7", "x_ptr"),
        (call(n=Argument("bool", True)), "n: expected i32, got bool True", "n"),
        (call(n=Argument("float", 1.0)), "n: expected i32, got float 1.0", "n"),
        (call(n=pointer(4096)), "n: expected i32, got a pointer to fp16", "n"),
        (call(Argument("descriptor")), r"x_ptr: expected \*fp16, got a tensor descriptor", "x_ptr"),
        (
            call(pointer(0, "")),
            r"x_ptr: expected a typed pointer, one of \*bf16, \*fp16; pass a tensor, got an untyped address",
            "x_ptr",
        ),
    ],
)
def test_refuses_calls_that_nothing_could_serve(facts, message, argument):
    table = by_dtype(
        "fp16", "bf16", params={"BLOCK": "constexpr", "EVEN_K": "constexpr"}, configs=CONFIGS, derived=(EVEN_K,)
    )
    with pytest.raises(ArgumentError, match=message) as caught:
        choose(table, facts)
    assert caught.value.argument == argument
    with pytest.raises(ArgumentError):
        explain(table, facts)


def test_an_int_for_a_float_says_what_to_pass():
    table = make_table({"alpha": "fp32"})
    with pytest.raises(ArgumentError, match=r"alpha: expected fp32, got int 1; pass 1\.0"):
        choose(table, CallFacts({"alpha": integer(1)}))


def test_an_untyped_address_serves_where_other_arguments_decide():
    table = make_table(
        {"x_ptr": "*{dtype}", "y_ptr": "*{dtype}"},
        axes=(Axis("dtype", is_type=True, values=("fp16", "bf16")),),
        signatures=(("*fp16", "*fp16"), ("*bf16", "*bf16")),
        cases=[Case(0, (0,)), Case(1, (1,))],
    )
    assert chosen(table, CallFacts({"x_ptr": pointer(0, ""), "y_ptr": pointer(0, "bf16")}))[0] == 1


HEAD_DIM = Axis("HEAD_DIM", is_type=False, values=(64, 128))
MISSES = [
    (by_dtype("fp16", "fp32"), call(pointer(0, "bf16")), 'dtype = ["fp16", "fp32", "bf16"]', "x_ptr: expected *fp16"),
    (make_table({"x_ptr": "*i8", "n": "i32"}), call(pointer(0, "i32")), 'x_ptr = "*{x_dtype}" and x_dtype = ["i8", "i32"]', "got a pointer to i32"),
    (by_dtype("fp16"), call(NOTHING), 'x_ptr = "*{dtype}?"', "x_ptr: expected *fp16, got None"),
    (by_dtype("fp16"), call(n=integer(1 << 31)), 'n = "i64"', "n: expected i32, got int 2147483648, which does not fit"),
    (by_dtype("fp16"), call(n=integer(1 << 63)), 'n = "u64"', "which does not fit"),
    (by_dtype("fp16"), call(n=integer(1 << 64)), f"an int type for n that holds {1 << 64}, and there is none", "not fit"),
    (
        make_table({"n": "i32", "HEAD_DIM": "constexpr"}, axes=(HEAD_DIM,)),
        CallFacts({"n": integer(1)}, {"HEAD_DIM": 96}),
        "HEAD_DIM = [64, 128, 96]",
        "HEAD_DIM is 64, got 96",
    ),
    (
        make_table({"A": "constexpr", "B": "constexpr"}, axes=(replace(HEAD_DIM, name="A"), replace(HEAD_DIM, name="B")),
                   keep=lambda key: key[0] != 3),
        CallFacts({}, {"A": 128, "B": 128}),
        "the combination of A = 128, B = 128, which an `exclude`, the list of points or the profile leaves out",
        "A is 64, got 128",
    ),
    (
        with_configs(),
        call(constexprs={"BLOCK": 256}, options={"num_warps": 8}),
        "[[kernel.configs]] with BLOCK = 256, num_warps = 8",
        "BLOCK is 64, got 256",
    ),
    (
        by_dtype("fp16", configs=(config("n > 200 and has(x_ptr)"),)),
        call(),
        "a config without `requires`",
        "requires 'n > 200' (n = 100)",
    ),
    (
        by_dtype("fp16", configs=(config("aligned(x_ptr, 16)"),)),
        call(pointer(4104)),
        "a config without `requires`",
        "requires 'aligned(x_ptr, 16)' (x_ptr = 0x1008)",
    ),
    (
        by_dtype("fp16", hints=((("x_ptr", 16), ("n", 16)),)),
        call(pointer(4104)),
        "the variants without hints, which `aligned_only` leaves out",
        "expects x_ptr divisible by 16, got 0x1008; expects n divisible by 16, got int 100",
    ),
    (
        by_dtype("fp16", hints=((("n", 1),),)),
        call(),
        "the variants without hints, which `aligned_only` leaves out",
        "expects n equal to 1, got int 100",
    ),
    (
        by_dtype("fp16", params={"P": "constexpr"}, derived=(("P", "next_pow2(n)", (32, 64)),)),
        call(),
        "P with 128 among its values",
        "P is 32, 'next_pow2(n)' gives 128",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("table", "facts", "remedy", "reason"), MISSES)
def test_a_miss_says_why_and_what_would_serve(table, facts, remedy, reason):
    with pytest.raises(NoMatchingVariantError) as caught:
        choose(table, facts)
    assert remedy in caught.value.what
    assert reason in caught.value.reasons[0][1]
    assert caught.value.where == "kernel add"
    explanation = explain(table, facts)
    assert (explanation.chosen, explanation.row) == (None, None)
    assert len(explanation.rejected) == len(table)
    assert explanation.rejected[0] == caught.value.reasons[0]


def test_a_miss_lists_the_nearest_first_and_at_most_eight():
    axis = Axis("D", is_type=False, values=tuple(range(20)))
    table = make_table(
        {"x_ptr": "*fp16", "n": "i32", "D": "constexpr"},
        axes=(axis,),
        configs=(config("n == 1"),),
        keep=lambda k: k[0] != 7,
    )
    with pytest.raises(NoMatchingVariantError) as caught:
        choose(table, call(constexprs={"D": 7}))
    assert len(caught.value.reasons) == 8
    with pytest.raises(NoMatchingVariantError) as caught:
        choose(table, call(constexprs={"D": 5}))
    assert caught.value.reasons[0] == (table.label(5), "requires 'n == 1' (n = 100)")
    assert "D is 0, got 5" in caught.value.reasons[1][1]


def test_an_empty_table_serves_nothing():
    table = by_dtype("fp16", keep=lambda _: False)
    with pytest.raises(NoMatchingVariantError, match="no variant serves this call"):
        choose(table, call())


def test_explain_orders_by_how_far_each_got():
    table = by_dtype(
        "fp16",
        "bf16",
        params={"BLOCK": "constexpr"},
        configs=(config(BLOCK=128), config("n > 1000", BLOCK=64)),
        hints=((), (("x_ptr", 16),), (("n", 1),)),
    )
    facts = call()
    explanation = explain(table, facts)
    assert explanation.row == choose(table, facts).row
    assert explanation.chosen == "dtype='fp16' BLOCK=128 num_warps=4 x_ptr:16"
    reasons = [reason for _, reason in explanation.rejected]
    assert reasons[:2] == ["serves too, but more hints win", "expects n equal to 1, got int 100"]
    assert reasons[2:5] == ["requires 'n > 1000' (n = 100)"] * 3
    assert all(reason.startswith("x_ptr: expected *bf16") for reason in reasons[5:])


@pytest.mark.parametrize(
    ("table", "facts", "reason"),
    [
        (with_configs(), call(), "serves too, but another config comes first"),
        (
            make_table({"n": "i32"}, signatures=(("i32",), ("i64",)), cases=[Case(0, ()), Case(1, ())]),
            CallFacts({"n": integer(1)}),
            "serves too, but narrower ints win",
        ),
        (by_dtype("fp16", hints=((("n", 16),), (("x_ptr", 16),))), call(n=integer(16)), "serves too, but the first of equals wins"),
    ],
)  # fmt: skip
def test_explain_says_what_beat_an_eligible_variant(table, facts, reason):
    assert explain(table, facts).rejected[0][1] == reason


def test_explain_says_config_case_and_key():
    table = with_configs()
    explanation = explain(table, call(n=integer(100)))
    assert (explanation.config, explanation.case) == ({"BLOCK": 128, "num_warps": 4}, {"dtype": "fp16"})
    assert (explanation.key, explanation.tuning) == ({}, None)
    tuned = explain(table, call(n=integer(100)), preferring((2, 0)))
    assert (tuned.config, tuned.key) == ({"BLOCK": 64, "num_warps": 8}, {"n": 100})
    order = ("BLOCK=64 num_warps=8", "BLOCK=128 num_warps=4")
    assert tuned.tuning == TuningDecision("a device", "here", (1,), exact=False, order=order)


def test_explain_says_the_key_where_nothing_is_measured():
    table = with_configs()
    lookup = Lookup(Tuning(("n", "n * 2"), "exact"), None, "")
    explanation = explain(table, call(n=integer(100)), lookup)
    assert (explanation.key, explanation.tuning, explanation.row) == ({"n": 100, "n * 2": 200}, None, 0)
    missed = explain(table, call(x=pointer(0, "fp32")), lookup)
    assert (missed.config, missed.case, missed.key["n"], missed.tuning) == ({}, {}, 100, None)


# --- against a slow and independent reading of the rules


SIGNATURES = [("*fp16", "i32"), ("*bf16", "i32"), ("*fp16", "i64"), ("none", "i64"), ("none", "i32")]
REQUIRES = [
    "",
    "n % BLOCK == 0",
    "aligned(p, 16)",
    "has(p) and n > 64",
    "n * n * n * n > 0",
    "FLAG == true and n < 1000",
]
ADDRESSES = [None, 4096, 4097, 4104]
NUMBERS = [0, 1, 2, 16, 64, 100, 128, 1 << 20, 1 << 31, 1 << 40]


@st.composite
def tables(draw):
    signatures = draw(st.lists(st.sampled_from(SIGNATURES), min_size=1, max_size=4, unique=True))
    flags = draw(st.lists(st.sampled_from([True, 1, False]), min_size=1, max_size=2, unique_by=identity))
    settings = draw(
        st.lists(
            st.tuples(st.sampled_from([32, 64]), st.sampled_from([4, 8]), st.sampled_from(REQUIRES)),
            min_size=1, max_size=4, unique=True,
        )
    )  # fmt: skip
    all_hints = [(), (("p", 16),), (("n", 16),), (("n", 16), ("p", 16)), (("n", 1),), (("n", 1), ("p", 16))]
    hints = draw(st.lists(st.sampled_from(all_hints), min_size=1, max_size=4, unique=True))
    kept = draw(st.sets(st.integers(0, 399), max_size=120))
    numbers = itertools.count()
    dropping = draw(st.booleans())
    return make_table(
        {"p": "*", "n": "i", "FLAG": "constexpr", "BLOCK": "constexpr", "EVEN": "constexpr"},
        axes=(Axis("FLAG", is_type=False, values=tuple(flags)),),
        signatures=signatures,
        cases=[Case(i, (j,)) for i in range(len(signatures)) for j in range(len(flags))],
        configs=[config(requires, (("num_warps", warps),), BLOCK=block) for block, warps, requires in settings],
        hints=hints,
        derived=(
            ("EVEN", draw(st.sampled_from(["n % BLOCK == 0", "n // 32", "n // (n - 64) > 1"])), (True, False, 2)),
        ),
        keep=lambda _: dropping or next(numbers) in kept,
    )


@st.composite
def calls(draw):
    address = draw(st.sampled_from(ADDRESSES))
    p = NOTHING if address is None else pointer(address, draw(st.sampled_from(["fp16", "bf16"])))
    constexprs = {"FLAG": draw(st.sampled_from([True, True, 1, False]))}
    if draw(st.integers(0, 3)) == 0:
        constexprs["BLOCK"] = draw(st.sampled_from([32, 64]))
    options = {"num_warps": draw(st.sampled_from([4, 8]))} if draw(st.integers(0, 3)) == 0 else {}
    return CallFacts({"p": p, "n": integer(draw(st.sampled_from(NUMBERS)))}, constexprs, options)


@settings(deadline=None)
@given(tables(), calls(), st.lists(st.lists(st.integers(0, 3), unique=True), min_size=1, max_size=3))
def test_the_engine_chooses_as_the_documentation_says(table, facts, preferences):
    preferences = [[number for number in order if number < len(table.configs)] for order in preferences]
    lookup = preferring(*(preferences[case % len(preferences)] for case in range(len(table.cases))))
    orders = {case: preferences[case % len(preferences)] for case in range(len(table.cases))}
    expected = serving(table, facts, orders)
    try:
        considered = choose(table, facts, lookup).considered
    except NoMatchingVariantError:
        considered = ()
    except ArgumentError:
        # a pointer where every variant was compiled for None
        assert facts.arguments["p"].kind == "pointer"
        assert {types[0] for types in table.signatures} == {"none"}
        return
    assert considered == tuple(expected)
    assert not expected or best(table, facts, lookup) == expected[0]
    explanation = explain(table, facts, lookup)
    assert explanation.row == (expected[0] if expected else None)
    served = [label for label, reason in explanation.rejected if reason.startswith("serves")]
    assert len(served) == max(len(expected) - 1, 0)


# --- size


@pytest.mark.parametrize(("cases", "configs", "hints"), [(100, 25, 4), (10_000, 1, 1), (1, 100, 100)])
def test_ten_thousand_variants(cases, configs, hints):
    axis = Axis("D", is_type=False, values=tuple(range(cases)))
    table = make_table(
        {"x_ptr": "*fp16", "n": "i32", **{f"s{i}": "i32" for i in range(hints)}, "D": "constexpr", "B": "constexpr"},
        axes=(axis,),
        configs=[config("n > B and aligned(x_ptr, 16)", B=i) for i in range(configs)],
        hints=tuple(tuple((f"s{j}", 16) for j in range(i)) for i in range(hints)),
        derived=(("EVEN", "n % (B + 1) == 0", (True, False)),),
        keep=lambda key: key[3] == (key[0] + key[1]) % 2,
    )
    assert len(table) == 10_000
    strides = {f"s{i}": integer(32) for i in range(hints)}
    facts = CallFacts({"x_ptr": pointer(4096), "n": integer(4096), **strides}, {"D": cases // 2})
    assert choose(table, facts).considered == tuple(serving(table, facts))


def test_labels_tell_what_is_none():
    params = {"x": "*fp16", "y": "*fp16", "pair": "(i32,none)"}
    signatures = [("*fp16", kind, "(i32,none)") for kind in ("*fp16", "none")]
    table = make_table(params, signatures=signatures, cases=[Case(0, ()), Case(1, ())])
    assert [table.label(row) for row in (0, 1)] == ["num_warps=4 pair.1=none", "num_warps=4 y=none pair.1=none"]


def test_an_explanation_reads_as_lines():
    table = make_table({"n": "i32", "BLOCK": "constexpr"}, configs=[config(BLOCK=size) for size in range(12)])
    explanation = explain(table, CallFacts({"n": integer(5)}, {"BLOCK": 3}))
    first, *others, last = str(explanation).splitlines()
    assert first == "runs BLOCK=3 num_warps=4"
    assert others[0] == "  not BLOCK=0 num_warps=4: BLOCK is 0, got 3"
    assert (len(others), last) == (8, "  and 3 more, in `rejected`")
    nothing = str(explain(table, CallFacts({"n": integer(5)}, {"BLOCK": 30})))
    assert nothing.startswith("no variant serves the call\n  not BLOCK=0 num_warps=4: ")


def test_advice_is_given_once():
    axes = (Axis("dtype", True, ("fp16", "fp32")),)
    params = {"x": "*{dtype}", "y": "*{dtype}"}
    signatures = [("*fp16", "*fp16"), ("*fp32", "*fp32")]
    table = make_table(params, axes=axes, signatures=signatures, cases=[Case(0, (0,)), Case(1, (1,))])
    doubles = {"x": pointer(0, "fp64"), "y": pointer(0, "fp64")}
    with pytest.raises(NoMatchingVariantError) as caught:
        choose(table, CallFacts(doubles))
    assert (
        str(caught.value)
        .splitlines()[0]
        .endswith('its manifest needs dtype = ["fp16", "fp32", "fp64"] - at kernel add')
    )
