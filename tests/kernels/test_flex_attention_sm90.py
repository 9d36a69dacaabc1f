"""The kernel of flex attention for sm_90 as Python: which tiles it visits, what it hides, and how parts wait for one another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.calls.tensor_maps import Described
from nojit.kernels.flex import (
    Causal,
    Documents,
    Prefix,
    Window,
    and_masks,
    create_block_mask,
    flex_attention,
    reference,
)
from nojit.kernels.flex import (
    launch as flex_launch,
)
from nojit.kernels.manifest_kernels import by_position

from tests.kernels.attention_stub import BoxOfFour, others
from tests.kernels.gluon_stub import Pointer, load

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
PROGRAMS = 2
STAGES = 2
IDS = torch.tensor([0] * 40 + [1] * 200 + [2] * 70)
MASKS = {
    "none": None,
    "causal": Causal(),
    "window": Window(150, 20, -10),
    "rows that see nothing": Causal(-140),
    "documents": Documents(IDS),
    "causal documents": and_masks(Causal(), Documents(IDS)),
    "prefix": Prefix(torch.tensor(150)),
    "dilated": lambda b, h, q, k: ((q - k) % 3 == h % 3) & (k <= q + 60),
    "blocks that are not there": lambda b, h, q, k: (q // 128 == 1) & ((k < 128) | (k % 5 == 0)),
}


@pytest.fixture(params=[False, True], ids=["together", "in turn"])
def over_maps(request, monkeypatch):
    """Have a device whose kernels take maps, and the kernel as Python."""
    monkeypatch.setattr(flex_launch, "takes_maps", lambda value: value.element_size() == 2)
    monkeypatch.setattr(flex_launch, "processors", lambda value: PROGRAMS)
    kernel = load(
        "flex_attention_fwd_sm90_kernel",
        *(KERNELS / "flex" / name for name in ("kernel_sm90_walks.py", "kernel_sm90.py")),
        KERNELS / "attention" / "kernel_sm90.py",
        others=others,
    )

    def launch(*args, **named):
        args, named = by_position("flex_attention_fwd_sm90", args, named)
        made = [argument(place, value, named) for place, value in enumerate(args)]
        kernel(PROGRAMS, *made, **named, BLOCK_M=128, BLOCK_N=128, STAGES=STAGES, SPAN=400, TURNS=request.param)

    def provide(name):
        assert name == "flex_attention_fwd_sm90"
        return launch

    with library.override(provide):
        yield


def argument(place, value, named):
    """Return what the kernel gets in place of an argument: maps come first, of queries, keys, values and output."""
    if isinstance(value, Described):
        tensor = value.base.as_strided(value.shape, value.strides)
        return BoxOfFour(tensor, (128 if place in {1, 2} else 64, named["BLOCK_D"]))
    if not isinstance(value, torch.Tensor):
        return value
    return Pointer(value.new_empty(0).set_(value.untyped_storage()), value.storage_offset())


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("q_len", "kv_len", "dims"), [(310, 310, (64, 64)), (150, 300, (40, 128))])
def test_it_attends(over_maps, name, q_len, kv_len, dims):
    dim = dims[0]
    q = torch.randn(2, 4, q_len, dim).bfloat16()
    k, v = (torch.randn(1 + (dim < 64), 2, kv_len, each).bfloat16() for each in dims)
    mask_mod = MASKS[name]
    heads = 4 if name == "dilated" else None
    mask = None if mask_mod is None else create_block_mask(mask_mod, None, heads, q_len, kv_len, "cpu")

    out, lse = flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_lse=True)

    exact, exact_lse = reference.flex_attention(*(each.double() for each in (q, k, v)), None, mask_mod)
    torch.testing.assert_close(out.double(), exact, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse.double(), exact_lse, atol=1e-4, rtol=1e-4)


def test_calls_that_no_map_describes_go_over_pointers(over_maps):
    asked = []

    def note(name):
        return lambda *args, **named: asked.append(name)

    q, k, v = (torch.randn(1, 2, 256, 64).bfloat16() for _ in range(3))
    narrow = create_block_mask(lambda b, h, q, k: (q - k) % 3 == 0, None, None, 256, 256, "cpu", 64)
    shifted = torch.randn(1 + q.numel()).bfloat16()[1:].view(q.shape)
    wide = torch.randn(1, 2, 256, 136).bfloat16()
    calls = (
        (q, k, v, {}, True),
        (q, k, v, {"block_mask": narrow}, False),
        (shifted, k, v, {}, False),
        (q, k, wide, {}, False),
        (q, k, v, {"scale": -1.0}, False),
        (q, k, v, {"kernel_options": {"BLOCK_M": 64}}, False),
        (*(each.float() for each in (q, k, v)), {}, False),
    )
    with library.override(note):
        for *operands, words, mapped in calls:
            flex_attention(*operands, **words)
            assert asked.pop() == ("flex_attention_fwd_sm90" if mapped else "flex_attention_fwd")
