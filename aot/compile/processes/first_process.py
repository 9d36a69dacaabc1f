"""The first process of a build, which has imported Triton and no source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from nojit.aot.backends.registry import vendor_of
from nojit.aot.compile.processes.process import EndedError, Process, SilentError
from nojit.aot.compile.sources.reads import Notes
from nojit.aot.compile.toolchain.digests import record_paths
from nojit.runtime.errors import CompileError

__all__ = ["COMPILER", "START_S", "FirstProcess"]

COMPILER: Final = "nojit.aot.compile.triton.compiler"
"""Module whose functions the processes call."""
_TRACING: Final = "nojit.aot.compile.sources.reads"
START_S = 300.0
"""Time limit for importing Triton and for queries of its tools, in seconds."""


class FirstProcess:
    """The first process, which has imported Triton and no source; all others are forked from it."""

    def __init__(
        self,
        folder: Path,
        timeout_s: float,
        tell: Callable[[str], None],
        take: Callable[[Notes], None],
        start: Callable[[Path, Mapping[str, str]], Process],
    ) -> None:
        self.timeout_s = timeout_s
        self.tell = tell
        self._collect_notes = take
        self._start = start
        self._folder = folder
        self._count = 0
        self._process: Process | None = None
        self._warm: set[str] = set()
        """Names of the vendors for whose GPUs it has compiled."""
        self._answers: dict[tuple[str, ...], Any] = {}
        self._lock = threading.Lock()

    def call(self, name: str, *asked: str) -> Any:
        """Return the cached result of a compiler's function that does not depend on a source."""
        with self._lock:
            if (name, *asked) not in self._answers:
                self._answers[name, *asked] = self._try(
                    lambda first: first.call(f"{COMPILER}:{name}", *asked, timeout_s=START_S)
                )
            return self._answers[name, *asked]

    def copy(self, arch: str, log_path: Path | None = None, environment: Mapping[str, str] | None = None) -> Process:
        """Start a copy. By default it has its own output file and its own temporary folder.

        `log_path`: file for the process's output; `environment`: environment variables to set in the process.
        """
        # cached here once, so that no copy computes it again
        self.call("toolchain", arch)
        with self._lock:
            self._count += 1
            scratch = self._folder / f"source-{self._count}"
            if environment is None:
                scratch.mkdir()
            place, variables = log_path or scratch.with_suffix(".log"), environment or {"TMPDIR": str(scratch)}
            copy: Process | None = self._try(lambda first: first.fork(place, variables))
        if copy is None:
            raise CompileError(
                "expected an import of Triton without threads, since it is forked afterwards", got="running threads"
            )
        return copy

    def warm_up(self, arch: str) -> None:
        """Run Triton's one-time initialization for compiling, so that copies start with it done."""
        with self._lock:
            if not self.is_warm(arch):
                self._try(lambda first: first.call(f"{COMPILER}:warm_up", arch, timeout_s=START_S))
                self._warm.add(vendor_of(arch).NAME)

    def is_warm(self, arch: str) -> bool:
        """Return whether `warm_up` has run for an arch of the same vendor."""
        return vendor_of(arch).NAME in self._warm

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.close()

    def take_notes(self, process: Process) -> None:
        """Collect the notes of a process on the files and variables that it read.

        Raises:
            EndedError: the process has ended.
            SilentError: the process does not answer.
        """
        notes: Notes | None = process.call(f"{_TRACING}:take_notes", timeout_s=START_S)
        if notes is not None:
            self._collect_notes(notes)

    def _try(self, ask: Callable[[Process], Any]) -> Any:
        new = self._process is None or not self._process.is_alive()
        if self._process is None or new:
            self.end()
            self._warm.clear()
            self._process = self._start(self._folder / "first.log", {"TMPDIR": str(self._folder)})
        try:
            if new:
                self._process.call(f"{_TRACING}:start", record_paths(), self._folder, timeout_s=START_S)
            answer = ask(self._process)
            self.take_notes(self._process)
        except (EndedError, SilentError) as error:
            self._process.kill()
            got = str(error) or f"no answer within {START_S:g} s"
            raise CompileError(
                "expected to import Triton: install it again with pip install triton",
                got=got,
                log=self._process.last_words(),
            ) from None
        return answer
