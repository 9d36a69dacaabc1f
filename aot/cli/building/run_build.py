"""Build bundles from manifests and recordings, unless a stamp shows that nothing has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nojit.aot.backends.registry import pin
from nojit.aot.cache.cache import Cache
from nojit.aot.cache.folder import as_default
from nojit.aot.cli.building.build_results import (
    Failures,
    plan_document,
    show_plans,
    show_result,
    show_targets,
)
from nojit.aot.cli.building.requested_plans import plan_request
from nojit.aot.cli.console import Output
from nojit.aot.cli.exit_codes import EXIT_FAILED
from nojit.aot.cli.options.build_request import Request
from nojit.aot.cli.options.caches import open_shared
from nojit.aot.cli.progress.build_progress import Counts, View, follow_build
from nojit.aot.compile.by_toolchain import ToolchainCompiler, find_toolchains
from nojit.aot.compile.job_runner import Finished
from nojit.aot.compile.processes.pool import WorkerPool
from nojit.aot.compile.processes.source_compiler import SourceCompiler
from nojit.aot.compile.toolchain.installed_triton import files_of
from nojit.aot.manifest.archs import arch_order
from nojit.aot.manifest.reader import find_manifests, load_manifest
from nojit.aot.pipeline.build import build as build_bundles
from nojit.aot.pipeline.debug_twins import compare_twins, twin_plans
from nojit.aot.pipeline.outcome import failure_of
from nojit.aot.pipeline.report import TWINS, BuildResult, BundleReport, Done
from nojit.aot.pipeline.stamp_recorder import Draft
from nojit.aot.pipeline.stamp_rule import is_settled
from nojit.aot.pipeline.targets import choose_targets, with_families
from nojit.aot.pipeline.up_to_date import Stamp
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.plan import Plan
from nojit.aot.provenance.write_statement import Invocation, Statements, attest, signed_problems
from nojit.aot.recorded_builds.inputs import is_recording
from nojit.runtime.errors import PackageError

if TYPE_CHECKING:
    from nojit.aot.remote.executor import RemoteExecutor

__all__ = ["load_compiler", "run"]


class _RecordingView:
    """A view of a build's progress that also records its messages.

    Args:
        view: the view that shows the messages.
    """

    def __init__(self, view: View) -> None:
        self.told: list[tuple[str, str]] = []
        self.planned = view.planned
        self.changed = view.changed
        self.failure = view.failure
        self._view = view

    def warn(self, text: str) -> None:
        """Record and show a warning."""
        self.told.append(("warn", text))
        self._view.warn(text)

    def show(self, text: str) -> None:
        """Show a warning that concerns this run only, without recording it."""
        self._view.warn(text)

    def note(self, text: str) -> None:
        """Record and show a note."""
        self.told.append(("note", text))
        self._view.note(text)


def run(out: Output, request: Request, asked: str) -> int:
    """Build as the command line requests and return the exit code.

    Args:
        out: the output of the command.
        request: the build that the command line requests.
        asked: key of the stamp (the record of an up-to-date build), from `nojit.aot.pipeline.stamp_file.asked_of`. Empty for a dry
            run.
    """
    failures = Failures(out)
    draft = Draft(
        asked,
        request.places,
        request.folder,
        [
            *request.assemblers.values(),
            *(request.cache.key_paths if request.cache else ()),
            *files_of(place for _, place in request.toolchains if place),
        ],
    )
    started, clock = time.monotonic(), datetime.now(UTC)
    compiler = load_compiler(request.toolchains, partial(pin, request.min_driver, request.assemblers))
    with (
        as_default(request.cache_folder),
        follow_build(out) as shown,
        compiler.session(request.timeout_s, (view := _RecordingView(shown)).note, request.jobs),
        _connect(request, compiler, view.show) as remote,
    ):
        if request.plan:
            return _choose_targets(out, request, compiler, view)
        plans, absent = plan_request(request, compiler, view)
        result = (
            None
            if request.dry_run
            else _build(request, compiler, plans, request.folder, view, failures=failures, started=clock, remote=remote)
        )
        twins = (
            _build_twins(request, compiler, plans, result, view, failures=failures, started=clock)
            if result and request.twins
            else None
        )
    if result is None:
        out.emit("build", plan_document(plans, absent))
        show_plans(out, plans)
        return EXIT_FAILED if any(plan.refused for plan in plans) and not request.keep_going else 0
    done = Done(
        result,
        twins,
        absent,
        signed_problems(result.reports, request.folder),
        signed_problems(twins.reports, request.folder / TWINS) if twins else (),
    )
    if isinstance(compiler, ToolchainCompiler) and is_settled(plans, done, request.folder, _invocation(request, clock)):
        draft.keep(request.cache_folder, compiler.notes, Stamp(done, tuple(view.told)))
    seconds = time.monotonic() - started
    show_result(out, done, request.folder, seconds, failures)
    return EXIT_FAILED if result.failures or (twins and twins.failures) else 0


def _choose_targets(out: Output, request: Request, compiler: Compiler, view: _RecordingView) -> int:
    """Compile the kernels for the requested chips and their families; show the targets of each."""
    archs = request.archs
    if not archs:
        places = [place for place in request.places if not is_recording(place)]
        named = (load_manifest(path).bundle.archs for path in find_manifests(places))
        archs = tuple(sorted({arch for each in named for arch in each}, key=arch_order))
    asked = replace(request, archs=with_families(archs, compiler.archs()), keep_going=True)
    plans, _ = plan_request(asked, compiler, view)
    counts = Counts()

    def on_expected(expected: int) -> None:
        counts.expected = expected

    def on_event(finished: Finished) -> None:
        counts.add(finished)
        view.changed(counts)

    shared = open_shared(request.cache, request.timeout_s, view.show) if request.cache else None
    targets = choose_targets(
        plans,
        archs,
        compiler,
        Cache(request.cache_folder, shared),
        lambda: WorkerPool(request.jobs, request.timeout_s),
        ahead=2 * request.jobs,
        on_event=on_event,
        on_expected=on_expected,
    )
    out.emit("build", {"dry_run": True, "targets": [asdict(target) for target in targets]})
    show_targets(out, targets)
    return 0


def load_compiler(
    toolchains: Sequence[tuple[str, Path | None]], pinned: Callable[[], AbstractContextManager[None]]
) -> Compiler:
    """Return the compiler, which imports Triton and sources in processes of its own.

    Args:
        toolchains: name and environment of each Triton to compile with; empty for that of this environment.
        pinned: makes processes that start meanwhile use certain assemblers, as `nojit.aot.backends.registry.pin` does.

    Raises:
        CompileError: an environment lacks its Triton.
    """
    tritons = find_toolchains(toolchains)
    named = {triton.name: SourceCompiler(triton, pinned) for triton in tritons}
    return ToolchainCompiler(named or {"": SourceCompiler(pin=pinned)})


def _build_twins(
    request: Request,
    compiler: Compiler,
    plans: Sequence[Plan],
    result: BuildResult,
    view: _RecordingView,
    *,
    failures: Failures,
    started: datetime,
) -> BuildResult:
    # on this machine, since images of twins hold its paths
    twins = twin_plans(plans, result, request.folder)
    built = _build(request, compiler, twins, request.folder / TWINS, view, failures=failures, started=started)
    return compare_twins(plans, built, request.folder)


def _build(
    request: Request,
    compiler: Compiler,
    plans: Sequence[Plan],
    folder: Path,
    view: _RecordingView,
    *,
    failures: Failures,
    started: datetime,
    remote: RemoteExecutor | None = None,
) -> BuildResult:
    counts, statements = Counts(), Statements()
    shared = open_shared(request.cache, request.timeout_s, view.show) if request.cache else None

    def on_expected(expected: int) -> None:
        counts.expected = expected

    def on_event(finished: Finished) -> None:
        counts.add(finished)
        failure = None if request.tuning else failure_of(finished)
        if failure is not None:
            failures.happened(failure, view.failure)
        view.changed(counts)

    def state(plan: Plan, report: BundleReport, bundle: Path, sha256: str) -> bytes:
        return statements.render(plan, report, bundle, sha256, _invocation(request, started))

    try:
        result = build_bundles(
            plans,
            folder,
            compiler,
            Cache(request.cache_folder, shared),
            lambda: _executor(request, compiler, plans, remote),
            keep_going=request.keep_going,
            # each worker has the next variant at hand
            ahead=2 * request.jobs,
            on_event=on_event,
            on_expected=on_expected,
            state=state,
        )
    except (KeyboardInterrupt, SystemExit) as error:
        error.add_note("compiled variants are cached; run the same command to continue")
        raise
    unchanged = [pair for pair in zip(plans, result.reports, strict=True) if pair[1].up_to_date]
    attest([plan for plan, _ in unchanged], [report for _, report in unchanged], folder, _invocation(request, started))
    return result


def _open_local(request: Request) -> WorkerPool:
    return WorkerPool(request.jobs, request.timeout_s)


def _connect(
    request: Request, compiler: Compiler, tell: Callable[[str], None]
) -> AbstractContextManager[RemoteExecutor | None]:
    """Start to connect to the requested scheduler, so that its workers get ready while the build plans; None without one."""
    if not request.executor or request.dry_run or request.plan:
        return nullcontext()
    from nojit.aot.cli.options.executors import open_remote  # of an extra

    return open_remote(request, compiler, partial(_open_local, request), tell)


def _executor(
    request: Request, compiler: Compiler, plans: Sequence[Plan], remote: RemoteExecutor | None
) -> AbstractContextManager[Executor]:
    if remote is None:
        return _open_local(request)
    names = {name for plan in plans for name in plan.toolchains}.union(compiler.toolchains)
    if len(names) > 1:
        what = (
            "expected one toolchain with --executor: build with several on this machine, or one bundle after the other"
        )
        raise PackageError(what, got=", ".join(sorted(names)))
    remote.expect(sorted({plan.arch for plan in plans}))
    return remote


def _invocation(request: Request, started: datetime) -> Invocation:
    return Invocation(
        tuned=request.tuned,
        keep_going=request.keep_going,
        min_driver=request.min_driver,
        build_number=request.build_number,
        builder=request.builder,
        started=started,
        finished=datetime.now(UTC),
    )
