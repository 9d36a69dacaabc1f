"""Expander of tuning spaces: lists the variants to measure, and those that rules remove. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
from nojit.aot.manifest.archs import check_arch
from nojit.aot.manifest.config_rules import CONFIG_RULES
from nojit.aot.manifest.options import TOOLCHAIN
from nojit.aot.manifest.spec import KernelSpec, TuningSpec
from nojit.aot.manifest.tuning_rules import choices
from nojit.aot.variants.configs import BuildConfig, config_of
from nojit.aot.variants.counting import MAX_VARIANTS, check_count, check_size
from nojit.aot.variants.expand import Expander, Names
from nojit.aot.variants.hints import HintSet, WrittenHints
from nojit.aot.variants.left_out import Pruned
from nojit.aot.variants.requirements import parse_rule
from nojit.aot.variants.variant import Variant
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedTable
from nojit.runtime.values import DType, FunctionRef, Value

__all__ = ["SpaceExpansion", "configs_of", "expand_space", "narrowed"]


@dataclass(frozen=True, slots=True)
class SpaceExpansion:
    """The variants of one kernel to measure on one arch."""

    variants: tuple[Variant, ...]
    """Variants by case: first of the manifest's own configs, then of the space's; only the largest hint set of each."""
    excluded: int
    """Number of variants that `exclude` removed."""
    pruned: tuple[Pruned, ...]
    """Variants that the `when` of a space removed."""


def expand_space(spec: KernelSpec, arch: str, where: str, most: int | None = MAX_VARIANTS) -> SpaceExpansion:
    """Return the variants of one kernel to measure; no variants if the entry has no tuning space.

    Args:
        spec: the manifest's entry.
        arch: an arch that `nojit.aot.manifest.archs.check_arch` accepts.
        where: manifest and kernel, for messages.
        most: maximum number of variants before any rule; None for no limit.

    Raises:
        ManifestError: the entry contradicts itself, or has too many variants.
    """
    check_arch(arch, where)
    if spec.tuning is None or not spec.tuning.space:
        return SpaceExpansion((), 0, ())
    return _SpaceExpander(spec, spec.tuning, arch, where, most).expand()


def narrowed(spec: KernelSpec, tables: Sequence[TunedTable], toolchains: Sequence[str]) -> KernelSpec:
    """Return a kernel's entry whose only space is the configs of tuned tables: those to measure again.

    Args:
        spec: the manifest's entry.
        tables: the kernel's tuned tables for the arch. Without any, only the configs of the entry are left.
        toolchains: names of the toolchains that compile each config, if there are several.
    """
    if spec.tuning is None or not spec.tuning.space:
        return spec
    chosen = {TOOLCHAIN: [*toolchains]} if len(toolchains) > 1 else {}
    configs = dict.fromkeys(config for table in tables for config in table.configs)
    space = [{**_written(config), **chosen} for config in configs] or [dict(config) for config in spec.configs]
    return msgspec.structs.replace(spec, tuning=msgspec.structs.replace(spec.tuning, space=space))


def _written(config: TunedConfig) -> dict[str, Any]:
    """Return a config as a table of a space, in which each value is a list of one."""
    settings = {name: [_raw(value)] for name, value in config.settings if value is not None and name != TOOLCHAIN}
    return settings | ({"requires": config.requires} if config.requires else {})


def _raw(value: Value) -> Any:
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, FunctionRef):
        return {"function": value.name}
    return [*map(_raw, value)] if isinstance(value, tuple) else {"none": True} if value is None else value


def configs_of(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the configs of one table of a tuning space: all combinations of its lists, the last key varying fastest."""
    rules = {key: table[key] for key in table if key in CONFIG_RULES}
    settings = {key: choices(value) for key, value in table.items() if key not in CONFIG_RULES}
    for values in product(*settings.values()):
        yield dict(zip(settings, values, strict=True)) | rules


class _SpaceExpander(Expander):
    """Expander of the configs and the tuning spaces of a manifest entry."""

    def __init__(self, spec: KernelSpec, tuning: TuningSpec, arch: str, where: str, most: int | None) -> None:
        # cases are tuned for aligned calls; other calls run a config that serves every call
        super().__init__(
            msgspec.structs.replace(spec, aligned_only="a tuning bundle serves aligned calls"), arch, where
        )
        # check before the product of the spaces is made
        self._own_configs = self._configs
        check_count(spec, arch, where, most, self._own_configs, tuning=True)
        self.rule = parse_rule(tuning.when, f"{where}.tuning.when")
        self.own = len(self.configs)
        for number, table in enumerate(tuning.space):
            for raw in configs_of(table):
                self.configs.append(config_of(spec, len(self.configs), raw, arch, f"{where}.tuning.space[{number}]"))

    def expand(self) -> SpaceExpansion:
        """Return the variants to measure, and those that rules of the tuning space remove."""
        variants: list[Variant] = []
        pruned: list[Pruned] = []
        excluded = 0
        seen: set[str] = set()
        for point in self.points():
            meant = self.names_of(point)
            if self.rule.names <= meant.keys() and not self.truth(self.rule, meant):
                continue
            for variant, names in self.variants_of(point):
                facts = repr((variant.axes, variant.signature, variant.config, variant.derived))
                if any(self.truth(rule, names) for rule in self.exclude):
                    excluded += 1
                elif self.truth(self.rule, names) and facts not in seen:
                    if (reason := self._left_out(variant, names)) is None:
                        seen.add(facts)
                        variants.append(variant)
                        check_size(len(variants), self.spec, self.where, self._own_configs, tuning=True)
                    else:
                        pruned.append(Pruned(variant.kernel, variant.label(), reason, ""))
        return SpaceExpansion(tuple(variants), excluded, tuple(pruned))

    def fits(self, config: BuildConfig, names: Names) -> bool:
        """Return whether to expand a config for a case.

        Configs of the space always expand; `expand` then records those that a `when` rule removes.
        """
        return config.number >= self.own or super().fits(config, names)

    def hint_sets_of(
        self, config: BuildConfig, written: Sequence[WrittenHints], types: Mapping[str, str]
    ) -> list[HintSet]:
        """Return a list of only the largest hint set of a config.

        `written`: the hints as the manifest lists them; `types`: type of each param.
        """
        return [max(super().hint_sets_of(config, written, types), key=len)]

    def _left_out(self, variant: Variant, names: Names) -> str | None:
        rule = self.configs[variant.config_number].when
        return None if self.truth(rule, names) else f"left out by {rule.text!r}"
