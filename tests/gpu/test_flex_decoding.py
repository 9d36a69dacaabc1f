"""Decoding on a device: every variant, determinism, CUDA graphs over lengths that change, torch's compiler, large caches."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.flex import Causal, create_block_mask, flex_attention  # noqa: E402
from nojit.kernels.flex_decoding import flex_decoding, reference  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.flex_decoding_calls import MANY, Case, flex_decoding_calls  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("call", list(flex_decoding_calls()), ids=lambda call: call.label)
def test_attention_is_as_exact_as_torchs(steered, call):
    exact, torchs = call.exact(), call.torchs()
    slack = call.slack(exact)
    for _ in steered.rounds():
        for place, (value, right, own) in enumerate(zip(call.run(), exact, torchs, strict=True)):
            assert_accurate(value, right, own, call.factors[place], slack if place else 0.0)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered)


@pytest.mark.parametrize("kv_heads", [1, 2, 8])
@pytest.mark.parametrize("q_len", MANY)
def test_flex_attention_decodes_the_queries_of_few_heads(operators, q_len, kv_heads):
    q, k, v = (view((2, heads, length, 128), torch.bfloat16, seed)
               for seed, (heads, length) in enumerate(((8, q_len), (kv_heads, 2000), (kv_heads, 2000))))  # fmt: skip
    mask = create_block_mask(Causal(2000 - q_len), None, None, q_len, 2000, "cuda")
    for block_mask in (None, mask):
        out = flex_attention(q, k, v, block_mask=block_mask, enable_gqa=True)
        assert same_bits(out, flex_decoding(q, k, v, block_mask=block_mask, enable_gqa=True))


CASES = [
    Case(torch.bfloat16, lengths=(1, 8192), batch=16, page=16),
    Case(torch.bfloat16, lengths=(1, 65_536), batch=1),
    Case(torch.float16, lengths=(7, 3000), mask="dilated", mod="chain"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_ten_runs_give_the_same_bits(operators, case):
    first = case.run()
    for _ in range(9):
        assert all(same_bits(one, other) for one, other in zip(first, case.run(), strict=True))


@pytest.mark.parametrize("splits", [None, 1, 6])
def test_a_captured_call_follows_lengths_and_pages(operators, splits):
    """Nothing of a graph depends on what lengths and tables held when it was captured."""
    q, pool_k, pool_v = (view(shape, torch.bfloat16, seed) for seed, shape in enumerate(
        ((4, 32, 1, 128), (600, 8, 16, 128), (600, 8, 16, 128))
    ))  # fmt: skip
    table = torch.randperm(600, device="cuda")[:512].view(4, 128).to(torch.int32)
    lens = torch.full((4,), 16, dtype=torch.int32, device="cuda")
    words = {"enable_gqa": True, "kv_lens": lens, "page_table": table, "is_causal": True, "splits": splits}
    flex_decoding(q, pool_k, pool_v, **words)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = flex_decoding(q, pool_k, pool_v, **words)
    for step, lengths in enumerate(([0, 1, 15, 16], [2048, 2047, 17, 1000], [5, 2000, 0, 64])):
        lens.copy_(torch.tensor(lengths))
        table.copy_(table.flip(step % 2))
        graph.replay()
        assert same_bits(result, flex_decoding(q, pool_k, pool_v, **words))
        exact, _ = reference.flex_decoding(
            q.double(), pool_k.double(), pool_v.double(), kv_lens=lens, page_table=table, is_causal=True
        )
        torchs, _ = reference.flex_decoding(q, pool_k, pool_v, kv_lens=lens, page_table=table, is_causal=True)
        assert_accurate(result, exact, torchs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("splits", [None, 1, 3])
def test_pages_give_the_bits_of_rows(operators, dtype, dim, splits):
    """Calls with and without pages run the same tiles, and sum in the same order."""
    q, k, v = (view((3, heads, length, dim), dtype, seed)
               for seed, (heads, length) in enumerate(((8, 1), (2, 2048), (2, 2048))))  # fmt: skip
    lens = torch.tensor([2048, 77, 1500], dtype=torch.int32, device="cuda")
    words = {"enable_gqa": True, "kv_lens": lens, "splits": splits}
    table = torch.arange(3 * 128, dtype=torch.int32, device="cuda").view(3, 128)
    pools = [x.unflatten(2, (128, 16)).transpose(1, 2).flatten(0, 1) for x in (k, v)]
    assert same_bits(flex_decoding(q, *pools, page_table=table, **words), flex_decoding(q, k, v, **words))


def test_graphs_on_two_streams_do_not_disturb_each_other(operators):
    """Parts have memory of their own for each captured call: no counter and no workspace is shared."""
    q, k, v = (view((1, heads, length, 128), torch.bfloat16, seed)
               for seed, (heads, length) in enumerate(((32, 1), (8, 20_000), (8, 20_000))))  # fmt: skip
    expected = [flex_decoding(q * factor, k, v, enable_gqa=True) for factor in (1, 2)]
    graphs, results = [], []
    for factor in (1, 2):
        own = q * factor
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append(flex_decoding(own, k, v, enable_gqa=True))
        graphs.append((graph, own))
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(50):
        for stream, (graph, _) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    assert all(same_bits(one, other) for one, other in zip(results, expected, strict=True))


def test_compiles_whole(operators):
    q, k, v = (view((2, heads, length, 128), torch.bfloat16, seed)
               for seed, (heads, length) in enumerate(((32, 1), (8, 3000), (8, 3000))))  # fmt: skip
    lens = torch.tensor([3000, 17], dtype=torch.int32, device="cuda")

    def attend(*operands):
        return flex_decoding(*operands, enable_gqa=True, kv_lens=lens, is_causal=True)

    assert same_bits(torch.compile(attend, fullgraph=True)(q, k, v), attend(q, k, v))


@pytest.mark.parametrize("page", [0, 16])
def test_past_two_to_the_31_elements(operators, page):
    """A cache of 4.3 GB: 64-bit offsets, in pages or not."""
    length = 1 << 21
    k, v = (view((1, 8, length, 128), torch.bfloat16, seed) for seed in (1, 2))
    q = view((1, 8, 1, 128), torch.bfloat16, 3)
    lens = torch.tensor([length], dtype=torch.int32, device="cuda")
    words = {"kv_lens": lens, "window": (4000, 0)}
    right, _ = reference.flex_decoding(q.double(), k[:, :, -4001:].double(), v[:, :, -4001:].double())
    own, _ = reference.flex_decoding(q, k[:, :, -4001:], v[:, :, -4001:])
    if page:
        words["page_table"] = torch.arange(length // page, dtype=torch.int32, device="cuda")[None]
        k, v = (x.view(8, length // page, page, 128).transpose(0, 1) for x in (k, v))
    assert_accurate(flex_decoding(q, k, v, **words), right, own)


def test_splits_do_not_read_lists_past_their_end(operators):
    """Of more splits than there are blocks, those without one write nothing."""
    q, k, v = (view((2, 8, length, 64), torch.float16, seed) for seed, length in enumerate((3, 4096, 4096)))

    def far(b, h, q_idx, kv_idx):
        return kv_idx // 128 == 17

    mask = create_block_mask(far, None, None, 3, 4096, "cuda")
    right, _ = reference.flex_decoding(q.double(), k.double(), v.double(), mask_mod=far)
    own, _ = reference.flex_decoding(q, k, v, mask_mod=far)
    for splits in (1, 2, 50):
        assert_accurate(flex_decoding(q, k, v, block_mask=mask, splits=splits), right, own)
