"""The build: compiles plans to bundle files. It prints nothing and never exits the process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import TypeAlias

from nojit.aot.base.files import check_folder, write_files
from nojit.aot.cache.cache import Cache
from nojit.aot.compile import job_runner
from nojit.aot.compile.job_runner import Finished, Job
from nojit.aot.compile.toolchain.triton_settings import settings_words
from nojit.aot.inspect.places import report_path
from nojit.aot.manifest.archs import target_of
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.pack.bundle import BundleContent, PackedBundle, pack
from nojit.aot.pack.compression import packer_version
from nojit.aot.pack.tables import KernelContent
from nojit.aot.pipeline.inputs_digest import inputs_digest
from nojit.aot.pipeline.outcome import Outcome, sort_out
from nojit.aot.pipeline.report import (
    BuildResult,
    BundleReport,
    Failure,
    VariantReport,
    as_found,
    decode_report,
    encode_report,
)
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.plan import Plan, PlannedKernel
from nojit.aot.provenance.statement import statement_path
from nojit.aot.variants.left_out import Refused
from nojit.aot.variants.variant import CompiledVariant
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.discovery.debug_twins import twin_inputs
from nojit.runtime.errors import ManifestError
from nojit.runtime.table.tuning import Tuning

__all__ = ["BuildResult", "build", "inputs_of", "jobs_of", "toolchain_of"]


def build(
    plans: Sequence[Plan],
    out: Path,
    compiler: Compiler,
    cache: Cache,
    open_executor: Callable[[], AbstractContextManager[Executor]],
    *,
    keep_going: bool = False,
    ahead: int = 1,
    on_event: Callable[[Finished], None] = lambda _: None,
    on_expected: Callable[[int], None] = lambda _: None,
    state: Stated | None = None,
) -> BuildResult:
    """Compile the variants that the cache lacks, and write one bundle and one report per plan.

    The build does not change an up-to-date bundle. With `keep_going`, a bundle lacks the variants that fail to compile;
    otherwise the first failure ends the build and no bundle is written. A tuning bundle drops variants that fail, along
    with those that are not worth measuring; only a kernel with no variant left is then a failure.

    Args:
        plans: the bundles to build.
        out: folder of the bundles.
        compiler: compiles variants; `nojit.aot.compile.triton.compiler`.
        cache: cache of compiled variants.
        open_executor: starts the worker processes; called only if something must be compiled.
        keep_going: whether to go on after a variant fails to compile.
        ahead: number of variants that the build may claim at the same time, if the cache is shared.
        on_event: called with the result of every variant.
        on_expected: called with the number of variants to compile, as in `nojit.aot.compile.job_runner.run`.
        state: returns the provenance statement to write beside each bundle; None to write none.

    Raises:
        PackageError: the cache or a bundle cannot be read or written.
    """
    works = [_prepare(plan, out / plan.file_name, compiler, cache.trusted) for plan in plans]
    stale = [work for work in works if work.existing is None]
    if stale:
        check_folder(out)
    keep_going = keep_going or any(plan.tuning for plan in plans)
    done: dict[Job, Finished] = {}
    refused = not keep_going and any(plan.refused for plan in plans)
    jobs = [] if refused else [job for work in stale for job in work.jobs]
    check = compiler.check_compiled
    for finished in job_runner.run(
        jobs,
        compiler.compile_variant,
        open_executor,
        cache,
        keep_going=keep_going,
        check=check,
        ahead=ahead,
        expect=on_expected,
    ):
        done[finished.job] = finished
        on_event(finished)
    stopped = refused or (not keep_going and any(finished.error is not None for finished in done.values()))
    made = [
        (work.existing, work.sha256) if work.existing else _finish(work, done, compiler, state, write=not stopped)
        for work in works
    ]
    reports, sha256s = (tuple(report for report, _ in made), tuple(sha256 for _, sha256 in made))
    return BuildResult(reports, stopped, cache.misfits, sha256s, cache.use)


Stated: TypeAlias = Callable[[Plan, BundleReport, Path, str], bytes]
"""Returns the provenance statement of a bundle, from its plan, its report, its path and the SHA-256 of its bytes."""


@dataclass(frozen=True, slots=True)
class _Work:
    """One plan with its compile jobs, and the bundle that an earlier build wrote."""

    plan: Plan
    path: Path
    toolchain: tuple[tuple[str, str], ...]
    jobs: tuple[Job, ...]
    """Compile jobs, one per variant, in the order of the plan."""
    inputs: str
    """Digest, in hex, of everything that determines the bundle's bytes."""
    existing: BundleReport | None
    """Report of the existing bundle if it is up to date, else None."""
    sha256: str
    """SHA-256 of the existing bundle's file; empty if there is no bundle."""
    trusted: tuple[str, ...]
    """Ids of the keys that may sign shared cache entries; empty to take unsigned entries."""


def toolchain_of(plan: Plan, compiler: Compiler) -> tuple[tuple[str, str], ...]:
    """Return the tools that make a bundle and the settings of Triton that are set, as (name, version or value).

    Versions include the tools' digests. Settings that a kernel's source sets are included.
    """
    tools = dict(compiler.of(plan.used_toolchains()).toolchain(plan.arch)) | {"zstandard": packer_version()}
    settings = {setting for kernel in plan.kernels for setting in kernel.source.settings}
    if settings:
        tools["settings"] = settings_words(sorted(settings))
    return tuple(sorted(tools.items()))


def inputs_of(plan: Plan, compiler: Compiler) -> str:
    """Return a digest of everything that determines a complete bundle; the index of the bundle holds it.

    A twin (the copy of a bundle with line info) has a digest derived from its bundle's, although its bytes also depend
    on the sources' paths.
    """
    if plan.twin_of:
        return twin_inputs(plan.twin_of)
    return inputs_digest(plan, toolchain_of(plan, compiler), jobs_of(plan, compiler))


def jobs_of(plan: Plan, compiler: Compiler) -> tuple[Job, ...]:
    """Return the compile jobs of a bundle, one per variant, in the order of the plan.

    Raises:
        ManifestError: a key cannot be computed.
    """
    mistakes = Mistakes()
    jobs: list[Job] = []
    for kernel in plan.kernels:
        with mistakes.caught():
            jobs += map(Job, kernel.variants, repeat(kernel.place), _keys(kernel, compiler.of(plan.toolchains)))
    mistakes.raise_found()
    return tuple(jobs)


def _keys(kernel: PlannedKernel, compiler: Compiler) -> tuple[str, ...]:
    try:
        return compiler.variant_keys(kernel.variants, kernel.source, kernel.place)
    except ManifestError as error:
        raise kernel.located(error) from error


def _prepare(plan: Plan, path: Path, compiler: Compiler, trusted: tuple[str, ...]) -> _Work:
    toolchain, jobs = toolchain_of(plan, compiler), jobs_of(plan, compiler)
    inputs = twin_inputs(plan.twin_of) if plan.twin_of else inputs_digest(plan, toolchain, jobs)
    existing, sha256 = _existing(path, inputs, trusted)
    if existing is not None and plan.twin_of and {each.key for each in existing.variants} != {job.key for job in jobs}:
        # a twin's images hold line numbers, and those changed
        existing = None
    if plan.refused:
        # the report must name the refused specializations
        existing = None
    return _Work(plan, path, toolchain, jobs, inputs, existing, sha256, trusted)


def _existing(path: Path, inputs: str, trusted: tuple[str, ...]) -> tuple[BundleReport | None, str]:
    """Return the report and the file's SHA-256 of the bundle at `path`, if it is intact and has these inputs.

    `trusted`: keys that this build trusts. If there are any, the build of the bundle must have trusted no others.
    """
    try:
        report = decode_report(report_path(path).read_bytes())
        if trusted and not (report.trusted and set(report.trusted) <= set(trusted)):
            return None, ""
        with BundleFile(path) as bundle:
            if bundle.index.inputs != inputs or bundle.digest != report.digest:
                return None, ""
            bundle.verify()
            sha256 = hashlib.sha256()
            for part in bundle.stream():
                sha256.update(part)
    except (OSError, ValueError):
        # absent or damaged: either way the bundle is built again
        return None, ""
    return as_found(report), sha256.hexdigest()


def _finish(
    work: _Work, done: Mapping[Job, Finished], compiler: Compiler, state: Stated | None, *, write: bool
) -> tuple[BundleReport, str]:
    """Pack the compiled variants; return the report, and the SHA-256 of the bundle's file if it is complete.

    With `write`, the bundle, its report and its provenance statement are written to files.
    """
    packed, whole = None, False
    outcome = sort_out(work.plan, list(_by_kernel(work, done)))
    kernels = tuple(content for content in _contents(work.plan, outcome) if content.variants)
    if write and kernels:
        # a bundle that lacks variants must not pass for the complete one
        whole = not work.plan.refused and all(done[job].error is None for job in work.jobs)
        content = BundleContent(
            name=work.plan.bundle.name,
            version=work.plan.bundle.version,
            target=target_of(work.plan.arch),
            toolchain=work.toolchain,
            min_driver=compiler.of(work.plan.used_toolchains()).min_driver(work.plan.arch),
            inputs=work.inputs if whole else hashlib.sha256(f"partial {work.inputs}".encode()).hexdigest(),
            kernels=kernels,
            attachments=work.plan.attachments,
        )
        packed = pack(content)
    report = _report(work, outcome, packed)
    sha256 = hashlib.sha256(packed.data).hexdigest() if packed else ""
    if write:
        files = {report_path(work.path): encode_report(report)}
        if packed and state:
            files[statement_path(work.path)] = state(work.plan, report, work.path, sha256)
        # last: a bundle without its statement could not be signed
        write_files(files | ({work.path: packed.data} if packed else {}))
    return report, sha256 if whole else ""


def _by_kernel(work: _Work, done: Mapping[Job, Finished]) -> Iterator[list[Finished]]:
    jobs = iter(work.jobs)
    for kernel in work.plan.kernels:
        yield [done[job] for job in islice(jobs, len(kernel.variants)) if job in done]


def _contents(plan: Plan, outcome: Outcome) -> Iterator[KernelContent]:
    for kernel, variants in zip(plan.kernels, outcome.variants(), strict=True):
        tuning = kernel.spec.tuning
        yield KernelContent(
            name=kernel.spec.name,
            params=kernel.source.params,
            grid=tuple(kernel.spec.grid),
            tuning=None if tuning is None else Tuning(tuple(tuning.key), tuning.bucket),
            batch=tuple(kernel.spec.batch),
            axes=kernel.axes,
            derived=kernel.derived,
            variants=variants,
            tuned=kernel.tuned,
        )


def _report(work: _Work, outcome: Outcome, packed: PackedBundle | None) -> BundleReport:
    return BundleReport(
        path=work.path.name,
        arch=work.plan.arch,
        digest=packed.digest if packed else "",
        up_to_date=False,
        bundle_bytes=len(packed.data) if packed else 0,
        images=packed.images if packed else 0,
        image_bytes=packed.image_bytes if packed else 0,
        excluded=sum(kernel.excluded for kernel in work.plan.kernels),
        toolchain=work.toolchain,
        variants=tuple(
            _variant_report(f.job, f.compiled, f.cached) for kept in outcome.kept for f in kept if f.compiled
        ),
        failures=(*map(_failure, work.plan.refused), *outcome.failures),
        pruned=outcome.pruned,
        tuned_spills=outcome.spills,
        trusted=work.trusted,
    )


def _failure(refused: Refused) -> Failure:
    return Failure(refused.label, refused.where, refused.message, "")


def _variant_report(job: Job, compiled: CompiledVariant, cached: bool) -> VariantReport:
    return VariantReport(
        kernel=job.variant.kernel,
        label=job.variant.label(),
        key=job.key,
        toolchain=job.variant.toolchain,
        registers=compiled.registers,
        spill_bytes=compiled.spill_bytes,
        shared_bytes=compiled.launch.shared_bytes,
        image_bytes=len(compiled.image),
        compile_ms=compiled.compile_ms,
        cached=cached,
    )
