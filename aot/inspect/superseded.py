"""Finder of bundles that a newer version in the same folder supersedes, with their reports and statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.backends.registry import arch_of
from nojit.aot.inspect.places import report_path
from nojit.aot.provenance.statement import statement_path
from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.base.wording import worded
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.versions import BundleVersion, superseded
from nojit.runtime.errors import BundleError, PackageError
from nojit.runtime.trust.envelope import signed_path

__all__ = ["Leftover", "find_leftovers", "remove"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A superseded bundle: nothing uses it any longer."""

    path: Path
    name: str
    version: str
    arch: str
    newer: Path
    """The bundle that supersedes it."""
    files: tuple[Path, ...]
    """Files to delete: the bundle first, then its report and its statements."""
    size_bytes: int
    """Size of these files together."""


def find_leftovers(folders: Iterable[Path]) -> tuple[list[Leftover], list[str]]:
    """Return the superseded bundles of folders, and a message for each similar file that must be kept.

    Only intact bundles count that are regular files with the name a build gives: ``<name>-<version>-<arch>.nojit``.

    Raises:
        PackageError: a folder does not exist, is not a folder or cannot be read.
    """
    found: list[Leftover] = []
    alone: list[str] = []
    for folder in folders:
        releases: dict[str, tuple[BundleVersion, str]] = {}
        for path in _bundles_in(folder):
            try:
                with BundleFile(path) as bundle:
                    releases[str(path)] = BundleVersion.of(bundle), arch_of(bundle.index.target)
            except (BundleError, OSError) as error:
                alone.append(f"{path}: {worded(error)}")
        for old, new in superseded(release for release, _ in releases.values()).items():
            release, arch = releases[old]
            called = f"{release.name}-{release.version}-{arch}{SUFFIX}"
            if Path(old).name == called:
                found.append(_leftover(Path(old), release, arch, Path(new)))
            else:
                alone.append(f"{old}: expected the name that a build gives, {called}")
    return sorted(found, key=lambda each: each.path), alone


def _bundles_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        got = file_kind(folder.stat().st_mode) if folder.exists() else "no such folder"
        raise PackageError("expected a folder of bundles", got=got, where=str(folder))
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        raise PackageError("expected a readable folder", got=worded(error), where=str(folder)) from None
    # skip links: a build writes none
    return [path for path in files if path.name.endswith(SUFFIX) and path.is_file() and not path.is_symlink()]


def _leftover(path: Path, release: BundleVersion, arch: str, newer: Path) -> Leftover:
    beside = report_path(path), statement_path(path), Path(signed_path(str(path)))
    files = [path, *(each for each in beside if each.is_file() and not each.is_symlink())]
    size_bytes = sum(each.stat().st_size for each in files)
    return Leftover(path, release.name, release.version, arch, newer, tuple(files), size_bytes)


def remove(leftovers: Sequence[Leftover]) -> None:
    """Delete the files, the bundle itself last, so that a later run finds what an interrupted one left.

    Raises:
        PackageError: a file cannot be deleted.
    """
    for path in (path for leftover in leftovers for path in reversed(leftover.files)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise PackageError("expected to delete the file", got=worded(error), where=str(path)) from None
