"""Products with weights of 4 bits in Gluon, step by step without a device: see `tests.kernels.gluon_stub` for what that shows.

The assembly that unpacks a word has a stand-in, which is told by what the assembly is to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.tuning_space import expand_space
from nojit.kernels import library
from nojit.kernels.calls.tensor_maps import Described
from nojit.kernels.manifest_kernels import by_position
from nojit.kernels.mixed_mm import launch as launch_module
from nojit.kernels.mixed_mm import reference, uint4x2_mixed_mm
from nojit.kernels.products.tile_costs import Tiling
from torch import Tensor

from tests.kernels.accuracy import assert_accurate
from tests.kernels.gluon_stub import Map, Pointer, Tile, load
from tests.kernels.sm90 import KERNELS, SHARED
from tests.kernels.test_bmm_sm90 import merge

FEW = ("products/kernel_tiles.py", "mixed_mm/kernel_few.py")
MANY = (*SHARED, "mixed_mm/kernel_sm90.py")
PROGRAMS = 3
# as few stages and warps as work: the more often they are used again, the more is seen
TILES = {
    "mixed_mm_few": [
        {"BLOCK_M": 8, "BLOCK_N": 32, "UNROLL": 1},
        {"BLOCK_M": 16, "BLOCK_N": 64, "UNROLL": 2},
        {"BLOCK_M": 16, "BLOCK_N": 128, "UNROLL": 1},
    ],
    "mixed_mm_sm90": [
        {"BLOCK_M": 256, "BLOCK_N": 128, "GROUP": 2, "STAGES": 2},
        {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP": 2, "STAGES": 3},
        {"BLOCK_M": 64, "BLOCK_N": 128, "GROUP": 2, "STAGES": 3},
    ],
}
OF_TILES = {"GROUP": 2, "STAGES": 3}
WARPS = 2
asked: list[str] = []
chosen: dict[str, dict[str, int]] = {}


def as_words(pointer: Pointer) -> Pointer:
    size = pointer.memory.element_size()
    whole = pointer.memory.view(torch.uint8)
    return Pointer(whole[: len(whole) // 4 * 4].view(torch.int32), pointer.place * size // 4)


def unpack(words: Tensor, pairs: tuple[Tensor, ...], dtype: torch.dtype, groups: str) -> Tensor:
    """Return the weights of words of any size, [.., columns, 2]."""
    size = words.element_size()
    packed = words.contiguous().view(torch.uint8).reshape(*words.shape[:-1], -1).int()
    weights = torch.stack((packed & 15, packed >> 4), -1).to(dtype) - 8

    def of_columns(values: tuple[Tensor, ...]) -> Tensor:
        # two columns in each, in order; those of all words side by side
        both = torch.stack([value.contiguous().view(dtype).unflatten(-1, (-1, 2)) for value in values], -2)
        return both.flatten(-3)[..., None]

    if groups == "zeros":
        weights += 8 - of_columns(pairs[size // 2 :])
    return weights if groups == "none" else weights * of_columns(pairs[: size // 2])


def unpack_together(
    first: Tensor, second: Tensor, pairs: tuple[Tensor, ...], dtype: torch.dtype, groups: str
) -> Tensor:
    """Return the weights of two rows' words as pairs in words, the indices of a byte behind its nibble's; of bf16 a quarter."""
    both = torch.stack([unpack(words, pairs, dtype, groups) for words in (first, second)], -1)
    # columns are words, then two bits; behind them are nibbles and rows
    both = both.unflatten(-3, (-1, 2, 2)).movedim(-2, -4) / (4 if dtype == torch.bfloat16 else 1)
    return both.contiguous().view(torch.int32)[..., 0]


def put_together(words: Tensor) -> Tensor:
    return words.contiguous().view(torch.int16).unflatten(-1, (2, 2)).mT.contiguous().view(torch.int32)[..., 0]


class View(Tile):
    """A view of shared memory as another dtype."""

    def slice(self, first: int, count: int, dim: int) -> View:
        return View(self.value.narrow(dim, first, count))


def others(gl: SimpleNamespace) -> dict[str, Any]:
    """Stand in for layouts, for words, and for products of registers."""
    gl.DistributedLinearLayout = lambda *facts: SimpleNamespace(shape=facts[-1])
    gl.BlockedLayout = gl.NVMMASharedLayout = gl.SwizzledSharedLayout = lambda *_, **__: None
    gl.num_warps = lambda: WARPS
    gl.sum = torch.sum
    gl.float16, gl.int16 = torch.float16, torch.int16
    return {
        "as_words": as_words,
        "unpack_words": unpack_together,
        "halves_together": put_together,
        "unpack_shorts": unpack,
        "halves_of_words": lambda words, dtype: words.contiguous().view(dtype),
        "parted": lambda pairs: pairs.unbind(-1),
        "mma_v2": lambda a, b, acc: acc + a.float() @ b.float(),
        "reinterpret": lambda tile, dtype, shape, _: View(tile.value.contiguous().view(dtype).view(shape)),
    }


BOXES = ((64, 64), (32, 64), (64, 64), (1, 64), (1, 64))
"""Of a, b, what is stored, scales and zeros."""


def argument(place: int, value: Any, width: int = 64) -> Any:
    """Make a map or a pointer of an argument; boxes of b are `width` bytes wide."""
    if isinstance(value, Described):
        box = (64, 32) if value.base.dtype == torch.float32 else (32, width) if place == 1 else BOXES[place]
        return Map(value.base.as_strided(value.shape, value.strides), box)
    if not isinstance(value, Tensor):
        return value
    memory = value.new_empty(0).set_(value.untyped_storage())  # type: ignore[call-overload]
    return Pointer(memory, value.storage_offset())


def provide(name: str) -> Callable[..., None]:
    """Give kernels as Python; the sums of parts too."""
    if name == "bmm_merge":
        return lambda **named: (asked.append(name), merge(*by_position(name, (), named)[0]))[1]
    few = name == "mixed_mm_few"
    function = "mixed_mm_sm90" if name == "mixed_mm_tiles_sm90" else name
    kernel = load(f"{function}_kernel", *(KERNELS / path for path in (FEW if few else MANY)), others=others)

    def launch(*args: Any, **named: Any) -> None:
        asked.append(name)
        args, named = by_position(name, args, named)
        # the tile is the caller's where it names one
        config = {**chosen[name], **named}
        if not few:
            config.setdefault("WIDTH", config["BLOCK_N"])
        # a grid of its own, as every program of few rows has one tile
        splits, cols = args[9], args[6]
        programs = splits * -(-cols // config["BLOCK_N"]) if few else PROGRAMS
        given = [argument(place, value, config.get("WIDTH", 64)) for place, value in enumerate(args)]
        kernel(programs, *given, **config)

    return launch


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device that runs them."""
    monkeypatch.setattr(launch_module, "runs", lambda *_: True)
    asked.clear()
    chosen.clear()
    chosen.update({name: tiles[0] for name, tiles in TILES.items()})
    chosen["mixed_mm_tiles_sm90"] = OF_TILES
    monkeypatch.setattr(library, "has", lambda name: name != "mixed_mm_tiles_sm90")
    with library.override(provide):
        yield


def operands(  # noqa: PLR0917 - what a case is made of
    m: int, n: int, k: int, dtype: torch.dtype, kind: str, size: int | None
) -> tuple[Tensor, Tensor, dict]:
    a, b = torch.randn(m, k).to(dtype), torch.randint(0, 256, (k // 2, n), dtype=torch.uint8)
    if kind == "none":
        return a, b, {}
    groups = 1 if size is None else -(-k // size)
    words: dict[str, Any] = {"scales": (torch.rand(groups, n) + 0.5).to(dtype), "group_size": size}
    if kind == "zeros":
        words["zeros"] = torch.randint(0, 16, (groups, n)).to(dtype)
    return a, b, words


def check(a: Tensor, b: Tensor, words: dict[str, Any]) -> None:
    wide = {name: value.double() if isinstance(value, Tensor) else value for name, value in words.items()}
    exact = reference.uint4x2_mixed_mm(a.double(), b, **wide)
    assert_accurate(uint4x2_mixed_mm(a, b, **words), exact, reference.uint4x2_mixed_mm(a, b, **words))


@pytest.mark.parametrize("tile", TILES["mixed_mm_few"], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("kind", "size"), [("none", None), ("scales", None), ("scales", 32), ("zeros", 96)])
def test_few_rows(kind, size, dtype, tile):
    chosen["mixed_mm_few"] = tile
    for m, n, k in ((1, 144, 352), (tile["BLOCK_M"] - 1, 2192, 48)):
        check(*operands(m, n, k, dtype, kind, size))
    assert set(asked) == {"mixed_mm_few"}


def within(value: Tensor, fill: float) -> Tensor:
    """Lay a matrix into a larger one that is full of something else."""
    wide = torch.full((value.shape[0] + 2, value.shape[1] + 32), fill).to(value.dtype)
    wide[1:-1, 16:-16] = value
    return wide[1:-1, 16:-16]


@pytest.mark.parametrize("tile", TILES["mixed_mm_few"], ids=str)
@pytest.mark.parametrize("kind", ["none", "scales", "zeros"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_few_rows_take_any_count_of_steps_and_nothing_from_around(steps, kind, tile):
    chosen["mixed_mm_few"] = tile
    deep = 32 * WARPS * tile["UNROLL"]
    for m, k in product((1, tile["BLOCK_M"]), (steps * deep, steps * deep - 48)):
        a, b, words = operands(m, tile["BLOCK_N"] + 16, k, torch.float16, kind, 32)
        foreign = {"scales": float("inf"), "zeros": float("nan")}
        inside = {name: within(words[name], fill) for name, fill in foreign.items() if name in words}
        check(within(a, float("nan")), within(b, 255), words | inside)
    assert set(asked) == {"mixed_mm_few"}


@pytest.mark.parametrize("steps", [1, 2, 5, 8, 11])
def test_programs_of_few_columns_that_start_apart_take_each_step_once(steps):
    # 16 tiles start together, and the last sets are not whole
    a, b, words = operands(3, 32 * 100, 32 * WARPS * steps - 16, torch.bfloat16, "none", None)
    check(within(a, float("nan")), within(b, 255), words)
    assert asked == ["mixed_mm_few"]


@pytest.mark.parametrize("kind", ["none", "zeros"])
def test_few_rows_in_parts(kind):
    check(*operands(5, 48, 2128, torch.float16, kind, 64))
    assert asked == ["mixed_mm_few", "bmm_merge"]


def test_parts_with_an_odd_count_of_steps_know_nothing_of_the_next_ones_scales():
    # every weight is 1, and each part takes 17 steps of 64
    a, b, scales = torch.ones(5, 2128).half(), torch.full((1064, 48), 0x99).byte(), torch.ones(34, 48).half()
    scales[17, 3] = float("inf")
    result = uint4x2_mixed_mm(a, b, scales=scales, group_size=64)
    assert asked == ["mixed_mm_few", "bmm_merge"]
    assert (result[:, 3] == float("inf")).all()
    assert (result[:, [0, 1, 2, *range(4, 48)]] == 2128).all()


@pytest.mark.parametrize("tile", TILES["mixed_mm_sm90"], ids=str)
@pytest.mark.parametrize(("kind", "size"), [("none", None), ("scales", None), ("scales", 64), ("zeros", 128)])
def test_many_rows(kind, size, tile):
    chosen["mixed_mm_sm90"] = tile
    for m, n, k, dtype in ((300, 144, 352, torch.bfloat16), (40, 272, 48, torch.float16)):
        check(*operands(m, n, k, dtype, kind, size))
    assert set(asked) == {"mixed_mm_sm90"}


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("tile", [(64, 64), (64, 128), (128, 192), (256, 128)], ids=str)
@pytest.mark.parametrize(("kind", "size"), [("none", None), ("scales", 64), ("zeros", 128)])
def test_tiles_that_the_cost_model_chooses(kind, size, tile, parts, monkeypatch):
    monkeypatch.setattr(library, "has", lambda _: True)
    monkeypatch.setattr(launch_module, "tiling_of", lambda *_: Tiling(*tile, parts))
    for m, n, k, dtype in ((300, 272, 1152, torch.bfloat16), (33, 208, 688, torch.float16)):
        check(*operands(m, n, k, dtype, kind, size))
    assert asked == ["mixed_mm_tiles_sm90", "bmm_merge"][: 1 + (parts > 1)] * 2


def test_the_cost_model_does_not_choose_for_more_rows_or_alone_with_a_batch(monkeypatch):
    monkeypatch.setattr(library, "has", lambda _: True)
    check(*operands(513, 64, 128, torch.float16, "none", None))
    monkeypatch.setattr(library, "is_batch_invariant", lambda: True)
    check(*operands(40, 64, 128, torch.float16, "none", None))
    assert asked == ["mixed_mm_sm90"] * 2


@pytest.mark.parametrize("kind", ["none", "scales", "zeros"])
@pytest.mark.parametrize("tile", TILES["mixed_mm_sm90"][1:], ids=str)
def test_many_rows_in_parts(tile, kind):
    chosen["mixed_mm_sm90"] = tile
    for m, k in ((33, 2128), (130, 3088)):
        check(*operands(m, 144, k, torch.float16, kind, 64))
    assert asked == ["mixed_mm_sm90", "bmm_merge"] * 2


def test_no_part_of_many_rows_knows_anything_of_the_next_ones_scales():
    # every weight is 1, and each part takes 17 steps of 64
    chosen["mixed_mm_sm90"] = TILES["mixed_mm_sm90"][1]
    a, b, scales = torch.ones(33, 2176).half(), torch.full((1088, 48), 0x99).byte(), torch.ones(34, 48).half()
    scales[17, 3] = float("inf")
    result = uint4x2_mixed_mm(a, b, scales=scales, group_size=64)
    assert asked == ["mixed_mm_sm90", "bmm_merge"]
    assert (result[:, 3] == float("inf")).all()
    assert (result[:, [0, 1, 2, *range(4, 48)]] == 2176).all()


@pytest.mark.parametrize(
    ("rows", "cols", "kernel"),
    [
        (16, 132 * 128 + 16, "mixed_mm_few"),
        (17, 132 * 128, "mixed_mm_few"),
        (32, 132 * 128, "mixed_mm_few"),
        (17, 132 * 128 + 16, "mixed_mm_sm90"),
        (33, 4096, "mixed_mm_sm90"),
    ],
)
def test_who_takes_how_many_rows(rows, cols, kernel):
    a = torch.empty(rows, 128, dtype=torch.float16, device="meta")
    b = torch.empty(64, cols, dtype=torch.uint8, device="meta")
    assert launch_module.prepare((a, b, None, None), None, None).kernel == kernel


@pytest.mark.parametrize(
    ("sizes", "kernel"),
    [
        pytest.param((23, 10880, 11648), "mixed_mm_tiles_sm90", id="61 us by few, 47 by tiles"),
        pytest.param((26, 1664, 13184), "mixed_mm_tiles_sm90", id="22 us by few, 18 by tiles"),
        pytest.param((22, 5120, 2176), "mixed_mm_few", id="10 us by few, 12 by tiles"),
        pytest.param((24, 7936, 4608), "mixed_mm_few", id="17 us by few, 20 by tiles"),
        pytest.param((16, 10880, 11648), "mixed_mm_few", id="16 rows"),
    ],
)
def test_17_to_32_rows_run_where_they_are_faster(sizes, kernel, monkeypatch):
    rows, cols, depth = sizes
    monkeypatch.setattr(library, "has", lambda _: True)
    a = torch.empty(rows, depth, dtype=torch.float16, device="meta")
    b = torch.empty(depth // 2, cols, dtype=torch.uint8, device="meta")
    assert launch_module.prepare((a, b, None, None), None, None).kernel == kernel


def test_no_depth_is_cut_where_the_batch_must_not_decide(monkeypatch):
    monkeypatch.setattr(library, "is_batch_invariant", lambda: True)
    for rows in (1, 40):
        check(*operands(rows, 48, 2128, torch.float16, "none", None))
    assert asked == ["mixed_mm_sm90"] * 2


@pytest.mark.parametrize("rows", [9, 70])
def test_rows_may_be_apart_and_results_may_be_given(rows):
    chosen["mixed_mm_few"] = TILES["mixed_mm_few"][1]
    a, b, words = operands(rows, 64, 128, torch.float16, "zeros", 64)
    wide_a, wide_b, out = torch.randn(rows, 160).half(), torch.zeros(64, 96).byte(), torch.full((rows, 96), 7.0).half()
    wide_a[:, 16:144], wide_b[:, 32:] = a, b
    uint4x2_mixed_mm(wide_a[:, 16:144], wide_b[:, 32:], **words, out=out[:, 16:80])
    assert torch.equal(out[:, 16:80], uint4x2_mixed_mm(a, b, **words))
    assert (out[:, :16] == 7).all()
    assert (out[:, 80:] == 7).all()
    assert "mixed_mm" not in asked


ODD = {
    "columns that are no 16": {"n": 40},
    "depth that is no 16": {"k": 72},
    "small groups": {"kind": "scales", "size": 16},
    "no depth": {"k": 0},
}


@pytest.mark.parametrize(("rows", "odd"), list(product((3, 40), ODD.values())), ids=str)
def test_what_they_cannot_take_goes_over_pointers(rows, odd):
    facts = {"m": rows, "n": 64, "k": 128, "dtype": torch.float16, "kind": "none", "size": None} | odd
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        a, b, words = operands(**facts)
        uint4x2_mixed_mm(a, b, **words)
    assert names == ["mixed_mm"]


@pytest.mark.parametrize("rows", [3, 40])
def test_what_lies_otherwise_goes_over_pointers(rows):
    a, b, _ = operands(rows, 64, 128, torch.float16, "none", None)
    out = torch.empty(64, rows).half().T
    odd_a = torch.zeros(rows * 128 + 1).half()[1:].view(rows, 128)
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        uint4x2_mixed_mm(odd_a, b)
        uint4x2_mixed_mm(a, b.T.contiguous().T)
        uint4x2_mixed_mm(a, b.int())
        uint4x2_mixed_mm(a, b, out=out)
    assert names == ["mixed_mm"] * 4


@pytest.mark.parametrize(
    ("stride_a", "stride_b", "kernel"),
    [
        (2**25 - 16, 2**21 - 16, "mixed_mm_few"),
        (2**25, 64, "mixed_mm_sm90"),
        (128, 2**21, "mixed_mm_sm90"),
    ],
)
def test_rows_too_far_apart_for_offsets_of_32_bits_go_elsewhere(stride_a, stride_b, kernel):
    # without memory: they are many GiB apart
    a = torch.empty_strided((3, 128), (stride_a, 1), dtype=torch.float16, device="meta")
    b = torch.empty_strided((64, 64), (stride_b, 1), dtype=torch.uint8, device="meta")
    assert launch_module.prepare((a, b, None, None), None, None).kernel == kernel


def test_no_config_takes_more_rows_in_a_step_than_offsets_are_held_to():
    manifest = load_manifest(KERNELS.parent / "manifests/mixed_mm.toml")
    (few,) = (kernel for kernel in manifest.kernel if kernel.name == "mixed_mm_few")
    for variant in (*expand_kernel(few, "sm_90", few.name).variants, *expand_space(few, "sm_90", few.name).variants):
        assert 16 * dict(variant.constexprs)["UNROLL"] * dict(variant.options)["num_warps"] <= launch_module.STEP_ROWS


def test_groups_of_32_go_to_few_rows_only():
    names = []
    with library.override(lambda name: lambda *_, **__: names.append(name)):
        for rows in (32, 33):
            a, b, words = operands(rows, 64, 128, torch.float16, "scales", 32)
            uint4x2_mixed_mm(a, b, **words)
    assert names == ["mixed_mm_few", "mixed_mm"]
