"""Planner: from manifest files to the variants of each bundle file, without compiling anything."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec
from nojit.aot.manifest.archs import (
    arch_order,
    check_assembled,
    check_known,
    check_target,
    chip_of,
    family_of,
    known_archs,
)
from nojit.aot.manifest.expressions import check_requires, check_rules
from nojit.aot.manifest.function_names import is_name
from nojit.aot.manifest.matrix import axes_of, typed_params
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.reader import ReadKernel, bundle_of, read_manifest
from nojit.aot.manifest.spec import BundleSpec, KernelSpec
from nojit.aot.manifest.text import ManifestText
from nojit.aot.plan.counting import MAX_VARIANTS
from nojit.aot.plan.expand import Expansion, derived_of, expand_kernel
from nojit.aot.plan.in_place import InPlace
from nojit.aot.plan.left_out import Absence, Pruned, Refused
from nojit.aot.plan.points import hint_places
from nojit.aot.plan.source import KernelSource, SourcePlace, check_decorators, fit_tuned, fit_variant, module_of
from nojit.aot.plan.space import expand_space, narrowed
from nojit.aot.plan.toolchains import check_toolchains, tables_for, with_toolchain, with_toolchains
from nojit.aot.plan.tuned import check_tuned, expand_tuned, read_folder
from nojit.aot.plan.variant import CompiledVariant, Variant, functions_in, functions_of
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import ManifestError, TuningError, did_you_mean, nearest_or_few
from nojit.runtime.table.constant_types import constant_of
from nojit.runtime.table.table import Axis, Derived
from nojit.runtime.tuning.tuned import TunedTable
from nojit.runtime.values import LAYOUTS

__all__ = ["Compiler", "Plan", "Planned", "PlannedKernel", "absent_kernels", "make_plans"]


class Compiler(Protocol):
    """The compiler that a build needs; `nojit.aot.compile.by_toolchain` has one."""

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Names of its toolchains, the default one first; empty for the only one of a build that names none."""

    def of(self, names: Sequence[str]) -> Compiler:
        """Return a compiler with some of the toolchains; this one if `names` is empty.

        Raises:
            ManifestError: a toolchain is missing.
        """

    @property
    def compile_variant(self) -> Callable[[Variant, SourcePlace], CompiledVariant]:
        """Function that compiles one variant of the kernel at a given place."""

    def describe(self, place: SourcePlace, arch: str) -> KernelSource:
        """Return the facts of a kernel's source code, as its module defines the kernel for an arch.

        `place`: where the kernel's source is.
        """

    def variant_keys(self, variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
        """Return the cache keys of variants of one arch, without compiling them.

        `place`: where the kernel's source is.
        """

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        """Raise `CompileError` if a cached result cannot be that of a variant."""

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        """Return the tools and settings that determine images for an arch."""

    def archs(self) -> tuple[str, ...]:
        """Return the archs that can be built; empty if unknown."""

    def min_driver(self, arch: str) -> int:
        """Return the oldest CUDA version whose driver loads images for an arch."""

    def prepare(self, asked: Iterable[tuple[SourcePlace, str]]) -> None:
        """Import the sources of the given (place, arch) pairs in advance, so that `describe` is fast.

        `asked`: the sources, each with an arch.
        """

    def session(self, timeout_s: float, tell: Callable[[str], None], jobs: int) -> AbstractContextManager[None]:
        """Return a context manager within which the compiler can be used.

        `timeout_s` is the time limit of one import in seconds, `tell` receives the imports' output, and `jobs` is the
        number of parallel imports.
        """


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One kernel of a planned bundle, with its variants."""

    spec: KernelSpec
    source: KernelSource
    place: SourcePlace
    axes: tuple[Axis, ...]
    derived: tuple[Derived, ...]
    variants: tuple[Variant, ...]
    excluded: int
    pruned: tuple[Pruned, ...] = ()
    """Variants that the rules of a tuning space remove."""
    tuned: tuple[TunedTable, ...] = ()
    """Tuned tables of the arch for the bundle."""
    text: ManifestText | None = None
    """The manifest that contains the kernel's entry."""
    key: str = ""
    """Key path of the kernel's entry in the manifest."""
    reached: frozenset[tuple[str, str]] = frozenset()
    """Modules that the kernel's sources import, as (module, file)."""

    def located(self, error: ManifestError) -> ManifestError:
        """Return an error about the kernel's entry, with the file, line and column of the entry added."""
        if self.text is None or error.file:
            return error
        label = error.where.partition(": ")[2]
        return self.text.mistake(error.what, got=f"{error.got}, of {label}" if label else error.got, at=self.key)


@dataclass(frozen=True, slots=True)
class Plan:
    """One bundle to build: its name, arch, kernels and variants."""

    bundle: BundleSpec
    arch: str
    kernels: tuple[PlannedKernel, ...]
    """The kernels with at least one variant for this arch and profile, sorted by name."""
    retune: bool = False
    """True for a tuning bundle that has only the configs of the manifests and of tuned tables."""
    tuning: bool = False
    """True for a tuning bundle, in which configs that fail to compile or are not worth measuring are skipped."""
    manifests: tuple[Path, ...] = ()
    """The manifests of its kernels."""
    absent: tuple[str, ...] = ()
    """Names of the kernels without a variant, sorted; for a tuning bundle, only kernels that have a tuning space."""
    profile: str = "full"
    only: tuple[str, ...] = ()
    """Names of the bundle's kernels, sorted, if its manifests have more kernels; empty if it has all of them."""
    kept: tuple[str, ...] = ()
    """Kernels that were not requested but are in the existing bundle, sorted: they are built again."""
    gone: tuple[str, ...] = ()
    """Kernels that are in the existing bundle but no longer in a manifest, sorted."""
    in_place: Path | None = None
    """Path of the existing bundle, of this or an older version, in the output folder; None if there is none."""
    refused: tuple[Refused, ...] = ()
    """Recorded specializations that cannot be built for the arch. They count as failures."""
    twin_of: str = ""
    """Inputs digest of the bundle that this one, its copy with line info (*twin*), can replace; else empty."""
    attachments: tuple[tuple[str, bytes], ...] = ()
    """Name and bytes of each attachment of the bundle; part of its inputs."""
    toolchains: tuple[str, ...] = ()
    """Names of the toolchains that compile the bundle, the default one first; empty for one that nothing names."""

    @property
    def file_name(self) -> str:
        """File name of the bundle."""
        return f"{self.bundle.name}-{self.bundle.version}-{self.arch}{SUFFIX}"

    def used_toolchains(self) -> tuple[str, ...]:
        """Return the names of the toolchains that compile a variant of the bundle; empty for one that nothing names."""
        used = {variant.toolchain for kernel in self.kernels for variant in kernel.variants}
        return tuple(name for name in self.toolchains if name in used)

    def count(self) -> int:
        """Return the number of variants in the bundle."""
        return sum(len(kernel.variants) for kernel in self.kernels)


@dataclass(frozen=True, slots=True)
class Planned:
    """Progress event: the planner has listed a kernel's variants for one arch."""

    kernel: str
    arch: str
    variants: int
    """Number of the kernel's variants for the arch."""
    done: int
    """Number of kernels that the planner has done so far, counted once per arch of their bundle."""
    total: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Options of a build that apply to every kernel."""

    profile: str
    tuning: bool
    retune: bool
    most: int | None


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
    in_place: Mapping[tuple[str, str], InPlace] | None = None,
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
    merging = _Merging(compiler, project, tuned=retune or (tuned and not tuning), tuning=tuning)
    bundles = _merge(manifests, merging, mistakes)
    asked = {(name, entry.spec.name) for name, (_, found) in bundles.items() for entry in found}
    if not mistakes:
        for name in kernels:
            _check_kernel(name, [entry for _, found in bundles.values() for entry in found], tuning=tuning)
    asked = {(bundle, kernel) for bundle, kernel in asked if not kernels or kernel in kernels}
    places = _in_place(in_place or {}, tuning=tuning)
    if beside := _siblings(manifests, bundles, places):
        bundles = _merge([*manifests, *beside], merging, mistakes)
    _check_archs([entry for _, found in bundles.values() for entry in found], compiler, mistakes)
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
            expansions.append(_listed(entry, each.arch, _Wanted(used, tuning, retune, most), mistakes))
            done += 1
            variants = len(expansions[-1].expansion.variants)
            on_planned(Planned(entry.spec.name, each.arch, variants, done, total))
        listed.append(expansions)
    for name, own in compilers.items():
        mine = (expansions for each, expansions in zip(work, listed, strict=True) if each.bundle.name == name)
        own.prepare((one.entry.place, one.arch) for expansions in mine for one in expansions if one.needs_source)
    plans = []
    for each, used, expansions in zip(work, profiles, listed, strict=True):
        planned = [_planned(expanded, compilers[each.bundle.name], mistakes) for expanded in expansions]
        plan = each.plan(tuple(kernel for kernel in planned if kernel), used, tuning=tuning)
        plans.append(replace(plan, retune=retune))
    mistakes.raise_found()
    return plans


@dataclass(frozen=True, slots=True)
class _Work:
    """The kernels to plan for one bundle and one arch."""

    bundle: BundleSpec
    arch: str
    wanted: frozenset[str]
    """Names of the requested kernels."""
    entries: tuple[_Entry, ...]
    """Manifest entries of the requested kernels and of the kernels that the existing bundle keeps."""
    only: tuple[str, ...]
    kept: tuple[str, ...]
    gone: tuple[str, ...]
    in_place: InPlace | None
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
        return Plan(
            bundle=_renamed(self.bundle) if tuning else self.bundle,
            arch=self.arch,
            kernels=kernels,
            tuning=tuning,
            manifests=tuple(dict.fromkeys(entry.manifest for entry in self.entries)),
            absent=tuple(sorted(names - {kernel.spec.name for kernel in kernels})),
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
    found: Sequence[_Entry],
    asked: Collection[tuple[str, str]],
    *,
    in_place: InPlace | None,
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


def _in_place(found: Mapping[tuple[str, str], InPlace], *, tuning: bool) -> Mapping[tuple[str, str], InPlace]:
    """Return the existing bundles by arch and by the bundle name that manifests use, which tuning bundles extend."""
    if not tuning:
        return found
    suffix = _renamed_to("")
    return {(name.removesuffix(suffix), arch): each for (name, arch), each in found.items() if name.endswith(suffix)}


def _siblings(
    manifests: Sequence[Path],
    bundles: Mapping[str, tuple[BundleSpec, Sequence[_Entry]]],
    places: Mapping[tuple[str, str], InPlace],
) -> list[Path]:
    """Return other manifests of the same folders, if existing bundles hold kernels that `manifests` do not contain."""
    known = {name: {entry.spec.name for entry in found} for name, (_, found) in bundles.items()}
    lacking = {name for (name, _), place in places.items() if name in known and place.kernels - known[name]}
    if not lacking:
        return []
    given = {path.resolve() for path in manifests}
    folders = dict.fromkeys(path.parent for path in manifests)
    others = [path for folder in folders for path in sorted(folder.glob("*.toml")) if path.resolve() not in given]
    return [path for path in others if bundle_of(path) in lacking]


def _check_archs(entries: Sequence[_Entry], compiler: Compiler, mistakes: Mistakes) -> None:
    """Add a mistake for each unknown arch in configs, tuning spaces, listed cases and tuned tables."""
    chips = {chip_of(arch) for arch in (*known_archs(), *compiler.archs())}
    known = frozenset(chips | {family for family in map(family_of, chips) if family})
    for entry in entries:
        spaces = entry.spec.tuning.space if entry.spec.tuning else []
        found = mistakes.within(entry.text)
        for place, tables in ((f"{entry.key}.configs", entry.spec.configs), (f"{entry.key}.tuning.space", spaces)):
            for number, table in enumerate(tables):
                for arch in table.get("archs", []):
                    with found.caught():
                        check_known(arch, known, f"{place}[{number}].archs")
        for number, point in enumerate(entry.spec.point):
            for arch in point.archs:
                with found.caught():
                    check_known(arch, known, f"{entry.key}.point[{number}].archs")
        for tuned in entry.tuned:
            with mistakes.caught():
                try:
                    check_known(tuned.device.arch, known, f"{tuned.path} $.device.arch")
                except ManifestError as error:
                    raise TuningError(error.what, got=error.got, where=error.where) from None


def _assembled(bundle: BundleSpec, entries: Sequence[_Entry], compiler: Compiler, mistakes: Mistakes) -> Iterator[str]:
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


@dataclass(frozen=True, slots=True)
class _Entry:
    """One kernel's entry in one manifest, with its place for messages."""

    read: ReadKernel
    place: SourcePlace
    manifest: Path
    text: ManifestText
    toolchains: tuple[str, ...]
    """Names of the bundle's toolchains, the default one first."""
    tuned: list[TunedTable] = field(default_factory=list)

    @property
    def spec(self) -> KernelSpec:
        """Content of the entry."""
        return self.read.spec

    @property
    def key(self) -> str:
        """Key path of the entry in the manifest."""
        return self.read.key


def _check_kernel(name: str, entries: Sequence[_Entry], *, tuning: bool) -> None:
    known = {entry.spec.name: entry.spec for entry in entries}
    if name not in known:
        near = nearest_or_few(name, tuple(sorted(known)))
        raise ManifestError("expected a kernel of the manifests", got=f"{name!r}{near}")
    spec = known[name]
    if tuning and not spec.has_space:
        raise ManifestError(
            "expected a kernel with a [[kernel.tuning.space]]: add one, or leave out --tuning", got=repr(name)
        )


@dataclass(frozen=True, slots=True)
class _Merging:
    """Settings for the entries of manifests: compiler, tuned tables, tuning."""

    compiler: Compiler
    project: Path
    """Folder that sources import from, in addition to the manifest's."""
    tuned: bool
    """True if tuned tables are used."""
    tuning: bool
    """True if the bundles are for tuning."""

    def toolchains(self, bundle: BundleSpec, text: ManifestText, mistakes: Mistakes) -> tuple[str, ...] | None:
        """Return the names of a bundle's toolchains; None, and a mistake, if the build lacks one."""
        try:
            return self.compiler.of(bundle.toolchains).toolchains
        except ManifestError as error:
            mistakes.within(text).add(error.what, got=error.got, at="$.bundle.toolchains")
            return None


def _merge(
    manifests: Sequence[Path], merging: _Merging, mistakes: Mistakes
) -> dict[str, tuple[BundleSpec, list[_Entry]]]:
    bundles: dict[str, tuple[BundleSpec, list[_Entry]]] = {}
    owners: dict[tuple[str, str], Path] = {}
    for path in manifests:
        reading = read_manifest(path, mistakes)
        if reading is None or reading.bundle is None:
            continue
        found = mistakes.within(reading.text)
        bundle, entries = bundles.setdefault(reading.bundle.name, (reading.bundle, []))
        if reading.bundle != bundle:
            found.add(
                f"expected manifests of bundle {bundle.name!r} to agree on version {bundle.version!r}, archs "
                f"{bundle.archs} and toolchains {bundle.toolchains}",
                got=f"version {reading.bundle.version!r}, archs {reading.bundle.archs} and toolchains {reading.bundle.toolchains}",
                at="$.bundle",
            )
        names = merging.toolchains(reading.bundle, reading.text, mistakes)
        if names is None:
            continue
        for kernel in reading.kernels:
            check_toolchains(kernel.spec, names, kernel.key, found)
            spec = with_toolchains(kernel.spec, names, tuning=merging.tuning)
            other = owners.setdefault((bundle.name, spec.name), path)
            if other is not path:
                what = f"expected kernel {spec.name!r} once in bundle {bundle.name!r}"
                found.add(what, got=f"it in {other} too", at=f"{kernel.key}.name")
            # absolute: a source may change the current folder of its process
            folders = path.parent.absolute(), merging.project.absolute()
            where = f"{path} kernel {spec.name}"
            place = SourcePlace(spec.source, folders[0], where, folders[1], tuple(_modules_of(spec)))
            entries.append(_Entry(replace(kernel, spec=spec), place, path, reading.text, names))
    if merging.tuned:
        _attach_tables([entry for _, entries in bundles.values() for entry in entries], manifests, mistakes)
    return bundles


def _modules_of(spec: KernelSpec) -> Iterator[str]:
    """Yield the modules to import for a kernel: its own, then those of the functions that it takes as constexprs.

    `spec`: the kernel's manifest entry.
    """
    own = module_of(spec.source)
    yield own
    spaces = spec.tuning.space if spec.tuning else []
    values = [[point.values, point.config] for point in spec.point]
    named = {*_functions_named([spec.matrix, spec.configs, spaces, values]), *_functions_typed(spec)}
    yield from sorted({module_of(name) for name in named if not name.startswith(LAYOUTS)} - {own})


def _functions_typed(spec: KernelSpec) -> Iterator[str]:
    """Yield the names of functions that occur in types: in types of params, or in types that axes list.

    `spec`: the kernel's manifest entry.
    """
    spelled = [spelling for spellings in typed_params(spec).values() for spelling in spellings]
    values = [value for axis in spec.matrix.values() for value in axis if isinstance(value, str)]
    for text in (*spelled, *values):
        for name in re.findall(r"(?:^|=)function:([^,()=]+)", text):
            with contextlib.suppress(ValueError):
                yield from (function.name for function in functions_in(constant_of(f"=function:{name.strip()}")))


def _functions_named(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(function := value.get("function"), str):
            yield function
        value = [*value.values()]
    for item in value if isinstance(value, list) else ():
        yield from _functions_named(item)


def _attach_tables(entries: Sequence[_Entry], manifests: Sequence[Path], mistakes: Mistakes) -> None:
    """Read the tuned tables in the manifests' folders, and attach each to the entry of its kernel."""
    for folder in dict.fromkeys(path.parent for path in manifests):
        here = {entry.spec.name: entry for entry in entries if entry.manifest.parent == folder}
        # a table without a kernel is a mistake only if all manifests of the folder were read without mistakes
        whole = not mistakes and {path.resolve() for path in folder.glob("*.toml")} <= {
            path.resolve() for path in manifests
        }
        with mistakes.caught():
            tables = read_folder(folder)
            for table in tables:
                _attach_table(table, here, mistakes, whole=whole)


def _attach_table(table: TunedTable, here: Mapping[str, _Entry], mistakes: Mistakes, *, whole: bool) -> None:
    entry = here.get(table.kernel)
    with mistakes.caught():
        if entry is not None:
            entry.tuned.append(check_tuned(tables_for(table, entry.toolchains), entry.spec))
        elif whole:
            got = f"{table.kernel!r}{did_you_mean(table.kernel, tuple(here))}"
            raise TuningError("expected a kernel of the manifests", got=got, where=f"{table.path} $.kernel")


@dataclass(frozen=True, slots=True)
class _Expanded:
    """The variants of one kernel's entry for one arch, with the pruned configs and the tuned tables that chose them."""

    entry: _Entry
    arch: str
    expansion: Expansion
    pruned: tuple[Pruned, ...] = ()
    tables: tuple[TunedTable, ...] = ()

    @property
    def needs_source(self) -> bool:
        """True if the planner must import the kernel's source for this entry and arch."""
        unsound = not self.entry.read.listable and is_name(self.entry.spec.source)
        return bool(self.expansion.variants) or unsound


def _expand(entry: _Entry, arch: str, wanted: _Wanted) -> _Expanded:
    # manifests and tuned tables name chips
    chip, found = chip_of(arch), _expand_for_chip(entry, chip_of(arch), wanted)
    if chip == arch:
        return found
    variants = tuple(replace(variant, arch=arch) for variant in found.expansion.variants)
    return replace(found, arch=arch, expansion=replace(found.expansion, variants=variants))


def _expand_for_chip(entry: _Entry, arch: str, wanted: _Wanted) -> _Expanded:
    spec, where, most = entry.spec, entry.key, wanted.most
    tables = tuple(table for table in entry.tuned if table.device.arch == arch)
    if wanted.tuning:
        space = expand_space(narrowed(spec, tables, entry.toolchains) if wanted.retune else spec, arch, where, most)
        return _Expanded(entry, arch, Expansion(space.variants, space.excluded), space.pruned)
    if tables:
        return _Expanded(entry, arch, expand_tuned(spec, arch, where, wanted.profile, tables, most=most), tables=tables)
    return _Expanded(entry, arch, expand_kernel(spec, arch, where, wanted.profile, most))


def _listed(entry: _Entry, arch: str, wanted: _Wanted, mistakes: Mistakes) -> _Expanded:
    """Return the variants of a kernel for an arch; no variants if its entry has a mistake.

    `wanted`: profile, whether the build is for tuning, limit on variants.
    """
    with mistakes.within(entry.text).caught():
        if entry.read.listable:
            return _expand(entry, arch, wanted)
    return _Expanded(entry, arch, Expansion((), 0))


def _planned(expanded: _Expanded, compiler: Compiler, mistakes: Mistakes) -> PlannedKernel | None:
    """Return a kernel with its variants and sources; None if it has no variant or a mistake."""
    entry, arch = expanded.entry, expanded.arch
    found = mistakes.within(entry.text)
    with found.caught():
        if expanded.expansion.variants:
            return _plan_kernel(expanded, arch, compiler, found)
        if expanded.needs_source:
            # report mistakes in the source as well
            _described(compiler, entry.place, arch, f"{entry.key}.source", entry)
    return None


def _plan_kernel(expanded: _Expanded, arch: str, compiler: Compiler, mistakes: Mistakes) -> PlannedKernel:
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


def _described(compiler: Compiler, place: SourcePlace, arch: str, key: str, entry: _Entry) -> KernelSource:
    """Return the facts of the function at `place`; a mistake in it is raised with the manifest's key path `key`.

    `entry`: the kernel's manifest entry.
    """
    try:
        return compiler.describe(place, arch)
    except ManifestError as error:
        raise entry.text.mistake(error.what, got=error.got, at=key) from error


def _check_functions(variants: Sequence[Variant], entry: _Entry, arch: str, compiler: Compiler) -> list[KernelSource]:
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


def absent_kernels(plans: Sequence[Plan]) -> tuple[Absence, ...]:
    """Return the kernels without a variant in some plan, sorted by name within each bundle.

    Args:
        plans: plans of all archs, including those without kernels.
    """
    absent: dict[tuple[str, str], list[str]] = {}
    for plan in plans:
        for name in plan.absent:
            absent.setdefault((plan.bundle.name, name), []).append(plan.arch)
    return tuple(Absence(bundle, kernel, tuple(archs)) for (bundle, kernel), archs in absent.items())
