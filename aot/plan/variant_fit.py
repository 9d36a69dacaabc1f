"""Checks of variants and configs against the facts of their kernel function. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from nojit.aot.manifest.config_rules import CONFIG_RULES
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.manifest.types import NONE, has_layout, plain
from nojit.aot.plan.function_facts import HEURISTICS, KernelSource
from nojit.aot.variants.requirements import implied_hints
from nojit.aot.variants.variant import Variant
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ManifestError
from nojit.runtime.table.parts import Config, Missing
from nojit.runtime.tuning.tuned_tables import TunedConfig
from nojit.runtime.types.names import descriptor_parts, is_descriptor, leaves
from nojit.runtime.values import Value, identity

__all__ = ["check_decorators", "fit_tuned", "fit_variant"]


def fit_variant(
    variant: Variant, source: KernelSource, where: str, hints: Mapping[tuple[str, int], str] = MappingProxyType({})
) -> Variant:
    """Return a variant adapted to its kernel function, after checking that the two fit together.

    If a constexpr has the name of a compiler option, it gets the option's value, because Triton passes a keyword to
    both. It then distinguishes configs as other constexprs do. `debug` comes from the decorator unless the manifest
    sets it. Hints that only `requires` implies are dropped if Triton would not specialize the param on them.

    Args:
        variant: the variant from the manifest.
        source: the facts of the variant's kernel function.
        where: the entry, for messages.
        hints: key path in the manifest of each (param, hint), for messages.

    Raises:
        ManifestError: the manifest names a param that the kernel lacks, gives a param no type or value, gives a runtime
            param as a constexpr (or the reverse), or the function forbids a type or hint; or a runtime param has the name
            of an option.
    """
    fitted = _with_own_options(_with_debug(variant, source), source, where)
    _check_variant(fitted, source, where)
    return _with_allowed_hints(fitted, source, where, hints)


def fit_tuned(config: TunedConfig, source: KernelSource) -> TunedConfig:
    """Return a tuned table's config adapted to the kernel function in the same way as `fit_variant` adapts variants."""
    own = {param.name for param in source.params}
    settings = _resolve_debug(config.settings, source)
    ranks = {name: 2 - (name in own) if name in OPTIONS else 0 for name, _ in settings}
    return TunedConfig(tuple(sorted(settings, key=lambda setting: ranks[setting[0]])), config.requires)


def check_decorators(spec: KernelSpec, source: KernelSource, where: str) -> None:
    """Raise if a decorator has an effect that a bundle does not reproduce and that the entry does not ignore.

    `spec`: the kernel's manifest entry.

    Raises:
        ManifestError: an effect is not ignored, the entry ignores an effect that no decorator has, or a heuristic
            computes an option that the entry does not set.
    """
    for effect in source.effects:
        if effect.name not in spec.ignores:
            what = f"expected {source.name} without decorators that change its launches"
            got = f'{effect.what}. {effect.when}; if callers do not need it, write ignores = ["{effect.name}"]'
            raise ManifestError(what, got=got, where=f"{where}.source")
    names = [effect.name for effect in source.effects]
    for number, name in enumerate(spec.ignores):
        if name not in names:
            what = (
                f"expected ignores to name effects of {source.name}'s decorators ({', '.join(names) or 'it has none'})"
            )
            got = f"{name!r}{did_you_mean(name, names)}"
            raise ManifestError(what, got=got, where=f"{where}.ignores[{number}]")
    for name, by in source.computed:
        is_set = name in spec.options or all(name in config for config in spec.configs)
        if name in OPTIONS and by == HEURISTICS and not is_set:
            what = f"expected {name!r} in options or in every config, since {by} computes it"
            raise ManifestError(what, got="none", where=f"{where}.configs")


def _with_debug(variant: Variant, source: KernelSource) -> Variant:
    options = tuple((name, source.debug if _is_unset(name, value) else value) for name, value in variant.options)
    resolved = _resolve_debug(variant.config.options, source)
    if (options, resolved) == (variant.options, variant.config.options):
        return variant
    return replace(
        variant, options=options, config=Config(variant.config.constexprs, resolved, variant.config.requires)
    )


def _resolve_debug(settings: tuple[tuple[str, Value], ...], source: KernelSource) -> tuple[tuple[str, Value], ...]:
    """Return compiler options with `debug` resolved: an unset value becomes that of the kernel's decorator.

    If the decorator turns `debug` on, every config sets the option.
    """
    resolved = tuple((name, source.debug if _is_unset(name, value) else value) for name, value in settings)
    return (*resolved, ("debug", True)) if source.debug and "debug" not in dict(resolved) else resolved


def _is_unset(name: str, value: Value) -> bool:
    return name == "debug" and value is None


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
            what = f"expected {name!r}, the name of an option that configs set, to be a constexpr of {source.name}"
            raise ManifestError(f"{what}: rename the param", got="a runtime param", where=where)
        if name in dict(variant.constexprs):
            what = f"expected only configs to set {name!r}, as it is an option too: remove it from matrix and derived"
            raise ManifestError(what, got="a value from matrix or derived", where=where)


def _check_variant(variant: Variant, source: KernelSource, where: str) -> None:
    runtime = [param.name for param in source.params if not param.constexpr]
    constexprs = [param.name for param in source.params if param.constexpr]
    typed = [name for name, _ in variant.signature]
    valued = [name for name, _ in variant.constexprs]
    mistakes = Mistakes()
    # filtered first for speed: nearly every variant has no such name
    for name in [name for name in typed if name not in runtime]:
        with mistakes.caught():
            _known(name, runtime, constexprs, ("runtime param", "constexpr"), f"{where}.params.{name}")
    from_config, derived = dict(variant.config.constexprs), dict(variant.derived)
    for name in [name for name in valued if name not in constexprs]:
        table = "derived" if name in derived else "matrix"
        place = f"configs[{variant.config_number}]" if name in from_config else table
        with mistakes.caught():
            _known(name, constexprs, runtime, ("constexpr", "runtime param"), f"{where}.{place}.{name}")
    defaulted = {param.name for param in source.params if param.constexpr and not isinstance(param.default, Missing)}
    _complete(runtime, typed, "a type in params", where, mistakes)
    _complete(constexprs, {*valued, *defaulted}, "a value in matrix, configs or derived", where, mistakes)
    for name, by in source.computed:
        if name in constexprs and name not in valued:
            what = f"expected a value in matrix, configs or derived for the kernel's {name!r}, which {by} computes"
            mistakes.add(what, got="none but its default", at=where)
    mistakes.raise_found()
    if not source.gluon and (laid_out := [name for name, kind in variant.signature if has_layout(kind)]):
        what = f"expected no layout for {laid_out[0]!r}: {source.name} is not written in Gluon, so Triton chooses the layout"
        raise ManifestError(what, where=f"{where}.params")
    _check_types(variant, source, where)
    _check_blocks(variant, source, where)


def _check_blocks(variant: Variant, source: KernelSource, where: str) -> None:
    """Check that descriptors have the block sizes that an autotuner's hook sets for the same config."""
    constexprs, types = dict(variant.constexprs), dict(variant.signature)
    for hook in source.hooks:
        if any(name in constexprs and identity(constexprs[name]) != identity(value) for name, value in hook.settings):
            continue
        for name, wanted in hook.blocks:
            kind = plain(types.get(name, ""))
            block = descriptor_parts(kind)[1] if is_descriptor(kind) else wanted
            if len(block) != len(wanted) or any(
                size not in (None, own) for size, own in zip(wanted, block, strict=True)
            ):
                shown = ", ".join("any" if size is None else str(size) for size in wanted)
                what = f"expected a block of [{shown}] for {name!r}, which pre_hook of its triton.Config sets"
                raise ManifestError(what, got=kind, where=f"{where}.params.{name}")


def _check_types(variant: Variant, source: KernelSource, where: str) -> None:
    """Check that params have their annotated types, which Triton uses in every call."""
    annotated = dict(source.annotations)
    for name, kind in variant.signature:
        place = f"{where}.params.{name}"
        declared = annotated.get(name)
        if declared is not None and kind == NONE:
            what = f"expected {declared!r} for {name!r}, as {source.name} annotates it: Triton never compiles None into such a param"
            raise ManifestError(what, got="a type that can be None; write it without '?'", where=place)
        if declared is not None and _canonical(kind) != declared:
            what = f"expected {declared!r} for {name!r}, as {source.name} annotates it"
            raise ManifestError(what, got=repr(kind), where=place)
        if name in source.constants and (leaf := _writable_leaf(kind)):
            what = f"expected {leaf.replace('*', '*k')!r} for {name!r}, which {source.name} annotates as a pointer to constants"
            raise ManifestError(what, got=repr(kind), where=place)


def _canonical(kind: str) -> str:
    """Return a type in the form that annotations use: a bool is `u1`."""
    return f"{kind[:-2]}u1" if kind in ("i1", "*i1", "*ki1") else kind


def _writable_leaf(kind: str) -> str:
    """Return the first pointer in a type that does not point to constants; empty if there is none."""
    pointers = (leaf for _, leaf in leaves(plain(kind), "") if leaf.startswith("*"))
    return next((leaf for leaf in pointers if not leaf.startswith("*k")), "")


def _with_allowed_hints(
    variant: Variant, source: KernelSource, where: str, places: Mapping[tuple[str, int], str]
) -> Variant:
    """Return a variant without those hints of `requires` that Triton ignores; raise for such a hint of the manifest."""
    forbidden = {pair: why for pair in variant.hints if (why := _forbids(source, *pair))}
    if not forbidden:
        return variant
    implied = implied_hints(variant.config.requires, where)
    for (path, hint), why in forbidden.items():
        if (path, hint) not in implied:
            what = f"expected no hint {hint} for {path!r}: {source.name} {why}"
            raise ManifestError(what, where=places.get((path, hint), f"{where}.hints"))
    return replace(variant, hints=tuple(pair for pair in variant.hints if pair not in forbidden))


def _forbids(source: KernelSource, path: str, hint: int) -> str:
    """Return the reason why Triton ignores a hint on a param; empty if Triton specializes on it."""
    param = path.partition(".")[0]
    if param in source.unspecialized:
        return f"lists {param!r} in do_not_specialize"
    if hint == 16 and param in source.unaligned:
        return f"lists {param!r} in do_not_specialize_on_alignment"
    declared = dict(source.annotations).get(param)
    if hint == 1 and declared is not None:
        return f"annotates {param!r} as {declared!r}, and Triton never compiles a 1 into an annotated param"
    return ""


def _known(name: str, known: list[str], others: list[str], kinds: tuple[str, str], where: str) -> None:
    if name not in known:
        # a config holds options and rules, too: suggest their names as well
        keys = (*known, *OPTIONS, *CONFIG_RULES) if kinds[0] == "constexpr" else tuple(known)
        near = f", which is a {kinds[1]}" if name in others else did_you_mean(name, keys)
        raise ManifestError(
            f"expected a {kinds[0]} of the kernel ({', '.join(known) or 'it has none'})",
            got=f"{name!r}{near}",
            where=where,
        )


def _complete(needed: list[str], given: Collection[str], what: str, where: str, mistakes: Mistakes) -> None:
    for name in needed:
        if name not in given:
            mistakes.add(f"expected {what} for the kernel's {name!r}", got="none", at=where)
