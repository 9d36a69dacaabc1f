"""Convolutions to tune and measure: layers of image and video models, and random similar shapes, for each kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import torch
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.tensor_maps import OTHERS
from nojit.kernels.conv.launch_few import is_few, launch_few
from nojit.kernels.conv.launch_pointers import Sum, launch, launch_weight_grad
from nojit.kernels.conv.launch_sm90 import boxes_of, launch_mapped, strips_of
from nojit.kernels.conv.layouts import new_like
from nojit.kernels.conv.splits import TILE, parts_of
from nojit.kernels.conv.sweeps import Window, forward_sweep, three
from nojit.kernels.problem import (
    RequestedLaunch,
    Roles,
    Work,
    check_use,
    generator,
    listed_and_drawn,
    requested,
    rounding,
)
from torch import Tensor

__all__ = ["BARS", "ROLES", "TUNED", "ConvProblem", "Shape", "problems"]

_OVER_MAPS: Final = ("BLOCK_M", "BLOCK_N", "GROUP", "STAGES")
_OVER_POINTERS: Final = Roles(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), ("PRECISION",), ("WHOLE",))
ROLES: Final[Mapping[str, Roles]] = {
    "conv": _OVER_POINTERS,
    "conv_few": Roles(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), (), ("UNIT", "DEEP")),
    "conv_few_grad": Roles(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), (), ("UNIT", "DEEP")),
    "conv_unfold": Roles(("BLOCK", "LANES"), (), ()),
    "conv_planes": Roles(("ROWS", "COLS"), (), ()),
    "conv_few_weight_grad": Roles(("BLOCK_K", "GROUP"), (), ("BLOCK_M", "BLOCK_N")),
    "conv_weight_grad": _OVER_POINTERS,
    "conv_weight_merge": Roles(("BLOCK", "PARTS"), (), ()),
    "conv_sm90": Roles(_OVER_MAPS, (), ("PANEL", "TRANSPOSED")),
    "conv_halo_sm90": Roles(("BLOCK_M", "BLOCK_N", "STAGES", "KEPT"), (), ("TRANSPOSED", "TAPS")),
    "conv_weight_grad_sm90": Roles(_OVER_MAPS, (), ("PANEL",)),
    "conv_weight_grad_halo_sm90": Roles(_OVER_MAPS, (), ("PANEL", "TAPS")),
}
_UNTUNED: Final = {
    "conv_few_grad",
    "conv_few_weight_grad",
    "conv_planes",
    "conv_unfold",
    "conv_weight_grad_halo_sm90",
    "conv_weight_grad_sm90",
    "conv_weight_merge",
}
"""Kernels with one config for each call."""
_DRAWN: Final = {"tune": 140, "held_out": 12, "fresh": 12}
"""Number of random shapes for each use; ``tune`` has the listed shapes as well."""
# images of the result that the check compares with torch's
_IMAGES: Final = 1
_ROWS: Final = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """One convolution with equal sizes in all spatial dimensions; padding keeps the size if the stride is 1."""

    name: str
    batch: int
    channels: int
    results: int
    positions: tuple[int, ...]
    taps: int = 3
    stride: int = 1

    @property
    def window(self) -> Window:
        """Stride, padding and dilation in each dimension, as the operator receives them."""
        dims = len(self.positions)
        side = (self.taps // 2,) * dims
        return Window((self.stride,) * dims, side, side, (1,) * dims)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Spatial sizes of the result."""
        return self.window.sizes(self.positions, self.kernel)

    @property
    def kernel(self) -> tuple[int, ...]:
        """Size of the weight in each spatial dimension."""
        return (self.taps,) * len(self.positions)

    @property
    def rows(self) -> int:
        """Number of output positions, over the whole batch."""
        return self.batch * math.prod(self.sizes)

    @property
    def depth(self) -> int:
        """Number of products that each output element sums up."""
        return self.channels * math.prod(self.kernel)

    @property
    def kind(self) -> str:
        """Return the class of the shape in reports."""
        what = "volume" if len(self.positions) > 2 else "image"
        return f"{what}, {'steps' if self.stride > 1 else 'every position'}"

    @property
    def flops(self) -> int:
        """Number of floating-point operations: multiplications and additions."""
        return 2 * self.rows * self.depth * self.results

    @property
    def elements(self) -> int:
        """Number of elements of the input, the weight and the result."""
        return (
            self.batch * self.channels * math.prod(self.positions)
            + self.depth * self.results
            + self.rows * self.results
        )

    @property
    def sum(self) -> Sum:
        """The convolution as a `Sum`, the form that launches take."""
        sweep = forward_sweep(self.window, self.positions, self.kernel)
        return Sum(sweep, self.batch, 1, self.channels, self.results, is_transposed=False, precision="ieee")

    def is_whole(self, kernel: str) -> bool:
        """Return whether one launch of `kernel` writes the result, without split-K."""
        grad = "weight_grad" in kernel
        positions = self.rows
        if kernel == "conv_halo_sm90":
            return strips_of(self.sum, boxes_of((self.batch, *three(self.sizes, 1)), (1,) * 4).rows, OTHERS) is not None
        if kernel.endswith("_sm90"):
            positions = boxes_of((self.batch, *three(self.sizes, 1)), (1, *three(self.window.stride, 1))).rows
        rows, cols, depth = (self.results, self.depth, positions) if grad else (positions, self.results, self.depth)
        return parts_of(-(-rows // TILE) * -(-cols // TILE), depth, OTHERS) == 1


def _image(batch: int, channels: int, size: int, *, results: int = 0, taps: int = 3, stride: int = 1) -> Shape:
    results = results or channels
    name = f"{batch} x {channels} x {size} x {size} to {results}, {taps} x {taps}" + f" by {stride}" * (stride > 1)
    return Shape(name, batch, channels, results, (size, size), taps, stride)


def _volume(batch: int, channels: int, depth: int, size: int, results: int = 0) -> Shape:
    results = results or channels
    name = f"{batch} x {channels} x {depth} x {size} x {size} to {results}"
    return Shape(name, batch, channels, results, (depth, size, size))


BARS: Final = (
    _image(32, 256, 56),
    _image(32, 64, 224),
    _image(32, 128, 28),
    _image(32, 512, 28, taps=1),
    _image(64, 128, 112, stride=2),
    _image(64, 64, 56),
    _image(64, 64, 56, results=256, taps=1),
    _image(8, 320, 64),
    _image(1, 256, 256),
    _volume(4, 64, 16, 56),
    _volume(16, 64, 16, 56),
    _volume(8, 128, 8, 28),
    _volume(2, 128, 16, 28),
    _volume(4, 512, 4, 28),
    _volume(1, 256, 8, 64),
    _volume(1, 128, 16, 128),
    _volume(1, 512, 8, 32),
)
"""The shapes for which the documentation promises a speed."""

_DEEP: Final = tuple(
    _image(batch, channels, size, results=results)
    for batch, channels, size, results in (
        (32, 512, 14, 1024),
        (32, 1024, 14, 1024),
        (64, 512, 7, 2048),
        (16, 768, 28, 768),
        (8, 1280, 32, 1280),
        (8, 640, 64, 640),
        (4, 1920, 32, 1280),
        (2, 960, 64, 640),
        (16, 512, 28, 2048),
        (16, 1024, 7, 2048),
        (32, 896, 14, 896),
        (8, 1536, 16, 1536),
        (4, 2048, 16, 2048),
        (16, 1024, 28, 512),
        (8, 2560, 16, 1280),
        (1, 1280, 64, 1280),
        (2, 640, 128, 1280),
        (4, 1152, 32, 1152),
        (64, 1024, 7, 1024),
        (8, 768, 56, 1536),
    )
)
"""Convolutions whose weights have many tiles, for the kernels of weight gradients."""

_FEW: Final = tuple(
    _image(batch, channels, size, results=results)
    for batch, channels, size, results in (
        (1, 128, 28, 512),
        (4, 128, 16, 512),
        (1, 96, 40, 384),
        (8, 64, 14, 256),
        (1, 64, 56, 256),
        (8, 96, 14, 384),
        (2, 96, 24, 576),
        (16, 80, 10, 480),
        (1, 128, 32, 640),
    )
)
"""Convolutions whose results have fewer tiles than a large GPU has SMs, but that use no split-K."""

FEW_CHANNELS: Final = tuple(
    _image(batch, channels, size, results=results, taps=taps, stride=stride)
    for batch, channels, size, results, taps, stride in (
        (32, 24, 112, 64, 3, 1),
        (28, 32, 40, 512, 5, 1),
        (20, 96, 40, 32, 3, 2),
        (2, 32, 80, 256, 3, 1),
        (16, 16, 112, 32, 3, 1),
        (32, 8, 224, 32, 3, 2),
        (8, 256, 56, 24, 3, 1),
        (8, 72, 87, 72, 3, 1),
    )
)
"""Images with few channels on one side, for the kernel that `nojit.kernels.conv.launch_few` launches."""

TUNED: Final = (
    *(shape for shape in BARS if shape.taps > 1),
    *(
        _image(batch, channels, size)
        for batch, channels, size in ((64, 128, 56), (64, 128, 28), (64, 256, 28), (32, 256, 28))
    ),
    *(
        _image(batch, channels, size, results=results, stride=2)
        for batch, channels, size, results in ((32, 256, 112, 256), (32, 256, 56, 512))
    ),
    _image(4, 128, 512),
    _image(2, 512, 128),
    _image(16, 96, 56, taps=7),
    _image(8, 64, 128, taps=5),
    *_FEW,
    *_DEEP[:8],
)
"""The shapes that the tuner measures to make tuning tables."""

_MOST_ELEMENTS: Final = 1 << 28
_MOST_FLOPS: Final = 1 << 42


def _draw(rng: Random) -> Shape:
    """Draw a convolution of any class; too large ones are drawn again. Channels are multiples of 16."""
    while True:
        batch = rng.choice((1, 2, 8, 16, 32, 64))
        channels, results = (16 * round(2 ** rng.uniform(2, 7)) for _ in range(2))
        if rng.random() < 0.2:
            shape = _volume(min(batch, 4), channels, rng.choice((4, 8, 16)), 2 * rng.randint(4, 40), results)
        else:
            taps, stride = rng.choice((3, 3, 3, 5)), rng.choice((1, 1, 1, 2))
            shape = _image(batch, channels, rng.randint(7, 120), results=results, taps=taps, stride=stride)
        if shape.elements <= _MOST_ELEMENTS and 1 << 30 <= shape.flops <= _MOST_FLOPS:
            return shape


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """One convolution, or its gradient by the weight, on one kernel; the check compares a part of the result with torch's."""

    shape: Shape
    kernel: str
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """The name of the shape."""
        return self.shape.name

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports."""
        return self.shape.kind

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        one = self.shape
        sides = dict(zip(("d", "h", "w")[-len(one.positions) :], one.positions, strict=True))
        words = {"batch": one.batch, "channels": one.channels, "results": one.results}
        return {**words, **sides, "taps": one.taps, "stride": one.stride}

    def prepare(self, device: str) -> Work:
        """Return random channels-last operands on `device`, and the first images or channels of the result in fp32.

        Only this part is compared, since the reference is slow.
        """
        one, dtype, source = self.shape, torch.bfloat16, generator(self.name, device)

        def random(*sizes: int) -> Tensor:
            probe = torch.empty(0, dtype=dtype, device=device)
            return new_like(probe, sizes, channels=True).normal_(generator=source)

        x = random(one.batch, one.channels, *one.positions)
        grad = "weight_grad" in self.kernel
        if grad:
            other = random(one.batch, one.results, *one.sizes)
            out = new_like(x, (one.results, one.channels, *one.kernel), channels=True)
            # scaled so that results are near one
            other.mul_(one.rows**-0.5)
        else:
            other = random(one.results, one.channels, *one.kernel).mul_(one.depth**-0.5)
            out = new_like(x, (one.batch, one.results, *one.sizes), channels=True)
        launch = self._launch(x, other, out)
        convolve = torch.nn.functional.conv3d if len(one.positions) > 2 else torch.nn.functional.conv2d
        words: dict[str, Any] = {"stride": one.stride, "padding": one.taps // 2}
        if grad:
            output, depth = out[:_ROWS], one.rows
            weight = torch.zeros(output.shape, device=device, requires_grad=True)
            (expected,) = torch.autograd.grad(convolve(x.float(), weight, **words), weight, other[:, :_ROWS].float())
        else:
            output, depth = out[:_IMAGES], one.depth
            expected = convolve(x[:_IMAGES].float(), other.float(), **words)
        # tensor cores add in another order than the reference
        tolerance = rounding(expected, dtype) + 1e-5 * depth**0.5
        return launch.work(
            outputs=(output,),
            expected=(expected,),
            tolerances=(tolerance,),
            moved_bytes=one.elements * x.itemsize,
            flops=one.flops,
        )

    def _launch(self, x: Tensor, other: Tensor, out: Tensor) -> RequestedLaunch:
        """Return the arguments of this kernel's launch; `other` is the weight, or the gradient by the output."""
        total = self.shape.sum

        def call() -> None:
            writer = RecipeWriter(x, other, out)
            own_x, own_other, own_out = writer.operands
            if self.kernel == "conv_few":
                launch_few(writer, total, own_x, own_other, None, own_out)
            elif self.kernel == "conv":
                launch(writer, total, own_x, own_other, None, own_out)
            elif self.kernel == "conv_weight_grad":
                launch_weight_grad(writer, total, own_other, own_x, own_out)
            else:
                operands, sharing = (own_x, own_other, None, own_out), self.kernel == "conv_halo_sm90"
                launch_mapped(writer, total, *operands, maps_run=lambda _: True, sharing=sharing)

        return requested(call, self.kernel)[0]


def problems(use: str) -> tuple[ConvProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    return tuple(ConvProblem(shape, kernel) for kernel in ROLES for shape in _shapes(use, kernel))


def _shapes(use: str, kernel: str) -> list[Shape]:
    """List convolutions whose result one launch of `kernel` writes; those with one tap are matrix products.

    `use`: purpose such as ``"tune"`` or ``"held_out"``, listed in `nojit.kernels.problem`.
    """
    if kernel in _UNTUNED:
        return []
    if kernel == "conv_few":
        if use == "bars":
            return list(FEW_CHANNELS)
        draw = partial(_draw_few, kernel=kernel)
        counts = {**_DRAWN, "tune": 90}
        return listed_and_drawn(use, f"conv/{kernel}", FEW_CHANNELS, draw, counts=counts, key=lambda shape: shape.name)
    if use == "bars":
        return [shape for shape in BARS if shape.taps > 1 and shape.is_whole(kernel)]
    listed = dict.fromkeys((*TUNED, *(_DEEP if "weight_grad" in kernel else ())))
    whole = [shape for shape in listed if shape.is_whole(kernel)]
    draw = partial(_draw_whole, kernel=kernel)
    return listed_and_drawn(use, f"conv/{kernel}", whole, draw, counts=_DRAWN, key=lambda shape: shape.name)


def _draw_whole(rng: Random, kernel: str) -> Shape:
    while True:
        shape = _draw(rng)
        if kernel == "conv_halo_sm90":
            shape = _image(shape.batch, shape.channels, shape.positions[-1], results=64)
        if shape.is_whole(kernel) and min(shape.channels, shape.results) >= 64:
            return shape


def _draw_few(rng: Random, kernel: str) -> Shape:
    while True:
        channels, results = 8 * round(2 ** rng.uniform(0, 5)), 8 * round(2 ** rng.uniform(1, 6))
        taps, stride, side = rng.choice((1, 3, 3, 3, 5, 7)), rng.choice((1, 1, 2)), round(7 * 2 ** rng.uniform(0, 5))
        batch = round(2 ** rng.uniform(0, 6))
        shape = _image(batch, channels, side, results=results, taps=taps, stride=stride)
        if (
            is_few(shape.sum)
            and shape.elements <= _MOST_ELEMENTS
            and shape.flops <= _MOST_FLOPS
            and shape.is_whole(kernel)
        ):
            return shape
