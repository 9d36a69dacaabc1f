"""Launches of an operator's kernels, or of its gradients', over tensors of one dtype and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.pointwise.manifests import kinds_of
from nojit.kernels.pointwise.source import Part
from nojit.kernels.pointwise.spec import OperatorSpec
from nojit.kernels.pointwise.tiling import Rectangles, holds, tile
from torch import Tensor

__all__ = ["Launcher"]


class Launcher:
    """Launches the kernels of one operator, or of its gradients."""

    def __init__(self, spec: OperatorSpec, part: Part) -> None:
        self.flat = part.kernel
        self.rectangles = f"{part.kernel}_rectangles"
        self._named: Mapping[str, Mapping[str, str]] = {word: {part.word: word} for word in spec.words} or {"": {}}
        self._rows, *others, self._whatever = kinds_of(spec, part)
        self._others = frozenset(others)
        self._all_rows = "r" * len(part.tensors)

    def launch_flat(
        self, tensors: Sequence[Tensor], n: int, word: str, scalars: Sequence[float], caller: Caller = DIRECT
    ) -> None:
        """Launch the flat kernel over `n` elements, which all tensors store in the same order.

        Args:
            tensors: operands, then results.
            n: number of elements.
            word: value of the operator's choice, or an empty string.
            scalars: numbers, in the operator's order.
            caller: launches the kernel.
        """
        if n:
            caller.launch(self.flat, *tensors, n, *scalars, **self._named[word])

    def launch(
        self,
        operands: Sequence[Tensor],
        outs: Sequence[Tensor],
        word: str,
        scalars: Sequence[float],
        caller: Caller = DIRECT,
    ) -> None:
        """Launch over operands that broadcast to the shape of the results, with the kernel that suits their strides.

        Args:
            operands: tensors to read.
            outs: tensors to write, all of one shape.
            word: value of the operator's choice, or an empty string.
            scalars: numbers, in the operator's order.
            caller: launches the kernel.
        """
        shape = outs[0].shape
        if not outs[0].numel():
            return
        tensors = [*operands, *outs]
        tiles = tile(shape, tuple((tensor.shape, tensor.stride()) for tensor in tensors))
        if tiles is None:
            self._launch_copies(operands, outs, word, scalars, caller)
        elif isinstance(tiles, int):
            self.launch_flat(tensors, tiles, word, scalars, caller)
        else:
            kinds = self._kinds(tensors, tiles)
            caller.launch(self.rectangles, *tensors, *tiles.numbers, *scalars, KINDS=kinds, **self._named[word])

    def _kinds(self, tensors: Sequence[Tensor], tiles: Rectangles) -> str:
        """Return the most specific kinds of strides that are built and that the tensors have.

        A kind is a letter for each tensor, as in `kernel_parts.rectangle_pointers`.
        """
        kinds = tiles.kinds[: len(self._rows)]
        # several results have the same strides, or use the general kind
        if tiles.kinds == self._all_rows:
            return self._rows
        aligned = kinds in self._others and set(tiles.kinds[len(self._rows) - 1 :]) == {"r"}
        if aligned and holds(tiles, kinds, [tensor.data_ptr() for tensor in tensors[: len(kinds)]]):
            return kinds
        return self._whatever

    def _launch_copies(
        self,
        operands: Sequence[Tensor],
        outs: Sequence[Tensor],
        word: str,
        scalars: Sequence[float],
        caller: Caller,
    ) -> None:
        """Launch over contiguous copies of tensors that have more than four dimensions after merging.

        `word`: the value of the operator's choice, such as ``tanh``, or empty without one; `scalars`: the operator's
        numbers, such as a slope; `caller`: allocates and launches, or also records both for replays.
        """
        spread = [caller.make(Tensor.expand, operand, outs[0].shape) for operand in operands]
        copies = [caller.make(Tensor.contiguous, operand) for operand in spread]
        results = [caller.make(torch.empty_like, out, memory_format=torch.contiguous_format) for out in outs]
        self.launch_flat([*copies, *results], results[0].numel(), word, scalars, caller)
        for out, result in zip(outs, results, strict=True):
            caller.make(Tensor.copy_, out, result)
