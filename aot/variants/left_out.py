"""Kernels and variants that a plan leaves out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Absence", "Pruned", "Refused"]


@dataclass(frozen=True, slots=True)
class Absence:
    """A kernel that is missing from the bundles of some archs."""

    bundle: str
    kernel: str
    archs: tuple[str, ...]
    """Architectures of the build for which the kernel has no variant."""
    triton: str = ""
    """The oldest Triton that compiles the kernel, such as ``>=3.7``, if the build has only older ones; else empty."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """One variant of a tuning space that the build skipped."""

    kernel: str
    label: str
    reason: str
    """Category of the reason for skipping it; reports count variants by category."""
    detail: str
    """Details of the reason; empty if the category is enough."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One recorded specialization that cannot be built for an arch, found before compiling."""

    kernel: str
    label: str
    where: str
    message: str
