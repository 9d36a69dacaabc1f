"""Writer of tuned tables as readable TOML: equal tables give equal text, and diffs are by line.

`nojit.runtime.tuning.tuned_tables.read_tuned` is the reader.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nojit.aot.base.files import write_file
from nojit.runtime import _core
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import TuningError
from nojit.runtime.tuning.tuned_tables import SCHEMA, TunedConfig, TunedDevice, TunedEntry, TunedRow, TunedTable
from nojit.runtime.values import DType, FunctionRef, Value

__all__ = ["OUR_TOOLS", "device_slug", "file_name", "render_tuned", "write_tuned"]

OUR_TOOLS = ("nojit tune select", "nojit tune import", "nojit manifest")
"""Prefixes of ``origin.tool`` in files that nojit wrote."""
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
# for the rows and costs of an entry, one per line
_INDENT = "    "


def device_slug(device: TunedDevice) -> str:
    """Return a device's name for file names: ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or "device"


def file_name(table: TunedTable) -> str:
    """Return the file name of a table: ``flash_attention_fwd.nvidia-h200.toml``."""
    return f"{table.kernel}.{device_slug(table.device)}.toml"


def write_tuned(table: TunedTable, folder: Path, *, force: bool = False) -> Path:
    """Write a table atomically into a folder, under `file_name`; return the path.

    Args:
        table: a table with at least one config and entry.
        folder: the folder, created if it is missing.
        force: replace an existing file even if none of `OUR_TOOLS` wrote it.

    Raises:
        TuningError: the kernel's name is not valid in a file name, or the existing file is not from nojit.
        PackageError: the file cannot be written.
    """
    if not _core.is_name(table.kernel):
        # a name with a slash would leave the folder
        what = "expected a name of letters, digits and ._- that starts with a letter or _, to name the file after"
        raise TuningError(what, got=repr(table.kernel), where="kernel")
    path = folder / file_name(table)
    if not force:
        _check_ours(path)
    write_file(path, render_tuned(table).encode())
    return path


def _check_ours(path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        # write_file reports an invalid folder
        return
    except (OSError, UnicodeDecodeError) as error:
        raise TuningError("expected a tuned table to replace", got=worded(error), where=str(path)) from None
    try:
        origin = tomllib.loads(text).get("origin", {})
    except (ValueError, RecursionError):
        origin = {}
    tool = origin.get("tool", "") if isinstance(origin, dict) else ""
    if not str(tool).startswith(OUR_TOOLS):
        what = f"expected a file that {' or '.join(map(repr, OUR_TOOLS))} wrote"
        raise TuningError(what, got=f"origin.tool {tool!r}; replace it anyway with --force", where=str(path))


def render_tuned(table: TunedTable) -> str:
    """Return a table as TOML."""
    device = {name: getattr(table.device, name) for name in ("name", "arch", "multiprocessors", "memory_bytes")}
    parts = [
        [
            f"schema = {SCHEMA}",
            f"kernel = {_value(table.kernel)}",
            f"key = {_array(table.key)}",
            *([f"names = {_array(table.names)}"] if table.names else []),
        ],
        ["[device]", *_pairs(device)],
        ["[origin]", *_pairs(dict(table.origin))],
        *(_config(number, config) for number, config in enumerate(table.configs)),
        *(_entry(entry) for entry in table.entries),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _config(number: int, config: TunedConfig) -> list[str]:
    settings: dict[str, Value] = dict(config.settings)
    if config.requires:
        settings["requires"] = config.requires
    return [f"[[config]] # {number}", *_pairs(settings)]


def _entry(entry: TunedEntry) -> list[str]:
    axes = [f"{_key(axis)} = {_values(values)}" for axis, values in entry.where]
    where = ["where = { " + ", ".join(axes) + " }"] if axes else []
    costs = [f"{_INDENT}{{ config = {cost.config}, ps = {_value(cost.ps)} }}," for cost in entry.costs]
    rows = [_INDENT + row + "," for row in _aligned(entry.rows)]
    return ["[[entry]]", *where, *(["costs = [", *costs, "]"] if costs else []), "rows = [", *rows, "]"]


def _aligned(rows: Sequence[TunedRow]) -> Iterable[str]:
    """Yield rows as text with aligned columns."""
    at = [f"at = {_array(row.at)}," for row in rows]
    use = [f"use = {_array(row.use)}{',' if row.us else ''}" for row in rows]
    wide, wider = max(map(len, at)), max(map(len, use))
    for row, first, second in zip(rows, at, use, strict=True):
        last = f" us = {_array(row.us)}" if row.us else ""
        yield "{ " + f"{first:{wide}} {second:{wider}}{last}".rstrip() + " }"


def _pairs(values: Mapping[str, Value]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items()]


def _key(name: str) -> str:
    return name if _BARE.match(name) else _text(name)


def _values(values: Sequence[Value]) -> str:
    """Return the values of an axis as TOML: a single value without brackets, unless it is a tuple."""
    return _value(values[0]) if len(values) == 1 and not isinstance(values[0], tuple) else _array(values)


def _array(values: Iterable[Value]) -> str:
    return "[" + ", ".join(map(_value, values)) + "]"


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "{ none = true }"
    if isinstance(value, DType | FunctionRef):
        return f"{{ {'dtype' if isinstance(value, DType) else 'function'} = {_text(value.name)} }}"
    if isinstance(value, tuple):
        return _array(value)
    # repr of a float is valid TOML: 1e-05, inf, nan
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    # TOML has JSON's escapes, and also requires one for the delete character
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
