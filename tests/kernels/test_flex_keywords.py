"""Flex attention called in torch's words: what they ask for beside the output, and which kernel they want."""

from __future__ import annotations

import math

import pytest
import torch
from nojit.kernels import flex_decoding
from nojit.kernels.flex import (
    AuxOutput,
    AuxRequest,
    Causal,
    Documents,
    SoftCap,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    op,
    reference,
)
from nojit.runtime.errors import ArgumentError
from torch.nn.attention import flex_attention as torchs

pytestmark = pytest.mark.usefixtures("interpreted")


def operands(q_len=20, kv_len=40, batch=2, heads=4):
    return [torch.randn(batch, heads, length, 16) for length in (q_len, kv_len, kv_len)]


def test_words_are_torchs_own():
    assert (AuxRequest, AuxOutput) == (torchs.AuxRequest, torchs.AuxOutput)
    assert (create_mask, noop_mask) == (torchs.create_mask, torchs.noop_mask)


@pytest.mark.parametrize("needs", [False, True])
def test_log_sums_are_returned_as_they_are_asked_for(needs):
    inputs = [each.requires_grad_(needs) for each in operands()]
    mask = create_block_mask(Causal(), None, None, 20, 40, "cpu")
    expected, lse = flex_attention(*inputs, SoftCap(0.7), mask, return_lse=True)
    out, aux = flex_attention(*inputs, SoftCap(0.7), mask, return_aux=AuxRequest(lse=True))

    assert type(aux) is AuxOutput
    assert aux.max_scores is None
    assert torch.equal(out, expected)
    assert torch.equal(aux.lse, lse)
    if needs:
        ours, theirs = (torch.autograd.grad(each.sum(), inputs[:2]) for each in (aux.lse, lse))
        assert all(map(torch.equal, ours, theirs))


def test_a_request_for_nothing_is_answered_by_nothing():
    inputs = operands()
    out, aux = flex_attention(*inputs, return_aux=AuxRequest())
    assert torch.equal(out, flex_attention(*inputs))
    assert aux == AuxOutput()


def test_torchs_function_answers_alike(monkeypatch):
    monkeypatch.setattr(torchs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    inputs = operands()
    for request in (AuxRequest(), AuxRequest(lse=True)):
        theirs, aux = torchs.flex_attention(*inputs, return_aux=request)
        out, own = flex_attention(*inputs, return_aux=request)
        torch.testing.assert_close(out, theirs)
        assert type(own) is type(aux)
        if request.lse:
            torch.testing.assert_close(own.lse, aux.lse)


def test_a_request_is_traced():
    inputs = operands()

    def attend(*operands):
        return flex_attention(*operands, return_aux=AuxRequest(lse=True))

    out, aux = torch.compile(attend, backend="eager", fullgraph=True)(*inputs)
    expected, right = attend(*inputs)
    assert torch.equal(out, expected)
    assert torch.equal(aux.lse, right.lse)


HINTS = {
    "ROWS_GUARANTEED_SAFE": True,
    "BLOCKS_ARE_CONTIGUOUS": False,
    "WRITE_DQ": False,
    "USE_TMA": True,
    "PRESCALE_QK": False,
    "BACKEND": "AUTO",
}


def test_hints_for_torchs_kernels_change_nothing():
    inputs = operands()
    expected = flex_attention(*inputs)
    # the second call is one that was made before
    for _ in range(2):
        assert torch.equal(flex_attention(*inputs, kernel_options=HINTS), expected)


def test_what_is_said_of_the_forward_pass_alone_comes_first():
    inputs = [each.half() for each in operands()]
    expected = flex_attention(*inputs, kernel_options={"BLOCK_M": 128, "num_warps": 4})
    given = {"fwd_BLOCK_M": 128, "BLOCK_M": 8, "fwd_num_warps": 4}
    assert torch.equal(flex_attention(*inputs, kernel_options=given), expected)


@pytest.mark.parametrize(
    ("options", "decodes"),
    [
        (None, True),
        ({}, True),
        (HINTS, True),
        ({"FORCE_USE_FLEX_ATTENTION": False}, True),
        ({"FORCE_USE_FLEX_ATTENTION": True}, False),
        ({"BACKEND": "TRITON"}, False),
        ({"BLOCK_M": 64}, False),
    ],
    ids=str,
)
def test_few_queries_are_decoded_unless_another_kernel_is_asked_for(options, decodes, monkeypatch):
    monkeypatch.setattr(op, "MIN_DECODED_KEYS", 64)
    asked = []
    plain = flex_decoding.flex_decoding
    monkeypatch.setattr(flex_decoding, "flex_decoding", lambda *args: asked.append(args) or plain(*args), raising=False)
    inputs = operands(3, 100)
    out = flex_attention(*inputs, kernel_options=options)

    assert len(asked) == decodes
    torch.testing.assert_close(out, reference.flex_attention(*inputs)[0])


@pytest.mark.parametrize("mask", [Causal(), Documents(torch.arange(300) // 70), lambda b, h, q, k: (q - k) % 3 == 0])
@pytest.mark.parametrize("block", [64, (128, 64)])
def test_full_blocks_need_not_be_listed_apart(mask, block):
    sizes = (None, None, 300, 290, "cpu", block)
    ours, theirs = (
        make(mask, *sizes, separate_full_blocks=False) for make in (create_block_mask, torchs.create_block_mask)
    )
    for name in ours._TENSOR_ATTRS:
        one, other = getattr(ours, name), getattr(theirs, name)
        assert one is other is None or torch.equal(one, other)
    # the masks are the same for every sequence and head
    inputs = operands(300, 290, 1, 2)
    expected = flex_attention(*inputs, block_mask=create_block_mask(mask, *sizes))
    for each in (ours, theirs):
        torch.testing.assert_close(flex_attention(*inputs, block_mask=each), expected)


def test_whether_torch_compiles_a_masks_function_changes_nothing():
    ours, plain = (create_block_mask(Causal(), 2, None, 300, 290, "cpu", 64, compiles) for compiles in (True, False))
    assert torch.equal(ours.kv_indices, plain.kv_indices)
    assert torch.equal(ours.to_dense(), plain.to_dense())


Q = torch.zeros(2, 4, 8, 16)


def attend(**named):
    return lambda: flex_attention(Q, Q, Q, **named)


def make(**named):
    return lambda: create_block_mask(Causal(), None, None, 4, 4, "cpu", **named)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (attend(return_aux=True), ArgumentError, "return_aux: expected an AuxRequest, got bool|got bool"),
        (attend(return_aux=AuxRequest(lse="yes")), ArgumentError, "return_aux.lse: expected a bool"),
        (attend(return_aux=AuxRequest(), return_lse=True), ValueError, "return_lse: expected False with return_aux"),
        (
            attend(return_aux=AuxRequest(lse=True, max_scores=True)),
            NotImplementedError,
            "return_aux.max_scores: expected False, as no kernel writes the largest score of a row, got True",
        ),
        (
            attend(kernel_options={"BACKEND": "FLASH"}),
            ValueError,
            r"kernel_options\['BACKEND'\]: expected 'AUTO' or 'TRITON', got 'FLASH'",
        ),
        (
            attend(kernel_options={"PRESCALE_QK": True}),
            ValueError,
            r"kernel_options\['PRESCALE_QK'\]: expected False, as products are scaled in fp32, got True",
        ),
        (attend(kernel_options={"USE_TMA": "yes"}), ArgumentError, r"kernel_options\['USE_TMA'\]: expected a bool"),
        (
            attend(kernel_options={"bwd_BLOCK_M1": 32}),
            ValueError,
            "kernel_options: expected BLOCK_M or .*'bwd_BLOCK_M1'",
        ),
        (attend(kernel_options={"fwd_BLOCK_M": "a"}), ArgumentError, r"kernel_options\['BLOCK_M'\]: expected an int"),
        (make(separate_full_blocks=None), ArgumentError, "separate_full_blocks: expected a bool"),
        (make(_compile="yes"), ArgumentError, "_compile: expected a bool"),
        (
            make(compute_dq_write_order=True),
            NotImplementedError,
            "compute_dq_write_order: expected False, as gradients are deterministic .* got True",
        ),
    ],
)
def test_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_rows_that_see_nothing_have_log_sums_of_minus_infinity():
    mask = create_block_mask(Causal(-5), None, None, 20, 40, "cpu")
    _, aux = flex_attention(*operands(), block_mask=mask, return_aux=AuxRequest(lse=True))
    assert (aux.lse[:, :, :5] == -math.inf).all()
    assert aux.lse[:, :, 5:].isfinite().all()
