"""The compiler as a build uses it: Triton and kernel sources in processes of their own, one for each source and arch.

A first process imports Triton, and no source. A copy of it becomes the process of one source for one arch, which imports the
source, describes its kernels and names their variants. Copies of that one compile. So a source is imported once for each arch,
and what it patches (Triton, torch, `os.environ`, `sys.modules`) no other source sees. Where the import of a source asks nothing
that archs answer differently, it is the same for all, and they share a process. The build imports neither.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from nojit.aot.device import common_of
from nojit.aot.process import EndedError, Process, SilentError
from nojit.aot.source import KernelSource, SourceImportError, SourcePlace
from nojit.aot.toolchain import record_paths
from nojit.aot.tracing import Notes
from nojit.aot.variant import CompiledVariant, Variant, check_compiled
from nojit.runtime.errors import CompileError, ManifestError, NojitError

__all__ = ["SourceCompiler"]

_COMPILER: Final = "nojit.aot.compiler"
_TRACING: Final = "nojit.aot.tracing"
# what Triton may take to be imported, and to ask its tools
_START_S = 300.0
# what it takes less to import a source anew than to have Triton do again what it does once for a process
_QUICK_S = 0.25
# of the machine's memory, what processes may keep that wait for their sources to be compiled
_MEMORY_SHARE = 8

_Key: TypeAlias = tuple[Path, Path, tuple[str, ...]]
"""What is imported, and from where."""


def _key_of(place: SourcePlace) -> _Key:
    return place.folder.absolute(), place.project.absolute(), place.modules


class SourceCompiler:
    """Implements `nojit.aot.plan.Compiler`, within a `session`. Safe to use from several threads.

    Attributes:
        compile_variant: compiles a variant in a process of its source; a `nojit.aot.pool.WorkerPool` keeps these processes.
        notes: what the processes looked at to describe kernels and to name variants.
    """

    def __init__(self) -> None:
        self.compile_variant = _Compile(self)
        self.notes = Notes()
        self._first: _First | None = None
        self._sources: dict[_Key, list[_Source]] = {}
        self._described: dict[tuple[_Key, str, str], KernelSource] = {}
        self._noted: set[tuple[str, str]] = set()
        self._jobs = 1
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def session(self, timeout_s: float, tell: Callable[[str], None], jobs: int = 1) -> Iterator[None]:
        """Allow processes to be started, which end with the block.

        Args:
            timeout_s: how long the import of a source may take, in seconds.
            tell: takes what sources print while they are imported.
            jobs: how many sources are imported at once.
        """
        self._jobs = jobs
        with tempfile.TemporaryDirectory(prefix="nojit-sources-") as folder:
            self._first = _First(Path(folder), timeout_s, tell, self._take)
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

    def describe(self, place: SourcePlace, arch: str) -> KernelSource:
        """Find a kernel function, as its source defines it for `arch`, and say what it takes and depends on.

        Raises:
            ManifestError: as `nojit.aot.compiler.describe`; or the import does not end, or ends its process.
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

    def prepare(self, asked: Iterable[tuple[SourcePlace, str]]) -> None:
        """Import sources, several at once, for archs for which they will be asked; what fails, fails when it is asked for."""
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
        """Return the identities of the machine code of variants, all of one arch; see `nojit.aot.compiler.variant_key`.

        Raises:
            ManifestError: likewise.
        """
        if not variants:
            return ()
        return self.source(place, variants[0].arch).variant_keys(variants, source, place)

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        """See `nojit.aot.variant.check_compiled`."""
        check_compiled(variant, compiled)

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        """Name what shapes an image for `arch`; see `nojit.aot.compiler.toolchain`."""
        tools: tuple[tuple[str, str], ...] = self._opened().call("toolchain", arch)
        return tools

    def archs(self) -> tuple[str, ...]:
        """List the archs that can be built for here; see `nojit.aot.compiler.archs`."""
        known: tuple[str, ...] = self._opened().call("archs")
        return known

    def min_driver(self, arch: str) -> int:
        """Return the least CUDA version whose driver loads images for `arch` (13000 for 13.0)."""
        version: int = self._opened().call("min_driver", arch)
        return version

    def source(self, place: SourcePlace, arch: str) -> _Source:
        """Return the process of a source that serves an arch; it starts when it is first asked something."""
        first, key = self._opened(), _key_of(place)
        with self._lock:
            known = self._sources.setdefault(key, [])
            for source in known:
                if source.serves(arch):
                    return source
            known.append(_Source(first, place))
            return known[-1]

    def _note(self, source: KernelSource, arch: str) -> None:
        """Tell once of each answer that holds for one device of an arch, and not for all."""
        with self._lock:
            new = [answer for answer in source.of_device if (arch, answer) not in self._noted]
            self._noted.update((arch, answer) for answer in new)
        if new:
            name = common_of(arch).name
            self._opened().tell(
                f"{arch}: sources that ask while they are imported are told, as of {name}: {', '.join(new)}"
            )

    def _take(self, notes: Notes) -> None:
        with self._lock:
            self.notes.merge(notes)

    def _each(self) -> list[_Source]:
        return [source for known in self._sources.values() for source in known]

    def _opened(self) -> _First:
        if self._first is None:
            raise RuntimeError("expected a session that is open")
        return self._first

    def _save_memory(self) -> None:
        """End the processes that were asked nothing for longest, if all together hold too much; they start again when asked."""
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MEMORY_SHARE
        with self._lock:
            *others, last = sorted(self._each(), key=lambda source: source.last_asked)
            total = last.private_bytes + sum(source.private_bytes for source in others)
            for source in others:
                if total > limit:
                    total -= source.private_bytes
                    source.rest()


class _First:
    """The process that has imported Triton and no source; all others are copies of it."""

    def __init__(
        self, folder: Path, timeout_s: float, tell: Callable[[str], None], take: Callable[[Notes], None]
    ) -> None:
        self.timeout_s = timeout_s
        self.tell = tell
        self._take = take
        self._folder = folder
        self._count = 0
        self._process: Process | None = None
        self._warm = False
        self._answers: dict[tuple[str, ...], Any] = {}
        self._lock = threading.Lock()

    def call(self, name: str, *asked: str) -> Any:
        """Ask the compiler something that no source has a say in, of an arch or of all."""
        with self._lock:
            if (name, *asked) not in self._answers:
                self._answers[name, *asked] = self._try(
                    lambda first: first.call(f"{_COMPILER}:{name}", *asked, timeout_s=_START_S)
                )
            return self._answers[name, *asked]

    def copy(self, arch: str, words: Path | None = None, environment: Mapping[str, str] | None = None) -> Process:
        """Start a copy; by default what it prints goes to a file of its own, and it has a temporary folder of its own."""
        # asked here, copies need not ask
        self.call("toolchain", arch)
        with self._lock:
            self._count += 1
            scratch = self._folder / f"source-{self._count}"
            if environment is None:
                scratch.mkdir()
            place, variables = words or scratch.with_suffix(".log"), environment or {"TMPDIR": str(scratch)}
            copy: Process | None = self._try(lambda first: first.fork(place, variables))
        if copy is None:
            raise CompileError("expected Triton to start no threads when it is imported", got="some")
        return copy

    def warm_up(self, arch: str) -> None:
        """Let copies start with what Triton does once for a process that compiles."""
        with self._lock:
            if not self._warm:
                self._try(lambda first: first.call(f"{_COMPILER}:warm_up", arch, timeout_s=_START_S))
                self._warm = True

    @property
    def is_warm(self) -> bool:
        """Whether copies start so."""
        return self._warm

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.close()

    def take_notes(self, process: Process) -> None:
        """Take over what a process noted of what it looked at.

        Raises:
            EndedError: the process is gone.
            SilentError: it does not answer.
        """
        notes: Notes | None = process.call(f"{_TRACING}:take_notes", timeout_s=_START_S)
        if notes is not None:
            self._take(notes)

    def _try(self, ask: Callable[[Process], Any]) -> Any:
        new = self._process is None or not self._process.is_alive()
        if self._process is None or new:
            self.end()
            self._warm = False
            self._process = Process.start(self._folder / "first.log", {"TMPDIR": str(self._folder)})
        try:
            if new:
                self._process.call(f"{_TRACING}:start", record_paths(), self._folder, timeout_s=_START_S)
            answer = ask(self._process)
            self.take_notes(self._process)
        except (EndedError, SilentError) as error:
            self._process.kill()
            got = str(error) or f"no answer within {_START_S:g} s"
            raise CompileError("expected to import Triton", got=got, log=self._process.last_words()) from None
        return answer


class _Source:
    """The process of one source, for one arch, or for all where the source does not ask for it."""

    def __init__(self, first: _First, place: SourcePlace) -> None:
        self.private_bytes = 0
        """How much memory the process had for itself when it was last looked at."""
        self.last_asked = 0.0
        """When, in seconds."""
        self._first = first
        self._place = place
        self._arch = ""
        """Whose answers the source has; empty as long as it asked for none."""
        self._process: Process | None = None
        self._imported: set[str] = set()
        """Kernels that the process has described, and so imported the modules of."""
        self._failures: dict[str, SourceImportError] = {}
        """Why it cannot be imported, by arch: nobody waits for that twice."""
        self._reached: tuple[tuple[str, str], ...] = ()
        """Every module that was imported, with its file; kernels share it."""
        self._import_s = 0.0
        """How long the import took."""
        self._warm = False
        self._told_bytes: int | None = 0
        """How much was told of what the first import printed; None where others print the same."""
        self._copies: list[Process] = []
        self._stopped = False
        self._lock = threading.Lock()

    def serves(self, arch: str) -> bool:
        """Say whether what is imported is what this arch sees."""
        return not self._stopped and self._arch in ("", arch)

    def describe(self, place: SourcePlace, arch: str) -> KernelSource | None:
        """Describe a kernel, as `SourceCompiler.describe`; None if the source turned out to be another arch's meanwhile."""
        with self._lock:
            return self._described(place, arch) if self.serves(arch) else None

    def variant_keys(self, variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
        """See `SourceCompiler.variant_keys`."""
        with self._lock:
            asked, limit = (variants, source, place), self._first.timeout_s + _START_S
            keys: tuple[str, ...] = self._call(place, variants[0].arch, "variant_keys", *asked, timeout_s=limit)
            return keys

    def copy(self, place: SourcePlace, arch: str, words: Path, environment: Mapping[str, str]) -> Process:
        """Start a process that compiles variants of a kernel.

        Args:
            place: of the kernel.
            arch: of the variants.
            words: file for what it prints.
            environment: variables to set.

        Raises:
            ManifestError: the source has to be imported anew, and cannot be.
        """
        with self._lock:
            self._warm_up(arch)
            for retry in (True, False):
                if place.spelling not in self._imported or not self._lives():
                    self._described(place, arch)
                process = self._running(arch)
                try:
                    copy = process.fork(words, environment)
                except EndedError as error:
                    if retry:
                        continue
                    raise CompileError("expected the compiler to finish", got=str(error), where=place.where) from None
                break
            if copy is None:
                # a copy lacks the threads that the source started: it imports the source itself
                copy = self._first.copy(arch, words, environment)
                self._begin(copy, arch)
            self._copies = [*(each for each in self._copies if each.is_alive()), copy]
            return copy

    def _warm_up(self, arch: str) -> None:
        """Have a process that copies for compiling start warm: a new one, where the source is imported in no time."""
        self._first.warm_up(arch)
        process = self._process
        if process is not None and not self._warm and process.is_alive():
            if self._import_s < _QUICK_S:
                process.close()
            else:
                process.call(f"{_COMPILER}:warm_up", arch, timeout_s=_START_S)
                self._warm = True

    def rest(self) -> None:
        """End the process if nothing needs it now."""
        if self._lock.acquire(blocking=False):
            try:
                if self._process is not None and not any(copy.is_alive() for copy in self._copies):
                    self._process.close()
                    self._process = None
                    self.private_bytes = 0
            finally:
                self._lock.release()

    def kill(self) -> None:
        """End the process, whatever it is doing, and start no other."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End the process, once nobody asks it anything any more."""
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
            self._warm = self._first.is_warm
            process = self._process = self._first.copy(arch)
            self._imported.clear()
            if self._stopped:
                # `kill` may have come before there was a process to end
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
            # what is half imported, for this arch, is of no use
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
        text = process.words.read_bytes()[self._told_bytes :]
        self._told_bytes += len(text)
        for line in text.decode(errors="replace").splitlines():
            self._first.tell(line)


class _Home:
    """Where variants of one kernel are compiled; see `nojit.aot.pool.Home`."""

    def __init__(self, source: _Source, place: SourcePlace, arch: str) -> None:
        self.key = (*_key_of(place), arch)
        self.call = f"{_COMPILER}:compile_variant"
        self._source = source
        self._place = place
        self._arch = arch

    def open(self, words: Path, environment: Mapping[str, str]) -> Process:
        """Start a worker."""
        return self._source.copy(self._place, self._arch, words, environment)

    def kill(self) -> None:
        """Give up starting one."""
        self._source.kill()


class _Compile:
    """Compiles a variant, in a new process, unless a pool asks where and keeps the processes."""

    def __init__(self, compiler: SourceCompiler) -> None:
        self._compiler = compiler

    def home(self, variant: Variant, place: SourcePlace) -> _Home:
        """Say in which process a variant is compiled."""
        return _Home(self._compiler.source(place, variant.arch), place, variant.arch)

    def __call__(self, variant: Variant, place: SourcePlace) -> CompiledVariant:
        """Compile a variant."""
        home = self.home(variant, place)
        with tempfile.TemporaryDirectory(prefix="nojit-compile-") as folder:
            process = home.open(Path(folder) / "words.log", {"TMPDIR": folder})
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
