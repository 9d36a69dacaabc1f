"""Plans: each lists the kernels and variants of one bundle to build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.manifest.spec import BundleSpec, KernelSpec
from nojit.aot.manifest.text import ManifestText
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.variants.left_out import Absence, Pruned, Refused
from nojit.aot.variants.variant import Variant
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import ManifestError
from nojit.runtime.table.parts import Axis, Derived
from nojit.runtime.tuning.tuned_tables import TunedTable

__all__ = ["Plan", "Planned", "PlannedKernel", "absent_kernels"]


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
    untuned: tuple[str, ...] = ()
    """Names of the kernels of such a bundle that have no tuned table for the arch."""
    tuning: bool = False
    """True for a tuning bundle, in which configs that fail to compile or are not worth measuring are skipped."""
    manifests: tuple[Path, ...] = ()
    """The manifests of its kernels."""
    absent: tuple[str, ...] = ()
    """Names of the kernels without a variant, sorted; for a tuning bundle, only kernels that have a tuning space."""
    too_new: tuple[tuple[str, str], ...] = ()
    """Name, and `triton` of the manifest, of each absent kernel that needs a newer Triton than the build has."""
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


def absent_kernels(plans: Sequence[Plan]) -> tuple[Absence, ...]:
    """Return the kernels without a variant in some plan, sorted by name within each bundle.

    Args:
        plans: plans of all archs, including those without kernels.
    """
    absent: dict[tuple[str, str, str], list[str]] = {}
    for plan in plans:
        needed = dict(plan.too_new)
        for name in plan.absent:
            absent.setdefault((plan.bundle.name, name, needed.get(name, "")), []).append(plan.arch)
    return tuple(Absence(bundle, kernel, tuple(archs), triton) for (bundle, kernel, triton), archs in absent.items())
