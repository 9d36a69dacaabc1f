"""Sums of convolutions: every listed way has a kernel that the bundle serves, and gives the result; the least time is chosen."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.conv import launch, launch_sm90, launch_sums, launch_weight_grad
from nojit.kernels.conv.launch_pointers import Sum
from nojit.kernels.conv.launch_sums import Grad, Way
from nojit.kernels.conv.sum_costs import COPY
from nojit.kernels.conv.sweeps import Window, forward_sweep
from nojit.kernels.manifest_kernels import by_position
from nojit.kernels.products.tile_costs import Tiling
from nojit.runtime.expr import expression as expr

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
MANIFEST = {kernel["name"]: kernel for kernel in tomllib.loads((MANIFESTS / "conv.toml").read_text())["kernel"]}
LAST = torch.channels_last
launches: list[tuple[str, dict[str, Any]]] = []


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a device that takes maps, and note its launches, which compute nothing."""

    def provide(name: str) -> Any:
        def launch_one(*args: Any, **named: Any) -> None:
            values, constexprs = by_position(name, args, named)
            params = list(MANIFEST[name]["params"]) if name in MANIFEST else []
            launches.append((name, dict(zip(params, values, strict=False)) | constexprs))

        return launch_one

    for module in (launch_sums, launch_sm90):
        monkeypatch.setattr(module, "takes_maps", lambda value: value.element_size() == 2)
    launches.clear()
    with library.override(provide):
        yield


def image(*sizes: int, how: Any = LAST) -> Any:
    how = torch.channels_last_3d if how is LAST and len(sizes) == 5 else how
    return torch.empty(sizes, dtype=torch.bfloat16, memory_format=how)


def window(taps: int, stride: int, dims: int = 2) -> Window:
    return Window((stride,) * dims, (taps // 2,) * dims, (taps // 2,) * dims, (1,) * dims)


def convolve(sizes: tuple[int, ...], taps: int, stride: int, groups: int = 1, how: Any = LAST) -> None:
    """Convolve an image of (batch, channels, side, channels of the result), or a volume of so many frames, stored as `how` says."""
    batch, channels, side, results, *frames = sizes
    dims = 2 + len(frames)
    x, w = (
        image(batch, channels, *frames, side, side, how=how),
        image(results, channels // groups, *(taps,) * dims, how=how),
    )
    writer = RecipeWriter(x, w)
    x, w = writer.operands
    launch.run_conv(writer, x, w, None, window(taps, stride, dims), groups, "ieee")


def differentiate(sizes: tuple[int, ...], taps: int, stride: int, groups: int = 1, how: Any = LAST) -> None:
    """Take the gradient by the input of the same convolution."""
    batch, channels, side, results, *frames = sizes
    dims, positions = 2 + len(frames), (*frames, side, side)
    around = window(taps, stride, dims)
    grad = image(batch, results, *around.sizes(positions, (taps,) * dims), how=how)
    w = image(results, channels // groups, *(taps,) * dims, how=how)
    writer = RecipeWriter(grad, w)
    grad, w = writer.operands
    launch.run_input_grad(writer, grad, w, (batch, channels, *positions), around, groups, "ieee")


def listed(call: Any, *args: Any) -> list[Way]:
    """Return all ways that a call lists, of all its sums."""
    found: list[Way] = []
    whole, classes = launch_sums.ways_of, launch_sums.grad_ways

    def note(ways: Iterator[Way]) -> list[Way]:
        own = list(ways)
        found.extend(own)
        return own

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_sums, "ways_of", lambda *given: note(whole(*given[:4])))
        patch.setattr(launch_sums, "grad_ways", lambda *given: note(classes(*given[:4])))
        call(*args)
    return found


def is_served(name: str, facts: dict[str, Any]) -> bool:
    """Return whether the bundle has the tile that a launch names: in its tuned table, or in a config whose rules the call keeps."""
    kernel, tile = MANIFEST[name], (facts["BLOCK_M"], facts["BLOCK_N"])
    table = MANIFESTS / f"tuned/{name}.nvidia-h200.toml"
    if table.exists() and facts.get("PANEL", 64) == 64 and facts.get("UNIT", 8) == 8:
        return tile in {(config["BLOCK_M"], config["BLOCK_N"]) for config in tomllib.loads(table.read_text())["config"]}
    numbers = {key: value for key, value in facts.items() if isinstance(value, int)}
    return any(
        (config["BLOCK_M"], config["BLOCK_N"]) == tile
        and "sm_90" in config.get("archs", ["sm_90"])
        and all(expr.parse(config.get(rule, "true")).evaluate(numbers) for rule in ("when", "requires"))
        for config in kernel["configs"]
    )


def chosen_tile(name: str, facts: dict[str, Any]) -> tuple[int, int]:
    """Return the tile of the first config for sm_90 whose rules a launch keeps."""
    names = {key: value for key, value in facts.items() if isinstance(value, int | str)}
    return next(
        (config["BLOCK_M"], config["BLOCK_N"])
        for config in MANIFEST[name]["configs"]
        if "sm_90" in config.get("archs", ["sm_90"])
        and all(expr.parse(config.get(rule, "true")).evaluate(names) for rule in ("when", "requires"))
    )


def drawn(seed: int) -> tuple[Any, ...]:
    """Draw a convolution: channels that fill vectors or not, taps, a stride, groups, by channels or by planes, image or volume."""
    rng = random.Random(seed)
    unit, groups = rng.choice(((8, 1), (8, 1), (1, 1), (4, 1), (64, 2), (16, 2), (1, 3)))
    channels, results = (groups * unit * rng.randint(1, 240 // unit // groups) for _ in range(2))
    sizes = rng.randint(1, 9), channels, rng.randint(5, 70), results, *rng.choice(((), (), (5,)))
    how = rng.choice((LAST, LAST, torch.contiguous_format))
    return sizes, rng.choice((1, 3, 5)), rng.choice((1, 2, 3)), groups, how


SHARING = (25, 43, 50)
"""Seeds of weight gradients whose taps may share rows."""


@pytest.mark.parametrize("seed", [*range(24), *SHARING])
def test_every_way_of_a_weight_gradient_has_a_kernel(seed, monkeypatch):
    (batch, channels, side, results, *frames), taps, stride, groups, how = drawn(seed)
    positions, kernel = (*frames, side, side), (taps,) * (2 + len(frames))
    around = window(taps, stride, len(kernel))
    grad = image(batch, results, *around.sizes(positions, kernel), how=how)
    writer = RecipeWriter(grad, image(batch, channels, *positions, how=how))
    weight, list_ways = (results, channels // groups, *kernel), launch_weight_grad._ways

    def launch_all(one: Sum, grad: torch.Tensor, x: torch.Tensor, result: torch.Tensor) -> list[Any]:
        ways = list(list_ways(one, grad, x, result))
        for way in ways:
            launch_weight_grad._launch_way(way, writer, one, grad, x, result)
        return ways

    monkeypatch.setattr(launch_weight_grad, "_ways", launch_all)
    launch.run_weight_grad(writer, *writer.operands, weight, around, groups, "ieee")
    for kernel in ("conv_weight_grad_sm90", "conv_weight_grad_halo_sm90"):
        assert all(is_served(kernel, facts) for name, facts in launches if name == kernel)
    assert seed not in SHARING or "conv_weight_grad_halo_sm90" in {name for name, _ in launches}


@pytest.mark.parametrize("call", [convolve, differentiate])
@pytest.mark.parametrize("seed", range(24))
def test_the_least_time_is_found_without_those_of_all_ways(call, seed, monkeypatch):
    find, found = launch_sums._fastest, []

    def hold(ways: Any, within: float = math.inf) -> Way | None:
        way, best = find(ways, within), min(ways(None), default=None)
        found.append(way)
        if best is None or best.ns > within:
            assert way is None or way.ns > within
        else:
            assert way == best
        return way

    monkeypatch.setattr(launch_sums, "_fastest", hold)
    call(*drawn(seed))
    assert found


@pytest.mark.parametrize("seed", range(12))
def test_classes_of_equal_sizes_have_equal_ways(seed, monkeypatch):
    known = launch_sums._ClassWays.fastest

    def hold(self: Any, each: Any, one: Sum, within: float = math.inf) -> Way | None:
        way = known(self, each, one, within)
        its_w, its_out = (
            (value if not one.is_part else launch_sums.part_of(value, *launch_sums._spans(value, *facts)))
            for value, facts in (
                (self.w, (each.first_tap, each.sweep.taps, each.taps_apart)),
                (self.out, (each.first, each.sweep.out, each.apart)),
            )
        )
        best = min(launch_sums.ways_of(one, self.grad, its_w, its_out), default=None)
        assert way == best or best is None or best.ns > within
        return way

    monkeypatch.setattr(launch_sums._ClassWays, "fastest", hold)
    sizes, taps, _, groups, how = drawn(seed)
    for stride in (1, 2, 3):
        differentiate(sizes, taps, stride, groups, how)


@pytest.mark.parametrize("call", [convolve, differentiate])
@pytest.mark.parametrize("seed", range(24))
def test_the_bundle_serves_every_listed_way(call, seed, monkeypatch):
    args = drawn(seed)
    for way in dict.fromkeys(way._replace(ns=0.0) for way in listed(call, *args)):
        launches.clear()
        together = [way._replace(ns=-1.0)] if way.kernel == "conv_few_grad" else []
        monkeypatch.setattr(launch_sums, "grad_ways", lambda *_, together=together: together)
        monkeypatch.setattr(launch_sums, "ways_of", lambda *_, way=way: [way])
        call(*args)
        named = [facts for name, facts in launches if name == way.kernel and "BLOCK_M" in facts]
        assert named or way.kernel in {"bmm", "conv_halo_sm90"}
        for facts in named:
            assert Tiling(facts["BLOCK_M"], facts["BLOCK_N"], facts["splits"]) == way.tiling
            assert is_served(way.kernel, facts), way


@pytest.mark.parametrize("sizes", [(8, 64, 112, 64), (2, 16, 30, 64), (4, 120, 60, 128), (16, 64, 112, 120)], ids=str)
def test_the_halo_kernels_time_is_that_of_the_tile_that_the_manifest_chooses(sizes, monkeypatch):
    (way,) = {way for way in listed(convolve, sizes, 3, 1) if way.kernel == "conv_halo_sm90"}
    monkeypatch.setattr(launch_sums, "ways_of", lambda *_: [way])
    launches.clear()
    convolve(sizes, 3, 1)
    ((name, facts),) = launches
    assert chosen_tile(name, facts) == way.tiling[:2]


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [((1, 512, 14, 128), (64, 64)), ((4, 512, 28, 256), (128, 128)), ((8, 512, 28, 64), (64, 64))],
    ids=str,
)
def test_parts_that_rules_choose_have_wide_tiles_where_those_fill_half_of_the_device(sizes, tile, monkeypatch):
    monkeypatch.setattr(launch_sums, "takes_maps", lambda _: False)
    monkeypatch.setattr(launch_sm90, "parts_of", lambda *_: 2)
    convolve(sizes, 3, 1)
    name, facts = next(each for each in launches if each[0] == "conv_sm90")
    assert chosen_tile(name, facts) == tile


@pytest.mark.parametrize(("channels", "groups", "stride"), [(32, 2, 1), (32, 32, 1), (128, 2, 2)])
def test_no_launch_computes_the_input_gradient_of_several_groups(channels, groups, stride):
    ways = listed(differentiate, (4, channels, 28, channels), 3, stride, groups)
    assert "conv_few_grad" not in {way.kernel for way in ways}
    assert "conv_few_grad" not in {name for name, _ in launches}


def test_few_tiles_of_a_deep_sum_are_divided():
    convolve((1, 512, 14, 128), 3, 1)
    assert launches[0][1]["splits"] > 1
    assert launches[-1][0] == "bmm_merge"


def test_many_tiles_are_not_divided():
    convolve((32, 128, 56, 256), 3, 1)
    ((name, facts),) = launches
    assert name == "conv_sm90"
    assert facts["splits"] == 1


def test_no_way_is_listed_where_the_batch_must_not_matter(monkeypatch):
    monkeypatch.setattr(library, "is_batch_invariant", lambda: True)
    assert not listed(convolve, (8, 64, 30, 64), 3, 1)
    assert not listed(differentiate, (8, 64, 30, 64), 3, 2)


@pytest.mark.parametrize("sizes", [(8, 12, 64, 32), (2, 100, 64, 256)], ids=str)
def test_pointwise_sums_over_planes_are_dense_products(sizes):
    """They read planes as they are, also those of channels that fill no vectors."""
    assert not listed(convolve, sizes, 1, 1, 1, torch.contiguous_format)
    assert launches[0][0].startswith("bmm")


def test_no_way_is_listed_for_kernels_that_are_left_to_tritons_jit():
    """The JIT compiles the configs of the manifest, and the estimates are those of tuned ones."""

    class Left:
        is_unbuilt = True

        def __call__(self, *args: Any, **named: Any) -> None: ...

    with library.override(lambda _: Left()):
        assert not listed(convolve, (8, 64, 30, 64), 3, 1)
        assert not listed(differentiate, (8, 64, 30, 64), 3, 2)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_copies_of_weights_by_planes_take_time(is_transposed):
    """The kernel for few channels copies a transposed weight in any case."""
    sweep = forward_sweep(window(3, 1), (28, 28), (3, 3))
    one = Sum(sweep, 4, 1, 64, 64, is_transposed=is_transposed, precision="ieee")
    x, w, out = image(4, 64, 28, 28), image(64, 64, 3, 3), image(4, 64, 28, 28)
    ways = zip(*(launch_sums.ways_of(one, x, each, out) for each in (w, w.contiguous())), strict=True)
    more = {(one.kernel, round(other.ns - one.ns)) for one, other in ways}
    assert more == {(name, COPY) for name in ("conv_sm90", "conv_halo_sm90")} | {
        ("conv_few", COPY * (not is_transposed))
    }


def test_launches_for_each_class_follow_zeros_if_no_tap_reads_a_position():
    """The gradient of every other position is 0; a launch for all classes writes the zeros itself."""
    zeros = Grad(None, [], [], zeroed=True)  # type: ignore[arg-type]
    out = torch.ones(2, 2, dtype=torch.bfloat16)
    writer = RecipeWriter(out)
    (target,) = writer.operands
    assert target is not None
    launch_sums.launch_input_grad(writer, zeros, target, target, target)
    assert not target.any()


def test_one_launch_computes_all_classes_if_a_class_has_no_listed_way(monkeypatch):
    """Kernels without estimates would run the class: they are the slowest."""
    monkeypatch.setattr(launch_sums, "ways_of", lambda *_: [])
    differentiate((2, 64, 30, 64), 3, 2)
    assert launches[0][0] == "conv_few_grad"
