"""``nojit cache``: Count, delete and verify cached variants."""

from __future__ import annotations

import click
from nojit.aot.cli.lazy import LazyGroup

__all__ = ["command"]


@click.group("cache", cls=LazyGroup, package=__name__, order=("stats", "verify", "prune"), no_args_is_help=False)
def command() -> None:
    """Count, delete and verify the entries of the local cache, or of a shared cache.

    Each command takes the URL of a shared cache, such as s3://bucket/nojit; without one it concerns the local cache folder and its
    copies of shared entries.
    """
