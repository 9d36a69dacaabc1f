"""Tuned variants that spill more registers than their kernel's tuning space allows. Pure.

A tuning build measures no such variant: its kernel or its compiler has changed since, and the tuned table is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nojit.aot.compile.job_runner import Finished
from nojit.aot.plan.plan import PlannedKernel
from nojit.aot.variants.variant import Variant

__all__ = ["TunedSpill", "tuned_spills"]


@dataclass(frozen=True, slots=True)
class TunedSpill:
    """One tuned variant that spills more than `max_spill_bytes` of its kernel's tuning."""

    kernel: str
    label: str
    spill_bytes: int
    """Spilled bytes per thread."""
    max_spill_bytes: int
    """The limit."""


def tuned_spills(kernel: PlannedKernel, finished: Sequence[Finished]) -> Iterator[TunedSpill]:
    """Yield the variants over the limit, of those that a tuning build would measure: tuned configs with all hints.

    Args:
        kernel: the planned kernel.
        finished: its finished variants.
    """
    if kernel.spec.tuning is None or not kernel.tuned:
        return
    limit = kernel.spec.tuning.max_spill_bytes
    tuned = [each for each in finished if each.compiled and _is_tuned(kernel, each.job.variant)]
    most_hints: dict[str, int] = {}
    for each in tuned:
        facts = _without_hints(each.job.variant)
        most_hints[facts] = max(most_hints.get(facts, 0), len(each.job.variant.hints))
    for each in tuned:
        variant, spilled = each.job.variant, each.compiled.spill_bytes if each.compiled else 0
        if spilled > limit and len(variant.hints) == most_hints[_without_hints(variant)]:
            yield TunedSpill(variant.kernel, variant.label(), spilled, limit)


def _is_tuned(kernel: PlannedKernel, variant: Variant) -> bool:
    """Return whether the config is of a tuned table: those are numbered after the manifest's."""
    return variant.config_number >= len(kernel.spec.configs)


def _without_hints(variant: Variant) -> str:
    return repr((variant.axes, variant.signature, variant.config, variant.derived))
