"""Compression of the parts of a bundle with zstd: its index, sections, attachments, and groups of images."""

from __future__ import annotations

import zstandard
from nojit.runtime import _core

__all__ = ["compress", "compress_attachment", "compress_group", "packer_version"]

_LEVEL = 22
# the hardest levels save 8% of a group, and decompressing it takes a quarter longer, at a first launch
_GROUP_LEVEL = 12
# of a zstd block without content, which is all zeros (RFC 8878)
_EMPTY_BLOCK_BYTES = 3


def packer_version() -> str:
    """Return the name and version of the compressor, which determine the compressed bytes."""
    return f"{zstandard.__version__}"


def compress_group(raw: bytes) -> bytes:
    """Compress a group of images."""
    return compress(raw, _GROUP_LEVEL)


def compress_attachment(raw: bytes) -> bytes:
    """Compress an attachment, and pad the frame with empty blocks if readers would refuse to expand it so far."""
    frame = compress(raw)
    least = (len(raw) - _core.FREE_BYTES) // _core.ATTACHMENT_RATIO_MAX + 1
    blocks = max(0, least - len(frame) + _EMPTY_BLOCK_BYTES - 1) // _EMPTY_BLOCK_BYTES
    header = zstandard.frame_header_size(frame)
    return frame[:header] + bytes(_EMPTY_BLOCK_BYTES * blocks) + frame[header:]


def compress(raw: bytes, level: int = _LEVEL) -> bytes:
    """Compress a part of a bundle into one frame, with its length and a checksum."""
    # for a long attachment, zstd would choose a window that readers refuse
    window = {"window_log": _core.WINDOW_LOG_MAX} if len(raw) > 1 << _core.WINDOW_LOG_MAX else {}
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, source_size=len(raw), write_content_size=True, write_checksum=True, **window
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(raw)
