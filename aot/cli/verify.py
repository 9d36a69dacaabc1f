"""``nojit verify``: is every byte of a bundle as it was built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from nojit.aot.cli.console import Output, counted, output_options
from nojit.aot.cli.group import EXIT_UNVERIFIED
from nojit.aot.inspection import open_bundle
from nojit.aot.verification import verify_bundle
from nojit.runtime.errors import BundleError
from nojit.runtime.format import SUFFIX

__all__ = ["command"]


@click.command("verify")
@click.argument("places", metavar="BUNDLE|DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_options
def command(out: Output, places: tuple[Path, ...]) -> int:
    """Check bundles: hashes, format, and every image against what the bundle says of how to launch it.

    A folder stands for every bundle in it. Exits 3 if any bundle fails. That the bytes are the ones that were built
    says nothing of who built them.
    """
    results = []
    for path in _bundles(places):
        result = _verify(path)
        results.append(result)
        if result["ok"]:
            out.line(
                f"OK      {path}  {result['digest'][:12]}, {counted(result['variants'], 'variant')}, "
                f"{counted(result['images'], 'image')}"
            )
        else:
            out.warn(f"FAILED  {path}  {result['error']['message']}")
    out.emit("verify", {"ok": all(result["ok"] for result in results), "bundles": results})
    return 0 if all(result["ok"] for result in results) else EXIT_UNVERIFIED


def _bundles(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if not place.is_dir():
            yield place
            continue
        inside = sorted(place.glob(f"*{SUFFIX}"))
        if not inside:
            raise BundleError(f"expected a folder with *{SUFFIX} files", got="none", where=str(place))
        yield from inside


def _verify(path: Path) -> dict[str, Any]:
    try:
        with open_bundle(path) as bundle:
            verify_bundle(bundle)
            variants = sum(entry.variants for entry in bundle.index.kernels)
            facts = {"digest": bundle.digest, "variants": variants, "images": bundle.index.image_count}
    except BundleError as error:
        # the path stands before the message already
        error.where = error.where.removeprefix(str(path)).strip()
        failure = {"type": type(error).__name__, "message": str(error), "rule": getattr(error, "rule", "")}
        return {"path": str(path), "ok": False, "error": failure}
    return {"path": str(path), "ok": True, **facts}
