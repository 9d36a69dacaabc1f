"""Which kernels of manifests are not in a bundle for some architecture, since nothing of them is to be built for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nojit.aot.manifest import KernelSpec, load_manifest
from nojit.aot.plan import Plan

__all__ = ["Absence", "absent_kernels", "has_space"]


@dataclass(frozen=True, slots=True)
class Absence:
    """A kernel that bundles lack."""

    bundle: str
    kernel: str
    archs: tuple[str, ...]
    """Those for which it has no variant, of those that are built for."""


def absent_kernels(plans: Sequence[Plan], kernels: Sequence[str] = ()) -> tuple[Absence, ...]:
    """Name what plans leave out, sorted by name within each bundle; a tuning bundle is of kernels with a space only.

    Args:
        plans: of all architectures, those without any kernel too.
        kernels: the names that the plans were narrowed down to; empty for all.

    Raises:
        ManifestError: a manifest cannot be read any more.
    """
    specs = {path: load_manifest(path).kernel for plan in plans for path in plan.manifests}
    absent: dict[tuple[str, str], list[str]] = {}
    for plan in plans:
        present = {kernel.spec.name for kernel in plan.kernels}
        names = [spec.name for path in plan.manifests for spec in specs[path] if has_space(spec) or not plan.tuning]
        for name in sorted(names):
            if name not in present and (not kernels or name in kernels):
                absent.setdefault((plan.bundle.name, name), []).append(plan.arch)
    return tuple(Absence(bundle, kernel, tuple(archs)) for (bundle, kernel), archs in absent.items())


def has_space(spec: KernelSpec) -> bool:
    """Say whether a kernel has configs to measure."""
    return spec.tuning is not None and bool(spec.tuning.space)
