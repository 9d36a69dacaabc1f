"""Recordings among the paths of a command line, and what they hold together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.base.defaults import BUNDLE_NAME
from nojit.runtime.base.file_kinds import files_in
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.file import PART_SUFFIX, SUFFIX, Recording, files_of, process_files, read_recording

__all__ = ["Recorded", "bundle_name", "find_recordings", "is_recording", "read_recordings"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recordings that were read and merged."""

    recording: Recording
    paths: tuple[Path, ...]
    """The recordings, as files or folders."""
    homes: dict[str, Path]
    """By digest of a source closure, the first recording that holds it."""

    def files(self) -> tuple[Path, ...]:
        """Return the files of all recordings."""
        return tuple(file for path in self.paths for file in files_of(path))


def is_recording(place: Path) -> bool:
    """Return whether a path on a command line is a recording, or a folder of recordings without manifests."""
    if not place.is_dir():
        return place.suffix in (SUFFIX, PART_SUFFIX)
    return bool(find_recordings([place])) and not files_in(place, ".toml")


def find_recordings(places: Iterable[Path]) -> list[Path]:
    """Return the recordings among paths.

    A file is a recording. So is a folder with the files of processes; another folder stands for the recordings in it.

    Args:
        places: files and folders.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir() and not process_files(place):
            found += files_in(place, SUFFIX)
        else:
            found.append(place)
    return list(dict.fromkeys(found))


def bundle_name(place: Path) -> str:
    """Return the name of the bundle of a recording: that of its file or folder, with other characters as ``-``."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", place.absolute().name.removesuffix(SUFFIX))[:100]
    return name if re.match(BUNDLE_NAME, name) else f"recording-{name}"[:100].rstrip("-")


def read_recordings(places: Sequence[Path]) -> Recorded:
    """Read and merge recordings.

    Args:
        places: recordings, or folders of recordings.

    Raises:
        RecordingError: a path is no recording, or cannot be read.
    """
    paths = find_recordings(places)
    if not paths:
        what = f"expected a recording: a {SUFFIX} file, or a folder of them"
        raise RecordingError(what, got="none", where=", ".join(map(str, places)))
    merged, homes = Recording(), dict[str, Path]()
    for path in paths:
        recording = read_recording(path)
        for digest in recording.closures:
            homes.setdefault(digest, path)
        for line in recording.lines():
            merged.add(line)
    return Recorded(merged, tuple(paths), homes)
