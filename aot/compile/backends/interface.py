"""Interface of a vendor's backend: everything that the compiler does differently for another vendor's GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nojit.runtime.table import Launch

__all__ = ["Backend", "Facts", "Limits", "StandIn"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Hardware limits of a thread block on one arch."""

    shared_bytes: int | None
    """Maximum shared memory of a block in bytes; None for an unknown arch."""
    threads: int
    registers: int
    """Maximum number of registers of all threads of a block together."""
    register_unit: int
    """Unit in which the hardware allocates the registers of a thread: the number is rounded up to a multiple of it."""


class Facts(Protocol):
    """Interface of a module with facts of one vendor's GPUs; the module does not import Triton."""

    def limits(self, arch: str) -> Limits:
        """Return the hardware limits of a thread block on an arch."""

    def device_name(self, arch: str) -> str:
        """Return the name of the GPU that a kernel source sees during a build for an arch."""

    def checked_registers(self, image: bytes, launch: Launch, arch: str, where: str) -> int:
        """Return an image's registers per thread, after checking that the image agrees with its launch facts.

        Raises:
            CompileError: the image and the launch facts differ.
        """


class StandIn(Protocol):
    """A simulated GPU of the build's target; it records the queries that kernel sources make."""

    arch: str
    """Arch of the target. Assign another arch to simulate the next target."""
    by_arch: set[str]
    """Queries whose answer depends on the arch."""
    by_device: set[str]
    """Queries whose answer differs between devices of one arch."""

    def answers(self, questions: Collection[str] | None = None) -> list[str]:
        """Return recorded queries as ``query = answer``: all, or only those in `questions`."""


class Backend(Protocol):
    """Interface of a module that compiles for one vendor's GPUs. Only processes of kernel sources load it.

    The module may import Triton.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name of the backend in Triton, such as ``cuda``."""

    @property
    def IMAGE(self) -> str:  # noqa: N802 - a constant of a module
        """Key of the machine code among Triton's compilation results, such as ``cubin``."""

    @property
    def OPTIONS(self) -> Collection[str]:  # noqa: N802 - a constant of a module
        """Names of the compiler options that Triton's backend takes."""

    def folder(self) -> Path:
        """Return the folder of Triton's backend. Its files are inputs of every image."""

    def tools(self, arch: str) -> dict[str, str]:
        """Return the versions and digests of the tools that assemble for an arch, by name.

        Raises:
            CompileError: a tool cannot be used.
            OSError: a tool cannot be read.
        """

    def min_driver(self, arch: str) -> int:
        """Return the oldest version whose driver loads images for an arch."""

    def archs(self) -> tuple[str, ...]:
        """Return the archs that the tools can build, in order; empty if unknown."""

    def target(self, arch: str) -> Any:
        """Return Triton's target object for an arch."""

    def begin(self, arch: str) -> tuple[StandIn, Any]:
        """Make a simulated GPU of an arch answer the queries of this process about its GPU.

        Returns the simulated GPU, and the driver object to give to Triton.
        """

    def driver(self, arch: str) -> Any:
        """Return a driver object for Triton that reports a GPU of an arch."""

    def instrumentation(self) -> object:
        """Return Triton's instrumentation hook, which changes kernels in this process; a false value if none."""

    def logging(self) -> AbstractContextManager[None]:
        """Make the tools write the statistics that `spill_bytes` reads to standard output, until the block ends."""

    def spill_bytes(self, log: str) -> int:
        """Return the number of spilled bytes per thread from the text output of the tools."""

    def shared_layout(self, block: Sequence[int], element: Any, given: Mapping[str, Any]) -> Any:
        """Return Gluon's shared-memory layout for a descriptor's block.

        Args:
            block: dimensions of the block.
            element: Triton's dtype of its elements.
            given: layout settings of the descriptor, by Triton's names.
        """

    def overlaps(self, arch: str) -> bool:
        """Return whether a kernel of an arch can start before the previous one ends."""
