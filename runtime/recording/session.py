"""Recordings of this process: `record` for a block or the rest of a program, `start` for what ``NOJIT_RECORD`` asks for."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from nojit.runtime.autostart import when_imported
from nojit.runtime.base.environment import RECORD, RECORD_FAKE
from nojit.runtime.base.strict_json import Json
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import RecordingError, SettingError
from nojit.runtime.recording import inductor_hooks
from nojit.runtime.recording.file import process_files, read_recording, write_recording
from nojit.runtime.recording.recorder import Recorder, say
from nojit.runtime.recording.triton_hooks import Hooks

__all__ = ["Session", "follow_generated", "merge_parts", "parts_beside", "record", "start"]

_INDUCTOR: Final = "torch._inductor.runtime.triton_heuristics"

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_started: set[Path] = set()


class Session:
    """A recording of this process and its forked children. `stop` ends it, or the end of a ``with`` block, or of the process.

    Attributes:
        path: the recording: a file that `stop` writes, or the folder of ``NOJIT_RECORD``.
    """

    def __init__(self, path: Path, parts: Path) -> None:
        self.path = path
        self._parts = parts
        self._owner = os.getpid()
        self._recorder = Recorder(parts, _facts)
        self._hooks: Hooks | None = None
        self._leave: Callable[[], object] | None = None
        self._unwatch: Callable[[], None] | None = None

    def begin(self) -> Self:
        """Hook into Triton.

        Raises:
            RecordingError: this Triton has none of the functions to hook into, or interprets kernels.
        """
        if arch := os.environ.get(RECORD_FAKE):
            self._simulate(arch)
        self._hooks = Hooks(self._recorder)
        _watch_forks()
        _sessions.add(self)
        atexit.register(self._end)
        _call_at_the_end_of_child(self)
        heuristics = sys.modules.get(_INDUCTOR)
        # if its import is under way, its end calls `follow_generated`
        if not getattr(getattr(heuristics, "__spec__", None), "_initializing", False):
            self._leave = when_imported(_INDUCTOR, self.follow_generated)
        return self

    def _simulate(self, arch: str) -> None:
        """Simulate GPUs for this process, unless it has some already."""
        from nojit.runtime.recording.fake import machine

        def report(what: str, place: str) -> None:
            self._recorder.lack(None, what, _short(place))

        # torchrun tells each rank how many there are on its machine
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
        count = int(ranks) if ranks.isdigit() and ranks != "0" else 1
        with contextlib.suppress(SettingError):
            machine.Machine(arch, count=count, on_launch=lambda _: None, on_problem=report).start()

    def follow_generated(self) -> None:
        """Record the kernels of torch.compile, too."""
        if self._unwatch is None and self._hooks is not None:
            try:
                self._unwatch = inductor_hooks.watch(self._recorder)
            except Exception as error:  # noqa: BLE001 - another torch, and the program goes on
                self._recorder.lack(None, f"expected a torch whose compiled kernels nojit can record, got {error}")

    def refuse(self, error: RecordingError) -> None:
        """Write why nothing is recorded."""
        say(str(error))
        self._recorder.lack(None, str(error))

    def stop(self) -> None:
        """End the recording; write its file if it has one.

        Raises:
            RecordingError: nothing was recorded, or the file cannot be written.
        """
        if self._hooks is None:
            return
        self.flush()
        self._hooks.remove()
        self._hooks = None
        for end in (self._leave, self._unwatch):
            if end is not None:
                end()
        self._recorder.stopped = True
        _sessions.discard(self)
        atexit.unregister(self._end)
        if self._parts != self.path and self._owner == os.getpid():
            merge_parts(self._parts, self.path)

    def flush(self) -> None:
        """Write the launches that are only counted in memory so far."""
        self._recorder.flush()

    def follow_fork(self) -> None:
        """Go on in a forked child."""
        self._recorder.follow_fork()
        _call_at_the_end_of_child(self)

    def _end(self) -> None:
        try:
            self.stop()
        except RecordingError as error:
            say(str(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            # the program's own failure counts
            self._end()


def record(path: str | os.PathLike[str]) -> Session:
    """Record every Triton kernel that this process launches from now on, and return the running recording.

    Use it as a context manager, or call `stop`; otherwise the recording ends with the process. Forked children are recorded too. For
    programs that start other processes, use ``nojit record`` or ``NOJIT_RECORD``.

    Args:
        path: file to write, such as ``serve.nojitrec``. It replaces an existing one.

    Raises:
        RecordingError: this Triton cannot be recorded, or the folder cannot be written.
    """
    target = Path(path).absolute()
    parts = parts_beside(target)
    try:
        return Session(target, parts).begin()
    except BaseException:
        shutil.rmtree(parts, ignore_errors=True)
        raise


def start() -> None:
    """Record this process into the folder that ``NOJIT_RECORD`` names; if that is impossible, say so and go on."""
    folder = Path(os.environ[RECORD])
    # torch and Triton both ask for it where GPUs are simulated, and the simulation imports Triton
    if folder in _started:
        return
    _started.add(folder)
    session = Session(folder, folder)
    try:
        session.begin()
    except RecordingError as error:
        session.refuse(error)


def follow_generated() -> None:
    """Let every recording of this process follow torch.compile, whose Inductor has just been imported."""
    for session in list(_sessions):
        session.follow_generated()


def parts_beside(path: Path) -> Path:
    """Make a folder beside a recording, for one file of each process.

    Raises:
        RecordingError: the folder cannot be made, or the recording cannot be a file.
    """
    # the program may run for hours before anything is written there
    if path.is_dir():
        raise RecordingError("expected a file to write the recording to", got="a folder", where=str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{path.name}.parts-", dir=path.parent))
    except OSError as error:
        what = "expected a folder to write the recording to"
        raise RecordingError(what, got=worded(error), where=str(path.parent)) from None


def merge_parts(parts: Path, path: Path) -> None:
    """Merge the files of a folder into one and delete the folder. It stays if it cannot be merged.

    Args:
        parts: the folder.
        path: file to write.

    Raises:
        RecordingError: no process recorded anything, a file is damaged, or the recording cannot be written.
    """
    if not process_files(parts):
        shutil.rmtree(parts, ignore_errors=True)
        what = "expected a program that launches kernels of Triton: nothing was recorded"
        raise RecordingError(what, where=str(path))
    write_recording(read_recording(parts), path)
    shutil.rmtree(parts, ignore_errors=True)


def _facts(arch: str, device: Any) -> dict[str, Json]:
    """Return the facts of this process for the first line of its file."""
    from importlib.metadata import version  # slow to import

    torch, triton = sys.modules.get("torch"), sys.modules.get("triton")
    return {
        "nojit": version("nojit"),
        "python": platform.python_version(),
        "triton": str(getattr(triton, "__version__", "")),
        "torch": str(getattr(torch, "__version__", "")),
        "arch": arch,
        **_device_facts(torch, device),
        "fake": bool(os.environ.get(RECORD_FAKE)),
    }


def _short(place: str) -> str:
    """Return a place in a file, ``folder/file.py:12``, without the machine's folders above."""
    return "/".join(Path(place).parts[-2:])


def _device_facts(torch: Any, device: Any) -> dict[str, Json]:
    """Return name, multiprocessors and memory of a GPU; an empty name and zeros unless torch uses it already."""
    with contextlib.suppress(Exception):
        if device is not None and torch.cuda.is_initialized():
            found = torch.cuda.get_device_properties(device)
            sizes = {"multiprocessors": found.multi_processor_count, "memory_bytes": found.total_memory}
            return {"device": str(torch.cuda.get_device_name(device)), **sizes}
    return {"device": "", "multiprocessors": 0, "memory_bytes": 0}


def _watch_forks() -> None:
    global _watching  # noqa: PLW0603 - a handler cannot be taken back
    if not _watching:
        os.register_at_fork(after_in_child=_follow_fork)
        _watching = True


_watching = False


def _follow_fork() -> None:
    for session in list(_sessions):
        session.follow_fork()


def _call_at_the_end_of_child(session: Session) -> None:
    """Let a child of `multiprocessing` flush: it ends without Python's exit handlers."""
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def finalize(found: Session) -> None:
        util.Finalize(found, found.flush, exitpriority=0)

    with contextlib.suppress(Exception):
        # a child that is about to start drops finalizers first, and calls this afterwards
        util.register_after_fork(session, finalize)
        finalize(session)
