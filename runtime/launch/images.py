"""Images in the driver: read from a bundle, checked against their index entry, loaded once for the process and all devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter_ns
from typing import TypeAlias

from nojit.runtime import _core
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.frozen_record import Record
from nojit.runtime.observe.events import emit
from nojit.runtime.table.table import KernelTable
from nojit.runtime.target import ImageArch, arch_number, parse_image_arch, spell_arch

__all__ = ["Images", "Source", "best_source", "closest_source"]

_Image: TypeAlias = tuple[str, int]
"""A kernel, and the number that its table gives the image."""

_Entry: TypeAlias = tuple[str, tuple[int, ...], int, int]
"""The facts that an image is compared with: symbol, bytes of each param, warps of a block, CTAs of a cluster."""


class Images:
    """The images of one bundle file. Safe to use from several threads: each image is loaded once.

    Args:
        file: the bundle.
    """

    def __init__(self, file: BundleFile) -> None:
        self.file = file
        self._functions: dict[tuple[_Image, _Entry, int], _core.Function] = {}
        # HIP loads an image for one device, CUDA for all
        self._per_device = file.index.target.backend == "hip"
        # images that `load` put on a device
        self._loaded: set[tuple[_Image, int]] = set()

    def function(self, table: KernelTable, row: int, device: int, read: _core.Row) -> _core.Function:
        """Return the kernel of a row's image, loaded and checked.

        Args:
            table: variants in this bundle.
            row: one of them.
            device: whose driver cross-checks the parameters; for CUDA any that runs the image will do.
            read: what the engine reads of the row, which the image is held against.

        Raises:
            BundleError: the image is not what the bundle pins, or not what the row says of it.
            DriverError: the driver is too old for it, or refuses it.
        """
        image = (table.kernel, read.image)
        entry = read.entry
        place = device if self._per_device else 0
        function = self._functions.get((image, entry, place))
        if function is not None:
            return function
        began_ns = perf_counter_ns()
        function, loaded = self.file.load(*image, read, device)
        self._functions[image, entry, place] = function
        if loaded:
            bundle, variant = self.file.id, partial(table.variant_id, row)
            what = f"image={image[1]}"
            emit("load", began_ns, bundle=bundle, kernel=table.kernel, variant=variant, device=device, detail=what)
        return function

    def load(self, table: KernelTable, row: int, device: int, read: _core.Row) -> None:
        """Put a row's image on a device now; arguments and errors are those of `function`."""
        self.function(table, row, device, read).load(device)
        self._loaded.add(((table.kernel, read.image), device))

    def is_loaded(self, table: KernelTable, row: int, device: int) -> bool:
        """Return whether `load` put a row's image on a device."""
        return ((table.kernel, table.columns["image"][row]), device) in self._loaded


class Source(Record):
    """A bundle file that holds the kernel for one arch."""

    images: Images
    image_arch: ImageArch
    arch: int
    """The value of ``arch`` in expressions: 90."""
    name: str
    """Its path and arch, for errors."""

    @staticmethod
    def of(images: Images) -> Source:
        """Describe a file by its target."""
        target = images.file.index.target
        image_arch = parse_image_arch(target.image_arch)
        return Source(images, image_arch, arch_number(target.arch), f"{images.file.path} ({image_arch})")

    def table(self, kernel: str) -> KernelTable:
        """Read the variants of a kernel."""
        return self.images.file.table(kernel)

    def where(self, kernel: str) -> str:
        """Name a kernel in it, for errors."""
        return f"{self.name} kernel {kernel}"

    def __str__(self) -> str:
        return self.name


def best_source(sources: Sequence[Source], capability: int) -> Source | None:
    """Return the source whose images fit a device best, the first of equals; None if none runs there."""
    best, most = None, 0
    for source in sources:
        fit = _core.image_fit(source.image_arch.number, source.image_arch.suffix, capability)
        if fit > most:
            best, most = source, fit
    return best


def closest_source(sources: tuple[Source, ...], capability: int, kernel: str) -> Source:
    """Return the source whose images fit a device best.

    Args:
        sources: of one kernel, at least one.
        capability: of the device, 90 for 9.0.
        kernel: its name, for errors.

    Raises:
        NoMatchingVariantError: none runs there.
    """
    best = best_source(sources, capability)
    if best is not None:
        return best
    device = spell_arch(capability)
    built = sorted(sources, key=lambda source: source.image_arch.number)
    raise NoMatchingVariantError(
        f"bundle has {', '.join(str(source.image_arch) for source in built)}; device is {device}: nojit build --arch {device} builds for it",
        where=f"kernel {kernel}",
        reasons=tuple((str(source), f"does not run on {device}") for source in built),
    )
