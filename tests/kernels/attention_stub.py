"""What the kernels of attention for sm_90 need of Gluon beyond `gluon_stub`."""

from __future__ import annotations

import torch

from tests.kernels import gluon_stub
from tests.kernels.gluon_stub import Map


class Tiles:
    """Shared memory as the kernel allocates it: [count, 1, 1, rows, columns]."""

    def __init__(self, value):
        self.value = value
        self.shape = value.shape
        self.dtype = value.dtype

    def index(self, number):
        return Tiles(self.value[number])

    def reshape(self, shape):
        return Tiles(self.value.view(*shape))

    def permute(self, order):
        return Tiles(self.value.permute(order))

    def slice(self, first, count, dim):
        return Tiles(self.value.narrow(dim, first, count))

    def store(self, value):
        self.value.copy_(value)

    def load(self, _layout):
        return self.value.clone()


class BoxOfFour(Map):
    """A map of boxes of [1, 1, rows, columns]."""

    layout = None

    def fill(self, place, tile):
        super().fill(place, tile[0, 0])

    def take(self, place, tile):
        super().take(place, tile[0, 0])


def in_fours(value):
    """Reorder the columns of each 16 as e4m3 keys are: column 8 h + 2 t + b goes to 4 t + 2 h + b."""
    grouped = value.unflatten(-1, (-1, 2, 4, 2))
    return grouped.transpose(-3, -2).flatten(-4)


def either(of_tensors, of_numbers):
    return lambda a, b: of_tensors(*map(torch.as_tensor, (a, b))) if isinstance(a, torch.Tensor) else of_numbers(a, b)


def read(pointer, mask=None, other=0):
    if mask is None and isinstance(pointer.place, torch.Tensor):
        return pointer.memory[pointer.place]
    return gluon_stub._load(pointer, mask, other)


def others(gl):
    plain = gl.allocate_shared_memory
    gl.__dict__.update(
        float8e4nv=torch.float8_e4m3fn,
        full=lambda shape, value, dtype, layout: torch.full(shape, value),
        max=lambda value, axis: value.amax(axis),
        sum=lambda value, axis: value.sum(axis),
        maximum=either(torch.maximum, max),
        minimum=either(torch.minimum, min),
        exp2=torch.exp2,
        log2=torch.log2,
        load=read,
        static_assert=lambda holds, why: None,
        allocate_shared_memory=lambda dtype, shape, layout: (
            Tiles(torch.full(shape, float("nan"), dtype=dtype))
            if len(shape) > 2
            else plain(dtype, shape, layout)
            if len(shape) > 1
            else plain(dtype, shape, layout).index(0)
        ),
    )

    def multiply(a, b, acc, is_async, use_acc=True):
        return acc * use_acc + getattr(a, "value", a).float() @ b.value.float()

    return {
        "warpgroup_mma": multiply,
        "packed": lambda exponentials: in_fours(exponentials).to(torch.float8_e4m3fn),
        "unpacked": lambda numbers, layout: numbers,
        "wait_for_last": lambda: None,
    }
