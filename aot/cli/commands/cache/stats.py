"""``nojit cache stats``: Count the entries of a cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cache.upkeep import open_places
from nojit.aot.cli.console import Output, output_options, size
from nojit.aot.cli.options.caches import place_options

__all__ = ["command"]


@click.command("stats")
@place_options
@output_options
def command(out: Output, url: str | None, cache_dir: Path | None) -> None:
    """Show the number, size and age of the entries of a cache, and how many variants builds have claimed."""
    facts = [keeper.facts() for keeper in open_places(cache_dir, url)]
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
