"""What a build did, as data: one record per variant, failures with the compiler's words, totals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec
from nojit.aot.cache import Misfit

__all__ = [
    "TWINS",
    "Absence",
    "BuildResult",
    "BundleReport",
    "Done",
    "Failure",
    "Pruned",
    "VariantReport",
    "as_found",
    "decode_report",
    "encode_report",
]

TWINS: Final = "debug"
"""Where twins lie below the bundles: a folder of bundles that is loaded must not hold a kernel twice."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A kernel that bundles lack."""

    bundle: str
    kernel: str
    archs: tuple[str, ...]
    """Architectures of the build for which the kernel has no variant."""


@dataclass(frozen=True, slots=True)
class VariantReport:
    """One variant in the bundle."""

    kernel: str
    label: str
    key: str
    """Cache key: identifies the machine code."""
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
class Pruned:
    """One variant of a tuning space that was skipped."""

    kernel: str
    label: str
    reason: str
    """Category of the reason, to count by."""
    detail: str
    """Details; empty if the category is enough."""


@dataclass(frozen=True, slots=True)
class BundleReport:
    """One bundle of a build."""

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
    code_differs: tuple[str, ...] = ()
    """For a bundle with line info: variants whose instructions differ from those without."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build came to."""

    reports: tuple[BundleReport, ...]
    stopped: bool
    """Whether a failure ended it before every variant was tried."""
    misfits: tuple[Misfit, ...] = ()
    """Entries of the cache that were of no use."""
    sha256s: tuple[str, ...] = ()
    """Of each bundle's file, in hex; empty for one that the same build would write again."""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Every failure, over all bundles."""
        return tuple(failure for report in self.reports for failure in report.failures)


@dataclass(frozen=True, slots=True)
class Done:
    """What a whole command came to."""

    result: BuildResult
    twins: BuildResult | None
    """Of the twins with line info; None if none were asked for."""
    absent: tuple[Absence, ...]
    warned: tuple[str, ...]
    """What is wrong with the signed statements of the bundles."""
    twins_warned: tuple[str, ...] = ()
    """Likewise of the twins."""


def as_found(report: BundleReport) -> BundleReport:
    """Return what the report of a bundle says once the bundle is found up to date."""
    variants = tuple(replace(variant, cached=True) for variant in report.variants)
    return replace(report, up_to_date=True, variants=variants)


def encode_report(report: BundleReport) -> bytes:
    """Lay out a report as indented JSON, for people and tools."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def decode_report(data: bytes) -> BundleReport:
    """Read what `encode_report` wrote.

    Raises:
        ValueError: it is something else.
    """
    return msgspec.json.decode(data, type=BundleReport)
