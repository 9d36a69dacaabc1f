"""With ``NOJIT_BATCH_INVARIANT`` operators choose kernels, and cut sums, by nothing that grows with the batch."""

from __future__ import annotations

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm import op as b2b_gemm
from nojit.kernels.b2b_gemm.launch import chosen
from nojit.kernels.b2b_gemm.launch import prepare as prepare_b2b
from nojit.kernels.block_sparse import BlockLayout, block_sparse_softmax
from nojit.kernels.block_sparse.matmul.launch import strips_of
from nojit.kernels.block_sparse.softmax import launch as softmax_launch
from nojit.kernels.bmm import op as bmm
from nojit.kernels.bmm.launch import prepare as prepare_bmm
from nojit.kernels.flex import flex_attention
from nojit.kernels.flex.op import _is_decoding
from nojit.kernels.flex_decoding.checks import Sizes
from nojit.kernels.flex_decoding.launch import Decoding, splits_for
from nojit.kernels.flex_decoding.mask_operands import band_of_words
from nojit.kernels.gated_mm import op as gated_mm
from nojit.kernels.grouped_mm import op as grouped_mm
from nojit.kernels.mixed_mm import op as mixed_mm
from nojit.kernels.mixed_mm.launch import prepare as prepare_mixed
from nojit.kernels.mm_plus_mm import op as mm_plus_mm
from nojit.kernels.scaled_grouped_mm import op as scaled_grouped_mm
from nojit.kernels.scaled_mm import op as scaled_mm
from nojit.kernels.scaled_mm.launch import prepare as prepare_scaled
from nojit.kernels.scaled_mm.operands import Operands
from nojit.kernels.score_mod.modification import NO_MOD

FP8 = torch.zeros(48, 48).to(torch.float8_e4m3fn)
ROWS = (1, 2, 8, 16, 17, 64, 65, 200, 1000)


def nothing(name):
    def launch(*_, **__):
        raise AssertionError(f"{name}: nothing is launched here")

    return launch


@pytest.fixture(params=[False, True], ids=["as ever", "invariant"])
def invariant(request):
    """Whether results must not depend on the batch."""
    with library.override(nothing, batch_invariant=request.param):
        yield request.param


def check(found, invariant):
    """All calls must be alike; without the variable they differ, or this test could not tell."""
    assert (len(set(found)) == 1) is invariant, found


@pytest.mark.parametrize("by_columns", [False, True])
def test_products(invariant, by_columns):
    b = torch.zeros(4096, 512, dtype=torch.float16)
    b = b.t().contiguous().t() if by_columns else b
    found = []
    for rows in ROWS:
        prepared = prepare_bmm(torch.zeros(rows, 4096, dtype=torch.float16), b, None, None, False, lambda _: True)
        found.append((prepared.kernel, prepared.partial and prepared.partial[0], *sorted(prepared.constexprs.items())))
    check(found, invariant)


def test_products_of_fp8(invariant):
    b = torch.zeros(512, 4096).to(torch.float8_e4m3fn).t()
    found = []
    for rows in ROWS:
        a = torch.zeros(rows, 4096).to(torch.float8_e4m3fn)
        one = torch.ones(())
        prepared = prepare_scaled(Operands(a, b, one, one, None), None, torch.bfloat16, False, lambda _: True)
        found.append((prepared.kernel, prepared.partial and prepared.partial[0], *sorted(prepared.constexprs.items())))
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


def test_back_to_back_products_from_the_right(invariant):
    half = {"dtype": torch.float16}
    b, c = torch.zeros(64, 64, **half), torch.zeros(64, 64, **half).t()
    found = []
    for rows in (8, 64, 72, 128, 136, 200):
        a, out = torch.zeros(rows, 64, **half), torch.zeros(64, rows, **half).t()
        found.append(prepare_b2b((a, b, c), out, ("none", 1.0, "right"), lambda _: True).kernel)
    check(found, invariant)


def test_dense_times_sparse(invariant):
    layout = torch.zeros(1, 128, 128, dtype=torch.long)
    layout[0, :, 0] = 1
    layout[0, ::7, ::3] = 1
    tables, sizes = BlockLayout(layout, 64).packing(torch.device("cpu"), torch.float16)
    found = []
    for batch, rows in ((1, 64), (1, 2048), (1, 16384), (16, 2048)):
        _, cuts = strips_of(tables, sizes, True, (batch, 1, 8192, rows), True)
        found.append(cuts.slots > 0)
    check(found, invariant)


def test_softmax_of_long_rows(invariant, monkeypatch):
    monkeypatch.setattr(softmax_launch, "APART_BYTES", 1 << 15)
    active = torch.eye(8, dtype=torch.long)
    active[3] = 1
    layout = BlockLayout(active[None], 16)
    launched = []

    def provide(name):
        return lambda *_, **__: launched.append(name)

    found = []
    with library.override(provide, batch_invariant=invariant):
        for batch in (1, 64):
            launched.clear()
            block_sparse_softmax(torch.zeros(batch, layout.nnz, 16, 16), layout)
            found.append(len(launched))
    check(found, invariant)


def test_decoding(invariant):
    found = []
    for batch in (1, 3, 16, 64):
        q, k = torch.zeros(batch, 32, 1, 64), torch.zeros(batch, 8, 4096, 64)
        sizes = Sizes(batch, 32, 8, 1, 4096, 64, 64, 0)
        one = Decoding(q, k, k, None, None, band_of_words(False, None, None), NO_MOD, sizes, 1.0)
        found.append(splits_for(one, alone=invariant))
    check(found, invariant)


def test_who_decodes(invariant):
    keys = torch.zeros(1, 8, 4096, 64)
    check([_is_decoding(torch.zeros(batch, 8, 100, 64), keys, keys) for batch in (1, 64)], invariant)


def test_gradients_of_shared_keys_and_of_own_ones(invariant):
    """A batch of one shares its keys with nobody, or with all: nothing tells which."""
    launched = []

    def provide(name):
        return lambda *_, **__: launched.append(name)

    found = []
    with library.override(provide, batch_invariant=invariant):
        for batch, keys in ((1, 1), (2, 1), (2, 2)):
            launched.clear()
            q = torch.zeros(batch, 2, 64, 64, requires_grad=True)
            k, v = (torch.zeros(keys, 2, 64, 64, requires_grad=True) for _ in range(2))
            flex_attention(q, k, v).sum().backward()
            found.append(tuple(sorted({name for name in launched if "_bwd_d" in name})))
    check(found, invariant)


@pytest.mark.parametrize(
    ("family", "call"),
    [
        (bmm, lambda: bmm.mm(torch.zeros(4, 48), torch.zeros(48, 8))),
        (mm_plus_mm, lambda: mm_plus_mm.mm_plus_mm(*[torch.zeros(48, 48)] * 4)),
        (gated_mm, lambda: gated_mm.gated_mm(torch.zeros(4, 48), torch.zeros(48, 16))),
        (b2b_gemm, lambda: b2b_gemm.b2b_gemm(*[torch.zeros(48, 48)] * 3)),
        (mixed_mm, lambda: mixed_mm.uint4x2_mixed_mm(torch.zeros(4, 48).half(), torch.zeros(24, 8).byte())),
        (scaled_mm, lambda: scaled_mm.scaled_mm(FP8, FP8.t(), *[torch.ones(())] * 2, out_dtype=torch.bfloat16)),
        (grouped_mm, lambda: grouped_mm.grouped_mm(torch.zeros(4, 48), torch.zeros(1, 48, 8), torch.zeros(1).int())),
        (
            scaled_grouped_mm,
            lambda: scaled_grouped_mm.scaled_grouped_mm(
                FP8, FP8[None].mT, torch.ones(len(FP8)), torch.ones(1, len(FP8)), torch.zeros(1).int()
            ),
        ),
    ],
    ids=["bmm", "mm_plus_mm", "gated_mm", "b2b_gemm", "mixed_mm", "scaled_mm", "grouped_mm", "scaled_grouped_mm"],
)
def test_each_source_has_calls_of_its_own(monkeypatch, family, call):
    asked = []
    prepare = family.prepare
    monkeypatch.setattr(family, "prepare", lambda *args: asked.append(library.is_batch_invariant()) or prepare(*args))
    for is_invariant in (False, True):
        with library.override(lambda name: lambda *args, **named: None, batch_invariant=is_invariant):
            call()
    assert asked == [False, True]
