"""Tuning spaces: which configs they come to, with which hints, and what rules leave out."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.tuning_space import SpaceExpansion, configs_of, expand_space
from nojit.runtime.errors import ManifestError

from tests.aot.conftest import ROOT
from tests.aot.entries import spec
from tests.support.points import point_of

FIELDS: dict[str, Any] = {
    "params": {"x": "*{dtype}", "n": "i32"},
    "matrix": {"dtype": ["fp16", "bf16"]},
    "hints": [{"x": 16}, {"x": 16, "n": 16}, {"n": 1}],
    "configs": [{"BLOCK": 64}],
}


def expand(arch: str = "sm_90", *, tuning: dict[str, Any] | None = None, **fields: Any) -> SpaceExpansion:
    return expand_space(spec(**(FIELDS | fields), tuning={"key": ["n"], **(tuning or {})}), arch, "here")


def settings(expansion: SpaceExpansion) -> list[tuple[Any, Any]]:
    """The block and the warps of each variant."""
    return [(dict(v.config.constexprs)["BLOCK"], dict(v.config.options)["num_warps"]) for v in expansion.variants]


class TestProducts:
    def test_lists_are_multiplied_and_scalars_are_fixed(self):
        table = {"A": [1, 2], "B": "x", "num_warps": [4, 8], "when": "A == 1", "archs": ["sm_90"]}
        rules = {"when": "A == 1", "archs": ["sm_90"]}
        expected = [{"A": a, "B": "x", "num_warps": w} | rules for a in (1, 2) for w in (4, 8)]
        assert list(configs_of(table)) == expected

    @given(st.dictionaries(st.sampled_from("ABCD"), st.lists(st.integers(), min_size=1, max_size=3, unique=True)))
    def test_every_point_comes_once(self, table):
        points = [tuple(config.values()) for config in configs_of(table)]
        assert points == list(product(*table.values()))

    def test_a_tuple_is_a_value_in_a_list(self):
        assert list(configs_of({"SHAPE": [[1, 2], [3, 4]]})) == [{"SHAPE": [1, 2]}, {"SHAPE": [3, 4]}]


class TestVariants:
    def test_the_manifests_configs_come_first_then_the_space(self):
        expansion = expand(tuning={"space": [{"BLOCK": [32, 128], "num_warps": [2, 4]}]})
        assert settings(expansion) == [(64, 4), (32, 2), (32, 4), (128, 2), (128, 4)] * 2

    def test_a_config_of_both_comes_once(self):
        expansion = expand(tuning={"space": [{"BLOCK": [32, 64]}, {"BLOCK": [64, 128]}]})
        assert settings(expansion) == [(64, 4), (32, 4), (128, 4)] * 2
        assert not expansion.pruned

    def test_only_the_fullest_hints_are_built(self):
        expansion = expand(tuning={"space": [{"BLOCK": [32]}]})
        assert {variant.hints for variant in expansion.variants} == {(("n", 16), ("x", 16))}

    def test_without_hints_the_empty_set_is_built(self):
        assert {v.hints for v in expand(hints=[], tuning={"space": [{"BLOCK": 32}]}).variants} == {()}

    def test_requires_promises_what_it_says(self):
        expansion = expand(hints=[], tuning={"space": [{"BLOCK": 32, "requires": "aligned(x, 16)"}]})
        assert [variant.hints for variant in expansion.variants] == [(), (("x", 16),)] * 2

    def test_when_chooses_variants_and_sees_derived_values(self):
        derived = {"EVEN": "n % BLOCK == 0"}
        tuning = {"space": [{"BLOCK": [32]}], "when": "dtype == 'bf16' and EVEN"}
        variants = expand(derived=derived, tuning=tuning).variants
        assert [(dict(v.axes)["dtype"], dict(v.derived)["EVEN"]) for v in variants] == [("bf16", True)] * 2

    def test_exclude_counts(self):
        tuning = {"space": [{"BLOCK": [32, 128]}]}
        expansion = expand(exclude=[{"when": "BLOCK == 128"}], tuning=tuning)
        assert (settings(expansion), expansion.excluded) == ([(64, 4), (32, 4)] * 2, 2)

    def test_of_other_archs_nothing_is_said(self):
        expansion = expand(tuning={"space": [{"BLOCK": 32, "archs": ["sm_80"]}]})
        assert (settings(expansion), expansion.pruned) == ([(64, 4)] * 2, ())

    def test_options_of_the_kernel_hold(self):
        (first, *_) = expand(options={"enable_fp_fusion": False}, tuning={"space": [{"BLOCK": 32}]}).variants
        assert dict(first.options)["enable_fp_fusion"] is False
        assert dict(first.options).keys() == OPTIONS.keys() - {TOOLCHAIN}

    @pytest.mark.parametrize("tuning", [None, {"key": ["n"]}])
    def test_without_a_space_there_is_nothing_to_measure(self, tuning):
        assert expand_space(spec(**FIELDS, tuning=tuning), "sm_90", "here") == SpaceExpansion((), 0, ())


class TestRules:
    def test_what_a_rule_leaves_out_is_listed_with_the_rule(self):
        expansion = expand(tuning={"space": [{"BLOCK": [32, 128], "when": "BLOCK < 100"}], "when": "dtype == 'fp16'"})
        assert settings(expansion) == [(64, 4), (32, 4)]
        (pruned,) = expansion.pruned
        assert (pruned.kernel, pruned.reason, pruned.detail) == ("k", "left out by 'BLOCK < 100'", "")
        assert pruned.label.startswith("k sm_90 dtype='fp16' BLOCK=128 num_warps=4")

    def test_what_one_table_leaves_out_another_may_have(self):
        space = [{"BLOCK": [32, 128], "when": "BLOCK < 100"}, {"BLOCK": [128]}]
        assert settings(expand(tuning={"space": space, "when": "dtype == 'fp16'"})) == [(64, 4), (32, 4), (128, 4)]

    def test_a_manifests_config_that_does_not_fit_is_not_pruned(self):
        configs = [{"BLOCK": 64}, {"BLOCK": 512, "when": "dtype == 'fp32'"}]
        expansion = expand(configs=configs, tuning={"space": [{"BLOCK": 32}]})
        assert (settings(expansion), expansion.pruned) == ([(64, 4), (32, 4)] * 2, ())

    @pytest.mark.parametrize(
        ("tuning", "where"),
        [
            ({"space": [{"BLOCK": 32, "when": "BLOCK <"}]}, "here.tuning.space[0].when"),
            ({"space": [{"BLOCK": 32}], "when": "dtype =="}, "here.tuning.when"),
            ({"space": [{"BLOCK": 32}, {"BLOCK": 33, "archs": ["sm90"]}]}, "here.tuning.space[1].archs"),
        ],
    )
    def test_a_rule_that_is_none_says_where(self, tuning, where):
        with pytest.raises(ManifestError) as caught:
            expand(tuning=tuning)
        assert caught.value.where == where


KERNELS = [kernel for path in sorted((ROOT / "manifests").glob("*.toml")) for kernel in load_manifest(path).kernel]


UNTUNED = {
    "b2b_gemm_sm90",
    "block_sparse_merge",
    "bmm_merge",
    "bmm_pad",
    "bmm_few",
    "bmm_tiles_sm90",
    "bmm_row",
    "bmm_waves_merge",
    "bmm_waves_sm90",
    "conv_few_grad",
    "conv_few_weight_grad",
    "conv_planes",
    "conv_unfold",
    "conv_weight_grad_halo_sm90",
    "conv_weight_grad_sm90",
    "conv_weight_merge",
    "conv_halo_sm90",
    "flash_attention_bwd_dkdv_sm90",
    "flash_attention_bwd_dq_sm90",
    "flash_attention_bwd_sm90",
    "flex_attention_bwd_captured",
    "flex_attention_bwd_sm90",
    "gated_mm_row",
    "gated_mm_sm90",
    "grouped_mm",
    "grouped_mm_depth",
    "grouped_mm_depth_sm90",
    "grouped_mm_sm90",
    "flash_attention_fwd_fp8_sm90",
    "flash_attention_values",
    "flash_attention_bwd_sm90_prepare",
    "flash_attention_bwd_sm90_finish",
    "flash_attention_bwd_sm90_merge",
    "scaled_grouped_mm",
    "scaled_grouped_mm_bytes",
    "scaled_grouped_mm_sm90",
    "scaled_mm_bytes",
    "scaled_mm_merge",
    "mixed_mm_tiles_sm90",
    "mm_plus_mm_sm90",
    "scaled_mm_parts_sm90",
    "scaled_mm_tiles_sm90",
    "scaled_mm_waves_sm90",
}
"""They have one config for each specialization, run on devices that nothing is measured on, or depend on the lengths of groups."""
POINTWISE = {"vector_add", "gelu", "silu", "swiglu", "addcmul"}
"""Of the generated kernels those that are tuned; the others take configs by their shape."""
FEWER = {
    "block_sparse_sdd": 36,
    "block_sparse_sdd_sm90": 2,
    "block_sparse_dsd_sm90": 14,
    "bmm_sm90": 8,
    "conv_sm90": 42,
    "flash_attention_fwd_fp8": 12,
    "flash_attention_fwd_sm90": 2,
    "flash_attention_bwd_delta": 16,
    "flash_attention_bwd_dkdv": 59,
    "flex_attention_fwd": 50,
    "flex_attention_fwd_sm90": 3,
    "flex_attention_bwd_dkdv": 40,
    "flex_attention_bwd_dq": 40,
    "flex_decoding_blocks": 55,
    "flex_decoding_merge": 12,
    "flex_decoding_one": 32,
    "mixed_mm_few": 58,
    "mixed_mm_sm90": 26,
    "rms_norm_fwd": 6,
    "rms_norm_bwd": 4,
    "rotary_flat": 11,
    "scaled_mm_sm90": 10,
}
"""What fits the registers or the shared memory of sm_90 is less to choose from, what serves few rows or reads long rows twice, and threads that hold
one to four vectors."""


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_kernel_of_the_library_has_a_space(kernel):
    """With some to spare: compiling prunes a few."""
    generated = kernel.source.startswith("nojit.kernels.pointwise.")
    untuned = kernel.name not in POINTWISE if generated else kernel.name in UNTUNED
    assert (kernel.tuning is None) == untuned
    points: dict[str, int] = {}
    for variant in expand_space(kernel, "sm_90", kernel.name).variants:
        # a problem is measured with every block of a descriptor that configs choose
        point = point_of(variant)
        points[point] = points.get(point, 0) + 1
    assert min(points.values(), default=0) >= (0 if kernel.tuning is None else FEWER.get(kernel.name, 64))
    assert sum(points.values()) <= 600
