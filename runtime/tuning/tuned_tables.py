"""Tuned tables as files: what was measured of one kernel on one device, in TOML that people read and edit.

`nojit.runtime.tuning.resolution.resolve` turns one into the numbers of a bundle's table. Nothing here is needed to launch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from nojit.runtime import _core
from nojit.runtime.base.file_kinds import check_regular
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import key_among, worded
from nojit.runtime.errors import TuningError
from nojit.runtime.expr.expression import ExpressionError, parse
from nojit.runtime.table.tuning import TunedDevice
from nojit.runtime.target import is_arch
from nojit.runtime.tuning.costs import cost_words, is_cost
from nojit.runtime.values import DType, FunctionRef, Value, identity

__all__ = [
    "MULTIPROCESSORS",
    "SCHEMA",
    "TunedConfig",
    "TunedCost",
    "TunedDevice",
    "TunedEntry",
    "TunedRow",
    "TunedTable",
    "is_name",
    "read_tuned",
]

SCHEMA = 1
MULTIPROCESSORS = "multiprocessors"
"""The name of the device's number of multiprocessors in a cost."""
_INT_MAX = (1 << 63) - 1


class TunedConfig(Record):
    """A config by its settings."""

    settings: tuple[tuple[str, Value], ...]
    """Constexprs and options, in the file's order; those left out are as the kernel's table has them."""
    requires: str
    """As the config's own; empty if it always may run."""


class TunedRow(Record):
    """One measured problem."""

    at: tuple[int, ...]
    """Its key values."""
    use: tuple[int, ...]
    """Configs by number, the best first."""
    us: tuple[float, ...]
    """The time of each of them; empty if the file gives none."""


class TunedCost(Record):
    """The estimated time of a config."""

    config: int
    """By number."""
    ps: str
    """Picoseconds: an expression over the key's names and `MULTIPROCESSORS`."""


class TunedEntry(Record):
    """Problems of cases that are tuned alike."""

    where: tuple[tuple[str, tuple[Value, ...]], ...]
    """The values of each axis that it is for; an axis left out may have any."""
    rows: tuple[TunedRow, ...]
    costs: tuple[TunedCost, ...] = ()
    """Of each config once; they decide where no row has a call's buckets. Empty: rows that are near do."""

    def covers(self, axes: Mapping[str, Value]) -> bool:
        """Say whether it is for a case.

        Args:
            axes: the value of each axis.
        """
        return all(
            name in axes and identity(axes[name]) in [identity(value) for value in values]
            for name, values in self.where
        )


class TunedTable(Record):
    """The measurements of one kernel on one device."""

    kernel: str
    key: tuple[str, ...]
    """Expressions over integer runtime params."""
    device: TunedDevice
    origin: tuple[tuple[str, str], ...]
    """The measurement's author, date and tools."""
    configs: tuple[TunedConfig, ...]
    entries: tuple[TunedEntry, ...]
    """The first that covers a case counts."""
    path: str = ""
    """The file."""
    names: tuple[str, ...] = ()
    """The names of the key's numbers in costs; empty if no cost needs them."""


def read_tuned(path: str | os.PathLike[str]) -> TunedTable:
    """Read a tuned table.

    Raises:
        OSError: the file cannot be read.
        TuningError: it is no regular file, no TOML, or breaks a rule of ``docs/runtime.md``; says which, and where.
    """
    import tomllib

    name = os.fsdecode(path)
    try:
        check_regular(name)
    except OSError as error:
        raise TuningError("expected a tuned table", got=worded(error), where=name) from None
    with open(name, "rb") as file:  # noqa: PTH123 - to import pathlib takes longer than to open a bundle
        content = file.read()
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise TuningError("expected TOML of a modest depth", where=name) from None
    except ValueError as error:
        raise TuningError("expected TOML in UTF-8", got=str(error), where=name) from None
    return _read_table(document, name)


def _read_table(document: dict[str, Any], path: str) -> TunedTable:
    where = f"{path} $"
    known = ("schema", "kernel", "key", "names", "device", "origin", "config", "entry")
    _check_fields(document, known, ("schema", "kernel", "key", "device", "config", "entry"), where)
    if document["schema"] != SCHEMA or type(document["schema"]) is not int:
        raise TuningError(f"expected schema {SCHEMA}", got=repr(document["schema"]), where=f"{where}.schema")
    key = _read_key(document["key"], f"{where}.key")
    names = _read_names(document["names"], len(key), f"{where}.names") if "names" in document else ()
    configs = [
        _read_config(config, f"{where}.config[{number}]")
        for number, config in enumerate(_some(document["config"], dict, f"{where}.config"))
    ]
    _check_distinct(configs, f"{where}.config")
    entries = [
        _read_entry(entry, len(key), names, len(configs), f"{where}.entry[{number}]")
        for number, entry in enumerate(_some(document["entry"], dict, f"{where}.entry"))
    ]
    return TunedTable(
        _take(document["kernel"], str, f"{where}.kernel"),
        key,
        _read_device(document["device"], f"{where}.device"),
        _read_origin(document.get("origin", {}), f"{where}.origin"),
        tuple(configs),
        tuple(entries),
        path,
        names,
    )


def _read_names(value: object, keys: int, where: str) -> tuple[str, ...]:
    names = _some(value, str, where)
    if len(names) != keys:
        raise TuningError(f"expected {keys} names, one for each number of the key", got=str(len(names)), where=where)
    for number, name in enumerate(names):
        if name == MULTIPROCESSORS or not is_name(name):
            raise TuningError("expected a name", got=repr(name), where=f"{where}[{number}]")
        if name in names[:number]:
            raise TuningError("expected each name once", got=repr(name), where=f"{where}[{number}]")
    return tuple(names)


def is_name(text: str) -> bool:
    """Say whether costs can call a number so: neither a number itself, nor a word of the language."""
    try:
        return parse(text).names == {text}
    except ExpressionError:
        return False


def _read_key(value: object, where: str) -> tuple[str, ...]:
    texts = _some(value, str, where)
    if len(texts) > _core.TUNING_KEYS_MAX:
        raise TuningError(f"expected at most {_core.TUNING_KEYS_MAX} expressions", got=str(len(texts)), where=where)
    for number, text in enumerate(texts):
        try:
            parse(text)
        except ExpressionError as error:
            raise TuningError(f"expected an expression: {error}", where=f"{where}[{number}]") from None
    return tuple(texts)


def _read_device(value: object, where: str) -> TunedDevice:
    names = ("name", "arch", "multiprocessors", "memory_bytes")
    device = _take(value, dict, where)
    _check_fields(device, names, names, where)
    name, arch = (_take(device[field], str, f"{where}.{field}") for field in names[:2])
    if not _core.is_printable(name) or len(name) > _core.TEXT_CHARS_MAX or not is_arch(arch):
        got = f"{name!r}, {arch!r}"
        raise TuningError("expected a printable name and an arch such as 'sm_90'", got=got, where=where)
    multiprocessors, memory_bytes = (_count(device[field], 1, _INT_MAX, f"{where}.{field}") for field in names[2:])
    return TunedDevice(name, arch, multiprocessors, memory_bytes)


def _read_origin(value: object, where: str) -> tuple[tuple[str, str], ...]:
    origin = _take(value, dict, where)
    return tuple([(name, _take(text, str, f"{where}.{name}")) for name, text in origin.items()])


def _read_config(value: dict[str, Any], where: str) -> TunedConfig:
    requires = _take(value.get("requires", ""), str, f"{where}.requires")
    try:
        if requires:
            parse(requires)
    except ExpressionError as error:
        raise TuningError(f"expected an expression: {error}", where=f"{where}.requires") from None
    settings = [(name, _read_value(raw, f"{where}.{name}")) for name, raw in value.items() if name != "requires"]
    if not settings:
        raise TuningError("expected constexprs and options", got="none", where=where)
    return TunedConfig(tuple(settings), requires)


def _check_distinct(configs: Sequence[TunedConfig], where: str) -> None:
    known: dict[object, int] = {}
    for number, config in enumerate(configs):
        settings = frozenset((name, identity(value)) for name, value in config.settings)
        first = known.setdefault((settings, config.requires), number)
        if first != number:
            raise TuningError(
                "expected each config once", got=f"the settings of config[{first}] again", where=f"{where}[{number}]"
            )


def _read_entry(value: dict[str, Any], keys: int, names: Sequence[str], configs: int, where: str) -> TunedEntry:
    _check_fields(value, ("where", "costs", "rows"), ("rows",), where)
    axes = _take(value.get("where", {}), dict, f"{where}.where")
    wanted = [(name, _read_values(raw, f"{where}.where.{name}")) for name, raw in axes.items()]
    rows = _some(value["rows"], dict, f"{where}.rows")
    read = [_read_row(row, keys, configs, f"{where}.rows[{number}]") for number, row in enumerate(rows)]
    known: dict[tuple[int, ...], int] = {}
    for number, row in enumerate(read):
        first = known.setdefault(row.at, number)
        if first != number:
            raise TuningError(
                "expected each `at` once", got=f"the values of rows[{first}] again", where=f"{where}.rows[{number}].at"
            )
    costs = _read_costs(value["costs"], names, configs, f"{where}.costs") if "costs" in value else ()
    return TunedEntry(tuple(wanted), tuple(read), costs)


def _read_costs(value: object, names: Sequence[str], configs: int, where: str) -> tuple[TunedCost, ...]:
    listed = _some(value, dict, where)
    if len(listed) > _core.COSTS_MAX:
        raise TuningError(f"expected at most {_core.COSTS_MAX} costs", got=str(len(listed)), where=where)
    costs = [_read_cost(cost, names, configs, f"{where}[{number}]") for number, cost in enumerate(listed)]
    if len({cost.config for cost in costs}) < len(costs):
        raise TuningError("expected the cost of each config once", got=str([c.config for c in costs]), where=where)
    return tuple(costs)


def _read_cost(value: dict[str, Any], names: Sequence[str], configs: int, where: str) -> TunedCost:
    _check_fields(value, ("config", "ps"), ("config", "ps"), where)
    ps = _take(value["ps"], str, f"{where}.ps")
    known = (*names, MULTIPROCESSORS)
    try:
        used = parse(ps).names
        words = cost_words(ps, names)
    except ExpressionError as error:
        raise TuningError(f"expected an expression: {error}", where=f"{where}.ps") from None
    for name in sorted(used.difference(known)):
        what = f"expected {', '.join(known)}: `names` says what the key's numbers are called"
        raise TuningError(what, got=f"{name!r}{did_you_mean(name, known)}", where=f"{where}.ps")
    if len(words) > _core.TEXT_CHARS_MAX or not is_cost(words, len(names)):
        raise TuningError(
            f"expected a number, in at most {_core.PROGRAM_LENGTH_MAX} operations", got=repr(ps), where=f"{where}.ps"
        )
    return TunedCost(_count(value["config"], 0, configs - 1, f"{where}.config"), ps)


def _read_row(value: dict[str, Any], keys: int, configs: int, where: str) -> TunedRow:
    _check_fields(value, ("at", "use", "us"), ("at", "use"), where)
    at = [_count(number, 0, _INT_MAX, f"{where}.at") for number in _take(value["at"], list, f"{where}.at")]
    if len(at) != keys:
        raise TuningError(f"expected {keys} numbers, one for each key", got=str(len(at)), where=f"{where}.at")
    use = [_count(number, 0, configs - 1, f"{where}.use") for number in _some(value["use"], int, f"{where}.use")]
    if len(set(use)) < len(use):
        raise TuningError("expected each config once", got=str(use), where=f"{where}.use")
    us = _take(value.get("us", []), list, f"{where}.us")
    if not all(type(time) in (int, float) and 0 < time < math.inf for time in us) or len(us) not in (0, len(use)):
        what = f"expected {len(use)} positive numbers, one for each config in `use`"
        raise TuningError(what, got=str(us), where=f"{where}.us")
    return TunedRow(tuple(at), tuple(use), tuple(map(float, us)))


def _read_values(raw: object, where: str) -> tuple[Value, ...]:
    """Read the values of an axis: a list of them, or one."""
    listed = _some(raw, object, where) if isinstance(raw, list) else [raw]
    return tuple([_read_value(item, f"{where}[{number}]") for number, item in enumerate(listed)])


def _read_value(raw: object, where: str) -> Value:
    """Read a value as a manifest spells it."""
    if isinstance(raw, list):
        return tuple([_read_value(item, where) for item in raw])
    if isinstance(raw, bool | int | float | str):
        return raw
    if isinstance(raw, dict) and len(raw) == 1:
        ((tag, body),) = raw.items()
        if tag in ("dtype", "function") and isinstance(body, str):
            return DType(body) if tag == "dtype" else FunctionRef(body)
        if tag == "none" and body is True:
            return None
    what = "expected an int, float, bool, string, array, {dtype = ...}, {function = ...} or {none = true}"
    raise TuningError(what, got=repr(raw), where=where)


def _check_fields(value: Mapping[str, object], known: Sequence[str], needed: Sequence[str], where: str) -> None:
    for name in value:
        if name not in known:
            near = did_you_mean(name, list(known))
            raise TuningError(f"expected {key_among(known)}", got=f"{name!r}{near}", where=f"{where}.{name}")
    for name in needed:
        if name not in value:
            raise TuningError(f"expected the key {name!r}", got="none", where=where)


def _take(value: object, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names: dict[type, str] = {str: "a string", dict: "a table", list: "an array", int: "an integer"}
        raise TuningError(f"expected {names[kind]}", got=repr(value), where=where)
    return value


def _some(value: object, kind: type, where: str) -> list[Any]:
    """Take an array that is not empty."""
    listed: list[Any] = _take(value, list, where)
    if not listed:
        raise TuningError("expected an array that is not empty", got="[]", where=where)
    return listed if kind is object else [_take(item, kind, f"{where}[{n}]") for n, item in enumerate(listed)]


def _count(value: object, least: int, most: int, where: str) -> int:
    number: int = _take(value, int, where)
    if not least <= number <= most:
        raise TuningError(f"expected a number from {least} to {most}", got=str(number), where=where)
    return number
