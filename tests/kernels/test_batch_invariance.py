"""With ``NOJIT_BATCH_INVARIANT`` operators choose kernels, and cut sums, by nothing that grows with the batch."""

from __future__ import annotations

import pytest
import torch
from nojit.kernels.b2b_gemm.prepared import chosen
from nojit.kernels.bmm.prepared import prepare as prepare_bmm
from nojit.kernels.conv.launches import parts_of
from nojit.kernels.flex.call import NO_MOD
from nojit.kernels.flex.op import _is_decoding
from nojit.kernels.flex_decoding.checks import Sizes
from nojit.kernels.flex_decoding.launch import Decoding, splits_for
from nojit.kernels.flex_decoding.masks import band_of_words
from nojit.kernels.gemm.splits import splits_of
from nojit.kernels.mixed_mm.prepared import prepare as prepare_mixed
from nojit.kernels.scaled_mm.prepared import Operands
from nojit.kernels.scaled_mm.prepared import prepare as prepare_scaled

ROWS = (1, 2, 8, 16, 17, 64, 65, 200, 1000)


@pytest.fixture(params=[False, True], ids=["as ever", "invariant"])
def invariant(request, monkeypatch):
    """Whether results must not depend on the batch."""
    monkeypatch.setenv("NOJIT_BATCH_INVARIANT", str(int(request.param)))
    return request.param


def check(found, invariant):
    """All calls must be alike; without the variable they differ, or this test could not tell."""
    assert (len(set(found)) == 1) is invariant, found


def test_products(invariant):
    b = torch.zeros(4096, 512, dtype=torch.float16)
    found = []
    for rows in ROWS:
        prepared = prepare_bmm(torch.zeros(rows, 4096, dtype=torch.float16), b, None, None, False, lambda _: True)
        found.append((prepared.kernel, prepared.partial and prepared.partial[0], *sorted(prepared.named.items())))
    check(found, invariant)


def test_products_of_fp8(invariant):
    b = torch.zeros(512, 4096).to(torch.float8_e4m3fn).t()
    found = []
    for rows in ROWS:
        a = torch.zeros(rows, 4096).to(torch.float8_e4m3fn)
        one = torch.ones(())
        prepared = prepare_scaled(Operands(a, b, one, one, None), None, torch.bfloat16, False, lambda _: True)
        found.append((prepared.kernel, prepared.partial and prepared.partial[0], *sorted(prepared.named.items())))
    check(found, invariant)


def test_products_of_int4(invariant):
    b = torch.zeros(4096, 512, dtype=torch.uint8)
    found = []
    for rows in ROWS:
        operands = (torch.zeros(rows, 4096, dtype=torch.bfloat16), b, None, None)
        prepared = prepare_mixed(operands, None, None, lambda *_: True)
        found.append((prepared.kernel, prepared.partial and prepared.partial[0]))
    check(found, invariant)


def test_back_to_back_products(invariant):
    b, c = torch.zeros(64, 512), torch.zeros(512, 64)
    check([chosen((torch.zeros(rows, 64), b, c), "auto") for rows in (1, 16, 100_000)], invariant)


def test_depths(invariant):
    check([splits_of(batch, 16, 512, 8192, 132) for batch in (1, 4, 64)], invariant)
    check([parts_of(tiles, 8192, 132) for tiles in (1, 40, 4000)], invariant)


def test_decoding(invariant):
    found = []
    for batch in (1, 3, 16, 64):
        q, k = torch.zeros(batch, 32, 1, 64), torch.zeros(batch, 8, 4096, 64)
        sizes = Sizes(batch, 32, 8, 1, 4096, 64, 64, 0)
        found.append(splits_for(Decoding(q, k, k, None, None, band_of_words(False, None, None), NO_MOD, sizes, 1.0)))
    check(found, invariant)


def test_who_decodes(invariant):
    keys = torch.zeros(1, 8, 4096, 64)
    check([_is_decoding(torch.zeros(batch, 8, 100, 64), keys, keys) for batch in (1, 64)], invariant)
