"""A process, or a part of it, that runs on simulated GPUs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nojit.runtime.errors import SettingError
from nojit.runtime.recording.fake.answers import Gpu, answer_imports
from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.problems import OnProblem, Problems
from nojit.runtime.target import arch_number

if TYPE_CHECKING:
    from nojit.runtime.recording.fake.launches import OnLaunch, Trials

__all__ = ["Machine", "gpu"]


class Machine:
    """Simulated GPUs for torch, Triton and NVML in this process.

    Args:
        arch: arch of the GPUs, ``sm_90``.
        count: number of GPUs.
        cuda: CUDA version that a torch without CUDA reports.
        on_launch: called with each launch and each warmup of a Triton kernel, a `Launch`.
        on_problem: called with the request that no simulated GPU can answer, and its line; then the
            program stops there.
        trials: what autotuners do instead of timing. ``first`` takes the first config; ``all`` launches every config
            once as a trial, then takes the first.

    Attributes:
        launches: the launches, if `on_launch` is None.
    """

    def __init__(
        self,
        arch: str,
        *,
        count: int = 1,
        cuda: str = "13.0",
        on_launch: OnLaunch | None = None,
        on_problem: OnProblem | None = None,
        trials: Trials = "first",
    ) -> None:
        arch_number(arch)
        self.launches: list[Any] = []
        self._gpu = Gpu(arch, cuda, count)
        self._on_launch = on_launch or self.launches.append
        self._problems = Problems(on_problem)
        self._trials = trials
        self._stops = contextlib.ExitStack()

    def start(self) -> None:
        """Simulate the GPUs from now on. Import torch and Triton.

        Raises:
            SettingError: this machine or another one is already started.
        """
        global _started  # noqa: PLW0603 - torch and Triton have one driver for each process
        if _started is not None:
            raise SettingError("expected no simulated GPU in this process", got=f"one of {_started._gpu.arch}")  # noqa: SLF001
        _started = self
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        patches = Patches()
        self._stops.callback(patches.undo)
        hook = answer_imports(self._gpu, patches)
        self._stops.callback(lambda: sys.meta_path.remove(hook))
        from nojit.runtime.recording.fake.autocast import replace_kernels  # needs torch
        from nojit.runtime.recording.fake.tensors import Tensors  # needs torch
        from nojit.runtime.recording.fake.torch_cuda import patch_torch  # needs torch

        patch_torch(self._gpu, self._problems, patches)
        tensors = Tensors(self._gpu, self._problems, patches)
        self._stops.callback(replace_kernels(tensors.is_own))
        self._stops.callback(tensors.stop)
        tensors.start()
        from nojit.runtime.recording.fake.launches import Launches  # needs Triton

        launches = Launches(self._gpu, self._on_launch, self._trials, patches)
        self._stops.callback(launches.stop)
        launches.start()
        from nojit.runtime.recording.fake.compiled import Compiles  # needs torch

        compiles = Compiles(self._gpu, launches, self._problems, patches, tensors.mode)
        self._stops.callback(compiles.stop)
        compiles.start()

    def stop(self) -> None:
        """Stop the simulation: torch and Triton report the machine's own GPUs again."""
        global _started  # noqa: PLW0603 - as in start
        try:
            self._stops.close()
        finally:
            if _started is self:
                _started = None


_started: Machine | None = None


@contextlib.contextmanager
def gpu(arch: str, **settings: Any) -> Iterator[Machine]:
    """Run a block on simulated GPUs of an arch; `settings` are those of `Machine`.

    Example:
        >>> with gpu("sm_90", on_launch=print):
        ...     program()
    """
    machine = Machine(arch, **settings)
    machine.start()
    try:
        yield machine
    finally:
        machine.stop()
