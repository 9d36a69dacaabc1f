"""Block masks: tables that tell what the function says, in the mode that is fastest, and torch's own lists."""

from __future__ import annotations

import copy
import io
import itertools
import pickle

import pytest
import torch
from nojit.kernels.block_mask import evaluation, masks
from nojit.kernels.block_mask.masks import tables_of
from nojit.kernels.block_mask.tables import _UNREAD
from nojit.kernels.calls.torch_state import is_real
from nojit.kernels.flex import (
    BlockMask,
    Causal,
    Documents,
    Prefix,
    Window,
    and_masks,
    create_block_mask,
    op,
    or_masks,
    reference,
)
from nojit.runtime.errors import ArgumentError
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as torchs

CPU = torch.device("cpu")
IDS = torch.tensor([0] * 40 + [1] * 200 + [2] * 57)
PIECES = torch.cat([IDS[:100], IDS[:197]])
# the function, how many batches and heads differ, and the mode that its tables are to have
MASKS = {
    "causal": (Causal(), None, None, "band"),
    "causal at the end": (Causal(167), None, None, "band"),
    "causal from below": (Causal(-30), None, None, "band"),
    "window": (Window(20, 7), None, None, "band"),
    "left window": (Window(20, None, -5), None, None, "band"),
    "a function that is causal": (lambda b, h, q, k: q >= k, None, None, "band"),
    "everything": (and_masks(), None, None, "band"),
    "nothing": (or_masks(), None, None, "band"),
    "prefix": (Prefix(torch.tensor(77)), None, None, "interval"),
    "prefixes": (Prefix(torch.tensor([3, 150])), 2, None, "interval"),
    "documents": (Documents(IDS), None, None, "interval"),
    "documents of batches": (Documents(torch.stack([IDS, IDS.flip(0)])), 2, None, "interval"),
    "causal documents": (and_masks(Causal(), Documents(IDS)), None, None, "interval"),
    "heads that see more": (lambda b, h, q, k: (q - k).abs() <= h * 40, None, 3, "interval"),
    "heads alike": (lambda b, h, q, k: (q - k).abs() <= 40, 2, 3, "band"),
    "documents in pieces": (Documents(PIECES), None, None, "bitmap"),
    "dilated": (lambda b, h, q, k: (q - k) % 3 == 0, None, None, "bitmap"),
    "a head of its own": (lambda b, h, q, k: (q - k) % (h + 2) == b, 2, 2, "bitmap"),
    "window and sinks": (or_masks(Window(10, 10), lambda b, h, q, k: k < 13), None, None, "bitmap"),
}


class OfFewKeys(Causal):
    """A mask of the caller's own that forgets a key."""

    def spans(self, batch, q_len, kv_len, device):
        return super().spans(batch, q_len, kv_len - 1, device)


def dense(tables, q_len, kv_len):
    """What tables let through, as both of their sides say."""
    rows, keys = torch.arange(q_len)[:, None], torch.arange(kv_len)
    if tables.mode == "band":
        return ((keys >= rows + tables.left) & (keys <= rows + tables.right))[None, None]
    if tables.mode == "interval":
        by_query, by_key = tables.by_query.spans, tables.by_key.spans.transpose(-1, -2)
        seen = (keys >= by_query[..., :1]) & (keys < by_query[..., 1:])
        assert torch.equal(seen, (rows >= by_key[..., :1, :]) & (rows < by_key[..., 1:, :]))
        return seen
    one, *others = (of_blocks(tables, side, q_len, kv_len) for side in (0, 1))
    if tables.block == 128:
        others.append(of_visits(tables, q_len, kv_len))
    assert all(torch.equal(one, other) for other in others)
    return one


def of_blocks(tables, side, q_len, kv_len):
    """What the lists of one side let through."""
    block = tables.block
    spans, blocks = (tables.by_query, tables.by_key)[side]
    seen = torch.zeros(tables.batches, tables.heads, q_len + block, kv_len + block, dtype=torch.bool)
    for batch, head, row in itertools.product(*map(range, spans.shape[:3])):
        start, full, count = spans[batch, head, row].tolist()
        for entry in range(count):
            col, bitmap = blocks[start + entry].tolist()
            assert (bitmap == -1) == (entry < full)
            words = tables.bits[bitmap].long()[:, :, None] >> torch.arange(32)
            bits = torch.ones(block, block, dtype=torch.bool) if bitmap < 0 else (words & 1).bool().flatten(1)
            top, left = (col, row) if side else (row, col)
            seen[batch, head, top * block : (top + 1) * block, left * block : (left + 1) * block] = bits
    assert not seen[..., q_len:, :].any()
    assert not seen[..., kv_len:].any()
    return seen[..., :q_len, :kv_len]


def of_visits(tables, q_len, kv_len):
    """What the visits let through; they come in the order of queries, and count whom they find there."""
    spans = tables.by_key.spans
    seen = torch.zeros(tables.batches, tables.heads, q_len + 128, kv_len + 128, dtype=torch.bool)
    for batch, head in itertools.product(*map(range, spans.shape[:2])):
        been = [0] * (q_len // 128 + 1)
        for key, (start, _, count) in enumerate(spans[batch, head].tolist()):
            visits = tables.visits[start : start + count].tolist()
            assert visits == sorted(visits)
            for row, bitmap, before in visits:
                assert before == been[row]
                been[row] += 1
                words = tables.bits[bitmap].long()[:, :, None] >> torch.arange(32)
                bits = (words & 1).bool().flatten(1).T if bitmap >= 0 else torch.tensor(True)
                seen[batch, head, row * 128 : row * 128 + 128, key * 128 : key * 128 + 128] = bits
    return seen[..., :q_len, :kv_len]


def lists(mask):
    names = ("kv_num_blocks", "kv_indices", "q_num_blocks", "q_indices")
    return [getattr(mask, prefix + name) for prefix in ("", "full_") for name in names]


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("q_len", "kv_len", "size"), [(297, 297, 128), (130, 297, (32, 48))])
def test_tables_tell_what_the_function_says(name, q_len, kv_len, size):
    function, batches, heads, mode = MASKS[name]
    mask = create_block_mask(function, batches, heads, q_len, kv_len, "cpu", size)
    expected = reference.seen(function, batches or 1, heads or 1, q_len, kv_len, CPU)

    tables = tables_of(mask, q_len, kv_len, CPU)

    assert torch.equal(dense(tables, q_len, kv_len).expand_as(expected), expected)
    if q_len == kv_len:
        assert tables.mode == mode
    torch_mask = torchs.create_block_mask(function, batches, heads, q_len, kv_len, "cpu", size)
    for ours, theirs in zip(lists(mask), lists(torch_mask), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    of_torchs = tables_of(torch_mask, q_len, kv_len, CPU)
    assert of_torchs.mode == tables.mode
    assert torch.equal(dense(of_torchs, q_len, kv_len).expand_as(expected), expected)


def test_it_is_torchs_own_object():
    mask = create_block_mask(Causal(), None, None, 200, 300, "cpu")

    assert type(mask) is BlockMask is torchs.BlockMask
    assert mask.shape == (1, 1, 200, 300)
    assert torch.equal(mask.to_dense(), torchs.create_block_mask(Causal(), None, None, 200, 300, "cpu").to_dense())


def test_full_blocks_are_seen_whole_whatever_the_function_says():
    count, index = torch.ones(1, 1, 2, dtype=torch.int32), torch.tensor([[[[0, 1], [1, 0]]]], dtype=torch.int32)
    full = index.flip(-1)
    mask = BlockMask.from_kv_blocks(count, index, count, full, 128, lambda b, h, q, k: (q + k) % 2 == 0)

    found = dense(tables_of(mask, 256, 256, CPU), 256, 256)[0, 0]

    places = torch.arange(256)
    parity = (places[:, None] + places) % 2 == 0
    same_block = places[:, None] // 128 == places // 128
    assert torch.equal(found, torch.where(same_block, parity, True))


def test_bitmaps_that_are_equal_are_stored_once(monkeypatch):
    monkeypatch.setattr(evaluation, "_PAIRS", 1)  # a strip for each block row
    mask = create_block_mask(lambda b, h, q, k: (q - k) % 4 == 0, 2, 2, 512, 512, "cpu")

    tables = tables_of(mask, 512, 512, CPU)

    # as it is, and with rows and columns swapped
    assert tables.bits.shape == (2, 128, 4)
    expected = reference.seen(mask.mask_mod, 2, 2, 512, 512, CPU)
    assert torch.equal(dense(tables, 512, 512).expand_as(expected), expected)


def test_intervals_that_leave_gaps_between_blocks_are_bitmaps():
    # neighbours see keys far apart: as intervals, a tile would visit all between them
    far = lambda b, h, q, k: k // 8 == (q % 2) * 60 + (q * 0)  # noqa: E731
    mask = create_block_mask(far, None, None, 4, 512, "cpu")

    assert tables_of(mask, 4, 512, CPU).mode == "bitmap"


def test_tables_follow_the_function_and_the_lists():
    mask = create_block_mask(Causal(), None, None, 128, 128, "cpu")
    before = tables_of(mask, 128, 128, CPU)

    assert tables_of(mask, 128, 128, CPU) is before
    mask.mask_mod = lambda b, h, q, k: q > k
    after = tables_of(mask, 128, 128, CPU)

    assert after is not before
    assert torch.equal(dense(after, 128, 128)[0, 0], torch.ones(128, 128).tril(-1).bool())


@pytest.mark.parametrize("make", [create_block_mask, torchs.create_block_mask])
@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda mask: pickle.loads(pickle.dumps(mask)),
        lambda mask: torch.load(saved(mask), weights_only=False),
    ],
)
def test_a_mask_with_tables_can_be_copied_and_stored(make, copied):
    mask = make(Prefix(torch.tensor(9)), None, None, 20, 20, "cpu")
    before = tables_of(mask, 20, 20, CPU)
    after = tables_of(copied(mask), 20, 20, CPU)

    assert torch.equal(dense(before, 20, 20), dense(after, 20, 20))
    assert tables_of(mask, 20, 20, CPU) is before


def saved(mask):
    stored = io.BytesIO()
    torch.save(mask, stored)
    stored.seek(0)
    return stored


@pytest.mark.parametrize("mask", [None, lambda b, h, q, k: q >= k, lambda b, h, q, k: (q - k) % 3 == 0])
def test_no_transform_or_mode_leaves_its_tensors_behind(mask):
    block_mask = None if mask is None else torchs.create_block_mask(mask, None, None, 20, 20, "cpu")

    def call(x):
        tables_of(block_mask, 20, 20, CPU)
        return x.sum()

    _UNREAD.clear()
    torch.func.grad(call)(torch.ones(2))
    with FakeTensorMode():
        tables_of(None, 20, 20, CPU)
    assert all(map(is_real, tables_of(block_mask, 20, 20, CPU).tensors))


def test_the_first_use_of_torchs_mask_is_not_traced():
    mask = torchs.create_block_mask(Causal(), None, None, 20, 20, "cpu")
    traced = torch.compile(lambda x: tables_of(mask, 20, 20, CPU).left + x, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match="use it once without"):
        traced(torch.ones(2))
    tables_of(mask, 20, 20, CPU)
    assert torch.equal(traced(torch.zeros(1)), torch.tensor([-20.0]))


def test_a_mask_that_hides_nothing_may_have_any_length():
    endless = torchs._create_empty_block_mask(torch.zeros(1, 1, 7, 8), torch.zeros(1, 1, 9, 8))

    for mask in (None, endless):
        tables = tables_of(mask, 7, 9, CPU)
        assert dense(tables, 7, 9).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: create_block_mask(3, None, None, 4, 4, "cpu"), ArgumentError, "mask_mod: expected a function of"),
        (lambda: create_block_mask(Causal(), None, None, 0, 4, "cpu"), ValueError, "Q_LEN: expected at least 1, got 0"),
        (lambda: create_block_mask(Causal(), 1.5, None, 4, 4, "cpu"), ArgumentError, "B: expected an int"),
        (
            lambda: create_block_mask(Causal(), None, None, 4, 4, "cpu", 0),
            ValueError,
            "BLOCK_SIZE: expected at least 1",
        ),
        (
            lambda: create_block_mask(Causal(), None, None, 4, 4, "cpu", (128,)),
            ArgumentError,
            r"BLOCK_SIZE: expected an int, or a tuple of two, got \(128,\)",
        ),
        (
            lambda: create_block_mask(Causal(), None, None, 4, 4, "cpu", (128, "a")),
            ArgumentError,
            "BLOCK_SIZE: expected an int, got str",
        ),
        (
            lambda: create_block_mask(lambda b, h, q, k: q - k, None, None, 4, 4, "cpu"),
            ArgumentError,
            "mask_mod: expected a function that returns bools, got one that returns torch.int64",
        ),
        (lambda: Prefix(4), ArgumentError, "lengths: expected a tensor, got int"),
        (lambda: Prefix(torch.ones(1, 1).long()), ValueError, "lengths: expected 0 or 1 dimensions, got 2"),
        (lambda: Documents(torch.ones(4)), ArgumentError, "ids: expected integers, got torch.float32"),
        (
            lambda: create_block_mask(Documents(IDS), None, None, len(IDS) + 1, 4, "cpu"),
            ValueError,
            "ids: expected the documents of 298 positions, got 297",
        ),
        (
            lambda: create_block_mask(OfFewKeys(), None, None, 6, 8, "cpu"),
            ValueError,
            r"mask_mod.spans: cols: expected intervals \[8, 2\], got \(7, 2\)",
        ),
        (lambda: and_masks(Causal(), 1), ArgumentError, "mask_mods: expected functions of"),
        (lambda: or_masks("causal"), ArgumentError, "mask_mods: expected functions of"),
        (lambda: tables_of("causal", 4, 4, CPU), ArgumentError, "block_mask: expected a BlockMask, got 'str'|got str"),
        (
            lambda: tables_of(create_block_mask(Causal(), None, None, 4, 4, "cpu"), 4, 5, CPU),
            ValueError,
            "block_mask: expected a mask for 4 queries and 5 keys",
        ),
        (
            lambda: tables_of(create_block_mask(Causal(), None, None, 4, 4, "cpu"), 4, 4, torch.device("meta")),
            ArgumentError,
            "block_mask: expected a mask on meta",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_sliced_mask_says_what_torch_says():
    sliced = create_block_mask(Causal(), None, 2, 256, 256, "cpu")[:, 1]

    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        tables_of(sliced, 256, 256, CPU)


def test_tables_go_with_all_lists_of_a_mask():
    """A caller may give a mask other counts too."""
    mask = create_block_mask(lambda b, h, m, n: (m + n) % 7 != 0, None, None, 256, 256, device="cpu")
    before = tables_of(mask, 256, 256, torch.device("cpu"))
    assert tables_of(mask, 256, 256, torch.device("cpu")) is before
    mask.kv_num_blocks = mask.kv_num_blocks.clone()
    assert tables_of(mask, 256, 256, torch.device("cpu")) is not before


def test_a_mask_whose_tables_cannot_last_is_not_remembered_as_none(monkeypatch):
    """Nor is a call with it taken for one without a mask."""
    monkeypatch.setattr(masks, "is_real", lambda tensor: False)
    mask = torchs.create_block_mask(lambda b, h, m, n: m >= n, None, None, 128, 128, device="cpu")
    tables_of(mask, 128, 128, torch.device("cpu"))
    assert op._memo_of(mask) is None
    assert op._memo_of(None) is op._UNMASKED


@pytest.mark.parametrize(
    ("mask", "kind", "batch"),
    [
        (lambda q, k: q >= k, TypeError, 0),
        (lambda b, h, q, k: True, ValueError, 0),
        (lambda b, h, q, k: q >= k if q < 2 else k >= q, RuntimeError, 0),
        (lambda b, h, q, k: torch.zeros(1, dtype=torch.bool)[b], IndexError, 1),
        (Prefix(torch.tensor([3])), IndexError, 1),
        (Documents(torch.zeros(1, 8, dtype=torch.int64)), IndexError, 1),
    ],
    ids=["two arguments", "no tensor", "a branch", "too short a table", "too few prefixes", "too few documents"],
)
def test_errors_of_a_masks_function_say_what_was_asked(mask, kind, batch):
    with pytest.raises(kind) as caught:
        create_block_mask(mask, 2, None, 8, 8, "cpu")
    (note,) = caught.value.__notes__
    assert note.startswith(f"mask_mod: raised for batch {batch}, head 0; it takes the numbers b, h, q_idx and kv_idx")
