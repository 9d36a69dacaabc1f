"""Results of ``nojit build`` as tables and as a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nojit.aot.backends.registry import vendor_of
from nojit.aot.cache.cache import CacheUse
from nojit.aot.cli.console import Output, counted, duration, size
from nojit.aot.compile.toolchain.digests import settings_of
from nojit.aot.manifest.archs import arch_order
from nojit.aot.pipeline.report import TWINS, BuildResult, BundleReport, Done, Failure, VariantReport
from nojit.aot.pipeline.tuned_spills import TunedSpill
from nojit.aot.variants.left_out import Absence, Pruned
from nojit.runtime.base.wording import few

if TYPE_CHECKING:
    from nojit.aot.cli.progress.build_progress import View
    from nojit.aot.pipeline.targets import KernelTarget
    from nojit.aot.plan.plan import Plan

__all__ = [
    "Failures",
    "build_document",
    "plan_document",
    "show_build",
    "show_plans",
    "show_result",
    "show_targets",
    "show_twins",
    "tell_of_kept",
    "tell_of_untuned",
    "warn_of_absent",
]

# limits without -v: lines of a log, and failures
_LOG_LINES = 6
_FAILURES = 10
# limit of kernels to name in a line
_FEW = 8


def plan_document(plans: Sequence[Plan], absent: Sequence[Absence]) -> dict[str, Any]:
    """Return the JSON document of a dry run."""
    return {
        "dry_run": True,
        "bundles": [
            {
                "name": plan.bundle.name,
                "version": plan.bundle.version,
                "arch": plan.arch,
                "file": plan.file_name,
                "variants": plan.count(),
                "excluded": sum(kernel.excluded for kernel in plan.kernels),
                "kernels": [
                    {
                        "name": kernel.spec.name,
                        "variants": len(kernel.variants),
                        "excluded": kernel.excluded,
                        "tuned": [table.device.name for table in kernel.tuned],
                    }
                    for kernel in plan.kernels
                ],
                "profile": plan.profile,
                "kept": list(plan.kept),
                "gone": list(plan.gone),
                "pruned": [asdict(pruned) for kernel in plan.kernels for pruned in kernel.pruned],
            }
            for plan in plans
        ],
        "absent": [asdict(one) for one in absent],
    }


def warn_of_absent(view: View, plans: Sequence[Plan], absent: Sequence[Absence], tritons: Sequence[str]) -> None:
    """Show the bundles that are not built for lack of a kernel, as warnings, then the omitted kernels of others, as notes.

    Args:
        view: shows the messages.
        plans: all plans, including those without a kernel.
        absent: the kernels that the plans omit because of profile, architecture or Triton.
        tritons: versions of Triton of the build.
    """
    what = "config to measure" if any(plan.tuning for plan in plans) else "variant"
    _warn_of_bundles(view, [plan for plan in plans if not plan.kernels], {one.bundle for one in absent}, what)
    _tell_of_triton(view, absent, tritons)
    built: dict[str, set[str]] = {}
    for plan in plans:
        if plan.kernels:
            built.setdefault(plan.bundle.name, set()).add(plan.arch)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in absent:
        archs = tuple(arch for arch in one.archs if arch in built.get(one.bundle, ()))
        if archs and not one.triton:
            alike.setdefault((one.bundle, archs), []).append(one.kernel)
    profiles = {(plan.bundle.name, plan.arch): plan.profile for plan in plans}
    for (bundle, archs), kernels in alike.items():
        has = "has" if len(kernels) == 1 else "have"
        view.note(
            f"{few(kernels, _FEW)} of {bundle} {has} no {what} for {', '.join(archs)} in profile {profiles[bundle, archs[0]]}"
        )


def _tell_of_triton(view: View, absent: Sequence[Absence], tritons: Sequence[str]) -> None:
    needed: dict[tuple[str, str], list[str]] = {}
    for one in absent:
        if one.triton:
            needed.setdefault((one.bundle, one.triton), []).append(one.kernel)
    for (bundle, triton), kernels in needed.items():
        need = "needs" if len(kernels) == 1 else "need"
        view.note(
            f"{bundle} leaves out {few(kernels, _FEW)}, which {need} Triton {triton}: "
            f"this build has {', '.join(tritons)}; install a newer one, or add --toolchain VERSION=VENV"
        )


def tell_of_kept(view: View, plans: Sequence[Plan]) -> None:
    """Show, as notes, the other kernels of existing bundles: those that the build keeps, and those that it drops."""
    for plan in plans:
        if plan.kept:
            view.note(f"{plan.file_name} keeps {few(plan.kept, _FEW)}, of {plan.in_place} in profile {plan.profile}")
        if plan.gone:
            view.warn(f"{plan.file_name} loses {few(plan.gone, _FEW)}, of {plan.in_place}: no manifest lists it")


def tell_of_untuned(view: View, plans: Sequence[Plan]) -> None:
    """Show, as a note, the kernels that `--retune` builds only with their manifests' configs, because they have no tuned table."""
    for plan in plans:
        if plan.untuned:
            what = "only the configs of their manifests are built; --tuning builds their whole spaces"
            view.note(f"no tuned table for {plan.arch} of {few(plan.untuned, _FEW)}: {what}")


def _warn_of_bundles(view: View, empty: Sequence[Plan], spaced: set[str], what: str) -> None:
    lines = [
        f"{plan.bundle.name} has no kernel with a [[kernel.tuning.space]]: nothing to build"
        if plan.tuning and plan.bundle.name not in spaced
        else f"{plan.bundle.name} has no {what} for {plan.arch} in profile {plan.profile}: nothing to build"
        for plan in empty
    ]
    for line in dict.fromkeys(lines):
        view.warn(line)


def show_plans(out: Output, plans: Sequence[Plan]) -> None:
    """Show the result of a dry run: variants per kernel and architecture."""
    archs = sorted({plan.arch for plan in plans}, key=arch_order)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for plan in plans:
        for kernel in plan.kernels:
            row = counts.setdefault((plan.bundle.name, kernel.spec.name), {})
            row[plan.arch] = len(kernel.variants)
    rows = [
        (bundle, kernel, *(f"{row[arch]:,}" if arch in row else "-" for arch in archs))
        for (bundle, kernel), row in counts.items()
    ]
    out.table(("bundle", "kernel", *(f">{arch}" for arch in archs)), rows)
    out.line()
    if out.verbosity > 0:
        for plan in plans:
            for variant in (variant for kernel in plan.kernels for variant in kernel.variants):
                out.line(variant.label())
        out.line()
    _show_pruned(out, [pruned for plan in plans for kernel in plan.kernels for pruned in kernel.pruned])
    total = sum(plan.count() for plan in plans)
    out.line(f"{counted(total, 'variant')} in {counted(len(plans), 'bundle')}; nothing was compiled or written")


def show_targets(out: Output, targets: Sequence[KernelTarget]) -> None:
    """Show the targets of each kernel, and the bundles to build."""
    rows = [
        (
            one.kernel,
            one.arch,
            f"{one.variants:,}",
            f"{one.failed:,}" if one.failed else "-",
            f"{one.reordered:,}" if one.reordered else "-",
            " ".join(one.runs_on),
            one.reason or "-",
        )
        for one in sorted(targets, key=lambda one: (arch_order(one.arch), one.bundle, one.kernel))
    ]
    headers = ("kernel", "target", ">variants", ">failed", ">reordered", "runs on", "not for the family, because")
    out.table(headers, rows)
    out.line()
    for arch in sorted({one.arch for one in targets}, key=arch_order):
        mine = [one for one in targets if one.arch == arch]
        everywhere = {one.kernel for one in targets if set(one.chips) & set(mine[0].chips)}
        chosen = [] if {one.kernel for one in mine} == everywhere else [f"--kernel {one.kernel}" for one in mine]
        out.line(f"--arch {arch}{''.join(f' {each}' for each in chosen)}: {counted(len(mine), 'kernel')}")
    if failed := sum(one.failed for one in targets):
        out.warn(f"{counted(failed, 'variant')} failed; the same command without --plan says why")


def build_document(
    result: BuildResult, absent: Sequence[Absence], twins: BuildResult | None, folder: Path, seconds: float
) -> dict[str, Any]:
    """Return the JSON document of a build, and of its twins with line info."""
    misfits = (*result.misfits, *(twins.misfits if twins else ()))
    return {
        "dry_run": False,
        "stopped": result.stopped,
        "seconds": round(seconds, 3),
        "bundles": _reports(result, folder),
        "absent": [asdict(one) for one in absent],
        "twins": _reports(twins, folder / TWINS) if twins else [],
        "cache_misfits": [asdict(misfit) for misfit in misfits],
        "cache": asdict(result.cache),
    }


def _reports(result: BuildResult, folder: Path) -> list[dict[str, Any]]:
    return [
        {**asdict(report), "path": str(folder / report.path), "toolchain": dict(report.toolchain)}
        for report in result.reports
    ]


class Failures:
    """Display of failed variants. It shows each failure once: immediately, or at the end of the build.

    Args:
        out: the output for the end of the build.
    """

    def __init__(self, out: Output) -> None:
        self._out = out
        self._most = None if out.verbosity > 0 else _FAILURES
        self._shown: set[Failure] = set()

    def happened(self, failure: Failure, write: Callable[[str], None]) -> None:
        """Show a failure during the build, unless there were too many or the output is quiet."""
        if not self._out.quiet and failure not in self._shown and self._room():
            self._show(failure, write)

    def end(self, failures: Sequence[Failure]) -> None:
        """Show the failures that were not shown yet, and the number of those past the limit."""
        left = [failure for failure in failures if failure not in self._shown]
        while left and self._room():
            self._show(left.pop(0), self._out.warn)
        if left:
            self._out.warn(f"and {counted(len(left), 'more failure')}: -v shows all")

    def _room(self) -> bool:
        return self._most is None or len(self._shown) < self._most

    def _show(self, failure: Failure, write: Callable[[str], None]) -> None:
        self._shown.add(failure)
        # most messages contain the place already
        label = "" if failure.label in failure.message else f"{failure.label}: "
        write(f"FAILED {label}{failure.message}")
        # the first line repeats the message
        log = [line for line in failure.log.splitlines()[1:] if line.strip()]
        for line in log if self._most is None else log[-_LOG_LINES:]:
            write(f"  | {line}")


def show_result(out: Output, done: Done, folder: Path, seconds: float, failures: Failures) -> None:
    """Show the result of a build, as JSON or as text.

    Args:
        out: the output.
        done: the result.
        folder: the folder of the bundles.
        seconds: the time of the build.
        failures: shows the failures that were not shown during the build.
    """
    out.emit("build", build_document(done.result, done.absent, done.twins, folder, seconds))
    show_build(out, done.result, folder, seconds, failures)
    for report in done.result.reports:
        _warn_of_spills(out, report.tuned_spills)
    for line in done.warned:
        out.warn(line)
    if done.twins is not None:
        show_twins(out, done.twins, folder, seconds, failures)
        for line in done.twins_warned:
            out.warn(line)


def show_build(out: Output, result: BuildResult, folder: Path, seconds: float, failures: Failures) -> None:
    """Show the result of a build: a table per bundle, the remaining failures, the totals."""
    for report in result.reports:
        _show_bundle(out, report, folder, stopped=result.stopped)
    failures.end(result.failures)
    _show_totals(out, result, seconds)


def show_twins(out: Output, twins: BuildResult, folder: Path, seconds: float, failures: Failures) -> None:
    """Show the twins with line info, and their kernels whose instructions differ from those without line info."""
    show_build(out, twins, folder / TWINS, seconds, failures)
    differing = Counter(label.partition(" ")[0] for report in twins.reports for label in report.code_differs)
    for kernel, count in differing.items():
        out.line(f"{kernel}: {counted(count, 'variant')} have other instructions than without line info")
    if out.verbosity > 0:
        for label in (label for report in twins.reports for label in report.code_differs):
            out.line(f"  {label}")


def _show_bundle(out: Output, report: BundleReport, folder: Path, *, stopped: bool) -> None:
    name = str(folder / report.path)
    if report.up_to_date:
        out.line(f"{name} is up to date: {counted(len(report.variants), 'variant')}, {size(report.bundle_bytes)}")
        if out.verbosity < 1:
            return
    elif report.digest:
        out.line(f"{name}  {size(report.bundle_bytes)}  {report.digest[:12]}", style="cyan")
        if untried := vendor_of(report.arch).UNTRIED:
            out.line(f"  {untried}", style="yellow")
        if settings := settings_of(report.toolchain):
            out.line(f"  with {settings}", style="yellow")
    else:
        out.line(f"{name} was not written{': the build stopped' if stopped else ': nothing compiled'}", style="red")
    kernels = [(name, list(rows)) for name, rows in groupby(report.variants, key=lambda variant: variant.kernel)]
    headers = ("kernel", ">variants", ">cached", ">compile", ">regs", ">spilling", ">shared B", ">images")
    if kernels:
        out.table(headers, [_kernel_row(name, variants) for name, variants in kernels], indent=2)
    if out.verbosity > 0:
        _show_variants(out, report.variants)
    out.line()
    _show_pruned(out, report.pruned)


def _warn_of_spills(out: Output, spills: Sequence[TunedSpill]) -> None:
    """Warn of tuned variants that spill more than their tuning space allows, in one line for each kernel."""
    for kernel, found in groupby(spills, key=lambda spill: spill.kernel):
        each = list(found)
        worst = max(each, key=lambda spill: spill.spill_bytes)
        out.warn(
            f"{kernel}: {counted(len(each), 'tuned variant')} spill up to {worst.spill_bytes:,} bytes per thread, and its "
            f"max_spill_bytes is {worst.max_spill_bytes}: tune it again, or raise the limit; the worst is {worst.label}"
        )


def _show_pruned(out: Output, pruned: Sequence[Pruned]) -> None:
    """Show the pruned configs: counts by kernel and reason, or every config with -v."""
    if not pruned:
        return
    if out.verbosity > 0:
        rows = [(each.reason, each.detail or "-", each.label) for each in pruned]
        out.table(("pruned because", "found", "variant"), rows, indent=2)
    else:
        counts = Counter((each.kernel, each.reason) for each in pruned)
        out.table(("kernel", ">pruned", "because"), [(k, f"{n:,}", why) for (k, why), n in counts.items()], indent=2)
    out.line()


def _kernel_row(name: str, variants: Sequence[VariantReport]) -> tuple[str, ...]:
    compiled = [variant for variant in variants if not variant.cached]
    spilling = sum(variant.spill_bytes > 0 for variant in variants)
    return (
        name,
        f"{len(variants):,}",
        f"{len(variants) - len(compiled):,}",
        duration(sum(variant.compile_ms for variant in compiled) / 1000) if compiled else "-",
        f"{max(variant.registers for variant in variants)}",
        f"{spilling:,}" if spilling else "-",
        f"{max(variant.shared_bytes for variant in variants):,}",
        size(sum(variant.image_bytes for variant in variants)),
    )


def _show_variants(out: Output, variants: Iterable[VariantReport]) -> None:
    headers = (">regs", ">spill B", ">shared B", ">image", ">compile", "variant")
    rows = [
        (
            f"{variant.registers}",
            f"{variant.spill_bytes:,}" if variant.spill_bytes else "-",
            f"{variant.shared_bytes:,}",
            size(variant.image_bytes),
            "cached" if variant.cached else duration(variant.compile_ms / 1000),
            variant.label,
        )
        for variant in variants
    ]
    out.line()
    out.table(headers, rows, indent=2)


def _show_totals(out: Output, result: BuildResult, seconds: float) -> None:
    if result.misfits:
        first = result.misfits[0]
        which = "1 cache entry" if len(result.misfits) == 1 else f"{len(result.misfits):,} cache entries"
        out.warn(f"{which} could not be used: {first.reason} - at {first.path}")
    built = [report for report in result.reports if report.digest and not report.up_to_date]
    if result.failures:
        what = "no bundle was written; --keep-going builds the rest" if result.stopped else "missing from the bundles"
        out.warn(f"{counted(len(result.failures), 'variant')} failed: {what}")
    if not built:
        if not result.failures:
            out.line(f"everything is up to date ({duration(seconds)})", style="green")
        return
    variants = [variant for report in built for variant in report.variants]
    cached = sum(variant.cached for variant in variants)
    raw, packed = sum(report.image_bytes for report in built), sum(report.bundle_bytes for report in built)
    images = sum(report.images for report in built)
    out.line(
        f"{counted(len(variants), 'variant')} ({cached:,} cached), {counted(images, 'distinct image')}: "
        f"{size(raw)} -> {size(packed)} in {duration(seconds)}{_cache_words(result.cache)}",
        style="green",
    )


def _cache_words(use: CacheUse) -> str:
    """Return the use of the cache as the end of a line; empty without a shared cache."""
    if not use.url:
        return ""
    hits = use.local_hits + use.shared_hits
    rate = f"{100 * hits // max(1, hits + use.misses)}% hits"
    words = f"; cache: {use.local_hits:,} local, {use.shared_hits:,} shared, {use.misses:,} missed ({rate}), "
    words += f"{use.puts:,} put, {use.refused:,} refused"
    return f"{words}, {counted(use.faults, 'fault')}" if use.faults else words
