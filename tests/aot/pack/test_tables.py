"""Compiled variants to variant tables: every fact arrives, each distinct fact is stored once, types are kept apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from nojit.aot.pack.sections import encode_table
from nojit.aot.pack.tables import KernelContent, build_table
from nojit.runtime.table.reading import decode_table
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import identity

from tests.aot.contents import kernel_content
from tests.aot.entries import entries, spec


def number_images(content: KernelContent) -> dict[bytes, int]:
    return {image: number for number, image in enumerate(dict.fromkeys(made.image for _, made in content.variants))}


def table_of(content: KernelContent) -> KernelTable:
    """Build a table and send it through its bytes."""
    images = number_images(content)
    raw = encode_table(build_table(content, images))
    return decode_table(raw, content.name, len(content.variants), len(images), "here")


def content_of(**fields: Any) -> KernelContent:
    content = kernel_content(spec(**fields))
    assert content is not None
    return content


def facts_of_content(content: KernelContent) -> Counter[Any]:
    """What every variant is, said without pools."""
    images = number_images(content)
    return Counter(
        (
            tuple(kind for _, kind in variant.signature),
            tuple((name, identity(value)) for name, value in variant.axes),
            tuple((name, identity(value)) for name, value in variant.config.constexprs + variant.config.options),
            variant.config.requires,
            variant.hints,
            tuple((name, identity(value)) for name, value in variant.derived),
            made.launch,
            images[made.image],
            made.registers,
            made.spill_bytes,
        )
        for variant, made in content.variants
    )


def facts_of_table(table: KernelTable) -> Counter[Any]:
    facts: list[Any] = []
    for row in range(len(table)):
        case = table.cases[table.columns["case"][row]]
        config = table.configs[table.columns["config"][row]]
        derived = table.derived_values[table.columns["derived"][row]]
        points = zip(table.axes, case.values, strict=True)
        facts.append(
            (
                table.signatures[case.signature],
                tuple((axis.name, identity(axis.values[point])) for axis, point in points),
                tuple((name, identity(value)) for name, value in config.constexprs + config.options),
                config.requires,
                table.hint_sets[table.columns["hints"][row]],
                tuple((made.name, identity(value)) for made, value in zip(table.derived, derived, strict=True)),
                table.launches[table.columns["launch"][row]],
                *(table.columns[column][row] for column in ("image", "registers", "spill_bytes")),
            )
        )
    return Counter(facts)


@settings(deadline=None, max_examples=50)
@given(entries(sound=True))
def test_every_fact_of_every_variant_arrives(entry):
    content = kernel_content(entry.spec())
    if content is None:
        return
    table = table_of(content)
    assert facts_of_table(table) == facts_of_content(content)
    assert (table.params, table.grid, table.axes, table.derived) == (
        content.params, content.grid, content.axes, content.derived,
    )  # fmt: skip
    for pool in (table.signatures, table.cases, table.configs, table.hint_sets, table.launches):
        assert len({repr(item) for item in pool}) == len(pool)
    rows = [table.key(row) for row in range(len(table))]
    assert rows == sorted(set(rows))


def test_true_1_and_1_0_are_three_facts_everywhere():
    values = [True, 1, 1.0]
    table = table_of(
        content_of(
            params={"n": "i32"},
            matrix={"A": values},
            configs=[{"C": value} for value in values],
            derived={"D": {"expr": "n", "values": [0, 1]}, "E": "n == 2"},
        )
    )
    assert [type(value) for value in table.axes[0].values] == [bool, int, float]
    assert len({case.values for case in table.cases}) == 3
    assert [type(dict(config.constexprs)["C"]) for config in table.configs] == [bool, int, float]
    assert [tuple(map(type, values)) for values in table.derived_values] == [(int, bool)] * 4
    assert len(table) == 3 * 3 * 4
    first = table.constexprs(0)
    assert {name: type(value) for name, value in first.items()} == {"A": bool, "C": bool, "D": int, "E": bool}


def test_configs_keep_the_order_of_the_manifest_which_is_the_order_of_preference():
    configs = [{"B": 3, "when": "D == 2"}, {"B": 1}, {"B": 2}]
    table = table_of(content_of(matrix={"D": [1, 2]}, configs=configs))
    assert [dict(config.constexprs)["B"] for config in table.configs] == [3, 1, 2]


def test_equal_configs_under_different_rules_are_one():
    configs = [{"B": 1, "when": "D == 2"}, {"B": 1, "when": "D == 1"}]
    assert len(table_of(content_of(matrix={"D": [1, 2]}, configs=configs)).configs) == 1


def test_a_signature_follows_the_function_not_the_manifest():
    content = content_of(params={"x": "*fp16", "n": "i32"})
    swapped = {name: getattr(content, name) for name in KernelContent.__dataclass_fields__}
    table = table_of(KernelContent(**swapped | {"params": content.params[::-1]}))
    assert table.signatures == (("i32", "*fp16"),)


def test_images_are_numbered_as_told():
    content = content_of(matrix={"D": [1, 2, 3]})
    numbers = {made.image: 7 - number for number, (_, made) in enumerate(content.variants)}
    assert list(build_table(content, numbers).columns["image"]) == [7, 6, 5]


def test_ids_are_stable_when_variants_come_and_go():
    def ids(**fields: Any) -> set[str]:
        table = table_of(content_of(**fields))
        return {table.variant_id(row) for row in range(len(table))}

    few = ids(params={"x": "*fp16"}, matrix={"D": [1, 2]}, configs=[{"B": 1}])
    more = ids(params={"x": "*fp16"}, matrix={"D": [1, 2, 3]}, configs=[{"B": 2}, {"B": 1}], hints=[{"x": 16}])
    assert few < more
    assert len(more) == 12
