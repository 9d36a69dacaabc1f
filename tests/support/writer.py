"""Write bundles out of plain data, with right lengths and hashes around whatever they say.

The runtime's encoders refuse what no build makes, and so cannot write a hostile bundle. Here a table is a dict, a column a list
of ints, an image bytes: none of it is looked at.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.bundles import compress
from tests.support.cubins import CubinSpec, build_cubin
from tests.support.jsonlies import canonical

__all__ = ["CUBIN", "PlainKernel", "header_of", "launch_of", "plain_cubin", "write_bundle"]

U32 = 0xFFFFFFFF
SCRATCH = "$global_scratch:*i8 $profile_scratch:*i8"


def plain_cubin(symbol: str = "k", sizes: tuple[int, ...] = (4, 8, 8), **facts: Any) -> bytes:
    """Build the image of a kernel for ``sm_90a``, of one param of 4 bytes and two scratch pointers unless told otherwise."""
    return build_cubin(CubinSpec(symbol, sizes, **facts))


CUBIN = plain_cubin()


def launch_of(**facts: Any) -> dict[str, Any]:
    """Spell a launch of the kernel ``k``."""
    return {
        "symbol": "k",
        "layout": 0,
        "num_warps": 4,
        "num_ctas": 1,
        "shared_bytes": 0,
        "global_scratch_bytes": 0,
        "global_scratch_align": 1,
        "profile_scratch_bytes": 0,
        "profile_scratch_align": 1,
        "cooperative": False,
        "pdl": False,
        "tensor_maps": [],
    } | facts


def header_of(**facts: Any) -> dict[str, Any]:
    """Spell the JSON of a table: one param ``n`` of type i32, one config, one meaning, unless told otherwise."""
    return {
        "params": [{"constexpr": False, "default": [], "name": "n"}],
        "grid": ["1"],
        "tuning": None,
        "batch": [],
        "axes": [],
        "derived": [],
        "signatures": [["i32"]],
        "meanings": [[0]],
        "configs": [{"constexprs": [], "options": [["num_warps", 4]], "requires": ""}],
        "hint_sets": [[]],
        "derived_values": [[]],
        "layouts": [f"n:i32 {SCRATCH}"],
        "launches": [launch_of()],
        "programs": ["1"],
    } | facts


@dataclass
class PlainKernel:
    """One kernel of a bundle."""

    name: str = "k"
    header: dict[str, Any] = field(default_factory=header_of)
    columns: Sequence[Sequence[int]] = ((0,), (0,), (0,), (0,), (0,), (0,), (32,), (0,))
    """Of the rows: meaning, config, hints, derived, launch, image, registers, spill bytes."""
    images: Sequence[bytes] = (CUBIN,)
    group_images: int = 16
    entry: dict[str, Any] = field(default_factory=dict)
    """What the index is to say otherwise."""
    spell: Callable[[dict[str, Any]], bytes] = canonical
    """Writes the header."""

    def parts(self) -> tuple[bytes, list[bytes]]:
        """Return the raw section up to the groups' records, and the raw groups."""
        written = self.spell(self.header)
        table = struct.pack("<I", len(written)) + written + b" " * (-len(written) % 4)
        numbers = [number & U32 for column in self.columns for number in column]
        lengths = struct.pack(f"<{len(self.images)}I", *map(len, self.images))
        step = self.group_images
        groups = [b"".join(self.images[at : at + step]) for at in range(0, len(self.images), step)]
        return table + struct.pack(f"<{len(numbers)}I", *numbers) + lengths, groups


def _packed(raw: bytes) -> bytes:
    return compress(raw, 3)


def write_bundle(
    *kernels: PlainKernel, index: dict[str, Any] | None = None, frame: Callable[[bytes], bytes] = _packed
) -> bytes:
    """Lay out a bundle.

    Args:
        kernels: sorted by name, or not.
        index: what the index is to say otherwise.
        frame: compresses a part.
    """
    entries, sections, payload = [], [], []
    for kernel in kernels:
        raw, groups = kernel.parts()
        frames = [frame(group) for group in groups]
        counts = [
            len(kernel.images[at : at + kernel.group_images])
            for at in range(0, len(kernel.images), kernel.group_images)
        ]
        raw += b"".join(
            struct.pack("<III", count, len(packed), len(group)) + hashlib.sha256(packed).digest()
            for count, packed, group in zip(counts, frames, groups, strict=True)
        )
        section = frame(raw)
        entries.append(
            {
                "name": kernel.name,
                "variants": len(kernel.columns[0]),
                "images": len(kernel.images),
                "groups": len(groups),
                "payload_bytes": sum(map(len, frames)),
                "table": {
                    "raw_bytes": len(raw),
                    "sha256": hashlib.sha256(section).hexdigest(),
                    "stored_bytes": len(section),
                },
            }
            | kernel.entry
        )
        sections.append(section)
        payload += frames
    spelled = {
        "name": "hostile",
        "version": "1",
        "target": {"arch": "sm_90", "backend": "cuda", "image_arch": "sm_90a", "warp_size": 32},
        "toolchain": [["triton", "3.9.0"]],
        "min_driver": 12000,
        "inputs": "0" * 64,
        "kernels": entries,
    } | (index or {})
    raw_index = canonical(spelled)
    packed_index = frame(raw_index)
    header = struct.pack(
        "<8sIIQQ32s", b"nojit\r\n\x1a", 1, 0, len(packed_index), len(raw_index), hashlib.sha256(packed_index).digest()
    )
    return b"".join([header, packed_index, *sections, *payload])
