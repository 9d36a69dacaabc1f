"""Place of a manifest that a command writes."""

from __future__ import annotations

from pathlib import Path

from nojit.runtime.errors import PackageError

__all__ = ["check_new_manifest"]


def check_new_manifest(path: Path, *, force: bool) -> None:
    """Check that a command may write a manifest to a path.

    Args:
        path: the manifest.
        force: whether it may overwrite a file.

    Raises:
        PackageError: a folder is there, or a file that it may not overwrite.
    """
    if path.is_dir():
        raise PackageError("expected a file to write the manifest to", got="a folder", where=str(path))
    if path.exists() and not force:
        raise PackageError("expected a manifest that does not exist: overwrite it with --force", where=str(path))
