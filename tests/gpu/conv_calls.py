"""Calls of convolutions: every dtype, layout, window, group and kernel, and gradients of all operands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from nojit.kernels.conv import (
    conv2d,
    conv3d,
    launch,
    launch_few_grad,
    launch_pointers,
    launch_sm90,
    launch_sums,
    launch_unfold,
    launch_weight_grad,
    plan_costs,
    weight_grad_costs,
)
from nojit.kernels.conv import op_autograd as operators
from torch import Tensor
from torch.nn import functional

from tests.gpu.call import Call, Outputs, view
from tests.gpu.gemm_calls import as_tf32, in_fp32
from tests.gpu.matmul_calls import TF32_FACTOR

# batch, channels, results, positions
WHOLE = (8, 128, 320, 60, 52)
NARROW = (16, 64, 64, 30, 30)
CUT = (1, 576, 128, 9, 7)
RAGGED = (3, 37, 51, 23, 18)
THIN = (4, 40, 24, 25, 25)
VOLUME = (2, 64, 96, 7, 20, 18)
# enough positions of few results for kernels whose taps share what they meet
MANY = (16, 64, 64, 56, 56)


@dataclass(frozen=True)
class Case:
    """One convolution."""

    dtype: torch.dtype
    sizes: tuple[int, ...] = WHOLE
    taps: int = 3
    words: dict[str, Any] = field(default_factory=lambda: {"padding": 1})
    channels: bool = True
    """Whether input and weight are stored by channels."""
    copied: bool = False
    """Whether operands by planes may be copied by channels where that is faster."""
    offset: int = 0
    tf32: bool = False
    maps: bool = True
    """Whether the kernels over tensor maps may run where they can."""
    estimated: bool = False
    """Whether estimated times choose kernel, tile and parts of sums, where they can; else rules do."""
    parts: int = 0
    """Into how many parts depths are cut; 0 leaves that to the operator."""
    tile: tuple[int, int] | None = None
    """The tile of weight gradients; None leaves it and the kernel to the operator."""
    biased: bool = True
    copy_bytes: int = 0
    """The most bytes of an unfolded copy; 0 leaves that to the operator."""

    @property
    def label(self) -> str:
        flags = (
            *(f"{name} {value}" for name, value in self.words.items()),
            "by channels" if self.channels else "by planes, copied" if self.copied else "by planes",
            "tf32" if self.tf32 else "",
            "" if self.maps else "pointers",
            "estimated" if self.estimated else "",
            f"offset {self.offset}" if self.offset else "",
            f"{self.parts} parts" if self.parts else "",
            f"tile {self.tile}" if self.tile else "",
            "" if self.biased else "no bias",
            f"copies of {self.copy_bytes} bytes" if self.copy_bytes else "",
        )
        return f"{str(self.dtype)[6:]} {self.sizes} {self.taps} {' '.join(filter(None, flags))}".strip()

    def inputs(self) -> list[Tensor]:
        """Make input, weight and bias."""
        batch, channels, results, *positions = self.sizes
        depth = channels // self.words.get("groups", 1) * self.taps ** len(positions)
        x = self._stored((batch, *positions, channels), 1)
        w = self._stored((results, *(self.taps for _ in positions), channels // self.words.get("groups", 1)), 2)
        made = [x, w.mul_(depth**-0.5)]
        return [*made, view((results,), self.dtype, 3, offset=self.offset)] if self.biased else made

    def _stored(self, shape: tuple[int, ...], seed: int) -> Tensor:
        """Make a tensor by channels, or the same by planes."""
        value = view(shape, self.dtype, seed, offset=self.offset).movedim(-1, 1)
        if self.channels:
            return value
        flat = torch.empty(value.numel() + self.offset, dtype=self.dtype, device="cuda")
        return flat[self.offset :].view(value.shape).copy_(value)

    def call(self, *, gradients: bool = False) -> Call:
        three = len(self.sizes) > 5

        def run(ours: bool, wide: torch.dtype | None = None, *, cut: bool = False) -> Outputs:
            rounded = as_tf32 if cut else Tensor.detach
            x, w, *bias = self.inputs()
            operands = [x if wide is None else x.to(wide) for x in (rounded(x), rounded(w), *bias)]
            torchs = functional.conv3d if three else functional.conv2d
            with self._steered(wide):
                function = (conv3d if three else conv2d) if ours else torchs
                if not gradients:
                    return (function(*operands, **self.words),)
                for value in operands:
                    value.requires_grad_()
                out = function(*operands, **self.words)
                grad = rounded(view(tuple(out.shape), self.dtype, 4)).to(out.dtype)
                return (out.detach(), *torch.autograd.grad(out, operands, grad))

        factor, of_gradients = (TF32_FACTOR, TF32_FACTOR) if self.tf32 else (2.0, 3.0)
        return Call(
            f"{'conv3d' if three else 'conv2d'} {self.label}",
            lambda: run(True),
            lambda: run(False, torch.float64),
            lambda: in_fp32(run(False, torch.float64, cut=True)) if self.tf32 else run(False),
            (factor, *(of_gradients,) * (3 if self.biased else 2)) if gradients else (factor,),
        )

    @contextmanager
    def _steered(self, wide: torch.dtype | None) -> Iterator[None]:
        """Set torch's switch, and what runs on maps and in parts; forget what was remembered otherwise."""
        before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = self.tf32 and wide is None
        with ExitStack() as stack:
            stack.callback(setattr, torch.backends.cudnn, "allow_tf32", before)
            operators.MEMO.forget()
            stack.callback(operators.MEMO.forget)
            for name in () if self.copied else ("runs_by_channels", "serves_weight_grad_channels"):
                stack.enter_context(mock.patch.object(launch, name, return_value=False))
            if not self.estimated:
                stack.enter_context(mock.patch.object(launch_sums, "takes_maps", return_value=False))
            if not self.maps:
                stack.enter_context(mock.patch.object(launch_sm90, "takes_maps", return_value=False))
            for module in (launch_few_grad, launch_pointers, launch_sm90) if self.parts else ():
                stack.enter_context(mock.patch.object(module, "parts_of", return_value=self.parts))
            if self.parts:
                stack.enter_context(mock.patch.object(plan_costs, "divisions", return_value=(self.parts,)))
            if self.copy_bytes:
                stack.enter_context(mock.patch.object(launch_unfold, "COPY_BYTES", self.copy_bytes))
            if self.tile:
                stack.enter_context(mock.patch.object(launch_weight_grad, "plans", self._plans))
            yield

    def _plans(self, *args: Any, **named: Any) -> Iterator[plan_costs.Plan]:
        return (plan for plan in plan_costs.plans(*args, **named) if (plan.rows, plan.cols) == self.tile)


_HALVES = (torch.float16, torch.bfloat16)
STEPPED = Case(torch.float16, (64, 128, 128, 112, 112), 3, {"padding": 1, "stride": 2})
"""The shape with a stride that speed is promised for."""
# steps of the depth that have channels of one tap and of two, for few results and for many
_MIXED = ((4, 32, 16, 30, 30), (4, 48, 16, 30, 30), (4, 32, 48, 30, 30), (4, 48, 48, 30, 30), (8, 80, 128, 60, 52))
# the same by planes of as many positions as 16 divides
_PLANAR = ((4, 32, 16, 28, 28), (4, 48, 16, 28, 28), (4, 32, 48, 28, 28), (4, 48, 48, 28, 28))
_WINDOWS: tuple[tuple[tuple[int, ...], int, dict[str, Any]], ...] = (
    (WHOLE, 3, {"padding": 1, "stride": 2}),
    (WHOLE, 3, {"padding": "same", "dilation": 2}),
    (WHOLE, 1, {"stride": 2}),
    (WHOLE, 1, {}),
    (NARROW, 5, {"padding": (2, 0), "stride": (1, 3)}),
    (WHOLE, 3, {"padding": 1, "groups": 1, "stride": (2, 1), "dilation": (1, 2)}),
    ((4, 256, 128, 28, 28), 3, {"padding": 1, "groups": 2}),
    ((4, 96, 96, 28, 28), 3, {"padding": 1, "groups": 96}),
    ((4, 64, 128, 28, 28), 3, {"padding": 1, "groups": 8}),
    ((4, 3, 64, 60, 60), 7, {"padding": 3, "stride": 2}),
    ((4, 5, 40, 30, 30), 3, {"padding": 1}),
    ((5, 64, 72, 14, 14), 4, {"padding": "same"}),
    # the input is one position high, so its gradient reads only some of the taps
    ((4, 64, 72, 1, 30), 3, {"padding": 1, "stride": (2, 1)}),
)
# height in strips that are whole and that are not, channels that fill steps and that do not, more steps than can stay
_SHARED: tuple[tuple[tuple[int, ...], int, dict[str, Any]], ...] = (
    (MANY, 3, {"padding": 1}),
    (MANY, 3, {"padding": (0, 1)}),
    ((7, 64, 64, 160, 160), 3, {"padding": 1}),
    ((32, 40, 48, 33, 35), 3, {"padding": 1}),
    ((96, 128, 64, 40, 40), 3, {"padding": 1}),
    ((96, 64, 128, 40, 40), 3, {"padding": 1}),
    ((32, 72, 40, 40, 40), 3, {"padding": (2, 1), "dilation": (1, 2)}),
    ((2, 64, 64, 8, 42, 40), 3, {"padding": 1}),
)


# by planes: many channels, few, one, results that are few, rows of 16 bytes and others
_PLANES: tuple[tuple[tuple[int, ...], int, dict[str, Any]], ...] = (
    (NARROW, 3, {"padding": 1}),
    (CUT, 3, {"padding": 1}),
    (RAGGED, 3, {"padding": 1, "stride": 2}),
    (THIN, 3, {"padding": 1, "stride": (1, 3)}),
    (VOLUME, 3, {"padding": 1, "stride": (1, 2, 2)}),
    ((4, 256, 128, 28, 28), 3, {"padding": 1, "groups": 2}),
    ((4, 64, 72, 27, 27), 1, {}),
    ((4, 64, 72, 28, 28), 1, {}),
    ((4, 1, 24, 30, 30), 3, {"padding": 1}),
    ((4, 3, 24, 30, 30), 1, {"stride": 2}),
    ((4, 5, 40, 30, 30), 3, {"padding": 1}),
    ((4, 24, 1, 30, 30), 3, {"padding": 1}),
    ((4, 24, 40, 1, 1), 3, {"padding": 1, "stride": 2}),
)


# input gradients of few channels: three, eights, and more in few tiles and in many; of small images with a stride
_FEW_GRADS: tuple[tuple[tuple[int, ...], int, dict[str, Any]], ...] = (
    ((5, 3, 64, 60, 60), 7, {"padding": 3, "stride": 2}),
    ((8, 3, 64, 64, 64), 1, {}),
    ((8, 16, 40, 64, 64), 3, {"padding": 1}),
    ((2, 16, 40, 21, 20), 3, {"padding": 1, "stride": 2}),
    ((8, 32, 24, 64, 64), 3, {"padding": 1}),
    ((2, 24, 40, 20, 21), 5, {"padding": 2, "stride": (3, 2)}),
    ((8, 64, 24, 64, 64), 3, {"padding": 1}),
    ((8, 72, 24, 48, 48), 3, {"padding": 2, "dilation": 2}),
    ((1, 72, 24, 9, 9), 3, {"padding": 1, "stride": 2}),
    # volumes
    ((5, 3, 40, 5, 20, 21), 3, {"padding": 1, "stride": 2}),
    ((4, 16, 40, 7, 36, 36), 3, {"padding": 1}),
    ((2, 24, 40, 5, 12, 13), 3, {"padding": (1, 2, 1), "stride": (2, 1, 3), "dilation": (1, 2, 1)}),
    ((2, 72, 24, 4, 9, 9), 3, {"padding": 1, "stride": 2}),
)


# volumes of few channels: as they are, and unfolded by rows and by positions; points
_FEW_VOLUMES: tuple[tuple[tuple[int, ...], int, dict[str, Any]], ...] = (
    *(
        ((2, channels, results, 5, 18, 19), 3, {"padding": 1, "stride": stride})
        for channels, results in ((8, 8), (16, 32), (3, 64), (12, 20), (70, 24), (344, 24), (64, 8))
        for stride in (1, 2)
    ),
    ((2, 3, 40, 6, 20, 21), 1, {}),
    ((2, 3, 40, 6, 20, 21), 1, {"stride": 2}),
    ((2, 16, 40, 9, 20, 21), 2, {"padding": (2, 1, 0), "stride": (1, 3, 2), "dilation": (3, 1, 1)}),
    ((2, 3, 40, 9, 20, 21), 3, {"padding": (2, 1, 2), "stride": (2, 1, 1), "dilation": (1, 1, 2)}),
)


# gradients of groups whose times are estimated: a few channels, one, and as many as maps take
_GROUPS: tuple[tuple[tuple[int, ...], int, dict[str, Any]], ...] = tuple(
    ((4, channels, channels, 28, 28), 3, {"padding": 1, "groups": groups, "stride": stride})
    for channels, groups in ((32, 2), (32, 32), (128, 2))
    for stride in (1, 2)
)


def _copied() -> Iterator[Case]:
    """List cases by planes whose operands are copied where that is faster."""
    for dtype, (sizes, taps, words) in itertools.product(_HALVES, (*_PLANES, *_FEW_VOLUMES)):
        yield Case(dtype, sizes, taps, words, channels=False, copied=True)


def _kinds() -> Iterator[tuple[torch.dtype, bool]]:
    yield from ((dtype, False) for dtype in (*_HALVES, torch.float32))
    yield torch.float32, True


def _in_two_groups(dtype: torch.dtype, sizes: tuple[int, ...], **words: Any) -> Case:
    """Return a case of two groups, each with the channels and results of `sizes`."""
    batch, channels, results, *positions = sizes
    return Case(dtype, (batch, 2 * channels, 2 * results, *positions), 3, {"padding": 1, "groups": 2}, **words)


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for dtype, tf32 in _kinds():
        for channels, maps in ((True, True), (True, False), (False, True)):
            if dtype.itemsize == 4 and not maps:
                continue
            for sizes in (WHOLE, NARROW, CUT, THIN, RAGGED):
                yield Case(dtype, sizes, channels=channels, tf32=tf32, maps=maps)
            yield Case(dtype, VOLUME, channels=channels, tf32=tf32, maps=maps)
            yield Case(dtype, WHOLE, channels=channels, tf32=tf32, maps=maps, biased=False)
        for sizes in _MIXED:
            yield Case(dtype, sizes, tf32=tf32, maps=False)
            yield Case(dtype, (*sizes[:3], 3, *sizes[3:]), tf32=tf32, maps=False)
            yield Case(dtype, sizes, tf32=tf32, offset=1)
            # one group of 16 bits would run on vectors of channels
            yield _in_two_groups(dtype, sizes, tf32=tf32, maps=False)
            yield _in_two_groups(dtype, sizes, tf32=tf32, offset=1)
        yield from (Case(dtype, sizes, tf32=tf32, channels=False) for sizes in (*_MIXED, *_PLANAR))
        for offset in (1, 3):
            yield Case(dtype, NARROW, tf32=tf32, offset=offset)
            yield Case(dtype, RAGGED, tf32=tf32, offset=offset, channels=False)
    windows = itertools.product((torch.bfloat16, torch.float32), _WINDOWS)
    for dtype, (sizes, taps, words) in (*windows, *itertools.product(_HALVES, _SHARED)):
        yield Case(dtype, sizes, taps, words)
    for dtype, parts in itertools.product(_HALVES, (2, 5)):
        for maps in (True, False):
            yield Case(dtype, WHOLE, parts=parts, maps=maps)
    yield from _copied()


def _weight_cases() -> Iterator[Case]:
    """List cases whose weights' gradients are computed over pointers: few results, channels of one tap and of two, by planes."""
    for (dtype, tf32), channels in itertools.product(_kinds(), (64, 48)):
        yield Case(dtype, (4, channels, 48, 28, 28), tf32=tf32, channels=False)
    for dtype, channels in itertools.product(_HALVES, (64, 48)):
        yield Case(dtype, (4, channels, 16, 28, 28), maps=False)
        yield Case(dtype, (4, channels, 16, 28, 28), channels=False)
        # one group would be unfolded
        yield _in_two_groups(dtype, (4, channels, 16, 28, 28), offset=1)
        yield Case(dtype, (4, channels, 16, 3, 28, 28), maps=False)
    for dtype, offset in itertools.product(_HALVES, (0, 1)):
        yield Case(dtype, (4, 128, 128, 28, 28), channels=False, offset=offset)
    for dtype, tile, parts in itertools.product(_HALVES, weight_grad_costs.FEW, (1, 3)):
        yield Case(dtype, (4, 40, 64, 28, 28), parts=parts, tile=(tile.rows, tile.cols))
    for dtype, tile, parts in itertools.product(_HALVES, weight_grad_costs.MAPPED, (1, 3, 12)):
        yield Case(dtype, (4, 128, 192, 28, 28), parts=parts, tile=(tile.rows, tile.cols))
    for dtype, tile, parts in itertools.product(_HALVES, weight_grad_costs.STRIPS, (1, 3, 12)):
        yield Case(
            dtype, (4, 128, 192, 28, 28), 5 if tile.cols % 5 == 0 else 3, parts=parts, tile=(tile.rows, tile.cols)
        )
    for dtype, parts in itertools.product(_HALVES, (1, 3)):
        # unfolded first, and parts without rows
        yield Case(dtype, (4, 70, 192, 28, 28), parts=parts, tile=(64, 192))
        yield Case(dtype, (1, 136, 136, 3, 3), 3, {}, parts=parts, tile=(128, 192))
    for dtype, parts in itertools.product(_HALVES, (1, 5)):
        yield Case(dtype, (2, 72, 136, 5, 18, 19), parts=parts, tile=(128, 192))
        words = {"padding": (2, 1), "stride": (1, 2), "dilation": (1, 3)}
        yield Case(dtype, (2, 72, 136, 5, 19), 3, words, parts=parts, tile=(64, 384))
    # many parts of many fp32 weights
    yield Case(torch.float32, (4, 128, 192, 28, 28), parts=12)


def _in_chunks() -> Iterator[Case]:
    """List cases whose inputs are unfolded in chunks: of images, of volumes, of slices, of rows, and of rows of slices."""
    for dtype, (batch, *positions), maps in itertools.product(
        _HALVES, ((5, 25, 61), (3, 5, 20, 21), (1, 12, 20, 21), (1, 100, 61), (1, 3, 90, 61)), (True, False)
    ):
        words = {"padding": 1, "stride": (*(1 for _ in positions[1:]), 2)}
        yield Case(dtype, (batch, 3, 72, *positions), 3, words, maps=maps, copy_bytes=1 << 16)


def _estimated() -> Iterator[Case]:
    """List cases that run as estimated times choose."""
    for dtype, (sizes, taps, words) in itertools.product(
        _HALVES, (*_FEW_GRADS, *_WINDOWS, *_SHARED, *_FEW_VOLUMES, *_GROUPS)
    ):
        yield Case(dtype, sizes, taps, words, estimated=True)
    for dtype, parts in itertools.product(_HALVES, (1, 3)):
        yield Case(dtype, (4, 128, 192, 28, 28), parts=parts, estimated=True)
        yield Case(dtype, (2, 16, 32, 5, 18, 19), parts=parts, estimated=True)


def gradient_cases() -> Iterator[Case]:
    """List cases whose gradients are taken, by every kernel."""
    for dtype, tf32 in _kinds():
        for channels, maps in ((True, True), (True, False), (False, True)):
            if dtype.itemsize == 2 or maps:
                yield Case(dtype, NARROW, channels=channels, tf32=tf32, maps=maps)
                yield Case(dtype, VOLUME, channels=channels, tf32=tf32, maps=maps)
                yield Case(dtype, THIN, channels=channels, tf32=tf32, maps=maps)
        # results and channels the other way round: it is the gradient of the input that these are for
        for batch, channels, results, *positions in (*_MIXED, (8, 64, 128, 60, 52)):
            yield Case(dtype, (batch, results, channels, *positions), tf32=tf32, maps=False)
            yield Case(dtype, (batch, results, channels, 3, *positions), tf32=tf32, maps=False)
            # one group of 16 bits would run on vectors of channels
            yield _in_two_groups(dtype, (batch, results, channels, *positions), tf32=tf32, maps=False)
        yield Case(dtype, RAGGED, tf32=tf32, offset=1)
        yield Case(dtype, (*RAGGED[:3], 3, *RAGGED[3:]), tf32=tf32, offset=1)
        yield _in_two_groups(dtype, RAGGED, tf32=tf32, offset=1)
        # parts of so few tiles that rules take no wide ones
        yield Case(dtype, (1, 128, 192, 14, 14), tf32=tf32, parts=3)
        for parts in (1, 3):
            yield Case(dtype, (4, 128, 192, 28, 28), tf32=tf32, parts=parts)
            yield Case(dtype, (4, 128, 192, 28, 28), tf32=tf32, parts=parts, maps=False)
            yield Case(dtype, (4, 128, 192, 3, 28, 28), tf32=tf32, parts=parts, maps=False)
    yield from _weight_cases()
    yield from _in_chunks()
    yield from _copied()
    for dtype, (sizes, taps, words) in itertools.product(_HALVES, _FEW_GRADS):
        yield Case(dtype, sizes, taps, words)
        yield Case(dtype, sizes, taps, words, parts=3)
    yield from _estimated()
    # wide tiles of the gradient of the input
    for dtype, sizes in itertools.product(_HALVES, ((8, 320, 64, 60, 52), (8, 128, 64, 64, 64))):
        yield Case(dtype, sizes)
    for sizes, taps, words in _WINDOWS:
        yield Case(torch.bfloat16, sizes, taps, words)
    for dtype, (sizes, taps, words) in itertools.product(_HALVES, (*_SHARED, *_FEW_VOLUMES)):
        yield Case(dtype, sizes, taps, words)
    yield Case(torch.float16, (4, 256, 128, 28, 28), 3, {"padding": 1, "groups": 2}, parts=1)


def tall_calls() -> Iterator[Call]:
    """List calls for tiles of three boxes: last tiles of one box, of two and of three, and parts of depths."""
    for dtype, parts in itertools.product(_HALVES, (1, 3)):
        yield Case(dtype, (4, 128, 192, 28, 28), parts=parts).call(gradients=True)
        yield Case(dtype, (5, 80, 136, 37, 41), 3, {"padding": 1, "stride": 2}, parts=parts).call(gradients=True)
    for batch in (1, 2, 3):
        yield Case(torch.bfloat16, (batch, 128, 128, 16, 16), 3, {"padding": 1, "stride": 2}, parts=1).call()
    yield Case(torch.bfloat16, VOLUME, 3, {"padding": 1, "stride": (1, 2, 2)}, parts=1).call(gradients=True)
    yield Case(torch.bfloat16, (4, 256, 128, 28, 28), 3, {"padding": 1, "groups": 2}).call(gradients=True)
    yield STEPPED.call()


def conv_calls() -> Iterator[Call]:
    """List the calls of both."""
    for case in cases():
        yield case.call()
    for case in gradient_cases():
        call = case.call(gradients=True)
        yield Call(f"gradients of {call.label}", call.run, call.exact, call.torchs, call.factors)
