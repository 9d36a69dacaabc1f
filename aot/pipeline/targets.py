"""Choice of targets: for each kernel, the one whose images run on the most chips and cost none of them anything.

The builder compiles every variant for each chip and for the chips' families. An image of a family costs a chip nothing if the chip's
own has the same launch, the same registers and spills, and the same instructions; ptxas may schedule them in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from nojit.aot.backends.registry import vendor_of
from nojit.aot.cache.cache import Cache
from nojit.aot.compile import job_runner
from nojit.aot.compile.job_runner import Finished, Job
from nojit.aot.manifest.archs import arch_number, arch_order, chip_of, chips_of, family_of, known_archs, target_of
from nojit.aot.pipeline.build import jobs_of
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.plan import Plan
from nojit.runtime.target import parse_image_arch

__all__ = ["KernelTarget", "choose_targets", "with_families"]


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """The target to build a kernel for, so that requested chips run it."""

    bundle: str
    kernel: str
    arch: str
    """The target: a chip's arch, or a family's if its images cost the requested chips of it nothing."""
    chips: tuple[str, ...]
    """Requested chips that it is for."""
    runs_on: tuple[str, ...]
    """Known chips that run its images."""
    variants: int
    failed: int
    """Variants that do not compile for it."""
    reordered: int
    """Variants whose instructions have another order than on one of the chips."""
    reason: str
    """Why it is not for the family; empty if it is, or if the chip has none."""


def with_families(archs: Sequence[str], assembled: Sequence[str]) -> tuple[str, ...]:
    """Return requested chips and their families, sorted: the targets to compile for.

    Args:
        archs: the requested archs. A family stands for its chips that the toolchain assembles for.
        assembled: the archs that the toolchain assembles for; empty if unknown.
    """
    chips = [chip for arch in archs for chip in chips_of(arch) if not assembled or chip in assembled]
    families = [family for family in map(family_of, chips) if family and (not assembled or family in assembled)]
    # a family has the code of the chip of its number
    return tuple(sorted({*chips, *families, *map(chip_of, families)}, key=arch_order))


def choose_targets(
    plans: Sequence[Plan],
    archs: Sequence[str],
    compiler: Compiler,
    cache: Cache,
    open_executor: Callable[[], AbstractContextManager[Executor]],
    *,
    ahead: int = 1,
    on_event: Callable[[Finished], None] = lambda _: None,
    on_expected: Callable[[int], None] = lambda _: None,
) -> tuple[KernelTarget, ...]:
    """Compile plans, and return the targets of each kernel, sorted by bundle and kernel.

    Args:
        plans: plans of the bundles for the archs of `with_families`.
        archs: the requested archs.
        compiler: compiles variants.
        cache: cache of compiled variants.
        open_executor: starts the worker processes; called only if something must be compiled.
        ahead: number of variants that may be claimed at the same time, if the cache is shared.
        on_event: called with the result of every variant.
        on_expected: called with the number of variants to compile.

    Raises:
        PackageError: the cache cannot be read or written.
    """
    jobs = {(plan.bundle.name, plan.arch): jobs_of(plan, compiler) for plan in plans}
    done: dict[Job, Finished] = {}
    for finished in job_runner.run(
        [job for each in jobs.values() for job in each],
        compiler.compile_variant,
        open_executor,
        cache,
        keep_going=True,
        check=compiler.check_compiled,
        ahead=ahead,
        expect=on_expected,
    ):
        done[finished.job] = finished
        on_event(finished)
    made: dict[tuple[str, str], dict[str, dict[str, Finished]]] = {}
    for (bundle, arch), each in jobs.items():
        kernels = made.setdefault((bundle, arch), {})
        for job in each:
            kernels.setdefault(job.variant.kernel, {})[_identity(job)] = done[job]
    chips = sorted({chip for arch in archs for chip in chips_of(arch)}, key=arch_order)
    return tuple(_targets(made, chips))


def _identity(job: Job) -> str:
    """Return what identifies a variant beside its arch."""
    return repr(replace(job.variant, arch=""))


def _targets(
    made: Mapping[tuple[str, str], Mapping[str, Mapping[str, Finished]]], chips: Sequence[str]
) -> Iterator[KernelTarget]:
    bundles = sorted({bundle for bundle, _ in made})
    for bundle in bundles:
        for kernel in sorted({kernel for (name, _), kernels in made.items() if name == bundle for kernel in kernels}):
            own = {chip: made[bundle, chip][kernel] for chip in chips if kernel in made.get((bundle, chip), {})}
            by_family: dict[str, list[str]] = {}
            for chip in own:
                family = family_of(chip)
                by_family.setdefault(family if (bundle, family) in made else "", []).append(chip)
            for family, members in by_family.items():
                images = made[bundle, family].get(kernel, {}) if family else {}
                reasons = [_difference(images, own[chip], chip) if family else "" for chip in members]
                if family and not any(reasons):
                    moved = {
                        key for chip in members for key in images if _is_reordered(images[key], own[chip][key], chip)
                    }
                    yield KernelTarget(
                        bundle, kernel, family, tuple(members), _runs_on(family), len(images), 0, len(moved), ""
                    )
                    continue
                reason = next(filter(None, reasons), "")
                for chip in members:
                    built, failed = own[chip], _failed(own[chip])
                    yield KernelTarget(bundle, kernel, chip, (chip,), _runs_on(chip), len(built), failed, 0, reason)


def _difference(family: Mapping[str, Finished], own: Mapping[str, Finished], chip: str) -> str:
    """Return why a family's images cannot replace those of a chip; empty if they can.

    `family` and `own`: results by the variant's identity.
    """
    if family.keys() != own.keys():
        return f"{chip} has other configs"
    if failed := _failed(own):
        return f"{failed} of {len(own)} do not compile for {chip}"
    different = sum(not _is_alike(family[key], own[key], chip) for key in own)
    return f"{different} of {len(own)} have other instructions on {chip}" if different else ""


def _failed(results: Mapping[str, Finished]) -> int:
    return sum(each.error is not None for each in results.values())


def _is_alike(family: Finished, own: Finished, chip: str) -> bool:
    one, other, vendor = family.compiled, own.compiled, vendor_of(chip)
    if one is None or other is None:
        return False
    facts = [(each.launch, each.registers, each.spill_bytes) for each in (one, other)]
    return facts[0] == facts[1] and vendor.opcodes_of(one.image) == vendor.opcodes_of(other.image)


def _is_reordered(family: Finished, own: Finished, chip: str) -> bool:
    one, other, code_of = family.compiled, own.compiled, vendor_of(chip).code_of
    return one is not None and other is not None and code_of(one.image) != code_of(other.image)


def _runs_on(arch: str) -> tuple[str, ...]:
    image, vendor = parse_image_arch(target_of(arch).image_arch), vendor_of(arch)
    return tuple(chip for chip in known_archs() if vendor_of(chip) is vendor and image.runs_on(arch_number(chip)))
