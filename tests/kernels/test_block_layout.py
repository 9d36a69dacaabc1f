from __future__ import annotations

import pytest
import torch
from nojit.kernels.block_sparse import BlockLayout
from nojit.kernels.block_sparse.layout import _numbered
from nojit.kernels.calls.torch_state import is_real
from nojit.runtime.errors import ArgumentError
from torch._subclasses.fake_tensor import FakeTensorMode

ACTIVE = torch.tensor([[[1, 0, 1], [0, 0, 0]], [[0, 0, 0], [0, 7, -1]]])


def test_sizes():
    layout = BlockLayout(ACTIVE, 32)
    assert (layout.heads, layout.rows, layout.cols, layout.block) == (2, 2, 3, 32)
    assert (layout.nnz, layout.longest_row, layout.shape) == (4, 2, (64, 96))
    assert repr(layout) == "BlockLayout(heads=2, rows=2, cols=3, block=32, nnz=4)"


def test_tables_are_row_major_and_made_once_for_a_device():
    layout = BlockLayout(ACTIVE, 16)
    tables = layout.tables("cpu")
    assert tables.spans.tolist() == [[0, 0, 2], [1, 2, 0], [2, 2, 0], [3, 2, 2]]
    assert tables.sizes.long_rows == 0
    assert tables.columns.tolist() == [0, 2, 1, 2]
    assert tables.spans.dtype == tables.columns.dtype == torch.int32
    assert layout.tables(torch.device("cpu")) is tables
    assert layout.tables("meta").columns.device.type == "meta"


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_nothing_active(shape):
    layout = BlockLayout(torch.ones(shape, dtype=torch.int32), 64)
    assert (layout.nnz, layout.longest_row) == (0, 0)
    assert layout.tables("cpu").spans.tolist() == [[row, 0, 0] for row in range(shape[0] * shape[1])]
    assert layout.tables("cpu").columns.tolist() == []


def test_equal_if_the_blocks_are():
    layout = BlockLayout(ACTIVE, 16)
    assert layout == BlockLayout(ACTIVE.bool(), 16)
    assert hash(layout) == hash(BlockLayout(ACTIVE.bool(), 16))
    assert len({layout, BlockLayout(ACTIVE.to(torch.uint8), 16)}) == 1
    assert layout != BlockLayout(ACTIVE, 32)
    assert layout != BlockLayout(ACTIVE.flip(0), 16)
    assert layout != BlockLayout(ACTIVE.reshape(1, 4, 3), 16)
    assert BlockLayout(ACTIVE[0], 16) != BlockLayout(ACTIVE[:1], 16)
    assert layout != "layout"


def test_later_changes_to_the_callers_tensor_change_nothing():
    active = ACTIVE.bool()
    layout = BlockLayout(active, 16)
    active.zero_()
    layout.active.zero_()
    assert layout == BlockLayout(ACTIVE, 16)
    assert layout.tables("cpu").columns.tolist() == [0, 2, 1, 2]


def test_a_layout_for_all_heads_is_repeated():
    shared = BlockLayout(ACTIVE[0], 16)
    assert shared.heads is None
    assert shared.for_heads(3) == BlockLayout(ACTIVE[:1].expand(3, -1, -1), 16)
    assert shared.for_heads(3) is shared.for_heads(3)
    assert (shared.heads_of(6), shared.heads_of(0)) == (3, 0)
    with pytest.raises(ValueError, match="x: expected a multiple of 2 blocks as the layout has, got 5"):
        shared.heads_of(5)
    with pytest.raises(ValueError, match="layout: expected one with a number of heads"):
        shared.tables("cpu")


def test_a_layout_of_heads_keeps_them():
    layout = BlockLayout(ACTIVE, 16)
    assert layout.for_heads(2) is layout
    assert layout.heads_of(4) == 2
    with pytest.raises(ValueError, match="layout: expected 4 heads, got 2"):
        layout.for_heads(4)
    with pytest.raises(ValueError, match="x: expected 4 blocks as the layout has, got 8"):
        layout.heads_of(8)


@pytest.mark.parametrize(
    ("layout", "block", "error", "message"),
    [
        (ACTIVE.float(), 16, ArgumentError, "layout: expected an integer or bool dtype, got torch.float32"),
        ([[1]], 16, ArgumentError, "layout: expected a tensor, got list"),
        (ACTIVE[0, 0], 16, ValueError, r"layout: expected \[H, M / block, N / block\] or .*, got \(3,\)"),
        (ACTIVE, 48, ValueError, "block: expected 16 or 32 or 64 or 128, got 48"),
        (ACTIVE, True, ArgumentError, "block: expected an int, got bool"),
    ],
)
def test_refuses(layout, block, error, message):
    with pytest.raises(error, match=message):
        BlockLayout(layout, block)


def test_rows_far_longer_than_the_others_come_first() -> None:
    active = torch.eye(8, dtype=torch.int64)
    active[5] = 1
    tables = BlockLayout(active[None].expand(2, 8, 8), 16).tables("cpu")
    assert tables.sizes.long_rows == 2
    assert tables.spans[:3].tolist() == [[5, 5, 8], [13, 20, 8], [0, 0, 1]]
    assert sorted(tables.spans[:, 0].tolist()) == list(range(16))


def test_the_current_device_has_its_number(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert _numbered("cuda") == torch.device("cuda", 3)
    assert _numbered("cuda:1") == torch.device("cuda", 1)
    assert _numbered("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    "make", [lambda layout: layout.tables("cpu").spans, lambda layout: layout.packing("cpu", torch.float16).tables[0]]
)
def test_tables_serve_every_mode_whatever_mode_made_them(make):
    layout = BlockLayout(torch.ones(1, 2, 2, dtype=torch.bool), 16)
    with torch.inference_mode(), torch.device("meta"):
        made = make(layout)
    assert not made.is_inference()
    assert made.device == torch.device("cpu")


@pytest.mark.parametrize(
    "make", [lambda layout: layout.tables("cpu").spans, lambda layout: layout.packing("cpu", torch.float16).tables[0]]
)
def test_no_transform_or_mode_leaves_its_tensors_behind(make):
    layouts = [BlockLayout(torch.ones(2, 2, dtype=torch.bool), 16) for _ in range(2)]

    def call(x):
        make(layouts[0].for_heads(3))
        return x.sum()

    torch.func.grad(call)(torch.ones(2))
    with FakeTensorMode():
        make(layouts[1].for_heads(3))
    assert all(is_real(make(layout.for_heads(3))) for layout in layouts)
