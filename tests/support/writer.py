"""Write bundles out of plain data, with right lengths and hashes around whatever they say.

The runtime's encoders refuse what no build makes, and so cannot write a hostile bundle. Here a table is a dict, a column a list
of ints, an image bytes: none of it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.bundles import compress
from tests.support.cubins import CubinSpec, build_cubin
from tests.support.drafts import Draft, KernelDraft
from tests.support.jsonlies import canonical

__all__ = ["CUBIN", "PlainKernel", "header_of", "launch_of", "plain_cubin", "write_bundle"]

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
    """Spell the JSON of a table: one param ``n`` of type i32, one config, one case, unless told otherwise."""
    return {
        "params": [{"constexpr": False, "default": [], "name": "n"}],
        "grid": ["1"],
        "tuning": None,
        "batch": [],
        "axes": [],
        "derived": [],
        "signatures": [["i32"]],
        "cases": [[0]],
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
    """Of the rows: case, config, hints, derived, launch, image, registers, spill bytes."""
    images: Sequence[bytes] = (CUBIN,)
    group_images: int = 16
    entry: dict[str, Any] = field(default_factory=dict)
    """What the index is to say otherwise."""
    spell: Callable[[dict[str, Any]], bytes] = canonical
    """Writes the header."""

    def draft(self) -> KernelDraft:
        """Return it as a part of a bundle's draft."""
        step, count = self.group_images, len(self.images)
        groups = [min(step, count - at) for at in range(0, count, step)]
        columns = [[*column] for column in self.columns]
        return KernelDraft(self.name, self.header, columns, [*self.images], groups, self.entry, self.spell)


def _packed(raw: bytes) -> bytes:
    return compress(raw, 3)


def write_bundle(
    *kernels: PlainKernel,
    index: dict[str, Any] | None = None,
    frame: Callable[[bytes], bytes] = _packed,
    attachments: Sequence[tuple[str, bytes]] = (),
) -> bytes:
    """Lay out a bundle.

    Args:
        kernels: sorted by name, or not.
        index: what the index is to say otherwise.
        frame: compresses a part.
        attachments: name and bytes of each.
    """
    spelled = {
        "name": "hostile",
        "version": "1",
        "target": {"arch": "sm_90", "backend": "cuda", "image_arch": "sm_90a", "warp_size": 32},
        "toolchain": [["triton", "3.9.0"]],
        "min_driver": 12000,
        "inputs": "0" * 64,
    } | (index or {})
    return Draft(spelled, [kernel.draft() for kernel in kernels], frame=frame, attachments=[*attachments]).seal()
