"""Facts of a build that a remote executor uses: its compiler, its archs, and time limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from nojit.aot.compile.sources.captured import Captured
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.remote.batches import JOB_S
from nojit.aot.remote.messages import (
    Setup,
    Tools,
)
from nojit.aot.variants.variant import CompiledVariant, Variant

__all__ = ["Build", "Limits", "LocalCompiler"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Times after which the executor gives something up, in seconds."""

    connect_s: float = 10.0
    """For one try to connect."""
    reconnect_s: float = 60.0
    """For all tries after the connection was lost, and for those at the start."""
    answer_s: float = 20.0
    """For a scheduler's answer to a small question."""
    describe_s: float = 120.0
    """For a worker's description, which imports Triton."""
    workers_s: float = 300.0
    """For the first worker that can be used, and for the next one after the last has gone."""
    late_s: float = 30.0
    """A job that takes longer than this, and than three times what it should, is sent to an idle worker too."""
    silent_s: float = 15.0
    """Jobs of a worker that has sent no heartbeat for so long are sent to others too. The limit grows with the farm, as the time between
    two heartbeats does."""
    look_s: float = 1.0
    """Between two looks at the scheduler's workers."""
    job_s: float = JOB_S
    """Time that a job should take."""


class LocalCompiler(Protocol):
    """The compiler of this machine, as far as the executor uses it."""

    def captured(self, place: SourcePlace, arch: str, names: Sequence[str]) -> Captured:
        """See `nojit.aot.compile.processes.source_compiler.SourceCompiler.captured`."""

    def toolchain(self, arch: str) -> Tools:
        """See `nojit.aot.plan.compiler_interface.Compiler.toolchain`."""

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        """See `nojit.aot.plan.compiler_interface.Compiler.check_compiled`."""

    @property
    def compile_variant(self) -> Callable[[Variant, SourcePlace], CompiledVariant]:
        """See `nojit.aot.plan.compiler_interface.Compiler.compile_variant`."""


@dataclass(frozen=True, slots=True)
class Build:
    """The facts of a build that the executor uses."""

    compiler: LocalCompiler
    """The build's compiler."""
    setup: Setup
    """Common to all jobs."""
    archs: tuple[str, ...]
    """The archs that the build will probably need, so that workers get ready; `RemoteExecutor.expect` names them for sure."""
    open_local: Callable[[], Executor]
    """Starts the executor for variants that cannot travel."""
    tell: Callable[[str], None]
    """Called with warnings, from the executor's thread."""
