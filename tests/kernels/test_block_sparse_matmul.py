from __future__ import annotations

from itertools import product
from unittest import mock

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul, packing, reference
from nojit.kernels.block_sparse.matmul import launch as products
from nojit.runtime.errors import ArgumentError
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tests.kernels.accuracy import assert_accurate
from tests.kernels.interpreter import Interpreter

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
MODES = ("sdd", "dsd", "dds")
# an empty row, an empty column, an empty head
LAYOUT = BlockLayout(
    torch.tensor([[[1, 0, 1], [0, 0, 0], [0, 0, 1], [1, 0, 1]], [[0, 0, 0]] * 4, [[0, 0, 1]] * 3 + [[1, 0, 0]]]), 16
)

pytestmark = pytest.mark.usefixtures("interpreted")


def operands(  # noqa: PLR0917 - a case has six facts
    layout: BlockLayout,
    mode: str,
    trans: tuple[bool, bool, bool],
    dtype: torch.dtype = torch.float32,
    free: int = 24,
    batch: int = 2,
) -> tuple[Tensor, Tensor]:
    """Make operands that fit; `free` is the size that the layout says nothing of."""
    trans_a, trans_b, trans_c = trans
    rows, cols = layout.shape

    def dense(height: int, width: int, transposed: bool) -> Tensor:
        sides = (width, height) if transposed else (height, width)
        return torch.randn(batch, layout.heads or 1, *sides).to(dtype)

    sparse = torch.randn(batch, layout.nnz, layout.block, layout.block).to(dtype)
    if mode == "sdd":
        m, n = (cols, rows) if trans_c else (rows, cols)
        return dense(m, free, trans_a), dense(free, n, trans_b)
    if mode == "dsd":
        return sparse, dense(rows if trans_a else cols, free, trans_b)
    return dense(free, cols if trans_b else rows, trans_a), sparse


def words(trans: tuple[bool, bool, bool]) -> dict[str, bool]:
    return dict(zip(("trans_a", "trans_b", "trans_c"), trans, strict=True))


def check(a: Tensor, b: Tensor, layout: BlockLayout, mode: str, **given: bool) -> Tensor:
    """Hold the result to the exact one; torch's own precision is that of its dense product of the same dtype."""
    result = block_sparse_matmul(a, b, layout, mode, **given)
    given.pop("deterministic", None)
    exact = reference.block_sparse_matmul(a.double(), b.double(), layout, mode, **given)
    assert_accurate(result, exact, reference.block_sparse_matmul(a, b, layout, mode, **given))
    return result


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("trans", list(product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_and_transpose(mode, trans, dtype):
    result = check(*operands(LAYOUT, mode, trans, dtype), LAYOUT, mode, **words(trans))
    assert result.is_contiguous()


@pytest.mark.parametrize("trans", list(product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_both_operands_and_of_either(mode, trans):
    a, b = (x.requires_grad_() for x in operands(LAYOUT, mode, trans))
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    out = block_sparse_matmul(a, b, LAYOUT, mode, **words(trans))
    grad = torch.randn(out.shape)
    da, db = torch.autograd.grad(out, (a, b), grad)
    exact = reference.block_sparse_matmul(*wide, LAYOUT, mode, **words(trans))
    for got, right in zip((da, db), torch.autograd.grad(exact, wide, grad.double()), strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=2e-5)
        assert got.stride() == a.stride() or got.stride() == b.stride()
    for one, other, right in ((a, b.detach(), da), (b, a.detach(), db)):
        pair = (one, other) if one is a else (other, one)
        (got,) = torch.autograd.grad(block_sparse_matmul(*pair, LAYOUT, mode, **words(trans)), one, grad)
        assert torch.equal(got, right)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_gradients(mode):
    layout = BlockLayout(torch.tensor([[[1, 0], [1, 1]]]), 16)
    a, b = (x.requires_grad_() for x in operands(layout, mode, (False,) * 3, free=16, batch=1))
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    results = []
    for run, pair in ((block_sparse_matmul, (a, b)), (reference.block_sparse_matmul, wide)):
        (da,) = torch.autograd.grad(run(*pair, layout, mode).square().sum(), pair[0], create_graph=True)
        results.append(torch.autograd.grad(da.square().sum(), pair))
    for got, right in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-3 * float(right.abs().max()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trans_c", [False, True])
def test_a_result_with_gradients_may_be_changed_in_place(mode, trans_c):
    trans = (False, False, trans_c)
    a, b = (value.requires_grad_() for value in operands(LAYOUT, mode, trans))
    apart = block_sparse_matmul(a, b, LAYOUT, mode, **words(trans)).relu()
    inside = block_sparse_matmul(a, b, LAYOUT, mode, **words(trans)).relu_()
    assert torch.equal(inside, apart)
    for one, other in zip(*(torch.autograd.grad(y.sum(), (a, b)) for y in (inside, apart)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_a_sum_is_an_expanded_one(mode):
    a, b = (x.requires_grad_() for x in operands(LAYOUT, mode, (False,) * 3))
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    block_sparse_matmul(a, b, LAYOUT, mode).sum().backward()
    reference.block_sparse_matmul(*wide, LAYOUT, mode).sum().backward()
    for got, right in zip((a, b), wide, strict=True):
        torch.testing.assert_close(got.grad.double(), right.grad, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("mode", MODES)
def test_every_block_size_and_several_tiles(mode, block, dtype):
    active = torch.rand(1, 160 // block + 1, 288 // block + 1, generator=torch.Generator().manual_seed(block)) < 0.7
    layout = BlockLayout(active, block)
    check(*operands(layout, mode, (False, True, False), dtype, free=70, batch=1), layout, mode, trans_b=True)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("free", [1, 64, 260])
@pytest.mark.parametrize("mode", ["dsd", "dds"])
def test_long_rows_are_cut_and_merged(mode, free, deterministic):
    active = torch.zeros(2, 9, 24, dtype=torch.bool)
    active[:, :, 0] = active[:, 3] = active[1, 8] = True
    # a strip is not cut before it is long: make these long ones
    with mock.patch.object(packing, "LONG_ROWS", 32):
        layout = BlockLayout(active if mode == "dsd" else active.mT, 16)
        sizes = layout.packing("cpu", torch.float32).sizes
    assert sizes.slots if mode == "dsd" else sizes.transposed_slots
    a, b = operands(layout, mode, (False,) * 3, free=free)
    check(a, b, layout, mode, deterministic=deterministic)
    # as if there were so much work that a long row holds up no one
    with mock.patch.object(products, "SHARE", 0):
        check(a, b, layout, mode, deterministic=deterministic)


def test_long_rows_are_cut_while_there_is_little_work():
    active = torch.eye(64, dtype=torch.bool)[None].repeat(8, 1, 1)
    active[:, 0] = True
    tables, sizes = BlockLayout(active, 64).packing("cpu", torch.bfloat16)

    def slots(batch: int, free: int) -> int:
        strips, cuts = products.strips_of(tables, sizes, False, (batch, 8, 4096, free), True)
        assert len(strips[0]) == 8 * 32 + cuts.slots - (8 if cuts.slots else 0)
        return cuts.slots

    assert slots(1, 64) == sizes.slots > 0
    assert slots(4, 4096) == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_layout_without_heads_serves_any_number(mode):
    layout = BlockLayout(torch.tensor([[1, 0, 1], [0, 0, 1]]), 16)
    for heads in (1, 3):
        own = layout.for_heads(heads)
        a, b = operands(own, mode, (False,) * 3)
        assert torch.equal(block_sparse_matmul(a, b, layout, mode), check(a, b, own, mode))


@pytest.mark.parametrize("mode", MODES)
def test_operands_get_leading_dimensions(mode):
    layout = BlockLayout(torch.tensor([[1, 0], [1, 1]]), 16)
    a, b = operands(layout.for_heads(1), mode, (False,) * 3, batch=1)
    expected = block_sparse_matmul(a, b, layout, mode)
    flat = [x[0] if x.shape[1] == layout.nnz and x.shape[2:] == (16, 16) else x[0, 0] for x in (a, b)]
    assert torch.equal(block_sparse_matmul(*flat, layout, mode), expected)
    assert expected.dim() == 4


@pytest.mark.parametrize("mode", MODES)
def test_nothing_active_and_sizes_of_zero(mode):
    empty = BlockLayout(torch.zeros(2, 3, 2, dtype=torch.bool), 16)
    result = check(*operands(empty, mode, (False,) * 3), empty, mode)
    assert (result == 0).all()
    for size in ({"free": 0}, {"batch": 0}):
        result = check(*operands(LAYOUT, mode, (False,) * 3, **size), LAYOUT, mode)
        assert mode != "sdd" or (result == 0).all()
    for shape in ((2, 0, 3), (2, 3, 0)):
        none = BlockLayout(torch.zeros(shape, dtype=torch.bool), 16)
        check(*operands(none, mode, (False,) * 3), none, mode)


ARRANGEMENTS = {
    "unaligned": lambda x: torch.cat([x.flatten()[:3], x.flatten()])[3:].view(x.shape),
    "columns first": lambda x: x.mT.contiguous().mT,
    "batch inside": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every other": lambda x: torch.stack([x, x.new_full(x.shape, float("nan"))], -1)[..., 0],
    "repeated": lambda x: x[:1, :, :1].expand_as(x),
    "one element": lambda x: x[:1, :1, :1, :1].expand_as(x),
}


@pytest.mark.parametrize("arrange", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
@pytest.mark.parametrize("mode", MODES)
def test_any_strides(mode, arrange):
    a, b = (arrange(x) for x in operands(LAYOUT, mode, (False,) * 3))
    check(a, b, LAYOUT, mode)


@pytest.mark.parametrize("trans_c", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_out_is_written_and_nothing_beside_it(mode, trans_c):
    a, b = operands(LAYOUT, mode, (False, False, trans_c))
    expected = block_sparse_matmul(a, b, LAYOUT, mode, trans_c=trans_c)
    wide = torch.full((*expected.shape[:3], expected.shape[3] + 5), float("nan"))
    out = wide[..., 2:-3]
    assert block_sparse_matmul(a, b, LAYOUT, mode, trans_c=trans_c, out=out) is out
    assert torch.equal(out, expected)
    assert wide[..., :2].isnan().all()
    assert wide[..., -3:].isnan().all()


@pytest.fixture
def tf32():
    """Let torch multiply fp32 by TF32 until the test ends."""
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def precisions(*dtypes: torch.dtype) -> list[str]:
    """Multiply operands of each dtype; return the precisions that launches ask for."""
    asked = []
    with library.override(lambda _: lambda *args, **named: asked.append(named["PRECISION"])):
        for dtype in dtypes:
            block_sparse_matmul(*operands(LAYOUT, "dsd", (False,) * 3, dtype), LAYOUT, "dsd")
    return asked


def test_fp32_is_multiplied_as_such():
    assert precisions(*FLOATS) == ["ieee"] * 3


@pytest.mark.usefixtures("tf32")
def test_unless_torchs_switch_allows_tf32():
    assert precisions(*FLOATS) == ["ieee", "ieee", "tf32"]


REFUSED = [
    ({"mode": "ddd"}, ValueError, "mode: expected 'sdd' or 'dsd' or 'dds', got 'ddd'"),
    ({"layout": torch.ones(1)}, ArgumentError, "layout: expected a BlockLayout, got Tensor"),
    ({"a": torch.ones(1, 1, 1, 64, 8)}, ValueError, "a: expected at most 4 dimensions"),
    ({"a": torch.ones(2, 3, 64, 8, dtype=torch.int32)}, ArgumentError, "a: expected torch.float16 or"),
    ({"b": torch.ones(2, 3, 8, 48).half()}, ArgumentError, "b: expected torch.float32 as a has, got torch.float16"),
    (
        {"a": torch.ones(2, 3, 60, 8)},
        ValueError,
        r"a: expected shape \(2, 3, 64, 8\) \[Z, H, M, K\], got \(2, 3, 60, 8\)",
    ),
    (
        {"b": torch.ones(2, 3, 9, 48)},
        ValueError,
        r"b: expected shape \(2, 3, 8, 48\) \[Z, H, K, N\], got \(2, 3, 9, 48\)",
    ),
    ({"b": torch.ones(1, 3, 8, 48)}, ValueError, r"b: expected shape \(2, 3, 8, 48\) \[Z, H, K, N\]"),
    (
        {"a": torch.ones(2, 4, 64, 8)},
        ValueError,
        r"a: expected 3 heads, as the layout has, in dimension 1 \[Z, H, ..\], got 4",
    ),
    (
        {"mode": "dsd", "a": torch.ones(2, LAYOUT.nnz, 16, 16), "b": torch.ones(48, 8)},
        ValueError,
        r"b: expected 3 heads, as the layout has, in dimension 1 \[Z, H, ..\], got 1",
    ),
    ({"trans_b": True}, ValueError, r"b: expected shape \(2, 3, 48, 8\) \[Z, H, N, K\], got \(2, 3, 8, 48\)"),
    ({"trans_c": True}, ValueError, r"a: expected shape \(2, 3, 48, 8\) \[Z, H, M, K\]"),
    ({"mode": "dsd"}, ValueError, rf"a: expected shape \(2, {LAYOUT.nnz}, 16, 16\) \[Z, nnz, block, block\]"),
    ({"mode": "dds", "a": torch.ones(2, 3, 8, 64)}, ValueError, rf"b: expected shape \(2, {LAYOUT.nnz}, 16, 16\)"),
    ({"out": torch.ones(2, 3, 16, 16)}, ValueError, r"out: expected shape \(2, 9, 16, 16\) \[Z, nnz, block, block\]"),
    ({"out": torch.ones(2, 9, 16, 16).half()}, ArgumentError, "out: expected torch.float32 as a has"),
    ({"out": torch.ones(2, 9, 16, 1).expand(2, 9, 16, 16)}, ValueError, "out: expected a tensor without repeated"),
    ({"out": torch.ones(2, 9, 16, 16, requires_grad=True)}, ValueError, "out: expected operands and an out that"),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED)
def test_refusals_name_what_is_wrong(given, error, message):
    a, b = torch.ones(2, 3, 64, 8), torch.ones(2, 3, 8, 48)
    with pytest.raises(error, match=message):
        block_sparse_matmul(**{"a": a, "b": b, "layout": LAYOUT, "mode": "sdd", **given})


def test_operators_are_sound():
    """On small calls: opcheck repeats them many times."""
    layout = BlockLayout(torch.tensor([[[1, 0, 1]]]), 16)
    tables, sizes = layout.packing("cpu", torch.float32)
    tables = list(tables)
    ops = torch.ops.nojit
    a, b, d = (torch.randn(1, 1, *size, requires_grad=True) for size in ((16, 8), (8, 48), (48, 5)))
    s = torch.randn(1, 2, 16, 16, requires_grad=True)
    torch.library.opcheck(ops.block_sparse_sdd.default, (a, b, tables, sizes, True))
    torch.library.opcheck(ops.block_sparse_dsd.default, (s, d, tables, sizes, False, True, True))
    a, b, s, d = (x.detach() for x in (a, b, s, d))
    torch.library.opcheck(ops.block_sparse_sdd_out.default, (a, b, tables, sizes, torch.empty_like(s)))
    out = torch.empty(1, 1, 16, 5)
    torch.library.opcheck(ops.block_sparse_dsd_out.default, (s, d, tables, sizes, False, True, out))


@pytest.mark.parametrize("mode", MODES)
def test_traces_without_a_graph_break(mode):
    layout = BlockLayout(LAYOUT.active, 16)
    a, b = operands(layout, mode, (False, True, True))
    options = {"trans_b": True, "trans_c": True}
    expected = block_sparse_matmul(a, b, layout, mode, **options)
    traced = torch.compile(
        lambda a, b: block_sparse_matmul(a, b, layout, mode, **options), backend="eager", fullgraph=True
    )
    assert torch.equal(traced(a, b), expected)


def test_calls_of_equal_facts_are_checked_once():
    layout = BlockLayout(LAYOUT.active, 16)
    a, b = operands(layout, "dsd", (False,) * 3)
    for pair in ((a, b), (a + 1, b - 1), (a, ARRANGEMENTS["unaligned"](b)), (a, ARRANGEMENTS["columns first"](b))):
        check(*pair, layout, "dsd")
    assert len(layout.products) == 3
    with pytest.raises(ValueError, match="b: expected shape"):
        block_sparse_matmul(a, b[:, :, 1:], layout, "dsd")
    assert len(layout.products) == 3


def test_a_layout_forgets_calls_before_they_are_too_many(monkeypatch):
    monkeypatch.setattr("nojit.kernels.block_sparse.layout.MOST_REMEMBERED", 8)
    layout = BlockLayout(torch.ones(1, 1, 1, dtype=torch.bool), 16)
    for free in range(1, 20):
        block_sparse_matmul(*operands(layout, "sdd", (False,) * 3, free=free, batch=1), layout, "sdd")
        assert len(layout.products) == min(free, 8)


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize(
    ("mode", "trans"), [("sdd", (False, True, False)), ("dsd", (True, False, True)), ("dds", (False, False, False))]
)
def test_out_that_overlaps_an_operand(mode: str, trans: tuple[bool, bool, bool], operand: str) -> None:
    layout = BlockLayout(torch.ones(2, 2, dtype=torch.bool), 16)
    a, b = operands(layout.for_heads(2), mode, trans, free=32)
    expected = block_sparse_matmul(a, b, layout, mode, **words(trans))
    size = max(a.numel(), b.numel(), expected.numel())
    room = torch.zeros(2 * size + 8)
    given = {"a": a, "b": b}
    shared = given[operand]
    given[operand] = room[: shared.numel()].view(shared.shape).copy_(shared)
    beside = room[shared.numel() :][: expected.numel()].view(expected.shape)
    over = room[shared.numel() - 1 :][: expected.numel()].view(expected.shape)
    result = block_sparse_matmul(*given.values(), layout, mode, **words(trans), out=beside)
    assert torch.equal(result, expected)
    with pytest.raises(ValueError, match=f"out: expected memory of its own, .* got an overlap with {operand}"):
        block_sparse_matmul(*given.values(), layout, mode, **words(trans), out=over)


def test_out_between_the_rows_of_an_operand() -> None:
    layout = BlockLayout(torch.ones(1, 1, dtype=torch.bool), 16)
    room = torch.randn(2, 2, 16, 3, 16)
    a, out, _ = room.unbind(3)
    blocks = torch.randn(2, 2, 16, 16)
    expected = block_sparse_matmul(a, blocks, layout, "dds")
    assert torch.equal(block_sparse_matmul(a, blocks, layout, "dds", out=out), expected)
    late = room.flatten()[out.storage_offset() - 1 :].as_strided(out.shape, out.stride())
    with pytest.raises(ValueError, match="an overlap with a"):
        block_sparse_matmul(a, blocks, layout, "dds", out=late)


@pytest.mark.parametrize("trans", [(False, False, False), (True, True, True)])
@pytest.mark.parametrize("mode", MODES)
def test_vmap_maps_over_the_batch(interpreted: Interpreter, mode: str, trans: tuple[bool, bool, bool]) -> None:
    a, b = operands(LAYOUT, mode, trans, batch=6)

    def call(a: Tensor, b: Tensor) -> Tensor:
        return block_sparse_matmul(a, b, LAYOUT, mode, **words(trans))

    many_a, many_b = a.unflatten(0, (3, 2)), b.unflatten(0, (3, 2))
    together = call(a, b).unflatten(0, (3, 2))
    launched: list[str] = []
    with library.override(lambda name: launched.append(name) or interpreted(name)):
        assert torch.equal(torch.vmap(call)(many_a, many_b), together)
    assert len(set(launched)) == len(launched) > 0
    alone = torch.stack([call(one, b[:2]) for one in many_a])
    assert torch.equal(torch.vmap(call, in_dims=(2, None))(many_a.movedim(0, 2), b[:2]), alone)
    assert torch.vmap(call)(many_a[:0], many_b[:0]).shape == together[:0].shape
    twice = torch.vmap(torch.vmap(call))(a.unflatten(0, (3, 2, 1)), b.unflatten(0, (3, 2, 1)))
    assert torch.equal(twice.flatten(1, 2), together)


def test_what_vmap_gives_has_gradients() -> None:
    a, b = (value.requires_grad_() for value in operands(LAYOUT, "sdd", (False,) * 3, batch=6))
    split = a.unflatten(0, (3, 2)), b.unflatten(0, (3, 2))
    result = torch.vmap(lambda a, b: block_sparse_matmul(a, b, LAYOUT, "sdd"))(*split)
    grad = torch.randn_like(result)
    found = torch.autograd.grad(result, (a, b), grad)
    expected = torch.autograd.grad(block_sparse_matmul(a, b, LAYOUT, "sdd"), (a, b), grad.flatten(0, 1))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_fake_tensors_have_fake_products(mode: str) -> None:
    trans = (False, True, True)
    a, b = (value.requires_grad_() for value in operands(LAYOUT, mode, trans))
    result = block_sparse_matmul(a, b, LAYOUT, mode, **words(trans))
    layout = BlockLayout(LAYOUT.active, 16)
    with FakeTensorMode() as fakes:
        fake_a, fake_b = fakes.from_tensor(a), fakes.from_tensor(b)
        found = block_sparse_matmul(fake_a, fake_b, layout, mode, **words(trans))
        assert (found.shape, found.stride()) == (result.shape, result.stride())
        found.sum().backward()
        assert isinstance(fake_a.grad, FakeTensor)
        with torch.no_grad():
            out = torch.empty_like(found)
            assert block_sparse_matmul(fake_a, fake_b, layout, mode, **words(trans), out=out) is out
    # what the mode saw is not left behind
    assert torch.equal(block_sparse_matmul(a, b, layout, mode, **words(trans)), result)
    outside = block_sparse_matmul(fake_a, fake_b, layout, mode, **words(trans))
    assert isinstance(outside, FakeTensor)
