"""Which products run over tensor maps, and what they are told: no device is needed to see that."""

from __future__ import annotations

from itertools import product
from unittest import mock

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul
from nojit.kernels.block_sparse.matmul import launch_sm90
from nojit.kernels.calls.tensor_maps import described, takes_maps
from torch import Tensor

LAYOUT = BlockLayout(torch.tensor([[[1, 1, 1], [1, 1, 1], [0, 0, 0], [1, 1, 1]]]), 64)


@pytest.fixture
def asked(monkeypatch) -> list[tuple[str, dict[str, object]]]:
    """Have a device that takes maps, and note which kernels it is asked for."""
    launches: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(launch_sm90, "takes_maps", lambda value: value.element_size() == 2)
    monkeypatch.setattr(launch_sm90, "processors", lambda _: 132)

    def provide(name: str):
        return lambda *args, **named: launches.append((name, named))

    with library.override(provide):
        yield launches


def dense(rows: int, cols: int, transposed: bool, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.ones(1, 1, *((cols, rows) if transposed else (rows, cols)), dtype=dtype)


def blocks(dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.ones(1, LAYOUT.nnz, 64, 64, dtype=dtype)


@pytest.mark.parametrize(("trans_a", "trans_b", "trans_c"), list(product([False, True], repeat=3)))
def test_products_into_blocks_say_which_operands_are_transposed(asked, trans_a, trans_b, trans_c):
    m, n = reversed(LAYOUT.shape) if trans_c else LAYOUT.shape
    a, b = dense(m, 40, trans_a), dense(40, n, trans_b)
    block_sparse_matmul(a, b, LAYOUT, "sdd", trans_a=trans_a, trans_b=trans_b, trans_c=trans_c)
    ((name, named),) = asked
    left, right = (not trans_b, not trans_a) if trans_c else (trans_a, trans_b)
    assert name == "block_sparse_sdd_sm90"
    assert (named["TRANS_A"], named["TRANS_B"]) == (left, right)


@pytest.mark.parametrize(("trans_a", "trans_b"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("mode", ["dsd", "dds"])
def test_products_of_blocks_say_how_all_lie(asked, mode, trans_a, trans_b):
    rows, cols = LAYOUT.shape
    if mode == "dsd":
        a, b = blocks(), dense(rows if trans_a else cols, 72, trans_b)
        turned, mixed = trans_a, trans_b
    else:
        a, b = dense(72, cols if trans_b else rows, trans_a), blocks()
        turned, mixed = not trans_b, trans_a
    block_sparse_matmul(a, b, LAYOUT, mode, trans_a=trans_a, trans_b=trans_b)
    ((name, named),) = asked
    if mixed:
        assert name == "block_sparse_dsd", "one lies by rows, and the other by columns"
    else:
        assert name == "block_sparse_dsd_sm90"
        assert (named["TRANSPOSED"], named["COLUMNS"]) == (turned, mode == "dds")


def test_blocks_may_lie_by_columns(asked):
    block_sparse_matmul(blocks().mT, dense(LAYOUT.shape[1], 64, False), LAYOUT, "dsd")
    # in blocks of ones nothing else tells them apart: strides alone do
    ((name, named),) = asked
    assert (name, named["TRANSPOSED"], named["COLUMNS"]) == ("block_sparse_dsd_sm90", True, False)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(dense(256, 40, False, torch.float32), dense(40, 192, False, torch.float32), id="fp32"),
        pytest.param(dense(256, 0, False), dense(0, 192, False), id="no depth"),
        pytest.param(dense(256, 41, False), dense(41, 192, False), id="strides of no 16 bytes"),
        pytest.param(
            torch.ones(1, 1, 256 * 40 + 1, dtype=torch.bfloat16)[..., 1:].view(1, 1, 256, 40),
            dense(40, 192, False),
            id="unaligned",
        ),
        pytest.param(dense(1, 40, False).expand(1, 1, 256, 40), dense(40, 192, False), id="repeated"),
    ],
)
def test_what_maps_cannot_describe_goes_over_pointers(asked, a, b):
    block_sparse_matmul(a, b, LAYOUT, "sdd")
    assert [name for name, _ in asked] == ["block_sparse_sdd"]


def test_small_blocks_and_low_tiles_go_over_pointers(asked):
    small = BlockLayout(torch.ones(1, 8, 8, dtype=torch.bool), 16)
    block_sparse_matmul(dense(128, 64, False), dense(64, 128, False), small, "sdd")
    low = BlockLayout(torch.eye(32, dtype=torch.bool)[None].roll(1, 2), 64)
    with mock.patch("nojit.kernels.block_sparse.packing.choose_tile", return_value=(64, 128)):
        block_sparse_matmul(dense(2048, 64, False), dense(64, 2048, False), low, "sdd")
    assert [name for name, _ in asked] == ["block_sparse_sdd"] * 2


def test_a_cpu_takes_no_maps():
    assert not takes_maps(blocks())


def test_strides_of_single_rows_are_mended():
    value = torch.ones(3, 1, 5, 8, dtype=torch.bfloat16)[:, :, :1]
    found = described(value)
    assert found is not None
    assert found.strides == (40, 8, 8, 1)
    assert tuple(found.shape) == (3, 1, 1, 8)
