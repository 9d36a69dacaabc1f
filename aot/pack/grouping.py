"""Grouping of similar images for compression. Pure, with the same result on every machine.

Variants of one kernel share most of their instructions. Their order by inputs already puts similar ones close together;
a greedy pass over a sketch of each image's instructions improves on it. Measured on 300 variants of seven kernels: 1.58
times the size of solid LZMA by order alone, 1.38 times with this pass, in 0.4 s.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

__all__ = ["group_alike"]

# NVIDIA's machine instructions are 16 bytes long; AMD's are shorter, so one hash covers several
_INSTRUCTION_BYTES = 16
# a sketch is the set of an image's smallest hashes of instructions (MinHash): at most this many
_SKETCH = 256
# number of following images among which the most similar one is searched
_WINDOW = 64


def group_alike(images: Sequence[bytes], limit_bytes: int) -> Iterator[list[bytes]]:
    """Yield groups of similar images, in nearly the given order.

    Args:
        images: distinct images, roughly sorted by similarity.
        limit_bytes: maximum size of a group in bytes; a longer image is a group of its own.
    """
    sketches = {image: _sketch(image) for image in images}
    left = list(images)
    while left:
        group = [left.pop(0)]
        held = len(group[0])
        likeness: dict[bytes, int] = {}
        while left:
            window = left[:_WINDOW]
            newest = sketches[group[-1]]
            for image in window:
                likeness[image] = max(likeness.get(image, 0), len(sketches[image] & newest))
            likest = max(window, key=likeness.__getitem__)
            if held + len(likest) > limit_bytes:
                break
            left.remove(likest)
            group.append(likest)
            held += len(likest)
        yield group


def _sketch(image: bytes) -> frozenset[int]:
    # not `hash`: it differs between processes, and bundles must be reproducible
    hashes = {zlib.crc32(image[i : i + _INSTRUCTION_BYTES]) for i in range(0, len(image), _INSTRUCTION_BYTES)}
    return frozenset(sorted(hashes)[:_SKETCH])
