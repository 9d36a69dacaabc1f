"""Bundles that a command ships, in wheels or to registries: which ones, and what to say about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nojit.aot.cli.console import Output
from nojit.aot.inspect.places import find_bundles
from nojit.aot.provenance.statement import open_signed
from nojit.aot.signing.shipped_bundles import VerifiedBundle, read_bundle
from nojit.runtime.base.wording import few
from nojit.runtime.discovery.versions import BundleVersion, newer_lies_beside, superseded

__all__ = ["read_newest", "tell_changes", "tell_unsigned", "warn_of_changes"]

_ARTIFACTS: Final = Path("artifacts")
# a line names at most this many bundles
_NAMED_MAX: Final = 4


def read_newest(out: Output, places: Sequence[Path]) -> list[VerifiedBundle]:
    """Return the verified bundles at the places of a command line, of several versions in a folder the newest.

    Args:
        out: output of the command, which names the bundles that are left out.
        places: files and folders; empty for ``artifacts``. A file is never left out.

    Raises:
        BundleError: a bundle is missing or damaged.
        PackageError: a signed statement is damaged or of another bundle.
    """
    bundles = [read_bundle(path) for path in find_bundles(places or (_ARTIFACTS,))]
    older = superseded(
        BundleVersion(str(one.path), one.index.name, one.index.version, one.index.target.image_arch) for one in bundles
    )
    kept = []
    for bundle in bundles:
        newer = older.get(str(bundle.path))
        if newer is None or bundle.path in places:
            kept.append(bundle)
        else:
            out.note(f"skipped {bundle.path}: {newer_lies_beside(newer)}")
    return kept


def tell_unsigned(out: Output, bundles: Sequence[VerifiedBundle]) -> None:
    """Say which bundles have no signed statement."""
    unsigned = [str(bundle.path) for bundle in bundles if bundle.statement is None]
    if unsigned:
        out.line(f"unsigned, refused with NOJIT_TRUST=signed; sign them with nojit sign: {few(unsigned, _NAMED_MAX)}")


def tell_changes(out: Output, bundles: Sequence[VerifiedBundle]) -> None:
    """Warn about bundles whose signed statement says that they were built from uncommitted changes."""
    signed = ((bundle.statement, bundle.path) for bundle in bundles)
    warn_of_changes(out, [str(path) for raw, path in signed if raw and open_signed(raw, path).is_dirty()])


def warn_of_changes(out: Output, bundles: Sequence[str]) -> None:
    """Warn about bundles that were built from uncommitted changes, by their statements."""
    if bundles:
        out.warn(f"built from a checkout with uncommitted changes: {few(bundles, _NAMED_MAX)}")
