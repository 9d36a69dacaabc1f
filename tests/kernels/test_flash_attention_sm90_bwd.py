"""How the backward kernel for sm_90 shares out its work, as integers, and what the operator asks of it and its company."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.kernels import library
from nojit.kernels.attention.band_masks import NO_MASK, BandMask, band_mask_of
from nojit.kernels.attention.outputs import allocate_gradients
from nojit.kernels.calls import tensor_maps
from nojit.kernels.flash_attention import gradient_parts, reference
from nojit.kernels.flash_attention import launch_sm90_bwd as backward_sm90
from nojit.kernels.flash_attention.launch_bwd import launch_backward
from nojit.kernels.manifest_kernels import by_position
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

pytest.importorskip("triton")

from nojit.kernels.flash_attention import kernel_sm90_bwd as kernel

sizes = st.integers(1, 70)
lengths = st.integers(1, 3_000)
blocks = st.sampled_from([(64, 128), (128, 128)])


@pytest.fixture
def integers(monkeypatch):
    """Have the kernel's helpers compute with Python's integers."""
    words = {"minimum": min, "maximum": max, "cdiv": lambda a, b: -(-a // b), "where": lambda c, a, b: a if c else b}
    monkeypatch.setattr(kernel, "gl", SimpleNamespace(**words))


given_integers = pytest.mark.usefixtures("integers")


@given_integers
def test_each_tile_of_keys_is_done_once_and_a_heads_in_order():
    @given(sizes, sizes, lengths, st.sampled_from([1 << 10, 1 << 16]))
    def check(tiles, heads, q_len, span):
        done = [kernel.tile_of.fn(number, tiles, heads, q_len, span) for number in range(tiles * heads)]
        assert sorted(done) == [(tile, head) for tile in range(tiles) for head in range(heads)]
        for head in range(heads):
            assert [tile for tile, own in done if own == head] == list(range(tiles))

    check()


@given_integers
def test_tiles_of_queries_hold_whom_the_keys_are_seen_by():
    @given(sizes, st.tuples(lengths, lengths), st.integers(-3_000, 3_000), blocks, st.booleans())
    def check(number, both, offset, block, causal):
        (q_len, kv_len), (block_m, block_n) = both, block
        start = number * block_n
        first, whole, last = kernel._span_of.fn(start, q_len, kv_len, offset, block_m, block_n, causal)
        assert 0 <= first <= whole <= last == -(-q_len // block_m)

        def seen(row, key):
            return key < kv_len and (not causal or key <= row + offset)

        # nobody before the first sees the first key, and no tile but the last of them is walked for nothing
        assert not any(seen(row, start) for row in range(min(first * block_m, q_len)))
        if first < last and start < kv_len:
            assert seen((first + 1) * block_m - 1, start)
        # from `whole` on, all queries see all keys
        assert whole == last or (seen(whole * block_m, start) and seen(whole * block_m, start + block_n - 1))

    check()


@given_integers
def test_whoever_waits_finds_the_tile_added_to_by_all_before():
    """Tile n of keys waits, at a tile of queries, until n have been added: each before must come there too."""

    @given(lengths, lengths, st.integers(-3_000, 3_000), blocks, st.booleans())
    def check(q_len, kv_len, offset, block, causal):
        walked = [
            kernel._span_of.fn(start, q_len, kv_len, offset, *block, causal)[::2]
            for start in range(0, kv_len, block[1])
        ]
        assert all(one[0] <= other[0] and one[1] == other[1] for one, other in pairwise(walked))

    check()


# -- the operator's side -----------------------------------------------------------------------------------------------


def halves(*shape: int) -> Tensor:
    return torch.randn(shape).to(torch.bfloat16)


@pytest.fixture
def launches(monkeypatch):
    """Note launches, as if tensors lay on a device that has the kernel."""
    monkeypatch.setattr(backward_sm90, "takes_maps", lambda value: value.element_size() == 2)
    noted: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def provide(name: str):
        return lambda *args, **named: noted.append((name, *by_position(name, args, named)))

    with library.override(provide):
        yield noted


def operands(q_len: int, kv_len: int, dim: int, v_dim: int) -> list[Tensor]:
    """Make q, k, v, dout and out."""
    shapes = ((8, q_len, dim), (2, kv_len, dim), (2, kv_len, v_dim), (8, q_len, v_dim), (8, q_len, v_dim))
    return [halves(2, *shape) for shape in shapes]


def differentiate(given_, mask=NO_MASK, *, deterministic=True, dlse=None, wanted="qkv"):
    q, k, v, dout, out = given_
    gradients = allocate_gradients(q, k, v, [name in wanted for name in "qkv"])
    lse = torch.randn(q.shape[:3])
    launch_backward((dout, dlse), (q, k, v), (out, lse), gradients, 0.5, mask, deterministic)
    return lse, gradients


MERGE = "flash_attention_bwd_sm90_merge"
NAMES = ["flash_attention_bwd_sm90_prepare", "flash_attention_bwd_sm90", "flash_attention_bwd_sm90_finish"]


@pytest.fixture(params=[1, 2, 4])
def parts(request, monkeypatch) -> int:
    """Divide the four query heads of a key head into parts."""
    monkeypatch.setattr(backward_sm90, "fastest_parts", lambda *_: request.param)
    return request.param


@pytest.mark.parametrize(("dims", "width", "rows"), [((40, 64), 64, 128), ((40, 96), 128, 64), ((128, 8), 128, 64)])
def test_what_the_kernels_are_asked_for(launches, parts, dims, width, rows):
    dim, v_dim = dims
    given_ = operands(133, 70, dim, v_dim)
    dlse = torch.randn(2, 8, 133)
    lse, (dq, dk, dv) = differentiate(given_, BandMask("causal", 0, 37), dlse=dlse)
    q, k, v, dout, out = given_
    assert [launch[0] for launch in launches if launch[0] != MERGE] == NAMES
    merges = [launch for launch in launches if launch[0] == MERGE]
    prepare, gradients, finish = (launch for launch in launches if launch[0] != MERGE)
    statistics, turns = prepare[1][4:6]
    assert all(one is other for one, other in zip(prepare[1][:4], (out, dout, lse, dlse), strict=True))
    assert prepare[1][6:] == (2, 8, 133, v_dim, *out.stride()[:3], *dout.stride()[:3])
    assert prepare[2] == {"BLOCK_D": width, "BLOCK_M": rows}
    tiles = -(-133 // rows)
    assert (statistics.shape, statistics.dtype) == ((2, 2, 8, tiles * rows), torch.float32)
    assert (turns.shape, turns.dtype) == ((2, 8, tiles), torch.int32)
    described = gradients[1][:8]
    sums = described[5].base
    assert (sums.shape, sums.dtype) == (q.shape, torch.float32)
    bases = (q, k, v, dout, statistics, sums, *((dk, dv) if parts == 1 else (each.base for each in described[6:])))
    assert all(each.base is value for each, value in zip(described, bases, strict=True))
    assert all(each.strides == value.stride() for each, value in zip(described, bases, strict=True))
    assert [each.shape for each in described[6:]] == [(2, 2 * parts, 70, dim), (2, 2 * parts, 70, v_dim)]
    assert gradients[1][8] is turns
    assert gradients[1][9:] == (0.5, 37, 2, 8, 4 // parts, parts, 133, 70)
    assert gradients[2] == {"CAUSAL": True, "BLOCK_D": width, "BLOCK_M": rows}
    assert len(merges) == (parts > 1)
    for merge in merges:
        written = *(each.base for each in described[6:]), dk, dv
        assert all(one is other for one, other in zip(merge[1][:4], written, strict=True))
        assert merge[1][4:] == (parts, 2, 2, 70, dim, v_dim, *dk.stride()[:3], *dv.stride()[:3])
        assert merge[2] == {"BLOCK_D": width}
    assert all(one is other for one, other in zip(finish[1][:3], (sums, lse, dq), strict=True))
    assert finish[1][3:] == (0.5, 2, 8, 133, dim, *dq.stride()[:3])
    assert finish[2] == {"BLOCK_D": width}


@st.composite
def shared_keys(draw):
    """Return sizes of a plausible call: short and long sequences, with few or many keys for each query."""
    kv_heads, group = draw(st.integers(1, 64)), draw(st.integers(1, 32))
    q_len, kv_len = (1 << draw(st.integers(0, 19)), 1 << draw(st.integers(0, 19)))
    q_len, kv_len = q_len + draw(st.integers(0, q_len)), kv_len + draw(st.integers(0, kv_len))
    width = draw(st.sampled_from([64, 128]))
    tiles = -(-q_len // backward_sm90.QUERIES[width])
    return gradient_parts.SharedKeys(kv_heads, group, q_len, tiles, kv_len, width, draw(st.booleans()))


processors = st.integers(1, 200)


@given(shared_keys(), processors)
def test_parts_take_no_more_memory_than_q_and_dout_and_256_mib(sizes, programs):
    parts = gradient_parts.fastest_parts(sizes, programs)
    of_key_and_value = 2 * 2 * sizes.width * sizes.kv_heads
    taken = of_key_and_value * parts * sizes.kv_len
    assert parts == 1 or taken <= min(of_key_and_value * sizes.group * sizes.q_len, 1 << 28)


@pytest.mark.parametrize(("q_len", "kv_len", "most"), [(64, 200, 1), (133, 200, 2), (133, 70, 4)])
def test_few_queries_divide_no_more_than_fits_beside_them(launches, monkeypatch, q_len, kv_len, most):
    # the more parts, the faster
    monkeypatch.setattr(gradient_parts, "_microseconds", lambda sizes, parts, programs: 1 / parts)
    monkeypatch.setattr(backward_sm90, "fastest_parts", gradient_parts.fastest_parts.__wrapped__)
    q, k, v, dout, out = operands(q_len, kv_len, 40, 64)
    differentiate((q, k, v, dout, out))
    described = launches[1][1]
    assert described[6].shape[1] // k.shape[1] == most
    if most > 1:
        assert sum(each.base.nbytes for each in described[6:8]) <= q.nbytes + dout.nbytes


@given(shared_keys(), processors)
def test_parts_hold_equally_many_query_heads_and_full_waves_are_not_divided(sizes, programs):
    assert sizes.group % gradient_parts.fastest_parts(sizes, programs) == 0
    full = sizes._replace(kv_len=programs * gradient_parts.KEYS, causal=False)
    assert gradient_parts.fastest_parts(full, programs) == 1


def test_estimates_of_ever_new_lengths_are_not_all_kept():
    for length in range(1, 2_000):
        gradient_parts.fastest_parts(
            gradient_parts.SharedKeys(2, 8, length, -(-length // 64), length, 128, causal=True), programs=132
        )
    assert gradient_parts.fastest_parts.cache_info().currsize <= 1024


def test_few_tiles_of_few_key_heads_are_divided():
    sizes = gradient_parts.SharedKeys(kv_heads=2, group=8, q_len=2_048, tiles=32, kv_len=2_048, width=128, causal=False)
    assert gradient_parts.fastest_parts(sizes, programs=132) == 4
    assert gradient_parts.fastest_parts(sizes._replace(causal=True), programs=132) > 1


def test_batch_invariance_divides_nothing(launches, monkeypatch):
    monkeypatch.setattr(library, "is_batch_invariant", lambda: True)
    differentiate(operands(4_096, 70, 64, 64))
    assert launches[1][1][13:15] == (4, 1)


def test_in_any_order_sums_start_at_zero_and_nobody_takes_turns(launches):
    differentiate(operands(33, 70, 64, 64), deterministic=False)
    (_, prepare, _), (_, gradients, named), _ = launches
    assert prepare[5] is None
    assert gradients[8] is None
    assert not gradients[5].base.any()
    assert named["CAUSAL"] is False


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("k", NAMES[:2]),
        ("v", NAMES[:2]),
        ("qv", NAMES),
        ("q", ["flash_attention_bwd_delta", "flash_attention_bwd_dq"]),
    ],
)
def test_only_what_is_needed(launches, wanted, names):
    differentiate(operands(33, 70, 64, 64), wanted=wanted)
    assert [launch[0] for launch in launches] == names


def over_pointers(launches) -> bool:
    return not any("sm90" in launch[0] for launch in launches)


def test_windows_and_odd_or_unaligned_heads_are_passed_as_pointers(launches):
    differentiate(operands(33, 70, 64, 64), BandMask("window", -5, 5))
    differentiate(operands(1, 1, 36, 36))
    differentiate([value.float() for value in operands(33, 70, 64, 64)])
    for which in range(3):
        given_ = operands(33, 70, 64, 64)
        given_[which] = torch.cat([given_[which], given_[which]], 3)[..., 1:65]
        differentiate(given_)
    assert len(launches) == 6 * 3
    assert over_pointers(launches)


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: x[..., :1].expand_as(x), id="one for a row"),
        pytest.param(lambda x: x[:, :1].expand_as(x), id="one head"),
        pytest.param(lambda x: torch.cat([x, x], 3)[..., 1:65], id="unaligned"),
    ],
)
def test_a_gradient_that_no_map_describes_is_copied(launches, arrange):
    given_ = operands(33, 70, 64, 64)
    given_[3] = arrange(given_[3])
    differentiate(given_)
    assert [launch[0] for launch in launches] == NAMES
    prepared, described = launches[0][1][1], launches[1][1][3].base
    assert prepared is described
    assert torch.equal(described, given_[3])


def test_other_devices_have_no_such_kernel(monkeypatch):
    q = halves(1, 2, 16, 64)
    assert not tensor_maps.takes_maps(q)
    assert backward_sm90.gradient_maps_of(q, q, q, q, q, q) is None


# -- the kernels before and after, through Triton's interpreter -----------------------------------------------------------


def emulate(args: tuple[object, ...], named: dict[str, object]) -> None:
    """Do what the kernel for sm_90 does, from the statistics: rows that see nothing keep what their sums held."""
    q, k, v, dout, statistics, sums, dk, dv = (each.base for each in args[:8])
    turns, scale, offset, *_, group, parts, q_len, kv_len = args[8:]
    k, v = (value.double().repeat_interleave(group * parts, 1) for value in (k, v))
    lse, delta = statistics.double()[..., :q_len, None]
    weights = torch.exp2(q.double() @ k.mT * scale * 1.4426950408889634 - lse)
    if named["CAUSAL"]:
        seen = torch.arange(kv_len)[None, :] <= torch.arange(q_len)[:, None] + offset
        weights = weights.masked_fill(~seen, 0.0)
        sums[:, :, seen.any(-1)] = 0.0
    ds = weights * (dout.double() @ v.mT - delta)
    if turns is not None:
        assert not turns.any()
        sums.copy_(torch.where(weights.any(-1, keepdim=True), (ds @ k).float(), float("nan")))
    else:
        sums += ds @ k
    dk.copy_((ds.mT @ q.double() * scale).unflatten(1, (-1, group)).sum(2))
    dv.copy_((weights.mT @ dout.double()).unflatten(1, (-1, group)).sum(2))


@pytest.mark.usefixtures("interpreted", "parts")
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("dim", "with_dlse"), [(64, False), (40, True), (96, True)])
def test_the_kernels_before_and_after(monkeypatch, dim, with_dlse, deterministic):
    monkeypatch.setattr(backward_sm90, "takes_maps", lambda value: value.element_size() == 2)
    real = library.get
    found = {"flash_attention_bwd_sm90": lambda **named: emulate(*by_position("flash_attention_bwd_sm90", (), named))}
    monkeypatch.setattr(library, "get", lambda name: found.get(name) or real(name))
    q, k, v, dout, _ = operands(133, 70, dim, dim)
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    mask = band_mask_of(133, 70, True, "bottom_right", None, None)
    wide = [value.double().requires_grad_() for value in (q, k, v)]
    out, lse = reference.flash_attention(*wide, is_causal=True, causal_alignment="bottom_right")
    dlse = torch.randn(2, 8, 133).masked_fill(torch.isinf(lse), float("nan")) if with_dlse else None
    results, grads = (out, lse), (dout.double(), None if dlse is None else torch.nan_to_num(dlse.double()))
    exact = torch.autograd.grad(results[: 1 + with_dlse], wide, grads[: 1 + with_dlse])
    gradients = allocate_gradients(q, k, v, [True] * 3)
    given_ = out.detach().to(q.dtype), lse.detach().float()
    launch_backward((dout, dlse), (q, k, v), given_, gradients, dim**-0.5, mask, deterministic)
    for value, right in zip(gradients, exact, strict=True):
        # the output was rounded, and so is the gradient
        assert_accurate(value, right, right.to(value.dtype), 4.0, 0.02 * float(right.abs().max()))
    assert not gradients[0][:, :, :63].any()
