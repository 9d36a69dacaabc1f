"""The C core chooses the row that selection in Python chooses, or leaves the call to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.call import CallFacts
from nojit.runtime.descriptor import TensorDescriptor
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.facts import Facts, call_facts
from nojit.runtime.keys import Interner, make_spec
from nojit.runtime.postfix import postfix
from nojit.runtime.select import best
from nojit.runtime.table import Axis, Config, Derived, KernelTable, Missing
from nojit.runtime.tuning import Lookup

from tests.fakecuda import FakeCuda
from tests.runtime.test_select import calls, preferring, tables
from tests.support.bundles import kernel

DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


# of the configs of each meaning in turn; none where nothing was measured
ORDERS = st.lists(st.lists(st.integers(0, 3), unique=True), max_size=3)


class Chosen(Exception):  # noqa: N818 - no error: what the core asks for once it has chosen
    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Left(Exception):  # noqa: N818 - likewise, where it has not
    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.facts = facts


class Chooser(_core.Dispatcher):
    """A kernel that says which row was chosen."""

    def __init__(self, table: KernelTable, lookup: Lookup | None = None) -> None:
        self.table = replace(table, programs=tuple(map(postfix, table.expressions())))  # type: ignore[type-var]
        self.lookup = lookup
        self.interner = Interner()
        self.ordered = 0
        options = tuple(dict.fromkeys(key for config in table.configs for key, _ in config.options))
        params = tuple(
            (param.name, param.constexpr)
            if param.constexpr or isinstance(param.default, Missing)
            else (param.name, param.constexpr, param.default)
            for param in table.params
        )
        super().__init__(table.kernel, params, options, self.interner.strings)
        self.options = options

    def _prepare(self, _device: int) -> _core.Spec:
        tuning = None if self.lookup is None else self.lookup.tuning
        return make_spec(self.table, self.options, self.interner, 90, "here", tuning=tuning)

    def _prefer(self, _device: int, meaning: int, key: tuple[int, ...]) -> Sequence[int]:
        self.ordered += 1
        prefer = None if self.lookup is None else self.lookup.preference(key)
        return () if prefer is None else prefer(meaning)

    def _plan_of(self, _device: int, row: int) -> _core.Plan:
        raise Chosen(row)

    def _resolve(self, _device: int, facts: Facts) -> _core.Plan:
        raise Left(facts)

    def row(self, *args: Any, **named: Any) -> int | None:
        """Return the row that is chosen for a call; None if Python must choose."""
        try:
            self(*args, **named)
        except Chosen as chosen:
            return chosen.row
        except Left:
            return None
        raise AssertionError

    def best(self, *args: Any, **named: Any) -> int | None:
        """Return the row that Python chooses; None if there is none."""
        try:
            return best(self.table, call_facts(self._facts(*args, **named)[1], self.table, 90), self.lookup)
        except (ArgumentError, NoMatchingVariantError):
            return None


@pytest.mark.usefixtures("fakecuda")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), facts=calls(), orders=ORDERS, by_address=st.booleans())
def test_the_core_chooses_as_python_does(
    faketorch: ModuleType, table: KernelTable, facts: CallFacts, orders: list[list[int]], *, by_address: bool
) -> None:
    orders = [[number for number in order if number < len(table.configs)] for order in orders]
    lookup = preferring(*(orders[meaning % len(orders)] for meaning in range(len(table.meanings)))) if orders else None
    chooser = Chooser(table, lookup)
    p, n = facts.arguments["p"], facts.arguments["n"].value
    tensor = None if p.kind == "none" else p.value if by_address else faketorch.Tensor(p.value, DTYPES[p.dtype], (4,))
    expected = chooser.best(tensor, n, **facts.constexprs, **facts.options)
    row = chooser.row(tensor, n, **facts.constexprs, **facts.options)
    if row is None:
        # a config of the caller's, or nothing that serves the call
        assert expected is None or "BLOCK" in facts.constexprs or facts.options or by_address
    else:
        assert row == expected


PARAMS = {"x": "*{dtype}?", "y": "(*fp16,i32)", "n": "i32", "f": "fp32", "MODE": "constexpr", "SCALE": "constexpr",
          "BLOCK": "constexpr", "EVEN": "constexpr"}  # fmt: skip


@pytest.fixture
def make(fakecuda: FakeCuda) -> Callable[..., Chooser]:
    def build(params: dict[str, str], **facts: Any) -> Chooser:
        facts.setdefault("configs", [{"BLOCK": 64, "requires": "n % (BLOCK * 2) == 0 and n < 4096"}, {"BLOCK": 16}])
        return Chooser(kernel("k", params, **facts).table)

    return build


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("n % BLOCK == 0", (False, True)),
        ("not (n < BLOCK or MODE) or n == 7", (False, True)),
        ("min(n, BLOCK, 40)", (16, 40)),
        ("-n + arch", (26, -10)),
        ("none", (None, 1)),
        ("num_warps == 4 and DEFAULTED == DEFAULTED", (False, True)),
        ("n // (n - 64)", (0, 2)),
        ("has(x) and aligned(x, 32)", (False, True)),
        ("TEXT == MODE", (False, True)),
        ("f", (1, 2)),
        ("MODE == 'fast'", (False, True)),
    ],
)
def test_derived_constexprs(make: Callable[..., Chooser], faketorch: ModuleType, expression: str, values: Any) -> None:
    params = {"x": "*fp16", "n": "i32", "f": "fp32"} | dict.fromkeys(
        ("MODE", "BLOCK", "DEFAULTED", "TEXT", "D"), "constexpr"
    )
    defaults = {"DEFAULTED": 2.5, "TEXT": "fast"}
    chooser = make(params, matrix={"MODE": [True, False, "fast"]}, derived={"D": "true"}, defaults=defaults)
    table = replace(chooser.table, derived=(Derived("D", expression),), derived_values=tuple((v,) for v in values))  # type: ignore[type-var]
    chooser = Chooser(table)
    sure = "'" not in expression and expression != "f"
    for n in (7, 64, 100, 128, 8192):
        for mode in (True, False, "fast"):
            call = faketorch.Tensor(0x4010, "float16", (4,)), n, 0.5
            row = chooser.row(*call, MODE=mode)
            assert row == (chooser.best(*call, MODE=mode) if sure else None), (n, mode)


def test_what_is_rare_is_left_to_python(make: Callable[..., Chooser], faketorch: ModuleType) -> None:
    chooser = make(
        {"x": "*fp16", "n": "i32", "MODE": "constexpr", "BLOCK": "constexpr"}, matrix={"MODE": [1, 2.5, "a"]}
    )
    x = faketorch.Tensor(0x4000, "float16", (4,))
    assert [chooser.row(x, 100, MODE=mode) is None for mode in (1, 2.5, "a", True, 1.0, "b", 3)] == [False] * 3 + [
        True
    ] * 4
    assert chooser.row(x, 100, MODE=1, BLOCK=16) is None
    assert chooser.row(x, 100, MODE=1, num_warps=4) is None
    assert chooser.row(x, 1 << 40, MODE=1) is None
    assert chooser.row(None, 100, MODE=1) is None
    tuples = make({"x": "(*fp16,i32)", "BLOCK": "constexpr"}, configs=[{"BLOCK": 1}])
    assert tuples.row((x, 3)) is None
    assert tuples.best((x, 3)) == 0


def test_descriptors_decide_by_dtype_and_block(make: Callable[..., Chooser], faketorch: ModuleType) -> None:
    params = {"x": "tensordesc<{dtype}[{rows},64]>", "y": "*fp16?", "n": "i32", "BLOCK": "constexpr", "D": "constexpr"}
    chooser = make(
        params,
        matrix={"dtype": ["fp16", "bf16"], "rows": [64, 128]},
        configs=[{"BLOCK": 64, "requires": "n % 64 == 0"}, {"BLOCK": 32, "requires": "has(x)"}, {"BLOCK": 16}],
        derived={"D": "n > 100"},
    )
    found = set()
    for dtype, address in (("float16", 0x1000), ("bfloat16", 0x2000), ("float32", 0x4000)):
        for block in ((64, 64), (128, 64), None, (32, 64)):
            for y in (None, faketorch.Tensor(0x4010, "float16", (4,))):
                for n in (64, 65, 128):
                    x = TensorDescriptor(faketorch.Tensor(address, dtype, (256, 64)), (256, 64), (64, 1), block)
                    row = chooser.row(x, y, n)
                    assert row == chooser.best(x, y, n), (dtype, block, n)
                    found.add(row)
    assert len(found) > 8


def test_an_address_decides_where_it_can_point_to_one_type(make: Callable[..., Chooser], faketorch: ModuleType) -> None:
    params = {"x": "*{dtype}", "n": "i32", "BLOCK": "constexpr"}
    x = faketorch.Tensor(0x4010, "float16", (4,))
    one = make(params, matrix={"dtype": ["fp16"]}, hints=[{"x": 16}])
    for n in (64, 100):
        assert one.row(0x4010, n) == one.row(x, n) == one.best(0x4010, n)
        assert one.row(0x4011, n) == one.best(0x4011, n) != one.row(x, n)
    two = make(params, matrix={"dtype": ["fp16", "bf16"]})
    assert (two.row(0x4010, 64), two.best(0x4010, 64)) == (None, None)
    assert two.row(x, 64) is not None


def test_a_table_with_more_axes_than_are_looked_at(make: Callable[..., Chooser]) -> None:
    chooser = make({"n": "i32", "BLOCK": "constexpr"}, configs=[{"BLOCK": 1}])
    axes = tuple(Axis(f"a{number}", is_type=True, values=("fp16",)) for number in range(65))
    meanings = tuple(replace(meaning, values=(0,) * 65) for meaning in chooser.table.meanings)  # type: ignore[type-var]
    assert chooser.row(1) == 0
    assert Chooser(replace(chooser.table, axes=axes, meanings=meanings)).row(1) is None  # type: ignore[type-var]


def test_orders_are_asked_for_only_where_they_matter(fakecuda: FakeCuda) -> None:
    facts: dict[str, Any] = {"configs": [{"BLOCK": 64, "requires": "n > 64"}, {"BLOCK": 16}]}
    table = kernel("k", {"n": "i32", "BLOCK": "constexpr"}, **facts).table
    several, one = Chooser(table, preferring((1, 0))), Chooser(kernel("k", {"n": "i32"}).table, preferring((0,)))
    assert [several.row(n) for n in (1, 100)] == [1, 1]
    assert (one.row(1), one.ordered, several.ordered) == (0, 0, 2)


@pytest.mark.usefixtures("fakecuda")
@pytest.mark.parametrize("orders", [((0,), ()), ((0, 1), ()), ((), (2,)), ((0,), (1,)), ((2, 1), (0,)), ((), (0, 1))])
def test_configs_that_orders_leave_out_rank_alike_in_every_meaning(orders: tuple[tuple[int, ...], ...]) -> None:
    configs = [{"BLOCK": 16, "requires": "n > 1000"}, {"BLOCK": 32, "requires": "n > 1000"}, {"BLOCK": 64}]
    # a float fits both types, and nothing but the orders tells the meanings apart
    table = kernel("k", {"n": "i32", "x": "{T}", "BLOCK": "constexpr"}, matrix={"T": ["fp32", "fp64"]}, configs=configs)
    chooser = Chooser(table.table, preferring(*orders))
    assert chooser.row(1, 0.5) == chooser.best(1, 0.5)


class CountedConfig:
    """A config that counts how often its `requires` is read."""

    reads = 0

    def __init__(self, config: Config) -> None:
        self.constexprs, self.options, self._requires = config.constexprs, config.options, config.requires

    @property
    def requires(self) -> str:
        CountedConfig.reads += 1
        return self._requires


def test_configs_are_looked_at_a_few_times_each(fakecuda: FakeCuda) -> None:
    count = 40
    configs = [{"BLOCK": 16 << number, "requires": f"n > {100 - number}"} for number in range(count)]
    table = kernel("k", {"n": "i32", "BLOCK": "constexpr"}, configs=configs).table
    chooser = Chooser(replace(table, configs=tuple(map(CountedConfig, table.configs))))  # type: ignore[type-var, arg-type]
    # the first call of all reads them to prepare the device
    assert chooser.row(100) == 1
    CountedConfig.reads = 0
    assert chooser.row(100 - count + 2) == count - 1
    assert CountedConfig.reads <= 3 * count
