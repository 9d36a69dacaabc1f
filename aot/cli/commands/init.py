"""``nojit init``: Write a first manifest for a kernel."""

from __future__ import annotations

import os
from pathlib import Path

import click
from nojit.aot.base.files import write_file
from nojit.aot.cli.console import PLACE, Arch, Output, counted, output_options
from nojit.aot.cli.options.new_manifests import check_new_manifest
from nojit.aot.plan.function_facts import SourcePlace
from nojit.runtime.errors import PackageError

__all__ = ["command"]

_ARCHS = ("sm_80", "sm_90")
_TIMEOUT_S = 300.0


@click.command("init")
@click.argument("source", metavar="FILE.py:FUNCTION|MODULE:FUNCTION")
@click.option("-o", "--out", "path", type=PLACE, help="Manifest to write; default: standard output.")
@click.option(
    "--arch",
    "archs",
    multiple=True,
    type=Arch(),
    metavar="ARCH",
    help=f"Architecture to build for, repeatable; default {' and '.join(_ARCHS)}.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing manifest.")
@output_options
def command(out: Output, source: str, path: Path | None, archs: tuple[str, ...], force: bool) -> None:
    """Write a first manifest for a @triton.jit function, from its signature, decorators and text.

    nojit writes each fact that the source makes sure: annotated types, strides and sizes, defaults, the configs of @triton.autotune, bool
    heuristics. Every other place holds a string that starts with FILL IN and says what belongs there. `nojit build` refuses the manifest until none
    is left.
    """
    folder = Path() if path is None else path.parent
    place = _place(source, folder)
    if path is not None:
        check_new_manifest(path, force=force)
    # these import msgspec and start processes
    from nojit.aot.compile.processes.source_compiler import SourceCompiler
    from nojit.aot.draft.from_source import draft_manifest

    wanted = archs or _ARCHS
    compiler = SourceCompiler()
    with compiler.session(_TIMEOUT_S, out.note):
        outline = compiler.outline(place, wanted[0])
    draft = draft_manifest(outline, _spelling(source, folder), wanted)
    if path is not None:
        write_file(path, draft.text.encode())
    out.emit(
        "init",
        {"path": None if path is None else str(path), "manifest": draft.text, "questions": list(draft.questions)},
    )
    if path is None and not out.json:
        click.echo(draft.text, nl=False)
    shown = str(path) if path is not None else "the manifest"
    left = f"{counted(len(draft.questions), 'place')} to fill in: search {shown} for FILL IN"
    ready = f"nothing to fill in; check {shown} with nojit build --dry-run"
    out.note(left if draft.questions else ready)


def _place(source: str, folder: Path) -> SourcePlace:
    """Return the place of a source for a manifest in a folder."""
    # nothing can be found relative to a folder that is yet to be created
    imported_from = folder if folder.is_dir() else Path()
    return SourcePlace(_spelling(source, imported_from), imported_from, source)


def _spelling(source: str, folder: Path) -> str:
    """Return a source with its file, if it names one, relative to a folder."""
    module, colon, function = source.partition(":")
    if not colon or not function or not module:
        raise click.UsageError(f"expected FILE.py:FUNCTION or package.module:FUNCTION, got {source!r}")
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise PackageError("expected a file with a @triton.jit function", got="no such file", where=module)
        module = Path(os.path.relpath(module, folder)).as_posix()
    return f"{module}:{function}"
