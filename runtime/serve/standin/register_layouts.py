"""Gluon's layouts of registers, as plain values: which thread holds which element of a block."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nojit.runtime.serve.standin.constants import unwrap, unwrap_shape
from nojit.runtime.serve.standin.layout_base import HOME, Layout, expect, joined, joined_bases
from nojit.runtime.serve.standin.registry import exported

__all__ = ["BlockedLayout", "DistributedLayout"]


@exported(HOME)
class DistributedLayout(Layout):
    """Base of layouts in registers."""

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        raise NotImplementedError("DistributedLayout subclasses must define rank")


@exported(HOME)
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


@exported(HOME)
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


@exported(HOME)
@dataclass(frozen=True)
class BlockedLayout(DistributedLayout):
    """A block split over threads, warps and blocks."""

    size_per_thread: list[int]
    threads_per_warp: list[int]
    warps_per_cta: list[int]
    order: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()
        for each in (self.threads_per_warp, self.warps_per_cta, self.order):
            expect(len(each) == len(self.size_per_thread))

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        parts = (self.size_per_thread, self.threads_per_warp, self.warps_per_cta, self.order)
        return f"B{'_'.join(map(joined, parts))}_{joined_bases(self.cga_layout)}B"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.order)


@exported(HOME)
@dataclass(frozen=True)
class SliceLayout(DistributedLayout):
    """A layout without one of its dimensions."""

    dim: int
    parent: Any

    __hash__ = Layout.__hash__

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


@exported(HOME)
@dataclass(frozen=True)
class DistributedLinearLayout(DistributedLayout):
    """A layout by the bases of registers, lanes, warps and blocks."""

    reg_bases: list[list[int]]
    lane_bases: list[list[int]]
    warp_bases: list[list[int]]
    block_bases: list[list[int]]
    shape: list[int]

    __hash__ = Layout.__hash__

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, unwrap_shape(getattr(self, each.name)))
        for basis in (*self.reg_bases, *self.lane_bases, *self.warp_bases, *self.block_bases):
            expect(len(basis) == len(self.shape))

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"DLL{self.reg_bases}_{self.lane_bases}_{self.warp_bases}_{self.block_bases}_{self.shape}DLL"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


@exported(HOME)
@dataclass(frozen=True)
class DotOperandLayout(DistributedLayout):
    """The layout of one operand of a dot."""

    operand_index: int
    parent: Any
    k_width: int

    __hash__ = Layout.__hash__

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


@exported(HOME)
@dataclass(frozen=True)
class NVMMADistributedLayout(DistributedLayout):
    """The layout of a tensor core's result."""

    version: list[int]
    warps_per_cta: list[int]
    instr_shape: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)

    __hash__ = Layout.__hash__

    def __post_init__(self) -> None:
        self._unwrap()

    def mangle(self) -> str:
        """Return the layout's part of a function's name."""
        return f"MMA_{self.version}_{self.warps_per_cta}_{self.instr_shape}_{joined_bases(self.cga_layout)}_MMA"

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.warps_per_cta)
