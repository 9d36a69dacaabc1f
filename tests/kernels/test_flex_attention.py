"""Flex attention over pointers, interpreted: modifications, masks, gradients, any operands, and what is refused."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from nojit.kernels.flex import (
    Alibi,
    Causal,
    Chain,
    CustomMod,
    DenseBias,
    Documents,
    Prefix,
    RelativeBias,
    SoftCap,
    Window,
    alibi_slopes,
    create_block_mask,
    flex_attention,
    reference,
)
from nojit.kernels.flex_decoding import flex_decoding
from nojit.kernels.score_mod.mods import LIGHT, NO_SLOT, Slot
from nojit.runtime.errors import ArgumentError
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.kernels.accuracy import assert_accurate

pytestmark = pytest.mark.usefixtures("interpreted")

Q_LEN, KV_LEN, HEADS, KV_HEADS = 20, 40, 4, 2
# more than one block of bitmaps, and more than one tile of queries
LONG = (70, 100)
IDS = torch.tensor([0] * 30 + [1] * 25 + [2] * 45)


def bias(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


MODS = {
    "none": None,
    "alibi": Alibi(alibi_slopes(HEADS)),
    "relative": RelativeBias(bias(HEADS, 21)),
    "relative, of batches": RelativeBias(bias(2, 1, 1)),
    "soft cap": SoftCap(0.7),
    "bias": DenseBias(bias(1, HEADS, Q_LEN, KV_LEN)),
    "bias that hides": DenseBias(bias(2, 1, 1, KV_LEN).where(torch.arange(KV_LEN) % 3 > 0, -math.inf)),
    "cap and alibi": Chain(SoftCap(1.0), Alibi(bias(2, HEADS) * 0.1)),
    "bias and cap": Chain(DenseBias(bias(2, 1, Q_LEN, 1)), SoftCap(1.0)),
    "caps": Chain(SoftCap(2.0), SoftCap(1.0)),
    "cap and relative": Chain(SoftCap(1.0), RelativeBias(bias(1, 11))),
}
# the function, how many heads differ, and the block size
MASKS = {
    "none": None,
    "causal": (Causal(), None, 128),
    "causal at the end": (Causal(30), None, 128),
    "rows that see nothing": (Window(20, 7, -30), None, 128),
    "documents": (Documents(IDS), None, 128),
    "prefix": (Prefix(torch.tensor(33)), None, 128),
    "a bitmap for each head": (lambda b, h, q, k: ((q - k) % 3 == h % 3) & (k < q + 40), HEADS, 64),
    "a bitmap": (lambda b, h, q, k: (q - k) % 3 == 0, None, 128),
}
# each modification, and each mask that other tests do not have
PAIRS = [(mod, "a bitmap for each head", (Q_LEN, KV_LEN)) for mod in MODS]
PAIRS += [("none", mask, LONG) for mask in MASKS if mask not in {"none", "causal", "a bitmap"}]


def operands(dtype=torch.float32, dim=24, v_dim=40, kv_batch=2, lengths=(Q_LEN, KV_LEN)):
    """Make queries, keys and values of two batches."""
    q_len, kv_len = lengths
    q = torch.randn(2, HEADS, q_len, dim).to(dtype)
    k, v = (torch.randn(kv_batch, KV_HEADS, kv_len, each).to(dtype) for each in (dim, v_dim))
    return q, k, v


def mask_of(name, lengths=LONG):
    if MASKS[name] is None:
        return None, None
    function, heads, block = MASKS[name]
    return create_block_mask(function, None, heads, *lengths, "cpu", block), function


@pytest.mark.parametrize(("mod", "mask", "lengths"), PAIRS)
def test_attends_and_differentiates(mod, mask, lengths):
    block_mask, function = mask_of(mask, lengths)
    # one batch of keys for all, or flash attention's kernels differentiate what is no more than a band
    kv_batch = 1 if mod in {"none", "alibi"} else 2
    hold(operands(kv_batch=kv_batch, lengths=lengths), MODS[mod], block_mask, function)


def hold(inputs, mod, block_mask, function):
    """Hold results and gradients, of log-sums too, to the exact ones."""
    inputs = [each.requires_grad_() for each in inputs]
    wide = [each.detach().double().requires_grad_() for each in inputs]

    out, lse = flex_attention(*inputs, mod, block_mask, enable_gqa=True, return_lse=True)
    exact, exact_lse = reference.flex_attention(*wide, mod, function)
    grads = torch.randn_like(out), torch.randn_like(lse).masked_fill(lse == -math.inf, 0.0)
    found = torch.autograd.grad((out, lse), inputs, grads)
    expected = torch.autograd.grad((exact, exact_lse), wide, [each.double() for each in grads])

    for ours, theirs in zip((out, lse, *found), (exact, exact_lse, *expected), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, atol=3e-5, rtol=3e-5)


# masks that differ by batch: the function, and how many heads differ
BY_BATCH = {
    "intervals": (Prefix(torch.tensor([5, 15])), None),
    "bitmaps": (lambda b, h, q, k: (q - k) % (2 + b) == 0, None),
    "bitmaps of heads": (lambda b, h, q, k: (q - k) % (2 + b) == h % 2, HEADS),
}


@pytest.mark.parametrize("name", BY_BATCH)
def test_masks_may_differ_by_batch(name):
    function, heads = BY_BATCH[name]
    block_mask = create_block_mask(function, 2, heads, Q_LEN, KV_LEN, "cpu")
    hold(operands(), None, block_mask, function)
    q, k, v = operands(v_dim=24, lengths=(3, KV_LEN))
    block_mask = create_block_mask(function, 2, heads, 3, KV_LEN, "cpu")
    decoded = flex_decoding(q, k, v, None, block_mask, enable_gqa=True)
    torch.testing.assert_close(decoded, reference.flex_attention(q, k, v, None, function)[0])


@pytest.mark.parametrize("heads", [(6, 2), (5, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("mask", ["causal", "a bitmap"])
def test_any_number_of_queries_heads_may_share_one_of_keys(heads, mask):
    block_mask, function = mask_of(mask, (Q_LEN, KV_LEN))
    q, k, v = (
        torch.randn(1, count, length, 16)
        for count, length in zip((heads[0], heads[1], heads[1]), (Q_LEN, KV_LEN, KV_LEN), strict=True)
    )
    hold((q, k, v), SoftCap(1.5), block_mask, function)


def capturing(name, dtype):
    """Make a modification whose tensors want gradients; return it and them."""
    slopes, table, one = (each.requires_grad_() for each in (bias(2, HEADS), bias(HEADS, 21), bias(1, 9)))
    values = bias(1, HEADS, Q_LEN, 1).to(dtype).requires_grad_()
    mods = {
        "alibi": (Alibi(slopes), [slopes]),
        "alibi of one batch": (Alibi(slopes[0]), [slopes]),
        "relative": (RelativeBias(table), [table]),
        "relative, shared": (RelativeBias(one), [one]),
        "bias": (DenseBias(values), [values]),
        "bias and cap": (Chain(DenseBias(values), SoftCap(1.5)), [values]),
        "relative and alibi": (Chain(RelativeBias(table), Alibi(slopes)), [table, slopes]),
        "cap and bias": (Chain(SoftCap(1.5), DenseBias(values)), [values]),
    }
    return mods[name]


@pytest.mark.parametrize(
    "name",
    [
        "alibi", "alibi of one batch", "relative", "relative, shared", "bias", "bias and cap", "relative and alibi",
        "cap and bias",
    ],
)  # fmt: skip
def test_what_is_captured_gets_gradients(name):
    block_mask, function = mask_of("causal at the end", (Q_LEN, KV_LEN))
    mod, tensors = capturing(name, torch.float32)
    inputs = operands(lengths=(Q_LEN, KV_LEN))
    out = flex_attention(*inputs, mod, block_mask, enable_gqa=True, deterministic=False)
    exact = reference.flex_attention(*inputs, mod, function)[0]
    grad = torch.randn_like(out)

    found, expected = (torch.autograd.grad(each, tensors, grad) for each in (out, exact))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)
    with pytest.raises(NotImplementedError, match="deterministic=False"):
        flex_attention(*inputs, mod, block_mask, enable_gqa=True)


@pytest.mark.parametrize("name", ["alibi", "relative and alibi", "alibi and cap", "cap and alibi"])
def test_slopes_get_exact_gradients_from_rounded_outputs(name):
    """An output of 16 bits is off by 0.4 %: what that puts into a row's gradients must not add up over distances."""
    block_mask, function = mask_of("causal at the end", (Q_LEN, KV_LEN))
    slopes = bias(2, HEADS).requires_grad_()
    mods = {
        "alibi": Alibi(slopes),
        "relative and alibi": Chain(RelativeBias(bias(HEADS, 21)), Alibi(slopes)),
        "alibi and cap": Chain(Alibi(slopes), SoftCap(1.5)),
        "cap and alibi": Chain(SoftCap(1.5), Alibi(slopes)),
    }
    inputs = [each.to(torch.bfloat16) for each in operands(lengths=(Q_LEN, KV_LEN))]
    out, lse = flex_attention(*inputs, mods[name], block_mask, enable_gqa=True, return_lse=True, deterministic=False)
    exact, exact_lse = reference.flex_attention(*(each.double() for each in inputs), mods[name], function)
    grads = torch.randn_like(out), torch.randn_like(lse).masked_fill(lse == -math.inf, 0.0)

    (found,) = torch.autograd.grad((out, lse), slopes, grads)
    (expected,) = torch.autograd.grad((exact, exact_lse), slopes, [each.double() for each in grads])
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


def test_slopes_get_nothing_from_rows_that_see_nothing():
    block_mask, function = mask_of("rows that see nothing")
    slopes = bias(2, HEADS).requires_grad_()
    inputs = operands(lengths=LONG)
    out, lse = flex_attention(*inputs, Alibi(slopes), block_mask, enable_gqa=True, return_lse=True, deterministic=False)
    exact, exact_lse = reference.flex_attention(*(each.double() for each in inputs), Alibi(slopes), function)
    blind = lse == -math.inf
    assert blind.any()
    grad, of_lse = torch.randn_like(out), torch.randn_like(lse)

    (found,) = torch.autograd.grad((out, lse), slopes, (grad, of_lse.masked_fill(blind, math.nan)))
    given = grad.double(), of_lse.masked_fill(blind, 0.0).double()
    (expected,) = torch.autograd.grad((exact, exact_lse), slopes, given)
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("mask", ["none", "causal", "rows that see nothing"])
def test_plain_bands_are_differentiated_by_flash_attention(mask, monkeypatch):
    from nojit.kernels.flex import launch_bwd

    asked = []
    plain = launch_bwd.flash.launch_backward
    monkeypatch.setattr(launch_bwd.flash, "launch_backward", lambda *args: asked.append(args) or plain(*args))
    block_mask, function = mask_of(mask)
    inputs = [each.requires_grad_() for each in operands(lengths=LONG)]
    out = flex_attention(*inputs, None, block_mask, enable_gqa=True, deterministic=False)
    exact = reference.flex_attention(*inputs, None, function)[0]
    grad = torch.randn_like(out)

    for ours, theirs in zip(*(torch.autograd.grad(each, inputs, grad) for each in (out, exact)), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    ((*_, band, deterministic),) = asked
    assert not deterministic
    assert band.mode == {"none": "none", "causal": "causal", "rows that see nothing": "window"}[mask]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mask", ["causal", "a bitmap"])
def test_is_as_accurate_as_torch(dtype, mask):
    block_mask, function = mask_of(mask)
    inputs = operands(dtype, 64, 64, lengths=LONG)
    torchs = reference.flex_attention(*inputs, MODS["soft cap"], function)[0]
    exact = reference.flex_attention(*(each.double() for each in inputs), MODS["soft cap"], function)[0]

    assert_accurate(flex_attention(*inputs, MODS["soft cap"], block_mask, enable_gqa=True), exact, torchs)


# modifications that look nothing up, and masks of every mode
LEAN = {
    "alibi": (Alibi(alibi_slopes(HEADS)), "causal"),
    "cap": (SoftCap(0.7), "a bitmap"),
    "cap and alibi": (Chain(SoftCap(1.0), Alibi(bias(2, HEADS) * 0.1)), "documents"),
    "alibi and cap": (Chain(Alibi(bias(HEADS) * 0.1), SoftCap(1.5)), "causal"),
    "alibis": (Chain(Alibi(bias(HEADS) * 0.1), Alibi(bias(2, HEADS) * 0.1)), "a bitmap"),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LEAN)
def test_gradients_of_sixteen_bits_take_the_function_of_few_registers(dtype, name, interpreted, monkeypatch):
    asked = []
    launch = interpreted.launch
    monkeypatch.setattr(
        interpreted,
        "launch",
        lambda name, args, constexprs, grid: asked.append((name, constexprs)) or launch(name, args, constexprs, grid),
    )
    mod, mask = LEAN[name]
    block_mask, function = mask_of(mask)
    inputs = [each.requires_grad_() for each in operands(dtype, 64, 64, lengths=LONG)]
    wide = [each.detach().double().requires_grad_() for each in inputs]
    out = flex_attention(*inputs, mod, block_mask, enable_gqa=True)
    exact = reference.flex_attention(*wide, mod, function)[0]
    torchs = reference.flex_attention(*inputs, lambda score, *at: mod(score, *at).to(dtype), function)[0]
    grad = torch.randn_like(out)

    found, theirs = (torch.autograd.grad(each, inputs, grad) for each in (out, torchs))
    for ours, right, known in zip(found, torch.autograd.grad(exact, wide, grad.double()), theirs, strict=True):
        assert_accurate(ours, right, known, 3.0)
    functions = {name: constexprs["SCORE_MOD"] for name, constexprs in asked if "_bwd_d" in name and "flex" in name}
    assert functions == dict.fromkeys(("flex_attention_bwd_dkdv", "flex_attention_bwd_dq"), LIGHT)


@pytest.mark.parametrize("scale", [0.0, -0.3, 2.0])
def test_any_scale(scale):
    inputs = operands()
    out = flex_attention(*inputs, scale=scale, enable_gqa=True)

    exact = reference.flex_attention(*(each.double() for each in inputs), scale=scale)[0]
    torch.testing.assert_close(out.double(), exact, atol=1e-5, rtol=1e-5)


def test_neither_padding_nor_neighbours_leak_in():
    inputs = []
    for each in operands():
        room = torch.full([size + 2 for size in each.shape], math.nan)
        inner = room[tuple(slice(1, size + 1) for size in each.shape)]
        inner.copy_(each)
        inputs.append(inner)
    block_mask, function = mask_of("a bitmap for each head", (Q_LEN, KV_LEN))
    out = flex_attention(*inputs, MODS["bias"], block_mask, enable_gqa=True)

    exact = reference.flex_attention(*(each.double() for each in inputs), MODS["bias"], function)[0]
    torch.testing.assert_close(out.double(), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0)])
def test_empty(lengths):
    inputs = [each.requires_grad_() for each in operands(lengths=lengths)]
    out, lse = flex_attention(*inputs, enable_gqa=True, return_lse=True)

    assert out.shape == (2, HEADS, lengths[0], 40)
    assert not out.any()
    assert (lse == -math.inf).all()
    for each in torch.autograd.grad(out.sum(), inputs):
        assert not each.any()


def test_calls_alike_are_remembered_with_their_mask_and_modification():
    lengths = (20, 30)
    q, k, v = operands(lengths=lengths)
    mask = create_block_mask(Documents(IDS[15:]), None, None, *lengths, "cpu")
    for mod in (None, Alibi(torch.zeros(HEADS)), Alibi(alibi_slopes(HEADS)), SoftCap(0.5), SoftCap(0.7)):
        for block_mask in (None, mask):
            first, again = (flex_attention(q, k, v, mod, block_mask, enable_gqa=True) for _ in range(2))
            exact = reference.flex_attention(q, k, v, mod, None if block_mask is None else mask.mask_mod)[0]
            assert torch.equal(first, again)
            torch.testing.assert_close(first, exact, atol=1e-5, rtol=1e-4)


def test_a_config_can_be_asked_for():
    q, k, v = operands(torch.float16, 64, 64)
    chosen = flex_attention(q, k, v, enable_gqa=True)
    asked = flex_attention(q, k, v, enable_gqa=True, kernel_options={"BLOCK_M": 128, "num_warps": 4})

    torch.testing.assert_close(asked, chosen)
    with pytest.raises(RuntimeError, match="no config of the manifest serves"):
        flex_attention(q, k, v, enable_gqa=True, kernel_options={"BLOCK_M": 8})


def sound(mask, mod, needs):
    inputs = [each.requires_grad_(needs) for each in operands(dim=16, v_dim=16, lengths=(20, 30))]
    block_mask = None if mask is None else create_block_mask(mask, None, None, 20, 30, "cpu", 64)
    return inputs, block_mask, mod


@pytest.mark.parametrize("mask", [None, lambda b, h, q, k: (q - k) % 3 == 0])
def test_operators_are_sound(mask, monkeypatch):
    from nojit.kernels.flex import op_autograd as operators

    inputs, block_mask, mod = sound(mask, MODS["alibi"], needs=True)
    calls = []
    for name in ("forward_op", "backward_op"):
        plain = getattr(operators, name)
        monkeypatch.setattr(operators, name, lambda *args, plain=plain: calls.append((plain, args)) or plain(*args))
    out, lse = flex_attention(*inputs, mod, block_mask, enable_gqa=True, return_lse=True)
    (out.sum() + lse.sum()).backward()

    assert [call.__name__ for call, _ in calls] == ["flex_attention", "flex_attention_backward"]
    for call, args in calls:
        operator = getattr(torch.ops.nojit, call.__name__).default
        torch.library.opcheck(
            operator, args, test_utils=("test_schema", "test_faketensor", "test_autograd_registration")
        )


@pytest.mark.parametrize("mask", [None, Causal(), lambda b, h, q, k: (q - k) % 3 == 0])
def test_compiled_without_a_graph_break(mask):
    inputs, block_mask, mod = sound(mask, MODS["cap and alibi"], needs=True)

    def loss(q, k, v):
        return flex_attention(q, k, v, mod, block_mask, enable_gqa=True).square().sum()

    traced = torch.compile(loss, backend="aot_eager", fullgraph=True)
    ours, theirs = (torch.autograd.grad(function(*inputs), inputs) for function in (traced, loss))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_torchs_function_takes_the_same_mask_and_modification():
    from torch.nn.attention import flex_attention as torchs

    q, k, v = operands(v_dim=24)
    for mod, mask in itertools.product(("alibi", "cap and alibi", "bias"), ("causal", "documents")):
        block_mask, _ = mask_of(mask, (Q_LEN, KV_LEN))
        torchs._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
        try:
            theirs = torchs.flex_attention(q, k, v, MODS[mod], block_mask, enable_gqa=True)
        finally:
            torchs._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = False
        torch.testing.assert_close(flex_attention(q, k, v, MODS[mod], block_mask, enable_gqa=True), theirs)


Q, K, V = (torch.zeros(2, 4, 8, 16) for _ in range(3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: flex_attention(Q, K, 3), ArgumentError, "value: expected a tensor"),
        (lambda: flex_attention(Q, K.half(), V), ArgumentError, "key: expected torch.float32 as query has"),
        (lambda: flex_attention(Q.long(), K, V), ArgumentError, "query: expected torch.float16 or"),
        (lambda: flex_attention(Q[0], K, V), ValueError, r"query: expected 4 dimensions \[B, H, M, D\]"),
        (lambda: flex_attention(Q, K[:, :2], V[:, :2]), ValueError, "key: expected 4 heads as query has"),
        (lambda: flex_attention(Q, K[:, :3], V[:, :3], enable_gqa=True), ValueError, "divides the 4 of query, got 3"),
        (lambda: flex_attention(Q, K.repeat(2, 1, 1, 1), V), ValueError, "key: expected 2 batches as query has, or 1"),
        (lambda: flex_attention(Q, K, V[:, :, :5]), ValueError, "value: expected shape"),
        (lambda: flex_attention(Q.mT.contiguous().mT, K, V), ValueError, "query: expected a last stride of 1"),
        (
            lambda: flex_attention(Q, K, V, lambda s, b, h, q, k: s),
            ArgumentError,
            "(?s)score_mod: .*SCORE_MOD.*CustomMod",
        ),
        (lambda: flex_attention(Q, K, V, "alibi"), ArgumentError, "score_mod: expected a modification"),
        *[
            (lambda mod=mod: flex_attention(Q, K, V, mod), ValueError, "a table for 2 batches and 4 heads, got shape")
            for mod in [
                Alibi(torch.zeros(3)),
                Alibi(torch.zeros(3, 2)),
                Alibi(torch.zeros(1, 4)),
                RelativeBias(torch.zeros(2, 5)),
                RelativeBias(torch.zeros(8, 2, 5)),
                RelativeBias(torch.zeros(1, 4, 5)),
                Chain(SoftCap(1.0), Alibi(torch.zeros(2, 3))),
            ]
        ],
        (lambda: flex_attention(Q, K, V, deterministic="x"), ArgumentError, "deterministic: expected a bool, got str"),
        (lambda: CustomMod("mine", abs), ValueError, "source: expected module:function or file.py:function"),
        (lambda: CustomMod("mine.py:mod", 3), ArgumentError, "twin: expected a torch function, got int"),
        (lambda: CustomMod("mine.py:mod", abs, (NO_SLOT,)), ArgumentError, "slots: expected a tuple of two Slots"),
        (
            lambda: CustomMod("mine.py:mod", abs, (Slot(0, value="a"), NO_SLOT)),
            ArgumentError,
            r"slots\[0\].value: expected a number, got str",
        ),
        (lambda: CustomMod("mine.py:mod", abs, bias=Q[0]), ValueError, "values: expected 4 dimensions"),
        (lambda: Window(1.5, 2), ArgumentError, "left: expected an int, got float"),
        (lambda: Window(None, "2"), ArgumentError, "right: expected an int, got str"),
        (lambda: Causal(None), ArgumentError, "shift: expected an int, got NoneType"),
        (
            lambda: flex_attention(Q, K, V, Alibi(torch.zeros(4).requires_grad_())),
            NotImplementedError,
            "deterministic=False",
        ),
        (
            lambda: flex_attention(Q, K, V, DenseBias(torch.zeros(2, 4, 8, 7))),
            ValueError,
            "score_mod: expected a bias of",
        ),
        (lambda: flex_attention(Q, K, V, DenseBias(torch.zeros(1, 1, 8, 8).half())), ArgumentError, "as query has"),
        (lambda: flex_attention(Q, K, V, kernel_options={"BLOCK_MM": 1}), ValueError, "did you mean 'BLOCK_M'"),
        (lambda: flex_attention(Q, K, V, kernel_options=3), ArgumentError, "kernel_options: expected a mapping"),
        (lambda: flex_attention(Q, K, V, scale="1"), ArgumentError, "scale: expected a number"),
        (lambda: flex_attention(Q, K, V, return_lse="yes"), ArgumentError, "return_lse: expected a bool"),
        (lambda: flex_attention(Q, K, V, None, 3), ArgumentError, "block_mask: expected a BlockMask"),
        (
            lambda: flex_attention(
                Q, K, V, None, create_block_mask(lambda b, h, q, k: k >= h * q, None, 3, 8, 8, "cpu")
            ),
            ValueError,
            "block_mask: expected 4 heads as query has, or 1, got 3",
        ),
        (lambda: SoftCap(0.0), ValueError, "cap: expected a number above 0"),
        (lambda: RelativeBias(torch.zeros(4, 2)), ValueError, "table: expected an odd number"),
        (lambda: Alibi(torch.zeros(4).half()), ArgumentError, "slopes: expected torch.float32"),
        (lambda: Chain(SoftCap(1.0), lambda *x: x), ArgumentError, "second: expected one modification"),
        (lambda: Chain(DenseBias(Q), DenseBias(Q)), ValueError, "second: expected no second bias of the same"),
        (lambda: DenseBias(torch.zeros(3)), ValueError, "values: expected 4 dimensions"),
    ],
)
def test_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_there_is_no_second_derivative():
    inputs = [each.requires_grad_() for each in operands(lengths=(4, 4))]
    (grad,) = torch.autograd.grad(flex_attention(*inputs, enable_gqa=True).sum(), inputs[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad.sum().backward()


@pytest.mark.parametrize("mask", [None, Causal(), lambda b, h, q, k: (q - k) % 3 == 0])
def test_fake_tensors_have_a_fake_output(mask):
    inputs, block_mask, _ = sound(mask, None, needs=True)
    expected = flex_attention(*inputs, block_mask=block_mask, enable_gqa=True)
    with FakeTensorMode() as fakes:
        given = [fakes.from_tensor(each) for each in inputs]
        out = flex_attention(*given, block_mask=block_mask, enable_gqa=True)
        assert (out.shape, out.stride()) == (expected.shape, expected.stride())
        out.sum().backward()
        assert [each.grad.shape for each in given] == [each.shape for each in inputs]
    assert torch.equal(flex_attention(*inputs, block_mask=block_mask, enable_gqa=True), expected)


def test_few_queries_of_many_keys_are_decoded(monkeypatch):
    from nojit.kernels import flex_decoding
    from nojit.kernels.flex import op

    monkeypatch.setattr(op, "MIN_DECODED_KEYS", 64)
    asked = []
    plain = flex_decoding.flex_decoding
    monkeypatch.setattr(flex_decoding, "flex_decoding", lambda *args: asked.append(args) or plain(*args), raising=False)
    inputs = operands(lengths=(3, 100))
    mask = create_block_mask(Causal(97), None, None, 3, 100, "cpu")
    out, lse = flex_attention(*inputs, MODS["cap and alibi"], mask, enable_gqa=True, return_lse=True)

    assert len(asked) == 1
    exact, exact_lse = reference.flex_attention(*(each.double() for each in inputs), MODS["cap and alibi"], Causal(97))
    torch.testing.assert_close(out.double(), exact, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lse.double(), exact_lse, atol=1e-5, rtol=1e-5)
    flex_attention(*(each.requires_grad_() for each in inputs), enable_gqa=True)
    assert len(asked) == 1


def test_a_bias_of_few_queries_can_be_trained(monkeypatch):
    from nojit.kernels.flex import op

    monkeypatch.setattr(op, "MIN_DECODED_KEYS", 64)
    inputs = operands(lengths=(3, 100))
    weights = torch.zeros(1, 1, 3, 100, requires_grad=True)
    found, right = (
        torch.autograd.grad(attend(*own, DenseBias(weights), **named).square().sum(), weights)[0]
        for attend, own, named in (
            (flex_attention, inputs, {"enable_gqa": True, "deterministic": False}),
            (lambda *args: reference.flex_attention(*args)[0], [each.double() for each in inputs], {}),
        )
    )
    torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-5)
