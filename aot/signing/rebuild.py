"""Verification by rebuild: build a bundle again from its sources, and compare the bytes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path

from nojit.aot.cache.cache import Cache
from nojit.aot.compile.toolchain.digests import toolchain_words
from nojit.aot.pipeline.build import build, inputs_of, toolchain_of
from nojit.aot.pipeline.debug_twins import twin_plan
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.plan import Plan
from nojit.aot.plan.planner import make_plans
from nojit.aot.provenance.statement import Recipe, Statement, read_statement, statement_path
from nojit.aot.recorded_builds.inputs import is_recording, read_recordings
from nojit.aot.recorded_builds.recorded_plans import TRIALS
from nojit.aot.recorded_builds.recorded_plans import make_plans as make_recorded_plans
from nojit.runtime.base.wording import few
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.discovery.debug_twins import TWIN
from nojit.runtime.errors import BundleIntegrityError, CompileError, PackageError

__all__ = ["rebuild"]

# maximum number of manifests that a message names
_NAMED_MAX = 3


def rebuild(
    bundle: BundleFile,
    sources: Path,
    compiler: Compiler,
    open_executor: Callable[[], AbstractContextManager[Executor]],
    signed: Statement | None = None,
) -> None:
    """Rebuild a bundle without the cache, and check that the bytes are the same.

    Args:
        bundle: the bundle, with a provenance statement in its folder.
        sources: root folder of the checkout; the statement's manifest paths are relative to it.
        compiler: compiles variants.
        open_executor: starts the worker processes.
        signed: the statement that a trusted key has signed. None uses the unsigned statement in the bundle's folder,
            which anybody could have written.

    Raises:
        PackageError: there is no statement, or it is incomplete, is of another bundle, or differs from the signed one.
        ManifestError: the build that the statement describes is not possible from `sources`.
        CompileError: a variant cannot be compiled.
        BundleIntegrityError: the bytes differ; the message names the differences that it can find.
    """
    recipe = _recipe(bundle, signed)
    plan = _plan(recipe, sources, compiler)
    _check_toolchains(recipe, plan, bundle.path)
    _compare_inputs(bundle, plan, compiler, recipe, sources)
    with tempfile.TemporaryDirectory(prefix="nojit-rebuild-") as folder:
        result = build(
            [plan],
            Path(folder) / "out",
            compiler,
            Cache(Path(folder) / "cache"),
            open_executor,
            keep_going=recipe.keep_going,
        )
        made = Path(folder) / "out" / plan.file_name
        if not made.exists():
            failure = result.failures[0] if result.failures else None
            got, log = (failure.message, failure.log) if failure else ("nothing to build", "")
            raise CompileError("expected to build the bundle again", got=got, where=bundle.path, log=log)
        _compare_bytes(bundle, made)


def _recipe(bundle: BundleFile, signed: Statement | None) -> Recipe:
    beside = statement_path(Path(bundle.path))
    statement = signed or read_statement(beside)
    recipe = statement.recipe()
    if recipe.digest != bundle.digest:
        what = f"expected the provenance statement of bundle {bundle.id}; copy the one that nojit build wrote with it"
        raise PackageError(what, got=f"that of {recipe.digest[:12]}", where=str(statement.path))
    # a wheel contains only the signed statement
    if signed is not None and beside.exists():
        _compare_recipes(recipe, read_statement(beside).recipe(), beside)
    return recipe


def _compare_recipes(signed: Recipe, plain: Recipe, where: Path) -> None:
    changed = [each.name for each in fields(Recipe) if getattr(signed, each.name) != getattr(plain, each.name)]
    if changed:
        what = "expected a statement that agrees with the signed one, or none; delete it or copy it again"
        raise PackageError(what, got=f"one with other {', '.join(changed)}", where=str(where))


def _check_sources(recipe: Recipe, sources: Path) -> None:
    """Check that all manifests of the provenance statement exist in the checkout.

    `recipe`: the facts of the provenance statement that a rebuild needs.
    """
    missing = [name for name in recipe.manifests if not _inside(sources, name).is_file()]
    if missing:
        what = "expected the checkout that the bundle was built from; --sources names its root"
        raise PackageError(what, got=f"no {few(missing, _NAMED_MAX)}", where=str(sources.absolute()))


def _plan(recipe: Recipe, sources: Path, compiler: Compiler) -> Plan:
    _check_sources(recipe, sources)
    paths = [_inside(sources, name) for name in recipe.manifests]
    plans = (_recorded_plans if any(map(is_recording, paths)) else _manifest_plans)(recipe, paths, sources, compiler)
    if recipe.line_info:
        plans = [twin_plan(plan, inputs_of(plan, compiler)) for plan in plans]
    named = [plan for plan in plans if plan.bundle.name == recipe.name]
    if len(named) != 1:
        names = ", ".join(plan.bundle.name for plan in plans)
        what = f"expected the manifests of bundle {recipe.name}: pass the root of its checkout as --sources"
        raise PackageError(what, got=f"those of {names}" if names else "none", where=str(sources))
    return named[0]


def _recorded_plans(recipe: Recipe, paths: list[Path], _sources: Path, compiler: Compiler) -> list[Plan]:
    name = recipe.name.removesuffix(TWIN) if recipe.line_info else recipe.name
    trials = recipe.profile == TRIALS
    recorded = read_recordings(paths)
    return make_recorded_plans(recorded, [recipe.arch], compiler, name=name, kernels=recipe.kernels, trials=trials)


def _manifest_plans(recipe: Recipe, paths: list[Path], sources: Path, compiler: Compiler) -> list[Plan]:
    return make_plans(
        paths,
        [recipe.arch],
        recipe.profile,
        compiler,
        recipe.kernels,
        tuning=recipe.tuning,
        retune=recipe.retune,
        tuned=recipe.tuned,
        project=sources,
        # the bundle exists, so its number of variants was allowed
        most=None,
    )


def _inside(sources: Path, name: str) -> Path:
    """Return the path of a file in the checkout; raise if `name` leads out of the checkout.

    An unsigned statement must not choose code from elsewhere to import.
    """
    path = sources / name
    try:
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(sources))
    except ValueError:
        # for example a name with a null character
        inside = False
    if not inside:
        what = "expected manifests inside the checkout; copy the statement again, or name its checkout with --sources"
        raise PackageError(what, got=str(path), where=str(sources))
    return path


def _check_toolchains(recipe: Recipe, plan: Plan, where: str) -> None:
    """Check that the build has the toolchains of the provenance statement, in the same order.

    `recipe`: the facts of the provenance statement that a rebuild needs.
    """
    # the only toolchain of a build need not be named
    if plan.toolchains != recipe.toolchains and max(len(plan.toolchains), len(recipe.toolchains)) > 1:
        places = " ".join(f"--toolchain {name}=VENV" for name in recipe.toolchains) or "no --toolchain"
        what = f"expected {places}, as the bundle was built"
        raise PackageError(what, got=", ".join(plan.toolchains) or "one toolchain", where=where)


def _compare_inputs(bundle: BundleFile, plan: Plan, compiler: Compiler, recipe: Recipe, sources: Path) -> None:
    """Check that toolchain and inputs equal the bundle's, before compiling: otherwise the bytes cannot be equal.

    `recipe`: the facts of the provenance statement that a rebuild needs.
    """
    toolchain = toolchain_of(plan, compiler)
    if dict(toolchain) != dict(bundle.index.toolchain):
        what = f"expected the bundle's toolchain: {toolchain_words(bundle.index.toolchain)}"
        error = BundleIntegrityError(what, got=toolchain_words(toolchain), where=bundle.path)
        raise error.advise("install the bundle's toolchain, with the Python version of its build")
    if not recipe.failures and inputs_of(plan, compiler) != bundle.index.inputs:
        what = "expected the bundle's sources, manifests and options: check out the commit that nojit inspect shows"
        changed = _changed(recipe, plan, sources)
        error = BundleIntegrityError(what, got=f"others: {', '.join(changed) or 'unknown which'}", where=bundle.path)
        raise error.advise("check out the commit that nojit inspect shows for the bundle")


def _changed(recipe: Recipe, plan: Plan, sources: Path) -> list[str]:
    """Return the files and kernels with digests that differ from those in the provenance statement.

    `recipe`: the facts of the provenance statement that a rebuild needs.
    """
    digests = {kernel.spec.name: kernel.source.digest for kernel in plan.kernels}
    changed = []
    for name, sha256 in recipe.files.items():
        path = sources / name
        try:
            same = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256
        except (OSError, ValueError):
            same = False
        if not same:
            changed.append(name)
    changed += [name for name, digest in recipe.kernel_sources.items() if digests.get(name) != digest]
    return changed + [name for name in digests if name not in recipe.kernel_sources]


def _compare_bytes(bundle: BundleFile, made: Path) -> None:
    before, after = b"".join(bundle.stream()), made.read_bytes()
    if before == after:
        return
    with BundleFile(made) as other:
        if other.digest == bundle.digest:
            # the digest pins every byte, so the bundle file is damaged
            what = "expected an intact file; run nojit verify to see the damage"
            raise BundleIntegrityError(what, got="other bytes under the same digest", where=bundle.path)
        pairs = zip(bundle.images(), other.images(), strict=False)
        differing = sum(one != two for one, two in pairs)
        images = sum(entry.images for entry in other.index.kernels)
        got = f"bundle {other.id}, in which {differing} of {images} images differ"
    error = BundleIntegrityError(f"expected the rebuild to give bundle {bundle.id}", got=got, where=bundle.path)
    raise error.advise("build the checkout into another folder and compare the two with nojit diff")
