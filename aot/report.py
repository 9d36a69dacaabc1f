"""What a build did, as data: one record per variant, failures with the compiler's words, totals."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

__all__ = ["BundleReport", "Failure", "Pruned", "VariantReport", "decode_report", "encode_report"]


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


def encode_report(report: BundleReport) -> bytes:
    """Lay out a report as indented JSON, for people and tools."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def decode_report(data: bytes) -> BundleReport:
    """Read what `encode_report` wrote.

    Raises:
        ValueError: it is something else.
    """
    return msgspec.json.decode(data, type=BundleReport)
