"""Stamps: records of everything that a build read, so that an unchanged next build can skip all checks.

The cache folder holds one stamp for each command and working folder, in `stamps`. A stamp holds facts of every file and folder that
the build read, and digests of its bundles. If all of them are unchanged, the build has nothing to do. A changed fact or a damaged
stamp makes the build check everything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from nojit.aot.base.files import read_sealed, write_sealed
from nojit.aot.cache.folder import as_default, check_cache_folder
from nojit.aot.compile.sources.file_facts import (
    MODULES,
    SETTLED_NS,
    Fact,
    content_of,
    fact_of,
    files_in,
    link_of,
    listed,
    listing_of,
    still,
    with_digest,
)
from nojit.aot.compile.sources.reads import Notes
from nojit.aot.compile.toolchain.digests import file_digests
from nojit.aot.pipeline.report import TWINS, BuildResult, Done, as_found, decode_report
from nojit.aot.plan.left_out import Absence
from nojit.runtime.errors import PackageError

__all__ = ["UNCOUNTED", "Draft", "Stamp", "asked_of", "changes", "find_stamp"]

UNCOUNTED: Final = frozenset(
    {
        "COLORTERM",
        "COLUMNS",
        "FORCE_COLOR",
        "LINES",
        "LS_COLORS",
        "NO_COLOR",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "STY",
        "TERM",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "TERM_SESSION_ID",
        "TMUX",
        "TMUX_PANE",
        "WINDOWID",
        "_",
    }
)
"""Environment variables that a stamp ignores, because they describe the shell and the terminal. All others count."""

_FOLDER: Final = "stamps"
# raise it when what a stamp holds means something else
_MAGIC: Final = b"nojit-stamp-1\n"
_BYTES_MAX: Final = 64 << 20
# of commands that nobody gives any more, most of them
_STAMPS_MAX: Final = 100
_MANIFESTS: Final = "*.toml"
_RECORDINGS: Final = ("*.nojitrec", "*.jsonl")
_BUNDLES: Final = "*.nojit"
_TUNED: Final = "tuned"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The result of a build, which the next build repeats if nothing has changed."""

    done: Done
    told: tuple[tuple[str, str], ...]
    """Messages that the build prints, as (``note`` or ``warn``, text)."""


def asked_of(request: Mapping[str, Any]) -> str:
    """Return the key under which a command's stamp is stored: a JSON text.

    It covers the command's request, the working folder, the environment, Python, and the machine.

    Args:
        request: the options and arguments of the command, as JSON values.
    """
    environment = sorted(pair for pair in os.environ.items() if pair[0] not in UNCOUNTED)
    facts = {
        "request": request,
        "folder": os.getcwd(),  # noqa: PTH109 - as it is called
        # it may hold secrets
        "environment": hashlib.sha256(repr(environment).encode(errors="surrogateescape")).hexdigest(),
        "python": [
            sys.version,
            sys.executable,
            sys.prefix,
            sys.base_prefix,
            list(sys.flags),
            sys.path,
            sys.warnoptions,
        ],
        "options": sorted(f"{name}={value}" for name, value in sys._xoptions.items()),  # noqa: SLF001 - of Python's own
        "machine": [*os.uname(), os.getuid(), os.getgid(), sorted(os.sched_getaffinity(0))],
    }
    return json.dumps(facts, sort_keys=True)


def find_stamp(cache: Path, asked: str) -> Stamp | None:
    """Return the stamp of a command if it exists and every fact in it still holds.

    Args:
        cache: the cache folder. If other users can write to it, it counts as empty.
        asked: key of the stamp, from `asked_of`.
    """
    try:
        kept = _read(cache, asked)
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
        return list(_changes(_read(cache, asked) or {}))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _read(cache: Path, asked: str) -> dict[str, Any] | None:
    try:
        check_cache_folder(cache)
        check_cache_folder(cache / _FOLDER)
        data = read_sealed(_path(cache, asked), _MAGIC, _BYTES_MAX)
    except (PackageError, OSError):
        # the build reports what is wrong with the folder
        return None
    if data is None:
        return None
    kept: dict[str, Any] = json.loads(data)
    return kept if kept["asked"] == asked else None


def _path(cache: Path, asked: str) -> Path:
    return cache / _FOLDER / hashlib.sha256(asked.encode(errors="surrogateescape")).hexdigest()


def _changes(kept: dict[str, Any]) -> Iterator[str]:
    names = _Names(kept.get("names", ()), kept.get("roots", ()))
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
            _write(cache, asked, kept)


class _Names:
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
    result, twins = map(_result, kept["reports"])
    warned, twins_warned = map(tuple, kept["warned"])
    absent = tuple(Absence(each["bundle"], each["kernel"], tuple(each["archs"])) for each in kept["absent"])
    done = Done(result, twins if kept["twins"] else None, absent, warned, twins_warned)
    return Stamp(done, tuple((kind, words) for kind, words in kept["told"]))


def _result(reports: Iterable[str]) -> BuildResult:
    """Return the build result from the paths of the reports of up-to-date bundles."""
    found = (decode_report(Path(path).read_bytes()) for path in reports)
    return BuildResult(tuple(map(as_found, found)), stopped=False)


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
                _write(cache, self._asked, kept)
        except (PackageError, OSError, ValueError):
            # the next build looks at everything again
            return

    def _kept(self, notes: Notes, stamp: Stamp) -> dict[str, Any] | None:
        self._note_new_modules()
        self._notes.merge(notes)
        found = self._found(stamp.done)
        if found is None or self._refused or self._notes.refused:
            return None
        names = _Names(self._notes.names, self._notes.roots)
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
            if _result(reports[-1]).reports != tuple(map(as_found, result.reports)):
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
    from nojit.aot.inspect.places import report_path  # noqa: PLC0415
    from nojit.aot.provenance.statement import statement_path  # noqa: PLC0415
    from nojit.runtime.trust.envelope import signed_path  # noqa: PLC0415

    return report_path(bundle), statement_path(bundle), Path(signed_path(str(bundle)))


def _write(cache: Path, asked: str, kept: dict[str, Any]) -> None:
    folder = cache / _FOLDER
    check_cache_folder(cache)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_cache_folder(folder)
    data = json.dumps(kept, separators=(",", ":")).encode()
    if len(data) < _BYTES_MAX:
        write_sealed(_path(cache, asked), _MAGIC, data)
    _prune(folder)


def _prune(folder: Path) -> None:
    """Delete the oldest stamps of a folder beyond the maximum number."""
    stamps = sorted(folder.iterdir(), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
    for path in stamps[_STAMPS_MAX:]:
        with contextlib.suppress(OSError):
            path.unlink()
