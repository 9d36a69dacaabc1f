"""Read the variant table of one kernel rule by rule, to name the one that it breaks.

`nojit.runtime.table_codec` checks everything of a kind at once, which is faster, and cannot say what is wrong.
"""

from __future__ import annotations

import re
from array import array
from itertools import chain, islice
from operator import lt
from typing import Any

from nojit.runtime.launch_codec import Launches
from nojit.runtime.strict import (
    POOL_MAX,
    Json,
    count,
    fields,
    flag,
    items,
    lines,
    name,
    name_list,
    object_rows,
    refuse,
    text,
)
from nojit.runtime.table import (
    COLUMNS,
    KEY_COLUMNS,
    MISSING,
    TABLE_FIELDS,
    Axis,
    Config,
    Derived,
    KernelTable,
    Meaning,
    Missing,
    Param,
)
from nojit.runtime.table_codec import SMALL_MAX
from nojit.runtime.table_rules import check_programs
from nojit.runtime.tuning_reader import read_tuning
from nojit.runtime.type_names import LEAVES_MAX, is_type
from nojit.runtime.values import Value, decode_value, identity

__all__ = ["read_table"]

# a param, and places in its tuples, each in its one spelling
_LEAF = re.compile(r"[^.]+(?:\.(?:0|[1-9][0-9]{0,2}))*")


def read_table(value: Json, kernel: str, columns: dict[str, array[int]], image_count: int, where: str) -> KernelTable:
    """Read a table from its JSON and its columns; what keeps all rules reads as `table_codec.decode_table` reads it.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    params, grid, tuning, batch, axes, derived, signatures, meanings, configs, *rest = fields(
        value, TABLE_FIELDS, where
    )
    hint_sets, derived_values, layouts, launches, programs = rest
    known = _decode_params(params, where)
    pools = (len(items(meanings, POOL_MAX, where)), len(items(configs, POOL_MAX, where)))
    table = KernelTable(
        kernel,
        known,
        tuple([text(value, where) for value in items(grid, 3, where)]),
        read_tuning(tuning, pools, where),
        tuple([_decode_axis(value, where) for value in items(axes, 64, where)]),
        tuple([_decode_derived(value, where) for value in items(derived, 64, where)]),
        tuple([lines(items(value, SMALL_MAX, where), where) for value in items(signatures, POOL_MAX, where)]),
        _decode_meanings(meanings, where),
        tuple([_decode_config(value, where) for value in items(configs, POOL_MAX, where)]),
        _decode_hint_sets(hint_sets, where),
        tuple([_decode_derived_values(value, where) for value in items(derived_values, POOL_MAX, where)]),
        Launches(items(launches, POOL_MAX, where), items(layouts, POOL_MAX, where), where),
        tuple([text(program, where) for program in items(programs, POOL_MAX, where)]),
        columns,
        name_list(items(batch, SMALL_MAX, where), where),
    )
    if len(table.programs) != len(table.expressions()):
        raise refuse("size", f"expected {len(table.expressions())} programs", got=len(table.programs), where=where)
    check_programs(table, where)
    _check_names(table, where)
    _check_pools(table, image_count, where)
    return table


def _decode_params(value: Json, where: str) -> tuple[Param, ...]:
    rows = object_rows(value, ("name", "constexpr", "default"), SMALL_MAX, where)
    known = name_list([row[0] for row in rows], where)
    if dotted := [param for param in known if "." in param]:
        # a dot parts a param from its member
        raise refuse("name", "expected params without dots", got=repr(dotted), where=where)
    flags = [flag(constexpr, where) for _, constexpr, _ in rows]
    # most have none: an empty array
    defaults = [MISSING if default == [] else _default(default, where) for *_, default in rows]
    return tuple(map(Param, known, flags, defaults))


def _default(value: Json, where: str) -> Value | Missing:
    given = items(value, 1, where)
    return decode_value(given[0], where) if given else MISSING


def _decode_axis(value: Json, where: str) -> Axis:
    axis, is_type, values = fields(value, ("name", "is_type", "values"), where)
    decoded = tuple([decode_value(item, where) for item in items(values, POOL_MAX, where)])
    return Axis(name(axis, where), flag(is_type, where), decoded)


def _decode_derived(value: Json, where: str) -> Derived:
    derived, expression = fields(value, ("name", "expression"), where)
    return Derived(name(derived, where), text(expression, where))


def _decode_derived_values(value: Json, where: str) -> tuple[Value, ...]:
    return tuple([decode_value(item, where) for item in items(value, 64, where)])


def _decode_meanings(value: Json, where: str) -> tuple[Meaning, ...]:
    rows = [items(meaning, 65, where) for meaning in items(value, POOL_MAX, where)]
    # all at once; if something is wrong, one by one, to name it
    if not set(map(type, chain.from_iterable(rows))) <= {int}:
        for number in chain.from_iterable(rows):
            count(number, POOL_MAX, where)
    numbers: list[Any] = rows
    if not all(numbers):
        raise refuse("size", "expected a meaning to name its signature", where=where)
    if min(map(min, numbers), default=0) < 0:
        raise refuse("size", "expected indices from 0", got=min(map(min, numbers)), where=where)
    return tuple([Meaning(signature, tuple(point)) for signature, *point in numbers])


def _decode_config(value: Json, where: str) -> Config:
    constexprs, options, requires = fields(value, ("constexprs", "options", "requires"), where)
    return Config(
        _decode_pairs(constexprs, where),
        _decode_pairs(options, where),
        text(requires, where),
    )


def _decode_pairs(value: Json, where: str) -> tuple[tuple[str, Value], ...]:
    pairs = [_pair(item, where) for item in items(value, 64, where)]
    keys = name_list([key for key, _ in pairs], where)
    return tuple([(key, decode_value(item, where)) for key, (_, item) in zip(keys, pairs, strict=True)])


def _pair(value: Json, where: str) -> list[Json]:
    pair = items(value, 2, where)
    if len(pair) != 2:
        raise refuse("size", "expected a pair", got=f"{len(pair)} items", where=where)
    return pair


def _decode_hint_sets(value: Json, where: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    sets: list[Any] = [items(hints, SMALL_MAX, where) for hints in items(value, POOL_MAX, where)]
    pairs = list(chain.from_iterable(sets))
    if not set(map(type, pairs)) <= {list} or not set(map(len, pairs)) <= {2}:
        for pair in pairs:
            _pair(pair, where)
    hints = [hint for _, hint in pairs]
    if not set(map(type, hints)) <= {int} or not set(hints) <= {1, 16}:
        for hint in hints:
            if type(hint) is not int:
                count(hint, 16, where)
            if hint not in (1, 16):
                raise refuse("hint", "expected a hint of 16 or 1", got=hint, where=where)
    if not set(map(type, [leaf for leaf, _ in pairs])) <= {str}:
        name_list([leaf for leaf, _ in pairs], where)
    name_list(list({leaf for leaf, _ in pairs}), where)
    return tuple([tuple([(leaf, hint) for leaf, hint in hint_set]) for hint_set in sets])


def _check_names(table: KernelTable, where: str) -> None:
    """Check every name in a table, those of its launches apart.

    Raises:
        BundleFormatError: a name that is there twice (rule ``duplicate``), that the kernel does not have, or that is
            missing (rule ``param``), a type that is none (rule ``signature``).
    """
    _each_once([param.name for param in table.params], "param", where)
    _each_once([axis.name for axis in table.axes], "axis", where)
    _each_once([*table.batch], "param of the batch", where)
    if strangers := set(table.batch).difference(table.runtime_params()):
        raise refuse("param", "expected a batch of runtime params alone", got=sorted(strangers), where=where)
    for config in table.configs:
        _each_once([name for name, _ in config.options], "option of a config", where)
    hinted: set[str] = set()
    for hints in table.hint_sets:
        names = [name for name, _ in hints]
        _each_once(names, "hinted param", where)
        hinted.update(names)
    _check_constexprs(table, where)
    for kind in set(chain.from_iterable(table.signatures)):
        if not is_type(kind):
            raise refuse(
                "signature",
                f"expected a type in canonical spelling, with at most {LEAVES_MAX} leaves",
                got=repr(kind),
                where=where,
            )
    params = {name.partition(".")[0] for name in hinted}
    if strangers := params.difference(table.runtime_params()):
        raise refuse("param", "expected hints of this kernel's params", got=sorted(strangers), where=where)
    if wrong := [name for name in hinted if not _LEAF.fullmatch(name)]:
        raise refuse("param", "expected hints of leaves, spelled x or x.1.0", got=sorted(wrong), where=where)


def _check_pools(table: KernelTable, image_count: int, where: str) -> None:
    """Check that what points into a pool points at something, and that rows ascend.

    Raises:
        BundleFormatError: it does not (rules ``pool`` and ``order``), a pool's entries have another length than they
            must (rule ``size``), or derived values are there twice, of which a call could find either (rule ``duplicate``).
    """
    if set(map(len, table.signatures)) - {len(table.runtime_params())}:
        raise refuse("size", f"expected {len(table.runtime_params())} types in a signature", where=where)
    limits = [len(table.signatures), *[len(axis.values) for axis in table.axes]]
    for meaning in table.meanings:
        numbers = (meaning.signature, *meaning.values)
        if len(numbers) != len(limits) or not all(map(lt, numbers, limits)):
            raise refuse("pool", "expected a meaning within its signatures and axes", got=numbers, where=where)
    if set(map(len, table.derived_values)) - {len(table.derived)}:
        raise refuse("size", f"expected {len(table.derived)} derived values", where=where)
    if len(set(map(identity, table.derived_values))) < len(table.derived_values):
        raise refuse("duplicate", "expected each entry of derived values once", where=where)
    _check_columns(table, image_count, where)


def _check_columns(table: KernelTable, image_count: int, where: str) -> None:
    pools = (table.meanings, table.configs, table.hint_sets, table.derived_values, table.launches)
    for column, size in zip(COLUMNS, [*map(len, pools), image_count], strict=False):
        if table.columns[column] and max(table.columns[column]) >= size:
            raise refuse("pool", f"expected column {column} below {size}", got=max(table.columns[column]), where=where)
    keys = list(zip(*[table.columns[column] for column in KEY_COLUMNS], strict=True))
    # mapped, not looped over: ten thousand rows are checked before a first launch
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise refuse("order", "expected rows sorted by meaning, config, hints and derived, each once", where=where)


def _check_constexprs(table: KernelTable, where: str) -> None:
    """Check that each constexpr gets one value, from the meaning, the config, an expression or its default."""
    known = {param.name for param in table.params if param.constexpr}
    defaulted = {param.name for param in table.params if not isinstance(param.default, Missing)}
    fixed = [axis.name for axis in table.axes if not axis.is_type] + [derived.name for derived in table.derived]
    for names in {tuple([key for key, _ in config.constexprs]) for config in table.configs} or {()}:
        valued = [*fixed, *names]
        _each_once(valued, "valued constexpr", where)
        if strangers := set(valued) - known:
            what = "expected axes, configs and derived values of this kernel's constexprs"
            raise refuse("param", what, got=sorted(strangers), where=where)
        if missing := known - defaulted - set(valued):
            raise refuse("param", "expected a value for each constexpr", got=f"none for {sorted(missing)}", where=where)


def _each_once(names: list[str], what: str, where: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        rule = f"expected each {what} once"
        raise refuse("duplicate", rule, got=f"{twice!r} twice", where=where)
