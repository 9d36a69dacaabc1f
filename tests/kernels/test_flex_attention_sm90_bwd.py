"""The backward kernel of flex attention for sm_90 as Python: which tiles it visits, what it hides, whose turn it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.block_mask import hulls
from nojit.kernels.block_mask.masks import tables_of
from nojit.kernels.calls.tensor_maps import Described
from nojit.kernels.flash_attention import launch_sm90_bwd as flash_sm90
from nojit.kernels.flex import (
    Alibi,
    Causal,
    Documents,
    Prefix,
    RelativeBias,
    SoftCap,
    Window,
    alibi_slopes,
    and_masks,
    create_block_mask,
    launch_bwd,
    reference,
)
from nojit.kernels.flex import (
    launch as flex_launch,
)
from nojit.kernels.manifest_kernels import by_position
from nojit.kernels.score_mod.modification import modification_of
from nojit.kernels.score_mod.mods import BOUNDED, TILTED

from tests.kernels.attention_stub import BoxOfFour, Tiles, others, read
from tests.kernels.gluon_stub import Pointer, load

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
NAMES = ["flash_attention_bwd_sm90_prepare", "flex_attention_bwd_sm90", "flash_attention_bwd_sm90_finish"]
IDS = torch.tensor([0] * 40 + [1] * 200 + [2] * 130)
LOG2_E = 1.4426950408889634
MASKS = {
    "none": None,
    "causal": Causal(),
    "window": Window(150, 20, -10),
    "before": Window(100, 0),
    "queries that see nothing": Causal(-140),
    "keys that nobody sees": Window(100, 0, 150),
    "documents": Documents(IDS),
    "causal documents": and_masks(Causal(), Documents(IDS)),
    "documents of batches": Documents(torch.stack([IDS, IDS.flip(0)])),
    "prefix": Prefix(torch.tensor(100)),
    "dilated": lambda b, h, q, k: ((q - k) % 3 == 0) & (k <= q + 60),
    "dilated by batches": lambda b, h, q, k: (q + k) % (b + 2) == 0,
    "dilated of heads": lambda b, h, q, k: ((q + k) % (h + 2) == 0) & ((q + k) // 128 != h),
    "blocks that are not there": lambda b, h, q, k: (
        ((q // 128 + k // 128) % 2 == 0) | ((k < 128) & (k % 5 == 0) & (q % 7 > 0))
    ),
    "keys and queries that see nothing": lambda b, h, q, k: (q // 128 == 1) & (k < 128) & (k % 5 == 0),
}
OF_BATCHES = {"documents of batches", "dilated by batches"}
OF_HEADS = {"dilated of heads"}


def tilted(score, batch, head, query, key, inside, first, second, bias):  # noqa: PLR0917 - as kernels call it
    """Alibi, in torch."""
    table = first if first[0] else second
    return score + read(table[1] + batch * table[2] + head * table[3]) * (key - query), 1.0


def bounded(score, batch, head, query, key, inside, first, second, bias):  # noqa: PLR0917 - likewise
    """A soft cap, in torch."""
    cap = first[4] or second[4]
    score = cap * torch.tanh(score / cap)
    return score, 1.0 - (score / cap) ** 2


MODS = {TILTED.name: tilted, BOUNDED.name: bounded}


class Box(BoxOfFour):
    """A map of boxes of [1, 1, rows, columns], to add to as well."""

    def add(self, place, tile):
        covered, part = self.window(place)
        if covered is not None:
            covered += tile[0, 0][part]


def more(gl):
    """Stand in for what this kernel calls beside what the forward one does."""
    made = others(gl)

    def wait_for_count(pointer, count):
        # programs run one after the other here: all that come before have been
        assert pointer.memory[pointer.place] == count

    def add_one(pointer, value, sem, scope):
        pointer.memory[pointer.place] += value

    plain = gl.allocate_shared_memory

    def allocate(dtype, shape, layout):
        made = plain(dtype, shape, layout)
        return Panels(made.value) if isinstance(made, Tiles) else made

    gl.__dict__.update(
        NVMMASharedLayout=lambda **_: None,
        allocate_shared_memory=allocate,
        atomic_add=add_one,
        inline_asm_elementwise=lambda text, constraints, args, *_, **__: args[0],
    )
    return made | {
        "add_out": lambda tensor_map, place, box: tensor_map.add(place, box.value),
        "wait_for_count": wait_for_count,
        "wait_until_written": lambda: None,
    }


class Panels(Tiles):
    """Shared memory that is also read by threads, and in parts."""

    def index(self, number):
        return Panels(self.value[number])

    def reshape(self, shape):
        return Panels(self.value.view(*shape))

    def permute(self, order):
        return Panels(self.value.permute(order))

    def slice(self, first, count, dim):
        return Panels(self.value.narrow(dim, first, count))

    def load(self, layout):
        return self.value


@pytest.fixture
def over_maps(monkeypatch):
    """Have a device whose kernels take maps, this kernel as Python, and what is before and after it in plain torch."""
    for module in (flex_launch, flash_sm90):
        monkeypatch.setattr(module, "takes_maps", lambda value: value.element_size() == 2)
    kernel = load(
        "flex_attention_bwd_sm90_kernel",
        KERNELS / "flash_attention/kernel_sm90_bwd.py",
        *(
            KERNELS / "flex" / name
            for name in ("kernel_sm90_walks.py", "kernel_sm90_bwd_walks.py", "kernel_sm90_bwd.py")
        ),
        others=more,
    )
    asked: list[str] = []

    def gradients(*args, **named):
        rows, width = named["BLOCK_M"], named["BLOCK_D"]
        boxes = [(rows, width), (64, width), (64, width), (rows, width), (1, rows), (64, 64), (64, width), (64, width)]
        function = named.pop("SCORE_MOD")
        named |= {"SCORE_MOD": MODS[function.name] if function else None, "EAGER": function in {None, TILTED}}
        made = [argument(value, boxes[place] if place < 8 else None) for place, value in enumerate(args)]
        programs = -(-args[-1] // 128) * args[-6] * args[-4]
        kernel(programs, *made, **named, STAGES=2, SPAN=400)

    def prepare(out, dout, lse, dlse, statistics, turns, *_, BLOCK_D, BLOCK_M):  # noqa: N803, PLR0917 - a kernel's names
        del BLOCK_D, BLOCK_M
        turns.zero_()
        blind = lse == float("-inf")
        delta = (out.float() * dout.float()).sum(-1)
        if dlse is not None:
            delta -= dlse.masked_fill(blind, 0.0)
        statistics[0].fill_(float("inf"))[..., : lse.shape[2]] = (lse * LOG2_E).masked_fill(blind, float("inf"))
        statistics[1].fill_(0.0)[..., : lse.shape[2]] = delta

    def finish(sums, lse, dq, scale, *_, BLOCK_D):  # noqa: N803 - likewise
        del BLOCK_D
        dq.copy_((sums * scale).masked_fill((lse == float("-inf"))[..., None], 0.0))

    found = dict(zip(NAMES, (prepare, gradients, finish), strict=True))

    def provide(name):
        def launch(*args, **named):
            asked.append(name)
            if name in found:
                args, named = by_position(name, args, named)
                found[name](*args, **named)

        return launch

    with library.override(provide):
        yield asked


def argument(value, box):
    """Return what the kernel gets in place of an argument."""
    if isinstance(value, Described):
        return Box(value.base.as_strided(value.shape, value.strides), box)
    if not isinstance(value, torch.Tensor):
        return value
    return Pointer(value.new_empty(0).set_(value.untyped_storage()), value.storage_offset())


def gradients_of(operands, grads, mask, exact, mod=None):
    """Differentiate by `backward.launch_backward`, from the exact output and log-sums."""
    (q, k, v), (dout, dlse), (out, lse) = operands, grads, exact
    tables = tables_of(mask, q.shape[2], k.shape[2], q.device)
    made = tuple(torch.full_like(each, float("nan")) for each in (q, k, v))
    empty = tuple(q.new_empty(0) for _ in range(3))
    given = (dout, dlse), (q, k, v), (out.detach().to(q.dtype), lse.detach().float())
    launch_bwd.launch_backward(*given, made, empty, q.shape[3] ** -0.5, tables, modification_of(mod), True)
    return made


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(
    ("lengths", "dims", "shared"),
    [((370, 370), (64, 64), False), ((190, 300), (72, 128), True), ((333, 150), (40, 8), False)],
)
def test_it_differentiates(over_maps, name, lengths, dims, shared):
    q_len, kv_len = lengths
    mask_mod = MASKS[name]
    batches, heads = 2 if name in OF_BATCHES else None, 4 if name in OF_HEADS else None
    kv_batch = 1 if shared and batches is None else 2
    q, dout = (torch.randn(2, 4, q_len, dim).bfloat16() for dim in dims)
    k, v = (torch.randn(kv_batch, heads or 2, kv_len, dim).bfloat16() for dim in dims)
    dlse = torch.randn(2, 4, q_len)
    mask = None if mask_mod is None else create_block_mask(mask_mod, batches, heads, q_len, kv_len, "cpu")
    wide = [each.double().requires_grad_() for each in (q, k, v)]
    out, lse = reference.flex_attention(*wide, None, mask_mod)
    blind = lse == float("-inf")
    exact = torch.autograd.grad((out, lse), wide, (dout.double(), dlse.double().masked_fill(blind, 0.0)))

    found = gradients_of((q, k, v), (dout, dlse), mask, (out, lse))

    if over_maps != NAMES:
        assert name in {"none", "causal", "queries that see nothing"}
        assert not shared
        return
    for value, right in zip(found, exact, strict=True):
        torch.testing.assert_close(value.double(), right, atol=4e-2, rtol=4e-2)


def test_calls_that_it_does_not_run(over_maps):
    q, k, v, dout = (torch.randn(1, 2, 256, 64).bfloat16() for _ in range(4))
    ids = torch.tensor([0] * 100 + [1] * 156)
    documents = create_block_mask(Documents(ids), None, None, 256, 256, "cpu")
    of_heads = create_block_mask(lambda b, h, q, k: (q - k).abs() <= h * 40, None, 2, 256, 256, "cpu")
    narrow = k[:, :1], v[:, :1]
    shifted = torch.randn(1 + q.numel()).bfloat16()[1:].view(q.shape)
    wide = torch.randn(1, 2, 256, 136).bfloat16()
    third = lambda b, h, q, k: (q - k) % 3 == h  # noqa: E731 - a mask function
    dilated, of_64 = (create_block_mask(third, None, 2, 256, 256, "cpu", block) for block in (128, 64))
    calls = (
        (q, k, v, dout, documents, True),
        (q, k, v, dout, of_heads, True),
        (q, *narrow, dout, of_heads, False),
        (q, *narrow, dout, documents, True),
        (q, k, v, dout, dilated, True),
        (q, *narrow, dout, dilated, False),
        (q, k, v, dout, of_64, False),
        (shifted, k, v, dout, documents, False),
        (q, k, wide, wide, documents, False),
        (*(each.float() for each in (q, k, v, dout)), documents, False),
    )
    for *given, grad, mask, mapped in calls:
        over_maps.clear()
        exact = reference.flex_attention(*(each.double() for each in given), None, mask.mask_mod)
        gradients_of(given, (grad, None), mask, exact)
        assert ("flex_attention_bwd_sm90" in over_maps) == mapped
        assert ("flex_attention_bwd_dkdv" in over_maps) != mapped


@pytest.mark.parametrize("name", ["causal", "dilated of heads"])
@pytest.mark.parametrize(
    ("mod", "mapped"),
    [
        (Alibi(alibi_slopes(4, "cpu")), True),
        (SoftCap(1.5), True),
        (RelativeBias(torch.randn(4, 65)), False),
    ],
)
def test_what_is_modified(over_maps, name, mod, mapped):
    of_heads = name in OF_HEADS
    q, k, v, dout = (torch.randn(1, heads, 200, 64).bfloat16() for heads in (4, *((4, 4) if of_heads else (2, 2)), 4))
    mask = create_block_mask(MASKS[name], None, 4 if of_heads else None, 200, 200, "cpu")
    wide = [each.double().requires_grad_() for each in (q, k, v)]
    results = reference.flex_attention(*wide, mod, MASKS[name])
    exact = torch.autograd.grad(results[:1], wide, dout.double())

    found = gradients_of((q, k, v), (dout, None), mask, results, mod)

    assert ("flex_attention_bwd_sm90" in over_maps) == mapped
    assert mapped or "flex_attention_bwd_dkdv" in over_maps
    for value, right in zip(found if mapped else (), exact if mapped else (), strict=True):
        torch.testing.assert_close(value.double(), right, atol=4e-2, rtol=4e-2)


def test_visits_that_leave_gaps_are_not_orderly():
    def of(spans, count, size):
        return hulls.hulls_of(torch.tensor(spans, dtype=torch.int32)[None, None], count, size)

    # the queries of two tiles see the first keys, those between them nothing; and all see them
    apart = [[0, 2]] * 64 + [[256, 0]] * 64 + [[0, 2]] * 64
    keys = [[0, 192]] * 2 + [[192, 0]] * 254
    assert not hulls.are_orderly(of(apart, 256, hulls.QUERIES), of(keys, 192, hulls.KEYS))
    assert hulls.are_orderly(of([[0, 2]] * 192, 256, hulls.QUERIES), of(keys, 192, hulls.KEYS))
