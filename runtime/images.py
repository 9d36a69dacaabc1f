"""Images in the driver: read from a bundle, checked against their index entry, loaded once for the process and all devices."""

from __future__ import annotations

import hashlib
import threading
from functools import partial
from time import perf_counter_ns
from typing import TypeAlias

from nojit.runtime import _core
from nojit.runtime.bundle import BundleFile
from nojit.runtime.errors import BundleError, BundleIntegrityError, DriverError, NoMatchingVariantError
from nojit.runtime.events import emit
from nojit.runtime.launch_codec import param_sizes
from nojit.runtime.record import Record
from nojit.runtime.table import KernelTable
from nojit.runtime.target import ImageArch, arch_number, parse_image_arch, spell_cuda

__all__ = ["Entry", "Images", "Source", "closest_source"]

# cuda.h: the image was made by a newer toolkit than the driver's
_UNSUPPORTED_PTX_VERSION = 222

_Image: TypeAlias = tuple[str, int]
"""A kernel, and the number that its table gives the image."""

Entry: TypeAlias = tuple[str, tuple[int, ...], int, int]
"""What an image is held against: symbol, bytes of each param, warps of a block, CTAs of a cluster."""


class _Loaded:
    """The images that the driver holds, by their SHA-256: one library for each content, whichever bundles hold it.

    A loaded image stays loaded for the life of the process: to unload one would break a CUDA graph capture under way.

    Attributes:
        lock: held to look into the rest.
        libraries: by the SHA-256 of the image.
        functions: by the SHA-256 and the symbol. One object for each kernel of the driver's, since it keeps what was raised for it.
    """

    def __init__(self) -> None:
        # a finalizer that launches may run while this thread holds it
        self.lock = threading.RLock()
        self.libraries: dict[bytes, _core.Library] = {}
        self.functions: dict[tuple[bytes, str], _core.Function] = {}


# the process's
_loaded = _Loaded()


class Images:
    """The images of one bundle file. Safe to use from several threads: each image is loaded once.

    Args:
        file: the bundle.
    """

    def __init__(self, file: BundleFile) -> None:
        self.file = file
        # guarded by the lock of `_loaded`
        self._functions: dict[tuple[_Image, Entry], _core.Function] = {}

    def function(self, table: KernelTable, row: int, device: int, entry: Entry | None = None) -> _core.Function:
        """Return the kernel of a row's image, loaded and checked.

        Args:
            table: variants in this bundle.
            row: one of them.
            device: whose driver cross-checks the parameters; any that runs the image will do.
            entry: as `entry` gives it, where the caller knows it.

        Raises:
            BundleError: the image is not what the bundle pins, or not what the row says of it.
            DriverError: the driver is too old for it, or refuses it.
        """
        image = (table.kernel, table.columns["image"][row])
        # launches that differ in nothing else share the kernel, and with it the limits that were raised for it
        entry = entry or self.entry(table, row)
        began_ns, loaded = perf_counter_ns(), False
        with _loaded.lock:
            function = self._functions.get((image, entry))
            if function is None:
                known = len(_loaded.libraries)
                function = self._functions[image, entry] = self._load(image, entry, device)
                loaded = len(_loaded.libraries) > known
        if loaded:
            bundle, variant = self.file.id, partial(table.variant_id, row)
            what = f"image={image[1]}"
            emit("load", began_ns, bundle=bundle, kernel=table.kernel, variant=variant, device=device, detail=what)
        return function

    def entry(self, table: KernelTable, row: int) -> Entry:
        """Say what the image of a row is held against.

        Raises:
            BundleError: its layout is not what a build writes.
        """
        launch = table.launches[table.columns["launch"][row]]
        try:
            sizes = param_sizes(launch.layout)
        except BundleError:
            raise
        except ValueError as error:
            where = self._where((table.kernel, table.columns["image"][row]))
            raise BundleIntegrityError(str(error), where=where) from None
        return launch.symbol, sizes, launch.num_warps, launch.num_ctas

    def _load(self, image: _Image, entry: Entry, device: int) -> _core.Function:
        content = self.file.image(*image)
        arch = parse_image_arch(self.file.index.target.image_arch)
        exact, where = arch.suffix == "a", self._where(image)
        params, shared_bytes, _ = _core.check_image(content, *entry, arch.number, exact, where)
        digest = hashlib.sha256(content).digest()
        known = _loaded.functions.get((digest, entry[0]))
        if known is not None:
            return known
        library = _loaded.libraries.get(digest)
        if library is None:
            self._check_driver_version(image)
            library = _loaded.libraries[digest] = _core.Library(content, where)
        function: _core.Function = library.function(entry[0], shared_bytes)
        told = function.params(device)
        if told is not None and told != params:
            raise BundleIntegrityError(
                f"expected the driver to find params {params} (offset, size) in {entry[0]!r}",
                got=str(told),
                where=where,
            )
        _loaded.functions[digest, entry[0]] = function
        return function

    def _where(self, image: _Image) -> str:
        kernel, number = image
        return f"{self.file.path} kernel {kernel} image {number}"

    def _check_driver_version(self, image: _Image) -> None:
        needed, version = self.file.index.min_driver, _core.driver_version()
        if version < needed:
            what = f"expected a driver for CUDA {spell_cuda(needed)} or later, this one is for {spell_cuda(version)}"
            raise DriverError(
                "cuDriverGetVersion",
                _UNSUPPORTED_PTX_VERSION,
                "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
                what=what,
                where=self._where(image),
            )


class Source(Record):
    """A bundle file that holds the kernel for one arch."""

    images: Images
    image_arch: ImageArch
    arch: int
    """What ``arch`` stands for in expressions: 90."""
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


def closest_source(sources: tuple[Source, ...], capability: int, kernel: str) -> Source:
    """Return the source whose images fit a device best.

    Args:
        sources: of one kernel, at least one.
        capability: of the device, 90 for 9.0.
        kernel: its name, for errors.

    Raises:
        NoMatchingVariantError: none runs there.
    """
    fitting = [source for source in sources if source.image_arch.runs_on(capability)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        return min(fitting, key=lambda source: source.image_arch.closeness(capability))
    built = sorted(sources, key=lambda source: source.image_arch.number)
    raise NoMatchingVariantError(
        f"bundle has {', '.join(str(source.image_arch) for source in built)}; device is sm_{capability}: nojit build --arch sm_{capability} builds for it",
        where=f"kernel {kernel}",
        reasons=tuple((str(source), f"does not run on sm_{capability}") for source in built),
    )
