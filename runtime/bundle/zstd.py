"""Decompression of the zstd frames of bundles for Python. The engine checks their headers before, and the sizes after.

Python 3.14 has zstd; earlier versions need the package ``zstandard``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

from nojit.runtime._core import WINDOW_LOG_MAX
from nojit.runtime.errors import BundleError

__all__ = ["Decompress", "decompress"]

Decompress: TypeAlias = Callable[[memoryview, int], bytes]
"""Function that decompresses one whole frame of a known size; it raises ValueError for other data."""

# a frame with literals and sequences, compressed
_SAMPLE = bytes.fromhex(
    "28b52ffd2446dd010032030c10807d0055aaaaf20cacddee9e2731a22c1fc283f0e9d19f"
    "375f9efc78f1e141e75b677c6da55346f85c634b7539f10d020086e20c59d10289dd1a22"
)


def _with_zstandard() -> Decompress:
    try:
        import zstandard  # noqa: PLC0415 - Python 3.14 needs no package
    except ModuleNotFoundError:
        return _without_any

    # a decompressor serves one thread at a time; creating and first using it costs more than decompressing ten small
    # frames, so one is ready before a bundle is opened
    idle = [zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)]
    idle[0].decompress(_SAMPLE)

    def decompress_frame(frame: memoryview, _raw_bytes: int) -> bytes:
        try:
            decompressor = idle.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)
        try:
            # this call writes into a buffer of the declared size, which was checked, so no frame can expand further
            return decompressor.decompress(frame, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise ValueError(error) from None
        finally:
            idle.append(decompressor)

    return decompress_frame


def _without_any(_frame: memoryview, _raw_bytes: int) -> bytes:
    # raised for each bundle instead of at import, so that `nojit doctor` can report it with other problems
    what = "expected the package zstandard, which reads bundles, to be installed"
    raise BundleError(what, got="none: pip install zstandard")


def _with_stdlib() -> Decompress:
    from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415 - new in Python 3.14

    options = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}

    def decompress_frame(frame: memoryview, raw_bytes: int) -> bytes:
        stream = zstd.ZstdDecompressor(options=options)
        try:
            raw: bytes = stream.decompress(frame, max_length=raw_bytes + 1)
        except zstd.ZstdError as error:
            raise ValueError(error) from None
        if not stream.eof or stream.unused_data:
            raise ValueError("more, or less")
        return raw

    return decompress_frame


decompress = _with_stdlib() if sys.version_info >= (3, 14) else _with_zstandard()
