"""The manifests of the library against its sources: what no GPU and no compiler is needed to see."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.variants.expand import Expansion, expand_kernel
from nojit.aot.variants.tuned_tables import check_tuned, expand_tuned, read_folder
from nojit.aot.variants.tuning_space import expand_space
from nojit.runtime.expr.expression import parse

from tests.support.points import point_of

ROOT = Path(__file__).resolve().parents[2]
ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
MANIFESTS = [load_manifest(path) for path in sorted((ROOT / "manifests").glob("*.toml"))]
KERNELS = {spec.name: spec for manifest in MANIFESTS for spec in manifest.kernel}
TUNED = read_folder(ROOT / "manifests")


@cache
def expand(name: str, arch: str, profile: str = "full") -> Expansion:
    """Expand a kernel, once for all tests."""
    return expand_kernel(KERNELS[name], arch, name, profile)


@cache
def parsed(module: str) -> ast.Module:
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    return ast.parse(Path(found.origin).read_text())


def signature(spec: KernelSpec) -> tuple[list[str], list[str]]:
    """Read a kernel's parameters and constexprs off its source, without importing Triton."""
    module, _, name = spec.source.partition(":")
    (function,) = [node for node in parsed(module).body if isinstance(node, ast.FunctionDef) and node.name == name]
    constexprs = [arg.arg for arg in function.args.args if arg.annotation is not None]
    return [arg.arg for arg in function.args.args if arg.annotation is None], constexprs


def test_one_bundle_holds_them_all():
    assert {(m.bundle.name, m.bundle.version, tuple(m.bundle.archs)) for m in MANIFESTS} == {
        ("nojit-kernels", "0.1.0", ARCHS)
    }


@pytest.mark.parametrize("name", KERNELS)
def test_params_and_constexprs_are_those_of_the_kernel(name):
    spec = KERNELS[name]
    params, constexprs = signature(spec)
    assert list(spec.params) == params, "listed in the kernel's order, for readers"
    for arch in ARCHS:
        for variant in expand(name, arch).variants:
            assert sorted(key for key, _ in variant.constexprs) == sorted(constexprs)


@pytest.mark.parametrize("arch", ARCHS)
def test_profiles_stay_affordable(arch):
    """`core` is what a newcomer builds in minutes, `full` what a release builds once."""
    core = sum(len(expand(name, arch, "core").variants) for name in KERNELS)
    full = sum(len(expand(name, arch).variants) for name in KERNELS)
    assert 60 <= core <= 200
    # sm_90 has kernels of its own, and configs that were tuned: 84 variants are tiles of int4 products. Of each, 105 are rotary
    # embeddings, 36 grouped products, 22 weight gradients of few channels, 16 that share rows, 12 copies of convolutions'
    # operands, 32 volumes of few channels
    assert 400 <= full <= (5199 if arch == "sm_90" else 3800)


@pytest.mark.parametrize("name", KERNELS)
def test_core_holds_some_of_every_kernel(name):
    """Unless its manifest leaves it out in as many words."""
    left_out = KERNELS[name].core == "false"
    for arch in ARCHS:
        if any(arch in config.get("archs", ARCHS) for config in KERNELS[name].configs):
            assert bool(expand(name, arch, "core").variants) != left_out


# the operator gives the Hopper kernel blocks of 128 alone
BITMAPPED = [name for name in KERNELS if "bits_ptr" in KERNELS[name].params and not name.endswith("_sm90")]


@pytest.mark.parametrize("name", BITMAPPED)
@pytest.mark.parametrize("arch", ARCHS)
def test_tiles_divide_the_blocks_of_bitmaps(name, arch):
    """Blocks have 64 or 128 rows and columns; a larger tile would read one bitmap as its neighbours' too."""
    spec = KERNELS[name]
    variants = [*expand(name, arch).variants, *expand_space(spec, arch, name).variants]
    bitmapped = [variant for variant in variants if dict(variant.axes).get("MASK", "bitmap") == "bitmap"]
    assert bitmapped or arch != "sm_90"
    plain = {variant.axes for variant in expand(name, arch).variants if not variant.config.requires}
    assert {variant.axes for variant in bitmapped} <= plain, "blocks of 64 are served too"
    for variant in bitmapped:
        constexprs = dict(variant.constexprs)
        # a tile of decoding holds rows of several heads, of one block each
        tiles = [constexprs["BLOCK_N"]] if "decoding" in name else [constexprs["BLOCK_M"], constexprs["BLOCK_N"]]
        for block in (64, 128):
            values = dict.fromkeys(spec.params, 1) | {"block": block, "q_len": 1000}
            requires = variant.config.requires
            if not requires or parse(requires).evaluate(values):
                assert all(block % tile == 0 for tile in tiles), f"{variant.label()} at blocks of {block}"


@pytest.mark.parametrize("name", [name for name, spec in KERNELS.items() if spec.batch])
@pytest.mark.parametrize("arch", ARCHS)
def test_some_config_of_each_case_asks_nothing_of_the_batch(name, arch):
    spec = KERNELS[name]
    tables = [check_tuned(table, spec) for table in TUNED if table.kernel == name and table.device.arch == arch]
    expanded = expand_tuned(spec, arch, name, "full", tables) if tables else expand(name, arch)
    asked: dict[object, set[bool]] = {}
    for variant in expanded.variants:
        requires = variant.config.requires
        asks = bool(requires) and not parse(requires).names.isdisjoint(spec.batch)
        # one order of configs holds for all blocks of descriptors that they choose from
        asked.setdefault(point_of(variant), set()).add(asks)
    # no more than a tile of rows, always: operators ask others when the batch must not matter
    expected = {True} if name == "mixed_mm_few" else {False}
    assert all(expected <= seen for seen in asked.values())


def test_what_is_measured_in_bf16_stands_for_fp16():
    both = {"fp16", "bf16"}
    for name, spec in KERNELS.items():
        for axis, values in spec.matrix.items():
            if spec.tuning and all(value in values for value in both):
                assert any(both.issubset(group) for group in spec.tuning.alike.get(axis, ())), f"{name}: {axis}"
                for table in TUNED:
                    if table.kernel == name:
                        covered = [both.intersection(dict(entry.where).get(axis, both)) for entry in table.entries]
                        assert all(seen in (set(), both) for seen in covered), f"{name}: {axis}"


OF_WEIGHTS = {"b2b_gemm_sm90", "conv", "conv_few", "conv_few_grad", "conv_few_weight_grad", "conv_halo_sm90", "conv_sm90", "conv_weight_grad",
              "conv_weight_grad_halo_sm90", "conv_weight_grad_sm90", "conv_weight_merge", "grouped_mm",
              "grouped_mm_depth", "grouped_mm_depth_sm90", "grouped_mm_sm90", "mixed_mm", "mixed_mm_few",
              "mixed_mm_sm90", "scaled_grouped_mm", "scaled_grouped_mm_bytes", "scaled_grouped_mm_sm90", "scaled_mm",
              "scaled_mm_bytes", "scaled_mm_sm90"}  # fmt: skip
"""Kernels whose columns are those of weights, or of their gradients, however they are called."""
OWN_SIZES = {"channels", "n_len", "results", "units"}
"""What these kernels call the sizes of weights."""
NO_BATCH = {
    # how deep sums are, and what belongs to weights
    "k_len", "middle_len", "c_len", "vectors", "groups", "group_size", "width", "half", "taps_d", "taps_h", "taps_w",
    # a sequence's or an image's own lengths, and layouts
    "q_len", "padded_len", "v_dim", "pack", "block", "max_row_blocks", "out_d", "out_h", "out_w", "height", "boxes_d", "boxes_h", "boxes_w",
    "eighths", "mul_d", "mul_h", "mul_w",
    # the device, and what operators make 1
    "programs", "splits",
}  # fmt: skip


def test_whatever_rules_of_configs_ask_for_is_the_batch_or_is_known_not_to_be():
    for name, spec in KERNELS.items():
        spaces = spec.tuning.space if spec.tuning else ()
        texts = [config["requires"] for config in (*spec.configs, *spaces) if config.get("requires")]
        ints = {param for param, kind in spec.params.items() if kind in {"i32", "i64"}}
        asked = {param for text in texts for param in parse(text).names & ints if not param.startswith("stride_")}
        known = NO_BATCH | (OWN_SIZES if name in OF_WEIGHTS else set()) | {*spec.batch}
        # element by element: nothing is summed up
        assert asked <= known or spec.source.startswith("nojit.kernels.pointwise"), name
