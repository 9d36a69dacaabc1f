"""The check whether a build is up to date: whether every fact in the stamp of its command still holds.

A *stamp* is a record of everything that a build read: facts of each file and folder, and digests of the bundles. If all of them are
unchanged, the next build of the same command has nothing to do. A changed fact or a damaged stamp makes the build check everything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from nojit.aot.compile.sources.file_facts import content_of, link_of, listed, listing_of, still
from nojit.aot.pipeline.report import BuildResult, Done, as_found, decode_report
from nojit.aot.pipeline.stamp_file import read_stamp, write_stamp
from nojit.aot.variants.left_out import Absence
from nojit.runtime.errors import PackageError

__all__ = ["SearchedNames", "Stamp", "changes", "find_stamp", "result_of"]


@dataclass(frozen=True, slots=True)
class Stamp:
    """The result of a build, which the next build repeats if nothing has changed."""

    done: Done
    told: tuple[tuple[str, str], ...]
    """Messages that the build prints, as (``note`` or ``warn``, text)."""


def find_stamp(cache: Path, asked: str) -> Stamp | None:
    """Return the stamp of a command if it exists and every fact in it still holds.

    Args:
        cache: the cache folder. If other users can write to it, it counts as empty.
        asked: key of the stamp, from `asked_of`.
    """
    try:
        kept = read_stamp(cache, asked)
        if kept is None or next(_changes(kept), None) is not None:
            return None
        stamp = _stamp(kept)
        _renew(cache, asked, kept)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        # a stamp that is damaged is none
        return None
    return stamp


def changes(cache: Path, asked: str) -> list[str]:
    """Return the files and folders that differ from the stamp of a command; none if there is no stamp.

    `asked`: key of the stamp, from `asked_of`.
    """
    try:
        return list(_changes(read_stamp(cache, asked) or {}))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _changes(kept: dict[str, Any]) -> Iterator[str]:
    names = SearchedNames(kept.get("names", ()), kept.get("roots", ()))
    yield from (path for path, fact in kept.get("outputs", {}).items() if content_of(path) != fact)
    files = kept.get("files", {})
    for path, fact in [*files.items()]:
        now = still(path, fact)
        if now is None:
            yield path
        elif now is not fact:
            files[path] = now
            kept["renewed"] = True
    yield from (path for path, fact in kept.get("links", {}).items() if link_of(path) != fact)
    for kind, path, digest in kept.get("folders", ()):
        wanted = names.looked_for(path)
        if listed(listing_of(path, kind, wanted), kind, wanted) != digest:
            yield path


def _renew(cache: Path, asked: str, kept: dict[str, Any]) -> None:
    """Rewrite a stamp after its files were compared by content, so that the next build compares only their times.

    `asked`: key of the stamp, from `asked_of`.
    """
    if kept.pop("renewed", False):
        with contextlib.suppress(PackageError, OSError):
            write_stamp(cache, asked, kept)


class SearchedNames:
    """The module names that Python looked for, split into the parts that are names of files and folders.

    Args:
        names: full names of the modules, with dots.
        roots: folders in which Python looked for top-level modules.
    """

    def __init__(self, names: Iterable[str], roots: Iterable[str]) -> None:
        split = [name.split(".") for name in names]
        always = {"__init__", "sitecustomize", "usercustomize"}
        self._first = always | {parts[0] for parts in split}
        self._any = always.union(*split)
        self._roots = frozenset(roots)

    def looked_for(self, folder: str) -> set[str]:
        """Return the file names, without suffix, that Python may have looked for in a folder."""
        alone = folder in self._roots and not os.path.exists(f"{folder}/__init__.py")  # noqa: PTH110 - as `fact_of`
        return self._first if alone else self._any


def _stamp(kept: dict[str, Any]) -> Stamp:
    result, twins = map(result_of, kept["reports"])
    warned, twins_warned = map(tuple, kept["warned"])
    absent = tuple(msgspec.convert(each, Absence) for each in kept["absent"])
    done = Done(result, twins if kept["twins"] else None, absent, warned, twins_warned)
    return Stamp(done, tuple((kind, words) for kind, words in kept["told"]))


def result_of(reports: Iterable[str]) -> BuildResult:
    """Return the build result from the paths of the reports of up-to-date bundles."""
    found = (decode_report(Path(path).read_bytes()) for path in reports)
    return BuildResult(tuple(map(as_found, found)), stopped=False)
