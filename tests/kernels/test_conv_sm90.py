"""The convolutions over tensor maps, step by step without a device: see `tests.kernels.gluon_stub` for what that shows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.calls.tensor_maps import Described
from nojit.kernels.conv import (
    conv2d,
    conv3d,
    launch_few,
    launch_pointers,
    launch_sm90,
    launch_sums,
    launch_unfold,
    launch_weight_grad,
    op_autograd,
)
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.launch_sm90 import ROWS, boxes_of, pixel_of
from nojit.kernels.conv.launch_sm90_weight_grad import HALO
from nojit.kernels.conv.launch_sums import Way
from nojit.kernels.conv.plan_costs import Plan
from nojit.kernels.conv.weight_grad_costs import STRIPS as STRIPS_OF_WEIGHTS
from nojit.kernels.manifest_kernels import by_position
from nojit.kernels.products.tile_costs import Tile, Tiling
from nojit.runtime.errors import KernelNotFoundError
from torch import Tensor
from torch.nn import functional

from tests.kernels.accuracy import assert_accurate
from tests.kernels.gluon_stub import BoxMap, Pointer, load
from tests.kernels.sm90 import KERNELS, PROGRAMS, SHARED

# as few stages as work: the more often they are used again, the more is seen
TILES = {
    "128 x 256": {"BLOCK_M": 128, "BLOCK_N": 256, "GROUP": 2, "STAGES": 2},
    "64 x 64": {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP": 2, "STAGES": 3},
    "192 x 128": {"BLOCK_M": 192, "BLOCK_N": 128, "GROUP": 2, "STAGES": 2},
    "192 x 64": {"BLOCK_M": 192, "BLOCK_N": 64, "GROUP": 4, "STAGES": 3},
    "128 x 192": {"BLOCK_M": 128, "BLOCK_N": 192, "GROUP": 2, "STAGES": 2},
    "192 x 192": {"BLOCK_M": 192, "BLOCK_N": 192, "GROUP": 2, "STAGES": 2},
}
STRIPS = {
    "weights stay": {"BLOCK_M": 128, "BLOCK_N": 128, "STAGES": 2, "KEPT": 9},
    "weights come": {"BLOCK_M": 128, "BLOCK_N": 128, "STAGES": 2, "KEPT": 0},
    "narrow": {"BLOCK_M": 128, "BLOCK_N": 64, "STAGES": 3, "KEPT": 0},
}
FILES = {
    "conv_sm90": "kernel_sm90.py",
    "conv_halo_sm90": "kernel_sm90_halo.py",
    "conv_weight_grad_sm90": "kernel_sm90_grad.py",
    "conv_weight_grad_halo_sm90": "kernel_sm90_grad_halo.py",
}
LAST = torch.channels_last
chosen: dict[str, int] = {}
of_strips: dict[str, int] = {}
of_weight_strips: dict[str, int] = {}
asked: list[str] = []


def provide(name: str):
    """Give kernels as Python; the sums of parts too. Other kernels must do without those that are only faster."""
    if name in {"conv_few_grad", "conv_few_weight_grad"} or (name == HALO and not of_weight_strips):
        raise KernelNotFoundError("another kernel computes the same", got=name)

    def launch(*args: Any, **named: Any) -> None:
        asked.append(name)
        args, named = by_position(name, args, named)
        if name in STAND_INS:
            STAND_INS[name](*args)
            return
        paths = (*SHARED, "conv/kernel_sm90_boxes.py", f"conv/{FILES[name]}")
        kernel = load(f"{name}_kernel", *(KERNELS / path for path in paths))
        panel = named.get("PANEL", ROWS)
        blocks = [(1, 1, 1, ROWS, ROWS), (ROWS, 1, 1, 1, ROWS), (1, 1, ROWS, 1, panel)]
        config = {"conv_halo_sm90": of_strips, HALO: of_weight_strips}.get(name, chosen)
        kernel(PROGRAMS, *(argument(value, blocks[min(at, 2)]) for at, value in enumerate(args)), **{**config, **named})

    return launch


def argument(value: Any, block: tuple[int, ...]) -> Any:
    if isinstance(value, Described):
        of, own = value.base.detach().as_strided(value.shape, value.strides), value.geometry
        return BoxMap(of, own.box or block, own.steps)
    if not isinstance(value, Tensor):
        return value
    return Pointer(value.new_empty(0).set_(value.untyped_storage()), value.storage_offset())


def merge(partial: Tensor, out: Tensor, bias: Tensor, *numbers: Any) -> None:
    batch, rows, cols, parts, _, _, _, beta = numbers[:8]
    assert parts == len(partial)
    total = partial.sum(0).view(batch, rows, -1)[:, :, :cols]
    if beta:
        total = total + bias.float()
    out.as_strided((batch, rows, cols), numbers[11:]).copy_(total)


def merge_weights(partial: Tensor, out: Tensor, *numbers: int) -> None:
    """Add up parts, and put the channels of all taps where the weight has them."""
    results, channels, high, wide, together, length, parts, width, *strides = numbers
    assert partial.shape == (parts, results, width)
    rows = partial.sum(0)[:, : high * (wide // together) * length].view(results, high, wide // together, length)
    taps = rows[..., : together * channels].reshape(results, high, wide, channels)
    out.as_strided((results, high, wide, channels), (strides[0], *strides[2:], strides[1])).copy_(taps)


def unfold(x: Tensor, _w: Tensor, out: Tensor, _copy: Tensor, *numbers: int) -> None:
    """Write each position's taps one after another; the weight must not be asked for."""
    batch, channels, results, x_h, x_w, width, _, _, together, vectors, mul, step, start, *strides = numbers
    assert results == 0
    image = x.as_strided((batch, channels, x_h, x_w), strides[:4])
    wide = 8 * vectors
    made = out.as_strided((batch, x_h, width, wide), (x_h * width * wide, width * wide, wide, 1)).zero_()
    for at in range(width):
        for tap in range(together):
            column = at * mul + tap * step + start
            if 0 <= column < x_w:
                made[:, :, at, tap * channels : (tap + 1) * channels] = image[..., column].movedim(1, -1)


def transpose(source: Tensor, target: Tensor, rows: int, cols: int, *numbers: int) -> None:
    in_z, in_row, out_z, out_col, batch = numbers
    read = source.as_strided((batch, rows, cols), (in_z, in_row, 1))
    target.as_strided((batch, rows, cols), (out_z, 1, out_col)).copy_(read)


STAND_INS = {
    "bmm_merge": merge,
    "conv_planes": transpose,
    "conv_unfold": unfold,
    "conv_weight_merge": merge_weights,
}


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device of a few processors that takes maps, and forget what was remembered for others."""
    monkeypatch.setattr(launch_sm90, "takes_maps", lambda value: value.element_size() == 2)
    op_autograd.MEMO.forget()
    chosen.clear()
    of_weight_strips.clear()
    chosen.update(TILES["64 x 64"])
    asked.clear()
    with library.override(provide):
        yield
    op_autograd.MEMO.forget()


def whole(monkeypatch: pytest.MonkeyPatch, parts: int = 1) -> None:
    """Cut every depth into so many parts."""
    for module in (launch_sm90, launch_pointers):
        monkeypatch.setattr(module, "parts_of", lambda *_: parts)

    def plans(tiles: Sequence[Tile], *_: Any, **__: Any) -> list[Plan]:
        """Take the widest tile within the one that other kernels of the test have."""
        wide, long = chosen["BLOCK_N"], chosen["BLOCK_M"]
        tile = max(tiles, key=lambda tile: (tile.rows <= long, tile.cols <= wide, tile.cols, tile.rows))
        return [Plan(0.0, tile.rows, tile.cols, parts)]

    monkeypatch.setattr(launch_weight_grad, "plans", plans)


def serve_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels over maps run whatever they can, however much of it is padding."""
    monkeypatch.setattr(launch_sm90, "USED", 0.0)
    monkeypatch.setattr(launch_few, "SHARE", 0.0)


def by_channels(dims: int) -> torch.memory_format:
    """Return the format of so many dimensions whose channels lie next to one another."""
    return LAST if dims == 4 else torch.channels_last_3d


def operands(shape: tuple[int, ...], channels: int, taps: tuple[int, ...], groups: int = 1) -> list[Tensor]:
    """Make operands by channels, and a bias."""
    x, w = torch.randn(shape), torch.randn(channels, shape[1] // groups, *taps) / 8
    last = by_channels(len(shape))
    return [value.bfloat16().contiguous(memory_format=last) for value in (x, w)] + [torch.randn(channels).bfloat16()]


def check(convolve: Any, values: list[Tensor], **words: Any) -> None:
    """Hold a convolution and all gradients to the exact ones."""
    torchs = functional.conv2d if convolve is conv2d else functional.conv3d
    ours, wide, own = ([value.to(kind).requires_grad_() for value in values] for kind in (None, torch.float64, None))
    result, exact, right = convolve(*ours, **words), torchs(*wide, **words), torchs(*own, **words)
    assert_accurate(result.detach(), exact.detach(), right.detach())
    # what torch returns on a host depends on its processor
    assert result.stride() == right.stride() or result.is_contiguous(memory_format=by_channels(result.dim()))
    grad = torch.randn(exact.shape).bfloat16()
    for got, best, theirs in zip(
        torch.autograd.grad(result, ours, grad),
        torch.autograd.grad(exact, wide, grad.double()),
        torch.autograd.grad(right, own, grad),
        strict=True,
    ):
        assert_accurate(got, best, theirs, 3.0)


CASES = {
    "padded": (conv2d, (2, 72, 7, 9), 64, (3, 3), {"padding": 1}),
    "stride": (conv2d, (3, 64, 9, 10), 72, (3, 3), {"padding": 1, "stride": 2}),
    "far": (conv2d, (1, 40, 9, 10), 136, (3, 2), {"padding": (2, 0), "dilation": (2, 3)}),
    "pointwise": (conv2d, (2, 64, 7, 7), 64, (1, 1), {"stride": 2}),
    "groups": (conv2d, (2, 128, 6, 7), 128, (3, 3), {"padding": "same", "groups": 2}),
    "both": (conv2d, (1, 64, 9, 9), 40, (4, 5), {"padding": 2, "stride": (3, 2), "dilation": 2}),
    "volume": (conv3d, (2, 64, 4, 5, 6), 64, (3, 2, 3), {"padding": 1, "stride": (2, 1, 1)}),
    "volume of few channels": (conv3d, (2, 8, 4, 5, 6), 24, (3, 2, 3), {"padding": 1}),
}


@pytest.mark.parametrize(
    ("tile", "parts"),
    [
        ("128 x 256", 1),
        ("64 x 64", 3),
        ("192 x 128", 1),
        ("192 x 128", 3),
        ("192 x 64", 2),
        ("128 x 192", 2),
        ("192 x 192", 1),
    ],
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_convolutions(case, tile, parts, monkeypatch):
    convolve, shape, channels, taps, words = case
    chosen.update(TILES[tile])
    whole(monkeypatch, parts)
    serve_few(monkeypatch)
    check(convolve, operands(shape, channels, taps, words.get("groups", 1)), **words)
    assert set(asked) <= {"conv_sm90", "conv_weight_grad_sm90", "bmm_merge"}
    assert {"conv_sm90", "conv_weight_grad_sm90"} <= set(asked)
    assert ("bmm_merge" in asked) == (parts > 1)


@pytest.mark.parametrize("tiling", [(64, 128, 1), (192, 64, 1), (64, 64, 3), (128, 256, 2), (128, 192, 4)], ids=str)
@pytest.mark.parametrize(
    "case", [CASES["padded"], CASES["stride"], CASES["volume"]], ids=["padded", "stride", "volume"]
)
def test_callers_name_tiles_and_parts(case, tiling, monkeypatch):
    convolve, shape, channels, taps, words = case
    rows, cols, parts = tiling

    def ways(one: Sum, _x: Tensor, _w: Tensor, out: Tensor, *_: object) -> list[Way]:
        return [Way(0.0, "conv_sm90", Tiling(rows, cols, 1 if pixel_of(one, out) is None else parts))]

    monkeypatch.setattr(launch_sums, "takes_maps", lambda _: True)
    monkeypatch.setattr(launch_sums, "ways_of", ways)
    check(convolve, operands(shape, channels, taps), **words)
    assert "conv_sm90" in asked
    assert ("bmm_merge" in asked) == (parts > 1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("images", range(2, 8))
def test_tiles_of_three_boxes_may_end_behind_the_last(images, parts, stride, monkeypatch):
    """A box is an image: the last tile has one, two or three."""
    chosen.update(TILES["192 x 64"])
    whole(monkeypatch, parts)
    serve_few(monkeypatch)
    monkeypatch.setattr(launch_sm90, "strips_of", lambda *_: None)
    x, w, bias = operands((images, 64, 8 * stride, 8 * stride), 80, (3, 3))
    result = conv2d(x, w, bias, padding=1, stride=stride)
    exact = functional.conv2d(x.double(), w.double(), bias.double(), padding=1, stride=stride)
    assert_accurate(result, exact, functional.conv2d(x, w, bias, padding=1, stride=stride))
    assert asked == ["conv_sm90", "bmm_merge"][:parts]


HIGH = {
    "padded": (conv2d, (2, 72, 7, 9), 64, (3, 3), {"padding": 1}),
    "few": (conv2d, (9, 40, 8, 5), 40, (3, 2), {"padding": (2, 0)}),
    "apart": (conv2d, (1, 64, 11, 70), 64, (3, 1), {"padding": 0, "dilation": (1, 2)}),
    "across": (conv2d, (3, 64, 6, 8), 64, (3, 5), {"padding": "same"}),
    "volume": (conv3d, (2, 64, 4, 5, 6), 64, (1, 3, 3), {"padding": 1}),
    "deep": (conv3d, (1, 64, 4, 5, 6), 64, (3, 3, 1), {"padding": 1, "dilation": (2, 1, 1)}),
}


@pytest.mark.parametrize("config", STRIPS.values(), ids=STRIPS.keys())
@pytest.mark.parametrize("case", HIGH.values(), ids=HIGH.keys())
def test_what_taps_share_is_copied_once(case, config, monkeypatch):
    convolve, shape, channels, taps, words = case
    of_strips.update(config)
    serve_few(monkeypatch)
    for name, value in {"WASTE": 9.0, "processors": lambda _: 1}.items():
        monkeypatch.setattr(launch_sm90, name, value)
    check(convolve, operands(shape, channels, taps), **words)
    assert asked[:2] == ["conv_halo_sm90"] * 2, "the convolution, and the gradient of its input"


@pytest.mark.parametrize("config", ["narrow", "weights come"])
def test_what_taps_share_is_copied_once_for_each_of_several_columns_of_tiles(config, monkeypatch):
    of_strips.update(STRIPS[config])
    monkeypatch.setattr(launch_sums, "takes_maps", lambda _: True)
    monkeypatch.setattr(launch_sums, "ways_of", lambda *_: [Way(0.0, "conv_halo_sm90", Tiling(128, 64, 1))])
    check(conv2d, operands((2, 136, 5, 9), 200, (3, 3)), padding=1)
    assert asked[:2] == ["conv_halo_sm90"] * 2


@pytest.mark.parametrize(
    ("shape", "channels", "taps", "words", "serves"),
    [
        pytest.param((32, 64, 56, 56), 64, (3, 3), {"padding": 1}, True, id="narrow"),
        pytest.param((32, 256, 56, 56), 64, (3, 3), {"padding": 1}, True, id="of many channels"),
        pytest.param((32, 64, 56, 56), 192, (3, 3), {"padding": 1}, False, id="wide"),
        pytest.param((32, 128, 56, 56), 128, (3, 3), {"padding": 1, "groups": 2}, False, id="groups"),
        pytest.param((32, 64, 56, 56), 64, (5, 5), {"padding": 2}, False, id="more taps"),
        pytest.param((32, 64, 56, 56), 64, (3, 3), {"padding": 1, "stride": (2, 1)}, False, id="stride"),
        pytest.param((32, 64, 56, 56), 64, (3, 3), {"padding": 1, "dilation": 2}, False, id="dilation"),
        pytest.param((1, 64, 56, 56), 64, (3, 3), {"padding": 1}, False, id="a small batch"),
        pytest.param((640, 64, 5, 5), 64, (3, 3), {"padding": 1}, False, id="strips that are mostly empty"),
    ],
)
def test_narrow_convolutions_share_what_taps_meet(shape, channels, taps, words, serves):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        values = (
            torch.empty(shape, dtype=torch.bfloat16),
            torch.empty(channels, shape[1] // words.get("groups", 1), *taps, dtype=torch.bfloat16),
        )
        conv2d(*(value.contiguous(memory_format=LAST) for value in values), **words)
    assert names[0] == ("conv_halo_sm90" if serves else "conv_sm90")


WEIGHT_STRIPS = {
    "padded": ((2, 72, 7, 9), 64, (3, 3), {"padding": 1}),
    "of many boxes": ((3, 64, 5, 70), 136, (3, 3), {"padding": 1}),
    "few": ((9, 40, 8, 5), 200, (3, 2), {"padding": (2, 0)}),
    "apart": ((1, 64, 11, 12), 40, (3, 3), {"padding": 1, "stride": (1, 2), "dilation": (1, 3)}),
    "of five": ((3, 136, 6, 8), 64, (5, 5), {"padding": 2}),
    "volume": ((2, 64, 4, 5, 6), 72, (3, 3, 3), {"padding": 1, "stride": (2, 1, 1)}),
    "lower than its padding": ((2, 64, 1, 9), 64, (3, 3), {"padding": (2, 1)}),
}


@pytest.mark.parametrize("parts", [1, 2, 5, 11])
@pytest.mark.parametrize(("rows", "cols"), [(64, 64), (128, 64), (64, 128)])
@pytest.mark.parametrize("case", WEIGHT_STRIPS.values(), ids=WEIGHT_STRIPS.keys())
def test_weight_gradients_copy_what_a_column_of_taps_shares_once(case, rows, cols, parts, monkeypatch):
    shape, channels, taps, words = case
    of_weight_strips.update(GROUP=2, STAGES=taps[-2] + 1)
    its = [tile for tile in STRIPS_OF_WEIGHTS if tile.rows <= rows and tile.cols <= cols * taps[-2]]
    serve_few(monkeypatch)

    def plans(tiles: Sequence[Tile], *_: Any, **__: Any) -> list[Plan]:
        return [Plan(1000.0 * (tile not in its) - tile.rows - tile.cols, tile.rows, tile.cols, parts) for tile in tiles]

    monkeypatch.setattr(launch_weight_grad, "plans", plans)
    check(conv2d if len(taps) == 2 else conv3d, operands(shape, channels, taps), **words)
    assert HALO in asked


@pytest.mark.parametrize("seed", range(4))
def test_any_window(seed, monkeypatch):
    serve_few(monkeypatch)
    rng = random.Random(seed)
    taps = rng.randint(1, 4), rng.randint(1, 4)
    words = {
        "stride": (rng.randint(1, 3), rng.randint(1, 3)),
        "padding": (rng.randint(0, 3), rng.randint(0, 3)),
        "dilation": (rng.randint(1, 3), rng.randint(1, 3)),
    }
    shape = rng.randint(1, 3), 8 * rng.randint(5, 9), rng.randint(10, 12), rng.randint(10, 12)
    check(conv2d, operands(shape, 8 * rng.randint(5, 9), taps), **words)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_operands_by_planes_run_on_kernels_that_need_channels(case, monkeypatch):
    convolve, shape, channels, taps, words = case
    serve_few(monkeypatch)
    values = operands(shape, channels, taps, words.get("groups", 1))
    planes = [value.contiguous() for value in values]
    check(convolve, planes, **words)
    assert set(asked) <= {"conv_planes", "conv_sm90", "conv_weight_grad_sm90", "bmm_merge"}
    result = convolve(*planes, **words)
    assert result.is_contiguous()
    assert torch.equal(result, convolve(*values, **words))


@pytest.mark.parametrize("dims", [2, 3])
def test_one_image_by_planes_is_as_a_batch_of_one_also_when_replayed(dims, monkeypatch):
    serve_few(monkeypatch)
    convolve = conv2d if dims == 2 else conv3d
    _, w, bias = (value.contiguous() for value in operands((1, 64, *[6] * dims), 64, (3,) * dims))
    for _ in range(3):
        x = torch.randn(64, *[6] * dims).bfloat16()
        result = convolve(x, w, bias, padding=1)
        assert torch.equal(result, convolve(x.unsqueeze(0), w, bias, padding=1)[0])
        assert result.is_contiguous()
    assert set(asked) <= {"conv_planes", "conv_sm90", "bmm_merge"}


def test_weights_by_planes_are_copied_first():
    x, w, bias = operands((1, 64, 6, 6), 64, (3, 3))
    first = conv2d(x, w, bias, padding=1)
    assert torch.equal(first, conv2d(x, w.contiguous(), bias, padding=1))
    assert torch.equal(first, conv2d(x, w.contiguous(), bias, padding=1))
    assert asked == ["conv_sm90"] * 3


def test_what_is_remembered_is_what_was_launched():
    x, w, bias = operands((2, 64, 6, 6), 64, (3, 3))
    first = conv2d(x, w, bias, padding=1)
    again = conv2d(x.neg(), w, bias, padding=1)
    assert len(op_autograd.MEMO) == 1
    torch.testing.assert_close(
        again.float() - bias.float()[:, None, None], bias.float()[:, None, None] - first.float(), atol=0.05, rtol=0.05
    )


@pytest.mark.parametrize(
    ("x", "channels", "words", "runs"),
    [
        ((1, 64, 6, 6), 64, {"memory_format": torch.contiguous_format}, ["conv_planes", "conv_sm90"]),
        ((1, 60, 6, 6), 64, {"memory_format": LAST}, ["conv_unfold", "conv_few"]),
        ((1, 16, 6, 6), 64, {"memory_format": LAST}, ["conv_few"]),
        ((1, 64, 6, 6), 16, {"memory_format": LAST}, ["conv_few"]),
    ],
    ids=["planes", "channels of no 16 bytes", "few channels", "few results"],
)
def test_what_maps_do_not_serve_goes_over_vectors(x, channels, words, runs):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        value, weight = torch.ones(x).bfloat16(), torch.ones(channels, x[1], 3, 3).bfloat16()
        conv2d(value.contiguous(**words), weight.contiguous(memory_format=LAST))
    assert names == runs


@pytest.mark.parametrize(
    ("shape", "channels", "groups", "kernel"),
    [
        ((1, 40, 6, 6), 64, 1, "conv_few"),
        ((1, 48, 6, 6), 64, 1, "conv_sm90"),
        ((1, 96, 6, 6), 96, 1, "conv_few"),
        ((1, 96, 6, 6), 128, 1, "conv_sm90"),
        ((1, 128, 6, 6), 72, 1, "conv_few"),
        ((1, 40, 4, 6, 6), 64, 1, "conv_few"),
        ((1, 48, 4, 6, 6), 64, 1, "conv_sm90"),
        ((1, 12, 4, 6, 6), 64, 1, "conv_unfold"),
        ((1, 128, 6, 6), 128, 2, "conv_sm90"),
    ],
)
def test_what_would_mostly_multiply_padding_goes_over_vectors(shape, channels, groups, kernel):
    names, last = [], by_channels(len(shape))
    convolve = conv2d if len(shape) == 4 else conv3d
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        value, weight = torch.ones(shape).bfloat16(), torch.ones(channels, shape[1] // groups, *[3] * (len(shape) - 2))
        convolve(value.contiguous(memory_format=last), weight.bfloat16().contiguous(memory_format=last), groups=groups)
    assert names[0] == kernel


@pytest.mark.parametrize(
    ("shape", "channels", "taps", "stride", "kernels"),
    [
        ((2, 16, 20, 20), 64, 3, 1, ["conv_few_grad"]),
        ((2, 3, 20, 20), 40, 1, 1, ["conv_few_grad"]),
        ((2, 3, 20, 20), 40, 1, 2, ["conv_few_grad"]),
        ((2, 24, 20, 20), 40, 1, 1, ["bmm"]),
        ((2, 24, 20, 20), 40, 3, 1, ["conv_few_grad"]),
        ((8, 24, 100, 120), 48, 3, 1, ["conv_few"]),
        ((2, 128, 20, 20), 128, 3, 1, ["conv_sm90"]),
        ((2, 128, 20, 20), 128, 3, 2, ["conv_few_grad"]),
        ((2, 128, 20, 20), 128, 1, 2, ["conv_sm90"]),
        ((8, 128, 112, 112), 128, 3, 2, ["conv_sm90"] * 4),
        ((8, 40, 112, 112), 128, 3, 2, ["conv_few_grad"]),
        ((8, 24, 100, 120), 48, 1, 1, ["conv_few"]),
    ],
)
def test_few_channels_and_small_strided_convolutions_take_one_launch_for_the_input_gradient(
    shape, channels, taps, stride, kernels
):
    names, pad = [], taps // 2
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        value = torch.empty(shape, dtype=torch.bfloat16).contiguous(memory_format=LAST)
        weight = torch.empty(channels, shape[1], taps, taps, dtype=torch.bfloat16).contiguous(memory_format=LAST)
        grad = torch.empty(shape[0], channels, *(-(-size // stride) for size in shape[2:]), dtype=torch.bfloat16)
        grad = grad.contiguous(memory_format=LAST)
        window = [stride] * 2, [pad] * 2, [pad] * 2, [1, 1]
        torch.ops.nojit.conv_input_grad(grad, weight, value.shape, *window, 1, "switch")
    assert [name for name in names if name != "bmm_merge"] == kernels


@pytest.mark.parametrize(
    ("channels", "results", "kernel"), [(32, 32, "conv_few"), (104, 24, "conv_few"), (128, 64, "bmm"), (32, 72, "bmm")]
)
def test_points_that_would_mostly_multiply_padding_go_over_vectors(channels, results, kernel):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        value, weight = torch.ones(2, channels, 6, 6).bfloat16(), torch.ones(results, channels, 1, 1).bfloat16()
        conv2d(value.contiguous(memory_format=LAST), weight.contiguous(memory_format=LAST))
    assert names[0] == kernel


@pytest.mark.parametrize(
    ("shape", "results", "product"),
    [((2, 64, 6, 6), 72, True), ((2, 24, 6, 6), 40, False), ((64, 128, 56, 56), 128, False), ((64, 512, 56, 56), 512, True)],
    ids=["few positions", "few channels", "many positions", "many tiles"],
)  # fmt: skip
def test_weight_gradients_of_points_are_products_where_parts_suffice(shape, results, product):
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        x = torch.empty(shape, dtype=torch.bfloat16).contiguous(memory_format=LAST)
        grad = torch.empty(shape[0], results, *shape[2:], dtype=torch.bfloat16).contiguous(memory_format=LAST)
        window = [1, 1], [0, 0], [0, 0], [1, 1]
        torch.ops.nojit.conv_weight_grad(grad, x, [results, shape[1], 1, 1], *window, 1, "switch")
    assert (names[0] == "bmm") == product


FEW = {
    "eights": ((2, 8, 9, 10), 64, (3, 3), {"padding": 1}),
    "few results": ((2, 72, 9, 6), 16, (3, 3), {"padding": 1}),
    "few of both": ((2, 24, 9, 10), 8, (5, 5), {"padding": 2}),
    "stride": ((2, 16, 9, 10), 64, (3, 3), {"padding": 1, "stride": 2}),
    "far": ((1, 16, 12, 13), 40, (3, 2), {"padding": (2, 1), "stride": (3, 2), "dilation": (2, 3)}),
    "stem": ((2, 3, 15, 14), 16, (7, 7), {"padding": 3, "stride": 2}),
    "padded channels": ((1, 37, 8, 9), 64, (2, 3), {"padding": 1}),
    "points": ((2, 3, 6, 7), 8, (1, 1), {}),
    "points apart": ((2, 24, 7, 7), 64, (1, 1), {"stride": 2}),
    "a volume": ((1, 8, 4, 6, 5), 64, (3, 3, 3), {"padding": 1}),
    "a volume of three channels": ((2, 3, 5, 9, 8), 16, (3, 3, 3), {"padding": 1, "stride": 2}),
    "a volume, far": (
        (1, 12, 7, 6, 9),
        8,
        (2, 3, 4),
        {"padding": (0, 1, 2), "stride": (1, 2, 1), "dilation": (3, 1, 2)},
    ),
    "points of a volume apart": ((2, 3, 4, 6, 5), 24, (1, 1, 1), {"stride": 2}),
}


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("case", FEW.values(), ids=FEW.keys())
def test_weight_gradients_of_few_channels(case, parts, monkeypatch):
    whole(monkeypatch, parts)
    check_weight_gradient(*case)
    assert "conv_weight_grad_sm90" in asked[-2:]


CHUNKS = {
    "images": ((5, 3, 9, 8), 16, (7, 7), {"padding": 3, "stride": 2}, 2 * 9 * 4 * 48),
    "rows": ((1, 12, 17, 9), 24, (3, 3), {"padding": 1}, 11 * 9 * 96),
    "volumes": ((3, 3, 4, 6, 7), 16, (3, 3, 3), {"padding": 1}, 4 * 6 * 7 * 32),
    "slices": ((2, 12, 7, 5, 6), 24, (3, 3, 3), {"padding": 1, "stride": (2, 1, 1)}, 5 * 5 * 6 * 96),
    "rows of slices": ((1, 1, 3, 9, 5), 8, (3, 3, 3), {"padding": 1}, 3 * 5 * 5 * 16),
}


@pytest.mark.parametrize("strips", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("case", CHUNKS.values(), ids=CHUNKS.keys())
def test_weight_gradients_of_large_inputs_are_summed_in_chunks(case, parts, strips, monkeypatch):
    *operands_of, limit = case
    taps, copies = operands_of[2], []

    def unfold_and_note(x: Tensor, w: Tensor, out: Tensor, *numbers: Any) -> None:
        copies.append((out.data_ptr(), out.untyped_storage().nbytes()))
        unfold(x, w, out, *numbers)

    def plans(tiles: Sequence[Tile], *_: Any, **__: Any) -> list[Plan]:
        return [Plan(float((tile in STRIPS_OF_WEIGHTS) != strips), tile.rows, tile.cols, parts) for tile in tiles]

    if strips:
        of_weight_strips.update(GROUP=2, STAGES=taps[-2] + 1)
    monkeypatch.setitem(STAND_INS, "conv_unfold", unfold_and_note)
    monkeypatch.setattr(launch_weight_grad, "plans", plans)
    monkeypatch.setattr(launch_unfold, "COPY_BYTES", limit)
    check_weight_gradient(*operands_of)
    once = len(copies) // 2
    assert once > 1
    assert len(set(copies[:once])) == len(set(copies[once:])) == 1, "chunks take turns in the same memory"
    assert copies[0][1] <= limit
    kernel = HALO if strips and taps[-2] == 3 else "conv_weight_grad_sm90"
    assert asked.count(kernel) == len(copies)
    assert asked[-1] == "conv_weight_merge"


def test_weight_gradients_copy_volumes_whose_slices_have_gaps_once(monkeypatch):
    copy, copies = launch_unfold.copied_by_channels, []

    def note(*args: Any) -> Tensor:
        copies.append(copy(*args))
        return copies[-1]

    monkeypatch.setattr(launch_unfold, "copied_by_channels", note)
    x, _, _ = operands((2, 3, 4, 10, 6), 16, (3, 3, 3))
    grad = torch.randn(2, 16, 4, 5, 6).bfloat16().contiguous(memory_format=torch.channels_last_3d)
    window = [1] * 3, [1] * 3, [1] * 3, [1] * 3
    of_gaps, of_all = (
        torch.ops.nojit.conv_weight_grad(grad, value, [16, 3, 3, 3, 3], *window, 1, "ieee")
        for value in (x[:, :, :, :5], x[:, :, :, :5].contiguous(memory_format=torch.channels_last_3d))
    )
    assert torch.equal(of_gaps, of_all)
    assert len(copies) == 1


def check_weight_gradient(shape: tuple[int, ...], channels: int, taps: tuple[int, ...], words: dict[str, Any]) -> None:
    """Hold the gradient of a convolution by its weight to the exact one, and a replay to the first call."""
    x, w, _ = operands(shape, channels, taps)
    torchs = functional.conv2d if len(taps) == 2 else functional.conv3d
    wide, own = ([value.to(kind, copy=True).requires_grad_() for value in (x, w)] for kind in (torch.float64, x.dtype))
    exact, right = torchs(*wide, **words), torchs(*own, **words)
    grad = torch.randn(exact.shape).bfloat16().contiguous(memory_format=by_channels(len(shape)))
    window = [torchs_numbers(words, name, len(taps)) for name in ("stride", "padding", "padding", "dilation")]
    got, again = (torch.ops.nojit.conv_weight_grad(grad, x, list(w.shape), *window, 1, "ieee") for _ in range(2))
    assert torch.equal(got, again)
    assert got.shape == w.shape
    (best,), (theirs,) = (
        torch.autograd.grad(out, values[1], grad.to(out.dtype)) for out, values in ((exact, wide), (right, own))
    )
    assert_accurate(got, best, theirs, 3.0)


def torchs_numbers(words: dict[str, Any], name: str, dims: int) -> list[int]:
    """Return one of a convolution's options in each dimension."""
    given = words.get(name, 0 if name == "padding" else 1)
    return [given] * dims if isinstance(given, int) else list(given)


@pytest.mark.parametrize("positions", [(1, 1, 56, 56), (32, 1, 7, 7), (4, 1, 28, 28), (16, 1, 14, 14), (2, 9, 6, 8)])
def test_boxes_hold_all_positions_and_waste_few(positions):
    boxes = boxes_of(positions, (1, 1, 1, 1))
    assert all(count * size >= there for count, size, there in zip(*boxes, positions, strict=True))
    assert torch.Size(boxes.sizes).numel() == ROWS
    assert boxes.rows <= 1.15 * torch.Size(positions).numel() + ROWS
    single = boxes_of(positions, (1, 1, 1, 1), 1)
    assert single.sizes[0] == 1
    far = boxes_of(positions, (1, 1, 8, 8))
    assert max(far.sizes[2:]) <= 32
