"""Kernels in the library's manifests: functions and configs for calls that no bundle serves.

The manifests are installed with the package. A table made here has no variants. Its rows are the manifest's configs for
the types and constexprs of a call; the manifest's build-time rules are part of their ``requires``.
"""

from __future__ import annotations

import re
import tomllib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.call.call_facts import CallFacts
from nojit.runtime.errors import ArgumentError
from nojit.runtime.table.parts import Axis, Case, Config, Derived, Missing, Param
from nojit.runtime.table.table import KernelTable
from nojit.runtime.target import arch_number
from nojit.runtime.values import DType, FunctionRef, Value, spell

__all__ = [
    "FOLDER",
    "ManifestKernel",
    "arch_for",
    "blank_table",
    "by_position",
    "manifest_kernel_of",
    "modules",
    "source_of",
    "table_of",
]

FOLDER: Final = Path(__file__).resolve().parents[1] / "manifests"
_RULES: Final = ("archs", "when", "requires")


class ManifestKernel(Record):
    """A kernel as its manifest describes it."""

    words: Mapping[str, Any]
    """The entry as read from the TOML file."""
    archs: tuple[str, ...]
    """The archs for which the manifest's bundle is built."""


def manifest_kernel_of(kernel: str) -> ManifestKernel | None:
    """Return a kernel's manifest entry; None if no manifest has the kernel."""
    return _entries(FOLDER).get(kernel)


def source_of(kernel: str) -> str | None:
    """Return where a kernel's function is defined, as ``module:function``; None if no manifest has the kernel."""
    entry = manifest_kernel_of(kernel)
    return None if entry is None else str(entry.words["source"])


def by_position(kernel: str, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a launch in the order of the kernel's params, and its constexprs by name.

    A kernel of no manifest keeps its arguments as they are.

    Raises:
        TypeError: a param has no argument, or two.
    """
    entry = manifest_kernel_of(kernel)
    params = () if entry is None else tuple(entry.words["params"])
    missing = [name for name in params[len(args) :] if name not in named]
    twice = [name for name in params[: len(args)] if name in named]
    if missing or twice:
        what = f"no value of {', '.join(missing)}" if missing else f"two values of {', '.join(twice)}"
        raise TypeError(f"{kernel}: expected a value for each param, got {what}")
    rest = {name: value for name, value in named.items() if name not in params}
    return (*args, *(named[name] for name in params[len(args) :])), rest


@cache
def modules() -> frozenset[str]:
    """Return the names of all modules that define kernels of the manifests, or functions passed to them as constexprs."""
    places = [place for entry in _entries(FOLDER).values() for place in _places(entry.words)]
    return frozenset(place.partition(":")[0] for place in places)


def _places(words: Mapping[str, Any]) -> Iterator[str]:
    """Yield all functions, as ``module:function``, that a kernel's entry names.

    `words`: the entry as TOML gives it.
    """
    yield str(words["source"])
    listed = [value for values in words.get("matrix", {}).values() for value in values]
    listed += [value for config in words["configs"] for value in config.values()]
    yield from [value["function"] for value in listed if isinstance(value, dict) and "function" in value]


@cache
def _entries(folder: Path) -> dict[str, ManifestKernel]:
    found = {}
    for path in sorted(folder.glob("*.toml")):
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        archs = tuple(manifest["bundle"]["archs"])
        found.update({words["name"]: ManifestKernel(words, archs) for words in manifest["kernel"]})
    return found


def blank_table(entry: ManifestKernel, params: tuple[Param, ...]) -> KernelTable:
    """Return a kernel table with params and configs, but without the types and matrix values of a call."""
    words = entry.words
    derived = words.get("derived", {}).items()
    return KernelTable(
        kernel=words["name"],
        params=params,
        grid=tuple(words.get("grid", ())),
        tuning=None,
        axes=(),
        derived=tuple(Derived(name, rule if isinstance(rule, str) else rule["expr"]) for name, rule in derived),
        signatures=(),
        cases=(),
        configs=tuple(_config(config, words, params) for config in words["configs"]),
        hint_sets=tuple(tuple(hints.items()) for hints in words.get("hints", ())),
        derived_values=(),
        launches=(),
        programs=(),
        columns={column: array("I") for column in _core.KEY_COLUMNS},
    )


def table_of(entry: ManifestKernel, blank: KernelTable, call: CallFacts) -> KernelTable:
    """Return a kernel table with the configs that can serve a call.

    Args:
        entry: the kernel's manifest entry.
        blank: the result of `blank_table` for this entry.
        call: facts about the call, for an arch of the manifest.

    Raises:
        ArgumentError: the call leaves out a constexpr of the matrix.
    """
    words, params = entry.words, blank.params
    axes = tuple(_axes(words, params, call))
    signatures: dict[tuple[str, ...], int] = {}
    cases: dict[Case, int] = {}
    columns = {column: array("I") for column in _core.KEY_COLUMNS}
    for point in product(*(range(len(axis.values)) for axis in axes)):
        chosen = {axis.name: axis.values[place] for axis, place in zip(axes, point, strict=True)}
        for number in _of_arch(words, call):
            types = tuple(_types(words, params, chosen | dict(blank.configs[number].constexprs), call))
            case = Case(signatures.setdefault(types, len(signatures)), point)
            row = (cases.setdefault(case, len(cases)), number, 0, 0)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return replace(blank, axes=axes, signatures=tuple(signatures), cases=tuple(cases), columns=columns)


def _config(config: Mapping[str, Any], words: Mapping[str, Any], params: tuple[Param, ...]) -> Config:
    constexprs = {param.name for param in params if param.constexpr}
    settings = {name: _value(value) for name, value in config.items() if name not in _RULES}
    rules = [config[rule] for rule in ("when", "requires") if rule in config]
    rules += [f"not ({exclude['when']})" for exclude in words.get("exclude", ())]
    return Config(
        tuple((name, value) for name, value in settings.items() if name in constexprs),
        (
            *words.get("options", {}).items(),
            *((name, value) for name, value in settings.items() if name not in constexprs),
        ),
        " and ".join(f"({rule})" for rule in rules),
    )


def _of_arch(words: Mapping[str, Any], call: CallFacts) -> list[int]:
    """Return the indices of the entry's configs for the arch of a call.

    `words`: the entry as TOML gives it.
    """
    configs = enumerate(words["configs"])
    return [number for number, config in configs if f"sm_{call.arch}" in config.get("archs", (f"sm_{call.arch}",))]


def _axes(words: Mapping[str, Any], params: tuple[Param, ...], call: CallFacts) -> Iterator[Axis]:
    """Yield the axes of the matrix; an axis of constexpr values has only the value from the call.

    `words`: the entry as TOML gives it.
    """
    constexprs = {param.name: param.default for param in params if param.constexpr}
    for name, listed in words.get("matrix", {}).items():
        values = tuple(map(_value, listed))
        if name not in constexprs:
            yield Axis(name, is_type=True, values=values)
            continue
        value = call.constexprs.get(name, constexprs[name])
        if isinstance(value, Missing):
            what = f"expected a value for {name}, one of {', '.join(map(spell, values))}"
            raise ArgumentError(what, where=f"kernel {words['name']}", argument=name)
        yield Axis(name, is_type=False, values=(value,))


def _types(
    words: Mapping[str, Any], params: tuple[Param, ...], chosen: Mapping[str, Value], call: CallFacts
) -> Iterator[str]:
    """Yield the type of each param that is not a constexpr, in Triton's spelling; `chosen` has the values of the axes.

    `words`: the entry as TOML gives it.
    """
    for param in params:
        if param.constexpr:
            continue
        kind = re.sub(r"{(\w+)}", lambda found: str(chosen[found[1]]), words["params"][param.name])
        kind = kind.replace(" ", "")
        none = kind.endswith("?") and call.arguments[param.name].kind == "none"
        yield "none" if none else kind.removesuffix("?")


def _value(value: Any) -> Any:
    """Parse a constexpr value as the TOML file has it."""
    if not isinstance(value, dict):
        return value
    if "function" in value:
        return FunctionRef(value["function"])
    return DType(value["dtype"]) if "dtype" in value else None


def arch_for(entry: ManifestKernel, capability: int) -> int:
    """Return the newest of the manifest's archs that is not newer than the device, or else the oldest.

    Args:
        entry: the kernel's manifest entry.
        capability: compute capability of the device, as 10 * major + minor.
    """
    numbers = sorted(map(arch_number, entry.archs))
    return max((number for number in numbers if number <= capability), default=numbers[0])
