"""Bundles of a build's folder that a newer version supersedes, with the files that the build wrote beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.places import report_path
from nojit.aot.statement import statement_path
from nojit.runtime.bundle import BundleFile
from nojit.runtime.errors import BundleError, PackageError, worded
from nojit.runtime.format import SUFFIX
from nojit.runtime.trust import signed_path
from nojit.runtime.versions import Release, superseded

__all__ = ["Leftover", "find_leftovers", "remove"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A bundle that nothing uses any longer."""

    path: Path
    name: str
    version: str
    arch: str
    newer: Path
    """The bundle that supersedes it."""
    files: tuple[Path, ...]
    """What was written of it: itself first, then its report and its statements."""
    size_bytes: int
    """Of all of them."""


def find_leftovers(folders: Iterable[Path]) -> tuple[list[Leftover], list[str]]:
    """List the bundles of folders that have a newer version beside them, and what is left alone although it may be one.

    Only regular files count that are called as a build calls them, ``<name>-<version>-<arch>.nojit``, and that are whole bundles.

    Raises:
        PackageError: a folder that is none, or cannot be read.
    """
    found: list[Leftover] = []
    alone: list[str] = []
    for folder in folders:
        releases: dict[str, tuple[Release, str]] = {}
        for path in _bundles_in(folder):
            try:
                with BundleFile(path) as bundle:
                    releases[str(path)] = bundle.release, bundle.index.target.arch
            except (BundleError, OSError) as error:
                alone.append(f"{path}: {worded(error)}")
        for old, new in superseded(release for release, _ in releases.values()).items():
            release, arch = releases[old]
            called = f"{release.name}-{release.version}-{arch}{SUFFIX}"
            if Path(old).name == called:
                found.append(_leftover(Path(old), release, arch, Path(new)))
            else:
                alone.append(f"{old}: expected it to be called {called}, as a build writes it")
    return sorted(found, key=lambda each: each.path), alone


def _bundles_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        got = "a file" if folder.exists() else "no such folder"
        raise PackageError("expected a folder of bundles", got=got, where=str(folder))
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        raise PackageError("expected a folder that can be read", got=worded(error), where=str(folder)) from None
    # a link is somebody's own
    return [path for path in files if path.name.endswith(SUFFIX) and path.is_file() and not path.is_symlink()]


def _leftover(path: Path, release: Release, arch: str, newer: Path) -> Leftover:
    beside = report_path(path), statement_path(path), Path(signed_path(str(path)))
    files = [path, *(each for each in beside if each.is_file() and not each.is_symlink())]
    size_bytes = sum(each.stat().st_size for each in files)
    return Leftover(path, release.name, release.version, arch, newer, tuple(files), size_bytes)


def remove(leftovers: Sequence[Leftover]) -> None:
    """Delete the files, the bundle itself last, so that what an interrupt leaves is found again.

    Raises:
        PackageError: a file cannot be deleted.
    """
    for path in (path for leftover in leftovers for path in reversed(leftover.files)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise PackageError("expected to delete it", got=worded(error), where=str(path)) from None
