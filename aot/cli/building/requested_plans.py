"""Plans of the build that a command line requests, of its manifests and of its recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nojit.aot.cli.building.build_results import tell_of_kept, tell_of_untuned, warn_of_absent
from nojit.aot.cli.options.build_request import Request
from nojit.aot.cli.progress.build_progress import View
from nojit.aot.inspect.bundles_in_place import read_in_place
from nojit.aot.manifest.reader import bundle_of, find_manifests
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.merged_manifests import other_manifests
from nojit.aot.plan.plan import Plan, absent_kernels
from nojit.aot.plan.planner import make_plans
from nojit.aot.recorded_builds.inputs import bundle_name, is_recording, read_recordings
from nojit.aot.recorded_builds.origins import recorded_triton
from nojit.aot.recorded_builds.recorded_plans import make_plans as make_recorded_plans
from nojit.aot.variants.left_out import Absence
from nojit.runtime.errors import ManifestError, PackageError

__all__ = ["plan_request"]


def plan_request(request: Request, compiler: Compiler, view: View) -> tuple[list[Plan], tuple[Absence, ...]]:
    """Return the plans of the manifests and recordings of a request, and the kernels that some archs lack.

    Args:
        request: the build that the command line requests.
        compiler: reads the sources of kernels.
        view: shows warnings, and how far the planning is.

    Raises:
        ManifestError: a manifest or a recording is invalid, or there is nothing to build.
    """
    recordings = [place for place in request.places if is_recording(place)]
    manifests = [place for place in request.places if not is_recording(place)]
    plans, absent = _plan_manifests(request, manifests, compiler, view) if manifests else ([], ())
    recorded = _plan_recordings(request, recordings, compiler, view) if recordings else []
    names = {plan.bundle.name for plan in plans}
    for plan in recorded:
        if plan.bundle.name in names:
            what = "expected another name for the bundle of the recordings than for one of the manifests: pass --name"
            raise ManifestError(what, got=repr(plan.bundle.name), where=str(recordings[0]))
    return [*plans, *recorded], absent


def _plan_recordings(request: Request, places: Sequence[Path], compiler: Compiler, view: View) -> list[Plan]:
    if len(compiler.toolchains) > 1:
        what = "expected one --toolchain for recordings: that of the recorded program"
        raise ManifestError(what, got=", ".join(compiler.toolchains), where=str(places[0]))
    recorded = read_recordings(places)
    for what, where in recorded.recording.problems:
        view.warn(f"the recording lacks {what} - at {where}")
    plans = make_recorded_plans(
        recorded,
        request.archs,
        compiler,
        name=request.name or bundle_name(places[0]),
        kernels=request.kernels,
        trials=request.trials,
        on_planned=view.planned,
    )
    recorded_with = recorded_triton(recorded.recording)
    for plan in plans[:1]:
        built_with = dict(compiler.toolchain(plan.arch)).get("triton", "")
        if recorded_with and built_with.partition("+")[0] != recorded_with:
            view.warn(
                f"recorded with Triton {recorded_with}, built with {built_with}: programs that use the first one are not served; "
                f"build with it: pip install triton=={recorded_with}, or nojit build --toolchain {recorded_with}=VENV"
            )
    if request.dry_run:
        for refused in (each for plan in plans for each in plan.refused):
            view.warn(f"FAILED {refused.message}")
    return plans


def _plan_manifests(
    request: Request, places: Sequence[Path], compiler: Compiler, view: View
) -> tuple[list[Plan], tuple[Absence, ...]]:
    unique = {path.resolve(): path for path in find_manifests(places)}
    where = ", ".join(map(str, unique.values()))
    planned = make_plans(
        list(unique.values()),
        request.archs,
        request.profile,
        compiler,
        request.kernels,
        tuning=request.tuning,
        retune=request.retune,
        tuned=request.tuned,
        most=request.most,
        in_place=read_in_place(request.folder),
        on_planned=view.planned,
    )
    absent = absent_kernels(planned)
    plans = [plan for plan in planned if plan.kernels]
    if request.tuning and not plans and not absent:
        raise ManifestError(
            "expected a kernel with a [[kernel.tuning.space]]: add one, or leave out --tuning or --retune",
            got="none",
            where=where,
        )
    warn_of_absent(view, planned, absent, [version for _, version in compiler.tritons])
    _check_intact(request.folder, plans)
    tell_of_kept(view, plans)
    tell_of_untuned(view, plans)
    if not plans:
        raise ManifestError(
            "expected a variant to build; check --kernel, --profile and --arch", got="none", where=where
        )
    return plans, absent


def _check_intact(folder: Path, plans: Sequence[Plan]) -> None:
    """Require that a bundle can be read before one of only some kernels replaces it: its other kernels would be lost."""
    for plan in plans:
        path = folder / plan.file_name
        if plan.in_place is not None or not path.is_file():
            continue
        if plan.only or other_manifests(plan.manifests, {bundle_of(each) for each in plan.manifests}):
            what = (
                "expected a readable bundle, because a build of some kernels keeps its others; build all kernels, or use another "
                "--out folder"
            )
            raise PackageError(what, got="one that nojit verify refuses", where=str(path))
