from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.pack.sections import encode_table
from nojit.runtime import _core
from nojit.runtime.errors import TuningError
from nojit.runtime.expr.operations import ExpressionError
from nojit.runtime.expr.postfix import evaluate
from nojit.runtime.table.reading import decode_table
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable
from nojit.runtime.tuning.costs import is_cost
from nojit.runtime.tuning.lookup import Lookup, bucket_of, closest_device, estimates, lookup_of, nearest, ranked
from nojit.runtime.tuning.resolution import resolve
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedCost, TunedEntry, TunedRow, TunedTable
from nojit.runtime.values import spell

from tests.reference import selection
from tests.support.bundles import kernel

H200 = TunedDevice("NVIDIA H200", "sm_90", 132, 150_754_820_096)
H100 = TunedDevice("NVIDIA H100 PCIe", "sm_90", 114, 85_000_000_000)


@pytest.mark.parametrize(
    ("kind", "value", "bucket"),
    [
        ("pow2", -3, 0),
        ("pow2", 0, 0),
        ("pow2", 1, 1),
        ("pow2", 3, 4),
        ("pow2", 4096, 4096),
        ("pow2", 4097, 8192),
        ("pow2", (1 << 62) + 1, 1 << 62),
        ("quarter_pow2", -1, 0),
        ("quarter_pow2", 7, 7),
        ("quarter_pow2", 8, 8),
        ("quarter_pow2", 9, 10),
        ("quarter_pow2", 11, 12),
        ("quarter_pow2", 15, 16),
        ("quarter_pow2", 4000, 4096),
        ("quarter_pow2", 4608, 5120),
        ("quarter_pow2", 4607, 4096),
        ("quarter_pow2", (1 << 63) - 1, 1 << 62),
        ("sixteenth_pow2", -1, 0),
        ("sixteenth_pow2", 31, 31),
        ("sixteenth_pow2", 33, 34),
        ("sixteenth_pow2", 4097, 4352),
        ("sixteenth_pow2", 4096, 4096),
        ("sixteenth_pow2", (1 << 63) - 1, 1 << 62),
        ("exact", 4097, 4097),
        ("exact", -1, 0),
    ],
)
def test_bucket_of(kind: str, value: int, bucket: int) -> None:
    assert bucket_of(kind, value) == bucket


@given(st.sampled_from(_core.BUCKETS), st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_bucket_lies_in_itself_and_buckets_ascend(kind: str, value: int) -> None:
    bucket = bucket_of(kind, value)
    assert bucket_of(kind, bucket) == bucket
    assert bucket <= bucket_of(kind, min(value + 1, (1 << 63) - 1))


@given(st.integers(8, 1 << 40))
def test_a_quarter_is_the_nearest_of_its_kind(value: int) -> None:
    quarters = [lead << shift for shift in range(1, 40) for lead in (4, 5, 6, 7)]
    assert abs(bucket_of("quarter_pow2", value) - value) == min(abs(quarter - value) for quarter in quarters)


@given(st.integers(1, 4096), st.sampled_from((16, 32, 64, 128, 256)))
def test_a_sixteenth_has_as_many_tiles(value: int, tile: int) -> None:
    bucket = bucket_of("sixteenth_pow2", value)
    assert bucket >= value
    if value <= 32 * tile:
        assert -(-bucket // tile) == -(-value // tile)


keys = st.tuples(st.integers(0, 1 << 40), st.integers(0, 40))


@given(st.lists(keys, min_size=1), keys)
def test_nearest_is_the_least_distance(points: list[tuple[int, int]], key: tuple[int, int]) -> None:
    def distance(point: Sequence[int]) -> float:
        return sum(abs(log2((a or 0.5) / (b or 0.5))) for a, b in zip(point, key, strict=True))

    found = nearest(points, key)
    assert distance(points[found]) == pytest.approx(min(map(distance, points)))
    if key in points:
        assert found == points.index(key)


def test_ties_go_to_the_first_point() -> None:
    assert nearest([(4, 1), (16, 1)], (8, 1)) == 0
    assert nearest([(16, 1), (4, 1)], (8, 1)) == 0
    # the sums differ in their last bit
    assert nearest([(3, 5), (5, 3), (3, 3)], (0, 0)) == 2


def rows(*listed: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TuningBlock:
    return TuningBlock.of((0,), [TuningRow((at,), use, behind) for at, use, behind in listed])


_NUMBERS = st.lists(st.integers(0, (1 << 63) - 1), max_size=70).map(tuple)


@given(st.lists(st.builds(TuningRow, _NUMBERS, _NUMBERS, _NUMBERS), max_size=4))
def test_a_block_gives_back_its_rows_whatever_their_numbers(listed: list[TuningRow]) -> None:
    block = TuningBlock.of((0,), listed)
    assert [*block.rows] == listed


def test_a_problem_with_the_same_key_decides_alone() -> None:
    block = rows((64, (0, 1), (0, 1)), (72, (1, 0), (0, 900)))
    assert ranked(block, (64,), 132) == (0, 1)


def test_near_problems_decide_together_by_how_far_configs_are_behind() -> None:
    # the nearest one hardly minds, the other one does
    block = rows((64, (0, 1), (0, 1)), (72, (1, 0), (0, 900)))
    assert ranked(block, (65,), 132) == (1, 0)
    far = rows((64, (0, 1), (0, 1)), (1024, (1, 0), (0, 900)))
    assert ranked(far, (65,), 132) == (0, 1)


def test_a_config_that_a_near_problem_lacks_counts_as_slow_there() -> None:
    block = rows((64, (0, 1), (0, 1)), (72, (2, 1), (0, 5)))
    assert ranked(block, (68,), 132) == (1, 2, 0)
    assert ranked(block, (65,), 132) == (1, 0, 2)


def test_of_configs_that_are_alike_the_nearest_problems_order_decides() -> None:
    block = rows((64, (1, 0), (0, 0)), (72, (0, 1), (0, 0)))
    assert ranked(block, (65,), 132) == (1, 0)


_COUNTS = st.integers(0, 40) | st.integers(0, (1 << 62))


@st.composite
def problems(draw: st.DrawFn) -> tuple[TuningBlock, tuple[int, ...]]:
    """Draw problems that often lie near one another, and a key that is often one of theirs."""
    keys = draw(st.integers(1, 3))
    at = st.tuples(*[_COUNTS] * keys) | st.tuples(*[st.sampled_from((64, 72, 80, 96))] * keys)
    listed = []
    for values in draw(st.lists(at, min_size=1, max_size=8, unique=True)):
        use = tuple(draw(st.lists(st.integers(0, 200), min_size=1, max_size=5, unique=True)))
        listed.append(TuningRow(values, use, tuple(draw(st.integers(0, 100_000)) for _ in use)))
    return TuningBlock.of((0,), listed), draw(at | st.sampled_from([row.at for row in listed]))


def reference_rank(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> tuple[int, ...]:
    facts = {**{f"key{place}": value for place, value in enumerate(key)}, "multiprocessors": multiprocessors}
    costs = []
    for config, words in block.estimates():
        try:
            cost = evaluate(words, facts)
        except ExpressionError:
            cost = None
        costs.append((config, cost if type(cost) is int else None))
    return selection.rank([*zip(*block.columns(), strict=True)], costs, key)


@given(problems())
def test_the_engine_ranks_as_the_documentation_says(drawn: tuple[TuningBlock, tuple[int, ...]]) -> None:
    block, key = drawn
    assert ranked(block, key, 132) == reference_rank(block, key, 132)


COSTS = [(3, "key0 5 *"), (1, "key0 multiprocessors cdiv() 400 *"), (2, "key0 key0 *"), (0, "1 key0 key0 - //")]


def test_estimates_decide_where_no_problem_has_the_key() -> None:
    block = TuningBlock.of((0,), [TuningRow((64,), (0, 1), (0, 1)), TuningRow((4096,), (2,), (0,))], COSTS)
    assert ranked(block, (64,), 132) == (0, 1)
    assert ranked(block, (4096,), 132) == (2,)
    # 500, 400, 10,000; a division by zero comes last
    assert ranked(block, (100,), 132) == (1, 3, 2, 0)
    assert ranked(block, (100,), 16) == (3, 1, 2, 0)
    assert ranked(block, (4,), 132) == (2, 3, 1, 0)
    assert estimates(block, (100,), 16) == {3: 500, 1: 2800, 2: 10_000, 0: None}
    # 10^20 is no int of 64 bits
    assert ranked(block, (10**10,), 132) == (1, 3, 2, 0)


_WORDS = st.sampled_from(
    (
        "key0",
        "key1",
        "key2",
        "multiprocessors",
        "7",
        "-3",
        "0",
        "true",
        "+",
        "*",
        "-",
        "//",
        "cdiv()",
        "min()",
        "neg()",
        "==",
        "x",
    )
)


@given(problems(), st.data())
def test_the_engine_estimates_as_the_language_says(
    drawn: tuple[TuningBlock, tuple[int, ...]], data: st.DataObject
) -> None:
    block, key = drawn
    texts = st.lists(_WORDS, min_size=1, max_size=7).map(" ".join)
    costs = data.draw(st.dictionaries(st.integers(0, 200), texts, min_size=1, max_size=6))
    block = TuningBlock.of((0,), block.rows, costs.items())
    multiprocessors = data.draw(st.integers(0, 200))
    assert ranked(block, key, multiprocessors) == reference_rank(block, key, multiprocessors)


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("key0 key1 multiprocessors cdiv() +", True),
        ("key1", True),
        ("key2", False),
        ("key0 key1", False),
        ("n", False),
        ("key0 +", False),
        ("key", False),
        ("key0 ", False),
        ("key0  key1 +", False),
        ("key0 key1 ==", False),
        ("none", False),
        ("", False),
    ],
)
def test_a_cost_is_an_expression_over_the_key(words: str, right: bool) -> None:
    assert is_cost(words, 2) is right


BLOCK = (((1,),), ((0,),), ((0,),), ((0, "1"),))


@pytest.mark.parametrize(
    ("block", "key"),
    [
        (BLOCK, (-1,)),
        (BLOCK, (1 << 63,)),
        (BLOCK, (1,) * 9),
        (BLOCK, ()),
        ((((1, 1),), *BLOCK[1:]), (1,)),
        ((((1,),), ((0, 1),), *BLOCK[2:]), (1,)),
        ((((1,),), ((-1,),), *BLOCK[2:]), (1,)),
        ((((1,),), ((1 << 32,),), *BLOCK[2:]), (1,)),
        ((((1,), (2,)), *BLOCK[1:]), (1,)),
    ],
)
def test_the_core_ranks_nothing_that_is_no_block(block: Any, key: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        _core.rank_configs(block, key, 132)


@pytest.mark.parametrize(
    "arguments",
    [
        ([], (1,), 1),
        (BLOCK, [1], 1),
        (BLOCK, (1,)),
        (BLOCK, (1,), "1"),
        ((*BLOCK[:3], [(0, "1")]), (1,), 1),
        ((*BLOCK[:3], ((0, b"1"),)), (1,), 1),
        ((*BLOCK[:3], (("0", "1"),)), (1,), 1),
        (BLOCK[:3], (1,), 1),
    ],
)
def test_the_core_ranks_tuples_alone(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        _core.rank_configs(*arguments)


@given(st.data())
def test_ranked_is_an_order_of_what_near_problems_have(data: st.DataObject) -> None:
    ats = sorted({*data.draw(st.lists(st.integers(0, 4096), min_size=1, max_size=12))})
    listed = []
    for at in ats:
        use = tuple(data.draw(st.permutations(range(4))))[: data.draw(st.integers(1, 4))]
        listed.append((at, use, tuple(data.draw(st.integers(0, 5000)) for _ in use)))
    key = data.draw(st.integers(0, 4096))
    block = rows(*listed)
    order = ranked(block, (key,), 132)
    assert len({*order}) == len(order)
    at, use, _ = block.columns()
    assert {*use[nearest(at, (key,))]} <= {*order} <= {0, 1, 2, 3}


def test_the_closest_device_goes_by_size_then_by_name() -> None:
    h100 = replace(H200, name="NVIDIA H100", memory_bytes=85_000_000_000)
    assert closest_device([H100, H200], H200) == 1
    assert closest_device([H100, H200], h100) == 0
    twin = replace(H200, name="NVIDIA H200 NVL")
    assert closest_device([twin, H200], H200) == 1
    assert closest_device([H200, twin], replace(H200, name="another")) == 0


def tuned_kernel(tuning: Tuning | None = None) -> KernelTable:
    made = kernel(
        "scale",
        {"x": "*{dtype}", "n": "i32", "m": "i32", "BLOCK": "constexpr", "CAUSAL": "constexpr"},
        matrix={"dtype": ["fp16", "bf16", "fp32"], "CAUSAL": [False, True]},
        configs=[{"BLOCK": 64}, {"BLOCK": 128}, {"BLOCK": 128, "num_warps": 8}],
        tuning=tuning,
    )
    return made.table


CONFIGS = (
    TunedConfig((("BLOCK", 128), ("num_warps", 8)), ""),
    TunedConfig((("BLOCK", 64),), ""),
)
ROWS = (TunedRow((4000, 3), (0, 1), ()), TunedRow((16, 3), (1,), (2.5,)))
HALVES = TunedEntry((("dtype", ("fp16", "bf16")), ("CAUSAL", (True,))), ROWS)
TUNED = TunedTable("scale", ("n", "m * 3"), H200, (), CONFIGS, (HALVES,), "here.toml")


def axes_of(table: KernelTable, case: int) -> dict[str, Any]:
    places = table.cases[case].values
    return {axis.name: axis.values[place] for axis, place in zip(table.axes, places, strict=True)}


def test_resolve_turns_names_into_numbers() -> None:
    table = tuned_kernel(Tuning(("n", "m * 3"), "quarter_pow2"))
    resolved = resolve(TUNED, table)
    (block,) = resolved.blocks
    assert resolved.device == H200
    assert [axes_of(table, case) for case in block.cases] == [
        {"dtype": "fp16", "CAUSAL": True},
        {"dtype": "bf16", "CAUSAL": True},
    ]
    assert block.rows == (TuningRow((16, 3), (0,), (0,)), TuningRow((4096, 3), (2, 0), (0, 30)))


def test_resolve_takes_the_first_entry_and_the_first_row_of_a_bucket() -> None:
    rows = (TunedRow((4000, 3), (1,), ()), TunedRow((4096, 3), (0,), ()))
    tuned = replace(TUNED, entries=(replace(HALVES, rows=rows), TunedEntry((), ROWS)))
    first, rest = resolve(tuned, tuned_kernel()).blocks
    assert first.rows == (TuningRow((4096, 3), (0,), (0,)),)
    assert (len(first.cases), len(rest.cases)) == (2, 4)


def test_resolve_leaves_out_what_the_bundle_does_not_hold() -> None:
    tuned = replace(TUNED, entries=(TunedEntry((("dtype", ("fp64",)),), ROWS),))
    assert resolve(tuned, tuned_kernel()).blocks == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"entries": (TunedEntry((("dtypes", ("fp16",)),), ROWS),)},
            "expected axes of kernel scale, got 'dtypes'; did you mean 'dtype'? - at here.toml $.entry[0].where",
        ),
        (
            {"configs": (*CONFIGS, TunedConfig((("BLOK", 64),), ""))},
            (
                "expected constexprs and options of the configs of kernel scale, got 'BLOK'; did you mean 'BLOCK'?"
                " - at here.toml $.config[2]"
            ),
        ),
        (
            {"configs": (*CONFIGS, TunedConfig((("BLOCK", 32),), ""))},
            (
                "expected a config of kernel scale, such as BLOCK=64 num_warps=4 num_ctas=1 num_stages=3; "
                "BLOCK=128 num_warps=4 num_ctas=1 num_stages=3; BLOCK=128 num_warps=8 num_ctas=1 num_stages=3, "
                "got BLOCK=32 - at here.toml $.config[2]"
            ),
        ),
        (
            {"configs": (*CONFIGS, TunedConfig((("BLOCK", 64),), "n > 3"))},
            "got BLOCK=64 requires 'n > 3' - at here.toml $.config[2]",
        ),
        (
            {"configs": (*CONFIGS, TunedConfig((("BLOCK", 128),), ""))},
            (
                "expected the settings of one config of kernel scale: name more of its options, got BLOCK=128, which 2 have"
                " - at here.toml $.config[2]"
            ),
        ),
        ({"key": ("n", "k")}, "expected runtime params of kernel scale, got 'k' - at here.toml $.key"),
        ({"key": ("m", "n")}, "expected the key of kernel scale: n, m*3, got m, n - at here.toml $.key"),
    ],
)
def test_resolve_refuses_what_the_kernel_does_not_know(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError) as caught:
        resolve(replace(TUNED, **changes), tuned_kernel(Tuning(("n", "m*3"), "pow2")))
    assert str(caught.value).endswith(message)


def test_a_tuning_reads_back_as_it_was() -> None:
    table = tuned_kernel(Tuning(("n", "m * 3"), "quarter_pow2"))
    table = replace(table, tuning=Tuning(("n", "m * 3"), "quarter_pow2", (resolve(TUNED, table),)))
    assert decode_table(encode_table(table), "scale", len(table), 1 << 19, "here") == table


COSTS_OF_HALVES = (
    TunedCost(1, "3000000 * rows"),
    TunedCost(0, "1500000 * cdiv(rows * threes, multiprocessors) + 7000000"),
)
ESTIMATED = replace(TUNED, names=("rows", "threes"), entries=(replace(HALVES, costs=COSTS_OF_HALVES),))


def config_words(table: KernelTable, number: int) -> str:
    config = table.configs[number]
    return " ".join(
        [f"{name}={spell(value)}" for name, value in config.constexprs + config.options if value is not None]
    )


def test_costs_read_back_as_they_were() -> None:
    table = tuned_kernel(Tuning(("n", "m * 3"), "sixteenth_pow2"))
    (block,) = resolve(ESTIMATED, table).blocks
    assert block.estimates() == [
        (0, "3000000 key0 *"),
        (2, "1500000 key0 key1 * multiprocessors cdiv() * 7000000 +"),
    ]
    table = replace(table, tuning=Tuning(("n", "m * 3"), "sixteenth_pow2", (resolve(ESTIMATED, table),)))
    assert decode_table(encode_table(table), "scale", len(table), 1 << 19, "here") == table


def test_estimates_are_those_of_the_device_at_hand() -> None:
    table = tuned_kernel(Tuning(("n", "m * 3"), "sixteenth_pow2"))
    tuning = Tuning(("n", "m * 3"), "sixteenth_pow2", (resolve(ESTIMATED, table),))
    case = tuning.tables[0].blocks[0].cases[0]
    large, small = (Lookup(tuning, tuning.tables[0], "here", multiprocessors) for multiprocessors in (132, 3))
    nobodys = lookup_of(tuning, table, ["here"])
    # 9 against 8.5 at 132 multiprocessors, 11.5 at 3
    orders = [one.decision((3, 3), table, case) for one in (large, small, nobodys)]
    first = [config_words(table, config) for config in (2, 0)]
    assert [one and one.order for one in orders] == [tuple(first), tuple(first[::-1]), tuple(first)]
    found = small.decision((3, 3), table, case)
    assert found is not None
    assert (found.exact, found.estimated_us) == (False, (9.0, 11.5))
    exact = small.decision((16, 3), table, case)
    assert exact is not None
    assert (exact.exact, exact.estimated_us) == (True, ())


def test_the_preference_is_that_of_the_nearest_row() -> None:
    table = tuned_kernel()
    tuning = Tuning(TUNED.key, "quarter_pow2", (resolve(TUNED, table),))
    tuned = tuning.tables[0].blocks[0].cases[0]
    untuned = next(case for case in range(6) if tuning.tables[0].block_of(case) is None)
    lookup = Lookup(tuning, tuning.tables[0], "")
    decided = [lookup.decision(key, table, tuned) for key in ((3900, 3), (0, 0))]
    assert [one and one.order for one in decided] == [
        (config_words(table, 2), config_words(table, 0)),
        (config_words(table, 0),),
    ]
    assert lookup.decision((3900, 3), table, untuned) is None


def test_a_decision_says_which_row_it_is() -> None:
    table = tuned_kernel()
    tuning = Tuning(TUNED.key, "quarter_pow2", (resolve(TUNED, table),))
    lookup = Lookup(tuning, tuning.tables[0], "here.toml")
    case = tuning.tables[0].blocks[0].cases[0]
    found = lookup.decision((4090, 3), table, case)
    assert found is not None
    assert (found.device, found.source, found.at, found.exact) == ("NVIDIA H200", "here.toml", (4096, 3), True)
    assert found.order == (
        "BLOCK=128 num_warps=8 num_ctas=1 num_stages=3",
        "BLOCK=64 num_warps=4 num_ctas=1 num_stages=3",
    )
    near = lookup.decision((4090, 2), table, case)
    assert near is not None
    assert (near.at, near.exact) == ((4096, 3), False)
    assert replace(lookup, table=None).decision((1, 1), table, case) is None


def test_a_block_knows_its_cases() -> None:
    block = TuningBlock.of((1, 4), (TuningRow((1,), (0,), (0,)),))
    table = TuningTable(H200, (block,))
    assert (table.block_of(4), table.block_of(0)) == (block, None)


def test_times_that_are_far_apart_stay_within_what_a_bundle_holds() -> None:
    row = TunedRow((4000, 3), (0, 1), (1e300, 1e-300))
    table = tuned_kernel()
    (block,) = resolve(replace(TUNED, entries=(replace(HALVES, rows=(row,)),)), table).blocks
    assert [row.behind for row in block.rows] == [(100_000, 0)]
