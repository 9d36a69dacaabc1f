"""``nojit manifest``: Write a manifest from a recording."""

from __future__ import annotations

from pathlib import Path

import click
from nojit.aot.base.files import write_file
from nojit.aot.cli.console import PLACE, Output, counted, output_options
from nojit.aot.cli.options.new_manifests import check_new_manifest
from nojit.runtime.errors import PackageError

__all__ = ["command"]


@click.command("manifest")
@click.argument("recording", metavar="RECORDING", type=PLACE)
@click.option("-o", "--out", "path", type=PLACE, help="Manifest to write; default: standard output.")
@click.option("--force", is_flag=True, help="Overwrite an existing manifest, and tuned tables beside it.")
@output_options
def command(out: Output, recording: Path, path: Path | None, force: bool) -> None:
    """Write a manifest with the kernels of a recording, to be edited.

    `nojit build RECORDING` builds exactly what was recorded; a manifest can build more. Constexprs that vary become axes of the matrix, or points if
    not every combination was recorded. Hints that hold in all calls become a set, the choices of autotuners become configs and a tuned table in the
    folder tuned beside the manifest, and a grid becomes an expression if one fits all recorded launches. A build of the manifest imports the
    kernels, so it needs the program's packages.
    """
    if path is not None:
        check_new_manifest(path, force=force)
    # these import msgspec
    from nojit.aot.draft.from_recording import manifest_of
    from nojit.aot.recorded_builds.inputs import bundle_name, read_recordings
    from nojit.aot.tune.select.tuned_file import file_name, write_tuned
    from nojit.aot.variants.tuned_tables import FOLDER

    written = manifest_of(read_recordings([recording]).recording, bundle_name(recording), str(recording))
    tuned: list[Path] = []
    if path is not None:
        folder = path.parent / FOLDER
        existing = [folder / file_name(table) for table in written.tables if (folder / file_name(table)).exists()]
        if existing and not force:
            what = "expected no tuned table of this kernel and GPU: overwrite it with --force, or choose another folder"
            raise PackageError(what, where=str(existing[0]))
        write_file(path, written.text.encode())
        tuned = [write_tuned(table, folder, force=force) for table in written.tables]
    out.emit(
        "manifest",
        {
            "path": None if path is None else str(path),
            "manifest": written.text,
            "tuned": [str(each) for each in tuned],
            "kernels": list(written.kernels),
            "left_out": list(written.left_out),
        },
    )
    if path is None and not out.json:
        click.echo(written.text, nl=False)
    for each in written.left_out:
        out.warn(f"left out {each}")
    for table in tuned:
        out.note(f"{table}: what @triton.autotune chose; the build reads it")
    out.note(f"{counted(len(written.kernels), 'kernel')}; check the manifest with nojit build --dry-run")
