"""Interfaces of a vendor's package: everything that the build does differently for another vendor's GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nojit.aot.backends.options import Option
from nojit.aot.backends.settings import Setting

if TYPE_CHECKING:
    from nojit.runtime.bundle.format import TargetInfo
    from nojit.runtime.table.parts import Launch

__all__ = ["Backend", "Limits", "StandIn", "Tool", "Vendor", "WheelVariants"]


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


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that assembles images."""

    version: str
    path: str


class Vendor(Protocol):
    """Interface of a module with facts of one vendor's GPUs; the module does not import Triton.

    `nojit.aot.backends.registry` lists these modules.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name of the backend in a bundle's target, such as ``cuda``."""

    @property
    def TRITON(self) -> str:  # noqa: N802 - a constant of a module
        """Name of the backend in Triton's folder ``backends`` and among its knobs, such as ``nvidia``."""

    @property
    def ARCHS(self) -> tuple[str, ...]:  # noqa: N802 - a constant of a module
        """Known archs, in order. The installed tools may know more."""

    @property
    def EXPECTED(self) -> str:  # noqa: N802 - a constant of a module
        """Description of a valid arch, for messages: ``an arch such as sm_90, from sm_75 up``."""

    @property
    def ASSEMBLER(self) -> str:  # noqa: N802 - a constant of a module
        """Name of the program that assembles images, such as ``ptxas``, and of commands' option for it; empty without one."""

    @property
    def OPTIONS(self) -> Mapping[str, Option]:  # noqa: N802 - a constant of a module
        """Compiler options that only this vendor's backend takes."""

    @property
    def KNOBS(self) -> Mapping[str, Setting]:  # noqa: N802 - a constant of a module
        """How a build treats each knob in the vendor's group of ``triton.knobs``, by group and name: ``nvidia.ptxas``."""

    @property
    def VARIABLES(self) -> Mapping[str, Setting]:  # noqa: N802 - a constant of a module
        """How a build treats each environment variable that only this vendor's backend reads and that is no knob, by name."""

    @property
    def LEFT_OUT(self) -> Mapping[str, str]:  # noqa: N802 - a constant of a module
        """Parts of Triton's folder ``backends/<TRITON>`` that do not affect machine code, each with the reason."""

    @property
    def IMAGE(self) -> str:  # noqa: N802 - a constant of a module
        """Kind of the images: name of machine code among Triton's results, and ending of files, such as ``cubin``."""

    @property
    def CLASSIFIER(self) -> str:  # noqa: N802 - a constant of a module
        """Classifier of a wheel with images of this vendor."""

    @property
    def WHEEL_VARIANTS(self) -> WheelVariants:  # noqa: N802 - a constant of a module
        """How installers learn which GPUs a wheel supports."""

    @property
    def UNTRIED(self) -> str:  # noqa: N802 - a constant of a module
        """Missing tests of this vendor's images, for reports of builds and bundles; empty if none."""

    def is_arch(self, arch: str) -> bool:
        """Return whether an arch is one of this vendor's that the build supports, known or not."""

    def arch_number(self, arch: str) -> int:
        """Return the number of an arch, the `arch` of expressions; archs sort by it.

        Raises:
            ValueError: the text is no arch of this vendor.
        """

    def chip_of(self, arch: str) -> str:
        """Return the arch of the chip whose code the images of an arch hold: ``sm_100`` for the family ``sm_100f``."""

    def chips_of(self, arch: str) -> Sequence[str]:
        """Return the archs of the chips that run the images of a family: ``sm_100``, ``sm_103``; a chip's own arch alone."""

    def family_of(self, arch: str) -> str:
        """Return the largest family that a chip belongs to: ``sm_100f`` for ``sm_103``; empty if it belongs to none."""

    def target_of(self, arch: str) -> TargetInfo:
        """Return the target (backend, arch, image arch and warp size) of a bundle that is built for an arch.

        Raises:
            ValueError: the text is no arch of this vendor.
        """

    def limits(self, arch: str) -> Limits:
        """Return the hardware limits of a thread block on an arch."""

    def device_name(self, arch: str) -> str:
        """Return the name of the GPU that a kernel source sees during a build for an arch."""

    def check_image(self, image: bytes, launch: Launch, image_arch: str, where: str) -> int:
        """Return an image's registers per thread, after checking that the image agrees with its launch facts.

        Zero if the image does not name them.

        Raises:
            BundleError: the image and the launch facts differ.
        """

    def code_of(self, image: bytes) -> Mapping[bytes, bytes]:
        """Return the sections of an image that hold instructions; the whole image if they cannot be read."""

    def opcodes_of(self, image: bytes) -> Mapping[bytes, Counter[int]]:
        """Return how many instructions of each kind an image has, by section."""

    def parse_driver(self, text: str) -> int:
        """Return a driver version as a number: 12040 for ``12.4``, major version times 1,000 and minor times 10.

        Raises:
            ValueError: the text has another form.
        """

    def pin(self, min_driver: int | None, assembler: Path | None) -> AbstractContextManager[None]:
        """Make this process and its children use a certain assembler until the ``with`` block ends.

        Args:
            min_driver: the oldest driver version that must load the images; None for any.
            assembler: the program to use; None to choose one of Triton's.

        Raises:
            CompileError: no assembler makes images for drivers that old.
        """

    def backend(self) -> Backend:
        """Import and return the vendor's backend, which imports Triton."""


class WheelVariants(Protocol):
    """Interface of a module with a vendor's properties of wheel variants (PEP 825)."""

    @property
    def NAMESPACE(self) -> str:  # noqa: N802 - a constant of a module
        """Namespace of the vendor's properties."""

    @property
    def PROVIDER(self) -> Mapping[str, object]:  # noqa: N802 - a constant of a module
        """How an installer gets the properties of a machine (PEP 850)."""

    def properties(self, arch: str, min_driver: int) -> dict[str, list[str]]:
        """Return the properties that a machine needs for images of an arch.

        `min_driver`: oldest driver that must load the images, as a CUDA version: 12040 for 12.4.
        """

    def misled(self, images: Mapping[str, str]) -> dict[str, list[str]]:
        """Return, by the arch of a wheel variant, the archs of GPUs that get this variant but cannot run it.

        Args:
            images: archs of the variants' images, by arch.
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
    def OPTIONS(self) -> Collection[str]:  # noqa: N802 - a constant of a module
        """Names of the compiler options that Triton's backend takes."""

    @property
    def IGNORED(self) -> Collection[str]:  # noqa: N802 - a constant of a module
        """Names of compiler options that have no effect on this vendor's GPUs, and that a manifest may set all the same."""

    @property
    def DEFAULTS(self) -> Mapping[str, Any]:  # noqa: N802 - a constant of a module
        """Compiler options that are built with another value where they have the build's default."""

    def folder(self) -> Path:
        """Return the folder of Triton's backend. Its files are inputs of every image."""

    def tools(self, arch: str) -> dict[str, Tool]:
        """Return the tools that assemble for an arch, by name.

        Raises:
            CompileError: a tool cannot be used.
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
        """Make the tools write the statistics that `spill_bytes` reads to standard output, if any, until the block ends."""

    def assembling(self, arch: str) -> AbstractContextManager[None]:
        """Make Triton assemble images for an arch that is not a chip's own, until the ``with`` block ends.

        What is compiled in the block raises `CompileError` where its code differs from that of the chip.
        """

    def spill_bytes(self, log: str, image: bytes) -> int:
        """Return the number of spilled bytes per thread, from the text output of the tools or from the image."""

    def shared_layout(self, block: Sequence[int], element: Any, given: Mapping[str, Any]) -> Any:
        """Return Gluon's shared-memory layout for a descriptor's block.

        Args:
            block: dimensions of the block.
            element: Triton's dtype of its elements.
            given: layout settings of the descriptor, by Triton's names.
        """

    def overlaps(self, arch: str) -> bool:
        """Return whether a kernel of an arch can start before the previous one ends."""
