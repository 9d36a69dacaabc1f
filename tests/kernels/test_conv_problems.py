"""The convolutions' problems are right about what a launch must write."""

from __future__ import annotations

import pytest
import torch
from nojit.kernels.conv.problems import ConvProblem, Shape
from torch.nn import functional

SHAPES = (
    Shape("image", 16, 64, 80, (40, 40)),
    Shape("stepped", 16, 64, 64, (56, 56), stride=2),
    Shape("volume", 2, 64, 64, (8, 24, 24)),
)
MANY = Shape("many", 16, 64, 64, (42, 40))
DEEP = Shape("deep", 1, 1024, 1024, (4, 6))


@pytest.mark.parametrize("kernel", ["conv", "conv_few", "conv_sm90", "conv_halo_sm90", "conv_weight_grad"])
@pytest.mark.parametrize("shape", [*SHAPES, MANY, DEEP], ids=lambda shape: shape.name)
def test_convolutions(kernel, shape):
    grad = "weight_grad" in kernel
    if kernel == "conv_halo_sm90" and shape is not MANY:
        pytest.skip("too few positions for what shares copies")
    if grad != (shape is DEEP):
        pytest.skip("cut into parts")
    if kernel == "conv_few" and len(shape.positions) > 2:
        pytest.skip("images only")
    assert shape.is_whole(kernel)
    work = ConvProblem(shape, kernel).prepare("cpu")
    operands = [getattr(value, "base", value) for value in work.args[:3]]
    convolve = functional.conv3d if len(shape.positions) > 2 else functional.conv2d
    words = {"stride": shape.stride, "padding": shape.taps // 2}
    if grad:
        given, x, out = operands
        weight = torch.zeros(out.shape, dtype=torch.float64, requires_grad=True)
        result = torch.autograd.grad(convolve(x.double(), weight, **words), weight, given.double())[0]
    else:
        x, weight, out = operands
        result = convolve(x.double(), weight.double(), **words)
    out.copy_(result)
    (output,), (expected,), (tolerance,) = work.outputs, work.expected, work.tolerances
    assert output.shape == expected.shape
    assert tolerance < 0.1
    assert (output.float() - expected).abs().max() <= tolerance
    assert work.kernel == kernel
    assert work.flops == shape.flops
