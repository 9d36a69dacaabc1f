"""Images in the driver: read from a bundle, checked against their index entry, loaded once for the process and all devices."""

from __future__ import annotations

from time import perf_counter_ns

from nojit.runtime import _core
from nojit.runtime.observe.events import emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from nojit.runtime.bundle.file import BundleFile
    from nojit.runtime.table.table import KernelTable

__all__ = ["Images"]

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
            bundle, variant = self.file.id, lambda: table.variant_id(row)
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
