"""Decompression of the zstd frames of bundles for Python. The engine checks before that each is one whole frame.

The engine reads frames with ``libzstd.so.1`` where the machine has it: importing a package for them takes longer than a first launch.
Elsewhere Python 3.14 has zstd, and earlier versions need the package ``zstandard``.
"""

from __future__ import annotations

import sys

from nojit.runtime._core import WINDOW_LOG_MAX, finds_zstd
from nojit.runtime.errors import BundleError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Decompress: TypeAlias = Callable[[memoryview, memoryview], None]
    """Function that decompresses one whole frame into a buffer of the size that it declares; it raises ValueError for other data. It keeps
    neither."""

__all__ = ["decompress"]

# a frame with literals and sequences, compressed
_SAMPLE = bytes.fromhex(
    "28b52ffd2446dd010032030c10807d0055aaaaf20cacddee9e2731a22c1fc283f0e9d19f"
    "375f9efc78f1e141e75b677c6da55346f85c634b7539f10d020086e20c59d10289dd1a22"
)


def _with_zstandard() -> Decompress:
    try:
        import zstandard  # Python 3.14 needs no package
    except ModuleNotFoundError:
        return _without_any

    # a decompressor serves one thread at a time; creating and first using it costs more than decompressing ten small
    # frames, so one is ready before a bundle is opened
    idle = [zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)]
    idle[0].stream_reader(_SAMPLE).readinto(bytearray(len(_SAMPLE)))

    def decompress_frame(frame: memoryview, raw: memoryview) -> None:
        try:
            decompressor = idle.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)
        try:
            # zstd decompresses a whole frame in one pass, and checks its sum, where there is room for all of it
            filled = decompressor.stream_reader(frame).readinto(raw)
        except zstandard.ZstdError as error:
            raise ValueError(error) from None
        finally:
            idle.append(decompressor)
        if filled != len(raw):
            raise ValueError(f"{filled} bytes")

    return decompress_frame


def _without_any(_frame: memoryview, _raw: memoryview) -> None:
    # raised for each bundle instead of at import, so that `nojit doctor` can report it with other problems
    what = "expected the package zstandard, which reads bundles, to be installed"
    raise BundleError(what, got="none: pip install zstandard")


def _with_stdlib() -> Decompress:
    from compression import zstd  # type: ignore[import-not-found]  # new in Python 3.14

    options = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}

    def decompress_frame(frame: memoryview, raw: memoryview) -> None:
        stream = zstd.ZstdDecompressor(options=options)
        try:
            found: bytes = stream.decompress(frame, max_length=len(raw) + 1)
        except zstd.ZstdError as error:
            raise ValueError(error) from None
        if not stream.eof or len(found) != len(raw):
            raise ValueError(f"{len(found)} bytes")
        raw[:] = found

    return decompress_frame


def _with_python() -> Decompress:
    return _with_stdlib() if sys.version_info >= (3, 14) else _with_zstandard()


decompress = None if finds_zstd() else _with_python()
"""Function that decompresses the frames of bundles; None if the engine does."""
