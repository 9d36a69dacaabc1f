"""Zstandard frames, read strictly: the size is declared and known beforehand, a checksum is there, nothing follows.

Python 3.14 brings its own zstd; before that the ``zstandard`` package does the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from nojit.runtime._core import WINDOW_LOG_MAX
from nojit.runtime.errors import BundleError, BundleIntegrityError
from nojit.runtime.strict import refuse

__all__ = ["decompress"]

_MAGIC = b"\x28\xb5\x2f\xfd"
# the one frame that holds nothing: zstandard looks no further than a declared size of 0, whatever else is there
_EMPTY = _MAGIC + bytes.fromhex("2400 010000 99e9d851")
# a frame with literals and sequences, compressed
_SAMPLE = bytes.fromhex(
    "28b52ffd2446dd010032030c10807d0055aaaaf20cacddee9e2731a22c1fc283f0e9d19f"
    "375f9efc78f1e141e75b677c6da55346f85c634b7539f10d020086e20c59d10289dd1a22"
)
# bits of the frame header descriptor (RFC 8878, section 3.1.1.1.1)
_SINGLE_SEGMENT = 0x20
_RESERVED = 0x08
_CHECKSUM = 0x04
_DICTIONARY = 0x03


def decompress(frame: bytes, raw_bytes: int, where: str) -> bytes:
    """Decompress one frame that must hold exactly `raw_bytes`.

    Raises:
        BundleFormatError: not one frame with checksum and the declared size, or a window past the limit.
        BundleIntegrityError: the frame does not decompress to what it declares.
        BundleError: there is nothing to decompress with.
    """
    if not frame.startswith(_usual_header(raw_bytes)):
        _check_frame_header(frame, raw_bytes, where)
    if raw_bytes == 0 and frame != _EMPTY:
        raise refuse("zstd-empty", "expected the frame of 13 bytes that holds nothing", got=len(frame), where=where)
    raw = _decompress_frame(frame, raw_bytes, where)
    if len(raw) != raw_bytes:
        raise BundleIntegrityError(f"expected {raw_bytes} decompressed bytes", got=str(len(raw)), where=where)
    return raw


def _usual_header(raw_bytes: int) -> bytes:
    """Spell the header that a build gives a frame of so many bytes: with a checksum, and in one segment."""
    if raw_bytes < 256:
        return _MAGIC + b"\x24" + raw_bytes.to_bytes(1, "little")
    if raw_bytes < 65792:
        return _MAGIC + b"\x64" + (raw_bytes - 256).to_bytes(2, "little")
    return _MAGIC + b"\xa4" + raw_bytes.to_bytes(8, "little")[:4]


def _check_frame_header(frame: bytes, raw_bytes: int, where: str) -> None:
    if len(frame) < 6 or frame[:4] != _MAGIC:
        raise refuse("zstd-magic", "expected a zstd frame", got=repr(frame[:4]), where=where)
    descriptor = frame[4]
    if not descriptor & _CHECKSUM:
        raise refuse("zstd-checksum", "expected a zstd frame with a checksum", where=where)
    if descriptor & (_RESERVED | _DICTIONARY):
        raise refuse("zstd-header", "expected a zstd frame without dictionary", got=hex(descriptor), where=where)
    single = bool(descriptor & _SINGLE_SEGMENT)
    size_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 if single else 6
    if not size_bytes or len(frame) < start + size_bytes:
        raise refuse("zstd-size", "expected a zstd frame that declares its size", where=where)
    declared = int.from_bytes(frame[start : start + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    if declared != raw_bytes:
        raise refuse("zstd-size", f"expected a frame of {raw_bytes} bytes", got=declared, where=where)
    if not single and _window_bytes(frame[5]) > 1 << WINDOW_LOG_MAX:
        raise refuse("zstd-window", f"expected a window of at most {1 << WINDOW_LOG_MAX} bytes", where=where)


def _window_bytes(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + base // 8 * (descriptor & 7)


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
