"""Calls of gated products: dtypes, layouts, tiles, activations, and two kernels in place of one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from unittest import mock

import torch
from nojit.kernels.gated_mm import gated_mm, launch, op, reference
from nojit.kernels.gated_mm.cost import SIDES
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, view

ACTIVATIONS = ("silu", "gelu", "relu")


@dataclass(frozen=True)
class Case:
    """One gated product."""

    m: int = 300
    n: int = 264
    k: int = 200
    dtype: torch.dtype = torch.bfloat16
    columns: bool = True
    """Whether the weights are stored by columns, as those of linear layers are."""
    activation: str = "silu"
    tile: tuple[int, int] | None = None
    """The tile of one launch of several rows; None for two kernels."""
    offset: int = 0

    @property
    def label(self) -> str:
        flags = (
            str(self.dtype)[6:],
            "columns" if self.columns else "",
            self.activation,
            "as chosen" if self.m == 1 else "two kernels" if self.tile is None else f"{self.tile[0]} x {self.tile[1]}",
            f"offset {self.offset}" if self.offset else "",
        )
        return f"{self.m} {self.n} {self.k} {' '.join(filter(None, flags))}"

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Make both operands; sums are near one."""
        a = view((self.m, self.k), self.dtype, 1, offset=self.offset)
        sides = (2 * self.n, self.k) if self.columns else (self.k, 2 * self.n)
        b = view(sides, self.dtype, 2, offset=self.offset, scale=self.k**-0.5)
        return a, b.t() if self.columns else b

    def run(self) -> Outputs:
        with ExitStack() as stack:
            stack.callback(op._MEMO.forget)
            op._MEMO.forget()
            if self.m > 1:
                stack.enter_context(mock.patch.object(launch, "few_rows_of", return_value=None))
            stack.enter_context(mock.patch.object(launch, "tile_of", return_value=self.tile))
            return (gated_mm(*self.inputs(), activation=self.activation),)

    def exact(self) -> Outputs:
        return (reference.gated_mm(*(value.double() for value in self.inputs()), activation=self.activation),)

    def torchs(self) -> Outputs:
        return (reference.gated_mm(*self.inputs(), activation=self.activation),)

    def call(self) -> Call:
        return Call(f"gated_mm {self.label}", self.run, self.exact, self.torchs, (2.0,))


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for dtype, columns, activation in itertools.product(DTYPES, (False, True), ACTIVATIONS):
        if dtype.itemsize == 2 and activation == launch.FUSED:
            for tile, m in itertools.product(SIDES, (300, 9)):
                yield Case(m, dtype=dtype, columns=columns, tile=tile)
        yield Case(dtype=dtype, columns=columns, activation=activation)
        yield Case(1, dtype=dtype, columns=columns, activation=activation)
    for columns, tile in itertools.product((False, True), SIDES):
        yield Case(1000, 1032, 4104, columns=columns, tile=tile)
        yield Case(65, 8, 136, columns=columns, tile=tile)
    yield Case(135, 77, 61, offset=1)


def gated_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()
