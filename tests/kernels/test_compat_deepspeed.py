"""DeepSpeed's classes: what they compute, what they refuse, and what they remember."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from inspect import signature
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.block_sparse import BlockLayout, reference
from nojit.kernels.compat import deepspeed
from nojit.kernels.compat.deepspeed import (
    BertSparseSelfAttention,
    BigBirdSparsityConfig,
    DenseSparsityConfig,
    FixedSparsityConfig,
    LocalSlidingWindowSparsityConfig,
    MatMul,
    Softmax,
    SparseAttentionUtils,
    SparseSelfAttention,
    triton_flash_attn,
)
from torch import Tensor, distributed, nn
from torch.nn import functional

RAW = torch.tensor([[[1, 0, 1], [0, 0, 0]], [[0, 1, 0], [1, 1, 1]], [[0, 0, 0], [0, 0, 0]]])
LAYOUT = BlockLayout(RAW, 16)
BATCH = 2

pytestmark = pytest.mark.usefixtures("interpreted")


def dense(*shape: int) -> Tensor:
    return torch.randn(BATCH, 3, *shape)


def product_of(mode: str, trans_a: bool, trans_b: bool, depth: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Make operands that a mode takes, and their product in plain torch."""
    rows, cols = LAYOUT.shape
    sparse = torch.randn(BATCH, LAYOUT.nnz, 16, 16)
    if mode == "sdd":
        a, b = dense(rows, depth), dense(depth, cols)
        a, b = a.mT.contiguous() if trans_a else a, b.mT.contiguous() if trans_b else b
    elif mode == "dsd":
        inner = rows if trans_a else cols
        a, b = sparse, dense(depth, inner) if trans_b else dense(inner, depth)
    else:
        inner = cols if trans_b else rows
        a, b = dense(inner, depth) if trans_a else dense(depth, inner), sparse
    whole_a = reference.to_dense(a, LAYOUT) if mode == "dsd" else a
    whole_b = reference.to_dense(b, LAYOUT) if mode == "dds" else b
    c = (whole_a.mT if trans_a else whole_a) @ (whole_b.mT if trans_b else whole_b)
    return a, b, reference.to_sparse(c, LAYOUT) if mode == "sdd" else c


@pytest.mark.parametrize(("mode", "trans_a", "trans_b"), list(product(["sdd", "dsd", "dds"], [0, 1], [0, 1])))
def test_matmul_multiplies(mode, trans_a, trans_b):
    a, b, expected = product_of(mode, bool(trans_a), bool(trans_b))
    matmul = MatMul(RAW, 16, mode, bool(trans_a), bool(trans_b), bench=True)
    torch.testing.assert_close(matmul(a, b), expected)
    assert (matmul.time_c, matmul.time_da, matmul.time_db) == (None, None, None)


def test_a_layout_of_two_dimensions_is_every_heads():
    one = torch.tensor([[1, 0], [1, 1]])
    a, b = torch.randn(2, 3, 32, 8), torch.randn(2, 3, 8, 32)
    scores = MatMul(one, 16, "sdd")(a, b)
    assert torch.equal(scores, MatMul(one.expand(3, 2, 2), 16, "sdd")(a, b))
    weights = Softmax(one, 16)(scores.clone())
    assert torch.equal(weights, Softmax(one.expand(3, 2, 2), 16)(scores.clone()))
    v = torch.randn(2, 3, 32, 8)
    assert torch.equal(MatMul(one, 16, "dsd")(weights, v), MatMul(one.expand(3, 2, 2), 16, "dsd")(weights, v))
    with pytest.raises(ValueError, match=r"trailing dimensions of shape \(9, 16, 16\) for argument A, got .*3, 16, 16"):
        MatMul(one, 16, "dsd")(weights[:, :3], v)


def test_missing_dimensions_are_added_and_taken_away():
    one = torch.tensor([[[1, 0], [1, 1]]])
    a, b = torch.randn(32, 8), torch.randn(8, 32)
    scores = MatMul(one, 16, "sdd")(a, b)
    assert scores.shape == (3, 16, 16)
    assert MatMul(one, 16, "dsd")(scores, torch.randn(32, 8)).shape == (1, 32, 8)
    assert MatMul(one, 16, "dsd")(scores[None], torch.randn(32, 8)).shape == (1, 1, 32, 8)


def test_autocast_gives_both_operands_its_dtype():
    a, b, _ = product_of("sdd", False, False)
    with torch.autocast("cpu", torch.bfloat16):
        got = MatMul(RAW, 16, "sdd")(a, b.bfloat16())
    assert got.dtype == torch.bfloat16


def refuse_matmul(mode: str, a: Tensor, b: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MatMul(RAW, 16, mode)(a, b)


def test_matmul_refuses_in_deepspeeds_words():
    with pytest.raises(NotImplementedError, match="Supported modes are: sdd, dsd, dds"):
        MatMul(RAW, 16, "ddd")
    with pytest.raises(ValueError, match="Layout should be a 2 or 3 dimensional tensor of 0s and 1s"):
        MatMul(RAW[0, 0], 16, "sdd")
    a, b, _ = product_of("sdd", False, False)
    sparse = torch.randn(BATCH, LAYOUT.nnz, 16, 16)
    refuse_matmul("sdd", a, b.half(), "Inputs must be the same dtype; got torch.float32 for A and torch.float16 for B")
    refuse_matmul(
        "sdd", a, b.to("meta"), "Inputs must be on the same device; got cpu for tensor A and meta for tensor B"
    )
    refuse_matmul("sdd", a.to("meta"), b.to("meta"), "Only GPU devices are supported for now")
    refuse_matmul("sdd", a[None], b, "Tensors with more than 4 dimensions are not currently supported")
    refuse_matmul(
        "sdd", a[..., :4], b, r"tensor A along the last dim \(4\) must match .* B along the second to last dim \(20\)"
    )
    refuse_matmul("dsd", sparse, dense(32, 8), "Expected tensor B to have size 48 at dim 2, got 32")
    refuse_matmul("dds", dense(8, 48), sparse, "Expected tensor A to have size 32 at dim 3, got 48")
    refuse_matmul("dsd", sparse[:, 1:], dense(48, 8), r"of shape \(6, 16, 16\) for argument A, got torch.Size")


def test_softmax_writes_over_its_input():
    x = torch.randn(BATCH, LAYOUT.nnz, 16, 16)
    terms = {"rpe": dense(*LAYOUT.shape), "attn_mask": (torch.rand(LAYOUT.shape) > 0.3).float()}
    mask = torch.randn(BATCH, LAYOUT.shape[1])
    expected = reference.block_sparse_softmax(
        x,
        LAYOUT,
        scale=0.5,
        relative_position=terms["rpe"],
        key_padding_mask=mask,
        attention_mask=terms["attn_mask"],
        attention_mask_mode="mul",
    )
    got = Softmax(RAW, 16)(x, 0.5, terms["rpe"], mask, terms["attn_mask"], "add", "mul")
    assert got is x
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("rpe", "relative position embedding must be torch.float32"),
        ("attn_mask", "Attention mask must be torch.float32"),
        ("key_padding_mask", "Key padding mask must be torch.float32"),
    ],
)
def test_softmax_refuses_in_deepspeeds_words(term, words):
    with pytest.raises(ValueError, match=words):
        Softmax(RAW, 16)(torch.randn(1, LAYOUT.nnz, 16, 16), **{term: torch.zeros(1).half()})


def masked_attention(layout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attend over a dense mask of the blocks; a row without any gives 0."""
    seen = layout.bool().repeat_interleave(16, 1).repeat_interleave(16, 2)
    scores = q @ k.mT * q.shape[-1] ** -0.5 + (0.0 if bias is None else bias)
    scores = scores.masked_fill(~seen, float("-inf"))
    lost = (scores == float("-inf")).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(lost, 0.0), -1).masked_fill(lost, 0.0) @ v


CONFIGS = (
    DenseSparsityConfig(2),
    FixedSparsityConfig(2, num_local_blocks=2, attention="unidirectional"),
    BigBirdSparsityConfig(2, different_layout_per_head=True),
    LocalSlidingWindowSparsityConfig(2),
)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_self_attention_is_dense_attention_over_its_layout(config):
    module = SparseSelfAttention(config, max_seq_length=80)
    q, k, v = (torch.randn(2, 2, 64, 16, requires_grad=True) for _ in range(3))
    grad = torch.randn(2, 2, 64, 16)
    out = module(q, k, v)
    expected = masked_attention(module.master_layout[:, :4, :4], q, k, v)
    torch.testing.assert_close(out, expected)
    for ours, theirs in zip(
        torch.autograd.grad(out, (q, k, v), grad), torch.autograd.grad(expected, (q, k, v), grad), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_self_attention_takes_masks_of_any_type_and_a_transposed_key():
    module = SparseSelfAttention(DenseSparsityConfig(2), max_seq_length=32)
    q, k, v = (torch.randn(2, 2, 32, 8) for _ in range(3))
    padding = torch.where(torch.rand(2, 1, 1, 32) > 0.3, 0.0, -10000.0).double()
    seen, rpe = torch.rand(32, 32) > 0.3, torch.randn(1, 2, 32, 32)
    got = module(q, k.mT, v, rpe, padding, seen.long()[None, None])
    bias = padding.float() + rpe + torch.zeros(32, 32).masked_fill(~seen, float("-inf"))
    torch.testing.assert_close(got, masked_attention(module.master_layout, q, k, v, bias))


def test_self_attention_refuses_in_deepspeeds_words():
    module = SparseSelfAttention(DenseSparsityConfig(2), max_seq_length=32)
    q = torch.randn(1, 2, 32, 8)
    with pytest.raises(NotImplementedError, match="only self-attention is supported for now"):
        module(q, q, q[..., :4])
    with pytest.raises(ValueError, match="Sequence Length, 24, needs to be dividable by Block size 16!"):
        module(q[:, :, :24], q[:, :, :24], q[:, :, :24])
    long = torch.randn(1, 2, 48, 8)
    with pytest.raises(ValueError, match="Sequence Length, 48, needs to be at most max_seq_length 32!"):
        module(long, long, long)
    with pytest.raises(NotImplementedError, match="SparsityConfig has no pattern of its own"):
        SparseSelfAttention()


@pytest.mark.parametrize("name", ["key_padding_mask", "attn_mask"])
def test_self_attention_adds_no_bools(name):
    modes = {"key_padding_mask_mode": "mul", "attn_mask_mode": "mul"}
    q, shape = torch.randn(1, 2, 32, 8), {"key_padding_mask": (1, 32), "attn_mask": (32, 32)}[name]
    seen = torch.rand(shape) > 0.3
    adds = SparseSelfAttention(DenseSparsityConfig(2), max_seq_length=32, **{**modes, f"{name}_mode": "add"})
    with pytest.raises(
        ValueError, match=f"{name}: expected numbers to add, as {name}_mode is 'add', or the mode 'mul'"
    ):
        adds(q, q, q, **{name: seen})
    hides = SparseSelfAttention(DenseSparsityConfig(2), max_seq_length=32, **modes)
    added = torch.zeros(shape).masked_fill(~seen, -1e9)
    torch.testing.assert_close(hides(q, q, q, **{name: seen}), adds(q, q, q, **{name: added}))


def test_self_attention_refuses_rows_without_elements():
    q = torch.randn(1, 2, 32, 0)
    with pytest.raises(ValueError, match=r"query: expected at least 1 element in a row \[B, H, S, D\], got 0"):
        SparseSelfAttention(DenseSparsityConfig(2), max_seq_length=32)(q, q, q)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("attn_mask", torch.zeros(32, 16), r"attn_mask: expected shape \(32, 32\) \[M, N\]"),
        ("rpe", torch.zeros(32, 16), "rpe: expected a shape that broadcasts to"),
        ("key_padding_mask", torch.zeros(1, 16), r"key_padding_mask: expected shape \(1, 32\) \[Z, N\]"),
    ],
)
def test_terms_are_refused_by_their_names_here(name, value, words):
    q = torch.randn(1, 2, 32, 8)
    with pytest.raises(ValueError, match=f"^{words}"):
        SparseSelfAttention(DenseSparsityConfig(2), max_seq_length=32)(q, q, q, **{name: value})
    with pytest.raises(ValueError, match=f"^{words}"):
        Softmax(torch.ones(2, 2, 2, dtype=torch.int64), 16)(torch.randn(1, 8, 16, 16), **{name: value})


def test_layouts_are_made_once_for_each_length_and_module():
    one, other = (SparseSelfAttention(config, max_seq_length=64) for config in CONFIGS[:2])
    q = torch.randn(1, 2, 64, 8)
    made = [one(q, q, q), other(q, q, q)]
    assert not torch.equal(*made)
    operators = one._operators_for(64)
    assert torch.equal(one(q, q, q), made[0])
    assert one._operators_for(64) is operators
    assert one._operators_for(32) is not operators


def test_a_layout_that_is_loaded_counts():
    one, other = (SparseSelfAttention(config, max_seq_length=64) for config in CONFIGS[:2])
    q = torch.randn(1, 2, 64, 8)
    made = [one(q, q, q), other(q, q, q)]
    nn.Sequential(one).load_state_dict(nn.Sequential(other).state_dict())
    assert torch.equal(one(q, q, q), made[1])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_module_can_be_copied(again):
    module = SparseSelfAttention(CONFIGS[2], max_seq_length=64)
    q = torch.randn(1, 2, 64, 8)
    assert torch.equal(again(module)(q, q, q), module(q, q, q))
    assert torch.equal(again(module).master_layout, module.master_layout)


def test_self_attention_traces_without_a_graph_break():
    module = SparseSelfAttention(CONFIGS[0], max_seq_length=32)
    q = torch.randn(1, 2, 32, 8)
    expected = module(q, q, q)
    assert torch.equal(torch.compile(module, backend="eager", fullgraph=True)(q, q, q), expected)


@pytest.fixture
def process_group(tmp_path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_ranks_take_the_first_ones_layout_once(process_group, monkeypatch):
    sent = []
    monkeypatch.setattr(distributed, "broadcast", lambda tensor, src: sent.append((tensor, src)))
    module = SparseSelfAttention(CONFIGS[2], max_seq_length=64)
    for length in (64, 48):
        module.get_layout(length)
    assert [src for _, src in sent] == [0]
    assert sent[0][0] is module.master_layout


RANK = """
import random, sys
from torch import distributed
from nojit.kernels.compat.deepspeed import BigBirdSparsityConfig, SparseSelfAttention

store, rank = sys.argv[1], int(sys.argv[2])
random.seed(rank)
module = SparseSelfAttention(BigBirdSparsityConfig(2, 16, different_layout_per_head=True), max_seq_length=256)
print(hash(module._operators_for(128).scores.block_layout))
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
print(hash(module._operators_for(128).scores.block_layout))
distributed.destroy_process_group()
"""


def test_ranks_that_used_a_module_before_agree_on_its_layout(tmp_path):
    command = [sys.executable, "-c", RANK, str(tmp_path / "store")]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    (own, first), (others, second) = (rank.communicate(timeout=600)[0].split() for rank in ranks)
    assert own != others
    assert own == first == second


def test_the_bert_layer_projects_and_attends():
    config = SimpleNamespace(hidden_size=32, num_attention_heads=2)
    layer = BertSparseSelfAttention(config, DenseSparsityConfig(2))
    hidden = torch.randn(2, 32, 32, requires_grad=True)
    mask = torch.where(torch.rand(2, 32) > 0.3, 0.0, -10000.0)
    out = layer(hidden, mask[:, None, None])
    q, k, v = (layer.transpose_for_scores(part(hidden)) for part in (layer.query, layer.key, layer.value))
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
    torch.testing.assert_close(out, expected.transpose(1, 2).flatten(2))
    out.sum().backward()
    assert layer.query.weight.grad is not None
    with pytest.raises(ValueError, match="attention_mask: expected numbers to add to the scores, got a bool mask"):
        layer(hidden, mask == 0)
    with pytest.raises(ValueError, match=r"The hidden size \(32\) is not a multiple of the number of attention heads"):
        BertSparseSelfAttention(SimpleNamespace(hidden_size=32, num_attention_heads=3))


def test_attention_is_replaced_and_keeps_its_projections():
    config = SimpleNamespace(hidden_size=32, num_attention_heads=2)
    old = SimpleNamespace(**{name: nn.Linear(32, 32) for name in ("query", "key", "value")})
    layer = SimpleNamespace(attention=SimpleNamespace(self=old))
    utils = SparseAttentionUtils
    utils.replace_self_attention_layer_with_sparse_self_attention_layer(config, [layer], DenseSparsityConfig(2))
    assert isinstance(layer.attention.self, BertSparseSelfAttention)
    assert layer.attention.self.query is old.query


def test_sequences_are_padded_to_blocks_and_back():
    ids, embeddings = torch.ones(2, 5, dtype=torch.long), nn.Embedding(10, 4)
    count, padded, mask, types, places, embedded = SparseAttentionUtils.pad_to_block_size(
        4, ids, torch.ones(2, 5), None, ids, embeddings(ids), 7, embeddings
    )
    assert count == 3
    assert padded.tolist() == [[1] * 5 + [7] * 3] * 2
    assert places.tolist() == padded.tolist()
    assert mask.tolist() == [[1.0] * 5 + [0.0] * 3] * 2
    assert types is None
    assert torch.equal(embedded, embeddings(padded))
    assert torch.equal(SparseAttentionUtils.unpad_sequence_output(count, embedded), embeddings(ids))
    whole = SparseAttentionUtils.pad_to_block_size(5, ids, None, ids, None, None, 7, None)
    assert (whole[0], whole[1] is ids, whole[2], whole[3] is ids) == (0, True, None, True)
    with pytest.raises(ValueError, match="input_ids: expected them or inputs_embeds, got neither"):
        SparseAttentionUtils.pad_to_block_size(4, None, None, None, None, None, 0, None)
    with pytest.raises(ValueError, match="model_embeddings: expected a function"):
        SparseAttentionUtils.pad_to_block_size(4, None, None, None, None, embedded[:, :3], 0, None)


@pytest.mark.parametrize("block_128", [False, True])
@pytest.mark.parametrize("length", [64, 70])
def test_flash_attention_without_a_mask(length, block_128):
    q, k, v = (torch.randn(1, 2, length, 16) for _ in range(3))
    got = triton_flash_attn()(q, k, v, 0.3, block_128=block_128)
    torch.testing.assert_close(got, functional.scaled_dot_product_attention(q, k, v, scale=0.3))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Softmax", "layout block bench=False"),
        ("MatMul", "layout block mode trans_a=False trans_b=False bench=False"),
        (
            "SparseSelfAttention",
            "sparsity_config=None key_padding_mask_mode='add' attn_mask_mode='mul' max_seq_length=2048",
        ),
        ("BertSparseSelfAttention", "config sparsity_config=None"),
    ],
)
def test_the_signature_is_deepspeeds(name, expected):
    parameters = signature(getattr(deepspeed, name)).parameters.values()
    said = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    assert " ".join(said) == expected


def test_every_name_is_there():
    assert all(callable(getattr(deepspeed, name)) for name in deepspeed.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = deepspeed.Nothing
    assert library.devices() == {"cpu"}


@pytest.mark.parametrize(
    "make", [lambda layout: deepspeed.Softmax(layout, 16), lambda layout: deepspeed.MatMul(layout, 16, "sdd")]
)
def test_a_layout_of_another_block_is_refused(make):
    with pytest.raises(ValueError, match="block: expected 32 as the layout has, got 16"):
        make(BlockLayout(torch.ones(1, 2, 2, dtype=torch.bool), 32))
