"""Contents of bundles without a compiler: what `nojit.aot.pipeline.build` would pack, from a manifest entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nojit.aot.manifest.archs import target_of
from nojit.aot.manifest.matrix import axes_of
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.pack.bundle import BundleContent
from nojit.aot.pack.tables import KernelContent
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.expand import derived_of, expand_kernel
from nojit.aot.variants.variant import Variant
from nojit.runtime.table.parts import Param
from nojit.runtime.table.tuning import Tuning

from tests.aot.fake_compiler import FakeCompiler, FakeSource

__all__ = ["bundle_content", "kernel_content"]

_NULL = Path("/dev/null")


def kernel_content(spec: KernelSpec, arch: str = "sm_90", **compiler: Any) -> KernelContent | None:
    """Expand and compile a kernel with the fake compiler; None if it has no variants for `arch`."""
    variants = expand_kernel(spec, arch, "here").variants
    if not variants:
        return None
    fake = FakeCompiler(_NULL, {spec.source: _source(variants[0])}, **compiler)
    place = SourcePlace(spec.source, _NULL, "here")
    tuning = spec.tuning
    return KernelContent(
        name=spec.name,
        params=fake.describe(place).params,
        grid=tuple(spec.grid),
        tuning=None if tuning is None else Tuning(tuple(tuning.key), tuning.bucket),
        axes=axes_of(spec, "here"),
        derived=derived_of(spec),
        variants=tuple((variant, fake.compile_variant(variant, place)) for variant in variants),
    )


def bundle_content(*kernels: KernelContent, arch: str = "sm_90", **changes: Any) -> BundleContent:
    facts: dict[str, Any] = {
        "name": "demo",
        "version": "1.0",
        "target": target_of(arch),
        "toolchain": (("fake", "1.0"), ("zstandard", "0")),
        "min_driver": 12000,
        "inputs": "0" * 64,
        "kernels": kernels,
    }
    return BundleContent(**facts | changes)


def _source(variant: Variant) -> FakeSource:
    return FakeSource(tuple(name for name, _ in variant.signature), tuple(name for name, _ in variant.constexprs))


def with_param(content: KernelContent, param: Param) -> KernelContent:
    """Add a param to what the source is said to take."""
    fields = {name: getattr(content, name) for name in KernelContent.__dataclass_fields__}
    return KernelContent(**fields | {"params": (*content.params, param)})
