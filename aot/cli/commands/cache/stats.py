"""``nojit cache stats``: Count the entries of a cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cache.folder import default_cache_folder
from nojit.aot.cache.upkeep import open_places
from nojit.aot.cli.console import PLACE, Output, output_options, size
from nojit.aot.cli.options.caches import url_option

__all__ = ["command"]


@click.command("stats")
@click.argument("url", metavar="[URL]", required=False, callback=url_option)
@click.option("--cache-dir", type=PLACE, help="Local cache; default NOJIT_CACHE_DIR.")
@output_options
def command(out: Output, url: str | None, cache_dir: Path | None) -> None:
    """Show the number, size and age of the entries of a cache, and how many variants builds have claimed."""
    facts = [keeper.facts() for keeper in open_places(cache_dir or default_cache_folder(), url)]
    out.emit("cache stats", {"places": [asdict(each) for each in facts]})
    headers = (">entries", ">size", ">claims", "oldest", "newest", "place")
    rows = [
        (
            f"{each.entries:,}",
            size(each.size_bytes),
            f"{each.claims:,}",
            each.oldest or "-",
            each.newest or "-",
            each.path,
        )
        for each in facts
    ]
    out.table(headers, rows)
