"""The process of one kernel source, a fork of the first one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from nojit.aot.backends.registry import vendor_of
from nojit.aot.compile.processes.first_process import COMPILER, START_S, FirstProcess
from nojit.aot.compile.processes.process import EndedError, Process, SilentError
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.plan.function_facts import KernelSource, SourceImportError, SourcePlace
from nojit.aot.plan.outline import Outline
from nojit.aot.variants.variant import Variant
from nojit.runtime.errors import CompileError, ManifestError

__all__ = ["SourceKey", "SourceProcess", "key_of"]

# a source that imports in less time is imported again, in a copy of the warm first process; others warm up themselves
_QUICK_S = 0.25

SourceKey: TypeAlias = tuple[Path, Path, tuple[str, ...]]
"""Folders and modules of a source: entries with equal ones share processes."""


def key_of(place: SourcePlace) -> SourceKey:
    """Return what entries of manifests have in common that share processes."""
    return place.folder.absolute(), place.project.absolute(), place.modules


class SourceProcess:
    """The process of one source, for one arch, or for all archs of a vendor if the source's import does not depend on them."""

    def __init__(self, first: FirstProcess, place: SourcePlace, vendor: str) -> None:
        self.private_bytes = 0
        """Private memory of the process, in bytes, at its last use."""
        self.last_asked = 0.0
        """Time of its last use, in seconds."""
        self._first = first
        self._place = place
        self._vendor = vendor
        self._arch = ""
        """The arch for which the source was imported; empty if the import does not depend on the arch."""
        self._process: Process | None = None
        self._imported: set[str] = set()
        """Kernels that the process has described: their modules are imported."""
        self._failures: dict[str, SourceImportError] = {}
        """Error of a failed import, by arch, so that it is not tried again."""
        self._reached: tuple[tuple[str, str], ...] = ()
        """Every imported module with its file; the same for all kernels."""
        self._import_s = 0.0
        """Duration of the import."""
        self._warm = False
        self._told_bytes: int | None = 0
        """Number of bytes of output passed on so far; None after the first import, since later imports print the same."""
        self._copies: list[Process] = []
        self._stopped = False
        self._lock = threading.Lock()

    def serves(self, arch: str) -> bool:
        """Return whether the process serves an arch: it simulates GPUs of one vendor."""
        return not self._stopped and self._vendor == vendor_of(arch).NAME and self._arch in ("", arch)

    def describe(self, place: SourcePlace, arch: str) -> KernelSource | None:
        """Describe a kernel as `SourceCompiler.describe` does; return None if the process now serves another arch.

        `place`: where the kernel's source is.
        """
        with self._lock:
            return self._described(place, arch) if self.serves(arch) else None

    def outline(self, place: SourcePlace, arch: str) -> Outline:
        """See `SourceCompiler.outline`."""
        with self._lock:
            self._described(place, arch)
            outline: Outline = self._call(place, arch, "outline", place, arch, timeout_s=self._first.timeout_s)
            return outline

    def variant_keys(self, variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
        """See `SourceCompiler.variant_keys`."""
        with self._lock:
            asked, limit = (variants, source, place), self._first.timeout_s + START_S
            keys: tuple[str, ...] = self._call(place, variants[0].arch, "variant_keys", *asked, timeout_s=limit)
            return keys

    def captured(self, place: SourcePlace, arch: str, names: Sequence[str]) -> Captured:
        """See `SourceCompiler.captured`."""
        with self._lock:
            found: Captured = self._call(
                place, arch, "captured", place, arch, tuple(names), timeout_s=self._first.timeout_s
            )
            return found

    def copy(self, place: SourcePlace, arch: str, log_path: Path, environment: Mapping[str, str]) -> Process:
        """Start a process that compiles variants of a kernel.

        Args:
            place: place of the kernel.
            arch: arch of the variants.
            log_path: file for its output.
            environment: variables to set.

        Raises:
            ManifestError: the source had to be imported again, and the import failed.
        """
        with self._lock:
            self._warm_up(arch)
            for retry in (True, False):
                if place.spelling not in self._imported or not self._lives():
                    self._described(place, arch)
                process = self._running(arch)
                try:
                    copy = process.fork(log_path, environment)
                except EndedError as error:
                    if retry:
                        continue
                    what, log = "expected to start a compile worker", process.last_words()
                    raise CompileError(what, got=str(error), where=place.where, log=log) from None
                break
            if copy is None:
                # the source started threads, which a fork would lose: a new process imports the source itself
                copy = self._first.copy(arch, log_path, environment)
                self._begin(copy, arch)
            self._copies = [*(each for each in self._copies if each.is_alive()), copy]
            return copy

    def _warm_up(self, arch: str) -> None:
        """Make the process warm before it is forked: start a new one if the import is quick, else warm it up."""
        self._first.warm_up(arch)
        process = self._process
        if process is not None and not self._warm and process.is_alive():
            if self._import_s < _QUICK_S:
                process.close()
            else:
                process.call(f"{COMPILER}:warm_up", arch, timeout_s=START_S)
                self._warm = True

    def rest(self) -> None:
        """End the process if nothing uses it now."""
        if self._lock.acquire(blocking=False):
            try:
                if self._process is not None and not any(copy.is_alive() for copy in self._copies):
                    self._process.close()
                    self._process = None
                    self.private_bytes = 0
            finally:
                self._lock.release()

    def kill(self) -> None:
        """End the process at once, and start no other."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End the process and release it. Call when no other thread uses it."""
        self.kill()
        if self._process is not None:
            self._process.close()

    def _lives(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def _running(self, arch: str) -> Process:
        self.last_asked = time.monotonic()
        process = self._process
        if process is None or not process.is_alive():
            if process is not None:
                process.close()
                self._told_bytes = None
            self._warm = self._first.is_warm(arch)
            process = self._process = self._first.copy(arch)
            self._imported.clear()
            if self._stopped:
                # `kill` may have run before this process existed
                process.kill()
                raise CancelledError
            self._begin(process, arch)
        return process

    def _begin(self, process: Process, arch: str) -> None:
        process.call(f"{COMPILER}:begin", self._place, arch, timeout_s=START_S)

    def _described(self, place: SourcePlace, arch: str) -> KernelSource:
        failure = self._failures.get(arch)
        if failure is not None:
            raise SourceImportError(failure.what, got=failure.got, where=place.where)
        limit, started = self._first.timeout_s, time.monotonic()
        try:
            source: KernelSource = self._call(place, arch, "describe", place, arch, timeout_s=limit)
        except ManifestError as error:
            if isinstance(error, SourceImportError):
                self._failures[arch] = error
            # a half-imported source cannot be used
            if self._process is not None:
                self._process.kill()
            raise
        if source.of_arch:
            self._arch = arch
        if not {*source.reached} <= {*self._reached}:
            self._reached = tuple(sorted({*self._reached, *source.reached}))
        source = replace(source, reached=self._reached)
        if not self._imported:
            self._import_s = time.monotonic() - started
        self._imported.add(place.spelling)
        self.private_bytes = self._running(arch).private_bytes()
        return source

    def _call(self, place: SourcePlace, arch: str, name: str, *args: Any, timeout_s: float) -> Any:
        process = self._running(arch)
        module = place.modules[0]
        try:
            answer = process.call(f"{COMPILER}:{name}", *args, timeout_s=timeout_s)
            self._first.take_notes(process)
        except SilentError:
            process.kill()
            what = f"expected the import of {module} to end within {timeout_s:g} s; --timeout S allows longer"
            raise SourceImportError(what, where=place.where) from None
        except EndedError as error:
            words = process.last_words().splitlines()[-1:]
            got = ": ".join([f"{error} of its process", *words])
            raise SourceImportError(f"expected to import {module}", got=got, where=place.where) from None
        else:
            return answer
        finally:
            self._relay(process)

    def _relay(self, process: Process) -> None:
        if self._told_bytes is None:
            return
        text = process.log_path.read_bytes()[self._told_bytes :]
        self._told_bytes += len(text)
        for line in text.decode(errors="replace").splitlines():
            self._first.tell(line)
