"""uint4x2_mixed_mm through Triton's interpreter: shapes, strides, groups, kinds of bytes, gradients, mistakes."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.mixed_mm import reference, splits, uint4x2_mixed_mm
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate
from tests.kernels.test_bmm import WAYS, laid_out

FLOATS = (torch.float16, torch.bfloat16)
BYTES = (torch.uint8, torch.int32, torch.int64)

pytestmark = pytest.mark.usefixtures("interpreted")


def operands(m: int, n: int, k: int, dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor]:
    return torch.randn(m, k).to(dtype), torch.randint(0, 256, (k // 2, n), dtype=torch.uint8)


def groups(k: int, n: int, size: int | None, dtype: torch.dtype, *, zeros: bool) -> dict[str, Any]:
    """Make scales, and zeros that are no whole numbers."""
    count = 1 if size is None else -(-k // size)
    words: dict[str, Any] = {"scales": (torch.rand(count, n) + 0.5).to(dtype), "group_size": size}
    return words | ({"zeros": (torch.rand(count, n) * 15).to(dtype)} if zeros else {})


def check(a: Tensor, b: Tensor, **words: Any) -> None:
    wide = {name: value.double() if isinstance(value, Tensor) else value for name, value in words.items()}
    exact = reference.uint4x2_mixed_mm(a.double(), b, **wide)
    assert_accurate(uint4x2_mixed_mm(a, b, **words), exact, reference.uint4x2_mixed_mm(a, b, **words))


def test_every_byte_stands_for_its_nibbles():
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 256)
    low, high = torch.arange(256) % 16 - 8, torch.arange(256) // 16 - 8
    for dtype in FLOATS:
        result = uint4x2_mixed_mm(torch.eye(2, dtype=dtype), every)
        assert torch.equal(result.int(), torch.stack((low, high)).int())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("way_a", "way_b"), list(product(WAYS, WAYS)))
def test_any_strides(way_a, way_b, dtype):
    a, b = operands(33, 40, 70, dtype)
    check(laid_out(a, way_a), laid_out(b, way_b))


@pytest.mark.parametrize("seed", range(8))
def test_any_sizes(seed):
    rng = random.Random(seed)
    m, n, half = (rng.choice((1, 3, 16, 17, 32, 33, 65)) for _ in range(3))
    a, b = operands(m, n, 2 * half, rng.choice(FLOATS))
    check(laid_out(a, rng.choice(WAYS)), laid_out(b, rng.choice(WAYS)))


@pytest.mark.parametrize("kind", BYTES, ids=str)
def test_bytes_may_be_held_in_larger_integers(kind):
    a, b = operands(5, 20, 66)
    # what is above a byte counts for nothing
    other = b.to(kind) if kind == torch.uint8 else b.to(kind) - 256 * torch.randint(-3, 4, b.shape, dtype=kind)
    assert torch.equal(uint4x2_mixed_mm(a, other), uint4x2_mixed_mm(a, b))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("size", [2, 6, 32, 100, 128, 1000, None])
def test_groups(size, zeros, dtype):
    a, b = operands(9, 24, 270, dtype)
    words = groups(270, 24, size, dtype, zeros=zeros)
    check(a, b, **words)
    moved = {name: laid_out(value, "columns") if isinstance(value, Tensor) else value for name, value in words.items()}
    assert torch.equal(uint4x2_mixed_mm(a, b, **moved), uint4x2_mixed_mm(a, b, **words))


def test_a_scale_that_is_not_finite_spoils_its_own_columns_only():
    a, b = operands(3, 8, 70)
    words = groups(70, 8, 32, torch.float16, zeros=False)
    words["scales"][2, 3] = float("inf")
    result = uint4x2_mixed_mm(a, b, **words)
    assert not result[:, 3].isfinite().any()
    assert result[:, [0, 1, 2, 4, 5, 6, 7]].isfinite().all()


def test_deep_products_are_cut_into_parts():
    a, b = operands(3, 33, 2100)
    names: list[str] = []
    known = library.CURRENT.source.provider

    def note(name: str) -> Any:
        names.append(name)
        return known(name)

    with library.override(note):
        check(a, b)
    assert names == ["mixed_mm", "bmm_merge"]


@pytest.mark.parametrize("sizes", [(3, 4, 0), (0, 4, 6), (3, 0, 6)], ids=str)
def test_nothing_to_multiply(sizes):
    m, n, _ = sizes
    assert torch.equal(uint4x2_mixed_mm(*operands(*sizes)), torch.zeros(m, n).half()[:m, :n]) or sizes[2]


def test_out_may_lie_any_way():
    a, b = operands(20, 24, 16)
    right = uint4x2_mixed_mm(a, b)
    for way in WAYS:
        out = laid_out(torch.full((20, 24), float("nan")).half(), way)
        assert uint4x2_mixed_mm(a, b, out=out) is out
        assert torch.equal(out, right)


def test_calls_are_remembered_by_all_that_they_depend_on():
    a, b = operands(5, 16, 64)
    words = groups(64, 16, 32, torch.float16, zeros=True)
    one = {"scales": words["scales"][:1], "group_size": 64}
    calls = (
        lambda: uint4x2_mixed_mm(a, b),
        lambda: uint4x2_mixed_mm(a, b, **words),
        lambda: uint4x2_mixed_mm(a, b, scales=words["scales"], group_size=32),
        lambda: uint4x2_mixed_mm(a, b, **one),
        lambda: uint4x2_mixed_mm(a, b, scales=words["scales"][:1]),
        lambda: uint4x2_mixed_mm(a, b.int()),
    )
    first = [call() for call in calls]
    for call, result in zip(calls, first, strict=True):
        again = call()
        assert again.data_ptr() != result.data_ptr()
        assert torch.equal(again, result)
    assert torch.equal(first[3], first[4])
    assert torch.equal(first[0], first[5])
    with pytest.raises(ValueError, match="scales: expected shape"):
        uint4x2_mixed_mm(a, b, scales=words["scales"], group_size=64)


@pytest.mark.parametrize("grouped", [False, True])
def test_gradient(grouped):
    a, b = operands(5, 16, 64)
    words = groups(64, 16, 32, torch.float16, zeros=True) if grouped else {}
    weights = reference.unpack(b, torch.float16, *(words.get(name) for name in ("scales", "zeros", "group_size")))
    a.requires_grad_()
    for grad in (torch.randn(5, 16).half(), torch.ones(1).half().expand(5, 16)):
        (got,) = torch.autograd.grad(uint4x2_mixed_mm(a, b, **words), a, grad)
        assert_accurate(got, grad.double() @ weights.double().T, grad @ weights.T, 3.0)


@pytest.mark.parametrize("gradient", [False, True])
def test_the_operator_is_torchs_kind(gradient):
    a, b = operands(5, 16, 64)
    a.requires_grad_(gradient)
    scales = torch.ones(2, 16).half()
    for given in ((a, b, None, None, None), (a, b, scales, scales, 32)):
        torch.library.opcheck(torch.ops.nojit.uint4x2_mixed_mm.default, given)
        if not gradient:
            torch.library.opcheck(torch.ops.nojit.uint4x2_mixed_mm_out.default, (*given, torch.empty(5, 16).half()))

    def several(a: Tensor, b: Tensor, scales: Tensor) -> Tensor:
        return uint4x2_mixed_mm(a, b, scales=scales, group_size=32) + uint4x2_mixed_mm(a, b)

    traced = torch.compile(several, backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(a, b, scales), several(a, b, scales))


def test_autocast_casts_what_is_not_packed():
    a, b = operands(5, 16, 64)
    scales = torch.rand(1, 16)
    with torch.autocast("cpu", torch.bfloat16):
        result = uint4x2_mixed_mm(a.float(), b, scales=scales)
    assert torch.equal(result, uint4x2_mixed_mm(a.bfloat16(), b, scales=scales.bfloat16()))


def test_parts_are_as_many_as_keep_a_device_busy():
    assert splits.parts_of(256, 8192, 132) == 1
    assert splits.parts_of(67, 8192, 132) == 1
    assert splits.parts_of(32, 8192, 132) == 4
    assert splits.parts_of(32, 2048, 132) == 2
    assert splits.parts_of(1, 1 << 20, 132) == 16
    assert splits.parts_of(1, 512, 132) == 1
    assert splits.parts_of(0, 512, 132) == 1


@pytest.mark.parametrize("group_size", [1 << 31, 1 << 40])
def test_a_group_may_be_deeper_than_any_matrix(group_size):
    a, b = operands(5, 16, 64)
    scales = torch.rand(1, 16).half()
    assert torch.equal(
        uint4x2_mixed_mm(a, b, scales=scales, group_size=group_size), uint4x2_mixed_mm(a, b, scales=scales)
    )


def test_weights_on_another_device_are_told_from_tensors_that_no_kernel_takes(monkeypatch):
    a, b = operands(5, 16, 64)
    monkeypatch.setattr("nojit.kernels.library.devices", lambda: {"cuda"})
    with pytest.raises(ArgumentError, match="b: expected a tensor on meta as a is, got cpu"):
        uint4x2_mixed_mm(a.to("meta"), b)


def test_mistakes_are_named():
    a, b = operands(5, 16, 64)
    scales = torch.ones(2, 16).half()
    for call, error, words in (
        (lambda: uint4x2_mixed_mm(a[0], b), ValueError, "a: expected 2 dimensions"),
        (lambda: uint4x2_mixed_mm(a, b[0]), ValueError, "b: expected 2 dimensions"),
        (lambda: uint4x2_mixed_mm(a[:, 1:], b), ValueError, "a: expected an even number of columns"),
        (lambda: uint4x2_mixed_mm(a, b[1:]), ValueError, "b: expected shape .32, 16."),
        (lambda: uint4x2_mixed_mm(a.float(), b), ArgumentError, "a: expected torch.float16 or torch.bfloat16"),
        (lambda: uint4x2_mixed_mm(a, b.char()), ArgumentError, "b: expected torch.uint8 or torch.int32"),
        (lambda: uint4x2_mixed_mm(a, None), ArgumentError, "b: expected a tensor"),
        (lambda: uint4x2_mixed_mm(a, b, zeros=scales), ValueError, "zeros: expected None without scales"),
        (lambda: uint4x2_mixed_mm(a, b, group_size=32), ValueError, "group_size: expected None without scales"),
        (lambda: uint4x2_mixed_mm(a, b, scales=scales), ValueError, "scales: expected shape .1, 16."),
        (
            lambda: uint4x2_mixed_mm(a, b, scales=scales, group_size=0),
            ValueError,
            "group_size: expected a positive even",
        ),
        (
            lambda: uint4x2_mixed_mm(a, b, scales=scales, group_size=33),
            ValueError,
            "group_size: expected a positive even",
        ),
        (lambda: uint4x2_mixed_mm(a, b, scales=scales, group_size=32.0), ArgumentError, "group_size: expected an int"),
        (lambda: uint4x2_mixed_mm(a, b, scales=scales.float(), group_size=32), ArgumentError, "scales: expected torch"),
        (
            lambda: uint4x2_mixed_mm(a, b, scales=scales, zeros=scales[:1], group_size=32),
            ValueError,
            "zeros: expected shape",
        ),
        (lambda: uint4x2_mixed_mm(a, b, out=a), ValueError, "out: expected shape"),
        (lambda: uint4x2_mixed_mm(a, b, out=torch.empty(5, 16)), ArgumentError, "out: expected torch.float16"),
        (lambda: uint4x2_mixed_mm(a, b, out=a[:, :16]), ValueError, "out: expected memory of its own"),
        (
            lambda: uint4x2_mixed_mm(a[:1], b[:, :2], out=b.view(torch.float16)[:1, :2]),
            ValueError,
            "out: expected memory that does not overlap b",
        ),
        (
            lambda: uint4x2_mixed_mm(a, b, scales=scales.clone().requires_grad_(), group_size=32),
            ValueError,
            "scales: expected a tensor that requires no grad",
        ),
        (
            lambda: uint4x2_mixed_mm(a.clone().requires_grad_(), b, out=torch.empty(5, 16).half()),
            ValueError,
            "out: expected operands and an out that require no grad",
        ),
    ):
        with pytest.raises(error, match=words):
            call()
