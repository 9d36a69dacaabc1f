"""Score modifications of one's own, interpreted: alone, with the library's, with every mask, decoded, and what is refused."""

from __future__ import annotations

import itertools

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.flex import (
    Alibi,
    Causal,
    Chain,
    CustomMod,
    DenseBias,
    Prefix,
    SoftCap,
    alibi_slopes,
    create_block_mask,
    flex_attention,
    op,
    reference,
)
from nojit.kernels.flex_decoding import flex_decoding
from nojit.kernels.score_mod.mods import LIGHT, NO_SLOT, Slot

from tests.kernels.accuracy import assert_accurate
from tests.kernels.flex_own_mods import MINE, THEN_CAP, my_mod, then_cap, write_manifests
from tests.kernels.interpreter import Interpreter

Q_LEN, KV_LEN, HEADS = 20, 40, 4
# the function, how many heads differ, and the block size
MASKS = {
    "none": None,
    "causal": (Causal(), None, 128),
    "prefix": (Prefix(torch.tensor(33)), None, 128),
    "a bitmap": (lambda b, h, q, k: (q - k) % 3 == 0, None, 128),
    "a bitmap for each head": (lambda b, h, q, k: ((q - k) % 3 == h % 3) & (k < q + 40), HEADS, 64),
}


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    # the forward kernel over pointers runs by another function what those for few registers are for
    write_manifests(folder, (MINE, THEN_CAP, LIGHT.name))
    interpreter = Interpreter(folder)
    yield interpreter
    interpreter.close()


@pytest.fixture(autouse=True)
def launched(interpreter):
    """Have operators take their kernels from those manifests; give the names of those that they launch."""
    names = []

    def provide(name):
        kernel = interpreter(name)
        return lambda *args, **named: names.append(name) or kernel(*args, **named)

    with library.override(provide):
        yield names


def operands(dtype=torch.float32, dim=24, v_dim=40, q_len=Q_LEN, kv_len=KV_LEN):
    sizes = (HEADS, q_len, dim), (2, kv_len, dim), (2, kv_len, v_dim)
    return [torch.randn(2, *size).to(dtype) for size in sizes]


def mask_of(name, q_len=Q_LEN, kv_len=KV_LEN):
    if MASKS[name] is None:
        return None, None
    function, heads, block = MASKS[name]
    return create_block_mask(function, None, heads, q_len, kv_len, "cpu", block), function


@pytest.mark.parametrize("mod", [my_mod(torch.randn(HEADS)), then_cap(torch.randn(HEADS), 0.7)])
def test_attends_and_differentiates(mod):
    inputs = [each.requires_grad_() for each in operands()]
    out = flex_attention(*inputs, mod, enable_gqa=True)
    found = torch.autograd.grad(out.sum(), inputs)

    exact = reference.flex_attention(*inputs, mod)[0]
    torch.testing.assert_close(out, exact, atol=1e-5, rtol=1e-4)
    for ours, theirs in zip(found, torch.autograd.grad(exact.sum(), inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_the_library_s_functions_can_be_named():
    inputs = operands()
    chain = Chain(SoftCap(1.0), Alibi(torch.randn(2, HEADS) * 0.1))
    lean = CustomMod(LIGHT.name, chain, chain.slots)
    torch.testing.assert_close(
        flex_attention(*inputs, lean, enable_gqa=True), reference.flex_attention(*inputs, chain)[0]
    )


@pytest.mark.parametrize(
    ("dim", "mask"), list(itertools.product((64, 128), [each for each in MASKS if each != "none"]))
)
def test_is_as_accurate_as_torch_with_masks_in_sixteen_bits(dim, mask):
    mine = my_mod(torch.randn(HEADS))
    block_mask, function = mask_of(mask)
    inputs = [each.requires_grad_() for each in operands(torch.float16, dim, dim)]
    out = flex_attention(*inputs, mine, block_mask, enable_gqa=True)
    grad = torch.randn_like(out)
    found = out.detach(), *torch.autograd.grad(out, inputs, grad)
    results = []
    for kind in (torch.float64, torch.float16):
        own = [each.detach().to(kind).requires_grad_() for each in inputs]
        theirs = reference.flex_attention(*own, mine, function)[0]
        results.append((theirs.detach(), *torch.autograd.grad(theirs, own, grad.to(kind))))
    for factor, ours, exact, torchs in zip((2, 3, 3, 3), found, *results, strict=True):
        assert_accurate(ours, exact, torchs, factor)


@pytest.mark.parametrize("mask", ["none", "a bitmap"])
@pytest.mark.parametrize("mod", [my_mod(torch.randn(HEADS)), then_cap(torch.randn(HEADS), 0.7)])
def test_decodes(mod, mask):
    q, k, v = operands(torch.float16, 64, 64, 3)
    block_mask, function = mask_of(mask, 3)
    exact = reference.flex_attention(q.double(), k.double(), v.double(), mod, function)[0]
    torchs = reference.flex_attention(q, k, v, mod, function)[0]
    assert_accurate(flex_decoding(q, k, v, mod, block_mask, enable_gqa=True), exact, torchs)


@pytest.mark.parametrize("mask", ["none", "causal", "a bitmap"])
def test_few_queries_of_many_keys_are_decoded(mask, launched, monkeypatch):
    monkeypatch.setattr(op, "MIN_DECODED_KEYS", KV_LEN)
    inputs = operands(q_len=3)
    block_mask, function = mask_of(mask, 3)
    mine = my_mod(torch.randn(HEADS))
    out = flex_attention(*inputs, mine, block_mask, enable_gqa=True)

    assert launched[0] == ("flex_decoding_blocks" if mask == "a bitmap" else "flex_decoding")
    torch.testing.assert_close(out, reference.flex_attention(*inputs, mine, function)[0], atol=1e-5, rtol=1e-4)
    # where gradients are wanted there is no decoding
    flex_attention(*(each.requires_grad_() for each in inputs), mine, block_mask, enable_gqa=True)
    assert launched[-1] == "flex_attention_fwd"


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("q_len", [3, Q_LEN])
@pytest.mark.parametrize("what", ["table", "bias"])
def test_what_it_captures_has_no_gradients(what, q_len, deterministic, monkeypatch):
    monkeypatch.setattr(op, "MIN_DECODED_KEYS", KV_LEN)
    tensor = torch.zeros((HEADS,) if what == "table" else (1, 1, q_len, KV_LEN), requires_grad=True)
    slots = (Slot(0, tensor if what == "table" else torch.zeros(HEADS), value=0.5), NO_SLOT)
    mine = CustomMod(MINE, lambda s, b, h, q, k: s, slots, tensor if what == "bias" else None)
    inputs = operands(q_len=q_len)
    with pytest.raises(
        NotImplementedError, match="captured tensors have gradients only in modifications of the library"
    ):
        flex_attention(*inputs, mine, enable_gqa=True, deterministic=deterministic)
    with torch.no_grad():
        flex_attention(*inputs, mine, enable_gqa=True)


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_chain_says_how_to_have_one_of_ones_own(place):
    mine = my_mod(alibi_slopes(HEADS))
    mods = {"first": DenseBias(torch.zeros(1, 1, 1, 1)), "second": SoftCap(1.0)} | {place: mine}
    with pytest.raises(TypeError, match=f"{place}: expected one modification of the library .*CustomMod"):
        Chain(**mods)
