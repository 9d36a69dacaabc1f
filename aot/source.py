"""What a kernel's source says of itself, and whether a variant fits it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from nojit.aot.config_rules import CONFIG_RULES
from nojit.aot.options import OPTIONS
from nojit.aot.types import has_layout
from nojit.aot.variant import Variant
from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.table import Config, Missing, Param
from nojit.runtime.tuned import TunedConfig

__all__ = ["KernelSource", "SourcePlace", "fit_tuned", "fit_variant"]


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel function, as found."""

    name: str
    params: tuple[Param, ...]
    """In the function's order."""
    unspecialized: frozenset[str]
    """Params that the function keeps from being specialized: they take no hints, nor do their members."""
    unaligned: frozenset[str]
    """Params that the function keeps from being specialized on their alignment: they take no hint 16."""
    digest: str
    """SHA-256 over the function and everything that it reaches, without line numbers."""
    gluon: bool = False
    """Whether it is written in Gluon, and knows the layouts of descriptors."""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a manifest entry says that its kernel is."""

    spelling: str
    """``package.module:function``, or ``path/to/file.py:function`` relative to `folder`."""
    folder: Path
    """Where the manifest lies."""
    where: str
    """The manifest entry, for messages."""


def fit_variant(variant: Variant, source: KernelSource, where: str) -> Variant:
    """Return a variant as its function takes it, or refuse one that the function cannot be compiled as.

    A constexpr that is called as an option has the value of the option: Triton binds a keyword to both. What a config sets
    it to then tells configs apart as other constexprs do.

    Raises:
        ManifestError: a param that is not the kernel's, one without a type or value, a runtime param given as a
            constexpr or the other way, one with the name of an option, a hint that the function forbids.
    """
    fitted = _with_own_options(variant, source, where)
    _check_variant(fitted, source, where)
    return fitted


def fit_tuned(config: TunedConfig, source: KernelSource) -> TunedConfig:
    """Put the settings of a tuned table in the order that `fit_variant` gives those of a variant."""
    own = {param.name for param in source.params}
    ranks = {name: 2 - (name in own) if name in OPTIONS else 0 for name, _ in config.settings}
    return TunedConfig(tuple(sorted(config.settings, key=lambda setting: ranks[setting[0]])), config.requires)


def _with_own_options(variant: Variant, source: KernelSource, where: str) -> Variant:
    own = {param.name for param in source.params} & {name for name, _ in variant.config.options}
    if not own:
        return variant
    _check_own(sorted(own), variant, source, where)
    taken = tuple(pair for pair in variant.config.options if pair[0] in own)
    others = tuple(pair for pair in variant.config.options if pair[0] not in own)
    config = Config(variant.config.constexprs + taken, others, variant.config.requires)
    return replace(variant, constexprs=variant.constexprs + taken, config=config)


def _check_own(own: Iterable[str], variant: Variant, source: KernelSource, where: str) -> None:
    constexprs = {param.name for param in source.params if param.constexpr}
    for name in own:
        if name not in constexprs:
            what = f"expected {source.name} to have a constexpr, or no param, by the name of an option"
            raise ManifestError(what, got=f"{name!r}, a runtime param", where=where)
        if name in dict(variant.constexprs):
            what = f"expected a value for {name!r} from configs alone, since it is an option, too"
            raise ManifestError(what, got="one from matrix or derived", where=where)


def _check_variant(variant: Variant, source: KernelSource, where: str) -> None:
    runtime = [param.name for param in source.params if not param.constexpr]
    constexprs = [param.name for param in source.params if param.constexpr]
    typed = [name for name, _ in variant.signature]
    valued = [name for name, _ in variant.constexprs]
    _known(typed, runtime, constexprs, ("runtime param", "constexpr"), f"{where}.params")
    from_config = {name for name, _ in variant.config.constexprs}
    for name in valued:
        place = f"{where}.configs[{variant.config_number}]" if name in from_config else where
        _known([name], constexprs, runtime, ("constexpr", "runtime param"), place)
    defaulted = {param.name for param in source.params if param.constexpr and not isinstance(param.default, Missing)}
    _complete(runtime, typed, "a type in params", where)
    _complete(constexprs, {*valued, *defaulted}, "a value in matrix, configs or derived", where)
    if not source.gluon and (laid_out := [name for name, kind in variant.signature if has_layout(kind)]):
        what = f"expected no layout for {laid_out[0]!r}: {source.name} is not written in Gluon, and Triton chooses it"
        raise ManifestError(what, where=f"{where}.params")
    for path, hint in variant.hints:
        param = path.partition(".")[0]
        for params, listed in (
            (source.unspecialized, "do_not_specialize"),
            (source.unaligned if hint == 16 else frozenset(), "do_not_specialize_on_alignment"),
        ):
            if param in params:
                what = f"expected no hint {hint} for {path!r}: {source.name} lists {param!r} in {listed}"
                raise ManifestError(what, where=f"{where}.hints")


def _known(given: Iterable[str], known: list[str], others: list[str], kinds: tuple[str, str], where: str) -> None:
    for name in given:
        if name not in known:
            # a config holds options and rules too: the slip may be in the name of one of those
            keys = (*known, *OPTIONS, *CONFIG_RULES) if kinds[0] == "constexpr" else tuple(known)
            near = f", which is a {kinds[1]}" if name in others else did_you_mean(name, keys)
            raise ManifestError(
                f"expected a {kinds[0]} of the kernel ({', '.join(known) or 'it has none'})",
                got=f"{name!r}{near}",
                where=where,
            )


def _complete(needed: list[str], given: Collection[str], what: str, where: str) -> None:
    for name in needed:
        if name not in given:
            raise ManifestError(f"expected {what} for the kernel's {name!r}", got="none", where=where)
