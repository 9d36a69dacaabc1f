"""Pairs of products for sm_90, step by step without a device: see `tests.kernels.gluon_stub` for what that shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm import b2b_gemm, functions, reference
from nojit.kernels.b2b_gemm import launch as launch_module
from nojit.kernels.manifest_kernels import by_position
from nojit.kernels.products.activations import ACTIVATIONS, FUNCTIONS
from nojit.runtime.values import FunctionRef
from torch import Tensor

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate
from tests.kernels.gluon_stub import load
from tests.kernels.test_bmm import laid_out

# with as many programs as `sm90.PROGRAMS`, of which each takes 64 rows in turn
SIZES = (
    (700, 64, 64, 64),
    (9, 32, 32, 32),
    (300, 16, 40, 24),
    (300, 128, 128, 128),
    (130, 72, 104, 8),
    (200, 128, 64, 32),
    (65, 104, 40, 24),
)
FILES = ("kernel_functions.py", "products/kernel_tiles.py", "b2b_gemm/kernel_sm90.py")
config = {"AHEAD": True}
asked: list[str] = []


def listed(x: Tensor, activation: int) -> Tensor:
    return FUNCTIONS[list(ACTIVATIONS)[activation]](x)


def width_of(length: int) -> int:
    return max(32, 1 << (length - 1).bit_length())


def provide(name: str) -> Callable[..., None]:
    kernel = load(f"{name}_kernel", *(sm90.KERNELS / path for path in FILES))

    def launch(*args: Any, FUNCTION: FunctionRef, **named: Any) -> None:  # noqa: N803 - a constexpr
        asked.append(name)
        args, named = by_position(name, args, named)
        assert FUNCTION == functions.LISTED_ROUNDED
        n_len, k_len, middle_len = args[5:8]
        widths = dict(zip(("BLOCK_N", "BLOCK_K", "BLOCK_L"), map(width_of, (n_len, k_len, middle_len)), strict=True))
        whole = width_of(middle_len) == middle_len
        kernel(sm90.PROGRAMS, *map(sm90.argument, args), FUNCTION=listed, WHOLE=whole, **named, **widths, **config)

    return launch


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have such a device."""
    sm90.pretend(monkeypatch, launch_module)
    asked.clear()
    with library.override(provide):
        yield


def operands(m: int, k: int, middle: int, n: int, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    """Make factors whose products are about one."""
    sides = ((m, k), (k, middle), (middle, n))
    return [(torch.randn(shape) * shape[0] ** (-0.5 * (at > 0))).to(dtype) for at, shape in enumerate(sides)]


def check(given: list[Tensor], **words: Any) -> None:
    exact = reference.b2b_gemm(*(value.double() for value in given), **words)
    assert_accurate(b2b_gemm(*given, **words), exact, reference.b2b_gemm(*given, **words))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("way", ["rows", "columns"])
def test_products(way, ahead, sizes, monkeypatch):
    monkeypatch.setitem(config, "AHEAD", ahead)
    a, b, c = operands(*sizes)
    check([a, laid_out(b, way), laid_out(c, way)], activation="gelu")
    assert set(asked) == {"b2b_gemm_sm90"}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation):
    check(operands(70, 40, 24, 48, torch.float16), activation=activation, alpha=-0.5)


def test_the_transpose_of_what_lies_by_columns():
    a, b, c = operands(24, 40, 48, 200)
    out = torch.full((200, 24), float("nan")).bfloat16().T
    assert b2b_gemm(a, b, laid_out(c, "columns"), assoc="right", activation="silu", out=out) is out
    words = {"assoc": "right", "activation": "silu"}
    exact = reference.b2b_gemm(*(value.double() for value in (a, b, c)), **words)
    assert_accurate(out, exact, reference.b2b_gemm(a, b, c, **words))
    assert asked == ["b2b_gemm_sm90"]


def test_what_does_not_lie_in_whole_lines_goes_over_pointers():
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        for place, way in product(range(3), ("gaps", "offset")):
            given = operands(64, 64, 64, 64)
            given[place] = laid_out(given[place], way)
            b2b_gemm(*given)
        a, b, c = operands(64, 64, 64, 64)
        b2b_gemm(laid_out(a, "columns"), b, c)
        b2b_gemm(a, b, laid_out(c, "columns"))
        b2b_gemm(a, b, c, out=torch.empty(64, 64).bfloat16().T)
        b2b_gemm(a, b, c, assoc="right")
        b2b_gemm(*operands(64, 64, 136, 64))
        b2b_gemm(*operands(64, 64, 64, 64, torch.float32))
        for place in range(1, 4):
            sizes = [64, 64, 64, 64]
            sizes[place] = 60
            b2b_gemm(*operands(*sizes))
        # rows whose distances within a tile take 64 bits
        b2b_gemm(a.new_empty(2, 8 * launch_module.FARTHEST + 8)[:, :64], b, c)
    assert names == ["b2b_gemm"] * 16


@pytest.mark.parametrize(("more", "kernel"), [(0, "b2b_gemm_sm90"), (1, "b2b_gemm")])
def test_rows_that_32_bits_do_not_count_go_over_pointers(more, kernel):
    a = torch.empty(launch_module.MOST_ROWS + more, 8, dtype=torch.bfloat16, device="meta")
    b, c = (torch.empty(8, 8, dtype=torch.bfloat16, device="meta") for _ in range(2))
    assert launch_module.prepare((a, b, c), None, ("none", 1.0, "left")).kernel == kernel
