"""Build a bundle once more from its sources, and compare the bytes: whether it is what its statement says it is."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path

from nojit.aot.build import build, inputs_of, toolchain_of
from nojit.aot.cache import Cache
from nojit.aot.plan import Compiler, Plan, make_plans
from nojit.aot.statement import Recipe, Statement, read_statement, statement_path
from nojit.aot.toolchain import toolchain_words
from nojit.aot.twins import twin_plan
from nojit.runtime.bundle import BundleFile
from nojit.runtime.errors import BundleIntegrityError, CompileError, PackageError, few

__all__ = ["rebuild"]

# of how many manifests a message names
_TOLD = 3


def rebuild(
    bundle: BundleFile,
    sources: Path,
    compiler: Compiler,
    open_executor: Callable[[], AbstractContextManager[Executor]],
    signed: Statement | None = None,
) -> None:
    """Build a bundle anew, with nothing taken from a cache, and hold it against the one that is there.

    Args:
        bundle: a provenance statement lies beside it.
        sources: the folder that the statement names manifests from: the root of the checkout.
        compiler: makes images.
        open_executor: starts the workers.
        signed: what a trusted key has signed of the bundle, which then says what to build; otherwise the statement does that lies
            beside it, and that anybody can write.

    Raises:
        PackageError: there is no statement, it does not say what to build, it is of another bundle, or what was signed and what
            lies there say different things.
        ManifestError: what it names cannot be built from `sources`.
        CompileError: one of its variants could not be compiled.
        BundleIntegrityError: the bytes differ; says in what, as far as that can be known.
    """
    recipe = _recipe(bundle, signed)
    plan = _plan(recipe, sources, compiler)
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
        what = f"expected the provenance statement of bundle {bundle.id}"
        raise PackageError(what, got=f"that of {recipe.digest[:12]}", where=str(statement.path))
    # wheels bring what was signed alone
    if signed is not None and beside.exists():
        _compare_recipes(recipe, read_statement(beside).recipe(), beside)
    return recipe


def _compare_recipes(signed: Recipe, plain: Recipe, where: Path) -> None:
    changed = [each.name for each in fields(Recipe) if getattr(signed, each.name) != getattr(plain, each.name)]
    if changed:
        what = "expected a statement that says what was signed, or none"
        raise PackageError(what, got=f"one of other {', '.join(changed)}", where=str(where))


def _check_sources(recipe: Recipe, sources: Path) -> None:
    """Require the manifests to be where they are looked for, before anything is read."""
    missing = [name for name in recipe.manifests if not _inside(sources, name).is_file()]
    if missing:
        what = "expected the checkout that the bundle was built from; --sources names its root"
        raise PackageError(what, got=f"no {few(missing, _TOLD)}", where=str(sources.absolute()))


def _plan(recipe: Recipe, sources: Path, compiler: Compiler) -> Plan:
    _check_sources(recipe, sources)
    plans = make_plans(
        [_inside(sources, name) for name in recipe.manifests],
        [recipe.arch],
        recipe.profile,
        compiler,
        recipe.kernels,
        tuning=recipe.tuning,
        tuned=recipe.tuned,
        project=sources,
        # it was built
        most=None,
    )
    if recipe.line_info:
        plans = [twin_plan(plan, inputs_of(plan, compiler)) for plan in plans]
    named = [plan for plan in plans if plan.bundle.name == recipe.name]
    if len(named) != 1:
        names = ", ".join(plan.bundle.name for plan in plans)
        raise PackageError(f"expected manifests of bundle {recipe.name}", got=names or "none", where=str(sources))
    return named[0]


def _inside(sources: Path, name: str) -> Path:
    """Return a file of the checkout: whoever wrote the statement must not choose what other code is imported."""
    path = sources / name
    try:
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(sources))
    except ValueError:
        # no file has such a name
        inside = False
    if not inside:
        raise PackageError("expected manifests of the checkout", got=str(path), where=str(sources))
    return path


def _compare_inputs(bundle: BundleFile, plan: Plan, compiler: Compiler, recipe: Recipe, sources: Path) -> None:
    """Refuse what cannot come out alike before anything is compiled."""
    toolchain = toolchain_of(plan, compiler)
    if dict(toolchain) != dict(bundle.index.toolchain):
        what = f"expected the toolchain that made it: {toolchain_words(bundle.index.toolchain)}"
        raise BundleIntegrityError(what, got=toolchain_words(toolchain), where=bundle.path)
    if not recipe.failures and inputs_of(plan, compiler) != bundle.index.inputs:
        what = "expected sources, manifests and options that it was made of"
        changed = _changed(recipe, plan, sources)
        raise BundleIntegrityError(
            what, got=f"others: {', '.join(changed) or 'what cannot be told'}", where=bundle.path
        )


def _changed(recipe: Recipe, plan: Plan, sources: Path) -> list[str]:
    """Name the files and kernels that are others than the statement says."""
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
            # the digest pins every byte: the file is not whole, and verifying it says where
            what = "expected a whole file"
            raise BundleIntegrityError(what, got="other bytes under the same digest", where=bundle.path)
        pairs = zip(bundle.images(), other.images(), strict=False)
        differing = sum(one != two for one, two in pairs)
        images = sum(entry.images for entry in other.index.kernels)
        got = f"bundle {other.id} with {images} images, {differing} of them others in their place"
    raise BundleIntegrityError(f"expected to build bundle {bundle.id} again", got=got, where=bundle.path)
