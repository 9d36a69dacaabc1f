"""Reports of a build as data: one record per variant, failures with the compiler's output, and totals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from nojit.aot.cache.cache import CacheUse, Misfit
from nojit.aot.pipeline.tuned_spills import TunedSpill
from nojit.aot.variants.left_out import Absence, Pruned

__all__ = [
    "TWINS",
    "BuildResult",
    "BundleReport",
    "Done",
    "Failure",
    "VariantReport",
    "as_found",
    "decode_report",
    "encode_report",
]

TWINS: Final = "debug"
"""Name of the output subfolder for *twins*, the copies of bundles with line info.

They need a folder of their own, because no kernel may occur twice in a folder of bundles that is loaded.
"""


@dataclass(frozen=True, slots=True)
class VariantReport:
    """One variant in the report of a build: label, image, registers, spills."""

    kernel: str
    label: str
    key: str
    """Cache key: identifies the machine code."""
    toolchain: str
    """Name of the toolchain that compiled it; empty for the only one of a build that names none."""
    registers: int
    """Registers per thread."""
    spill_bytes: int
    """Spilled bytes per thread."""
    shared_bytes: int
    """Dynamic shared memory per block."""
    image_bytes: int
    """Size of the cubin."""
    compile_ms: int
    """Compile time, in this build or the one that filled the cache."""
    cached: bool
    """Whether this build compiled nothing for it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One variant that failed to compile and is not in the bundle."""

    label: str
    where: str
    message: str
    log: str


@dataclass(frozen=True, slots=True)
class BundleReport:
    """Result of a build for one bundle: its file and size, and whether it was already up to date."""

    path: str
    """File name of the bundle, without folders."""
    arch: str
    digest: str
    """SHA-256 of the bundle's index; empty if no bundle was written."""
    up_to_date: bool
    """Whether the existing file was already the result of this build."""
    bundle_bytes: int
    images: int
    """Distinct images."""
    image_bytes: int
    """Size of the distinct images before compression."""
    excluded: int
    """Variants that the manifests exclude."""
    toolchain: tuple[tuple[str, str], ...]
    variants: tuple[VariantReport, ...]
    failures: tuple[Failure, ...]
    pruned: tuple[Pruned, ...] = ()
    """For a tuning bundle: configs that were skipped."""
    tuned_spills: tuple[TunedSpill, ...] = ()
    """Tuned variants that spill more than `max_spill_bytes` of their kernel's tuning: their table is out of date."""
    code_differs: tuple[str, ...] = ()
    """For a bundle with line info: variants whose instructions differ from those without."""
    trusted: tuple[str, ...] = ()
    """Ids of the keys that could sign shared cache entries; empty if the build took unsigned entries."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Results of a build for all its bundles."""

    reports: tuple[BundleReport, ...]
    stopped: bool
    """True if a failed variant ended the build before all variants were tried."""
    misfits: tuple[Misfit, ...] = ()
    """Cache entries that could not be used."""
    sha256s: tuple[str, ...] = ()
    """SHA-256 of each complete bundle's file, in hex; empty for a bundle that lacks variants."""
    cache: CacheUse = field(default_factory=CacheUse)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Failed variants of all bundles."""
        return tuple(failure for report in self.reports for failure in report.failures)


@dataclass(frozen=True, slots=True)
class Done:
    """Result of the command ``nojit build``."""

    result: BuildResult
    twins: BuildResult | None
    """Result of building the twins (copies with line info); None if they were not requested."""
    absent: tuple[Absence, ...]
    warned: tuple[str, ...]
    """Problems with the signed statements of the bundles."""
    twins_warned: tuple[str, ...] = ()
    """Problems with the signed statements of the twins."""


def as_found(report: BundleReport) -> BundleReport:
    """Return an up-to-date bundle's stored report in the form that the current build reports."""
    variants = tuple(replace(variant, cached=True) for variant in report.variants)
    return replace(report, up_to_date=True, variants=variants)


def encode_report(report: BundleReport) -> bytes:
    """Return a report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def decode_report(data: bytes) -> BundleReport:
    """Return the report that `encode_report` encoded as JSON.

    Raises:
        ValueError: the data has another form.
    """
    return msgspec.json.decode(data, type=BundleReport)
