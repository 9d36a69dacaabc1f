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
    """Limits of a block of threads."""

    shared_bytes: int | None
    """Maximum shared memory, in bytes; None for an unknown arch."""
    threads: int
    registers: int
    """Maximum registers of all threads together."""
    register_unit: int
    """The hardware allocates registers of a thread in multiples of this."""


class Facts(Protocol):
    """Facts of one vendor's GPUs, as a module without Triton."""

    def limits(self, arch: str) -> Limits:
        """Return the limits of a block on an arch."""

    def device_name(self, arch: str) -> str:
        """Return the name of the device that a source sees in place of an arch."""

    def checked_registers(self, image: bytes, launch: Launch, arch: str, where: str) -> int:
        """Check an image against its launch facts, and return its registers per thread.

        Raises:
            CompileError: the image and the launch facts differ.
        """


class StandIn(Protocol):
    """A device that stands for the target, with a record of its queries."""

    arch: str
    """Arch of the target; assign another for the next target."""
    by_arch: set[str]
    """Queries whose answer depends on the arch."""
    by_device: set[str]
    """Queries whose answer differs between devices of one arch."""

    def answers(self, questions: Collection[str] | None = None) -> list[str]:
        """Return recorded queries with their answers: all, or only `questions`."""


class Backend(Protocol):
    """One vendor's half of the compiler, as a module. It may import Triton: only processes of kernel sources load it."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Triton's name of the backend."""

    @property
    def IMAGE(self) -> str:  # noqa: N802 - a constant of a module
        """Triton's name of the image among its results."""

    @property
    def OPTIONS(self) -> Collection[str]:  # noqa: N802 - a constant of a module
        """The options that Triton's backend takes."""

    def folder(self) -> Path:
        """Return the folder of Triton's backend, whose files determine images."""

    def tools(self, arch: str) -> dict[str, str]:
        """Return versions and digests of the tools that assemble for an arch.

        Raises:
            CompileError: a tool cannot be used.
            OSError: a tool cannot be read.
        """

    def min_driver(self, arch: str) -> int:
        """Return the oldest version whose driver loads images for an arch."""

    def archs(self) -> tuple[str, ...]:
        """Return the archs that the tools can build, in order; empty if unknown."""

    def target(self, arch: str) -> Any:
        """Return an arch as Triton's target."""

    def begin(self, arch: str) -> tuple[StandIn, Any]:
        """Make a device of an arch answer the queries of this process; return it and its driver for Triton."""

    def driver(self, arch: str) -> Any:
        """Return a driver for Triton that answers for an arch."""

    def instrumentation(self) -> object:
        """Return the instrumentation that changes kernels in this process; a false value without any."""

    def logging(self) -> AbstractContextManager[None]:
        """Make the tools write to standard output what `spill_bytes` reads, until the block ends."""

    def spill_bytes(self, log: str) -> int:
        """Return the spilled bytes per thread, from the output of the tools."""

    def shared_layout(self, block: Sequence[int], element: Any, given: Mapping[str, Any]) -> Any:
        """Return Gluon's layout in shared memory of a descriptor's block.

        Args:
            block: dimensions of the block.
            element: Triton's dtype of its elements.
            given: values of the layout that the descriptor sets.
        """

    def overlaps(self, arch: str) -> bool:
        """Return whether a kernel of an arch can start before the previous one ends."""
