"""Outcome of compiling a plan: variants for the bundle, failures, and skipped (pruned) variants. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nojit.aot.compile.job_runner import Finished
from nojit.aot.compile.resource_pruning import prune_compiled, prune_failed
from nojit.aot.pipeline.report import Failure
from nojit.aot.pipeline.tuned_spills import TunedSpill, tuned_spills
from nojit.aot.plan.plan import Plan, PlannedKernel
from nojit.aot.variants.left_out import Pruned
from nojit.aot.variants.variant import CompiledVariant, Variant

__all__ = ["Outcome", "failure_of", "sort_out"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The variants of a compiled plan: kept, failed, and skipped."""

    kept: tuple[tuple[Finished, ...], ...]
    """Variants that go into the bundle, for each kernel of the plan in its order."""
    failures: tuple[Failure, ...]
    pruned: tuple[Pruned, ...]
    spills: tuple[TunedSpill, ...] = ()
    """Tuned variants in the bundle that spill more than their tuning space allows."""

    def variants(self) -> tuple[tuple[tuple[Variant, CompiledVariant], ...], ...]:
        """Return the compiled variants that go into the bundle, for each kernel of the plan."""
        return tuple(tuple((f.job.variant, f.compiled) for f in kept if f.compiled) for kept in self.kept)


def sort_out(plan: Plan, finished: Sequence[Sequence[Finished]]) -> Outcome:
    """Return the finished variants of each kernel by outcome. In a tuning bundle, failures count as skipped.

    Args:
        plan: the plan that was compiled.
        finished: the finished variants of each kernel, in the plan's order of kernels.
    """
    if plan.tuning:
        return _sort_out_tuning(plan, finished)
    failures = (failure_of(each) for one in finished for each in one)
    kept = tuple(tuple(each for each in one if each.compiled) for one in finished)
    spills = (spill for kernel, one in zip(plan.kernels, finished, strict=True) for spill in tuned_spills(kernel, one))
    return Outcome(kept, tuple(failure for failure in failures if failure), (), tuple(spills))


def _sort_out_tuning(plan: Plan, finished: Sequence[Sequence[Finished]]) -> Outcome:
    kept: list[tuple[Finished, ...]] = []
    failures: list[Failure] = []
    pruned: list[Pruned] = []
    for kernel, one in zip(plan.kernels, finished, strict=True):
        reasons = [(each, _why_pruned(kernel, each)) for each in one]
        left_out = [*kernel.pruned, *(reason for _, reason in reasons if reason)]
        kept.append(tuple(each for each, reason in reasons if reason is None))
        pruned += left_out
        if one and not kept[-1]:
            failures.append(_nothing_left(kernel, left_out))
    return Outcome(tuple(kept), tuple(failures), tuple(pruned))


def failure_of(finished: Finished) -> Failure | None:
    """Return the record of a variant's failed compilation; None if it compiled."""
    error = finished.error
    return None if error is None else Failure(finished.job.variant.label(), error.where, str(error), error.log)


def _why_pruned(kernel: PlannedKernel, finished: Finished) -> Pruned | None:
    variant, limit = finished.job.variant, kernel.spec.tuning.max_spill_bytes if kernel.spec.tuning else 0
    if finished.error is not None:
        return prune_failed(variant, finished.error)
    return prune_compiled(variant, finished.compiled, limit) if finished.compiled else None


def _nothing_left(kernel: PlannedKernel, pruned: Sequence[Pruned]) -> Failure:
    counts = Counter(each.reason for each in pruned).most_common()
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts)
    message = f"expected a config of {kernel.spec.name} to measure, got every one pruned: {reasons}"
    log = "\n".join([message, *(f"{each.label}: {each.reason} {each.detail}" for each in pruned)])
    return Failure(kernel.spec.name, kernel.place.where, message, log)
