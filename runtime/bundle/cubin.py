"""Cubins: what machine code itself says about how it must be launched. The engine's ``image/`` reads them.

Where an image was assembled for a family (``sm_100f``), nothing in it says so: it looks like plain ``sm_100``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.errors import BundleFormatError, BundleIntegrityError
from nojit.runtime.table.parts import Launch
from nojit.runtime.table.reading import param_sizes
from nojit.runtime.target import parse_image_arch

__all__ = [
    "CubinInfo",
    "CubinKernel",
    "Dim3",
    "ImageFacts",
    "check_image",
    "check_launch",
    "launch_sizes",
    "read_cubin",
    "read_sections",
]

Dim3: TypeAlias = tuple[int, int, int]

ImageFacts: TypeAlias = tuple[list[tuple[int, int]], int, int]
"""Offset and size of each param in bytes; bytes of a block's static shared memory that count against the driver's limits;
registers of a thread, 0 if the image does not say."""


class CubinKernel(Record):
    """One kernel of a cubin."""

    symbol: str
    params: tuple[tuple[int, int], ...]
    """Offset and size of each, in bytes, in the order of the signature."""
    param_base: int
    """Where the params start in the constant bank, in bytes; 0 without params."""
    reqntid: Dim3 | None
    """The one block size in threads that it may be launched with; None if any."""
    max_threads: Dim3 | None
    """The largest block size in threads; None if it was not declared."""
    cluster: Dim3 | None
    """CTAs of a cluster; None if it was not declared."""
    registers: int
    """Of one thread."""
    stack_bytes: int
    """Of one thread."""
    static_shared_bytes: int
    """Of one block; from sm_90 up it can include 1,024 that are the system's."""
    text_bytes: int
    own_shared_bytes: int
    """The static shared memory that counts against the driver's limits."""


class CubinInfo(Record):
    """The contents of a cubin."""

    kernels: tuple[CubinKernel, ...]
    sm: int
    """Compute capability without the dot: 90."""
    arch_specific: bool
    """Whether it runs on exactly that chip: ``sm_90a``."""
    abi: int
    """Of the ELF file: 7 or 8."""
    toolkit: tuple[int, int] | None
    """Version of the CUDA toolkit whose ptxas wrote it, major and minor; None without a kernel to say so."""
    has_debug: bool
    """Whether it holds line info, which holds source paths, or other debug sections."""

    def kernel(self, symbol: str) -> CubinKernel | None:
        """Return the kernel of that symbol, if there is one."""
        return next((kernel for kernel in self.kernels if kernel.symbol == symbol), None)


def read_cubin(image: bytes) -> CubinInfo:
    """Read what a cubin says about its kernels.

    Raises:
        BundleFormatError: `image` is no cubin, or breaks a rule of ELF or of its attributes; the rule starts with
            ``cubin-``.
    """
    kernels, sm, arch_specific, abi, toolkit, has_debug = _core.read_cubin(image)
    version = divmod(toolkit, 10) if toolkit else None
    return CubinInfo(tuple(CubinKernel(*kernel) for kernel in kernels), sm, arch_specific, abi, version, has_debug)


def read_sections(image: bytes) -> dict[bytes, bytes]:
    """Return the content of each named section of a cubin; empty for sections without bytes in the file.

    Raises:
        BundleFormatError: `image` is no ELF file for CUDA, or a section lies outside of it.
    """
    return {name: content for name, content in _core.read_sections(image) if name}


def check_launch(image: bytes, launch: Launch, image_arch: str, where: str) -> ImageFacts:
    """Check that an image is the one that a row's launch facts describe; as `check_image`.

    Raises:
        BundleFormatError: the image breaks a rule, or the layout is spelled wrong.
        BundleIntegrityError: they differ, or a param has a type that is passed in no single param.
    """
    sizes = launch_sizes(launch, where)
    return check_image(image, launch.symbol, sizes, launch.num_warps, launch.num_ctas, image_arch, where)


def launch_sizes(launch: Launch, where: str) -> tuple[int, ...]:
    """Return the bytes of each param that a launch packs.

    Raises:
        BundleFormatError: the layout is spelled wrong.
        BundleIntegrityError: a param has a type that is passed in no single param.
    """
    try:
        return param_sizes(launch.layout)
    except BundleFormatError:
        raise
    except ValueError as error:
        raise BundleIntegrityError(str(error), where=where) from None


def check_image(  # noqa: PLR0917 - the facts of one index entry, in its order
    image: bytes, symbol: str, sizes: Sequence[int], num_warps: int, num_ctas: int, image_arch: str, where: str
) -> ImageFacts:
    """Check that an image is the one that an index entry describes.

    Args:
        image: the cubin.
        symbol: the kernel that would be launched.
        sizes: bytes of each param that would be packed; each is aligned to its size, a tensor map to 64 bytes.
        num_warps: a block has 32 times as many threads.
        num_ctas: of a cluster; 1 needs no cluster.
        image_arch: ``sm_90a``.
        where: the entry, for the message.

    Raises:
        BundleFormatError: the image breaks a rule of ELF or of its attributes.
        BundleIntegrityError: they differ; launching would read or run something else than was packed.
        ValueError: `image_arch` is no image arch.
    """
    arch = parse_image_arch(image_arch)
    exact = arch.suffix == "a"
    return _core.check_image(image, symbol, tuple(sizes), num_warps, num_ctas, arch.number, exact, where)
