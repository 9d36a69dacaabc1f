"""Which kernels of manifests are not in a bundle for some architecture, since nothing of them is to be built for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nojit.aot.plan import Plan

__all__ = ["Absence", "absent_kernels"]


@dataclass(frozen=True, slots=True)
class Absence:
    """A kernel that bundles lack."""

    bundle: str
    kernel: str
    archs: tuple[str, ...]
    """Those for which it has no variant, of those that are built for."""


def absent_kernels(plans: Sequence[Plan]) -> tuple[Absence, ...]:
    """Name what plans leave out, sorted by name within each bundle.

    Args:
        plans: of all architectures, those without any kernel too.
    """
    absent: dict[tuple[str, str], list[str]] = {}
    for plan in plans:
        for name in plan.absent:
            absent.setdefault((plan.bundle.name, name), []).append(plan.arch)
    return tuple(Absence(bundle, kernel, tuple(archs)) for (bundle, kernel), archs in absent.items())
