"""The compiler of a build: Triton and kernel sources run in separate processes, one for each source and arch.

A first process imports Triton and no source. A fork of it imports one source for one arch, describes its kernels and
returns keys of their variants. Forks of that one compile. So each source is imported once per arch, and its patches
(Triton, torch, `os.environ`, `sys.modules`) do not affect other sources. If the import of a source makes no query whose
answer depends on the arch, all archs of a vendor share one process. The build's own process imports neither Triton nor sources.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from nojit.aot.backends.registry import vendor_of
from nojit.aot.compile.images import check_compiled
from nojit.aot.compile.processes.process import EndedError, Process, SilentError
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.compile.sources.reads import Notes
from nojit.aot.compile.toolchain.digests import record_paths
from nojit.aot.compile.toolchain.installed_triton import InstalledTriton, check_unnamed, triton_of
from nojit.aot.plan.outline import Outline
from nojit.aot.plan.source import KernelSource, SourceImportError, SourcePlace
from nojit.aot.plan.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError, ManifestError, NojitError

__all__ = ["SourceCompiler"]

_COMPILER: Final = "nojit.aot.compile.triton.compiler"
_TRACING: Final = "nojit.aot.compile.sources.reads"
# time limit for importing Triton and for queries of its tools
_START_S = 300.0
# a source that imports in less time is imported again, in a copy of the warm first process; others warm up themselves
_QUICK_S = 0.25
# idle processes of sources may keep one part in so many of the machine's memory
_MEMORY_SHARE = 8
_STARTING: Final = threading.Lock()

_Key: TypeAlias = tuple[Path, Path, tuple[str, ...]]
"""Folders and modules of a source: entries with equal ones share processes."""


def _key_of(place: SourcePlace) -> _Key:
    return place.folder.absolute(), place.project.absolute(), place.modules


class SourceCompiler:
    """Compiler that implements `nojit.aot.plan.compiler_interface.Compiler` within a `session`. Thread-safe.

    Attributes:
        compile_variant: compiles a variant in a process of its source; `nojit.aot.compile.processes.pool.WorkerPool` keeps the processes.
        notes: files and variables that the processes read to describe kernels and to compute keys.
        triton: the Triton that the processes import; None for that of the build's environment.

    Args:
        triton: the Triton to compile with.
        pin: makes processes that start meanwhile use certain assemblers, as `nojit.aot.backends.registry.pin` does.
    """

    def __init__(
        self,
        triton: InstalledTriton | None = None,
        pin: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.compile_variant = _Compile(self)
        self.notes = Notes()
        self.triton = triton
        self._pin = pin
        self._first: _First | None = None
        self._sources: dict[_Key, list[_Source]] = {}
        self._described: dict[tuple[_Key, str, str], KernelSource] = {}
        self._noted: set[tuple[str, str]] = set()
        self._jobs = 1
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def session(self, timeout_s: float, tell: Callable[[str], None], jobs: int = 1) -> Iterator[None]:
        """Allow processes to start until the block ends; all of them end with it.

        Args:
            timeout_s: time limit for the import of a source, in seconds.
            tell: receives the output of imports.
            jobs: number of imports that run at once.
        """
        self._jobs = jobs
        with tempfile.TemporaryDirectory(prefix="nojit-sources-") as folder:
            self._first = _First(Path(folder), timeout_s, tell, self._collect_notes, self._start)
            try:
                yield
            finally:
                for source in self._each():
                    source.end()
                self._first.end()
                self._sources.clear()
                self._described.clear()
                self._noted.clear()
                self._first = None

    @property
    def toolchains(self) -> tuple[str, ...]:
        """No names: `nojit.aot.compile.by_toolchain.ToolchainCompiler` names toolchains."""
        return ()

    def of(self, names: Sequence[str]) -> SourceCompiler:
        """Return this compiler.

        Raises:
            ManifestError: `names` is not empty.
        """
        check_unnamed(names)
        return self

    def _start(self, log_path: Path, environment: Mapping[str, str]) -> Process:
        folder = None if self.triton is None else self.triton.folder
        # pins are variables of this process while another starts, and belong to one Triton
        with _STARTING, triton_of(self.triton), self._pin():
            return Process.start(log_path, environment, folder)

    def describe(self, place: SourcePlace, arch: str) -> KernelSource:
        """Return the params and dependencies of a kernel function, as its source defines it for `arch`.

        `place`: where the kernel's source is.

        Raises:
            ManifestError: as `nojit.aot.compile.triton.compiler.describe`, or the import exceeds its time or ends its process.
        """
        asked = _key_of(place), place.spelling, arch
        known = self._described.get(asked)
        while known is None:
            known = self.source(place, arch).describe(place, arch)
            if known is not None:
                self._described[asked] = known
                self._save_memory()
                self._note(known, arch)
        return known

    def outline(self, place: SourcePlace, arch: str) -> Outline:
        """Return what the source of a kernel function tells about how it is called.

        `place`: where the kernel's source is.

        Raises:
            ManifestError: as `describe`.
        """
        return self.source(place, arch).outline(place, arch)

    def captured(self, place: SourcePlace, arch: str, names: Sequence[str]) -> Captured:
        """Return the source closures with which another machine compiles a kernel's variants.

        Args:
            place: where the kernel's source is.
            arch: the target.
            names: functions that the variants take as constexprs, as `FunctionRef` spells them.

        Raises:
            ManifestError: as `describe`, or the text of a function cannot be read.
        """
        return self.source(place, arch).captured(place, arch, names)

    def prepare(self, asked: Iterable[tuple[SourcePlace, str]]) -> None:
        """Import sources in parallel, each for its archs. A failed import is reported by the later `describe`.

        `asked`: the sources, each with an arch.
        """
        kernels: dict[_Key, dict[str, SourcePlace]] = {}
        for place, arch in asked:
            kernels.setdefault(_key_of(place), {}).setdefault(arch, place)
        if min(self._jobs, len(kernels)) < 2:
            return
        with ThreadPoolExecutor(self._jobs, thread_name_prefix="nojit-source") as pool:
            waiting = [pool.submit(self._prepare, archs) for archs in kernels.values()]
            try:
                for each in waiting:
                    each.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for source in self._each():
                    source.kill()
                raise

    def _prepare(self, archs: Mapping[str, SourcePlace]) -> None:
        for arch, place in archs.items():
            with contextlib.suppress(NojitError):
                self.describe(place, arch)

    def variant_keys(self, variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
        """Return the keys of variants, all of one arch; see `nojit.aot.compile.triton.compiler.variant_key`.

        `place`: where the kernel's source is.

        Raises:
            ManifestError: as `nojit.aot.compile.triton.compiler.variant_key`.
        """
        if not variants:
            return ()
        return self.source(place, variants[0].arch).variant_keys(variants, source, place)

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        """See `nojit.aot.compile.images.check_compiled`."""
        check_compiled(variant, compiled)

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        """Return the inputs of every image for `arch`; see `nojit.aot.compile.triton.compiler.toolchain`."""
        tools: tuple[tuple[str, str], ...] = self._opened().call("toolchain", arch)
        found = dict(tools).get("triton")
        if self.triton is not None and found != self.triton.version:
            # such as a module that Python imports at its start, and that imports Triton
            what = (
                f"expected the processes of the build to import Triton {self.triton.version} from {self.triton.folder}"
            )
            raise CompileError(what, got=f"Triton {found}")
        return tools

    def archs(self) -> tuple[str, ...]:
        """Return the archs that this toolchain can build; see `nojit.aot.compile.triton.compiler.archs`."""
        known: tuple[str, ...] = self._opened().call("archs")
        return known

    def min_driver(self, arch: str) -> int:
        """Return the oldest CUDA version whose driver loads images for `arch` (13000 for 13.0)."""
        version: int = self._opened().call("min_driver", arch)
        return version

    def source(self, place: SourcePlace, arch: str) -> _Source:
        """Return the process of a source that serves an arch. It starts at its first call.

        `place`: where the kernel's source is.
        """
        first, key = self._opened(), _key_of(place)
        with self._lock:
            known = self._sources.setdefault(key, [])
            for source in known:
                if source.serves(arch):
                    return source
            known.append(_Source(first, place, vendor_of(arch).NAME))
            return known[-1]

    def _note(self, source: KernelSource, arch: str) -> None:
        """Report queries of a source's import about the GPU whose answers differ between devices of the arch, each once."""
        with self._lock:
            new = [answer for answer in source.of_device if (arch, answer) not in self._noted]
            self._noted.update((arch, answer) for answer in new)
        if new:
            name = vendor_of(arch).device_name(arch)
            self._opened().tell(
                f"{arch}: imports of sources asked about the GPU and got the answers of a common device, {name}: {', '.join(new)}"
            )

    def _collect_notes(self, notes: Notes) -> None:
        with self._lock:
            self.notes.merge(notes)

    def _each(self) -> list[_Source]:
        return [source for known in self._sources.values() for source in known]

    def _opened(self) -> _First:
        if self._first is None:
            raise RuntimeError("expected an open session")
        return self._first

    def _save_memory(self) -> None:
        """End the least recently used processes if all together use too much memory. They start again on demand."""
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MEMORY_SHARE
        with self._lock:
            *others, last = sorted(self._each(), key=lambda source: source.last_asked)
            total = last.private_bytes + sum(source.private_bytes for source in others)
            for source in others:
                if total > limit:
                    total -= source.private_bytes
                    source.rest()


class _First:
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
                    lambda first: first.call(f"{_COMPILER}:{name}", *asked, timeout_s=_START_S)
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
                self._try(lambda first: first.call(f"{_COMPILER}:warm_up", arch, timeout_s=_START_S))
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
        notes: Notes | None = process.call(f"{_TRACING}:take_notes", timeout_s=_START_S)
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
                self._process.call(f"{_TRACING}:start", record_paths(), self._folder, timeout_s=_START_S)
            answer = ask(self._process)
            self.take_notes(self._process)
        except (EndedError, SilentError) as error:
            self._process.kill()
            got = str(error) or f"no answer within {_START_S:g} s"
            raise CompileError(
                "expected to import Triton: install it again with pip install triton",
                got=got,
                log=self._process.last_words(),
            ) from None
        return answer


class _Source:
    """The process of one source, for one arch, or for all archs of a vendor if the source's import does not depend on them."""

    def __init__(self, first: _First, place: SourcePlace, vendor: str) -> None:
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
            asked, limit = (variants, source, place), self._first.timeout_s + _START_S
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
                process.call(f"{_COMPILER}:warm_up", arch, timeout_s=_START_S)
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
        process.call(f"{_COMPILER}:begin", self._place, arch, timeout_s=_START_S)

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
            answer = process.call(f"{_COMPILER}:{name}", *args, timeout_s=timeout_s)
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


class _Home:
    """Starter of the workers for one kernel's variants; see `nojit.aot.compile.processes.pool.Home`."""

    def __init__(self, source: _Source, place: SourcePlace, arch: str, triton: InstalledTriton | None) -> None:
        self.key = (*_key_of(place), arch, triton)
        self.call = f"{_COMPILER}:compile_variant"
        self._source = source
        self._place = place
        self._arch = arch

    def open(self, log_path: Path, environment: Mapping[str, str]) -> Process:
        """Start a worker.

        `log_path`: file for the process's output; `environment`: environment variables to set in the process.
        """
        return self._source.copy(self._place, self._arch, log_path, environment)

    def kill(self) -> None:
        """Cancel the start of a worker."""
        self._source.kill()


class _Compile:
    """Function that compiles a variant in a new process. A pool calls `home` instead, and keeps the processes."""

    def __init__(self, compiler: SourceCompiler) -> None:
        self._compiler = compiler

    def home(self, variant: Variant, place: SourcePlace) -> _Home:
        """Return the starter of the workers for a variant.

        `place`: where the kernel's source is.
        """
        return _Home(self._compiler.source(place, variant.arch), place, variant.arch, self._compiler.triton)

    def __call__(self, variant: Variant, place: SourcePlace) -> CompiledVariant:
        """Compile a variant.

        `place`: where the kernel's source is.
        """
        home = self.home(variant, place)
        with tempfile.TemporaryDirectory(prefix="nojit-compile-") as folder:
            process = home.open(Path(folder) / "worker.log", {"TMPDIR": folder})
            try:
                compiled: CompiledVariant = process.call(home.call, variant, place, timeout_s=1e6)
            except EndedError as error:
                raise CompileError(
                    "expected the compiler to finish", got=str(error), log=process.last_words()
                ) from None
            finally:
                process.kill()
                process.close()
        return compiled
