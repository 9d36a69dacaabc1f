"""conv2d and conv3d through Triton's interpreter: windows, layouts, groups, dtypes, gradients, pieces, mistakes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from nojit.kernels import library
from nojit.kernels.conv import (
    conv2d,
    conv3d,
    launch_few,
    launch_few_grad,
    launch_merge,
    launch_pointers,
    launch_sums,
    launch_unfold,
    launch_weight_grad,
    op,
    reference,
    sweeps,
)
from nojit.kernels.conv import op_autograd as operators
from nojit.kernels.conv.checks import window_of
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.launch_sums import Way
from nojit.kernels.conv.layouts import by_channels, is_by_channels
from nojit.kernels.conv.plan_costs import Plan
from nojit.kernels.conv.splits import parts_of
from nojit.kernels.conv.sweeps import Window, classes_of, forward_sweep, pieces_of
from nojit.kernels.products.tile_costs import Tiling
from nojit.runtime.errors import ArgumentError
from torch import Tensor
from torch.nn import functional

from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter

LAST = torch.channels_last
TORCHS = {conv2d: functional.conv2d, conv3d: functional.conv3d}

pytestmark = pytest.mark.usefixtures("interpreted")


def laid_out(value: Tensor, how: str) -> Tensor:
    """Store the same tensor some other way."""
    if how == "channels":
        return value.contiguous(memory_format=LAST if value.dim() == 4 else torch.channels_last_3d)
    if how == "offset":
        flat = value.new_full((value.numel() + 1,), 99)
        flat[1:] = value.flatten()
        return flat[1:].view(value.shape)
    if how == "gaps":
        wide = value.new_full((*value.shape[:-1], value.shape[-1] * 2), 99)
        wide[..., ::2] = value
        return wide[..., ::2]
    return value


def operands(shape: tuple[int, ...], channels: int, taps: tuple[int, ...], groups: int = 1) -> list[Tensor]:
    w = torch.randn(channels, shape[1] // groups, *taps)
    return [torch.randn(shape), w * (w[0].numel() ** -0.5), torch.randn(channels)]


def check(convolve: Any, values: list[Tensor], *, gradients: bool = True, **words: Any) -> Tensor:
    """Hold a convolution, and the gradients of its operands, to the exact ones; poison what it is given to write in."""
    ours, wide, own = (
        [value.detach().to(kind).requires_grad_(gradients) for value in values] for kind in (None, torch.float64, None)
    )
    result, exact, right = convolve(*ours, **words), TORCHS[convolve](*wide, **words), TORCHS[convolve](*own, **words)
    assert_accurate(result.detach(), exact.detach(), right.detach())
    if gradients:
        grad = torch.randn(exact.shape).to(result.dtype)
        for got, best, theirs in zip(
            torch.autograd.grad(result, ours, grad),
            torch.autograd.grad(exact, wide, grad.double()),
            torch.autograd.grad(right, own, grad),
            strict=True,
        ):
            assert_accurate(got, best, theirs, 3.0)
    return result.detach()


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Fill what is allocated with NaN, as torch does where all is to be deterministic."""
    operators.MEMO.forget()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("how", "dtype"),
    [("planes", torch.float16), ("channels", torch.bfloat16), ("offset", torch.float32), ("gaps", torch.float16)],
)
def test_any_layout(how, dtype):
    values = [value.to(dtype) for value in operands((2, 12, 7, 8), 20, (3, 3))]
    x, w, bias = (laid_out(value, how) if value.dim() > 1 else laid_out(value, "gaps") for value in values)
    result = check(conv2d, [x, w, bias], padding=1)
    # the kernel for channels-last images adds in another order; test_few_channels_of_any_layout compares its own
    assert how == "channels" or torch.equal(result, conv2d(*values, padding=1))


@pytest.mark.parametrize("seed", range(6))
def test_any_window(seed):
    rng = random.Random(seed)
    dims = rng.choice((2, 2, 3))
    groups = rng.choice((1, 1, 2, 3))
    taps = tuple(rng.randint(1, 4) for _ in range(dims))
    words: dict[str, Any] = {
        "stride": tuple(rng.randint(1, 3) for _ in range(dims)),
        "padding": tuple(rng.randint(0, 3) for _ in range(dims)),
        "dilation": tuple(rng.randint(1, 3) for _ in range(dims)),
        "groups": groups,
    }
    shape = rng.randint(1, 2), groups * rng.choice((1, 3, 8)), *(rng.randint(10, 12) for _ in range(dims))
    values = operands(shape, groups * rng.choice((1, 5)), taps, groups)
    values = [value.to(rng.choice((torch.float16, torch.float32))) for value in values[:1]] + values[1:]
    values = [value.to(values[0].dtype) for value in values]
    check(conv2d if dims == 2 else conv3d, values, **words)


@pytest.mark.parametrize(("how", "dtype"), [("planes", torch.float32), ("channels", torch.float16)])
def test_depthwise(how, dtype):
    values = [
        laid_out(value.to(dtype), how) if value.dim() > 1 else value.to(dtype)
        for value in operands((2, 6, 9, 7), 12, (3, 3), 6)
    ]
    check(conv2d, values, groups=6, padding=1, stride=(2, 1))


@pytest.mark.parametrize("padding", ["same", "valid", 1, (2, 0), [1, 2], (2,)])
@pytest.mark.parametrize("taps", [(3, 3), (2, 4)])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
def test_paddings(padding, taps):
    check(conv2d, operands((1, 3, 8, 9), 4, taps), padding=padding, dilation=2 if taps == (3, 3) else 1)


@pytest.mark.parametrize("how", ["planes", "channels"])
def test_points_are_products_of_matrices(how, monkeypatch):
    names = []
    source = library.CURRENT.source
    values = [
        laid_out(value.half(), how) if value.dim() > 1 else value.half()
        for value in operands((2, 24, 6, 4), 40, (1, 1))
    ]

    def provide(name: str) -> Any:
        names.append(name)
        return source.provider(name)

    with library.override(provide):
        check(conv2d, values)
        check(conv2d, [values[0][..., 1:4, :], *values[1:]])
        check(conv2d, values[:2], stride=2)
    of_weights = "conv_weight_grad" if how == "planes" else "conv_few_weight_grad"
    assert {"bmm", "conv_few", of_weights} <= set(names)
    assert ("conv_planes" in names) == (how == "planes")


def test_volumes_and_depths_that_are_cut():
    check(conv3d, operands((1, 5, 4, 6, 5), 7, (2, 3, 2)), padding=(1, 0, 1), stride=(1, 2, 1))
    values = [value.half() for value in operands((1, 260, 4, 4), 16, (2, 2))]
    check(conv2d, [laid_out(value, "channels") if value.dim() > 1 else value for value in values], padding=1)
    check(conv2d, values, padding=1)


def test_positions_past_what_a_launch_counts_are_taken_in_pieces(monkeypatch):
    values = operands((2, 2, 4, 4), 3, (3, 2))
    before = [check(conv2d, values, padding=1, gradients=False), check(conv2d, values, stride=2, gradients=False)]
    operators.MEMO.forget()
    for limit in (25, 9):
        monkeypatch.setattr(sweeps, "LIMIT", limit)
        monkeypatch.setattr(launch_pointers, "parts_of", lambda *_: 1)
        for words, whole in zip(({"padding": 1}, {"stride": 2}), before, strict=True):
            torch.testing.assert_close(check(conv2d, values, **words), whole)
        # what was remembered does the same
        torch.testing.assert_close(conv2d(*values, padding=1), before[0])
        operators.MEMO.forget()


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [((3, 1, 6, 5), 40), ((3, 2, 6, 5), 7), ((1, 1, 1, 9), 4), ((2, 2, 2, 2), 100), ((5, 1, 1, 1), 1)],
)
def test_pieces_are_all_positions_once(sizes, limit):
    seen = torch.zeros(sizes, dtype=torch.int64)
    for first, lengths in pieces_of(sizes, limit):
        assert torch.Size(lengths).numel() <= limit
        seen[tuple(slice(f, f + n) for f, n in zip(first, lengths, strict=True))] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("seed", range(30))
def test_classes_are_all_that_an_input_meets(seed):
    """Every position and tap of the output is met in one class, and no other pair is."""
    rng = random.Random(seed)
    size, taps = rng.randint(1, 12), rng.randint(1, 5)
    window = Window((1, rng.randint(1, 5)), (0, rng.randint(0, 4)), (0, rng.randint(0, 4)), (1, rng.randint(1, 4)))
    out = window.sizes((1, size), (1, taps))[1]
    if out < 1:
        return
    stride, before, dilation = window.stride[1], window.before[1], window.dilation[1]
    met = {
        (p * stride + t * dilation - before, t): p
        for p in range(out)
        for t in range(taps)
        if 0 <= p * stride + t * dilation - before < size
    }
    found, positions = {}, []
    for each in classes_of(forward_sweep(window, (1, size), (1, taps))):
        own = each.sweep
        for j in range(own.out[2]):
            positions.append(each.first[2] + j * each.apart[2])
            for i in range(own.taps[2]):
                p = j * own.mul[2] + i * own.step[2] + own.start[2]
                if 0 <= p < out:
                    assert found.setdefault((positions[-1], each.first_tap[2] + i * each.taps_apart[2]), p) == p
    assert found == met
    assert sorted(positions) == list(range(size))


def test_parts_keep_a_device_busy():
    assert parts_of(36, 100_352, 132) == 7
    assert parts_of(1000, 100_352, 132) == 1
    assert parts_of(1, 600, 132) == 1
    assert parts_of(4, 2304, 132) == 4
    assert parts_of(1, 1 << 20, 132) == 29
    assert parts_of(0, 1 << 20, 132) == 1


def test_the_reference_is_torchs():
    x, w, bias = (value.double() for value in operands((2, 4, 7, 8, 6), 6, (2, 3, 3), 2))
    words = {"stride": (1, 2, 1), "dilation": (2, 1, 2)}
    exact = functional.conv3d(x, w, bias, padding=(1, 0, 2), groups=2, **words)
    torch.testing.assert_close(
        reference.convolve(x, w, bias, before=(1, 0, 2), after=(1, 0, 2), groups=2, **words), exact
    )


def test_results_lie_as_torch_says():
    x, w, _ = operands((2, 4, 6, 6), 8, (3, 3))
    for value in (x, x[:, :, ::2], x[:1], torch.randn(2, 1, 4, 4), torch.randn(3, 5, 1, 1)):
        for each in (value, value.contiguous(memory_format=LAST), value.contiguous(memory_format=LAST)[..., :2, :]):
            right = torch._prims_common.suggest_memory_format(each) == LAST
            assert is_by_channels(each) == right
    assert by_channels(x, w.contiguous(memory_format=LAST))
    assert conv2d(x, w.contiguous(memory_format=LAST)).is_contiguous(memory_format=LAST)
    assert conv2d(x, w).is_contiguous()


def test_nothing_to_convolve():
    x, w, bias = operands((2, 4, 6, 6), 8, (3, 3))
    assert conv2d(x[:0], w, bias).shape == (0, 8, 4, 4)
    assert conv2d(x, w[:0]).shape == (2, 0, 4, 4)
    assert torch.equal(conv2d(x[:, :0], w[:, :0], bias), bias.view(1, 8, 1, 1).expand(2, 8, 4, 4))
    w.requires_grad_()
    (got,) = torch.autograd.grad(conv2d(x[:0], w).sum(), w)
    assert torch.equal(got, torch.zeros_like(w))


def test_one_image_of_no_batch():
    x, w, bias = operands((1, 4, 6, 6), 8, (3, 3))
    assert torch.equal(conv2d(x[0], w, bias), conv2d(x, w, bias)[0])


def test_gradients_of_gradients():
    results = []
    x, w, bias = operands((2, 4, 6, 5), 6, (3, 2), 2)
    for kind, convolve in ((None, conv2d), (torch.float64, functional.conv2d)):
        own = [value.detach().to(kind).requires_grad_() for value in (x, w, bias)]
        result = convolve(*own, stride=(2, 1), padding=1, groups=2)
        to_x, to_w = torch.autograd.grad(result.square().sum(), own[:2], create_graph=True)
        results.append(torch.autograd.grad(to_x.square().sum() + to_w.pow(3).sum(), own))
    for got, right in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-4 * float(right.abs().max()))


def test_gradients_of_one_operand():
    x, w, bias = operands((2, 4, 6, 5), 6, (3, 2))
    for which in range(3):
        own = [value.clone().requires_grad_(place == which) for place, value in enumerate((x, w, bias))]
        conv2d(*own).sum().backward()
        right = [value.clone().requires_grad_(place == which) for place, value in enumerate((x, w, bias))]
        functional.conv2d(*right).sum().backward()
        torch.testing.assert_close(own[which].grad, right[which].grad, rtol=1e-4, atol=1e-4)


def test_calls_are_remembered_by_all_that_they_depend_on():
    x, w, bias = operands((2, 6, 8, 8), 6, (3, 3))
    narrow = w[:, :3].contiguous()
    calls = (
        lambda: conv2d(x, w, bias),
        lambda: conv2d(x, w),
        lambda: conv2d(x, w, stride=2),
        lambda: conv2d(x, w, padding=[1, 1]),
        lambda: conv2d(x, w, padding=1),
        lambda: conv2d(x, w, padding=(1,), stride=(2, 1)),
        lambda: conv2d(x, w, padding="same"),
        lambda: conv2d(x, w, dilation=2),
        lambda: conv2d(x, narrow, groups=2),
        lambda: conv2d(x.half(), w.half()),
        lambda: conv2d(x.contiguous(memory_format=LAST), w),
    )
    first = [call() for call in calls]
    assert len(operators.MEMO) == len(calls)
    for call, result in zip(calls, first, strict=True):
        again = call()
        assert again.data_ptr() != result.data_ptr()
        assert again.stride() == result.stride()
        assert torch.equal(again, result)
    assert len(operators.MEMO) == len(calls)
    with pytest.raises(ValueError, match="weight: expected 5 dimensions"):
        conv3d(x, w)


@pytest.mark.parametrize("allowed", [None, False, True])
def test_who_says_how_fp32_is_multiplied(allowed):
    x, w, _ = operands((1, 4, 6, 6), 8, (3, 3))
    words = []
    before = torch.backends.cudnn.allow_tf32
    with library.override(lambda _: lambda *args, **named: words.append(named["PRECISION"])):
        for switch in (False, True, False, True):
            torch.backends.cudnn.allow_tf32 = switch
            conv2d(x, w, allow_tf32=allowed)
    torch.backends.cudnn.allow_tf32 = before
    assert words == [{None: now, False: "ieee", True: "tf32"}[allowed] for now in ("ieee", "tf32") * 2]


@pytest.mark.parametrize("gradient", [False, True])
def test_the_operators_are_torchs_kind(gradient):
    x, w, bias = (value.requires_grad_(gradient) for value in operands((2, 4, 6, 5), 6, (3, 2), 2))
    window = [2, 1], [1, 1], [1, 0], [1, 1], 2, "ieee"
    torch.library.opcheck(torch.ops.nojit.conv.default, (x, w, bias, *window))
    if not gradient:
        return
    out = op.conv2d(x, w, None, (2, 1), (1, 1), 1, 2).detach()[..., : (5 + 1 - 2) // 1 + 1].contiguous()
    grad = out.requires_grad_(gradient)
    torch.library.opcheck(torch.ops.nojit.conv_input_grad.default, (grad, w, x.shape, *window))
    torch.library.opcheck(torch.ops.nojit.conv_weight_grad.default, (grad, x, w.shape, *window))


@pytest.mark.parametrize("gradient", [False, True])
def test_traces_without_a_graph_break(gradient):
    x, w, bias = (value.requires_grad_(gradient) for value in operands((2, 4, 6, 5), 4, (3, 3)))

    def several(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return conv2d(conv2d(x, w, bias, padding="same").relu(), w, padding=[1, 1], stride=2)

    traced = torch.compile(several, backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(x, w, bias), several(x, w, bias))


def test_autocast_casts_as_torchs_convolutions():
    x, w, bias = operands((2, 4, 6, 5), 6, (3, 2))
    with torch.autocast("cpu", torch.bfloat16):
        result = conv2d(x, w, bias)
    assert torch.equal(result, conv2d(x.bfloat16(), w.bfloat16(), bias.bfloat16()))


def test_mistakes_are_named():
    x, w, bias = operands((2, 4, 6, 5), 6, (3, 2))
    for call, kind, words in (
        (lambda: conv2d(x[0, 0], w), ValueError, "input: expected 4 dimensions"),
        (lambda: conv3d(x, w), ValueError, "weight: expected 5 dimensions"),
        (lambda: conv2d(x, w[:, :3]), ValueError, "weight: expected 4 channels, as each group of input has, got 3"),
        (lambda: conv2d(x, w, groups=3), ValueError, "groups: expected a divisor of 4"),
        (lambda: conv2d(x, w[:5, :2], groups=2), ValueError, "groups: expected a divisor of 5"),
        (lambda: conv2d(x, w, groups=0), ValueError, "groups: expected at least 1"),
        (lambda: conv2d(x, w, bias[:5]), ValueError, "bias: expected shape"),
        (lambda: conv2d(x, w.half()), ArgumentError, "weight: expected torch.float32"),
        (lambda: conv2d(x.double(), w.double()), ArgumentError, "input: expected torch.float16"),
        (lambda: conv2d(x, None), ArgumentError, "weight: expected a tensor"),
        (lambda: conv2d(x, w, stride=0), ValueError, "stride: expected at least 1"),
        (lambda: conv2d(x, w, stride=(1, 1, 1)), ValueError, "stride: expected an int, or 2 of them"),
        (lambda: conv2d(x, w, stride=1.5), ArgumentError, "stride: expected an int"),
        (lambda: conv2d(x, w, dilation=0), ValueError, "dilation: expected at least 1"),
        (lambda: conv2d(x, w, padding=-1), ValueError, "padding: expected at least 0"),
        (lambda: conv2d(x, w, padding="full"), ValueError, "padding: expected ints, 'same' or 'valid'"),
        (lambda: conv2d(x, w, padding="same", stride=2), ValueError, "padding: expected ints or 'valid'"),
        (lambda: conv2d(x, w, dilation=4), ValueError, "input: expected padded sizes"),
        (lambda: conv2d(x, w[..., :0]), ValueError, "weight: expected a kernel size of at least 1"),
        (lambda: conv2d(x, w, allow_tf32="no"), ArgumentError, "allow_tf32: expected a bool or None"),
        (
            lambda: torch.ops.nojit.conv(x, w[:, :3], None, [1, 1], [0, 0], [0, 0], [1, 1], 1, "ieee"),
            ValueError,
            "weight",
        ),
        (
            lambda: torch.ops.nojit.conv_input_grad(x, w, [2, 4, 9, 9], [1, 1], [0, 0], [0, 0], [1, 1], 1, "ieee"),
            ValueError,
            "grad: expected shape",
        ),
        (
            lambda: torch.ops.nojit.conv_weight_grad(x, x, [6, 4, 3, 2], [1, 1], [0, 0], [0, 0], [1, 1], 1, "ieee"),
            ValueError,
            "grad: expected shape",
        ),
    ):
        with pytest.raises(kind, match=words):
            call()


def test_numbers_may_be_numpys():
    x, w, _ = operands((1, 4, 6, 6), 8, (3, 3), 2)
    one, two = np.int64(1), np.int64(2)
    launched = []
    with library.override(lambda _: lambda *args, **named: launched.append(named)):
        conv2d(x, w, stride=two, padding=(one, one), dilation=one, groups=two)
    assert {type(each) for each in launched[0].values()} == {Tensor, int, str}


def test_same_pads_one_more_behind():
    window = window_of(2, torch.ones(1, 1, 2, 4), 1, "same", (1, 3))
    assert (window.before, window.after) == ((0, 4), (1, 5))


def few(shape: tuple[int, ...], channels: int, taps: tuple[int, ...], dtype: torch.dtype, how: str) -> list[Tensor]:
    """Make operands of 16 bits, images and weights in some layout."""
    values = [value.to(dtype) for value in operands(shape, channels, taps)]
    return [laid_out(value, how) if value.dim() > 1 else value for value in values]


@pytest.fixture
def launched() -> Iterator[list[str]]:
    """Note the names of kernels that are asked for."""
    names: list[str] = []
    source = library.CURRENT.source

    def provide(name: str) -> Any:
        names.append(name)
        return source.provider(name)

    with library.override(provide):
        yield names


def of(shape: Sequence[int]) -> Any:
    """Return the operator for inputs of a shape."""
    return conv3d if len(shape) == 5 else conv2d


FEW = {
    "eights": ((2, 8, 9, 10), 24, (3, 3), {"padding": 1}),
    "a step of several taps and a part": ((1, 24, 7, 6), 40, (5, 5), {"padding": 2}),
    "stride": ((2, 32, 9, 10), 16, (3, 3), {"padding": 1, "stride": 2}),
    "strides, far": ((1, 16, 12, 11), 72, (3, 2), {"padding": (2, 1), "stride": (3, 2), "dilation": (2, 3)}),
    "odd results": ((2, 16, 6, 7), 5, (3, 3), {"padding": "same"}),
    "stem": ((2, 3, 15, 14), 16, (7, 7), {"padding": 3, "stride": 2}),
    "two channels": ((1, 2, 9, 8), 8, (5, 3), {"padding": (2, 1)}),
    "unfolded, far": ((2, 3, 12, 13), 10, (3, 3), {"padding": 2, "stride": (1, 3), "dilation": (3, 2)}),
    "padded channels": ((1, 12, 8, 9), 16, (3, 3), {"padding": 1, "stride": 2}),
    "many padded channels": ((1, 37, 6, 6), 8, (2, 3), {"padding": (0, 1), "dilation": (1, 2)}),
    "points": ((2, 3, 6, 7), 8, (1, 1), {}),
    "points apart": ((2, 3, 6, 7), 8, (1, 1), {"stride": 2}),
    "volume": ((2, 8, 4, 5, 6), 24, (3, 3, 3), {"padding": 1}),
    "volume, steps": (
        (1, 16, 7, 6, 8),
        8,
        (3, 2, 3),
        {"padding": (2, 0, 1), "stride": (2, 1, 3), "dilation": (2, 1, 1)},
    ),
    "volume, stem": ((2, 3, 5, 9, 8), 16, (3, 3, 3), {"padding": 1, "stride": (1, 2, 2)}),
    "volume, odd results": ((1, 12, 4, 5, 6), 5, (2, 3, 2), {"padding": (0, 1, 1), "stride": 2}),
    "volume, points": ((1, 3, 5, 4, 5), 8, (1, 1, 1), {}),
    "volume, points apart": ((2, 3, 5, 4, 5), 8, (1, 1, 1), {"stride": 2}),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", FEW.values(), ids=FEW.keys())
def test_few_channels(case, dtype, launched):
    shape, channels, taps, words = case
    check(of(shape), few(shape, channels, taps, dtype, "channels"), gradients=False, **words)
    assert launched[-1] == "conv_few"
    assert ("conv_unfold" in launched) == (shape[1] % 8 != 0)


@pytest.mark.parametrize("case", FEW.values(), ids=FEW.keys())
def test_gradients_of_few_channels(case, launched):
    shape, channels, taps, words = case
    check(of(shape), few(shape, channels, taps, torch.bfloat16, "channels"), **words)
    assert "conv" not in launched


@pytest.mark.parametrize("shape", [(1, 16, 6, 7), (1, 3, 6, 7), (2, 3, 4, 5, 6)])
def test_parts_of_few_channels(shape, launched, monkeypatch):
    monkeypatch.setattr(launch_few, "parts_of", lambda *_: 3)
    check(of(shape), few(shape, 12, (5,) * len(shape[2:]), torch.float16, "channels"), gradients=False, padding=2)
    assert launched[-2:] == ["conv_few", "bmm_merge"]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("shape", [(1, 16, 6, 7), (1, 3, 6, 7)])
def test_callers_name_tiles_and_parts_of_few_channels(shape, parts, launched, monkeypatch):
    monkeypatch.setattr(launch_sums, "ways_of", lambda *_: [Way(0.0, "conv_few", Tiling(64, 64, parts))])
    check(conv2d, few(shape, 16, (3, 3), torch.float16, "channels"), gradients=False, padding=1)
    assert launched[-parts:] == ["conv_few", "bmm_merge"][:parts]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("case", [FEW["stride"], FEW["many padded channels"]], ids=["stride", "many padded channels"])
def test_callers_name_tiles_and_parts_of_input_gradients(case, parts, launched, monkeypatch):
    shape, channels, taps, words = case
    tiling = Tiling(64, 64, parts) if shape[1] % 8 == 0 else None
    monkeypatch.setattr(launch_sums, "takes_maps", lambda _: True)
    monkeypatch.setattr(launch_sums, "ways_of", lambda *_: [])
    monkeypatch.setattr(launch_sums, "_faster_together", lambda *_: tiling)
    values = few(shape, channels, taps, torch.float16, "channels")
    grads_by_input(values, words)
    check(conv2d, values, **words)
    assert ("conv_few_grad" in launched) == (tiling is not None)


@pytest.mark.parametrize("groups", [2, 32])
@pytest.mark.parametrize("stride", [1, 2])
def test_groups_run_each_over_its_own_channels_where_times_are_estimated(groups, stride, launched, monkeypatch):
    monkeypatch.setattr(launch_sums, "takes_maps", lambda _: True)
    values = [value.bfloat16() for value in operands((2, 32, 7, 8), 32, (3, 3), groups)]
    x, w = (laid_out(value, "channels") for value in values[:2])
    check(conv2d, [x, w, values[2]], padding=1, stride=stride, groups=groups)
    assert "conv_few_grad" not in launched


def test_few_channels_are_whole_where_the_batch_must_not_matter(launched, monkeypatch):
    monkeypatch.setattr(launch_few, "parts_of", lambda *_: 3)
    monkeypatch.setattr(library, "is_batch_invariant", lambda: True)
    x, w, bias = few((4, 16, 6, 7), 12, (5, 5), torch.float16, "channels")
    together = conv2d(x, w, bias, padding=2)
    assert torch.equal(together[1:2], conv2d(x[1:2], w, bias, padding=2))
    assert set(launched) == {"conv_few"}


FEW_GRADS = {
    "classes of uneven sizes": ((2, 16, 9, 7), 40, (3, 3), {"padding": 1, "stride": 2}),
    "more classes than taps": ((1, 8, 7, 8), 16, (1, 2), {"stride": (3, 2)}),
    "a stride longer than the image": ((1, 8, 2, 3), 8, (3, 3), {"padding": 1, "stride": 4}),
    "dilation": ((1, 24, 8, 9), 16, (3, 3), {"padding": 2, "dilation": 2}),
    "dilation across, stride down": (
        (1, 8, 9, 8),
        8,
        (4, 3),
        {"padding": (1, 2), "stride": (2, 1), "dilation": (1, 3)},
    ),
    "three channels": ((2, 3, 9, 10), 64, (7, 7), {"padding": 3, "stride": 2}),
    "three channels of points": ((2, 3, 6, 7), 16, (1, 1), {}),
    "volumes": ((2, 16, 5, 6, 7), 24, (3, 3, 3), {"padding": 1}),
    "classes of volumes": ((2, 16, 5, 6, 7), 16, (3, 2, 3), {"padding": (1, 0, 1), "stride": 2}),
    "volumes, another stride for each dimension": (
        (2, 8, 7, 5, 4),
        16,
        (2, 3, 3),
        {"stride": (3, 1, 2), "padding": (1, 0, 2), "dilation": (1, 2, 1)},
    ),
    "a stride deeper than the volume": ((2, 8, 2, 5, 6), 8, (3, 3, 3), {"padding": 1, "stride": (4, 1, 2)}),
    "volumes of three channels": ((2, 3, 5, 6, 7), 16, (3, 3, 3), {"padding": 1, "stride": 2}),
    "volumes of three channels of points": ((2, 3, 3, 4, 5), 16, (1, 1, 1), {"stride": (2, 1, 1)}),
}


def grads_by_input(values: list[Tensor], words: dict[str, Any]) -> Tensor:
    """Return the gradient by the input of a convolution of ones."""
    x = values[0].detach().requires_grad_()
    out = conv2d(x, values[1], **words)
    return torch.autograd.grad(out, x, torch.ones_like(out))[0]


FEW_WEIGHTS = {
    "several images in a box": ((5, 16, 4, 3), 24, (3, 3), {"padding": 1}),
    "tiles of several taps and a part": ((1, 24, 9, 10), 8, (5, 5), {"padding": 2}),
    "more channels than a tile": ((1, 8, 7, 6), 40, (3, 1), {}),
    "strides, far": ((2, 8, 12, 11), 16, (3, 2), {"padding": (2, 1), "stride": (3, 2), "dilation": (2, 3)}),
    "taps together": ((2, 3, 9, 10), 16, (7, 7), {"padding": 3, "stride": 2}),
    "padded channels": ((2, 12, 8, 9), 8, (3, 3), {"padding": 1}),
    "points": ((3, 16, 5, 9), 8, (1, 1), {"stride": 2}),
}


@pytest.mark.parametrize("parts", [1, 2, 9])
@pytest.mark.parametrize("case", FEW_WEIGHTS.values(), ids=FEW_WEIGHTS.keys())
def test_weight_gradients_of_few_channels_sum_boxes_of_positions(case, parts, launched, monkeypatch):
    shape, channels, taps, words = case
    monkeypatch.setattr(launch_weight_grad, "plans", lambda *_, **__: [Plan(0.0, 64, 32, parts)])
    x, w, bias = few(shape, channels, taps, torch.float16, "channels")
    check(conv2d, [x, w, bias], **words)
    assert "conv_few_weight_grad" in launched
    assert ("conv_weight_merge" in launched) == (parts > launch_merge.FEW or shape[1] % 8 != 0)
    # the weight's own layout may be another
    check(conv2d, [x, w.contiguous(), bias], **words)


@pytest.mark.parametrize("shape", [(2, 8, 1, 1), (2, 8, 6, 5), (2, 12, 6, 5)], ids=str)
def test_weight_gradients_run_without_the_kernel_that_merges_taps(shape, launched, monkeypatch):
    monkeypatch.setattr(library, "has", lambda name: name != "conv_weight_merge")
    # the strides of one position are those of planes as well, so the weight's gradient is stored by planes
    check(conv2d, few(shape, 16, (3, 3), torch.float16, "channels"), padding=1)
    assert "conv_weight_merge" not in launched


def test_weight_gradients_of_points_are_products(launched):
    check(conv2d, few((2, 72, 5, 7), 64, (1, 1), torch.float16, "channels"))
    assert launched == ["conv_few", "bmm"], "the convolution; both gradients"


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("case", FEW_GRADS.values(), ids=FEW_GRADS.keys())
def test_input_gradients_of_few_channels_are_summed_class_by_class(case, parts, launched, monkeypatch):
    shape, channels, taps, words = case
    monkeypatch.setattr(launch_few_grad, "parts_of", lambda *_: parts)
    check(of(shape), few(shape, channels, taps, torch.float16, "channels"), **words)
    assert "conv_few_grad" in launched
    assert ("bmm_merge" in launched) == (parts > 1)


def test_empty_classes_divide_nothing_by_their_size():
    """A division by 0 has no result on a GPU, even if nothing reads it."""
    values = few((1, 8, 2, 3), 8, (3, 3), torch.float16, "channels")
    refused = ",".join(f"error:divide by zero encountered in {name}" for name in ("fmod", "floor_divide", "remainder"))
    with closing(Interpreter(warnings=refused)) as interpreter, library.override(interpreter):
        check(conv2d, values, padding=1, stride=4)


def test_input_gradients_of_few_channels_are_whole_where_the_batch_must_not_matter(launched, monkeypatch):
    monkeypatch.setattr(launch_few_grad, "parts_of", lambda *_: 3)
    monkeypatch.setattr(library, "is_batch_invariant", lambda: True)
    x, w, bias = few((4, 16, 6, 7), 24, (5, 5), torch.float16, "channels")
    words = {"padding": 2, "stride": 2}
    together = grads_by_input([x, w, bias], words)
    assert torch.equal(together[1:2], grads_by_input([x[1:2], w, bias], words))
    assert "bmm_merge" not in launched


def test_the_batch_does_not_choose_the_kernel_of_an_input_gradient_where_it_must_not_matter(launched, monkeypatch):
    monkeypatch.setattr(launch_few_grad, "PRODUCTS", 40_000)
    monkeypatch.setattr(library, "is_batch_invariant", lambda: True)
    x, w, bias = few((4, 24, 6, 7), 24, (3, 3), torch.float16, "channels")
    words = {"padding": 1, "stride": 2}
    together = grads_by_input([x, w, bias], words)
    assert torch.equal(together[1:2], grads_by_input([x[1:2], w, bias], words))
    # one image has few enough products, and four have too many
    assert "conv_few_grad" not in launched


@pytest.mark.parametrize("sizes", [(2, 3, 0, 5), (2, 3, 0, 4, 5), (2, 3, 4, 0, 5)], ids=str)
def test_padding_around_nothing_gives_the_bias(sizes):
    dims = len(sizes) - 2
    x, w, bias = (value.bfloat16() for value in operands(sizes, 8, (3,) * dims))
    out = (conv3d if dims > 2 else conv2d)(x, w, bias, padding=2)
    assert out.equal(bias.view(8, *(1,) * dims).expand_as(out))


def test_an_image_of_a_gigabyte_runs_over_vectors():
    x, out = (torch.empty((1, channels, 8192, 8192), dtype=torch.bfloat16, device="meta") for channels in (3, 16))
    sweep = forward_sweep(Window((1, 1), (1, 1), (1, 1), (1, 1)), (8192, 8192), (3, 3))
    one = Sum(sweep, 1, 1, 3, 16, is_transposed=False, precision="ieee")
    assert launch_few.few_form(one, x, out.to(memory_format=LAST)) is not None


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize(
    ("channels", "taps", "fits"),
    [(2**17, (2, 1), True), (2**18, (2, 1), False), (8, (1, 2**15 - 1), True), (8, (1, 2**15), False)],
    ids=["vectors", "too many vectors", "taps", "too many taps"],
)
def test_loops_divide_numbers_whose_product_with_the_divisor_has_31_bits(channels, taps, fits):
    """The vectors of all taps are divided by those of one, and taps by those of a row."""
    high, wide = taps
    shape = (1, channels, high, wide + 2)
    x, w, out, image = (
        torch.empty(sizes, dtype=torch.bfloat16, device="meta", memory_format=LAST)
        for sizes in (shape, (channels, 8, *taps), (1, 8, 1, 3), (1, 8, 2 * high - 1, 2 * wide + 1))
    )
    sweep = forward_sweep(Window((1, 1), (0, 0), (0, 0), (1, 1)), shape[2:], taps)
    one = Sum(sweep, 1, 1, channels, 8, is_transposed=False, precision="ieee")
    assert (launch_few.few_form(one, x, out) is not None) == fits
    sweep = forward_sweep(Window((1, 1), (0, 0), (0, 0), (1, 1)), image.shape[2:], taps)
    assert launch_few_grad.runs_few_grad(sweep, x, w, image) == fits


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize(
    ("shape", "window", "fits"),
    [
        ((1, 8, 2**29, 1), Window((1, 1), (2**28, 0), (0, 0), (1, 1)), True),
        ((1, 8, 2**30 - 2**26, 1), Window((1, 1), (2**26, 0), (2**26, 0), (2**25 + 1, 1)), False),
        ((2**20, 8, 1, 1), Window((32, 32), (1, 0), (1, 0), (1, 1)), True),
        ((2**26, 8, 1, 1), Window((32, 32), (1, 0), (1, 0), (1, 1)), False),
    ],
    ids=["padded", "too far padded", "empty classes", "too many empty classes"],
)
def test_input_gradients_in_one_launch_number_padded_positions_and_programs_with_31_bits(shape, window, fits):
    taps = (3, 1)
    sweep = forward_sweep(window, shape[2:], taps)
    grad, w, out = (
        torch.empty(sizes, dtype=torch.bfloat16, device="meta", memory_format=LAST)
        for sizes in ((shape[0], 8, *window.sizes(shape[2:], taps)), (8, 8, *taps), shape)
    )
    assert launch_few_grad.runs_few_grad(sweep, grad, w, out) == fits


@pytest.mark.parametrize("before", [(-1, 0), (-3, -2)], ids=str)
def test_gradients_of_windows_that_begin_inside_of_the_image(before, launched):
    """Torch's dispatcher takes the operator's numbers as they are; a padding below 0 cuts positions off."""
    x, w, _ = few((2, 8, 9, 8), 16, (3, 3), torch.float16, "channels")
    wide = x.double().requires_grad_()
    exact = functional.conv2d(functional.pad(wide, (before[1], 1, before[0], 1)), w.double(), stride=2)
    grad = torch.randn(exact.shape).half()
    (right,) = torch.autograd.grad(exact, wide, grad.double())
    got = operators.conv_input_grad(laid_out(grad, "channels"), w, x.shape, (2, 2), before, (1, 1), (1, 1), 1, "ieee")
    assert_accurate(got, right, right.half())
    assert "conv_few_grad" not in launched


def test_strides_with_thousands_of_empty_classes_run_on_other_kernels(launched):
    x, w, bias = few((1, 8, 8, 8), 8, (3, 3), torch.float16, "channels")
    grads_by_input([x, w, bias], {"padding": 1, "stride": 100})
    assert "conv_few_grad" not in launched


@pytest.mark.parametrize(
    ("shape", "channels", "words"),
    [
        ((1, 8, 9, 8), 16, {"stride": 2, "dilation": 2, "padding": 2}),
        ((1, 20, 6, 7), 16, {"padding": 1}),
        ((1, 16, 6, 7), 12, {"padding": 1}),
        ((1, 16, 6, 7), 16, {"padding": 1, "groups": 2}),
    ],
    ids=["strides with dilation", "many channels of no 16 bytes", "gradients of no 16 bytes", "groups"],
)
def test_other_input_gradients_of_few_channels_run_on_other_kernels(shape, channels, words, launched):
    x, w, bias = few(shape, channels, (3, 3), torch.float16, "channels")
    w = w[:, : shape[1] // words.get("groups", 1)].contiguous(memory_format=LAST)
    check(conv2d, [x, w, bias], **words)
    assert "conv_few_grad" not in launched


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (2, 3, 5, 6, 7)])
@pytest.mark.parametrize("how", ["planes", "offset", "gaps"])
def test_few_channels_of_any_layout(how, shape, launched):
    x, w, bias = operands(shape, 16, (3,) * len(shape[2:]))
    x, w, bias = x.half(), laid_out(w.half(), "channels"), bias.half()
    result = check(of(shape), [laid_out(x, how), w, bias], gradients=False, padding=1, stride=2)
    assert torch.equal(result, of(shape)(laid_out(x, "channels"), w.contiguous(), bias, padding=1, stride=2))
    assert launched == ["conv_unfold", "conv_few"], "each asked for once"


class Unfolded(NamedTuple):
    """A launch of the kernel that unfolds."""

    address: int
    held_bytes: int
    """Size of the memory that all chunks share."""
    results: int
    """Results of the weight that it copies as well."""


@pytest.fixture
def unfolds() -> Iterator[list[Unfolded]]:
    """Note the launches that unfold."""
    noted: list[Unfolded] = []
    source = library.CURRENT.source

    def provide(name: str) -> Any:
        kernel = source.provider(name)

        def launch(*args: Any, **named: Any) -> None:
            copy = named["x_out_ptr"]
            noted.append(Unfolded(copy.data_ptr(), copy.untyped_storage().nbytes(), named["results"]))
            kernel(*args, **named)

        return launch if name == "conv_unfold" else kernel

    with library.override(provide):
        yield noted


def fits(launches: Sequence[Unfolded], count: int, limit: int) -> bool:
    """Return whether so many launches wrote into the same memory of at most `limit` bytes."""
    return len(launches) == count and len({each[:2] for each in launches}) == 1 and launches[0].held_bytes <= limit


# shape, options, bytes, chunks
CHUNKS = {
    "images": ((5, 3, 9, 8), {"padding": 1}, 2 * 9 * 8 * 32, 3),
    "rows": ((2, 3, 14, 8), {"padding": 1}, 10 * 8 * 32, 4),
    "rows apart": ((1, 3, 15, 9), {"padding": (3, 1), "stride": 2, "dilation": (2, 1)}, 9 * 5 * 32, 5),
    "rows that do not fit": ((1, 3, 4, 8), {"padding": 1}, 1, 4),
    "volumes": ((3, 3, 4, 6, 7), {"padding": 1}, 4 * 6 * 7 * 32, 3),
    "slices": ((2, 3, 7, 5, 6), {"padding": 1, "stride": (2, 1, 1)}, 5 * 5 * 6 * 32, 4),
    "rows of slices": ((1, 3, 3, 9, 5), {"padding": 1}, 3 * 5 * 5 * 32, 9),
    "slices of padding alone": ((1, 3, 5, 4, 5), {"padding": (4, 1, 1)}, 3 * 4 * 5 * 32, 11),
}


@pytest.mark.parametrize("case", CHUNKS.values(), ids=CHUNKS.keys())
def test_large_inputs_are_unfolded_and_summed_in_chunks(case, unfolds, monkeypatch):
    shape, words, limit, count = case
    monkeypatch.setattr(launch_few, "parts_of", lambda *_: 1)
    values = few(shape, 16, (3,) * len(shape[2:]), torch.float16, "planes")
    whole = check(of(shape), values, gradients=False, **words)
    assert len(unfolds) == 1
    operators.MEMO.forget()
    unfolds.clear()
    monkeypatch.setattr(launch_unfold, "COPY_BYTES", limit)
    assert torch.equal(of(shape)(*values, **words), whole)
    assert len(unfolds) == count if limit == 1 else fits(unfolds, count, limit)
    assert [each.results for each in unfolds] == [16, *[0] * (count - 1)], "the weight is copied once"
    assert torch.equal(of(shape)(*values, **words), whole), "replayed"
    assert len(unfolds) == 2 * count


@pytest.mark.parametrize("shape", [(1, 3, 14, 8), (1, 3, 7, 5, 6)], ids=str)
def test_chunks_of_one_input_without_a_batch_are_replayed(shape, unfolds, monkeypatch):
    monkeypatch.setattr(launch_unfold, "COPY_BYTES", math.prod(shape[2:]) * 16)
    x, w, bias = few(shape, 16, (3,) * len(shape[2:]), torch.float16, "planes")
    expected = [of(shape)(value, w, bias, padding=1)[0] for value in (x, -x)]
    unfolds.clear()
    assert all(
        of(shape)(value[0], w, bias, padding=1).equal(best) for value, best in zip((x, -x), expected, strict=True)
    )
    assert len(unfolds) > 2


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", ["images", "rows", "rows apart", "rows that do not fit"])
def test_weight_gradients_of_large_inputs_are_summed_in_chunks(name, parts, unfolds, monkeypatch):
    shape, words, limit, count = CHUNKS[name]
    monkeypatch.setattr(launch_weight_grad, "plans", lambda *_, **__: [Plan(0.0, 64, 32, parts)])
    monkeypatch.setattr(launch_unfold, "COPY_BYTES", limit)
    check(conv2d, few(shape, 16, (3, 3), torch.float16, "channels"), **words)
    # those of the convolution come first
    own = unfolds[count:]
    assert len(own) == count if limit == 1 else fits(own, count, limit)


@pytest.mark.parametrize("parts", [1, 2])
def test_chunks_add_in_the_order_of_parts(parts, unfolds, monkeypatch):
    x, _, _ = few((4, 3, 8, 8), 16, (3, 3), torch.float16, "channels")
    grad = laid_out(torch.randn(4, 16, 8, 8).half(), "channels")
    results = []
    # two chunks of two images, and all images at once in as many parts
    for limit, each in ((2 * 8 * 8 * 32, parts), (1 << 30, 2 * parts)):
        monkeypatch.setattr(launch_unfold, "COPY_BYTES", limit)
        monkeypatch.setattr(launch_weight_grad, "plans", lambda *_, each=each, **__: [Plan(0.0, 64, 32, each)])
        operators.MEMO.forget()
        window = [1, 1], [1, 1], [1, 1], [1, 1]
        results += [torch.ops.nojit.conv_weight_grad(grad, x, [16, 3, 3, 3], *window, 1, "ieee") for _ in range(2)]
    assert len(unfolds) == 2 * 2 + 2 * 1, "two chunks, or one; each twice, the second time replayed"
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("seed", range(20))
def test_chunks_read_what_all_of_a_sum_reads(seed, monkeypatch):
    rng = random.Random(seed)
    mul, taps, dilation = (tuple(rng.randint(1, 3) for _ in range(3)) for _ in range(3))
    before, source = (tuple(rng.randint(low, low + 4) for _ in range(3)) for low in (0, 7))
    sweep = forward_sweep(Window(mul, before, before, dilation), source, taps)
    sweeps_of = [sweep, *(each.sweep for each in classes_of(sweep) if all(each.sweep.taps))]
    sweep = rng.choice(sweeps_of)
    one = Sum(sweep, rng.randint(1, 3), 1, 3, 16, is_transposed=False, precision="ieee")
    limit = rng.randint(1, 2 * launch_unfold.unfolded_form(one).copied_bytes(one))
    monkeypatch.setattr(launch_unfold, "COPY_BYTES", limit)
    seen = torch.zeros((one.batch, *sweep.out), dtype=torch.int64)
    for each in launch_unfold.chunks_of(one):
        own = each.one.sweep
        assert each.source.copied_bytes(each.one) <= limit or each.one.positions == own.out[2]
        sizes = (each.one.batch, *own.out)
        seen[tuple(slice(f, f + n) for f, n in zip(each.first, sizes, strict=True))] += 1
        for dim in range(3):
            first, read = each.first[1 + dim], each.first_read[1 + dim]
            for position, tap in itertools.product(range(own.out[dim]), range(own.taps[dim])):
                at = position * own.mul[dim] + tap * own.step[dim] + own.start[dim]
                all_at = (first + position) * sweep.mul[dim] + tap * sweep.step[dim] + sweep.start[dim]
                assert at + read == all_at
                assert (0 <= at < own.source[dim]) == (0 <= all_at < sweep.source[dim])
    assert (seen == 1).all()


def test_a_volume_of_two_gigabytes_unfolded_takes_chunks_of_one():
    around = (1, 1, 1)
    sweep = forward_sweep(Window(around, around, around, around), (512, 512, 512), (3, 3, 3))
    chunks = launch_unfold.chunks_of(Sum(sweep, 1, 1, 1, 16, is_transposed=False, precision="ieee"))
    assert 1 < len(chunks) < 5
    assert all(each.source.copied_bytes(each.one) <= 1 << 30 for each in chunks)


def test_volumes_whose_slices_have_gaps_are_copied_before_they_are_unfolded(launched):
    x, w, bias = few((2, 3, 4, 5, 6), 16, (3, 3, 3), torch.float16, "channels")
    wide, tall = torch.cat([x, x], dim=3)[:, :, :, :5], torch.cat([w, w], dim=3)[:, :, :, :3]
    assert torch.equal(conv3d(wide, tall, bias, padding=1), conv3d(x, w, bias, padding=1))
    assert launched == ["conv_unfold", "conv_few"]


@pytest.mark.parametrize(("shape", "channels"), [((2, 70, 9, 8), 24), ((1, 16, 5, 13), 66), ((3, 24, 70, 1), 8)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_operands_by_planes_are_copied_to_channels_and_the_result_back(shape, channels, dtype, launched):
    values = few(shape, channels, (3, 1), dtype, "planes")
    result = check(conv2d, values, padding=(1, 0))
    assert result.is_contiguous()
    assert "conv" not in launched
    assert "conv_planes" in launched


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("how", ["planes", "channels"])
@pytest.mark.parametrize(
    ("shape", "taps", "words"),
    [
        ((2, 8, 1, 1), (3, 3), {"stride": 2, "padding": 1}),
        ((1, 8, 1, 7), (3, 3), {"stride": (2, 1), "padding": 1}),
        ((1, 8, 1, 5), (1, 1), {"stride": 2, "padding": 1}),
        ((1, 8, 5, 1), (2, 2), {"stride": (1, 3), "padding": (0, 1)}),
    ],
)
def test_gradients_where_one_position_takes_only_some_taps(shape, taps, words, how, dtype):
    values = [value.to(dtype) for value in operands(shape, 8, taps)]
    check(conv2d, [laid_out(value, how) if value.dim() > 1 else value for value in values], **words)


def test_gradients_of_a_volume_of_one_slice_that_a_stride_spans():
    check(conv3d, operands((1, 4, 1, 4, 5), 6, (3, 2, 2)), stride=(2, 1, 1), padding=(1, 0, 0))


def test_operands_by_planes_run_without_the_kernel_that_copies_them(launched, monkeypatch):
    monkeypatch.setattr(library, "has", lambda name: name != "conv_planes")
    check(conv2d, few((2, 16, 6, 5), 24, (3, 3), torch.float16, "planes"), padding=1)
    assert "conv_planes" not in launched


def test_points_of_volumes_by_planes_are_products_on_any_gpu(launched):
    values = [value.half() for value in operands((2, 24, 4, 5, 2), 40, (1, 1, 1))]
    check(conv3d, values, gradients=False)
    assert launched == ["bmm"]


def test_planes_with_gaps_between_rows_are_copied_as_well(launched):
    x, w, bias = few((2, 16, 9, 8), 24, (3, 3), torch.float16, "planes")
    wide = torch.cat([x, x], dim=3)[..., :8]
    assert torch.equal(conv2d(wide, w, bias, padding=1), conv2d(x, w, bias, padding=1))
    assert "conv" not in launched


def test_values_beside_the_window_do_not_spill_into_it(launched):
    x, w, _ = few((1, 3, 8, 8), 8, (3, 3), torch.float16, "channels")
    x[:, :, 4, 4] = float("inf")
    result = conv2d(x, w, padding=1)
    assert launched == ["conv_unfold", "conv_few"]
    outside = torch.ones(8, 8, dtype=torch.bool)
    outside[3:6, 3:6] = False
    assert result[0, :, outside].isfinite().all()
