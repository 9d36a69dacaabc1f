"""One kernel of a plan: its entry expanded to variants for an arch, which are checked against its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nojit.aot.manifest.archs import chip_of
from nojit.aot.manifest.expression_checks import check_requires, check_rules
from nojit.aot.manifest.function_names import is_name
from nojit.aot.manifest.matrix import axes_of
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.plan.merged_manifests import ManifestEntry
from nojit.aot.plan.plan import PlannedKernel
from nojit.aot.plan.variant_fit import check_decorators, fit_tuned, fit_variant
from nojit.aot.variants.cases_to_build import hint_places
from nojit.aot.variants.expand import Expansion, derived_of, expand_kernel
from nojit.aot.variants.left_out import Pruned
from nojit.aot.variants.toolchain_configs import with_toolchain
from nojit.aot.variants.tuned_tables import expand_tuned
from nojit.aot.variants.tuning_space import expand_space, narrowed
from nojit.aot.variants.variant import Variant, functions_of
from nojit.runtime.errors import ManifestError
from nojit.runtime.tuning.tuned_tables import TunedTable

__all__ = ["ExpandedKernel", "Wanted", "list_variants", "plan_kernel"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of a build that apply to every kernel."""

    profile: str
    tuning: bool
    retune: bool
    most: int | None


@dataclass(frozen=True, slots=True)
class ExpandedKernel:
    """The variants of one kernel's entry for one arch, with the pruned configs and the tuned tables that chose them."""

    entry: ManifestEntry
    arch: str
    expansion: Expansion
    pruned: tuple[Pruned, ...] = ()
    tables: tuple[TunedTable, ...] = ()

    @property
    def needs_source(self) -> bool:
        """True if the planner must import the kernel's source for this entry and arch."""
        unsound = not self.entry.read.listable and is_name(self.entry.spec.source)
        return bool(self.expansion.variants) or unsound


def _expand(entry: ManifestEntry, arch: str, wanted: Wanted) -> ExpandedKernel:
    # manifests and tuned tables name chips
    chip, found = chip_of(arch), _expand_for_chip(entry, chip_of(arch), wanted)
    if chip == arch:
        return found
    variants = tuple(replace(variant, arch=arch) for variant in found.expansion.variants)
    return replace(found, arch=arch, expansion=replace(found.expansion, variants=variants))


def _expand_for_chip(entry: ManifestEntry, arch: str, wanted: Wanted) -> ExpandedKernel:
    spec, where, most = entry.spec, entry.key, wanted.most
    tables = entry.tuned_for(arch)
    if wanted.tuning:
        space = expand_space(narrowed(spec, tables, entry.toolchains) if wanted.retune else spec, arch, where, most)
        return ExpandedKernel(entry, arch, Expansion(space.variants, space.excluded), space.pruned)
    if tables:
        return ExpandedKernel(
            entry, arch, expand_tuned(spec, arch, where, wanted.profile, tables, most=most), tables=tables
        )
    return ExpandedKernel(entry, arch, expand_kernel(spec, arch, where, wanted.profile, most))


def list_variants(entry: ManifestEntry, arch: str, wanted: Wanted, mistakes: Mistakes) -> ExpandedKernel:
    """Return the variants of a kernel for an arch; no variants if its entry has a mistake or needs a newer Triton.

    `wanted`: profile, whether the build is for tuning, limit on variants.
    """
    with mistakes.within(entry.text).caught():
        if entry.read.listable:
            found = _expand(entry, arch, wanted)
            return found if entry.compiles else ExpandedKernel(entry, arch, Expansion((), 0))
    return ExpandedKernel(entry, arch, Expansion((), 0))


def plan_kernel(expanded: ExpandedKernel, compiler: Compiler, mistakes: Mistakes) -> PlannedKernel | None:
    """Return a kernel with its variants and sources; None if it has no variant or a mistake."""
    entry, arch = expanded.entry, expanded.arch
    found = mistakes.within(entry.text)
    with found.caught():
        if expanded.expansion.variants:
            return _plan_listed(expanded, arch, compiler, found)
        if expanded.needs_source:
            # report mistakes in the source as well
            _described(compiler, entry.place, arch, f"{entry.key}.source", entry)
    return None


def _plan_listed(expanded: ExpandedKernel, arch: str, compiler: Compiler, mistakes: Mistakes) -> PlannedKernel:
    entry = expanded.entry
    spec, place, where = entry.spec, entry.place, entry.key
    source = _described(compiler, place, arch, f"{where}.source", entry)
    check_decorators(spec, source, where)
    check_rules(
        spec,
        where,
        mistakes,
        source.params,
        [dict(each.settings) for table in expanded.tables for each in table.configs],
    )
    for table in expanded.tables:
        for number, config in enumerate(table.configs):
            check_requires(spec, config, f"{table.path} $.config[{number}]", mistakes, source.params)
    variants = _fitted(expanded.expansion.variants, source, where, hint_places(spec, where))
    variants = with_toolchain(variants, entry.toolchains)
    functions = _check_functions(variants, entry, arch, compiler)
    return PlannedKernel(
        spec=spec,
        source=source,
        place=place,
        axes=axes_of(spec, where),
        derived=derived_of(spec),
        variants=variants,
        excluded=expanded.expansion.excluded,
        pruned=expanded.pruned,
        tuned=tuple(_tuned_for(table, source) for table in expanded.tables),
        reached=frozenset(module for each in (source, *functions) for module in each.reached),
        text=entry.text,
        key=where,
    )


def _fitted(
    variants: Sequence[Variant], source: KernelSource, where: str, hints: Mapping[tuple[str, int], str]
) -> tuple[Variant, ...]:
    mistakes = Mistakes()
    fitted = []
    for variant in variants:
        with mistakes.caught():
            fitted.append(fit_variant(variant, source, where, hints))
    mistakes.raise_found()
    return tuple(fitted)


def _described(compiler: Compiler, place: SourcePlace, arch: str, key: str, entry: ManifestEntry) -> KernelSource:
    """Return the facts of the function at `place`; a mistake in it is raised with the manifest's key path `key`.

    `entry`: the kernel's manifest entry.
    """
    try:
        return compiler.describe(place, arch)
    except ManifestError as error:
        raise entry.text.mistake(error.what, got=error.got, at=key) from error


def _check_functions(
    variants: Sequence[Variant], entry: ManifestEntry, arch: str, compiler: Compiler
) -> list[KernelSource]:
    """Return the facts of the functions that constexprs name; raise for functions that do not exist.

    `entry`: the kernel's manifest entry.
    """
    names = {pair for each in variants for pair in functions_of(each)}
    found = []
    for name, function in sorted(names, key=str):
        typed = f"{entry.key}.params.{name}" if name in entry.spec.params else f"{entry.key}.configs"
        key = f"{entry.key}.matrix.{name}" if name in entry.spec.matrix else typed
        found.append(_described(compiler, replace(entry.place, spelling=function.name), arch, key, entry))
    return found


def _tuned_for(table: TunedTable, source: KernelSource) -> TunedTable:
    return replace(table, configs=tuple(fit_tuned(config, source) for config in table.configs))
