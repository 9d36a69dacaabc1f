"""Variant tables as Python holds them: fields are made when somebody asks, and the engine holds the rest."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from nojit.aot.pack.sections import encode_table
from nojit.runtime import _core
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.table.parts import Config
from nojit.runtime.table.reading import decode_table
from nojit.runtime.table.table import KernelTable

from tests.support.bundles import kernel
from tests.support.tables import held

ADD = kernel(
    "add",
    {"x_ptr": "*{dtype}", "n": "i32", "BLOCK": "constexpr", "EVEN": "constexpr"},
    matrix={"dtype": ["fp16", "fp32"]},
    configs=[{"BLOCK": 1024, "requires": "aligned(x_ptr, 16)"}, {"BLOCK": 64}],
    hints=[{"x_ptr": 16}],
    derived={"EVEN": "n % BLOCK == 0"},
    grid=["cdiv(n, BLOCK)"],
).table


def read() -> KernelTable:
    return decode_table(encode_table(ADD), "add", len(ADD), 1 << 20, "here")


def test_what_is_read_is_what_was_written() -> None:
    table = read()
    assert table == ADD
    assert repr(table) == repr(ADD)
    assert table.param_types() == ADD.param_types()
    assert table.programs_by_expression() == ADD.programs_by_expression()


def test_a_field_is_made_once_for_all_threads() -> None:
    table = read()
    with ThreadPoolExecutor(8) as pool:
        made = {id(configs) for configs in pool.map(lambda _: table.configs, range(64))}
    assert len(made) == 1
    assert table.configs is table.handle().part("configs")


def test_a_table_has_no_other_attributes() -> None:
    table = read()
    with pytest.raises(AttributeError, match="rows"):
        _ = table.rows  # type: ignore[attr-defined] # on purpose
    with pytest.raises(AttributeError, match="does not change"):
        table.kernel = "other"  # type: ignore[misc] # on purpose
    with pytest.raises(KeyError, match="rows"):
        table.handle().part("rows")


def test_a_copy_in_another_process_is_equal() -> None:
    table = read()
    copy = pickle.loads(pickle.dumps(table))
    assert copy == table
    assert len(copy) == len(table)


def test_a_table_made_by_hand_has_no_handle() -> None:
    made = dataclasses.replace(read())  # type: ignore[type-var]
    with pytest.raises(
        ValueError, match="expected a table that the engine has read, got one made by hand - at kernel add"
    ):
        made.handle()


def test_the_engine_holds_what_is_written_of_a_table_made_by_hand() -> None:
    table = held(dataclasses.replace(read()))  # type: ignore[type-var]
    handle = table.handle()
    assert handle is table.handle()
    assert len(handle) == len(table)
    for row in range(len(table)):
        table.check_row(row, "here")
    assert handle.expression_chars() == sum(map(len, table.expressions()))


def test_a_table_made_by_hand_keeps_the_rules() -> None:
    table = dataclasses.replace(read(), configs=(Config((), (), ""),) * 2)  # type: ignore[type-var]
    with pytest.raises(BundleFormatError) as refused:
        held(table)
    assert refused.value.rule in ("param", "size")


def test_numbers_past_the_end_are_errors() -> None:
    handle = read().handle()
    for number in (-1, 1 << 20):
        with pytest.raises(IndexError):
            handle.check_row(number, "here")
        with pytest.raises(IndexError):
            handle.layout(number)
        with pytest.raises(IndexError):
            handle.launch(number, str, "here")  # type: ignore[arg-type] # never called
    with pytest.raises(ValueError, match="from 0"):
        _core.read_table(encode_table(ADD), -1, 0, "here")
    with pytest.raises(TypeError):
        type(handle)()


def test_columns_are_arrays_in_their_order() -> None:
    assert tuple(read().columns) == _core.COLUMNS
