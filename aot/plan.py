"""From manifest files to plans: which variants go into which bundle file. Nothing is compiled yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nojit.aot.axes import axes_of
from nojit.aot.expand import derived_of, expand_kernel
from nojit.aot.manifest import BundleSpec, KernelSpec, load_manifest
from nojit.aot.options import TUNABLE
from nojit.aot.source import KernelSource, SourcePlace, check_variant
from nojit.aot.target import check_arch
from nojit.aot.variant import CompiledVariant, Variant
from nojit.runtime import expr
from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.format import SUFFIX
from nojit.runtime.table import Axis, Derived

__all__ = ["Compiler", "Plan", "PlannedKernel", "make_plans"]


class Compiler(Protocol):
    """What a build needs of a compiler; `nojit.aot.compiler` is one."""

    def describe(self, place: SourcePlace) -> KernelSource:
        """Find a kernel's source."""

    def variant_key(self, variant: Variant, source: KernelSource, place: SourcePlace) -> str:
        """Name a variant's machine code before it exists."""

    def compile_variant(self, variant: Variant, place: SourcePlace) -> CompiledVariant:
        """Make a variant's machine code."""

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        """Name the tools that make it."""

    def min_driver(self, arch: str) -> int:
        """Return the least CUDA version whose driver loads it."""


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One kernel of a bundle."""

    spec: KernelSpec
    source: KernelSource
    place: SourcePlace
    axes: tuple[Axis, ...]
    derived: tuple[Derived, ...]
    variants: tuple[Variant, ...]
    excluded: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One bundle to build."""

    bundle: BundleSpec
    arch: str
    kernels: tuple[PlannedKernel, ...]
    """Sorted by name; those without a variant for this arch and profile left out."""

    @property
    def file_name(self) -> str:
        """The name of the bundle's file."""
        return f"{self.bundle.name}-{self.bundle.version}-{self.arch}{SUFFIX}"

    def count(self) -> int:
        """Return how many variants it has."""
        return sum(len(kernel.variants) for kernel in self.kernels)


def make_plans(
    manifests: Sequence[Path], archs: Sequence[str], profile: str, compiler: Compiler, kernels: Sequence[str] = ()
) -> list[Plan]:
    """Expand manifests into one plan per bundle and arch.

    Args:
        manifests: the files; those that name one bundle merge.
        archs: the architectures; empty for those that the manifests name.
        profile: ``core`` or ``full``.
        compiler: finds the kernels' sources.
        kernels: keep only kernels of these names; empty for all.

    Raises:
        ManifestError: anything that cannot be built as written.
    """
    for arch in archs:
        check_arch(arch, "--arch")
    bundles = _merge(manifests)
    known = tuple(entry.spec.name for entries in bundles.values() for entry in entries[1])
    for name in kernels:
        if name not in known:
            raise ManifestError("expected a kernel of the manifests", got=f"{name!r}{did_you_mean(name, known)}")
    return [
        Plan(bundle, arch, tuple(_plan_kernels(entries, arch, profile, compiler, kernels)))
        for bundle, entries in bundles.values()
        for arch in dict.fromkeys(archs or bundle.archs)
    ]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One kernel of one manifest."""

    spec: KernelSpec
    place: SourcePlace


def _merge(manifests: Sequence[Path]) -> dict[str, tuple[BundleSpec, list[_Entry]]]:
    bundles: dict[str, tuple[BundleSpec, list[_Entry]]] = {}
    owners: dict[tuple[str, str], Path] = {}
    for path in manifests:
        manifest = load_manifest(path)
        bundle, entries = bundles.setdefault(manifest.bundle.name, (manifest.bundle, []))
        if manifest.bundle != bundle:
            raise ManifestError(
                f"expected manifests of bundle {bundle.name!r} to agree on version {bundle.version!r} and archs "
                f"{bundle.archs}",
                got=f"version {manifest.bundle.version!r} and archs {manifest.bundle.archs}",
                where=f"{path} $.bundle",
            )
        for spec in manifest.kernel:
            other = owners.setdefault((bundle.name, spec.name), path)
            if other is not path:
                raise ManifestError(
                    f"expected kernel {spec.name!r} once in bundle {bundle.name!r}",
                    got=f"it in {other} too",
                    where=str(path),
                )
            entries.append(_Entry(spec, SourcePlace(spec.source, path.parent, f"{path} kernel {spec.name}")))
    return bundles


def _plan_kernels(
    entries: Sequence[_Entry], arch: str, profile: str, compiler: Compiler, kernels: Sequence[str]
) -> Iterator[PlannedKernel]:
    for entry in sorted(entries, key=lambda entry: entry.spec.name):
        spec, place = entry.spec, entry.place
        if kernels and spec.name not in kernels:
            continue
        expansion = expand_kernel(spec, arch, place.where, profile)
        if not expansion.variants:
            continue
        source = compiler.describe(place)
        for variant in expansion.variants:
            check_variant(variant, source, place.where)
        _check_names(spec, source, place.where)
        yield PlannedKernel(
            spec, source, place, axes_of(spec, place.where), derived_of(spec), expansion.variants, expansion.excluded
        )


def _check_names(spec: KernelSpec, source: KernelSource, where: str) -> None:
    """Refuse what would fail at each call: a grid that is no expression, a name that nothing gives a value to."""
    params = tuple(param.name for param in source.params)
    texts = [(f"{where}.grid[{number}]", text) for number, text in enumerate(spec.grid)]
    texts += [
        (f"{where}.configs[{number}].requires", config.get("requires", ""))
        for number, config in enumerate(spec.configs)
    ]
    texts += [(f"{where}.derived.{derived.name}", derived.expression) for derived in derived_of(spec)]
    for place, text in texts:
        names = sorted(_parse(text, place).names) if text else []
        _refuse_strangers(names, ("arch", *params, *spec.matrix, *TUNABLE), "a param, constexpr or axis", place)
    runtime = tuple(param.name for param in source.params if not param.constexpr)
    keys = spec.tuning.key if spec.tuning else []
    _refuse_strangers(keys, runtime, "a runtime param of the kernel", f"{where}.tuning.key")


def _parse(text: str, where: str) -> expr.Expression:
    try:
        return expr.parse(text)
    except expr.ExpressionError as error:
        raise ManifestError(str(error), where=where) from None


def _refuse_strangers(names: Sequence[str], known: Sequence[str], what: str, where: str) -> None:
    for name in names:
        if name not in known:
            raise ManifestError(f"expected {what}", got=f"{name!r}{did_you_mean(name, tuple(known))}", where=where)
