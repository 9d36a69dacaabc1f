"""The core chooses the row that docs/bundle-format.md says, for calls as Python makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.call.bound_call import Facts, call_facts
from nojit.runtime.call.call_facts import CallFacts
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.descriptor import TensorDescriptor
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.explain.explanation import best
from nojit.runtime.expr.postfix import postfix
from nojit.runtime.table.parts import Derived, Missing
from nojit.runtime.table.table import KernelTable
from nojit.runtime.tuning.lookup import Lookup
from nojit.runtime.values import DType

from tests.fakecuda import FakeCuda
from tests.reference.selection import serving
from tests.runtime.explain.test_explanation import calls, preferring, tables
from tests.support.bundles import kernel
from tests.support.tables import held

DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


# of the configs of each case in turn; none where nothing was measured
ORDERS = st.lists(st.lists(st.integers(0, 3), unique=True), max_size=3)


class Chosen(Exception):  # noqa: N818 - no error: what the core asks for once it has chosen
    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Chooser(_core.Dispatcher):
    """A kernel that says which row was chosen."""

    def __init__(self, table: KernelTable, *orders: Sequence[int]) -> None:
        self.table = held(replace(table, programs=tuple(map(postfix, table.expressions()))))  # type: ignore[type-var]
        self.orders = orders
        self.lookup: Lookup | None = preferring(*orders) if any(orders) else None
        self.ids = _core.Ids()
        options = tuple(dict.fromkeys(key for config in table.configs for key, _ in config.options))
        params = tuple(
            (param.name, param.constexpr)
            if param.constexpr or isinstance(param.default, Missing)
            else (param.name, param.constexpr, param.default)
            for param in table.params
        )
        super().__init__(table.kernel, params, options, self.ids)
        self.options = options

    def _prepare(self, _device: int) -> _core.Spec:
        ordering = None if self.lookup is None else self.lookup.ordering(self.table)
        return _core.Spec(self.table.handle(), len(self.options), self.ids, 90, ordering, "here")

    def _constexpr_value(self, value: Any, name: str) -> Any:
        return constexpr_value(value, name, "k")

    def _constexpr_key(self, value: Any) -> tuple[int, int]:
        return self.ids.find(constexpr_value(value, "", "k"))

    def _plan_of(self, _device: int, row: int) -> _core.Plan:
        raise Chosen(row)

    def _refuse(self, _device: int, facts: Facts) -> None:
        best(self.table, call_facts(facts, self.table, 90), self.lookup)

    def _missed(self, *_: object) -> bool:
        return False

    def row(self, *args: Any, **named: Any) -> int | None:
        """Return the row that is chosen for a call; None if nothing serves it."""
        try:
            self(*args, **named)
        except Chosen as chosen:
            return chosen.row
        except (ArgumentError, NoMatchingVariantError):
            return None
        raise AssertionError

    def best(self, *args: Any, **named: Any) -> int | None:
        """Return the row that the documentation chooses; None if there is none."""
        facts = call_facts(self._facts(*args, **named)[1], self.table, 90)
        orders = {case: order for case, order in enumerate(self.orders) if order}
        return next(iter(serving(self.table, facts, orders)), None)


@pytest.mark.usefixtures("fakecuda")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), facts=calls(), orders=ORDERS, by_address=st.booleans())
def test_the_core_chooses_as_the_documentation_says(
    faketorch: ModuleType, table: KernelTable, facts: CallFacts, orders: list[list[int]], *, by_address: bool
) -> None:
    orders = [[number for number in order if number < len(table.configs)] for order in orders]
    chooser = Chooser(table, *(orders[case % len(orders)] for case in range(len(table.cases)) if orders))
    p, n = facts.arguments["p"], facts.arguments["n"].value
    tensor = None if p.kind == "none" else p.value if by_address else faketorch.Tensor(p.value, DTYPES[p.dtype], (4,))
    expected = chooser.best(tensor, n, **facts.constexprs, **facts.options)
    row = chooser.row(tensor, n, **facts.constexprs, **facts.options)
    # an address that could point to several types is refused
    assert row == expected or (row is None and by_address)


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
    for n in (7, 64, 100, 128, 8192):
        for mode in (True, False, "fast"):
            call = faketorch.Tensor(0x4010, "float16", (4,)), n, 0.5
            row = chooser.row(*call, MODE=mode)
            assert row == chooser.best(*call, MODE=mode), (n, mode)


def test_what_is_rare(make: Callable[..., Chooser], faketorch: ModuleType) -> None:
    chooser = make(
        {"x": "*fp16", "n": "i32", "MODE": "constexpr", "BLOCK": "constexpr"},
        matrix={"MODE": [1, 2.5, "a", DType("fp16"), (1, DType("bf16"))]},
    )
    x = faketorch.Tensor(0x4000, "float16", (4,))
    modes = (1, 2.5, "a", DType("fp16"), (1, DType("bf16")), True, 1.0, "b", 3, "fp16", "float16", (1, "bf16"), (1,))
    found = [chooser.row(x, 100, MODE=mode) for mode in modes]
    # where strings were built too, a string is a string
    assert [row is not None for row in found] == [True] * 5 + [False] * 6 + [True, False]
    assert found[11] == found[4]
    for named in ({"BLOCK": 16}, {"BLOCK": 64}, {"num_warps": 4}, {"num_warps": 3}, {"BLOCK": 16.0}):
        for n in (100, 128, 1 << 40):
            assert chooser.row(x, n, MODE=1, **named) == chooser.best(x, n, MODE=1, **named)
    assert chooser.row(None, 100, MODE=1) is None
    tuples = make({"x": "(*fp16,i32)", "BLOCK": "constexpr"}, configs=[{"BLOCK": 1}], hints=[{"x.0": 16}])
    for address in (0x4000, 0x4001):
        member = faketorch.Tensor(address, "float16", (4,))
        assert tuples.row((member, 3)) == tuples.best((member, 3)) is not None
    assert tuples.row((0x4000, 3)) is None
    dtypes = make({"n": "i32", "T": "constexpr", "BLOCK": "constexpr"}, matrix={"T": [DType("fp16"), DType("int32")]})
    rows = [dtypes.row(100, T=spelled) for spelled in (DType("fp16"), "half", "torch.float16", "fp16", "int32", "bf16")]
    assert rows[0] is not None
    assert [*rows[1:4], rows[4] is None, rows[5]] == [rows[0]] * 3 + [False, None]


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
    assert two.row(0x4010, 64) is None
    assert two.row(x, 64) is not None


@pytest.mark.usefixtures("fakecuda")
@pytest.mark.parametrize("orders", [((0,), ()), ((0, 1), ()), ((), (2,)), ((0,), (1,)), ((2, 1), (0,)), ((), (0, 1))])
def test_configs_that_orders_leave_out_rank_alike_in_every_case(orders: tuple[tuple[int, ...], ...]) -> None:
    configs = [{"BLOCK": 16, "requires": "n > 1000"}, {"BLOCK": 32, "requires": "n > 1000"}, {"BLOCK": 64}]
    # a float fits both types, and nothing but the orders tells the cases apart
    table = kernel("k", {"n": "i32", "x": "{T}", "BLOCK": "constexpr"}, matrix={"T": ["fp32", "fp64"]}, configs=configs)
    chooser = Chooser(table.table, *orders)
    assert chooser.row(1, 0.5) == chooser.best(1, 0.5)
