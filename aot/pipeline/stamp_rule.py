"""The decision whether a build is settled: the same command would find everything up to date and print the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nojit.aot.pipeline.report import TWINS, Done
from nojit.aot.plan.plan import Plan
from nojit.aot.provenance.write_statement import Invocation, is_attested

__all__ = ["is_settled"]


def is_settled(plans: Sequence[Plan], done: Done, folder: Path, invocation: Invocation) -> bool:
    """Return whether a stamp may repeat this build's result, so that the next build checks nothing else.

    Args:
        plans: plans of the bundles.
        done: result of the build.
        folder: folder of the bundles.
        invocation: the build, as its statements describe it.
    """
    made = [(folder, done.result), *([(folder / TWINS, done.twins)] if done.twins else [])]
    written = any(not report.up_to_date for _, result in made for report in result.reports)
    # the next build would print that kept kernels come from this bundle
    if done.result.stopped or done.result.misfits or (written and any(plan.kept or plan.gone for plan in plans)):
        return False
    return all(
        report.digest and is_attested(place / report.path, report.digest, invocation)
        for place, result in made
        for report in result.reports
    )
