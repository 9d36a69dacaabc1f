from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own spelling
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import expand_kernel
from nojit.kernels import library
from nojit.kernels.block_mask.masks import Causal, Documents, Prefix, Window, create_block_mask
from nojit.kernels.flex_decoding import flex_decoding, launch, op, reference
from nojit.kernels.flex_decoding.problems import DecodingProblem, MergeProblem, Shape
from nojit.kernels.flex_decoding.splits import MOST, TILES, WAVES, costs_of_one, splits_of
from nojit.kernels.score_mod.mods import Alibi, Chain, DenseBias, RelativeBias, SoftCap
from nojit.runtime.errors import ArgumentError, KernelNotFoundError
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tests.kernels import sm90
from tests.kernels.accuracy import assert_accurate

MANIFEST = Path(__file__).resolve().parents[2] / "manifests/flex_decoding.toml"
pytestmark = pytest.mark.usefixtures("interpreted")


def make(*sizes: int, dtype: torch.dtype = torch.float32, v_dim: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Make operands: `sizes` are batch, heads, heads of keys, queries, keys, width."""
    batch, heads, kv_heads, q_len, kv_len, dim = sizes
    q = torch.randn(batch, heads, q_len, dim)
    k = torch.randn(batch, kv_heads, kv_len, dim)
    v = torch.randn(batch, kv_heads, kv_len, v_dim or dim)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def widened(value: object) -> object:
    """Make fp64 of what a modification captures, so that its twin computes in it."""
    if isinstance(value, Chain):
        return Chain(widened(value.first), widened(value.second))
    return DenseBias(value.values.double()) if isinstance(value, DenseBias) else value


def torchs(operands: tuple[Tensor, ...], score_mod, mask_mod, words) -> Tensor:
    """torch's own operator or, of modified scores, its eager ones; rows that see nothing are 0."""
    q, k, v = operands
    if score_mod is not None:
        return reference.flex_decoding(q, k, v, score_mod, mask_mod=mask_mod, **words)[0]
    k, v = (reference.gathered(x, words.get("page_table")).expand(len(q), -1, -1, -1) for x in (k, v))
    seen_by = {name: words[name] for name in ("kv_lens", "is_causal", "window") if name in words}
    seen = reference.visible((*q.shape[:3], k.shape[2]), q.device, mask_mod=mask_mod, **seen_by)
    unread = ~seen.any(2)[..., None]
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1).masked_fill(unread, 0.0) for x in (k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=words.get("scale"))
    return out.masked_fill(~seen.any(-1)[..., None], 0.0)


def check(q: Tensor, k: Tensor, v: Tensor, score_mod=None, mask_mod=None, *, block: int = 128, heads=None, **words):
    """Hold output and log-sums to the exact ones; return the output. `heads` of the mask differ."""
    own = {name: words.pop(name) for name in ("splits", "kernel_options") if name in words}
    if mask_mod is not None:
        length = k.shape[2] * (words["page_table"].shape[1] if "page_table" in words else 1)
        own["block_mask"] = create_block_mask(mask_mod, None, heads, q.shape[2], length, "cpu", block)
    out, lse = flex_decoding(q, k, v, score_mod, enable_gqa=True, return_lse=True, **own, **words)
    exact, exact_lse = reference.flex_decoding(
        q.double(), k.double(), v.double(), widened(score_mod), mask_mod=mask_mod, **words
    )
    assert_accurate(out, exact, torchs((q, k, v), score_mod, mask_mod, words))
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=2e-5)
    return out


SIZES = [
    (1, 1, 1, 1, 1, 16),
    (2, 4, 2, 1, 300, 40),
    (1, 6, 2, 5, 131, 64),
    (2, 3, 3, 17, 77, 80),
    (1, 12, 1, 2, 200, 111),
    (1, 1, 1, 127, 129, 32),
    (1, 1, 1, 3, 65, 256),
    (2, 2, 2, 5, 3, 24),
]


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_is_as_accurate_as_torch(sizes, splits):
    check(*make(*sizes, dtype=torch.float16), splits=splits)


@pytest.mark.parametrize("q_len", [21, 32, 33, 64, 65, 100, 127])
def test_many_queries(q_len):
    check(*make(1, 4, 1, q_len, 150, 32, dtype=torch.bfloat16), is_causal=True, splits=2)
    check(*make(1, 2, 2, q_len, 150, 32, dtype=torch.bfloat16), mask_mod=dilated, splits=2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("sizes", [SIZES[1], SIZES[2], SIZES[4]], ids=str)
def test_in_other_dtypes(sizes, dtype):
    check(*make(*sizes, dtype=dtype), splits=2)


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize(
    "words", [{}, {"is_causal": True}, {"window": (30, 2)}, {"is_causal": True, "window": 100}], ids=str
)
@pytest.mark.parametrize("sizes", [(1, 2, 1, 5, 200, 32), (1, 1, 1, 40, 20, 32)], ids=str)
def test_words_count_from_the_last_key(sizes, words, splits):
    check(*make(*sizes), splits=splits, **words)


@pytest.mark.parametrize("dims", [(24, 72), (192, 128), (128, 16)], ids=str)
def test_widths_may_differ(dims):
    check(*make(1, 4, 2, 3, 150, dims[0], dtype=torch.float16, v_dim=dims[1]), splits=2, is_causal=True)


@pytest.mark.parametrize("scale", [0.0, -0.7, 3])
def test_any_scale(scale):
    check(*make(1, 2, 2, 4, 150, 32), scale=scale, splits=2)


# -- lengths on the device -------------------------------------------------------------------------------------------

LENS = torch.tensor([0, 1, 64, 65, 299, 300, 1000, -3], dtype=torch.int32)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("words", [{}, {"is_causal": True}, {"window": (40, 0)}], ids=str)
def test_lengths_end_where_they_say(words, splits):
    """No key past the end is read, and lengths beyond the room, or below 0, are as good as the nearest there is."""
    q, k, v = make(8, 1, 1, 2, 300, 32)
    lens = LENS.clamp(0, 300)
    for batch, length in enumerate(lens.tolist()):
        k[batch, :, length:], v[batch, :, length:] = float("nan"), float("nan")
    out = check(q, k, v, kv_lens=lens, splits=splits, **words)
    again = flex_decoding(q, k, v, enable_gqa=True, kv_lens=LENS, splits=splits, **words)
    assert torch.equal(again, out)
    assert not out[0].any()


def test_lengths_can_change_without_another_call_being_made():
    """The grid follows from the room alone: what was launched once serves any lengths, as in a graph."""
    launches = []

    class Noted:
        def __init__(self, kernel):
            self.kernel = kernel

        def __call__(self, *args, **named):
            launches.append((args, named))
            return self.kernel(*args, **named)

    q, k, v = make(3, 2, 2, 1, 500, 32)
    lens = torch.tensor([5, 70, 500], dtype=torch.int32)
    before = library.CURRENT.source.provider
    with library.override(lambda name: Noted(before(name))):
        flex_decoding(q, k, v, kv_lens=lens)
    lens.copy_(torch.tensor([400, 1, 0]))
    for args, named in launches:
        before("flex_decoding" if len(launches) == 1 or named is launches[0][1] else "flex_decoding_merge")(
            *args, **named
        )
    written = launches[0][1]["out_ptr"]
    exact, _ = reference.flex_decoding(q.double(), k.double(), v.double(), kv_lens=lens)
    torch.testing.assert_close(written.double(), exact, rtol=1e-4, atol=1e-5)


# -- pages -----------------------------------------------------------------------------------------------------------


def paged(k: Tensor, v: Tensor, size: int, spare: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Scatter keys and values over pages in any order; the pages that nobody has hold NaN."""
    batch, heads, length, _ = k.shape
    count = -(-length // size)
    order = torch.randperm(batch * count + spare)
    table = order[: batch * count].view(batch, count).to(torch.int32)
    pools = []
    for rows in (k, v):
        pool = torch.full((batch * count + spare, heads, size, rows.shape[3]), float("nan"), dtype=rows.dtype)
        full = torch.full((batch, heads, count * size, rows.shape[3]), float("nan"), dtype=rows.dtype)
        full[:, :, :length] = rows
        pool[table.long()] = full.unflatten(2, (count, size)).transpose(1, 2)
        pools.append(pool)
    return *pools, table


@pytest.mark.parametrize("size", [1, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("words", [{}, {"is_causal": True, "window": 70}], ids=str)
def test_pages_of_any_size(size, words):
    q, k, v = make(2, 2, 1, 3, 300, 40, dtype=torch.float16)
    lens = torch.tensor([300, 129], dtype=torch.int32)
    k_pool, v_pool, table = paged(k, v, size)
    out = check(q, k_pool, v_pool, page_table=table, kv_lens=lens, splits=2, **words)
    # the same steps over the same keys, wherever they lie
    assert torch.equal(out, flex_decoding(q, k, v, enable_gqa=True, kv_lens=lens, splits=2, **words))


def test_pages_that_nobody_sees_are_not_looked_up():
    """Neither past the end nor before a window: there, tables may hold anything."""
    q, k, v = make(2, 2, 1, 1, 320, 32)
    lens = torch.tensor([200, 320], dtype=torch.int32)
    k_pool, v_pool, table = paged(k, v, 16)
    expected = flex_decoding(
        q, k_pool, v_pool, enable_gqa=True, page_table=table, kv_lens=lens, is_causal=True, window=50, splits=3
    )
    first, last = (lens - 51) // 16, (lens - 1) // 16
    for batch in range(2):
        table[batch, : first[batch]] = 1 << 29
        table[batch, last[batch] + 1 :] = -(1 << 29)
    again = flex_decoding(
        q, k_pool, v_pool, enable_gqa=True, page_table=table, kv_lens=lens, is_causal=True, window=50, splits=3
    )
    assert torch.equal(again, expected)


def test_pages_may_lie_row_by_row():
    """As other servers have them: [pages, page size, heads, width]."""
    q, k, v = make(2, 4, 2, 1, 100, 32)
    k_pool, v_pool, table = paged(k, v, 32, spare=0)
    turned = [pool.transpose(1, 2).contiguous().transpose(1, 2) for pool in (k_pool, v_pool)]
    lens = torch.tensor([100, 40], dtype=torch.int32)
    check(q, *turned, page_table=table, kv_lens=lens)


# -- masks -----------------------------------------------------------------------------------------------------------


def dilated(b, h, q_idx, kv_idx):
    return (kv_idx - q_idx) % 3 == 0


def by_head(b, h, q_idx, kv_idx):
    return (kv_idx // 16 + h) % 2 == 0


def far_blocks(b, h, q_idx, kv_idx):
    return (kv_idx // 128) % 2 == 1


def nothing(b, h, q_idx, kv_idx):
    return kv_idx < 0


MASKS = {
    "causal": Causal(250),
    "window": Window(20, 3, 200),
    "prefix": Prefix(torch.tensor(90)),
    "documents": Documents(torch.arange(400) // 60),
    "dilated": dilated,
    "far blocks": far_blocks,
    "nothing": nothing,
}


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, splits):
    check(*make(1, 2, 1, 3, 330, 32), mask_mod=MASKS[name], splits=splits)


def test_queries_of_several_rows_of_blocks():
    check(*make(1, 2, 1, 70, 150, 32), mask_mod=dilated, block=64, splits=1)


def test_heads_that_see_other_keys():
    q, k, v = make(2, 4, 2, 5, 200, 32)
    check(q, k, v, mask_mod=by_head, heads=4, splits=2)

    def band_by_head(b, h, q_idx, kv_idx):
        return kv_idx <= 30 * h + q_idx

    check(q, k, v, mask_mod=band_by_head, heads=4, splits=2)


def test_masks_with_lengths_and_pages():
    q, k, v = make(2, 4, 2, 5, 320, 32)
    k_pool, v_pool, table = paged(k, v, 32)
    lens = torch.tensor([100, 290], dtype=torch.int32)
    for mask in (dilated, far_blocks, MASKS["documents"]):
        check(q, k_pool, v_pool, mask_mod=mask, kv_lens=lens, page_table=table, splits=2)


def test_splits_read_no_list_past_its_end():
    """Of more splits than there are blocks, those without one write nothing; entries past the end name no block."""
    q, k, v = make(1, 1, 1, 2, 700, 32)
    mask = create_block_mask(far_blocks, None, None, 2, 700, "cpu")
    tables = mask._nojit_tables.tables
    assert tables.mode == "bitmap"
    entries = tables.by_query.blocks
    guarded = torch.full((len(entries) + 8, 2), 1 << 29, dtype=torch.int32)
    guarded[: len(entries)] = entries
    own = tables.by_query._replace(blocks=guarded[: len(entries)])
    object.__setattr__(tables, "by_query", own)
    expected, _ = reference.flex_decoding(q.double(), k.double(), v.double(), mask_mod=far_blocks)
    for splits in (1, 4, 9):
        out = flex_decoding(q, k, v, block_mask=mask, splits=splits)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


# -- one query of each sequence --------------------------------------------------------------------------------------


def launched(call, absent=(), **named) -> list[str]:
    """List the kernels that a call launches, from a library without those that are `absent`."""
    names, before = [], library.CURRENT.source.provider

    def provide(name):
        if name in absent:
            raise KernelNotFoundError("none", got=name)
        return sm90.noted(before(name), name, names)

    with library.override(provide, **named):
        call()
    return names


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1, 1, 1, 16),
        (2, 4, 1, 1, 300, 64),
        (3, 32, 2, 1, 129, 128),
        (1, 10, 2, 1, 700, 48),
        (1, 4, 4, 1, 65, 256),
        (2, 2, 2, 1, 3, 96),
    ],
    ids=str,
)
def test_one_query_is_as_accurate_as_torchs(sizes, splits):
    check(*make(*sizes, dtype=torch.bfloat16), splits=splits)


@pytest.mark.parametrize("dims", [(32, 80), (192, 128), (128, 16)], ids=str)
def test_widths_of_one_query_may_differ(dims):
    check(*make(2, 4, 2, 1, 150, dims[0], dtype=torch.float16, v_dim=dims[1]), splits=2)


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("words", [{}, {"is_causal": True}, {"window": (200, 0)}, {"window": 3}], ids=str)
@pytest.mark.parametrize("size", [None, 16, 64])
def test_one_query_of_given_lengths_in_pages_and_windows(size, words, splits):
    q, k, v = make(6, 4, 2, 1, 400, 64, dtype=torch.float16)
    lens = torch.tensor([400, 0, 1, 64, 129, 399], dtype=torch.int32)
    for batch, length in enumerate(lens.tolist()):
        k[batch, :, length:], v[batch, :, length:] = float("nan"), float("nan")
    out = check(q, k, v, kv_lens=lens, splits=splits, **words)
    if size is not None:
        k_pool, v_pool, table = paged(k, v, size)
        more = {"kv_lens": lens, "page_table": table, "splits": splits, "enable_gqa": True}
        assert torch.equal(flex_decoding(q, k_pool, v_pool, **words, **more), out)


@pytest.mark.parametrize("mask", [Causal(250), Window(20, 3, 200), Causal(-3), Causal(1000)], ids=str)
def test_one_query_in_a_band_from_the_first_key(mask):
    call = make(1, 4, 2, 1, 330, 64, dtype=torch.float16)
    check(*call, mask_mod=mask, splits=2)


@pytest.mark.parametrize("words", [{}, {"splits": 3}, {"window": (70, 0)}, {"kv_lens": [300, 2]}], ids=str)
@pytest.mark.parametrize("dim", [144, 256])
def test_one_query_gives_the_bits_of_the_kernel_for_many(monkeypatch, dim, words):
    q, k, v = make(2, 8, 2, 1, 300, dim, dtype=torch.float16)
    # at this width both kernels have the same tile
    words = {"enable_gqa": True, "return_lse": True, "splits": 1} | words
    if "kv_lens" in words:
        words["kv_lens"] = torch.tensor(words["kv_lens"], dtype=torch.int32)
    own = flex_decoding(q, k, v, **words)
    monkeypatch.setattr(launch, "_ONE_ROWS", 0)
    op._MEMO.forget()
    for one, other in zip(own, flex_decoding(q, k, v, **words), strict=True):
        assert torch.equal(one, other)


def test_strides_of_one_query_are_free():
    q, k, v = make(2, 4, 4, 1, 83, 64, dtype=torch.float16)
    for arrange in (
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: torch.cat([x, x], -1)[..., x.shape[-1] :],
        lambda x: torch.cat([x.flatten()[:3], x.flatten()])[3:].view(x.shape),
        lambda x: x[:1, :1].expand_as(x),
    ):
        check(arrange(q), arrange(k), arrange(v), splits=2)
    check(q, k[:1], v[:1], splits=2)


def test_kernels_of_calls():
    def kernels(sizes, *words, dtype=torch.float16, **named):
        return launched(lambda: flex_decoding(*make(*sizes, dtype=dtype), *words, enable_gqa=True, **named))

    one, few = (2, 4, 2, 1, 40, 64), (2, 4, 2, 2, 40, 64)
    assert kernels(one, splits=1) == ["flex_decoding_one"]
    assert kernels(one, splits=2, is_causal=True) == ["flex_decoding_one", "flex_decoding_merge"]
    assert kernels((1, 16, 1, 1, 40, 64), splits=1) == ["flex_decoding_one"]
    assert kernels((1, 17, 1, 1, 40, 64), splits=1) == ["flex_decoding"]
    assert kernels(one, splits=1, dtype=torch.float32) == ["flex_decoding"]
    assert kernels((2, 4, 2, 1, 40, 40), splits=1) == ["flex_decoding"], "rows of 40 elements are not aligned"
    assert kernels(one, SoftCap(2.0), splits=1) == ["flex_decoding"]
    assert kernels(one, splits=1, kernel_options={"BLOCK_N": 64}) == ["flex_decoding"]
    assert kernels(few, splits=1) == ["flex_decoding"]
    intervals = create_block_mask(lambda b, h, q_idx, kv_idx: kv_idx <= 9 * h + q_idx, None, 4, 1, 40, "cpu")
    assert kernels(one, None, intervals, splits=1) == ["flex_decoding"]
    bitmap = create_block_mask(dilated, None, None, 1, 40, "cpu")
    assert kernels(one, None, bitmap, splits=1) == ["flex_decoding_blocks"]


def test_a_call_asks_once_which_kernel_serves_it(monkeypatch):
    asked = []
    monkeypatch.setattr(launch, "is_unaligned", lambda *operands: asked.append(operands) or False)
    q, k, v = make(1, 8, 2, 1, 64, 64, dtype=torch.float16)
    assert launched(lambda: flex_decoding(q, k, v, enable_gqa=True)) == ["flex_decoding_one"]
    assert len(asked) == 1


def test_a_library_without_the_kernel_for_one_query_runs_the_other():
    call = make(1, 4, 2, 1, 300, 64, dtype=torch.float16)
    assert launched(lambda: check(*call, splits=1), absent=[launch.ONE]) == ["flex_decoding"]


def test_bits_of_one_query_do_not_depend_on_the_stride_of_its_batch():
    q, k, v = make(2, 4, 2, 1, 700, 64, dtype=torch.float16)
    wide = torch.zeros(2, k[0].numel() + 8, dtype=torch.float16)
    apart = wide[:, :-8].copy_(k.flatten(1)).unflatten(1, k.shape[1:])
    assert apart.stride(0) % 16 == 8
    results = []
    for rows in (2, 1):
        call = q[:rows], apart[:rows], v[:rows]
        names = launched(lambda call=call: results.append(flex_decoding(*call, enable_gqa=True)), batch_invariant=True)
        assert launch.ONE not in names
    assert torch.equal(results[0][:1], results[1])


# -- score modifications ---------------------------------------------------------------------------------------------


def mods(heads: int, q_len: int, kv_len: int, dtype: torch.dtype) -> list[object]:
    alibi = Alibi(torch.rand(heads) * 0.1)
    relative = RelativeBias(torch.randn(heads, 41))
    bias = DenseBias(torch.randn(1, heads, q_len, kv_len).to(dtype))
    return [alibi, relative, SoftCap(2.0), bias, Chain(SoftCap(1.5), bias), Chain(relative, alibi)]


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("masked", [False, True])
def test_score_modifications(which, masked):
    q, k, v = make(1, 4, 2, 3, 150, 32, dtype=torch.float16)
    mod = mods(4, 3, 150, torch.float16)[which]
    check(q, k, v, mod, dilated if masked else None, splits=2)


@pytest.mark.parametrize("which", range(6))
def test_of_given_lengths_the_last_query_stands_at_the_last_key(which):
    q, k, v = make(2, 4, 2, 3, 150, 32)
    lens = torch.tensor([150, 71], dtype=torch.int32)
    mod = mods(4, 3, 150, torch.float32)[which]
    if mod.bias is None:
        check(q, k, v, mod, kv_lens=lens, splits=2)
        return
    # the rows of a bias are queries, wherever they stand
    out = flex_decoding(q, k, v, mod, enable_gqa=True, kv_lens=lens, splits=2)
    for batch, length in enumerate(lens.tolist()):
        bias = DenseBias(mod.bias[..., :length].double())
        own = Chain(mod.first, bias) if isinstance(mod, Chain) else bias
        q_, k_, v_ = (x[batch : batch + 1].double() for x in (q, k, v))
        exact, _ = reference.flex_decoding(q_, k_[:, :, :length], v_[:, :, :length], own)
        torch.testing.assert_close(out[batch : batch + 1].double(), exact, rtol=1e-4, atol=1e-5)


# -- operands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), id="heads inside"),
        pytest.param(lambda x: torch.cat([x, x], -1)[..., x.shape[-1] :], id="half of wider rows"),
        pytest.param(lambda x: torch.cat([x, x], 2)[:, :, ::2], id="every other row"),
        pytest.param(lambda x: torch.cat([x.flatten()[:3], x.flatten()])[3:].view(x.shape), id="unaligned"),
        pytest.param(lambda x: x[:1, :1].expand_as(x), id="one head for all"),
    ],
)
def test_any_strides(arrange):
    q, k, v = (arrange(x) for x in make(2, 4, 4, 19, 83, 48, dtype=torch.float16))
    check(q, k, v, is_causal=True, splits=2)


def test_one_batch_of_keys_serves_all():
    q, _, _ = make(3, 4, 2, 2, 1, 32)
    _, k, v = make(1, 4, 2, 2, 90, 32)
    check(q, k, v, splits=2)


@pytest.mark.parametrize("splits", [1, 4])
def test_neither_padding_nor_neighbours_leak_in(splits):
    q, k, v = make(2, 2, 2, 7, 45, 40, dtype=torch.float16)
    around = [torch.full((2, 2, x.shape[2] + 100, 64), float("nan"), dtype=x.dtype) for x in (q, k, v)]
    inside = [memory[:, :, : x.shape[2], : x.shape[3]] for memory, x in zip(around, (q, k, v), strict=True)]
    for view, x in zip(inside, (q, k, v), strict=True):
        view.copy_(x)
    assert torch.equal(flex_decoding(*inside, splits=splits), flex_decoding(q, k, v, splits=splits))


def test_large_scores_do_not_overflow():
    q, k, v = make(1, 1, 1, 3, 200, 64, dtype=torch.float16)
    check(q * 60, k * 60, v, splits=3)


@pytest.mark.parametrize("shape", [(0, 2, 5, 32), (2, 0, 5, 32), (2, 2, 0, 32)])
def test_empty_launches_nothing(shape):
    q = torch.empty(shape)
    with library.override(lambda name: pytest.fail(f"{name} was asked for")):
        out, lse = flex_decoding(q, q, q, return_lse=True)
    assert out.shape == shape
    assert lse.shape == shape[:3]


@pytest.mark.parametrize("splits", [None, 1, 2])
def test_no_keys_give_zero_and_minus_infinity(splits):
    q, k, v = make(2, 2, 1, 3, 0, 32)
    out, lse = flex_decoding(q, k, v, enable_gqa=True, return_lse=True, splits=splits)
    assert not out.any()
    assert (lse == float("-inf")).all()


def test_the_output_lies_in_memory_as_the_queries_do():
    q, k, v = (torch.randn(2, 20, 3, 32, dtype=torch.float16).transpose(1, 2) for _ in range(3))
    assert flex_decoding(q, k, v).stride() == q.stride()


@pytest.mark.parametrize("splits", [1, 3])
def test_one_call_does_not_depend_on_the_log_sums_being_asked_for(splits):
    q, k, v = make(1, 2, 2, 3, 200, 32, dtype=torch.bfloat16)
    with_lse, _ = flex_decoding(q, k, v, return_lse=True, splits=splits)
    assert torch.equal(flex_decoding(q, k, v, splits=splits), with_lse)


def test_a_remembered_call_is_the_same():
    q, k, v = make(2, 2, 1, 1, 80, 32)
    lens = torch.tensor([70, 11], dtype=torch.int32)
    mask = create_block_mask(dilated, None, None, 1, 80, "cpu")
    alibi, cap = Alibi(torch.rand(2)), SoftCap(0.5)
    every = ({}, {"kv_lens": lens}, {"block_mask": mask}, {"is_causal": True, "return_lse": True})
    every += ({"score_mod": alibi}, {"score_mod": cap, "block_mask": mask}, {"score_mod": alibi, "block_mask": mask})
    results = [[flex_decoding(q, k, v, enable_gqa=True, splits=2, **words)[0] for words in every] for _ in range(2)]
    for first, again in zip(*results, strict=True):
        assert torch.equal(first, again)
    # and no call is taken for another
    assert len({tuple(each[..., :1].flatten().tolist()) for each in results[0]}) == len(every)


# -- refusals --------------------------------------------------------------------------------------------------------


def x_(*shape, dtype=torch.float16) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


Q, K = x_(2, 4, 1, 8), x_(2, 2, 9, 8)
POOL, TABLE = x_(5, 2, 16, 8), x_(2, 3, dtype=torch.int32)


@pytest.mark.parametrize(
    ("operands", "words", "error", "message"),
    [
        (
            (x_(2, 4, 128, 8), K, K),
            {},
            ValueError,
            r"query: expected at most 127 queries \(flex_attention takes more\)",
        ),
        ((x_(2, 3, 1, 8), K, K), {}, ValueError, "key: expected a number of heads that divides the 3 of query, got 2"),
        ((Q, K, K), {"enable_gqa": False}, ValueError, r"key: expected 4 heads as query has \(enable_gqa=True"),
        ((Q, x_(3, 2, 9, 8), x_(3, 2, 9, 8)), {}, ValueError, "key: expected a batch of 1 or of 2 as query has, got 3"),
        ((Q, K, x_(2, 2, 8, 8)), {}, ValueError, r"value: expected shape \(2, 2, 9, 8\) \[B, Hkv, N, Dv\]"),
        ((Q, x_(2, 2, 9, 7), K), {}, ValueError, r"key: expected shape \(2, 2, 9, 8\) \[B, Hkv, N, D\], got"),
        ((x_(4, 1, 8), K, K), {}, ValueError, r"query: expected 4 dimensions \[B, H, M, D\]"),
        ((Q, K, K.float()), {}, ArgumentError, "value: expected torch.float16 as query has"),
        ((Q.double(), K.double(), K.double()), {}, ArgumentError, "query: expected torch.float16 or"),
        (
            (x_(1, 1, 1, 257), x_(1, 1, 4, 257), x_(1, 1, 4, 8)),
            {},
            ValueError,
            "query: expected 1 to 256 elements in a row",
        ),
        ((Q, x_(2, 2, 8, 9).mT, K), {}, ValueError, "key: expected a last stride of 1"),
        ((Q, K, K), {"kv_lens": x_(2)}, ArgumentError, "kv_lens: expected torch.int32, got torch.float16"),
        ((Q, K, K), {"kv_lens": [1, 2]}, ArgumentError, "kv_lens: expected a tensor, got list"),
        (
            (Q, K, K),
            {"kv_lens": x_(3, dtype=torch.int32)},
            ValueError,
            r"kv_lens: expected shape \(2,\) \[B\], got \(3,\)",
        ),
        (
            (Q, x_(5, 2, 24, 8), x_(5, 2, 24, 8)),
            {"page_table": TABLE},
            ValueError,
            "key: expected pages of a power of two of rows, got 24",
        ),
        ((Q, POOL, POOL), {"page_table": TABLE[:1]}, ValueError, r"page_table: expected shape \(2, 3\) \[B, pages\]"),
        ((Q, POOL, POOL), {"page_table": TABLE.long()}, ArgumentError, "page_table: expected torch.int32"),
        ((Q, K, K), {"splits": 0}, ValueError, "splits: expected 1 to 1024, got 0"),
        ((Q, K, K), {"splits": True}, ArgumentError, "splits: expected an int"),
        ((Q, K, K), {"scale": "1"}, ArgumentError, "scale: expected a number"),
        ((Q, K, K), {"window": -1}, ValueError, "window: expected distances of at least 0"),
        ((Q, K, K), {"score_mod": lambda s, *_: s}, ArgumentError, "score_mod: expected a modification"),
        ((Q, K, K), {"kernel_options": {"BLOCK": 3}}, ValueError, "kernel_options: expected BLOCK_M"),
        ((Q, K, K), {"block_mask": "causal"}, ArgumentError, "block_mask: expected a BlockMask"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses(operands, words, error, message):
    with pytest.raises(error, match=message):
        flex_decoding(*operands, **{"enable_gqa": True, **words})


def test_refuses_words_beside_a_block_mask():
    mask = create_block_mask(Causal(), None, None, 1, 9, "cpu")
    with pytest.raises(ValueError, match="block_mask: expected None with is_causal or window, got a mask"):
        flex_decoding(Q, K, K, block_mask=mask, enable_gqa=True, is_causal=True)


def test_refuses_a_mask_of_other_heads():
    mask = create_block_mask(by_head, None, 3, 1, 9, "cpu")
    with pytest.raises(ValueError, match="block_mask: expected a mask for 1 or 4 heads, got 3"):
        flex_decoding(Q, K, K, block_mask=mask, enable_gqa=True)


def test_refuses_to_drop_a_gradient():
    q, k, v = make(1, 1, 1, 1, 5, 16)
    with pytest.raises(NotImplementedError, match="flex_decoding has no gradients"):
        flex_decoding(q.requires_grad_(), k, v)
    with torch.no_grad():
        assert flex_decoding(q, k, v).shape == q.shape


# -- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("return_lse", [False, True])
def test_operator_is_sound(return_lse):
    q, k, v = make(2, 2, 1, 3, 40, 16, v_dim=24)
    k_pool, v_pool, table = paged(k, v, 16)
    lens = torch.tensor([33, 40], dtype=torch.int32)
    nothing = (None,) * 6
    words = (None, True, return_lse, 2, "band", -5, 0, True, 128, None, [], [])
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    operator = torch.ops.nojit.flex_decoding.default
    torch.library.opcheck(operator, (q, k_pool, v_pool, lens, table, *nothing, *words), test_utils=checks)


@pytest.mark.parametrize("mask", [Causal(), lambda b, h, q, k: (q - k) % 3 == 0])
def test_fake_tensors_have_a_fake_output(mask):
    block_mask = create_block_mask(mask, None, None, 3, 40, "cpu")
    with FakeTensorMode():
        q, k, v = make(2, 2, 1, 3, 40, 16)
        out, lse = flex_decoding(q, k, v, block_mask=block_mask, enable_gqa=True, return_lse=True)
        assert (out.shape, lse.shape) == (q.shape, q.shape[:3])
        assert isinstance(out, FakeTensor)


def test_traces_without_a_graph_break():
    q, k, v = make(2, 2, 1, 3, 40, 16)
    lens = torch.tensor([33, 40], dtype=torch.int32)
    words = {"enable_gqa": True, "is_causal": True, "return_lse": True}
    traced = torch.compile(lambda *x: flex_decoding(*x[:3], kv_lens=x[3], **words), backend="eager", fullgraph=True)
    expected = flex_decoding(q, k, v, kv_lens=lens, **words)
    for got, right in zip(traced(q, k, v, lens), expected, strict=True):
        assert torch.equal(got, right)


def test_traces_masks_and_modifications():
    q, k, v = make(1, 2, 1, 1, 40, 16)
    mask = create_block_mask(dilated, None, None, 1, 40, "cpu")
    words = {"enable_gqa": True, "block_mask": mask, "score_mod": Chain(SoftCap(2.0), Alibi(torch.rand(2)))}
    traced = torch.compile(lambda *x: flex_decoding(*x, **words), backend="eager", fullgraph=True)
    assert torch.equal(traced(q, k, v), flex_decoding(q, k, v, **words))


def test_autocast_lowers_operands():
    q, k, v = make(1, 2, 2, 3, 40, 16)
    with torch.autocast("cpu", torch.bfloat16):
        out = flex_decoding(q, k, v)
    assert torch.equal(out, flex_decoding(q.bfloat16(), k.bfloat16(), v.bfloat16()))


# -- problems, and splits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem",
    [
        DecodingProblem(Shape("pages", 2, 4, 2, 2, 512, 64, "causal", page=16), "flex_decoding"),
        DecodingProblem(Shape("one", 2, 4, 2, 1, 512, 64), "flex_decoding_one"),
        DecodingProblem(Shape("causal", 1, 4, 1, 5, 256, 64, "causal"), "flex_decoding"),
        DecodingProblem(Shape("dilated", 1, 4, 2, 2, 512, 64, "dilated"), "flex_decoding_blocks"),
        DecodingProblem(Shape("other", 1, 4, 2, 2, 512, 64, "every other"), "flex_decoding_blocks"),
        MergeProblem(Shape("merge", 1, 2, 2, 1, 1280, 64), "flex_decoding_merge"),
    ],
    ids=lambda problem: problem.name,
)
def test_problems_say_what_launches_write(interpreter, problem):
    work = problem.prepare("cpu")
    assert work.kernel == problem.kernel
    interpreter(work.kernel)(*work.args, **work.named)
    for output, expected, tolerance in zip(work.outputs, work.expected, work.tolerances, strict=True):
        assert output.shape == expected.shape
        assert tolerance < 0.1
        assert (output.float() - expected).abs().max() <= tolerance


ONE_COSTS = costs_of_one(128, row_bytes=512, part_bytes=4 * 144 * 4)


@given(st.integers(1, 5_000), st.integers(1, 1 << 20), st.sampled_from([1, 20, 108, 132, 148]))
def test_splits_fill_waves_and_are_never_empty(programs, keys, processors):
    # programs of the model in nanoseconds share the memory's bandwidth: a part of the SMs can take up all of it
    for costs, busy in ((TILES, 2), (ONE_COSTS, 4)):
        splits = splits_of(programs, keys, processors, costs)
        steps = -(-keys // costs.keys)
        assert 1 <= splits <= min(steps, MOST)
        if programs >= 2 * WAVES * 2 * processors:
            assert splits == 1
        if programs <= processors and steps >= 16 * processors:
            assert busy * programs * splits > processors, "most of the device would be idle"


@pytest.mark.parametrize(
    ("programs", "keys", "splits", "splits_of_one"), [(128, 8192, 1, 1), (512, 4096, 1, 1), (8, 65536, 16, 49)]
)
def test_splits_of_what_speed_is_promised_for(programs, keys, splits, splits_of_one):
    assert splits_of(programs, keys, 132, TILES) == splits
    assert splits_of(programs, keys, 132, ONE_COSTS) == splits_of_one


def test_the_model_of_one_query_has_the_tiles_of_the_manifest():
    (kernel,) = (each for each in load_manifest(MANIFEST).kernel if each.name == launch.ONE)
    variants = expand_kernel(kernel, "sm_90", "here").variants
    tiles = {dict(each.axes)["BLOCK_D"]: dict(each.config.constexprs)["BLOCK_N"] for each in variants}
    assert tiles == {width: costs_of_one(width, 1, 1).keys for width in (64, 128, 256)}


def test_longer_merges_give_fewer_splits():
    found = [splits_of(8, 4096, 132, replace(ONE_COSTS, merge=merge)) for merge in (0.0, 2e3, 1e5)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] == 1
