"""Rotary embeddings on a device: every variant, determinism, CUDA graphs, torch's compiler, sizes past 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.flex_decoding import flex_decoding  # noqa: E402
from nojit.kernels.rotary import reference, rotary, rotary_qk, rotary_to_cache  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402
from tests.gpu.rotary_calls import Case, rotary_calls  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402


@pytest.mark.parametrize("call", list(rotary_calls()), ids=lambda call: call.label)
def test_rotations_are_as_exact_as_torchs(steered, call):
    check(call, steered)


def test_every_variant_was_launched(steered):
    """Run after the others: what they leave out is what nobody has tried."""
    assert_all_launched(steered, "rotary")


@pytest.mark.parametrize("kind", ["pair", "cache"])
def test_ten_runs_give_the_same_bits(operators, kind):
    case = Case(torch.bfloat16, torch.float32, has_norm=True, kind=kind)
    first = case.compute(True, False)
    for _ in range(9):
        assert all(same_bits(one, other) for one, other in zip(first, case.compute(True, False), strict=True))


def tables(rotary_dim, most=4096, dtype=torch.float32):
    angles = torch.arange(most, device="cuda")[:, None] * 0.01 ** (
        torch.arange(rotary_dim // 2, device="cuda") / rotary_dim
    )
    return angles.cos().to(dtype), angles.sin().to(dtype)


def test_a_captured_step_writes_the_cache_that_decoding_reads(operators):
    """The tokens of a batch, one after the other, through one graph; then attention over the pages."""
    batch, steps, dim = 4, 33, 64
    query, key, value = (view((steps, batch, heads, dim), torch.bfloat16, seed) for seed, heads in enumerate((8, 2, 2)))
    cos, sin = tables(dim)
    caches = [torch.zeros(batch * 3, 16, 2, dim, dtype=torch.bfloat16, device="cuda").transpose(1, 2) for _ in range(2)]
    table = torch.randperm(batch * 3, device="cuda").view(batch, 3).int()
    now = [torch.empty_like(each[0]) for each in (query, key, value)]
    positions, slots = (torch.zeros(batch, dtype=torch.int64, device="cuda") for _ in range(2))
    slots.fill_(-1)

    def step():
        return rotary_to_cache(*now, cos, sin, positions, slots, *caches)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        turned = step()
    for at in range(steps):
        for target, source in zip(now, (query, key, value), strict=True):
            target.copy_(source[at])
        positions.fill_(at)
        slots.copy_(table[:, at // 16].long() * 16 + at % 16)
        graph.replay()
    lens = torch.full((batch,), steps, dtype=torch.int32, device="cuda")
    out = flex_decoding(turned[:, :, None], *caches, kv_lens=lens, page_table=table, enable_gqa=True)
    every = torch.arange(steps, device="cuda")
    rotated = [reference.rotary(each.transpose(0, 1).double(), cos, sin, every) for each in (query, key)]
    q, k, v = (
        rotated[0][:, -1:].transpose(1, 2),
        rotated[1].transpose(1, 2),
        value.transpose(0, 1).transpose(1, 2).double(),
    )
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(out.double(), right, atol=0.02, rtol=0.02)


def test_compiles_whole(operators):
    query, key = view((50, 8, 64), torch.bfloat16, 1), view((50, 2, 64), torch.bfloat16, 2)
    cos, sin = tables(64)

    def both(query, key):
        return rotary_qk(query, key, cos, sin)

    for got, right in zip(torch.compile(both, fullgraph=True)(query, key), both(query, key), strict=True):
        assert same_bits(got, right)


def test_past_two_to_the_31_elements(operators):
    x = view((140_000, 128, 128), torch.bfloat16, 1)
    cos, sin = tables(128, 140_000)
    rotary(x[-5:], cos[-5:], sin[-5:], out=x[-5:])
    before = x[-3:].clone()
    rotary(x, cos, sin, out=x)
    exact = reference.rotary(before.double(), cos[-3:], sin[-3:])
    assert_accurate(x[-3:], exact, reference.rotary(before, cos[-3:], sin[-3:]))
