"""Planner: from manifest files to the variants of each bundle file, without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from nojit.aot.manifest.archs import arch_order, check_assembled, check_target
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.spec import BundleSpec
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.existing_bundles import ExistingBundle
from nojit.aot.plan.kernel_plan import Wanted, list_variants, plan_kernel
from nojit.aot.plan.merged_manifests import (
    ManifestEntry,
    Merging,
    check_archs,
    check_kernel,
    manifests_beside,
    merge_manifests,
)
from nojit.aot.plan.plan import Plan, Planned, PlannedKernel
from nojit.aot.variants.counting import MAX_VARIANTS

__all__ = ["make_plans"]


def make_plans(
    manifests: Sequence[Path],
    archs: Sequence[str],
    profile: str | None,
    compiler: Compiler,
    kernels: Sequence[str] = (),
    *,
    tuning: bool = False,
    retune: bool = False,
    tuned: bool = True,
    project: Path = Path(),
    most: int | None = MAX_VARIANTS,
    in_place: Mapping[tuple[str, str], ExistingBundle] | None = None,
    on_planned: Callable[[Planned], None] = lambda _: None,
) -> list[Plan]:
    """Expand manifests into one plan per bundle and arch.

    An existing bundle keeps its kernels: if `manifests` or `kernels` select only some of a folder's kernels, the plan
    also includes the other kernels that the existing bundle holds and a manifest still has.

    Args:
        manifests: paths of the manifests. Manifests with the same bundle name merge.
        archs: the archs to build for; empty for those that the manifests name.
        profile: ``core`` or ``full``. None means ``full``, or the existing bundle's profile if the build keeps kernels
            of it.
        compiler: finds the kernels' sources.
        kernels: names of the kernels to build; empty for all.
        tuning: whether to plan tuning bundles of the kernels that have a space.
        retune: whether tuning bundles have only the configs of the manifests and of tuned tables, to measure them again.
        tuned: whether to use the tuned tables of the manifests' folders.
        project: folder that sources import from, in addition to the manifest's.
        most: maximum number of variants of one kernel for one arch, before `exclude`; None for no limit.
        in_place: the existing bundles in the output folder, by bundle name and arch; None for none.
        on_planned: called after each kernel and arch is planned.

    Raises:
        PackageError: kernels of an existing bundle cannot be kept, because it was built with other options.
        ManifestError: a manifest or source has a mistake.
        TuningError: a tuned table does not match the manifests.
    """
    for arch in archs:
        check_assembled(check_target(arch, "--arch"), compiler.archs(), "--arch")
    mistakes = Mistakes()
    merging = Merging(compiler, project, tuned=retune or (tuned and not tuning), tuning=tuning)
    bundles = merge_manifests(manifests, merging, mistakes)
    asked = {(name, entry.spec.name) for name, (_, found) in bundles.items() for entry in found}
    if not mistakes:
        for name in kernels:
            check_kernel(name, [entry for _, found in bundles.values() for entry in found], tuning=tuning)
    asked = {(bundle, kernel) for bundle, kernel in asked if not kernels or kernel in kernels}
    places = _in_place(in_place or {}, tuning=tuning)
    if beside := manifests_beside(manifests, bundles, places):
        bundles = merge_manifests([*manifests, *beside], merging, mistakes)
    check_archs([entry for _, found in bundles.values() for entry in found], compiler, mistakes)
    # a bundle that lacks a toolchain has no entries
    compilers = {name: compiler.of(bundle.toolchains if found else ()) for name, (bundle, found) in bundles.items()}
    work = [
        _work_of(
            bundle,
            arch,
            found,
            asked,
            in_place=places.get((bundle.name, arch)),
            toolchains=compilers[name].toolchains,
        )
        for name, (bundle, found) in bundles.items()
        for arch in sorted({*(archs or _assembled(bundle, found, compilers[name], mistakes))}, key=arch_order)
    ]
    done, total = 0, sum(len(each.entries) for each in work)
    profiles, listed = [each.profile(profile, tuned=tuned) for each in work], []
    for each, used in zip(work, profiles, strict=True):
        expansions = []
        for entry in sorted(each.entries, key=lambda entry: entry.spec.name):
            expansions.append(list_variants(entry, each.arch, Wanted(used, tuning, retune, most), mistakes))
            done += 1
            variants = len(expansions[-1].expansion.variants)
            on_planned(Planned(entry.spec.name, each.arch, variants, done, total))
        listed.append(expansions)
    for name, own in compilers.items():
        mine = (expansions for each, expansions in zip(work, listed, strict=True) if each.bundle.name == name)
        own.prepare((one.entry.place, one.arch) for expansions in mine for one in expansions if one.needs_source)
    plans = []
    for each, used, expansions in zip(work, profiles, listed, strict=True):
        planned = [plan_kernel(expanded, compilers[each.bundle.name], mistakes) for expanded in expansions]
        plan = each.plan(tuple(kernel for kernel in planned if kernel), used, tuning=tuning)
        tabled = {entry.spec.name for entry in each.entries if entry.tuned_for(each.arch)}
        untuned = tuple(kernel.spec.name for kernel in plan.kernels if kernel.spec.name not in tabled)
        plans.append(replace(plan, retune=retune, untuned=untuned if retune else ()))
    mistakes.raise_found()
    return plans


@dataclass(frozen=True, slots=True)
class _Work:
    """The kernels to plan for one bundle and one arch."""

    bundle: BundleSpec
    arch: str
    wanted: frozenset[str]
    """Names of the requested kernels."""
    entries: tuple[ManifestEntry, ...]
    """Manifest entries of the requested kernels and of the kernels that the existing bundle keeps."""
    only: tuple[str, ...]
    kept: tuple[str, ...]
    gone: tuple[str, ...]
    in_place: ExistingBundle | None
    toolchains: tuple[str, ...]

    def profile(self, asked: str | None, *, tuned: bool) -> str:
        """Return the profile to build with: `asked`, or that of the existing bundle if the build keeps its kernels.

        `tuned`: whether tuned tables are used.
        """
        if self.in_place is None or not self.kept:
            return asked or "full"
        several = self.toolchains if len(self.toolchains) > 1 else ()
        return self.in_place.check_alike(asked, tuned=tuned, kept=self.kept, toolchains=several)

    def plan(self, kernels: tuple[PlannedKernel, ...], profile: str, *, tuning: bool) -> Plan:
        """Return the plan of the bundle from its planned kernels.

        If no requested kernel has variants now or is in the existing bundle, the plan is empty and the bundle stays
        unchanged.

        `tuning`: whether the build is for tuning, with the configs of the spaces.
        """
        there = self.in_place.kernels if self.in_place else frozenset()
        touched = self.wanted & ({kernel.spec.name for kernel in kernels} | there)
        kernels, kept = (kernels, self.kept) if touched else ((), ())
        names = {entry.spec.name for entry in self.entries if entry.spec.has_space or not tuning}
        too_new = {entry.spec.name: entry.spec.triton for entry in self.entries if not entry.compiles}
        return Plan(
            bundle=_renamed(self.bundle) if tuning else self.bundle,
            arch=self.arch,
            kernels=kernels,
            tuning=tuning,
            manifests=tuple(dict.fromkeys(entry.manifest for entry in self.entries)),
            absent=tuple(sorted(names - {kernel.spec.name for kernel in kernels})),
            too_new=tuple(sorted((name, triton) for name, triton in too_new.items() if name in names)),
            profile=profile,
            only=self.only,
            kept=kept,
            gone=self.gone,
            in_place=self.in_place.path if self.in_place else None,
            toolchains=self.toolchains,
        )


def _work_of(
    bundle: BundleSpec,
    arch: str,
    found: Sequence[ManifestEntry],
    asked: Collection[tuple[str, str]],
    *,
    in_place: ExistingBundle | None,
    toolchains: tuple[str, ...],
) -> _Work:
    wanted = {entry.spec.name for entry in found if (bundle.name, entry.spec.name) in asked}
    there = in_place.kernels if in_place and wanted else frozenset()
    known = {entry.spec.name for entry in found}
    kept = (there & known) - wanted
    entries = tuple(entry for entry in found if entry.spec.name in wanted | kept)
    files = {entry.manifest for entry in entries}
    whole = all(entry.spec.name in wanted | kept for entry in found if entry.manifest in files)
    only = () if whole else tuple(sorted(wanted | kept))
    gone = tuple(sorted(there - known))
    return _Work(bundle, arch, frozenset(wanted), entries, only, tuple(sorted(kept)), gone, in_place, toolchains)


def _in_place(
    found: Mapping[tuple[str, str], ExistingBundle], *, tuning: bool
) -> Mapping[tuple[str, str], ExistingBundle]:
    """Return the existing bundles by arch and by the bundle name that manifests use, which tuning bundles extend."""
    if not tuning:
        return found
    suffix = _renamed_to("")
    return {(name.removesuffix(suffix), arch): each for (name, arch), each in found.items() if name.endswith(suffix)}


def _assembled(
    bundle: BundleSpec, entries: Sequence[ManifestEntry], compiler: Compiler, mistakes: Mistakes
) -> Iterator[str]:
    """Yield the archs of a bundle that the toolchain can build; report the others as mistakes."""
    # all manifests of a bundle have the same archs, so the first one's text will do
    found = mistakes.within(entries[0].text) if entries else mistakes
    for number, arch in enumerate(bundle.archs):
        assembled = False
        with found.caught():
            check_assembled(arch, compiler.archs(), f"$.bundle.archs[{number}]")
            assembled = True
        if assembled:
            yield arch


def _renamed(bundle: BundleSpec) -> BundleSpec:
    return msgspec.structs.replace(bundle, name=_renamed_to(bundle.name))


def _renamed_to(name: str) -> str:
    return f"{name}-tuning"
