"""Which keys a query sees: as numbers, as tiles, and in what comes out."""

# ruff: noqa: PLR0917 - a test of a mask has its facts

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.kernels.attention.band_masks import BandMask, band_mask_of
from nojit.kernels.flash_attention import flash_attention, reference
from nojit.kernels.problem import requested
from nojit.runtime.errors import ArgumentError

from tests.kernels.accuracy import assert_accurate

CPU = torch.device("cpu")
lengths = st.integers(0, 40)
sides = st.none() | st.integers(0, 45)
alignments = st.sampled_from(["top_left", "bottom_right"])


@given(lengths, lengths, st.booleans(), alignments, sides, sides)
def test_a_mask_hides_what_the_call_hides(q_len, kv_len, is_causal, alignment, left, right):
    mask = band_mask_of(q_len, kv_len, is_causal, alignment, left, right)
    words = {"is_causal": is_causal, "causal_alignment": alignment, "window": (left, right)}
    rows, keys = torch.arange(q_len)[:, None], torch.arange(kv_len)
    seen = torch.ones(q_len, kv_len, dtype=torch.bool)
    if mask.mode != "none":
        seen &= keys <= rows + mask.right
    if mask.mode == "window":
        seen &= keys >= rows + mask.left
    assert torch.equal(seen, reference.visible(q_len, kv_len, CPU, **words))


@pytest.mark.parametrize(
    ("sizes", "words", "mask"),
    [
        ((8, 8), (False, "top_left", None, None), BandMask("none", 0, 0)),
        ((8, 8), (True, "top_left", None, None), BandMask("causal", 0, 0)),
        ((4, 9), (True, "bottom_right", None, None), BandMask("causal", 0, 5)),
        # one query at the end sees all
        ((1, 9), (True, "bottom_right", None, None), BandMask("none", 0, 0)),
        ((8, 8), (False, "top_left", None, 3), BandMask("causal", 0, 3)),
        ((8, 8), (True, "top_left", 2, 3), BandMask("window", -2, 0)),
        ((8, 8), (True, "top_left", 7, 0), BandMask("causal", 0, 0)),
        ((8, 8), (False, "top_left", 7, 7), BandMask("none", 0, 0)),
        ((8, 8), (False, "top_left", 2, None), BandMask("window", -2, 8)),
        # far bounds stay small: sums with them are taken in 32 bits
        ((8, 9), (False, "top_left", 2, 2**40), BandMask("window", -2, 9)),
        ((8, 9), (False, "top_left", 2**40, 2), BandMask("causal", 0, 2)),
    ],
)
def test_a_bound_that_hides_nothing_is_dropped(sizes, words, mask):
    assert band_mask_of(*sizes, *words) == mask


@pytest.fixture(scope="module")
def tiles():
    """The kernels' helpers, computing with Python's integers."""
    pytest.importorskip("triton")
    from nojit.kernels.attention import kernel_tiles

    patch = pytest.MonkeyPatch()
    integers = SimpleNamespace(
        minimum=min, maximum=max, cdiv=lambda a, b: -(-a // b), where=lambda condition, a, b: a if condition else b
    )
    patch.setattr(sys.modules[kernel_tiles.__name__], "tl", integers)
    yield kernel_tiles
    patch.undo()


@given(
    st.integers(0, 9).map(lambda tile: tile * 8),
    st.integers(-90, 90),
    st.integers(-90, 90),
    st.integers(0, 90),
    st.sampled_from([4, 8, 16]),
    st.tuples(st.booleans(), st.booleans()),
)
def test_tiles_hold_what_is_seen_and_full_ones_nothing_else(tiles, start, left, right, count, step, has):
    has_left, has_right = has
    first, full_first, full_last, last = tiles.span_of.fn(start, left, right, count, 8, step, *has)
    assert first % step == full_first % step == full_last % step == 0
    assert 0 <= first <= full_first <= full_last

    def sees(place: int, at: int) -> bool:
        above = at >= place + left or not has_left
        return above and (at <= place + right or not has_right)

    own = range(start, start + 8)
    seen = [any(sees(place, at) for place in own) for at in range(count)]
    assert not any(seen[:first])
    assert not any(seen[max(last, 0) :])
    for at in range(full_first, full_last):
        assert at < count
        assert all(sees(place, at) for place in own)
    # of what is left out, the tiles that are masked, each once and in order
    masked = [
        tiles.hidden_tile.fn(place, full_first, full_last, has_left)
        for place in range(first, last - (full_last - full_first), step)
    ]
    full = range(full_first, full_last, step)
    assert sorted([*masked, *full]) == list(range(first, max(last, first), step))


WINDOWS = (5, (0, 0), (20, None), (None, 3), (70, 2))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("is_causal", "alignment"), [(False, "top_left"), (False, "bottom_right"), (True, "top_left")])
@pytest.mark.parametrize(("q_len", "kv_len"), [(150, 130), (33, 140), (140, 20)])
def test_windows(q_len, kv_len, window, is_causal, alignment):
    words = {"is_causal": is_causal, "causal_alignment": alignment, "window": window}
    q, k, v = (torch.randn(1, heads, length, 16) for heads, length in ((2, q_len), (1, kv_len), (1, kv_len)))
    out, lse = flash_attention(q, k, v, return_lse=True, **words)
    exact, exact_lse = reference.flash_attention(q.double(), k.double(), v.double(), **words)
    torchs, _ = reference.flash_attention(q, k, v, **words)
    assert_accurate(out, exact, torchs)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("interpreted")
def test_a_window_on_the_kernel_for_sm_90_goes_over_pointers(monkeypatch):
    monkeypatch.setattr("nojit.kernels.flash_attention.launch.maps_of", lambda *_: pytest.fail("asked for maps"))
    q = torch.zeros(1, 1, 40, 16)
    launch, _ = requested(lambda: flash_attention(q, q, q, window=3))
    assert launch.kernel == "flash_attention_fwd"
    assert launch.named["MASK"] == "window"


@pytest.mark.parametrize(
    ("window", "error", "message"),
    [
        (-1, ValueError, r"window: expected distances of at least 0, got -1"),
        ((3, -2), ValueError, r"window: expected distances of at least 0, got \(3, -2\)"),
        ((1, 2, 3), ArgumentError, r"window: expected an int, or a tuple of two ints or None.*\(1, 2, 3\)"),
        (True, ArgumentError, "window: expected an int, or a tuple"),
        (2.0, ArgumentError, "window: expected an int, or a tuple"),
    ],
)
def test_refuses_other_windows(window, error, message):
    q = torch.zeros(1, 1, 4, 16)
    with pytest.raises(error, match=message):
        flash_attention(q, q, q, window=window)
