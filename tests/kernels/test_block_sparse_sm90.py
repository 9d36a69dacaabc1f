"""The kernels for sm_90, step by step without a device: see `tests.kernels.gluon_stub` for what that shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.kernels import library
from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul, packing, reference
from nojit.kernels.block_sparse.matmul import launch as products
from nojit.kernels.block_sparse.matmul import launch_sm90
from nojit.kernels.calls.tensor_maps import Described
from nojit.kernels.manifest_kernels import by_position
from torch import Tensor

from tests.kernels.gluon_stub import Map, Pointer, load

FAMILY = Path(__file__).resolve().parents[2] / "kernels/block_sparse/matmul"
PROGRAMS = 3
# as few as work: the more often stages are used again, the more is seen
STAGES = {"block_sparse_sdd_sm90": {"STAGES": 3}, "block_sparse_dsd_sm90": {"STAGES": 2}}


def boxes_of(name: str, named: dict[str, Any]) -> list[tuple[int, int]]:
    """List what the manifest says of the boxes of the three maps."""
    small = (named["BOX"], named["BOX"])
    if name == "block_sparse_sdd_sm90":
        return [(64, 64), (named["B_HEIGHT"], named["B_WIDTH"]), small]
    return [small, (named["D_HEIGHT"], named["D_WIDTH"]), (64, 64)]


def argument(value: Any) -> Any:
    return Pointer(value) if isinstance(value, Tensor) else value


def map_of(value: Described, box: tuple[int, int]) -> Map:
    return Map(value.base.as_strided(value.shape, value.strides), box)


def provide(name: str):
    """Give kernels as Python; the sums of partial results too."""
    if name == "block_sparse_merge":
        return merge
    kernel = load(
        f"{name}_kernel", FAMILY.parents[1] / "products/kernel_sm90_tiles.py", FAMILY / f"kernel_{name[13:]}.py"
    )

    def launch(*args: Any, **named: Any) -> None:
        args, named = by_position(name, args, named)
        if name == "block_sparse_dsd_sm90":
            width = args[2].shape[2 if named["COLUMNS"] else 3]
            named["BLOCK_N"] = 64 if width <= 64 else 256 if named["TRANSPOSED"] else 128
        maps = map(map_of, args[:3], boxes_of(name, named))
        kernel(PROGRAMS, *maps, *map(argument, args[3:]), **named, **STAGES[name])

    return launch


def merge(partial: Tensor, out: Tensor, merges: Tensor, *numbers: int) -> None:
    batch, _, strips, rows, cols, height, slots, atomic = numbers[:8]
    out = out.as_strided((batch, out.shape[1], rows, cols), numbers[8:])
    panels = partial.view(batch, slots, -1, height, 64)
    for number, (strip, first, last) in enumerate(merges.tolist()):
        span = slice(number, number + 1) if atomic else slice(first, last)
        total = panels[:, span].sum(1).transpose(1, 2).reshape(batch, height, -1)[:, :, :cols]
        place = strip % strips * height
        part = out[:, strip // strips, place : place + height]
        part.copy_(total[:, : part.shape[1]])


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """Have a device that takes maps, and cut rows that are not long."""
    monkeypatch.setattr(launch_sm90, "takes_maps", lambda value: value.element_size() == 2)
    monkeypatch.setattr(launch_sm90, "processors", lambda _: PROGRAMS)
    monkeypatch.setattr(packing, "LONG_ROWS", 64)
    with library.override(provide):
        yield


def make_layout(block: int, tile: tuple[int, int]) -> BlockLayout:
    rows, cols = 320 // block + 1, 512 // block
    active = torch.rand(2, rows, cols, generator=torch.Generator().manual_seed(block)) < 0.4
    active[0, 1], active[1, 0], active[:, :, 1] = False, True, False
    active[0, 64 // block : 128 // block + 1] = False  # half of a strip, and more
    layout = BlockLayout(active, block)
    with (
        mock.patch.object(packing, "choose_tile", return_value=tile),
        mock.patch.object(packing, "choose_height", return_value=128),
    ):
        layout.packing("cpu", torch.bfloat16)
    return layout


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()


def assert_close(
    result: Tensor, operands: tuple[Tensor, Tensor], layout: BlockLayout, mode: str, **words: bool
) -> None:
    words.pop("deterministic", None)
    exact = reference.block_sparse_matmul(*(x.double() for x in operands), layout, mode, **words)
    torch.testing.assert_close(result.double(), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("depth", [40, 256])
@pytest.mark.parametrize("trans", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("width", [128, 256])
@pytest.mark.parametrize("block", [32, 64, 128])
def test_products_into_blocks(block, width, trans, depth):
    layout = make_layout(block, (128, width))
    (rows, cols), (trans_a, trans_b) = layout.shape, trans
    a = random(2, 2, *((depth, rows) if trans_a else (rows, depth)))
    b = random(2, 2, *((cols, depth) if trans_b else (depth, cols)))
    result = block_sparse_matmul(a, b, layout, "sdd", trans_a=trans_a, trans_b=trans_b)
    assert_close(result, (a, b), layout, "sdd", trans_a=trans_a, trans_b=trans_b)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("free", [56, 200])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mode", ["dsd", "dds"])
@pytest.mark.parametrize("block", [32, 64, 128])
def test_products_of_blocks(block, mode, turned, free, deterministic):
    layout = make_layout(block, (128, 128))
    rows, cols = layout.shape
    s = random(2, layout.nnz, block, block)
    if mode == "dsd":
        operands = (s, random(2, 2, rows if turned else cols, free))
        words = {"trans_a": turned}
    else:
        operands = (random(2, 2, free, rows if turned else cols), s)
        words = {"trans_b": not turned}
    result = block_sparse_matmul(*operands, layout, mode, **words, deterministic=deterministic)
    assert_close(result, operands, layout, mode, **words)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("long", [1, 2])
def test_long_rows_come_first_and_every_piece_once(monkeypatch, long, batch):
    monkeypatch.setattr(products, "SHARE", 100)  # cut none
    active = torch.eye(24, dtype=torch.bool)
    active[torch.arange(long) * 6] = True
    layout = BlockLayout(active[None].expand(2, -1, -1), 64)
    s, d = random(batch, layout.nnz, 64, 64), random(batch, 2, 24 * 64, 136)
    sizes = layout.packing("cpu", torch.bfloat16).sizes
    assert (sizes.long, sizes.ahead) == (2 * long, 5)
    assert_close(block_sparse_matmul(s, d, layout, "dsd"), (s, d), layout, "dsd")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Return what lists the pieces of work that each program takes, with their batch, first column and task."""
    source = tmp_path_factory.mktemp("source") / "pieces.py"
    source.write_text(
        "def pieces(sizes, width, taken):\n"
        "    order = _order_of(sizes, width)\n"
        "    number = gl.program_id(0)\n"
        "    while number < sizes[0] * sizes[1] * order[0]:\n"
        "        taken.append((gl.program_id(0), *_task_of(number, order, (0,), sizes, width)))\n"
        "        number = _following(number, order)\n"
    )
    return load("pieces", FAMILY / "kernel_dsd_sm90.py", source)


@given(st.data())
def test_every_piece_is_taken_once_and_long_ones_first(pieces, data):
    batch, short, long, parts, programs, ahead = (
        data.draw(st.integers(least, most)) for least, most in ((1, 4), (1, 12), (0, 5), (1, 3), (1, 9), (1, 6))
    )
    taken: list[tuple[int, ...]] = []
    pieces(programs, (batch, short + long, 0, parts * 64, 64, 0, 0, long, ahead), 64, taken)
    wanted = {(z, col * 64, task * 5) for z in range(batch) for col in range(parts) for task in range(short + long)}
    assert len(taken) == len(wanted)
    assert {one[1:] for one in taken} == wanted
    for program in range(programs):
        longs = [one[3] < long * 5 for one in taken if one[0] == program]
        assert longs == sorted(longs, reverse=True)
