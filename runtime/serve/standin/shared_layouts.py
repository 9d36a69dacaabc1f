"""Gluon's layouts of shared memory, as plain values: where the elements of a block lie."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nojit.runtime.serve.standin.constants import unwrap_shape
from nojit.runtime.serve.standin.constexpr_functions import constexpr_function
from nojit.runtime.serve.standin.layout_base import HOME, Layout, expect, joined, joined_bases
from nojit.runtime.serve.standin.registry import export, exported
from nojit.runtime.serve.standin.type_names import is_power_of_two

__all__ = ["NVMMASharedLayout", "SharedLayout"]


@exported(HOME)
class SharedLayout(Layout):
    """Base of layouts in shared memory."""


def _shape_of_block(shape: Any, cga_layout: Any) -> Any:
    """Return the part of a cluster's shape that one block has."""
    if not cga_layout:
        return shape
    sizes = [*shape]
    for dim in range(len(cga_layout[0])):
        blocks = max(1, 2 * max(basis[dim] for basis in cga_layout))
        expect(sizes[dim] % blocks == 0, f"Shape {shape} is not divisible by CGA layout {cga_layout}")
        sizes[dim] //= blocks
    return sizes


@constexpr_function
def _nvmma_default(
    block_shape: Any, dtype: Any, transposed: bool = False, fp4_padded: bool = False, cga_layout: Any = None
) -> Any:
    """Return the layout with the widest swizzle that a shape allows."""
    shape = [*_shape_of_block(block_shape, cga_layout)]
    if transposed:
        shape = shape[1:] + shape[:1]
    row_bytes = shape[-1] * (2 if fp4_padded else 1) * dtype.primitive_bitwidth // 8
    rows = 1
    for size in shape[:-1]:
        rows *= size
    wide = len(block_shape) >= 2 and rows >= 8
    swizzle = next((width for width in (128, 64, 32) if wide and row_bytes >= width and row_bytes % width == 0), 0)
    return NVMMASharedLayout(swizzle, dtype.primitive_bitwidth, len(block_shape), transposed, fp4_padded, cga_layout)


@exported(HOME)
@dataclass(frozen=True)
class NVMMASharedLayout(SharedLayout):
    """A layout in shared memory that tensor cores and TMA read."""

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2
    transposed: bool = False
    fp4_padded: bool = False
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()
        object.__setattr__(self, "cga_layout", self.cga_layout or [])
        if self.cga_layout:
            expect(len(self.cga_layout[0]) == self.rank)
        expect(self.element_bitwidth in {8, 16, 32, 64})
        expect(self.swizzle_byte_width in {0, 32, 64, 128})
        if self.fp4_padded:
            expect(self.swizzle_byte_width == 128, "fp4_padded only supports 128 byte swizzling")
            expect(self.element_bitwidth == 8, "fp4_padded is only supported for element_bitwidth=8")

    get_default_for = staticmethod(_nvmma_default)

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.swizzle_byte_width, self.element_bitwidth, self.rank, self.transposed, self.fp4_padded)
        return f"NVMMA_{joined(parts)}_{joined_bases(self.cga_layout)}_NVMMA"


@exported(HOME)
@dataclass(frozen=True)
class SwizzledSharedLayout(SharedLayout):
    """A swizzled layout in shared memory."""

    vec: int
    per_phase: int
    max_phase: int
    order: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.vec, self.per_phase, self.max_phase)
        return f"SSS_{joined(parts)}_{joined(self.order)}_{joined_bases(self.cga_layout)}_SSS"


@constexpr_function
def _identity(interval_padding_pairs: Any, shape: Any, order: Any, cga_layout: Any = ()) -> Any:
    """Return a padded layout whose elements keep their order."""
    expect(len(shape) == len(order))
    expect(all(map(is_power_of_two, shape)))
    sizes = _shape_of_block(shape, cga_layout)
    bases = [
        [1 << bit if place == dim else 0 for place in range(len(shape))]
        for dim in order
        for bit in range(sizes[dim].bit_length() - 1)
    ]
    return PaddedSharedLayout(interval_padding_pairs, bases, [*cga_layout], shape)


@exported(HOME)
@dataclass(frozen=True)
class PaddedSharedLayout(SharedLayout):
    """A layout in shared memory with gaps after intervals."""

    interval_padding_pairs: list[list[int]]
    offset_bases: list[list[int]]
    cga_layout: list[list[int]]
    shape: list[int]

    __hash__ = Layout.__hash__

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, unwrap_shape(getattr(self, each.name)))
        for basis in (*self.offset_bases, *self.cga_layout):
            expect(len(basis) == len(self.shape))
        self.verify()

    def verify(self) -> None:
        """Check the intervals.

        Raises:
            AssertionError: one is no power of 2, or stands twice.
        """
        pairs = self.interval_padding_pairs
        expect(pairs, "PaddedSharedLayout interval_padding_pairs must have at least one interval-padding pair")
        expect(all(len(pair) == 2 for pair in pairs))
        expect(len({interval for interval, _ in pairs}) == len(pairs))
        for place, what in enumerate(("interval", "padding")):
            right = all(is_power_of_two(pair[place]) for pair in pairs)
            expect(right, f"PaddedSharedLayout {what} values must all be power of two")
        expect(self.shape, "PaddedSharedLayout order must not be empty")

    with_identity_for = staticmethod(_identity)

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.interval_padding_pairs, self.offset_bases, self.cga_layout, self.shape)
        return f"PaddedShared_{joined(parts)}_PaddedShared"


@exported(HOME)
@dataclass(frozen=True)
class SharedLinearLayout(SharedLayout):
    """A layout in shared memory by its bases."""

    offset_bases: list[list[int]]
    block_bases: list[list[int]] = field(default_factory=list)
    alignment: int = 16

    __hash__ = Layout.__hash__

    def __post_init__(self) -> None:
        for name in ("offset_bases", "block_bases"):
            object.__setattr__(self, name, unwrap_shape(getattr(self, name)))
        self._unwrap("alignment")
        expect(self.offset_bases and self.offset_bases[0], "SharedLinearLayout offset_bases must not be empty")
        for basis in (*self.offset_bases, *self.block_bases):
            expect(len(basis) == len(self.offset_bases[0]))
        expect(is_power_of_two(self.alignment), "SharedLinearLayout alignment must be a positive power of two")

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"SharedLinear_{self.offset_bases}_{self.block_bases}_{self.alignment}_SharedLinear"

    @property
    def shape(self) -> list[int]:
        """The sizes."""
        bases = (*self.offset_bases, *self.block_bases)
        return [1 << max(basis[dim] for basis in bases).bit_length() for dim in range(len(self.offset_bases[0]))]


export(HOME, _get_shape_per_cta=constexpr_function(_shape_of_block))
