"""``nojit clean``: Delete bundles that have a newer version."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from nojit.aot.cli.console import PLACE, Output, counted, output_options, size
from nojit.aot.inspect.superseded import Leftover, find_leftovers, remove

__all__ = ["command"]

_ARTIFACTS = Path("artifacts")
# subfolders for tuning bundles, and for bundles with line info
_BELOW = ("tuning", "debug")


@click.command("clean")
@click.argument("folders", metavar="[DIR]...", nargs=-1, type=PLACE)
@click.option("-n", "--dry-run", is_flag=True, help="List the files; delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@output_options
def command(out: Output, folders: tuple[Path, ...], dry_run: bool, yes: bool) -> None:
    """Delete bundles that have a newer version of the same name and architecture beside them.

    Without arguments it looks in artifacts/, artifacts/tuning and artifacts/debug. It deletes each bundle's report and provenance statements
    too. It lists the files and asks; without a terminal it requires --yes. It keeps files with other names than `nojit build` writes, links
    and damaged bundles.
    """
    below = [_ARTIFACTS / name for name in _BELOW if (_ARTIFACTS / name).is_dir()]
    leftovers, alone = find_leftovers(folders or (_ARTIFACTS, *below))
    for reason in alone:
        out.warn(f"kept: {reason}")
    _show(out, leftovers)
    deletes = bool(leftovers) and not dry_run and (yes or _agreed(out, leftovers))
    if deletes:
        remove(leftovers)
    out.emit("clean", {"deleted": deletes, "superseded": [_document(each) for each in leftovers], "left_alone": alone})
    if deletes:
        total = size(sum(each.size_bytes for each in leftovers))
        out.line(f"deleted {counted(len(leftovers), 'bundle')}, {total}", style="green")


def _agreed(out: Output, leftovers: list[Leftover]) -> bool:
    if out.json or not sys.stdin.isatty():
        raise click.UsageError(
            f"expected --yes to delete {counted(len(leftovers), 'bundle')}, or a terminal to confirm on"
        )
    return click.confirm(f"delete {counted(len(leftovers), 'bundle')} with their reports and statements?", err=True)


def _show(out: Output, leftovers: list[Leftover]) -> None:
    if not leftovers:
        out.line("no bundle has a newer version beside it")
        return
    rows = [(each.version, size(each.size_bytes), str(each.path), each.newer.name) for each in leftovers]
    out.table(("version", ">size", "bundle", "superseded by"), rows)
    if out.verbosity > 0:
        for path in (path for each in leftovers for path in each.files):
            out.line(f"  {path}")


def _document(leftover: Leftover) -> dict[str, Any]:
    files = [str(path) for path in leftover.files]
    return {**asdict(leftover), "path": str(leftover.path), "newer": str(leftover.newer), "files": files}
