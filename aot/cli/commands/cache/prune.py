"""``nojit cache prune``: Delete old entries of a cache."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
from nojit.aot.cache.upkeep import OldEntries, open_places
from nojit.aot.cli.console import Output, output_options, size
from nojit.aot.cli.options.caches import place_options

__all__ = ["command"]

_HOURS: Final = {"h": 1, "d": 24, "w": 7 * 24}
_BYTES: Final = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


def _age(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    found = re.fullmatch(r"([0-9]{1,6})([hdw])", text or "")
    if text is not None and not found:
        raise click.BadParameter(f"expected 30d, 12h or 8w, got {text!r}")
    return 3600.0 * int(found[1]) * _HOURS[found[2]] if found else None


def _size(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    found = re.fullmatch(r"([0-9]{1,9})(MB|GB|TB)", text or "")
    if text is not None and not found:
        raise click.BadParameter(f"expected 500MB, 10GB or 1TB, got {text!r}")
    return int(found[1]) * _BYTES[found[2]] if found else None


@click.command("prune")
@place_options
@click.option(
    "--older-than", "age_s", metavar="TIME", callback=_age, help="Delete entries written longer ago: 30d, 12h, 8w."
)
@click.option(
    "--max-size",
    "most_bytes",
    metavar="SIZE",
    callback=_size,
    help="Delete the oldest entries until the others of a place have this size: 500MB, 10GB, 1TB.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Count the entries; delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    url: str | None,
    cache_dir: Path | None,
    age_s: float | None,
    most_bytes: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete the oldest entries of a cache, by the time of their last write. Builds may run meanwhile: they compile what they miss.

    It counts the entries and asks; without a terminal it requires --yes. Claims that killed builds left a day ago go too. For
    bundles that have a newer version there is `nojit clean`.
    """
    if age_s is None and most_bytes is None:
        raise click.UsageError("expected --older-than or --max-size: nojit cache prune --older-than 30d")
    keepers = open_places(cache_dir, url)
    chosen = [keeper.choose(age_s, most_bytes) for keeper in keepers]
    names = [(*each.names, *each.leftovers) for each in chosen]
    deletes = any(names) and not dry_run and (yes or _agreed(out, chosen))
    if deletes:
        for keeper, each in zip(keepers, names, strict=True):
            keeper.delete(each)
    out.emit("cache prune", {"deleted": deletes, "places": [asdict(each) for each in chosen]})
    rows = [(f"{len(each.names):,}", size(each.size_bytes), f"{each.kept:,}", each.path) for each in chosen]
    out.table((">deleted" if deletes else ">to delete", ">size", ">kept", "place"), rows)


def _agreed(out: Output, chosen: Sequence[OldEntries]) -> bool:
    count, size_bytes = sum(len(each.names) for each in chosen), sum(each.size_bytes for each in chosen)
    if out.json or not sys.stdin.isatty():
        raise click.UsageError("expected --yes to delete entries, or a terminal to confirm on")
    return click.confirm(f"delete {count:,} of the cache's entries, {size(size_bytes)}?", err=True)
