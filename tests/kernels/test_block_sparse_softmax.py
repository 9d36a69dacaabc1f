from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.block_sparse import BlockLayout, block_sparse_softmax, reference, softmax_bwd
from nojit.kernels.block_sparse.problems import PROBLEMS
from nojit.kernels.block_sparse.softmax import launch as softmax_launch
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
LAYOUT = BlockLayout(
    torch.tensor([[[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], [[0, 0, 0, 0]] * 2 + [[1, 1, 1, 1]]]), 16
)

pytestmark = pytest.mark.usefixtures("interpreted")


def make(layout: BlockLayout, batch: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(batch, layout.nnz, layout.block, layout.block) * 4).to(dtype)


def make_terms(layout: BlockLayout, batch: int, dtype: torch.dtype, kpm_mode: str, am_mode: str) -> dict[str, Any]:
    rows, cols = layout.shape
    kpm = torch.randn(batch, cols) if kpm_mode == "add" else (torch.rand(batch, cols) > 0.3) * 2.0
    am = torch.randn(rows, cols) if am_mode == "add" else (torch.rand(rows, cols) > 0.3) * -1.0
    return {
        "relative_position": torch.randn(batch, layout.heads or 1, rows, cols).to(dtype),
        "key_padding_mask": kpm.to(dtype),
        "key_padding_mask_mode": kpm_mode,
        "attention_mask": am.to(dtype),
        "attention_mask_mode": am_mode,
    }


def widen(terms: dict[str, Any]) -> dict[str, Any]:
    return {name: value.double() if isinstance(value, Tensor) else value for name, value in terms.items()}


def check(x: Tensor, layout: BlockLayout, **terms: Any) -> Tensor:
    """Hold the result to the exact one; torch's own precision is that of its dense softmax of the same dtype."""
    result = block_sparse_softmax(x, layout, **terms)
    exact = reference.block_sparse_softmax(x.double(), layout, **widen(terms))
    assert_accurate(result, exact, reference.block_sparse_softmax(x, layout, **terms))
    return result


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS["test"], ids=lambda problem: problem.name)
def test_is_as_accurate_as_torch(problem, dtype):
    layout = problem.layout()
    result = check(make(layout, problem.batch, dtype), layout, scale=0.6)
    assert result.is_contiguous()


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("kpm_mode", "am_mode"), list(product(["add", "mul"], repeat=2)))
def test_terms_in_both_modes(kpm_mode, am_mode, is_causal):
    terms = make_terms(LAYOUT, 2, torch.float32, kpm_mode, am_mode)
    check(make(LAYOUT, 2), LAYOUT, scale=0.3, is_causal=is_causal, **terms)


@pytest.mark.parametrize("present", list(product([False, True], repeat=3)))
def test_each_term_alone_and_together(present):
    terms = make_terms(LAYOUT, 2, torch.bfloat16, "mul", "add")
    names = [
        name
        for name, here in zip(("relative_position", "key_padding_mask", "attention_mask"), present, strict=True)
        if here
    ]
    kept = {name: value for name, value in terms.items() if name.removesuffix("_mode") in names}
    check(make(LAYOUT, 2, torch.bfloat16), LAYOUT, **kept)


def test_long_rows_with_every_term_take_two_passes():
    layout = BlockLayout(torch.rand(1, 1, 260) < 0.99, 16)
    check(make(layout, 1), layout, is_causal=False, scale=0.2, **make_terms(layout, 1, torch.float32, "mul", "mul"))


@pytest.mark.parametrize("terms", [False, True])
def test_long_rows_of_large_tensors_have_a_launch_of_their_own(monkeypatch, interpreter, terms):
    monkeypatch.setattr(softmax_launch, "APART_BYTES", 0)
    launched = []
    active = torch.eye(6, dtype=torch.int64)
    active[2], active[4] = 1, 0
    layout = BlockLayout(active[None].expand(2, 6, 6), 16)
    words = make_terms(layout, 3, torch.float32, "add", "mul") if terms else {}
    x = make(layout, 3).requires_grad_()

    def provide(name):
        return lambda *args, **named: launched.append(name) or interpreter(name)(*args, **named)

    with library.override(provide):
        for _ in range(2):
            check(x.detach(), layout, **words)
        block_sparse_softmax(x, layout, **words).backward(x.detach())
    wide = x.detach().double().requires_grad_()
    reference.block_sparse_softmax(wide, layout, **widen(words)).backward(x.detach().double())
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=1e-5, atol=1e-5)
    assert launched == ["block_sparse_softmax_fwd"] * 6 + ["block_sparse_softmax_bwd"] * 2


@pytest.mark.parametrize(
    ("chunks", "tiles", "blocks"), [(16, 1, 16), (32, 1, 16), (16, 4, 34), (16, 4, 40), (16, 4, 64)]
)
def test_every_config_is_right(chunks, tiles, blocks, interpreter):
    """Rows that a config may be asked for: of 256 columns, and of 544 to 1,024."""
    layout = BlockLayout(torch.tensor([[[1] * blocks, [0, 1] * (blocks // 2), [0] * blocks]]), 16)
    x, terms = make(layout, 1).requires_grad_(), make_terms(layout, 1, torch.float32, "add", "mul")
    wide = x.detach().double().requires_grad_()
    grad = torch.randn(x.shape)
    with library.override(lambda name: partial(interpreter(name), CHUNKS=chunks, TILES=tiles)):
        check(x.detach(), layout, **terms)
        block_sparse_softmax(x, layout, **terms).backward(grad)
    reference.block_sparse_softmax(wide, layout, **widen(terms)).backward(grad.double())
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("grad", [False, True])
def test_an_int_for_the_scale_or_the_flag_is_taken_at_its_value(grad):
    x = make(LAYOUT, 1)
    expected = block_sparse_softmax(x, LAYOUT, scale=2.0, is_causal=True)
    assert torch.equal(block_sparse_softmax(x.requires_grad_(grad), LAYOUT, scale=2, is_causal=1), expected)


def test_fully_masked_rows_give_zero():
    x = make(LAYOUT, 1)
    mask = torch.zeros(LAYOUT.shape[0], LAYOUT.shape[1])
    y = block_sparse_softmax(x, LAYOUT, attention_mask=mask, attention_mask_mode="mul")
    assert (y == 0).all()
    dx = softmax_bwd(y, torch.randn_like(y), 1.0, LAYOUT)
    assert (dx == 0).all()


def test_bool_masks_say_where_to_look():
    x = make(LAYOUT, 2, torch.float16)
    kpm, am = torch.rand(2, LAYOUT.shape[1]) > 0.3, torch.rand(LAYOUT.shape) > 0.3
    modes = {"key_padding_mask_mode": "mul", "attention_mask_mode": "mul"}
    got = block_sparse_softmax(x, LAYOUT, key_padding_mask=kpm, attention_mask=am, **modes)
    expected = block_sparse_softmax(x, LAYOUT, key_padding_mask=kpm.half() * 5, attention_mask=-am.half(), **modes)
    assert torch.equal(got, expected)


def test_the_bias_broadcasts():
    x, bias = make(LAYOUT, 2), torch.randn(1, 2, LAYOUT.shape[0], 1)
    check(x, LAYOUT, relative_position=bias)
    full = bias.expand(2, 2, *LAYOUT.shape).contiguous()
    assert torch.equal(
        block_sparse_softmax(x, LAYOUT, relative_position=bias), block_sparse_softmax(x, LAYOUT, relative_position=full)
    )


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: torch.cat([x.flatten()[:3], x.flatten()])[3:].view(x.shape), id="unaligned"),
        pytest.param(lambda x: x.mT.contiguous().mT, id="columns first"),
        pytest.param(lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), id="batch inside"),
        pytest.param(lambda x: x[:, :1, :1, :1].expand_as(x), id="repeated"),
        pytest.param(lambda x: torch.stack([x, torch.full_like(x, torch.nan)], -1)[..., 0], id="between NaNs"),
    ],
)
def test_any_strides(arrange):
    x, dy = arrange(make(LAYOUT, 2)), arrange(make(LAYOUT, 2))
    y = check(x, LAYOUT)
    dx = softmax_bwd(y, dy, 0.7, LAYOUT)
    assert torch.equal(dx, softmax_bwd(y, dy.contiguous(), 0.7, LAYOUT))


def test_a_shared_layout_takes_its_heads_from_the_operand():
    shared = BlockLayout(LAYOUT.active[0], 16)
    repeated = shared.for_heads(3)
    x = make(repeated, 2)
    assert torch.equal(block_sparse_softmax(x, shared), block_sparse_softmax(x, repeated))


def test_in_place_writes_over_its_operand():
    x = make(LAYOUT, 2)
    expected = block_sparse_softmax(x, LAYOUT, is_causal=True)
    assert block_sparse_softmax(x, LAYOUT, is_causal=True, inplace=True) is x
    assert torch.equal(x, expected)


def test_in_place_writes_long_rows_and_nothing_else():
    layout = BlockLayout(torch.ones(1, 1, 260, dtype=torch.int32), 16)
    memory = torch.full((1, 260, 16, 32), float("nan"))
    x = memory[..., ::2]
    x.copy_(make(layout, 1))
    expected = block_sparse_softmax(x, layout)
    block_sparse_softmax(x, layout, inplace=True)
    assert torch.equal(x, expected)
    assert torch.isnan(memory[..., 1::2]).all()


def test_in_place_refuses_repeated_elements():
    x = torch.zeros(1, 1, 16, 16).expand(2, LAYOUT.nnz, 16, 16)
    with pytest.raises(ValueError, match="x: expected a tensor without repeated elements"):
        block_sparse_softmax(x, LAYOUT, inplace=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_gradients_are_as_accurate_as_torchs(dtype, inplace):
    values, grad = make(LAYOUT, 2, dtype), torch.randn(2, LAYOUT.nnz, 16, 16).to(dtype)
    terms = make_terms(LAYOUT, 2, dtype, "mul", "add")
    found = []
    for operator, kind in (
        (block_sparse_softmax, dtype),
        (reference.block_sparse_softmax, torch.float64),
        (reference.block_sparse_softmax, dtype),
    ):
        x = values.to(kind, copy=True).requires_grad_()
        own = {name: value.to(kind) if isinstance(value, Tensor) else value for name, value in terms.items()}
        bias = own["relative_position"].clone().requires_grad_()
        own["relative_position"] = bias
        if operator is block_sparse_softmax and inplace:
            operator(x * 1, LAYOUT, scale=0.3, inplace=True, **own).backward(grad.to(kind))
        else:
            operator(x, LAYOUT, scale=0.3, **own).backward(grad.to(kind))
        found.append((x.grad, bias.grad))
    for ours, exact, torchs in zip(*found, strict=True):
        assert_accurate(ours, exact, torchs, factor=3.0)


def test_the_gradient_of_a_sum_is_expanded_and_not_written_to():
    x = make(LAYOUT, 2).requires_grad_()
    y = block_sparse_softmax(x, LAYOUT)
    (y * y.detach()).sum().backward()
    weights = y.detach()
    exact = reference.block_sparse_softmax(x.detach().double().requires_grad_(), LAYOUT)
    expected = exact * (
        weights.double()
        - reference.to_sparse(
            (reference.to_dense(exact * weights, LAYOUT).sum(-1, keepdim=True)).expand(2, 2, *LAYOUT.shape), LAYOUT
        )
    )
    torch.testing.assert_close(x.grad.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    ones = torch.ones(()).expand(y.shape)
    dx = softmax_bwd(weights, ones, 1.0, LAYOUT)
    assert dx.abs().max() < 1e-6
    assert (ones == 1).all()


def test_the_gradient_of_a_broadcast_bias_is_summed():
    x, bias = make(LAYOUT, 2), torch.randn(1, 1, *LAYOUT.shape, requires_grad=True)
    wide = bias.detach().double().requires_grad_()
    grad = torch.randn(x.shape)
    block_sparse_softmax(x, LAYOUT, relative_position=bias).backward(grad)
    reference.block_sparse_softmax(x.double(), LAYOUT, relative_position=wide).backward(grad.double())
    torch.testing.assert_close(bias.grad.double(), wide.grad, rtol=1e-5, atol=1e-6)


def test_there_is_no_second_derivative():
    x = make(LAYOUT, 1).requires_grad_()
    (dx,) = torch.autograd.grad(block_sparse_softmax(x, LAYOUT).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        dx.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("problem", PROBLEMS["test"], ids=lambda problem: problem.name)
def test_backward_alone(problem, dtype):
    layout = problem.layout()
    y = block_sparse_softmax(make(layout, problem.batch, dtype), layout)
    dy = torch.randn(y.shape).to(dtype)

    def formula(y: Tensor, dy: Tensor) -> Tensor:
        products = reference.to_dense(y * dy, layout).sum(-1, keepdim=True).expand(-1, -1, -1, layout.shape[1])
        return y * (dy - reference.to_sparse(products, layout)) * 0.3

    assert_accurate(softmax_bwd(y, dy, 0.3, layout), formula(y.double(), dy.double()), formula(y, dy), factor=3.0)


@pytest.mark.parametrize("heads", [(), (1,), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("blocks", [(3, 2), (0, 2), (3, 0)])
def test_a_bias_tells_the_heads_that_share_a_layout_without_blocks(heads, blocks):
    layout = BlockLayout(torch.zeros(blocks, dtype=torch.bool), 16)
    bias = torch.randn(*heads, *layout.shape, requires_grad=True)
    x = torch.empty(2, 0, 16, 16, requires_grad=True)
    result = block_sparse_softmax(x, layout, relative_position=bias)
    result.sum().backward()
    assert result.shape == x.shape
    assert torch.equal(bias.grad, torch.zeros_like(bias))


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
@pytest.mark.parametrize("batch", [0, 2])
def test_empty_launches_nothing(shape, batch, monkeypatch):
    monkeypatch.setattr("nojit.kernels.library.get", lambda name: pytest.fail(f"{name} was asked for"))
    layout = BlockLayout(torch.ones(shape, dtype=torch.bool), 16)
    x = torch.empty(batch, 0, 16, 16)
    assert block_sparse_softmax(x, layout).shape == x.shape
    assert block_sparse_softmax(x, layout, relative_position=torch.zeros(layout.shape)).shape == x.shape
    assert softmax_bwd(x, x, 1.0, layout).shape == x.shape


X = torch.zeros(2, LAYOUT.nnz, 16, 16)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"attention_mask_mode": "multiply"},
            ValueError,
            "attention_mask_mode: expected 'add' or 'mul', got 'multiply'",
        ),
        ({"key_padding_mask_mode": None}, ValueError, "key_padding_mask_mode: expected 'add' or 'mul', got None"),
        ({"key_padding_mask": X[0]}, ValueError, r"key_padding_mask: expected shape \(2, 64\) \[Z, N\]"),
        ({"attention_mask": torch.zeros(64, 48)}, ValueError, r"attention_mask: expected shape \(48, 64\) \[M, N\]"),
        ({"attention_mask": torch.zeros(48, 64).half()}, ArgumentError, "attention_mask: expected torch.float32 as x"),
        ({"attention_mask": torch.ones(48, 64).bool()}, ValueError, "attention_mask_mode: expected 'mul' with a bool"),
        ({"attention_mask": [1]}, ArgumentError, "attention_mask: expected a tensor, got list"),
        (
            {"attention_mask": torch.zeros(48, 64, requires_grad=True)},
            ValueError,
            "attention_mask: .* requires no grad",
        ),
        ({"relative_position": torch.zeros(2, 3, 48, 64)}, ValueError, r"relative_position: .* \(2, 2, 48, 64\)"),
        (
            {"relative_position": torch.zeros(48, 64).double()},
            ArgumentError,
            "relative_position: expected torch.float32",
        ),
        ({"x": X[0]}, ValueError, r"x: expected 4 dimensions \[Z, nnz, block, block\]"),
        ({"x": X[:, 1:]}, ValueError, "x: expected 8 blocks as the layout has, got 7"),
        ({"x": X[..., :8]}, ValueError, r"x: expected shape \(2, 8, 16, 16\)"),
        ({"x": X.double()}, ArgumentError, "x: expected torch.float16 or"),
        ({"layout": LAYOUT.active}, ArgumentError, "layout: expected a BlockLayout, got Tensor"),
    ],
)
def test_refuses(arguments, error, message):
    arguments = {"x": X, "layout": LAYOUT, **arguments}
    with pytest.raises(error, match=message):
        block_sparse_softmax(arguments.pop("x"), arguments.pop("layout"), **arguments)


def test_backward_refuses_what_does_not_match():
    with pytest.raises(ValueError, match=r"dy: expected shape"):
        softmax_bwd(X, X[:1], 1.0, LAYOUT)
    with pytest.raises(ArgumentError, match=r"dy: expected torch.float32 as y has, got torch.float16"):
        softmax_bwd(X, X.half(), 1.0, LAYOUT)


def operator_arguments(**options: bool) -> tuple[Any, ...]:
    """Arguments of a small call: opcheck repeats it many times."""
    layout = BlockLayout(torch.tensor([[[1, 0, 1]]]), 16)
    tables = layout.tables("cpu")
    x, bias = torch.randn(1, 2, 16, 16, **options), torch.randn(1, 1, *layout.shape, **options)
    return (x, tables.spans, tables.columns, tables.sizes, 0.5, bias, None, None, False, False, True)


def test_operators_are_sound():
    torch.library.opcheck(torch.ops.nojit.block_sparse_softmax.default, operator_arguments(requires_grad=True))
    torch.library.opcheck(torch.ops.nojit.block_sparse_softmax_.default, operator_arguments())
    y, *layout = operator_arguments()[:5]
    torch.library.opcheck(torch.ops.nojit.block_sparse_softmax_backward.default, (y, y.clone(), *layout, True))


def test_traces_without_a_graph_break():
    layout = BlockLayout(LAYOUT.active, 16)
    traced = torch.compile(lambda x: block_sparse_softmax(x, layout, is_causal=True), backend="eager", fullgraph=True)
    x = make(layout, 1)
    assert torch.equal(traced(x), block_sparse_softmax(x, layout, is_causal=True))


def test_a_leaf_is_not_written_over():
    leaf = X.clone().requires_grad_()
    with pytest.raises(ValueError, match="x: expected no leaf that requires grad, as it is overwritten, got one"):
        block_sparse_softmax(leaf, LAYOUT, inplace=True)
    assert torch.equal(leaf, X)
