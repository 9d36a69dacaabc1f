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
    """Those for which it has no variant, of those that are built for."""


@dataclass(frozen=True, slots=True)
class VariantReport:
    """One variant that is in the bundle."""

    kernel: str
    label: str
    key: str
    """Identity of its machine code: the cache key."""
    registers: int
    """Registers of a thread."""
    spill_bytes: int
    """Bytes that a thread spills."""
    shared_bytes: int
    """Dynamic shared memory of a block."""
    image_bytes: int
    """Length of its cubin."""
    compile_ms: int
    """What compiling took, in this build or in the one that filled the cache."""
    cached: bool
    """Whether nothing was compiled for it in this build."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One variant that could not be compiled, and so is not in the bundle."""

    label: str
    where: str
    message: str
    log: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """One variant of a tuning space that is not worth measuring, and so is not in the bundle."""

    kernel: str
    label: str
    reason: str
    """One of few, to count by."""
    detail: str
    """What was found; empty if the reason says all."""


@dataclass(frozen=True, slots=True)
class BundleReport:
    """One bundle of a build."""

    path: str
    """File name of the bundle, without folders."""
    arch: str
    digest: str
    """SHA-256 of the bundle's index; empty if no bundle was written."""
    up_to_date: bool
    """Whether the file that stood there already was the one to build."""
    bundle_bytes: int
    images: int
    """Distinct images."""
    image_bytes: int
    """Length of the distinct images before compression."""
    excluded: int
    """Variants that the manifests leave out."""
    toolchain: tuple[tuple[str, str], ...]
    variants: tuple[VariantReport, ...]
    failures: tuple[Failure, ...]
    pruned: tuple[Pruned, ...] = ()
    """Of a tuning bundle only."""
    code_differs: tuple[str, ...] = ()
    """Of a twin with line info only: variants whose instructions are others than without."""


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
