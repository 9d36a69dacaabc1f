"""What a kernel's source says of itself, and whether a variant fits it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.config_rules import CONFIG_RULES
from nojit.aot.options import OPTIONS, TUNABLE
from nojit.aot.variant import Variant
from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.table import Missing, Param

__all__ = ["KernelSource", "SourcePlace", "check_params", "check_variant"]


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


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a manifest entry says that its kernel is."""

    spelling: str
    """``package.module:function``, or ``path/to/file.py:function`` relative to `folder`."""
    folder: Path
    """Where the manifest lies."""
    where: str
    """The manifest entry, for messages."""


def check_params(source: KernelSource, where: str) -> None:
    """Refuse a function with a param that is called as an option: calls, configs and expressions mean that by the name.

    Raises:
        ManifestError: it has one.
    """
    for param in source.params:
        if param.name in TUNABLE:
            what = f"expected {source.name} to have no param of an option's name ({', '.join(TUNABLE)})"
            raise ManifestError(what, got=repr(param.name), where=where)


def check_variant(variant: Variant, source: KernelSource, where: str) -> None:
    """Refuse a variant that the function cannot be compiled as.

    Raises:
        ManifestError: a param that is not the kernel's, one without a type or value, a runtime param given as a
            constexpr or the other way, a hint that the function forbids.
    """
    runtime = [param.name for param in source.params if not param.constexpr]
    constexprs = [param.name for param in source.params if param.constexpr]
    typed = [name for name, _ in variant.signature]
    valued = [name for name, _ in variant.constexprs]
    _known(typed, runtime, constexprs, ("runtime param", "constexpr"), f"{where}.params")
    _known(valued, constexprs, runtime, ("constexpr", "runtime param"), where)
    defaulted = {param.name for param in source.params if param.constexpr and not isinstance(param.default, Missing)}
    _complete(runtime, typed, "a type in params", where)
    _complete(constexprs, {*valued, *defaulted}, "a value in matrix, configs or derived", where)
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
