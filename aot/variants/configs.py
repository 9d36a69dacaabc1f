"""Parsed configs of a kernel's manifest entry: settings, archs, rules, and the hints that `requires` implies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nojit.aot.manifest import expression_tree
from nojit.aot.manifest.archs import check_target, chips_of
from nojit.aot.manifest.config_rules import constexprs_in, told_options
from nojit.aot.manifest.matrix import read_value
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN, option_value
from nojit.aot.variants.requirements import implied_hints, parse_rule
from nojit.runtime.errors import ManifestError
from nojit.runtime.table.parts import Config
from nojit.runtime.values import Value, identity

if TYPE_CHECKING:
    from nojit.aot.manifest.spec import KernelSpec

__all__ = ["BuildConfig", "check_distinct", "config_of", "make_config"]


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """One config of a manifest, with its expressions parsed."""

    number: int
    """Position of the config in the order of preference, from 0."""
    stored: Config
    """The part of the config that a bundle stores: constexprs, options that distinguish configs, and `requires`."""
    options: tuple[tuple[str, Value], ...]
    """Value of every option of the compiler, including defaults, without the choice of the toolchain."""
    archs: tuple[str, ...]
    when: expression_tree.Expression
    implied: tuple[tuple[str, int], ...]
    """Hints that `requires` already guarantees. Every variant of the config is compiled with them."""


def config_of(spec: KernelSpec, number: int, raw: Mapping[str, Any], arch: str, where: str) -> BuildConfig:
    """Return one config of a manifest, parsed and checked.

    Args:
        spec: the kernel's entry.
        number: position of the config in the order of preference, from 0.
        raw: the config as parsed from TOML; its options have been checked.
        arch: the arch to build for.
        where: place of the config in the manifest, for messages.

    Raises:
        ManifestError: a value, an arch or a rule is invalid.
    """
    for named in raw.get("archs", []):
        check_target(named, f"{where}.archs")
    constexprs = {key: read_value(raw[key], f"{where}.{key}") for key in constexprs_in(raw)}
    options = {key: option_value(value) for key, value in raw.items() if key in OPTIONS}
    return make_config(
        spec,
        number,
        constexprs | options,
        requires=raw.get("requires", ""),
        archs=tuple(chip for named in raw.get("archs", (arch,)) for chip in chips_of(named)),
        when=parse_rule(raw.get("when", "true"), f"{where}.when"),
        where=where,
    )


def make_config(
    spec: KernelSpec,
    number: int,
    settings: Mapping[str, Value],
    *,
    requires: str,
    archs: tuple[str, ...],
    when: expression_tree.Expression,
    where: str,
) -> BuildConfig:
    """Return a config that sets the given constexprs and compiler options; other options come from the kernel.

    `spec`: the kernel's manifest entry; `archs`: archs to build the config for; `when`: the rule that a case must
    satisfy.

    Raises:
        ManifestError: `requires` is not an expression.
    """
    defaults = {name: option.default for name, option in OPTIONS.items()}
    given = {key: value for key, value in settings.items() if key in OPTIONS}
    options = {name: option_value(value) for name, value in (defaults | spec.options | given).items()}
    constexprs = tuple(sorted((key, value) for key, value in settings.items() if key not in OPTIONS))
    return BuildConfig(
        number,
        Config(constexprs, tuple((name, options[name]) for name in told_options(spec)), requires),
        tuple(sorted((name, value) for name, value in options.items() if name != TOOLCHAIN)),
        archs,
        when,
        _implied(spec, requires, f"{where}.requires"),
    )


def _implied(spec: KernelSpec, requires: str, where: str) -> tuple[tuple[str, int], ...]:
    typed = spec.params.keys() | {name for point in spec.point for name in point.types}
    return tuple(hint for hint in implied_hints(requires, where) if hint[0] in typed)


def check_distinct(configs: Iterable[BuildConfig], where: str) -> None:
    """Check that no two configs have the same settings and rules.

    Raises:
        ManifestError: two configs are equal.
    """
    seen: dict[tuple[Any, ...], int] = {}
    for config in configs:
        settings = tuple(
            (name, identity(value)) for name, value in config.stored.constexprs + config.stored.options + config.options
        )
        key = (settings, config.stored.requires, config.archs, config.when.text)
        if key in seen:
            raise ManifestError(
                f"expected configs to differ, got configs[{seen[key]}] again", where=f"{where}.configs[{config.number}]"
            )
        seen[key] = config.number
