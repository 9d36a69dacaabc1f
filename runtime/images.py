"""Images in the driver: read from a bundle, checked against their index entry, loaded once for all devices."""

from __future__ import annotations

import threading

from nojit.runtime import _core
from nojit.runtime.bundle import BundleFile
from nojit.runtime.cubin import CubinInfo, check_launch, read_cubin
from nojit.runtime.errors import BundleIntegrityError, DriverError
from nojit.runtime.table import Launch

__all__ = ["Images"]

# cuda.h: the image was made by a newer toolkit than the driver's
_UNSUPPORTED_PTX_VERSION = 222


class Images:
    """The images of one bundle file. Safe to use from several threads: each image is loaded once.

    A loaded image stays loaded for the life of the process: to unload one would break a CUDA graph capture under way.

    Args:
        file: the bundle.
    """

    def __init__(self, file: BundleFile) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._loaded: dict[int, tuple[CubinInfo, _core.Library]] = {}
        self._functions: dict[tuple[int, Launch], _core.Function] = {}

    def function(self, image: int, launch: Launch, device: int) -> _core.Function:
        """Return the kernel of an image, loaded and checked.

        Args:
            image: as a table's ``image`` column gives it.
            launch: what the same row says of it.
            device: whose driver cross-checks the parameters; any that runs the image will do.

        Raises:
            BundleError: the image is not what the bundle pins, or not what `launch` describes.
            DriverError: the driver is too old for it, or refuses it.
        """
        key = (image, launch)
        with self._lock:
            function = self._functions.get(key)
            if function is None:
                where = f"{self.file.path} image {image}"
                info, library = self._load(image, launch, where)
                function = library.function(launch.symbol)
                _check_driver_params(function, info, launch.symbol, device, where)
                self._functions[key] = function
        return function

    def _load(self, image: int, launch: Launch, where: str) -> tuple[CubinInfo, _core.Library]:
        held = self._loaded.get(image)
        content = b"" if held else self.file.image(image)
        info = held[0] if held else read_cubin(content)
        check_launch(info, launch, self.file.index.target.image_arch, where)
        if held is None:
            self._check_driver_version(where)
            held = self._loaded[image] = (info, _core.Library(content, where))
        return held

    def _check_driver_version(self, where: str) -> None:
        needed, version = self.file.index.min_driver, _core.driver_version()
        if version < needed:
            what = f"expected a driver for CUDA {_dotted(needed)} or later, this one is for {_dotted(version)}"
            raise DriverError(
                "cuDriverGetVersion",
                _UNSUPPORTED_PTX_VERSION,
                "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
                what=what,
                where=where,
            )


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _check_driver_params(function: _core.Function, info: CubinInfo, symbol: str, device: int, where: str) -> None:
    told = function.params(device)
    kernel = info.kernel(symbol)
    if told is None or kernel is None:
        return
    expected = list(kernel.params)
    if told != expected:
        raise BundleIntegrityError(
            f"expected the driver to find params {expected} (offset, size) in {symbol!r}", got=str(told), where=where
        )
