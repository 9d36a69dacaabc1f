"""Every field that can change a bundle's bytes changes the digest of its inputs; the fields that do not count are listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nojit.aot.compile.job_runner import Job
from nojit.aot.manifest.spec import BundleSpec, KernelSpec, TuningSpec
from nojit.aot.pipeline.inputs_digest import inputs_digest
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.plan.plan import Plan, PlannedKernel
from nojit.aot.variants.variant import Variant
from nojit.runtime.table.parts import Axis, Config, Derived, Param
from nojit.runtime.table.tuning import TunedDevice
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedCost, TunedEntry, TunedRow, TunedTable

PARAM = Param("BLOCK", constexpr=True, default=16)
AXIS = Axis("dtype", is_type=True, values=("fp16", "fp32"))
DERIVED = Derived("EVEN", "n % BLOCK == 0")
CONFIG = Config((("BLOCK", 64),), (("num_warps", 4),), "n > 1")
DEVICE = TunedDevice("NVIDIA H200", "sm_90", 132, 1 << 37)
TUNED_CONFIG = TunedConfig((("BLOCK", 64),), "n > 1")
ROW = TunedRow((16,), (0,), (1.5,))
COST = TunedCost(0, "n")
ENTRY = TunedEntry((("dtype", ("fp16",)),), (ROW,), (COST,))
TABLE = TunedTable("k", ("n",), DEVICE, (("date", "today"),), (TUNED_CONFIG,), (ENTRY,), "k.toml", ("n",))
TUNING = TuningSpec(
    key=["n"], names=["n"], terms=["n"], alike={"dtype": [["fp16", "bf16"]]}, apart=["dtype"], space=[{"BLOCK": [64]}]
)
VARIANT = Variant(
    kernel="k",
    arch="sm_90",
    axes=(("dtype", "fp16"),),
    signature=(("x", "*fp16"),),
    constexprs=(("BLOCK", 64),),
    hints=(("x", 16),),
    options=(("num_warps", 4),),
    config=CONFIG,
    config_number=0,
    derived=(("EVEN", True),),
)


def digest(
    *,
    variants: tuple[Variant, ...] = (VARIANT, replace(VARIANT, hints=())),
    keys: tuple[str, ...] = ("first", "second"),
    toolchain: tuple[tuple[str, str], ...] = (("triton", "3.6.0"),),
    param: Param = PARAM,
    axis: Axis = AXIS,
    derived: Derived = DERIVED,
    tuned: TunedTable = TABLE,
    tuning: TuningSpec | None = TUNING,
    spec: dict[str, Any] | None = None,
    bundle: dict[str, str] | None = None,
    is_tuning: bool = False,
    **plan: Any,
) -> str:
    """Return the digest of a plan of one kernel."""
    kernel = KernelSpec(
        **{"name": "k", "source": "a.py:k", "grid": ["n"], "batch": ["n"], "tuning": tuning, **(spec or {})}
    )
    source = KernelSource("k", (param,), frozenset(), frozenset(), "digest")
    place = SourcePlace("a.py:k", Path(), "k")
    planned = PlannedKernel(kernel, source, place, (axis,), (derived,), variants, 0, tuned=(tuned,))
    named = BundleSpec(**{"name": "demo", "version": "1.0", "archs": ["sm_90"], **(bundle or {})})
    facts = {"tuning": is_tuning, "arch": "sm_90", "attachments": (("notes", b"text"),), **plan}
    return inputs_digest(
        Plan(bundle=named, kernels=(planned,), **facts), toolchain, list(map(Job, variants, [place] * 2, keys))
    )


def other(value: Any) -> Any:
    """Return a value that differs from `value`."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, Config | TunedDevice):
        first = fields(value)[0].name
        return replace(value, **{first: other(getattr(value, first))})
    return value[:-1] if isinstance(value, tuple) else value + 1


def entry(one: TunedEntry) -> str:
    return digest(tuned=replace(TABLE, entries=(one,)))


PLACES: dict[Any, Callable[[Any], str]] = {
    VARIANT: lambda one: digest(variants=(one, replace(VARIANT, hints=()))),
    CONFIG: lambda one: digest(variants=(replace(VARIANT, config=one), replace(VARIANT, hints=()))),
    PARAM: lambda one: digest(param=one),
    AXIS: lambda one: digest(axis=one),
    DERIVED: lambda one: digest(derived=one),
    TABLE: lambda one: digest(tuned=one),
    DEVICE: lambda one: digest(tuned=replace(TABLE, device=one)),
    TUNED_CONFIG: lambda one: digest(tuned=replace(TABLE, configs=(one,))),
    ENTRY: entry,
    ROW: lambda one: entry(replace(ENTRY, rows=(one,))),
    COST: lambda one: entry(replace(ENTRY, costs=(one,))),
}
UNCOUNTED = {
    # a debug twin has the inputs of its bundle, and those have the toolchain
    (Variant, "line_info"),
    (Variant, "toolchain"),
    # others say them of the kernel, and nothing else of a table gets into a bundle
    (TunedTable, "kernel"),
    (TunedTable, "key"),
    (TunedTable, "origin"),
    (TunedTable, "path"),
}
FIELDS = [(record, field.name) for record in PLACES for field in fields(record)]


@pytest.mark.parametrize(
    ("record", "field"), FIELDS, ids=[f"{type(record).__name__}.{field}" for record, field in FIELDS]
)
def test_a_changed_field_changes_the_digest_unless_it_cannot_change_the_bundle(record, field):
    changed = replace(record, **{field: other(getattr(record, field))})
    assert (PLACES[record](changed) == PLACES[record](record)) == ((type(record), field) in UNCOUNTED)


@pytest.mark.parametrize("field", TuningSpec.__struct_fields__)
def test_every_key_of_a_tuning_changes_the_digest(field):
    value = getattr(TUNING, field)
    changed = msgspec.structs.replace(
        TUNING, **{field: type(value)() if isinstance(value, list | dict) else other(value)}
    )
    assert digest(tuning=changed) != digest()
    assert digest(tuning=None) != digest()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"spec": {"name": "l"}}, id="name of the kernel"),
        pytest.param({"spec": {"grid": []}}, id="grid"),
        pytest.param({"spec": {"batch": []}}, id="batch"),
        pytest.param({"bundle": {"name": "other"}}, id="name"),
        pytest.param({"bundle": {"version": "1.1"}}, id="version"),
        pytest.param({"arch": "sm_80"}, id="arch"),
        pytest.param({"is_tuning": True}, id="pruned configs"),
        pytest.param({"attachments": (("notes", b"other"),)}, id="attachment"),
        pytest.param({"toolchain": (("triton", "3.7.0"),)}, id="toolchain"),
        pytest.param({"keys": ("first", "third")}, id="key of a variant"),
        pytest.param({"keys": ("second", "first")}, id="order of variants"),
    ],
)
def test_every_fact_of_a_plan_changes_the_digest(changed):
    assert digest(**changed) != digest()


@pytest.mark.parametrize(("one", "two"), [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1)])
def test_values_of_different_types_differ(one, two):
    pair = [digest(param=replace(PARAM, default=value)) for value in (one, two)]
    assert pair[0] != pair[1]
