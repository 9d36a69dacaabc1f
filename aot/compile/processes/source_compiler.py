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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from nojit.aot.backends.registry import vendor_of
from nojit.aot.compile.image_checks import check_compiled
from nojit.aot.compile.processes.first_process import COMPILER, FirstProcess
from nojit.aot.compile.processes.process import EndedError, Process
from nojit.aot.compile.processes.source_process import SourceKey, SourceProcess, key_of
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.compile.sources.reads import Notes
from nojit.aot.compile.toolchain.installed_triton import InstalledTriton, check_unnamed, triton_of
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.plan.outline import Outline
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError, NojitError

__all__ = ["SourceCompiler"]

# idle processes of sources may keep one part in so many of the machine's memory
_MEMORY_SHARE = 8
_STARTING: Final = threading.Lock()


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
        self._first: FirstProcess | None = None
        self._sources: dict[SourceKey, list[SourceProcess]] = {}
        self._described: dict[tuple[SourceKey, str, str], KernelSource] = {}
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
            self._first = FirstProcess(Path(folder), timeout_s, tell, self._collect_notes, self._start)
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

    @property
    def tritons(self) -> tuple[tuple[str, str], ...]:
        """The version of its Triton, under an empty name."""
        version: str = self._opened().call("version") if self.triton is None else self.triton.version
        return (("", version),)

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
        asked = key_of(place), place.spelling, arch
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
        kernels: dict[SourceKey, dict[str, SourcePlace]] = {}
        for place, arch in asked:
            kernels.setdefault(key_of(place), {}).setdefault(arch, place)
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
        """See `nojit.aot.compile.image_checks.check_compiled`."""
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

    def source(self, place: SourcePlace, arch: str) -> SourceProcess:
        """Return the process of a source that serves an arch. It starts at its first call.

        `place`: where the kernel's source is.
        """
        first, key = self._opened(), key_of(place)
        with self._lock:
            known = self._sources.setdefault(key, [])
            for source in known:
                if source.serves(arch):
                    return source
            known.append(SourceProcess(first, place, vendor_of(arch).NAME))
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

    def _each(self) -> list[SourceProcess]:
        return [source for known in self._sources.values() for source in known]

    def _opened(self) -> FirstProcess:
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


class _Home:
    """Starter of the workers for one kernel's variants; see `nojit.aot.compile.processes.pool.Home`."""

    def __init__(self, source: SourceProcess, place: SourcePlace, arch: str, triton: InstalledTriton | None) -> None:
        self.key = (*key_of(place), arch, triton)
        self.call = f"{COMPILER}:compile_variant"
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
