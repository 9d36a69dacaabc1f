"""Twins: copies of a build's bundles with line info, for debuggers, and the comparison of their machine code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from nojit.aot.backends.registry import vendor_named
from nojit.aot.base.files import write_file
from nojit.aot.inspect.places import report_path
from nojit.aot.pipeline.report import TWINS as FOLDER
from nojit.aot.pipeline.report import BuildResult, BundleReport, encode_report
from nojit.aot.plan.plan import Plan
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.discovery.debug_twins import TWIN

__all__ = ["FOLDER", "compare_twins", "twin_plan", "twin_plans"]


def twin_plans(plans: Sequence[Plan], result: BuildResult, folder: Path) -> list[Plan]:
    """Return the plan of a twin (copy with line info) for each bundle that a build wrote or found up to date.

    Args:
        plans: plans of the bundles.
        result: result of their build.
        folder: folder of the bundles.
    """
    twins = []
    for plan, report in zip(plans, result.reports, strict=True):
        if report.digest:
            with BundleFile(folder / report.path) as bundle:
                twins.append(twin_plan(plan, bundle.index.inputs))
    return twins


def twin_plan(plan: Plan, inputs: str) -> Plan:
    """Return the plan of the twin, the copy with line info, of a bundle.

    Args:
        plan: plan of the bundle without line info.
        inputs: digest of the inputs in the index of this bundle.
    """
    kernels = tuple(
        replace(kernel, variants=tuple(replace(variant, line_info=True) for variant in kernel.variants))
        for kernel in plan.kernels
    )
    bundle = msgspec.structs.replace(plan.bundle, name=f"{plan.bundle.name}{TWIN}")
    return replace(plan, bundle=bundle, kernels=kernels, twin_of=inputs)


def compare_twins(plans: Sequence[Plan], result: BuildResult, folder: Path) -> BuildResult:
    """Return a result in which each twin's report lists the variants with instructions that differ from the bundle's.

    Args:
        plans: plans of the bundles.
        result: result of the build of their twins.
        folder: folder of the bundles; the twins are in its subfolder `TWINS`.

    Raises:
        PackageError: a report cannot be written.
    """
    files = {twin_plan(plan, "").file_name: folder / plan.file_name for plan in plans}
    return replace(result, reports=tuple(_compared(files[report.path], report, folder) for report in result.reports))


def _compared(bundle: Path, report: BundleReport, folder: Path) -> BundleReport:
    if report.up_to_date or not report.digest:
        return report
    path = folder / FOLDER / report.path
    with BundleFile(bundle) as plain, BundleFile(path) as twin:
        report = replace(report, code_differs=tuple(_differing(plain, twin)))
    write_file(report_path(path), encode_report(report))
    return report


def _differing(plain: BundleFile, twin: BundleFile) -> Iterator[str]:
    """Yield the labels of the variants whose instructions or registers differ between a bundle and its twin."""
    code_of = vendor_named(twin.index.target.backend).code_of
    for kernel in (name for name in twin.kernels if name in plain.kernels):
        table, other = plain.table(kernel), twin.table(kernel)
        rows = {table.variant_id(row): row for row in range(len(table))}
        for row in range(len(other)):
            known = rows.get(other.variant_id(row))
            if known is None:
                # the bundle lacks this variant because it failed to compile there: nothing to compare
                continue
            same_registers = table.columns["registers"][known] == other.columns["registers"][row]
            images = (
                plain.image(kernel, table.columns["image"][known]),
                twin.image(kernel, other.columns["image"][row]),
            )
            if not same_registers or code_of(images[0]) != code_of(images[1]):
                yield f"{kernel} {other.label(row)}"
