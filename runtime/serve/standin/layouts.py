"""Gluon's layouts, as plain values: how the elements of a block lie in registers or in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nojit.runtime.serve.standin.callbacks import MissingError
from nojit.runtime.serve.standin.constants import ConstexprType, unwrap, unwrap_shape
from nojit.runtime.serve.standin.constexpr_functions import constexpr_function
from nojit.runtime.serve.standin.registry import export, exported
from nojit.runtime.serve.standin.type_names import is_power_of_two

__all__ = ["BlockedLayout", "DistributedLayout", "NVMMASharedLayout", "SharedLayout"]


def _expect(condition: object, what: str = "") -> None:
    # Triton's own errors are assertions
    if not condition:
        raise AssertionError(what)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _joined(values: Any) -> str:
    return "" if values is None else "_".join(map(str, values))


def _bases(values: Any) -> str:
    return "_".join("~".join(map(str, each)) for each in values or ())


class _Layout:
    """The base of layouts: fields without constexprs, and a hash of lists."""

    def _unwrap(self, *names: str) -> None:
        each: Any = self
        for name in names or [one.name for one in fields(each)]:
            object.__setattr__(self, name, unwrap(getattr(self, name)))

    def __hash__(self) -> int:
        each: Any = self
        return hash(tuple(_frozen(getattr(self, one.name)) for one in fields(each)))

    @property
    def type(self) -> ConstexprType:
        """The type of the layout as a constexpr."""
        return ConstexprType(self)

    def format_tensor_view(self, shape: Any) -> str:
        """Raise an error: Triton's compiler draws layouts."""
        raise MissingError(f"{type(self).__module__}.{type(self).__name__}.format_tensor_view")

    def format_hardware_view(self, shape: Any) -> str:
        """Raise an error: Triton's compiler draws layouts."""
        raise MissingError(f"{type(self).__module__}.{type(self).__name__}.format_hardware_view")


_HOME = "triton.experimental.gluon.language._layouts"


@exported(_HOME)
class DistributedLayout(_Layout):
    """Base of layouts in registers."""

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        raise NotImplementedError("DistributedLayout subclasses must define rank")


@exported(_HOME)
class SharedLayout(_Layout):
    """Base of layouts in shared memory."""


@exported(_HOME)
@dataclass(frozen=True)
class AutoLayout(DistributedLayout):
    """A layout that the compiler chooses."""

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return "AL"

    @property
    def rank(self) -> int:
        """Raise an error: it has none."""
        raise ValueError("AutoLayout has no rank")


@exported(_HOME)
@dataclass(frozen=True)
class CoalescedLayout(DistributedLayout):
    """A layout for accesses side by side, which the compiler chooses."""

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return "CL"

    @property
    def rank(self) -> int:
        """Raise an error: it has none."""
        raise ValueError("CoalescedLayout has no rank")


@exported(_HOME)
@dataclass(frozen=True)
class BlockedLayout(DistributedLayout):
    """A block split over threads, warps and blocks."""

    size_per_thread: list[int]
    threads_per_warp: list[int]
    warps_per_cta: list[int]
    order: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()
        for each in (self.threads_per_warp, self.warps_per_cta, self.order):
            _expect(len(each) == len(self.size_per_thread))

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.size_per_thread, self.threads_per_warp, self.warps_per_cta, self.order)
        return f"B{'_'.join(map(_joined, parts))}_{_bases(self.cga_layout)}B"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.order)


@exported(_HOME)
@dataclass(frozen=True)
class SliceLayout(DistributedLayout):
    """A layout without one of its dimensions."""

    dim: int
    parent: Any

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"SL{self.dim}_{self.parent.mangle()}SL"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return int(self.parent.rank) - 1

    @property
    def cga_layout(self) -> list[list[int]]:
        """How blocks of a cluster split the dimensions."""
        return [basis[: self.dim] + basis[self.dim + 1 :] for basis in self.parent.cga_layout or ()]


@exported(_HOME)
@dataclass(frozen=True)
class DistributedLinearLayout(DistributedLayout):
    """A layout by the bases of registers, lanes, warps and blocks."""

    reg_bases: list[list[int]]
    lane_bases: list[list[int]]
    warp_bases: list[list[int]]
    block_bases: list[list[int]]
    shape: list[int]

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, unwrap_shape(getattr(self, each.name)))
        for basis in (*self.reg_bases, *self.lane_bases, *self.warp_bases, *self.block_bases):
            _expect(len(basis) == len(self.shape))

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"DLL{self.reg_bases}_{self.lane_bases}_{self.warp_bases}_{self.block_bases}_{self.shape}DLL"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


@exported(_HOME)
@dataclass(frozen=True)
class DotOperandLayout(DistributedLayout):
    """The layout of one operand of a dot."""

    operand_index: int
    parent: Any
    k_width: int

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"DO{self.operand_index}_{self.parent.mangle()}_{self.k_width}DO"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return int(self.parent.rank)

    @property
    def cga_layout(self) -> list[list[int]]:
        """How blocks of a cluster split the dimensions: never along K."""
        found = unwrap(getattr(self.parent, "cga_layout", [])) or []
        along = self.rank - (1 if self.operand_index == 0 else 2)
        return [[0 if place == along else each for place, each in enumerate(basis)] for basis in found]


@exported(_HOME)
@dataclass(frozen=True)
class NVMMADistributedLayout(DistributedLayout):
    """The layout of a tensor core's result."""

    version: list[int]
    warps_per_cta: list[int]
    instr_shape: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"MMA_{self.version}_{self.warps_per_cta}_{self.instr_shape}_{_bases(self.cga_layout)}_MMA"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.warps_per_cta)


def _shape_of_block(shape: Any, cga_layout: Any) -> Any:
    """Return the part of a cluster's shape that one block has."""
    if not cga_layout:
        return shape
    sizes = [*shape]
    for dim in range(len(cga_layout[0])):
        blocks = max(1, 2 * max(basis[dim] for basis in cga_layout))
        _expect(sizes[dim] % blocks == 0, f"Shape {shape} is not divisible by CGA layout {cga_layout}")
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


@exported(_HOME)
@dataclass(frozen=True)
class NVMMASharedLayout(SharedLayout):
    """A layout in shared memory that tensor cores and TMA read."""

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2
    transposed: bool = False
    fp4_padded: bool = False
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()
        object.__setattr__(self, "cga_layout", self.cga_layout or [])
        if self.cga_layout:
            _expect(len(self.cga_layout[0]) == self.rank)
        _expect(self.element_bitwidth in {8, 16, 32, 64})
        _expect(self.swizzle_byte_width in {0, 32, 64, 128})
        if self.fp4_padded:
            _expect(self.swizzle_byte_width == 128, "fp4_padded only supports 128 byte swizzling")
            _expect(self.element_bitwidth == 8, "fp4_padded is only supported for element_bitwidth=8")

    get_default_for = staticmethod(_nvmma_default)

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.swizzle_byte_width, self.element_bitwidth, self.rank, self.transposed, self.fp4_padded)
        return f"NVMMA_{_joined(parts)}_{_bases(self.cga_layout)}_NVMMA"


@exported(_HOME)
@dataclass(frozen=True)
class SwizzledSharedLayout(SharedLayout):
    """A swizzled layout in shared memory."""

    vec: int
    per_phase: int
    max_phase: int
    order: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.vec, self.per_phase, self.max_phase)
        return f"SSS_{_joined(parts)}_{_joined(self.order)}_{_bases(self.cga_layout)}_SSS"


@constexpr_function
def _identity(interval_padding_pairs: Any, shape: Any, order: Any, cga_layout: Any = ()) -> Any:
    """Return a padded layout whose elements keep their order."""
    _expect(len(shape) == len(order))
    _expect(all(map(is_power_of_two, shape)))
    sizes = _shape_of_block(shape, cga_layout)
    bases = [
        [1 << bit if place == dim else 0 for place in range(len(shape))]
        for dim in order
        for bit in range(sizes[dim].bit_length() - 1)
    ]
    return PaddedSharedLayout(interval_padding_pairs, bases, [*cga_layout], shape)


@exported(_HOME)
@dataclass(frozen=True)
class PaddedSharedLayout(SharedLayout):
    """A layout in shared memory with gaps after intervals."""

    interval_padding_pairs: list[list[int]]
    offset_bases: list[list[int]]
    cga_layout: list[list[int]]
    shape: list[int]

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, unwrap_shape(getattr(self, each.name)))
        for basis in (*self.offset_bases, *self.cga_layout):
            _expect(len(basis) == len(self.shape))
        self.verify()

    def verify(self) -> None:
        """Check the intervals.

        Raises:
            AssertionError: one is no power of 2, or stands twice.
        """
        pairs = self.interval_padding_pairs
        _expect(pairs, "PaddedSharedLayout interval_padding_pairs must have at least one interval-padding pair")
        _expect(all(len(pair) == 2 for pair in pairs))
        _expect(len({interval for interval, _ in pairs}) == len(pairs))
        for place, what in enumerate(("interval", "padding")):
            right = all(is_power_of_two(pair[place]) for pair in pairs)
            _expect(right, f"PaddedSharedLayout {what} values must all be power of two")
        _expect(self.shape, "PaddedSharedLayout order must not be empty")

    with_identity_for = staticmethod(_identity)

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.interval_padding_pairs, self.offset_bases, self.cga_layout, self.shape)
        return f"PaddedShared_{_joined(parts)}_PaddedShared"


@exported(_HOME)
@dataclass(frozen=True)
class SharedLinearLayout(SharedLayout):
    """A layout in shared memory by its bases."""

    offset_bases: list[list[int]]
    block_bases: list[list[int]] = field(default_factory=list)
    alignment: int = 16

    __hash__ = _Layout.__hash__

    def __post_init__(self) -> None:
        for name in ("offset_bases", "block_bases"):
            object.__setattr__(self, name, unwrap_shape(getattr(self, name)))
        self._unwrap("alignment")
        _expect(self.offset_bases and self.offset_bases[0], "SharedLinearLayout offset_bases must not be empty")
        for basis in (*self.offset_bases, *self.block_bases):
            _expect(len(basis) == len(self.offset_bases[0]))
        _expect(is_power_of_two(self.alignment), "SharedLinearLayout alignment must be a positive power of two")

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"SharedLinear_{self.offset_bases}_{self.block_bases}_{self.alignment}_SharedLinear"

    @property
    def shape(self) -> list[int]:
        """The sizes."""
        bases = (*self.offset_bases, *self.block_bases)
        return [1 << max(basis[dim] for basis in bases).bit_length() for dim in range(len(self.offset_bases[0]))]


export(_HOME, _get_shape_per_cta=constexpr_function(_shape_of_block))
