"""``nojit build``: manifests to bundles."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from nojit.aot.build import BuildResult
from nojit.aot.build import build as build_bundles
from nojit.aot.cache import Cache, as_default, default_cache_folder
from nojit.aot.cli.build_report import (
    Failures,
    build_document,
    plan_document,
    show_build,
    show_plans,
    show_twins,
    tell_of_kept,
    warn_of_absent,
)
from nojit.aot.cli.console import PLACE, Arch, Number, Output, output_options
from nojit.aot.cli.group import EXIT_FAILED
from nojit.aot.cli.progress import CountedPool, Counts, View, follow_build
from nojit.aot.counting import MAX_VARIANTS
from nojit.aot.farm import Finished
from nojit.aot.manifest import find_manifests
from nojit.aot.outcome import failure_of
from nojit.aot.plan import Absence, Compiler, Plan, absent_kernels, make_plans
from nojit.aot.provenance import LOCAL_BUILDER, Invocation, attest
from nojit.aot.ptxas import parse_cuda, pin
from nojit.aot.sources import SourceCompiler
from nojit.aot.statement import read_signed_statement, read_statement, statement_path
from nojit.aot.twins import FOLDER as TWINS
from nojit.aot.twins import compare_twins, twin_plans
from nojit.runtime.errors import ManifestError, PackageError

__all__ = ["command"]

_MANIFESTS = Path("manifests")
_ARTIFACTS = Path("artifacts")


@dataclass(frozen=True, slots=True)
class _Request:
    """What the command line asks for."""

    places: tuple[Path, ...]
    archs: tuple[str, ...]
    profile: str | None
    kernels: tuple[str, ...]
    folder: Path
    cache_folder: Path
    jobs: int
    timeout_s: float
    keep_going: bool
    most: int
    tuning: bool
    tuned: bool
    min_driver: int | None
    build_number: int | None
    builder: str | None
    twins: bool


def _uri(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text):
        raise click.BadParameter(f"expected a URI such as https://ci.example/kernels, got {text!r}")
    return text


def _cuda(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_cuda(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("build")
@click.argument("places", metavar="[MANIFEST|DIR]...", nargs=-1, type=PLACE)
@click.option("--arch", "archs", multiple=True, type=Arch(), metavar="ARCH", help="Build for this; repeatable.")
@click.option(
    "--profile",
    type=click.Choice(["core", "full"]),
    help="How many variants; default full, or what the bundle in place has if other kernels of it are kept.",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="K",
    help="Build this kernel, and what else the bundle in place holds; repeatable.",
)
@click.option("--tuning", is_flag=True, help="Build tuning bundles instead: every config of the kernels' spaces.")
@click.option("--no-tuned", "untuned", is_flag=True, help="Ignore the tuned tables beside the manifests.")
@click.option(
    "--out",
    "folder",
    type=PLACE,
    help="Folder of the bundles; default artifacts, with --tuning artifacts/tuning.",
)
@click.option("-j", "--jobs", type=click.IntRange(1), help="How many compile at once; default: every CPU.")
@click.option("-k", "--keep-going", is_flag=True, help="Leave out variants that fail and build the rest.")
@click.option("-n", "--dry-run", is_flag=True, help="Check manifests against sources and count; write nothing.")
@click.option(
    "--timeout",
    # the clock that workers are waited for by counts no further than some 300 years
    type=Number(0, 1e6, min_open=True),
    default=300.0,
    metavar="S",
    help="Give up on a variant, or on the import of a source, after S seconds; default 300.",
)
@click.option(
    "--max-variants",
    type=click.IntRange(1),
    default=MAX_VARIANTS,
    metavar="N",
    help=f"Refuse a kernel that comes to more for one architecture, before `exclude`; default {MAX_VARIANTS:,}.",
)
@click.option(
    "--debug-info",
    type=click.Choice(["none", "twin"]),
    default="none",
    help="twin: also build each bundle with line info, into OUT/debug; default none.",
)
@click.option(
    "--build-number",
    type=click.IntRange(0),
    metavar="N",
    help="Release, for the statement; by default that of the statement which lies there, or 0.",
)
@click.option("--builder", metavar="URI", callback=_uri, help=f"Who builds, for the statement; else {LOCAL_BUILDER}.")
@click.option(
    "--min-driver", metavar="CUDA", callback=_cuda, help="Build what a driver for this CUDA version, say 12.4, loads."
)
@click.option("--ptxas", type=PLACE, help="Assemble with this one instead of Triton's.")
@click.option("--cache-dir", type=PLACE, help="Cache of compiled variants; or NOJIT_CACHE_DIR.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    places: tuple[Path, ...],
    archs: tuple[str, ...],
    profile: str | None,
    kernels: tuple[str, ...],
    tuning: bool,
    untuned: bool,
    folder: Path | None,
    jobs: int | None,
    keep_going: bool,
    dry_run: bool,
    timeout: float,
    max_variants: int,
    debug_info: str,
    build_number: int | None,
    builder: str | None,
    min_driver: int | None,
    ptxas: Path | None,
    cache_dir: Path | None,
) -> int:
    """Compile manifests into bundles, one file per bundle and architecture: OUT/<name>-<version>-<arch>.nojit.

    Without arguments: every manifest in manifests/, for the architectures that the manifests name. What the cache has
    is not compiled again, and a bundle that is up to date is left alone. Needs no GPU. Beside each bundle lie a report
    and a provenance statement, which `nojit sign` signs.

    With --kernel, or with some manifests of a folder, the other kernels of the bundle in place stay in it, as it was built: by its
    profile, unless --profile says the same, and from the cache unless their sources changed. In an --out folder without that bundle the
    kernels are built alone. A new version leaves the old file, which `nojit clean` deletes.

    Kernels with tuned tables, in a folder tuned/ beside their manifest, are built with the configs of these tables. With
    --tuning each kernel that has a space is built with all its configs, aligned calls only, into a bundle
    <name>-tuning that `nojit tune run` measures; configs that cannot run or spill too much are left out and counted.

    With --debug-info=twin each bundle is also built with line info, into OUT/debug: a twin <name>-debug that
    NOJIT_DEBUG_INFO loads instead, for profilers and debuggers.

    A driver loads images of its own CUDA major version's toolkits. With --min-driver 12.0 and Triton's ptxas of CUDA 13 for an
    architecture, Triton's other one of CUDA 12 assembles, or --ptxas.
    """
    if tuning and profile == "core":
        raise click.UsageError("expected --profile full with --tuning, got core: a space has no profiles")
    request = _Request(
        places=places or (_MANIFESTS,),
        archs=tuple(dict.fromkeys(archs)),
        profile=profile,
        kernels=kernels,
        folder=folder or (_ARTIFACTS / "tuning" if tuning else _ARTIFACTS),
        cache_folder=cache_dir or default_cache_folder(),
        jobs=jobs or len(os.sched_getaffinity(0)),
        timeout_s=timeout,
        keep_going=keep_going,
        most=max_variants,
        tuning=tuning,
        tuned=not untuned,
        min_driver=min_driver,
        build_number=build_number,
        builder=builder,
        twins=debug_info == "twin",
    )
    failures = Failures(out)
    started, clock = time.monotonic(), datetime.now(UTC)
    compiler = load_compiler()
    with (
        pin(min_driver, ptxas),
        as_default(request.cache_folder),
        follow_build(out) as view,
        compiler.session(request.timeout_s, view.note, request.jobs),
    ):
        plans, absent = _plan(request, compiler, view)
        result = None if dry_run else _build(request, compiler, plans, request.folder, view, failures=failures)
        twins = (
            _build_twins(request, compiler, plans, result, view, failures=failures, started=clock)
            if result and request.twins
            else None
        )
    if result is None:
        out.emit("build", plan_document(plans, absent))
        show_plans(out, plans)
        return 0
    _attest(request, plans, result, request.folder, clock)
    seconds = time.monotonic() - started
    out.emit("build", build_document(result, absent, twins, request.folder, seconds))
    show_build(out, result, request.folder, seconds, failures)
    _warn_of_signed(out, result, request.folder)
    if twins is not None:
        show_twins(out, twins, request.folder, seconds, failures)
        _warn_of_signed(out, twins, request.folder / TWINS)
    return EXIT_FAILED if result.failures or (twins and twins.failures) else 0


def load_compiler() -> Compiler:
    """Return the compiler, which imports Triton and sources in processes of its own."""
    return SourceCompiler()


def _plan(request: _Request, compiler: Compiler, view: View) -> tuple[list[Plan], tuple[Absence, ...]]:
    unique = {path.resolve(): path for path in find_manifests(request.places)}
    where = ", ".join(map(str, unique.values()))
    planned = make_plans(
        list(unique.values()),
        request.archs,
        request.profile,
        compiler,
        request.kernels,
        tuning=request.tuning,
        tuned=request.tuned,
        most=request.most,
        out=request.folder,
        on_planned=view.planned,
    )
    absent = absent_kernels(planned)
    plans = [plan for plan in planned if plan.kernels]
    if request.tuning and not plans and not absent:
        raise ManifestError("expected a kernel with a [[kernel.tuning.space]]", got="none", where=where)
    warn_of_absent(view, planned, absent)
    tell_of_kept(view, plans)
    if not plans:
        raise ManifestError("expected a variant to build", got="none", where=where)
    return plans, absent


def _build_twins(
    request: _Request,
    compiler: Compiler,
    plans: Sequence[Plan],
    result: BuildResult,
    view: View,
    *,
    failures: Failures,
    started: datetime,
) -> BuildResult:
    twins = twin_plans(plans, result, request.folder)
    built = compare_twins(
        plans, _build(request, compiler, twins, request.folder / TWINS, view, failures=failures), request.folder
    )
    _attest(request, twins, built, request.folder / TWINS, started)
    return built


def _build(
    request: _Request, compiler: Compiler, plans: Sequence[Plan], folder: Path, view: View, *, failures: Failures
) -> BuildResult:
    counts = Counts()

    def on_event(finished: Finished) -> None:
        counts.add(finished)
        failure = None if request.tuning else failure_of(finished)
        if failure is not None:
            failures.happened(failure, view.failure)
        view.changed(counts)

    try:
        return build_bundles(
            plans,
            folder,
            compiler,
            Cache(request.cache_folder),
            lambda: CountedPool(request.jobs, request.timeout_s, counts),
            keep_going=request.keep_going,
            on_event=on_event,
        )
    except KeyboardInterrupt as error:
        error.add_note("what is compiled stays in the cache, and the next build goes on from there")
        raise


def _attest(request: _Request, plans: Sequence[Plan], result: BuildResult, folder: Path, started: datetime) -> None:
    invocation = Invocation(
        tuned=request.tuned,
        keep_going=request.keep_going,
        min_driver=request.min_driver,
        build_number=request.build_number,
        builder=request.builder,
        started=started,
        finished=datetime.now(UTC),
    )
    attest(plans, result.reports, folder, invocation)


def _warn_of_signed(out: Output, result: BuildResult, folder: Path) -> None:
    """Name the signed statements that are not of the bundles that lie there now, or of another build of them."""
    for report in result.reports:
        path, digest = folder / report.path, report.digest
        try:
            signed = read_signed_statement(path, digest) if digest else None
            if signed is not None:
                was = signed.facts(digest, signed=True).build_number
                now = read_statement(statement_path(path)).facts(digest, signed=False).build_number
                if was != now:
                    out.warn(
                        f"expected a signed statement of build {now}, got one of build {was}: sign it again - at {path}"
                    )
        except PackageError as error:
            out.warn(str(error))
