"""What the tests on a GPU will call can be listed without one: a name they lost is noticed here."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.gpu import (
    b2b_gemm_calls,
    calls,
    conv_calls,
    flex_calls,
    flex_decoding_calls,
    gated_mm_calls,
    gemm_calls,
    grouped_mm_calls,
    matmul_calls,
    mixed_mm_calls,
    rotary_calls,
    scaled_grouped_mm_calls,
    scaled_mm_calls,
)

LISTS = {
    "operators": calls.all_calls,
    "huge": calls.huge_pointwise_calls,
    "flex attention": flex_calls.flex_calls,
    "gradients of flex attention": flex_calls.flex_gradient_calls,
    "gradients of what flex attention captures": flex_calls.flex_captured_calls,
    "decoding": flex_decoding_calls.flex_decoding_calls,
    "products": matmul_calls.cases,
    "dense products": gemm_calls.cases,
    "gated products": gated_mm_calls.cases,
    "grouped products": grouped_mm_calls.cases,
    "products with weights of 4 bits": mixed_mm_calls.cases,
    "pairs of products": b2b_gemm_calls.cases,
    "rotary embeddings": rotary_calls.rotary_calls,
    "scaled products": scaled_mm_calls.cases,
    "grouped scaled products": scaled_grouped_mm_calls.cases,
    "convolutions": conv_calls.conv_calls,
    "convolutions by tall tiles": conv_calls.tall_calls,
}


@pytest.mark.parametrize("listed", LISTS.values(), ids=LISTS.keys())
def test_calls_have_labels_of_their_own(listed):
    labels = [call.label for call in listed()]

    assert labels
    assert len(set(labels)) == len(labels)
