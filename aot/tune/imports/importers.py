"""Readers of other tools' measurements: Triton's autotune caches, and per-device configs of LLM servers. Pure, except for reading.

Triton writes ``<function>.autotune.json`` into its cache if ``cache_results`` is on (``triton/runtime/autotuner.py``)::

    {"key": [4096, 64, "torch.float16"], "configs_timings": [[{"kwargs": {"BLOCK": 64}, "num_warps": 4, ...}, [ms, ...]], ...]}

where ``key`` holds the values of the autotuner's ``key`` arguments, then the dtype of every tensor. vLLM and SGLang have a
file for each layer shape and device, with one config per number of tokens::

    E=8,N=14336,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8.json
    {"triton_version": "3.6.0", "1": {"BLOCK_SIZE_M": 16, "num_warps": 4, ...}, "64": {...}, ...}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from nojit.runtime.base.file_kinds import check_regular
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import key_among, worded
from nojit.runtime.errors import TuningError

__all__ = ["ForeignFile", "ForeignRow", "Settings", "read_foreign"]

Settings: TypeAlias = tuple[tuple[str, "int | float | bool | str"], ...]
"""A config's constexprs and options, sorted by name."""

_SIZE_MAX = 64 << 20
_INT_MAX = (1 << 63) - 1
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}\Z")
# fields of a cached config that must be null: tuned tables cannot store them
_HOOKS = ("pre_hook", "ir_override")


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """The configs that an imported file has for one problem."""

    values: Mapping[str, int]
    """The numbers of the problem, by name: ``0``, ``1`` for the key of a cache, ``M``, ``E``, ``N`` for a server's file."""
    times: tuple[tuple[Settings, float | None], ...]
    """Configs, fastest first, with microseconds if the file has times."""


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """An imported file: its configs, and their times if it has them."""

    path: str
    format: str
    """``triton`` or ``server``."""
    device_name: str
    """The device in the file's name; empty if there is none."""
    triton: str
    """The version of Triton in the file; empty if there is none."""
    rows: tuple[ForeignRow, ...]
    default: tuple[str, ...]
    """Names of the values that form the key by default."""


def read_foreign(path: Path) -> ForeignFile:
    """Read a file of Triton's autotuner, or a file of configs of an LLM server.

    Raises:
        TuningError: the file cannot be read, has neither format, or is invalid; the message says where.
    """
    document = _load(path)
    if "configs_timings" in document:
        return _read_cache(document, path)
    if any(key.isdecimal() for key in document):
        return _read_server(document, path)
    near = did_you_mean(next(iter(document), ""), ("configs_timings",))
    what = (
        "expected the key 'configs_timings' (a cache of Triton's autotuner) or numbers of tokens as keys (configs of vLLM "
        "or SGLang): import a file of one of these"
    )
    raise TuningError(what, got=f"keys {', '.join(list(document)[:5]) or 'none'}{near}", where=str(path))


def _load(path: Path) -> dict[str, Any]:
    where = str(path)
    try:
        check_regular(path)
        with path.open("rb") as file:
            content = file.read(_SIZE_MAX + 1)
    except OSError as error:
        what = "expected a file of Triton's autotuner or of an LLM server"
        raise TuningError(what, got=worded(error), where=where) from None
    if len(content) > _SIZE_MAX:
        raise TuningError(f"expected a file of at most {_SIZE_MAX} bytes", got="a larger one", where=where)

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise TuningError(
                "expected each key of an object once", got=str([key for key, _ in pairs][:8]), where=where
            )
        return found

    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=distinct)
    except TuningError:
        raise
    except (ValueError, RecursionError) as error:
        raise TuningError("expected JSON in UTF-8", got=str(error), where=where) from None
    if not isinstance(document, dict):
        raise TuningError("expected a JSON object", got=type(document).__name__, where=where)
    return document


def _read_cache(document: Mapping[str, Any], path: Path) -> ForeignFile:
    where = f"{path} $"
    key = _nonempty_list(document.get("key"), f"{where}.key")
    values = {str(place): _count(value, f"{where}.key[{place}]") for place, value in enumerate(key) if _is_int(value)}
    timings = []
    for place, pair in enumerate(_nonempty_list(document["configs_timings"], f"{where}.configs_timings")):
        spot = f"{where}.configs_timings[{place}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise TuningError("expected a pair of a config and its times", got=repr(pair)[:80], where=spot)
        us = _microseconds(pair[1], spot)
        # Triton stores an infinite time for a config that could not run
        if us < math.inf:
            timings.append((_cached_config(pair[0], f"{spot}[0]"), us))
    if not timings:
        raise TuningError("expected a config with a finite time", got="none", where=f"{where}.configs_timings")
    timings.sort(key=lambda timing: timing[1])
    row = ForeignRow(values, tuple(timings))
    return ForeignFile(str(path), "triton", "", "", (row,), tuple(values))


def _cached_config(config: Any, where: str) -> Settings:
    known = ("kwargs", *TUNABLE, *_HOOKS)
    if not isinstance(config, dict) or not isinstance(config.get("kwargs"), dict):
        raise TuningError("expected a config with kwargs", got=repr(config)[:80], where=where)
    for name in config:
        if name not in known:
            got = f"{name!r}{did_you_mean(name, known)}"
            raise TuningError(f"expected {key_among(known)}", got=got, where=where)
    for name in _HOOKS:
        if config.get(name) is not None:
            raise TuningError(
                f"expected no {name}, which tuned tables cannot store", got=repr(config[name])[:80], where=where
            )
    options = {name: config[name] for name in TUNABLE if config.get(name) is not None}
    return _settings(config["kwargs"] | options, where)


def _microseconds(times: Any, where: str) -> float:
    """Return microseconds of a time in milliseconds: a number, or a list of the median and quantiles."""
    first = times[0] if isinstance(times, list) and times else times
    if isinstance(first, bool) or not isinstance(first, int | float) or not first > 0:
        raise TuningError("expected times in milliseconds", got=repr(times)[:80], where=f"{where}[1]")
    return float(first) * 1000


def _read_server(document: Mapping[str, Any], path: Path) -> ForeignFile:
    named = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,]+)", path.name.removesuffix(".json")))
    sizes = {name: int(value) for name, value in named.items() if re.fullmatch(r"[0-9]{1,18}", value)}
    rows = []
    for key, config in document.items():
        where = f"{path} $.{key}"
        if not key.isdecimal():
            if key != "triton_version":
                what = "expected only numbers of tokens and 'triton_version' as keys: remove this key"
                raise TuningError(what, got=repr(key), where=str(path))
            continue
        if not re.fullmatch(r"0|[1-9][0-9]{0,17}", key):
            what = "expected a number of tokens as a key, such as '16': rename this key"
            raise TuningError(what, got=repr(key[:40]), where=str(path))
        if not isinstance(config, dict):
            raise TuningError("expected a config", got=repr(config)[:80], where=where)
        rows.append(ForeignRow({**sizes, "M": int(key)}, ((_settings(config, where), None),)))
    rows.sort(key=lambda row: row.values["M"])
    device = named.get("device_name", "").replace("_", " ")
    triton = document.get("triton_version", "")
    if not isinstance(triton, str):
        raise TuningError(
            "expected the version of Triton as a string", got=repr(triton)[:80], where=f"{path} $.triton_version"
        )
    return ForeignFile(str(path), "server", device, triton, tuple(rows), ("M",))


def _settings(config: Mapping[str, Any], where: str) -> Settings:
    for name, value in config.items():
        if not _IDENTIFIER.match(name):
            raise TuningError("expected the name of a constexpr or an option", got=repr(name[:40]), where=where)
        if not _is_value(value):
            what = "expected a bool, a 64-bit number or a string"
            raise TuningError(what, got=repr(value)[:80], where=f"{where}.{name}")
    if not config:
        raise TuningError("expected at least one setting", got="none", where=where)
    return tuple(sorted(config.items()))


def _is_value(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) or (isinstance(value, int) and abs(value) <= _INT_MAX)


def _nonempty_list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise TuningError("expected an array that is not empty", got=repr(value)[:80], where=where)
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: int, where: str) -> int:
    if not 0 <= value <= _INT_MAX:
        raise TuningError("expected an integer from 0 to 2**63 - 1", got=str(value)[:80], where=where)
    return value
