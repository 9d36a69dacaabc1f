"""Zstandard frames, read strictly: the size is declared and known beforehand, a checksum is there, nothing follows.

Python 3.14 brings its own zstd; before that the ``zstandard`` package does the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from nojit.runtime import _core
from nojit.runtime._core import WINDOW_LOG_MAX
from nojit.runtime.errors import BundleError, BundleIntegrityError

__all__ = ["decompress"]

# a frame with literals and sequences, compressed
_SAMPLE = bytes.fromhex(
    "28b52ffd2446dd010032030c10807d0055aaaaf20cacddee9e2731a22c1fc283f0e9d19f"
    "375f9efc78f1e141e75b677c6da55346f85c634b7539f10d020086e20c59d10289dd1a22"
)


def decompress(frame: bytes, raw_bytes: int, where: str) -> bytes:
    """Decompress one frame that must hold exactly `raw_bytes`.

    Raises:
        BundleFormatError: not one frame with checksum and the declared size, or a window past the limit.
        BundleIntegrityError: the frame does not decompress to what it declares.
        BundleError: there is nothing to decompress with.
    """
    _core.check_frame(frame, raw_bytes, where)
    raw = _decompress_frame(frame, raw_bytes, where)
    if len(raw) != raw_bytes:
        raise BundleIntegrityError(f"expected {raw_bytes} decompressed bytes", got=str(len(raw)), where=where)
    return raw


def _broken(error: Exception, where: str) -> BundleIntegrityError:
    return BundleIntegrityError("expected one whole zstd frame and nothing after it", got=str(error), where=where)


def _with_zstandard() -> Callable[[bytes, int, str], bytes]:
    try:
        import zstandard  # noqa: PLC0415 - Python 3.14 needs no package
    except ModuleNotFoundError:
        return _without_any

    # a decompressor serves one thread at a time, and costs more to make and to use for the first time than ten small
    # frames to decompress: one is ready before a bundle is opened
    idle = [zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)]
    idle[0].decompress(_SAMPLE)

    def decompress_frame(frame: bytes, _raw_bytes: int, where: str) -> bytes:
        try:
            decompressor = idle.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)
        try:
            # the one-shot call writes into a buffer of the declared size, which was checked: no bomb can outgrow it
            return decompressor.decompress(frame, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise _broken(error, where) from None
        finally:
            idle.append(decompressor)

    return decompress_frame


def _without_any(_frame: bytes, _raw_bytes: int, where: str) -> bytes:
    # said of each bundle rather than at import, so that `nojit doctor` says it beside the rest
    what = "expected the package zstandard, which reads bundles, to be installed"
    raise BundleError(what, got="none: pip install zstandard", where=where)


def _with_stdlib() -> Callable[[bytes, int, str], bytes]:
    from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415 - new in Python 3.14

    options = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}

    def decompress_frame(frame: bytes, raw_bytes: int, where: str) -> bytes:
        stream = zstd.ZstdDecompressor(options=options)
        try:
            raw: bytes = stream.decompress(frame, max_length=raw_bytes + 1)
        except zstd.ZstdError as error:
            raise _broken(error, where) from None
        if not stream.eof or stream.unused_data:
            raise BundleIntegrityError("expected one whole zstd frame and nothing after it", where=where)
        return raw

    return decompress_frame


_decompress_frame = _with_stdlib() if sys.version_info >= (3, 14) else _with_zstandard()
