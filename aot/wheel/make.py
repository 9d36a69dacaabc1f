"""Wheels from bundles: the list of wheels, the content of each, and the check of their sizes. Writes no files.

Layout *providers*: one wheel per arch with its own name (``acme-kernels-sm90``), and a thin wheel (``acme-kernels``) with
an extra per arch. Layout *variants*: one wheel per arch, all with the same name and version but different variant labels,
and a plain wheel with every bundle for installers that do not know variants.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from nojit.aot.inspect.wheel_file import PROVENANCE
from nojit.aot.manifest.archs import arch_order
from nojit.aot.signing.shipped_bundles import VerifiedBundle, largest_kernels
from nojit.aot.wheel.archive import Wheel, pack_wheel
from nojit.aot.wheel.metadata import Facts, dist_info, entry_points, provenance
from nojit.aot.wheel.names import arch_label, check_name, check_version, escaped
from nojit.aot.wheel.wheel_variants import index_file, index_file_name, label_of, variant_file
from nojit.runtime.base.wording import counted
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.installed import provider_name
from nojit.runtime.errors import PackageError

__all__ = ["Layout", "MadeFile", "WheelRelease", "check_apart", "check_folder", "make_files", "release_of"]

Layout: TypeAlias = Literal["providers", "variants"]
_ALL = "all"


@dataclass(frozen=True, slots=True)
class WheelRelease:
    """A release as wheels: name, version and bundles of one distribution."""

    name: str
    """The distribution's name, as package indexes write it."""
    version: str
    bundles: tuple[VerifiedBundle, ...]
    """Bundles of the release, sorted by arch, then by name."""

    def by_arch(self) -> dict[str, tuple[VerifiedBundle, ...]]:
        """Return the bundles of each arch."""
        archs = dict.fromkeys(bundle.arch for bundle in self.bundles)
        return {arch: tuple(bundle for bundle in self.bundles if bundle.arch == arch) for arch in archs}


@dataclass(frozen=True, slots=True)
class MadeFile:
    """One file of a release: a wheel, or the index's file for variant wheels."""

    name: str
    kind: str
    """``provider``, ``meta``, ``variant``, ``plain`` or ``index``."""
    archs: tuple[str, ...]
    """Archs of the bundles that it holds or refers to."""
    data: bytes
    bundles: tuple[VerifiedBundle, ...]
    """Bundles in the file."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.data).hexdigest()


def release_of(bundles: Sequence[VerifiedBundle], name: str = "", version: str = "") -> WheelRelease:
    """Return a release (one distribution) with the given bundles under one name and version.

    Args:
        bundles: the bundles; at least one.
        name: the distribution's name; if empty, the name that all bundles have.
        version: the distribution's version; if empty, the version that all bundles have.

    Raises:
        PackageError: the bundles differ in name or version, a wheel cannot have that name or version, or two bundles
            hold the same kernel for one arch.
    """
    name = name or _common({bundle.index.name for bundle in bundles}, "name", "--name")
    given = bool(version)
    version = version or _common({bundle.index.version for bundle in bundles}, "version", "--version")
    _check_distinct(bundles)
    ordered = sorted(bundles, key=lambda bundle: (arch_order(bundle.arch), bundle.index.name))
    where = "--version" if given else str(ordered[0].path)
    return WheelRelease(check_name(name), check_version(version, where), tuple(ordered))


def _common(found: set[str], what: str, option: str) -> str:
    if len(found) > 1:
        raise PackageError(f"expected bundles of one {what}, or {option} to give one", got=", ".join(sorted(found)))
    return found.pop()


def _check_distinct(bundles: Sequence[VerifiedBundle]) -> None:
    """Raise if two bundles of one arch have the same kernel, or if two bundles have the same file name."""
    homes: dict[tuple[str, str], VerifiedBundle] = {}
    named: dict[str, VerifiedBundle] = {}
    for bundle in bundles:
        alike = named.setdefault(bundle.file_name, bundle)
        if alike is not bundle:
            what = "expected bundles of different names, versions or archs: leave one out"
            raise PackageError(what, got=f"{bundle.file_name} of {alike.path} and {bundle.path}")
        for kernel in bundle.kernels:
            other = homes.setdefault((bundle.arch, kernel.name), bundle)
            if other is not bundle:
                what = f"expected kernel {kernel.name} once for {bundle.arch}: leave one bundle out"
                raise PackageError(what, got=f"{other.path} and {bundle.path}")


def make_files(release: WheelRelease, layout: Layout, facts: Facts, generator: str, max_bytes: int) -> list[MadeFile]:
    """Return the files to publish for a release: its wheels, and an index file for the layout of variants.

    Args:
        release: the bundles to pack.
        layout: ``providers`` or ``variants``.
        facts: metadata from the builder.
        generator: the tool and its version, for the file ``WHEEL``.
        max_bytes: size limit of one wheel.

    Raises:
        PackageError: a wheel exceeds the limit; the message names its largest kernels.
    """
    made = _providers(release, facts, generator) if layout == "providers" else _variants(release, facts, generator)
    files = list(made)
    for file in files:
        if len(file.data) > max_bytes:
            raise _too_large(file, max_bytes)
    return files


def check_apart(files: Sequence[MadeFile]) -> None:
    """Check that the files of several releases have different names.

    Raises:
        PackageError: two files have one name, such as the wheel of ``acme-sm90`` and that of ``acme`` for sm_90.
    """
    known: dict[str, MadeFile] = {}
    for file in files:
        other = known.setdefault(file.name, file)
        if other is not file:
            what = "expected wheels of different names: build the bundles in separate calls, or give one --name"
            raise PackageError(what, got=f"{file.name} twice, {other.kind} and {file.kind}")


def check_folder(folder: Path, files: Sequence[MadeFile]) -> None:
    """Refuse to overwrite a wheel of the other layout: the thin wheel of providers has the name of the plain one of variants.

    Raises:
        PackageError: the folder holds such a wheel.
    """
    for file in files:
        there = folder / file.name
        if file.kind in {"meta", "plain"} and there.is_file() and zipfile.is_zipfile(there):
            with zipfile.ZipFile(there) as wheel:
                kind = "plain" if any(name.endswith(SUFFIX) for name in wheel.namelist()) else "meta"
            if kind != file.kind:
                what = "expected a folder without wheels of another --layout: choose one with --out"
                got = f"the {kind} wheel, which has the name of the new {file.kind} wheel"
                raise PackageError(what, got=got, where=str(there))


def _providers(release: WheelRelease, facts: Facts, generator: str) -> Iterator[MadeFile]:
    extras: dict[str, tuple[str, ...]] = {}
    for arch, bundles in release.by_arch().items():
        label = arch_label(arch)
        name = provider_name(release.name, label)
        wheel = _holding(
            replace(release, name=name), bundles, facts, entry=release.name, summary=_summary(release, bundles)
        )
        extras[label] = (f"{name}=={release.version}",)
        yield _made(wheel, "provider", bundles, generator)
    extras[_ALL] = tuple(requirement for requirements in extras.values() for requirement in requirements)
    archs = tuple(release.by_arch())
    yield replace(_made(_meta(release, extras, facts), "meta", (), generator), archs=archs)


def _variants(release: WheelRelease, facts: Facts, generator: str) -> Iterator[MadeFile]:
    by_arch = release.by_arch()
    # equal in every wheel of a version: installers read the metadata of one wheel and assume it of all
    extras = [*map(arch_label, by_arch), _ALL]
    hold = partial(
        _holding,
        release,
        facts=facts,
        entry=release.name,
        summary=_summary(release, release.bundles),
        extras=extras,
        described=release.bundles,
    )
    for arch, bundles in by_arch.items():
        wheel = hold(bundles)
        marks = {**wheel.dist_info, "variant.json": variant_file(arch, bundles)}
        yield _made(replace(wheel, dist_info=marks, label=label_of(arch)), "variant", bundles, generator)
    yield _made(hold(release.bundles), "plain", release.bundles, generator)
    name = index_file_name(release.name, release.version)
    yield MadeFile(name, "index", tuple(by_arch), index_file(by_arch), ())


def _holding(
    distribution: WheelRelease,
    bundles: Sequence[VerifiedBundle],
    facts: Facts,
    *,
    entry: str,
    summary: str,
    extras: Sequence[str] = (),
    described: Sequence[VerifiedBundle] = (),
) -> Wheel:
    """Return a wheel that holds bundles.

    Args:
        distribution: gives the name and version.
        bundles: the bundles in the wheel.
        facts: metadata from the builder.
        entry: name of the wheel's entry point, which programs pass to `nojit.runtime.load`.
        summary: one-line summary for the metadata.
        extras: extras that users may request; they add no requirement, because the wheel holds their content.
        described: the bundles that the description lists; if empty, the bundles in the wheel.
    """
    package = escaped(distribution.name)
    files = {f"{package}/__init__.py": f'"""{summary}. `nojit.runtime` finds it through its entry point."""\n'.encode()}
    for bundle in bundles:
        files |= {f"{package}/{file}": content for file, content in bundle.read_files().items()}
    about = dist_info(
        distribution.name,
        distribution.version,
        described or bundles,
        facts,
        summary=summary,
        requires=(facts.runtime, *facts.requires),
        extras=extras,
        body=f'Load it with `nojit.runtime.load("{entry}")`.',
    )
    about |= {"entry_points.txt": entry_points(entry, package), PROVENANCE: provenance(bundles, package)}
    return Wheel(distribution.name, distribution.version, files, about)


def _meta(release: WheelRelease, extras: Mapping[str, Sequence[str]], facts: Facts) -> Wheel:
    """Return the thin wheel: it holds no bundle, and each of its extras requires the wheel of an arch."""
    package = escaped(release.name)
    summary = f"{release.name} {release.version}: the extras {', '.join(extras)} install its kernels"
    optional = [
        f'{requirement}; extra == "{extra}"' for extra, requirements in extras.items() for requirement in requirements
    ]
    about = dist_info(
        release.name,
        release.version,
        (),
        facts,
        summary=summary,
        requires=(facts.runtime, *facts.requires, *optional),
        extras=tuple(extras),
        body=f"`pip install '{release.name}[{next(iter(extras))}]'` installs the kernels for one GPU architecture, "
        f'`{release.name}[{_ALL}]` those for all. Load them with `nojit.runtime.load("{release.name}")`.',
    )
    files = {f"{package}/__init__.py": f'"""{summary}."""\n'.encode()}
    return Wheel(release.name, release.version, files, {**about, PROVENANCE: provenance((), package)})


def _summary(release: WheelRelease, bundles: Sequence[VerifiedBundle]) -> str:
    archs = ", ".join(dict.fromkeys(bundle.arch for bundle in bundles))
    kernels = len({kernel.name for bundle in bundles for kernel in bundle.kernels})
    variants = sum(kernel.variants for bundle in bundles for kernel in bundle.kernels)
    return (
        f"{release.name} for {archs}: {counted(kernels, 'Triton kernel')} in {counted(variants, 'variant')}, "
        "compiled ahead of time"
    )


def _made(wheel: Wheel, kind: str, bundles: Sequence[VerifiedBundle], generator: str) -> MadeFile:
    archs = tuple(dict.fromkeys(bundle.arch for bundle in bundles))
    return MadeFile(wheel.file_name, kind, archs, pack_wheel(wheel, generator), tuple(bundles))


def _too_large(file: MadeFile, max_bytes: int) -> PackageError:
    largest = ", ".join(
        f"{kernel.name} {_megabytes(kernel.stored_bytes)} in {counted(kernel.variants, 'variant')}"
        for kernel in largest_kernels(file.bundles, 5)
    )
    what = f"expected wheels of at most {_megabytes(max_bytes)}"
    return PackageError(what, got=f"{_megabytes(len(file.data))}; the largest kernels are {largest}", where=file.name)


def _megabytes(length: int) -> str:
    return f"{length / 1e6:.1f} MB" if length >= 1e5 else f"{length:,} bytes"
