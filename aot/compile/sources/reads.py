"""Record (*notes*) of the files, folders and modules that a build's process reads.

With these notes, a later build with unchanged inputs can be skipped; a *stamp* in the cache folder stores them. If a
read cannot be noted, the build writes no stamp. Python reports most reads by audit events. It reports no `os.stat` and
no `os.access`, so `start` replaces these functions by ones that note the path first. A note holds the facts from before
the read, so that a later change differs from it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any, Final

from nojit.aot.compile.sources.file_facts import (
    DISTRIBUTIONS,
    ENTRIES,
    MODULES,
    NAMES,
    Fact,
    fact_of,
    files_in,
    link_of,
    listing_of,
)

__all__ = ["Notes", "own_work", "source_begins", "start", "stop", "take_notes"]

# by the file of the function that lists a folder: the entries that it looks for
_KINDS: Final = {
    "<frozen importlib._bootstrap_external>": MODULES,
    f"{os.path.dirname(os.__file__)}/importlib/metadata/__init__.py": DISTRIBUTIONS,  # noqa: PTH120 - as it is spelled there
}
# a process's own memory map: torch looks there for loaded libraries
_OF_OWN_MEMORY: Final = frozenset(f"/proc/self/{name}" for name in ("maps", "smaps", "smaps_rollup", "statm", "status"))
_NO_READ = os.O_TRUNC | os.O_EXCL | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
# events whose outcome cannot be compared later
_REFUSED: Final = {
    "ctypes.dlsym": "a function of a library",
    "ctypes.dlsym/handle": "a function of a library",
    "http.client.connect": "the network",
    "os.exec": "another program",
    "os.fork": "another process",
    "os.forkpty": "another process",
    "os.getxattr": "attributes of a file",
    "os.listxattr": "attributes of a file",
    "os.posix_spawn": "another program",
    "os.spawn": "another program",
    "os.system": "another program",
    "pty.spawn": "another program",
    "socket.bind": "the network",
    "socket.connect": "the network",
    "socket.getaddrinfo": "the network",
    "socket.gethostbyaddr": "the network",
    "socket.gethostbyname": "the network",
    "socket.gethostname": "the network",
    "socket.getnameinfo": "the network",
    "socket.sendto": "the network",
    "sqlite3.connect": "a database",
    "urllib.Request": "the network",
}


@dataclass(slots=True)
class Notes:
    """The files, folders and names that a process read or looked for."""

    files: dict[str, Fact] = field(default_factory=dict)
    links: dict[str, Fact] = field(default_factory=dict)
    """Facts of the symbolic links that the process read or tested as links, by path."""
    folders: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Listings of folders, by (part of the folder that matters, path)."""
    names: set[str] = field(default_factory=set)
    """Names of the modules that Python looked for."""
    roots: set[str] = field(default_factory=set)
    """Folders in which Python looked for top-level modules."""
    refused: list[str] = field(default_factory=list)
    """Descriptions of the reads that cannot be noted."""

    def merge(self, other: Notes) -> None:
        """Add the notes of another process.

        If both have different facts of a file, the file changed during the build, and `refused` says so.
        """
        for own, new in ((self.files, other.files), (self.links, other.links), (self.folders, other.folders)):
            mine: dict[Any, Any] = own
            for place, fact in new.items():
                if mine.setdefault(place, fact) != fact:
                    self.refused.append(f"{place} changed during the build")
        self.names |= other.names
        self.roots |= other.roots
        self.refused += other.refused


class _Tracer:
    def __init__(self) -> None:
        self.notes = Notes()
        self.news = Notes()
        self.on = False
        self.source = False
        self.tools: set[str] = set()
        self.left_out: frozenset[str] = frozenset()
        self.private = ""
        self.modules: set[str] = set()
        self.thread = threading.local()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Note no reads of this thread until the ``with`` block ends."""
        before = getattr(self.thread, "quiet", False)
        self.thread.quiet = True
        try:
            yield
        finally:
            self.thread.quiet = before

    @property
    def notes_now(self) -> bool:
        return self.on and not getattr(self.thread, "quiet", False)

    def refuse(self, what: str) -> None:
        self.news.refused.append(what)

    def counts(self, path: str) -> bool:
        return path not in self.left_out and not f"{path}/".startswith(self.private)

    def file(self, path: str) -> None:
        whole = _whole(path)
        if whole.endswith(".pyc"):
            # one without a source stands for itself
            with suppress(ValueError):
                whole = source_from_cache(whole)
        if whole not in self.notes.files and self.counts(whole):
            self.notes.files[whole] = self.news.files[whole] = fact_of(whole)

    def link(self, path: str) -> None:
        whole = _whole(path)
        if whole in self.notes.links or not self.counts(whole):
            return
        fact = link_of(whole)
        if fact is None:
            self.file(path)
        else:
            self.notes.links[whole] = self.news.links[whole] = fact

    def folder(self, path: str, kind: str) -> None:
        whole = _whole(path)
        if (kind, whole) not in self.notes.folders and self.counts(whole):
            listing = listing_of(whole, kind)
            self.notes.folders[kind, whole] = self.news.folders[kind, whole] = listing
            for inside in files_in(whole, kind, listing):
                self.file(inside)

    def name(self, name: str) -> None:
        self.news.names.add(name)

    def roots(self, path: Iterable[object]) -> None:
        self.news.roots.update(_whole(each) for each in path if isinstance(each, str))


_tracer = _Tracer()


def _whole(path: str) -> str:
    # by the folder of now: a source may go to another one. Not normalized: a link may stand before ".."
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109 - thousands of them


# -- what Python tells -------------------------------------------------------------------------------------------------


def _hear(event: str, args: tuple[Any, ...]) -> None:
    heard = _HEARD.get(event)
    if heard is None or not _tracer.notes_now:
        return
    with _tracer.quiet():
        try:
            heard(event, args)
        except Exception as error:  # noqa: BLE001 - the source must not see an error of ours
            _tracer.refuse(f"{event} {args[:1]}: {error}")


def _open(_event: str, args: tuple[Any, ...]) -> None:
    path, _, flags = args
    reads = flags & os.O_ACCMODE != os.O_WRONLY and not flags & _NO_READ
    if reads and not isinstance(path, int):
        _tracer.file(os.fsdecode(path))


def _list(event: str, args: tuple[Any, ...]) -> None:
    path = "." if args[0] is None else args[0]
    if isinstance(path, int):
        _tracer.refuse("a folder by its descriptor")
        return
    # this function, `_hear`, and the one that lists
    caller = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - nothing else tells
    kind = ENTRIES if event == "os.scandir" else _KINDS.get(caller, NAMES)
    _tracer.folder(os.fsdecode(path), kind)


def _import(_event: str, args: tuple[Any, ...]) -> None:
    name, file, path = args[:3]
    _tracer.name(name)
    if path:
        _tracer.roots(path)
    if file:
        _tracer.file(os.fsdecode(file))


def _library(_event: str, args: tuple[Any, ...]) -> None:
    name = args[0]
    if name is None:
        return
    if "/" in os.fsdecode(name):
        _tracer.file(os.fsdecode(name))
    else:
        _tracer.refuse(f"library {name}")


def _start_program(_event: str, args: tuple[Any, ...]) -> None:
    program = os.fsdecode(args[0])
    if not _tracer.source:
        # that is ptxas, which Triton asks for its version
        _tracer.tools.add(program)
        _tracer.file(program)
    elif program not in _tracer.tools:
        _tracer.refuse(f"program {program}")


def _refused(event: str, _args: tuple[Any, ...]) -> None:
    if _tracer.source:
        _tracer.refuse(f"{_REFUSED[event]} ({event})")


_HEARD: Final[dict[str, Callable[[str, tuple[Any, ...]], None]]] = {
    **dict.fromkeys(_REFUSED, _refused),
    "ctypes.dlopen": _library,
    "import": _import,
    "open": _open,
    "os.listdir": _list,
    "os.scandir": _list,
    "subprocess.Popen": _start_program,
}


# -- what Python does not tell -----------------------------------------------------------------------------------------


class _Looks:
    """Import hook that notes the name of each module that Python looks for, and finds none."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if _tracer.notes_now:
            _tracer.name(name)


def _watch(name: str, note: Callable[[str], None]) -> None:
    """Replace the function `name` of `os` by one that first calls `note` with the path."""
    real = getattr(os, name)

    @wraps(real)
    def watched(path: Any, *args: Any, **named: Any) -> Any:
        if _tracer.notes_now and not isinstance(path, int):
            with _tracer.quiet():
                try:
                    if named.get("dir_fd") is not None:
                        _tracer.refuse("a file by the descriptor of its folder")
                    (_tracer.link if named.get("follow_symlinks") is False else note)(os.fsdecode(path))
                except Exception as error:  # noqa: BLE001 - the function itself says what is wrong
                    _tracer.refuse(f"{name}: {error}")
        return real(path, *args, **named)

    setattr(os, name, watched)
    # the sets of `os` that say what a function supports hold the real one
    for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
        if real in able:
            able.add(watched)


def _of_descriptor(_path: str) -> None:
    """Note nothing, since Python reports the opened file by an audit event."""


def start(left_out: tuple[str, ...], private: Path) -> None:
    """Start to note every read of this process and of the processes that it forks.

    Args:
        left_out: paths whose reads are not noted.
        private: a folder that only this build uses; reads in it are not noted.
    """
    _tracer.left_out = _OF_OWN_MEMORY.union(left_out)
    _tracer.private = f"{private}/"
    _note_modules()
    sys.meta_path.insert(0, _Looks())
    for name in ("stat", "access"):
        _watch(name, _tracer.file)
    for name in ("lstat", "readlink"):
        _watch(name, _tracer.link)
    _watch("open", _of_descriptor)
    _tracer.on = True
    sys.addaudithook(_hear)


def source_begins() -> None:
    """Record from now on every read that cannot be noted as refused, because kernel sources begin to run."""
    _tracer.source = True


def stop() -> None:
    """Stop noting reads."""
    _tracer.on = False


def own_work() -> AbstractContextManager[None]:
    """Return a context manager that notes no reads of its block, because they are the build's own."""
    return _tracer.quiet()


def take_notes() -> Notes | None:
    """Return the notes since the last call of this function; None if reads are not noted in this process."""
    if not _tracer.on:
        return None
    with _tracer.quiet():
        _note_modules()
    news, _tracer.news = _tracer.news, Notes()
    return news


def _note_modules() -> None:
    """Note the imported modules, and the folders that Python searched for modules."""
    try:
        for name in sys.modules.keys() - _tracer.modules:
            module = sys.modules.get(name)
            _tracer.modules.add(name)
            _tracer.name(name)
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.startswith("/"):
                _tracer.file(file)
        _tracer.roots(sys.path)
        for place in (*sys.path, *sys.path_importer_cache):
            _tracer.folder(place, MODULES)
    except OSError as error:
        _tracer.refuse(f"{error.filename}: {error}")
