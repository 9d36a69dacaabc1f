"""``nojit cache verify``: Check every entry of a cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cache.upkeep import RefusedEntry, open_places
from nojit.aot.cli.console import PLACE, Output, output_options
from nojit.aot.cli.exit_codes import EXIT_UNVERIFIED
from nojit.aot.cli.options.caches import open_verifier, place_options
from nojit.aot.compile.image_checks import check_entry

__all__ = ["command"]


@click.command("verify")
@place_options
@click.option(
    "--cache-trust",
    "trust",
    multiple=True,
    type=PLACE,
    metavar="KEY",
    help="Each entry of the shared cache must be signed by this public key; repeatable.",
)
@output_options
def command(out: Output, url: str | None, cache_dir: Path | None, trust: tuple[Path, ...]) -> int:
    """Check every entry of a cache as a build does before it uses one: format, key, checksum, and the image.

    Exit code 3: a build would not use an entry. It would compile that variant and replace the entry.
    """
    if trust and url is None:
        raise click.UsageError(
            "expected the URL of a shared cache with --cache-trust: local entries have no signatures"
        )
    verifier = open_verifier(trust)
    count, refused = 0, list[RefusedEntry]()
    for keeper in open_places(cache_dir, url):
        for each in keeper.refused(check_entry, verifier):
            count += 1
            if each is not None:
                refused.append(each)
                out.warn(f"REFUSED {each.path}: {each.reason}")
    out.emit("cache verify", {"ok": not refused, "entries": count, "refused": [asdict(each) for each in refused]})
    out.line(f"{len(refused):,} of {count:,} entries refused")
    return EXIT_UNVERIFIED if refused else 0
