"""The recorder of a build's stamp: it notes every file and folder that the build reads."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from nojit.aot.cache.folder import as_default
from nojit.aot.compile.sources.file_facts import (
    MODULES,
    SETTLED_NS,
    Fact,
    content_of,
    fact_of,
    files_in,
    listed,
    listing_of,
    with_digest,
)
from nojit.aot.compile.sources.reads import Notes
from nojit.aot.compile.toolchain.digests import file_digests
from nojit.aot.pipeline.report import TWINS, BuildResult, Done, as_found
from nojit.aot.pipeline.stamp_file import write_stamp
from nojit.aot.pipeline.up_to_date import SearchedNames, Stamp, result_of
from nojit.runtime.errors import PackageError

__all__ = ["Draft"]

_MANIFESTS: Final = "*.toml"
_RECORDINGS: Final = ("*.nojitrec", "*.jsonl")
_BUNDLES: Final = "*.nojit"
_TUNED: Final = "tuned"


class Draft:
    """A stamp that is being recorded during a build.

    It starts before the build reads anything. A change of an input during the build therefore prevents the stamp.

    Args:
        asked: key of the stamp, from `asked_of`.
        places: paths of manifests and recordings, or of folders with them, from the command line.
        out: the output folder of the bundles.
        tools: paths of programs from the command line.
    """

    def __init__(self, asked: str, places: Sequence[Path], out: Path, tools: Iterable[Path] = ()) -> None:
        self._asked = asked
        self._out = out
        self._started_ns = time.time_ns()
        self._notes = Notes()
        self._others: dict[str, Fact] = {}
        self._refused = False
        try:
            self._note_python()
            for tool in tools:
                self._file(tool)
            for place in places:
                self._manifests(place)
            self._there = listing_of(str(out), _BUNDLES)
            for path in sorted(out.glob(_BUNDLES)):
                self._others |= {str(each): fact_of(str(each)) for each in (path, _beside(path)[1])}
        except (OSError, RuntimeError):
            # what cannot be read is no news: the build says so
            self._refused = True

    def refuse(self) -> None:
        """Write no stamp, because the next build may have another result."""
        self._refused = True

    def keep(self, cache: Path, notes: Notes, stamp: Stamp) -> None:
        """Write the stamp, unless an input changed during the build or cannot be noted.

        Args:
            cache: the cache folder.
            notes: files, folders and module names that the processes of kernel sources read.
            stamp: the output of this build, which the next one prints if no input has changed.
        """
        try:
            kept = self._kept(notes, stamp)
            if kept is not None:
                with as_default(cache):
                    kept["files"] = _with_contents(kept["files"])
                write_stamp(cache, self._asked, kept)
        except (PackageError, OSError, ValueError):
            # the next build looks at everything again
            return

    def _kept(self, notes: Notes, stamp: Stamp) -> dict[str, Any] | None:
        self._note_new_modules()
        self._notes.merge(notes)
        found = self._found(stamp.done)
        if found is None or self._refused or self._notes.refused:
            return None
        names = SearchedNames(self._notes.names, self._notes.roots)
        own = {path for path in found["outputs"] if path in self._others}
        folders = [
            (kind, path, listed(listing, kind, names.looked_for(path)))
            for (kind, path), listing in self._notes.folders.items()
        ]
        there, before = listing_of(str(self._out), _BUNDLES), {name for name in self._there if not name.startswith("[")}
        if {*there} != before | {report.path for report in stamp.done.result.reports}:
            # somebody else put a bundle there, or took one away
            return None
        return {
            "asked": self._asked,
            "names": sorted(self._notes.names),
            "roots": sorted(self._notes.roots),
            "files": {**{path: fact for path, fact in self._others.items() if path not in own}, **self._notes.files},
            "links": self._notes.links,
            "folders": [*folders, (_BUNDLES, str(self._out), listed(there, _BUNDLES))],
            "absent": [asdict(each) for each in stamp.done.absent],
            "told": stamp.told,
            "twins": stamp.done.twins is not None,
            "warned": [stamp.done.warned, stamp.done.twins_warned],
            **found,
        }

    def _found(self, done: Done) -> dict[str, Any] | None:
        """Return digests of the output files and paths of reports; None if a file is not as the build wrote it."""
        made = [(self._out, done.result), (self._out / TWINS, done.twins or BuildResult((), stopped=False))]
        contents: dict[str, Fact] = {}
        reports: list[list[str]] = []
        for folder, result in made:
            bundles = [folder / report.path for report in result.reports]
            for path, sha256 in zip(bundles, result.sha256s, strict=True):
                contents |= {str(each): content_of(str(each)) for each in (path, *_beside(path))}
                if contents[str(path)] != ["content", sha256]:
                    return None
            reports.append([str(_beside(path)[0]) for path in bundles])
            if result_of(reports[-1]).reports != tuple(map(as_found, result.reports)):
                return None
        return {"outputs": contents, "reports": reports}

    def _file(self, path: Path) -> None:
        self._notes.files[str(path)] = fact_of(str(path))

    def _folder(self, path: Path, kind: str) -> None:
        listing = self._notes.folders[kind, str(path)] = listing_of(str(path), kind)
        for inside in files_in(str(path), kind, listing):
            self._file(Path(inside))

    def _manifests(self, place: Path) -> None:
        """Record the facts of manifests and recordings, of the files in their folders, and of tuned tables."""
        self._file(place)
        folder = place if place.is_dir() else place.parent
        for inside in (folder, folder / _TUNED):
            self._folder(inside, _MANIFESTS)
            for path in sorted(inside.glob(_MANIFESTS)):
                self._file(path)
        for kind in _RECORDINGS if place.is_dir() else ():
            self._folder(place, kind)
            for path in sorted(place.glob(kind)):
                self._file(path)

    def _note_python(self) -> None:
        """Record facts of the running Python, its imported modules, and the folders of its module search path."""
        for path in (sys.executable, os.path.realpath(sys.executable), f"{sys.prefix}/pyvenv.cfg"):
            self._file(Path(path))
        self._modules = frozenset(sys.modules)
        for path in _files_of(self._modules):
            self._file(Path(path))
        self._notes.roots.update(str(Path(path)) for path in sys.path)
        for path in (*sys.path, *sys.path_importer_cache):
            self._folder(Path(path), MODULES)

    def _note_new_modules(self) -> None:
        """Record the facts of newly imported modules; write no stamp if one of their files is newer than the build."""
        for name in sys.modules:
            self._notes.names.add(name)
        for path in _files_of(sys.modules.keys() - self._modules):
            fact = fact_of(path)
            self._notes.files[path] = fact
            if fact[0] != "file" or max(map(int, fact[4:6])) > self._started_ns - SETTLED_NS:
                self._refused = True


def _with_contents(files: dict[str, Fact]) -> dict[str, Fact]:
    """Return facts of files with SHA-256 added, for each file that still has the same fact."""
    digests = file_digests(path for path, fact in files.items() if fact[0] == "file")
    return {
        path: with_digest(fact, digests[path]) if path in digests and fact_of(path) == fact else fact
        for path, fact in files.items()
    }


def _files_of(modules: Iterable[str]) -> list[str]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in modules)
    return sorted({file for file in files if isinstance(file, str) and file.startswith("/")})


def _beside(bundle: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a bundle's report, statement and signed statement."""
    # a build has loaded these; a stamp is checked without them
    from nojit.aot.inspect.places import report_path
    from nojit.aot.provenance.statement import statement_path
    from nojit.runtime.trust.envelope import signed_path

    return report_path(bundle), statement_path(bundle), Path(signed_path(str(bundle)))
