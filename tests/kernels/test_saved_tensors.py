"""What operators keep for their gradients: only what those that are wanted are computed from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm import b2b_gemm
from nojit.kernels.bmm import baddbmm, mm
from nojit.kernels.conv import conv2d
from nojit.kernels.mm_plus_mm import mm_plus_mm
from nojit.kernels.pointwise import add, add_relu, div, gelu, mul, sub, swiglu


@pytest.fixture(autouse=True)
def no_kernels() -> Iterator[None]:
    """Launch nothing."""
    with library.override(lambda name: lambda *args, **constexprs: None):
        yield


def squares(count, *trained):
    """Make so many matrices, of which some are trained."""
    return [torch.randn(4, 4).requires_grad_(at in trained) for at in range(count)]


def conv(x, weight):
    return conv2d(x[None, None], weight[None, None])


@pytest.mark.parametrize(
    ("call", "operands", "kept"),
    [
        (add, squares(2, 0, 1), ()),
        (sub, squares(2, 0), ()),
        (mul, squares(2, 0, 1), (0, 1)),
        (mul, squares(2, 0), (1,)),
        (div, squares(2, 0), (1,)),
        (add_relu, squares(2, 1), (0, 1)),
        (gelu, squares(1, 0), (0,)),
        # one kernel computes both gradients
        (swiglu, squares(2, 0), (0, 1)),
        (mm, squares(2, 0, 1), (0, 1)),
        (mm, squares(2, 0), (1,)),
        (mm, squares(2, 1), (0,)),
        (lambda *args: baddbmm(args[0], args[1][None], args[2][None]), squares(3, 0), ()),
        (mm_plus_mm, squares(4, 0, 3), (1, 2)),
        (conv, squares(2, 0, 1), (0, 1)),
        (conv, squares(2, 0), (1,)),
        (conv, squares(2, 1), (0,)),
        (b2b_gemm, squares(3, 2), (0, 1)),
        (b2b_gemm, squares(3, 0), (1, 2)),
        (lambda *args: b2b_gemm(*args, assoc="right"), squares(3, 1), (0, 2)),
        (lambda *args: b2b_gemm(*args, activation="relu", assoc="left"), squares(3, 2), (0, 1)),
        (lambda *args: b2b_gemm(*args, activation="relu", assoc="left"), squares(3, 0), (0, 1, 2)),
        (lambda *args: b2b_gemm(*args, activation="relu", assoc="right"), squares(3, 0), (1, 2)),
    ],
)
def test_what_is_kept(call, operands, kept):
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: held.append(tensor.data_ptr()), lambda _: None):
        call(*operands)
    assert held == [operands[at].data_ptr() for at in kept]


def test_what_is_not_kept_may_be_written_to():
    x, y = squares(2, 0, 1)
    first = x * 1
    result = add(first, y)
    first.zero_()
    result.sum().backward()
    assert torch.equal(x.grad, torch.ones(4, 4))
    assert torch.equal(y.grad, torch.ones(4, 4))
