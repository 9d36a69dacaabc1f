"""Entries of kernels in manifests: merged by bundle, each with its tuned tables and its place for messages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nojit.aot.manifest.archs import check_known, chip_of, family_of, known_archs
from nojit.aot.manifest.matrix import typed_params
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.reader import ReadKernel, bundle_of, read_manifest
from nojit.aot.manifest.spec import BundleSpec, KernelSpec
from nojit.aot.manifest.text import ManifestText
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.existing_bundles import ExistingBundle
from nojit.aot.plan.function_facts import SourcePlace, module_of
from nojit.aot.variants.toolchain_configs import check_toolchains, compiling, tables_for, with_toolchains
from nojit.aot.variants.tuned_tables import check_tuned, read_folder
from nojit.aot.variants.variant import functions_in
from nojit.runtime.base.suggestions import did_you_mean, nearest_or_few
from nojit.runtime.errors import ManifestError, TuningError
from nojit.runtime.tuning.tuned_tables import TunedTable
from nojit.runtime.types.constants import constant_of
from nojit.runtime.values import LAYOUTS

__all__ = [
    "ManifestEntry",
    "Merging",
    "check_archs",
    "check_kernel",
    "manifests_beside",
    "merge_manifests",
    "other_manifests",
]


def manifests_beside(
    manifests: Sequence[Path],
    bundles: Mapping[str, tuple[BundleSpec, Sequence[ManifestEntry]]],
    places: Mapping[tuple[str, str], ExistingBundle],
) -> list[Path]:
    """Return other manifests of the same folders, if existing bundles hold kernels that `manifests` do not contain."""
    known = {name: {entry.spec.name for entry in found} for name, (_, found) in bundles.items()}
    lacking = {name for (name, _), place in places.items() if name in known and place.kernels - known[name]}
    return other_manifests(manifests, lacking) if lacking else []


def other_manifests(manifests: Sequence[Path], bundles: Collection[str]) -> list[Path]:
    """Return the other manifests of the same folders that belong to one of some bundles."""
    given = {path.resolve() for path in manifests}
    folders = dict.fromkeys(path.parent for path in manifests)
    others = [path for folder in folders for path in sorted(folder.glob("*.toml")) if path.resolve() not in given]
    return [path for path in others if bundle_of(path) in bundles]


def check_archs(entries: Sequence[ManifestEntry], compiler: Compiler, mistakes: Mistakes) -> None:
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


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One kernel's entry in one manifest, with its place for messages."""

    read: ReadKernel
    place: SourcePlace
    manifest: Path
    text: ManifestText
    toolchains: tuple[str, ...]
    """Names of the bundle's toolchains that compile the kernel, the default one first; empty if the build names none."""
    compiles: bool = True
    """False if every Triton of the build is older than the kernel needs."""
    tuned: list[TunedTable] = field(default_factory=list)

    @property
    def spec(self) -> KernelSpec:
        """Content of the entry."""
        return self.read.spec

    @property
    def key(self) -> str:
        """Key path of the entry in the manifest."""
        return self.read.key

    def tuned_for(self, arch: str) -> tuple[TunedTable, ...]:
        """Return the kernel's tuned tables for an arch. They name chips, not families."""
        return tuple(table for table in self.tuned if table.device.arch == chip_of(arch))


def check_kernel(name: str, entries: Sequence[ManifestEntry], *, tuning: bool) -> None:
    """Raise `ManifestError` if no entry has the requested kernel, or if it lacks the space that a tuning build needs.

    `tuning`: whether the build is for tuning, with the configs of the spaces.
    """
    known = {entry.spec.name: entry.spec for entry in entries}
    if name not in known:
        near = nearest_or_few(name, tuple(sorted(known)))
        raise ManifestError("expected a kernel of the manifests", got=f"{name!r}{near}")
    spec = known[name]
    if tuning and not spec.has_space:
        raise ManifestError(
            "expected a kernel with a [[kernel.tuning.space]]: add one, or leave out --tuning or --retune",
            got=repr(name),
        )


@dataclass(frozen=True, slots=True)
class Merging:
    """Settings for the entries of manifests: compiler, tuned tables, tuning."""

    compiler: Compiler
    project: Path
    """Folder that sources import from, in addition to the manifest's."""
    tuned: bool
    """True if tuned tables are used."""
    tuning: bool
    """True if the bundles are for tuning."""

    def tritons(self, bundle: BundleSpec, text: ManifestText, mistakes: Mistakes) -> tuple[tuple[str, str], ...] | None:
        """Return name and version of a bundle's toolchains; None, and a mistake, if the build lacks one."""
        try:
            return self.compiler.of(bundle.toolchains).tritons
        except ManifestError as error:
            mistakes.within(text).add(error.what, got=error.got, at="$.bundle.toolchains")
            return None


def merge_manifests(
    manifests: Sequence[Path], merging: Merging, mistakes: Mistakes
) -> dict[str, tuple[BundleSpec, list[ManifestEntry]]]:
    """Return each bundle of the manifests with its kernels' entries, by the bundle's name.

    Args:
        manifests: paths of the manifests.
        merging: how to read entries.
        mistakes: receives the mistakes of the manifests and of their tuned tables.
    """
    bundles: dict[str, tuple[BundleSpec, list[ManifestEntry]]] = {}
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
        tritons = merging.tritons(reading.bundle, reading.text, mistakes)
        if tritons is None:
            continue
        for kernel in reading.kernels:
            check_toolchains(kernel.spec, tritons, kernel.key, found)
            able = compiling(kernel.spec, tritons)
            names = tuple(filter(None, able))
            spec = with_toolchains(kernel.spec, names, tuning=merging.tuning)
            other = owners.setdefault((bundle.name, spec.name), path)
            if other is not path:
                what = f"expected kernel {spec.name!r} once in bundle {bundle.name!r}"
                found.add(what, got=f"it in {other} too", at=f"{kernel.key}.name")
            # absolute: a source may change the current folder of its process
            folders = path.parent.absolute(), merging.project.absolute()
            where = f"{path} kernel {spec.name}"
            place = SourcePlace(spec.source, folders[0], where, folders[1], tuple(_modules_of(spec)))
            entries.append(ManifestEntry(replace(kernel, spec=spec), place, path, reading.text, names, bool(able)))
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


def _attach_tables(entries: Sequence[ManifestEntry], manifests: Sequence[Path], mistakes: Mistakes) -> None:
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


def _attach_table(table: TunedTable, here: Mapping[str, ManifestEntry], mistakes: Mistakes, *, whole: bool) -> None:
    entry = here.get(table.kernel)
    with mistakes.caught():
        if entry is not None:
            entry.tuned.append(check_tuned(tables_for(table, entry.toolchains), entry.spec))
        elif whole:
            got = f"{table.kernel!r}{did_you_mean(table.kernel, tuple(here))}"
            raise TuningError("expected a kernel of the manifests", got=got, where=f"{table.path} $.kernel")
