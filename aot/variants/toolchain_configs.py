"""Toolchains as one more choice of a config: which Triton compiles it. Pure.

A config may name its toolchain, by hand or in a tuned table. Any other is compiled by the default toolchain of the bundle, or for
a tuning bundle by every toolchain. The runtime knows the choice as an option of the config, like ``num_warps``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.options import TOOLCHAIN
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.manifest.tuning_rules import choices
from nojit.aot.variants.variant import Variant
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import TuningError
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedTable

__all__ = ["check_toolchains", "compiling", "tables_for", "with_toolchain", "with_toolchains"]


def compiling(spec: KernelSpec, tritons: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of the toolchains whose Triton is new enough for a kernel.

    Args:
        spec: the manifest entry of the kernel; its `triton` is the oldest release that compiles it.
        tritons: name and version of each toolchain. An unknown version, which is empty, counts as new enough.
    """
    oldest = _release(spec.triton.removeprefix(">="))
    return tuple(name for name, version in tritons if not version or _release(version) >= oldest)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: (3, 7, 0) for ``3.7.0+git1`` and for ``3.7``."""
    found = re.match(r"[0-9]+(\.[0-9]+)*", version)
    numbers = tuple(map(int, found[0].split("."))) if found else ()
    return (*numbers, 0, 0, 0)[:3]


def check_toolchains(spec: KernelSpec, tritons: Sequence[tuple[str, str]], place: str, mistakes: Mistakes) -> None:
    """Add a mistake for each toolchain in an entry that the build lacks, or that is too old for the kernel.

    Args:
        spec: the manifest entry of a kernel.
        tritons: name and version of each toolchain of the bundle; the name is empty if nothing names it.
        place: key path of the entry in the manifest.
        mistakes: receives the mistakes.
    """
    names, able = tuple(name for name, _ in tritons if name), compiling(spec, tritons)
    for key, name in _named(spec):
        if name in names and name not in able:
            what = f"expected a toolchain that compiles the kernel, whose triton is {spec.triton!r}"
            mistakes.add(what, got=repr(name), at=f"{place}.{key}")
        elif name not in names:
            known = ", ".join(names) or "none is named"
            what = f"expected a toolchain of the bundle ({known}): list it in `toolchains` of [bundle], or pass --toolchain"
            mistakes.add(what, got=f"{name!r}{did_you_mean(name, tuple(names))}", at=f"{place}.{key}")


def _named(spec: KernelSpec) -> Iterator[tuple[str, str]]:
    """Yield the toolchains that an entry names, each with its key path."""
    places: list[tuple[str, Mapping[str, Any]]] = [("options", spec.options)]
    places += [(f"configs[{number}]", config) for number, config in enumerate(spec.configs)]
    places += [(f"point[{number}].config", point.config) for number, point in enumerate(spec.point)]
    places += [
        (f"tuning.space[{number}]", space) for number, space in enumerate(spec.tuning.space if spec.tuning else ())
    ]
    for place, settings in places:
        for name in choices(settings[TOOLCHAIN]) if TOOLCHAIN in settings else ():
            if isinstance(name, str):
                yield f"{place}.{TOOLCHAIN}", name


def with_toolchains(spec: KernelSpec, names: Sequence[str], *, tuning: bool) -> KernelSpec:
    """Return a kernel's entry in which every config names its toolchain; unchanged for a bundle with one toolchain.

    Args:
        spec: the manifest entry of the kernel.
        names: names of the bundle's toolchains, the default one first.
        tuning: whether each config is compiled by every toolchain, to be measured.
    """
    if len(names) < 2:
        return spec
    options = {TOOLCHAIN: names[0], **spec.options}
    if not tuning or spec.tuning is None or TOOLCHAIN in spec.options:
        return msgspec.structs.replace(spec, options=options)
    # the default one first: an earlier config is preferred
    configs = [
        _chosen(config, name) for config in spec.configs for name in (names if TOOLCHAIN not in config else names[:1])
    ]
    space = [_chosen(table, [*names]) for table in spec.tuning.space]
    return msgspec.structs.replace(
        spec, options=options, configs=configs, tuning=msgspec.structs.replace(spec.tuning, space=space)
    )


def _chosen(config: Mapping[str, Any], chosen: object) -> dict[str, Any]:
    return {**config, TOOLCHAIN: config.get(TOOLCHAIN, chosen)}


def tables_for(table: TunedTable, names: Sequence[str]) -> TunedTable:
    """Return a tuned table for a build: for a bundle with one toolchain, configs without a toolchain.

    Measurements of several toolchains still tell the best config for one of them.

    Args:
        table: the tuned table.
        names: names of the bundle's toolchains.

    Raises:
        TuningError: the table names a toolchain that the bundle lacks.
    """
    if len(names) < 2:
        return replace(table, configs=tuple(map(_without, table.configs)))
    for number, config in enumerate(table.configs):
        name = dict(config.settings).get(TOOLCHAIN, names[0])
        if name not in names:
            what = (
                f"expected a toolchain of the bundle ({', '.join(names)}): add --toolchain {name}=VENV, or tune again"
            )
            raise TuningError(what, got=repr(name), where=f"{table.path} $.config[{number}].{TOOLCHAIN}")
    return table


def _without(config: TunedConfig) -> TunedConfig:
    return TunedConfig(tuple(setting for setting in config.settings if setting[0] != TOOLCHAIN), config.requires)


def with_toolchain(variants: Sequence[Variant], names: Sequence[str]) -> tuple[Variant, ...]:
    """Return variants with the name of the toolchain that compiles each.

    `names`: names of the bundle's toolchains, the default one first; empty if it has one that nothing names.
    """
    if not names:
        return tuple(variants)
    return tuple(
        replace(variant, toolchain=str(dict(variant.config.options).get(TOOLCHAIN) or names[0])) for variant in variants
    )
