"""Points that a manifest lists in place of the product of its matrix, and sets of hints that hold one by one."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import msgspec
import pytest
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.plan.planner import make_plans
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.tuning_space import expand_space
from nojit.aot.variants.variant import Variant
from nojit.runtime.errors import ManifestError

from tests.aot.conftest import KERNEL
from tests.aot.entries import spec
from tests.aot.fake_compiler import FakeCompiler, FakeSource

ENTRY: dict[str, Any] = {
    "params": {"x": "*{dtype}", "bias": "*{dtype}?", "n": "i32"},
    "matrix": {"dtype": ["fp16", "bf16", "fp32"], "CAUSAL": [True, False], "WIDTH": [64]},
    "derived": {"EVEN": "n % BLOCK == 0", "HAS": "has(bias)"},
    "configs": [
        {"BLOCK": 64, "num_warps": 4},
        {"BLOCK": 128, "num_warps": 4},
        {"BLOCK": 128, "num_warps": 8, "archs": ["sm_90"]},
    ],
}
FIRST = {"values": {"dtype": "fp16", "CAUSAL": True}}


def expand(*points: dict[str, Any], arch: str = "sm_90", **fields: Any) -> tuple[Variant, ...]:
    return expand_kernel(entry(*points, **fields), arch, "$.kernel[0]").variants


def entry(*points: dict[str, Any], **fields: Any) -> KernelSpec:
    return spec(**{**ENTRY, "point": list(points), **fields})


def refusal(*points: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        expand(*points, **fields)
    return str(caught.value)


def facts(variant: Variant) -> tuple[Any, ...]:
    named = dict(variant.constexprs)
    return named["BLOCK"], dict(variant.options)["num_warps"], named["EVEN"], variant.hints


class TestPoints:
    def test_a_point_is_one_case_with_every_config_and_derived_value(self):
        variants = expand(FIRST)
        assert {variant.axes for variant in variants} == {(("dtype", "fp16"), ("CAUSAL", True), ("WIDTH", 64))}
        assert {variant.signature for variant in variants} == {(("x", "*fp16"), ("bias", "*fp16"), ("n", "i32"))}
        expected = [
            (block, warps, even, ()) for block, warps in ((64, 4), (128, 4), (128, 8)) for even in (True, False)
        ]
        assert [facts(variant) for variant in variants] == expected

    def test_points_take_the_place_of_the_product(self):
        second = {"values": {"dtype": "fp32", "CAUSAL": False}, "types": {"bias": "none"}}
        kinds = {
            (dict(v.axes)["dtype"], dict(v.signature)["bias"], dict(v.constexprs)["HAS"]) for v in expand(FIRST, second)
        }
        assert kinds == {("fp16", "*fp16", True), ("fp32", "none", False)}
        assert len(expand()) == 3 * 2 * 2 * 3 * 2

    def test_a_point_has_its_hints_and_a_variant_without(self):
        variants = expand({**FIRST, "hints": {"x": 16, "n": 1}, "config": {"BLOCK": 64}})
        assert [facts(variant)[2:] for variant in variants] == [
            (True, (("n", 1), ("x", 16))),
            (True, ()),
            (False, (("n", 1), ("x", 16))),
            (False, ()),
        ]

    def test_a_reason_leaves_out_what_serves_other_calls(self):
        exact = {**FIRST, "hints": {"x": 16}, "config": {"BLOCK": 128, "num_warps": 8}, "aligned_only": "as recorded"}
        assert [facts(variant) for variant in expand(exact)] == [
            (128, 8, True, (("x", 16),)),
            (128, 8, False, (("x", 16),)),
        ]
        exact["values"] = {**exact["values"], "EVEN": True}
        assert [facts(variant) for variant in expand(exact)] == [(128, 8, True, (("x", 16),))]
        del exact["aligned_only"]
        assert (
            "so that every call is served; add one, or state why some calls may fail: aligned_only = 'reason' - at $.kernel[0].point[0]"
            in refusal(exact)
        )

    def test_types_of_a_point_come_before_those_of_the_entry(self):
        variants = expand({**FIRST, "types": {"n": "i64", "x": "*{dtype}", "bias": "*fp32"}}, params={"x": "*i8"})
        assert {variant.signature for variant in variants} == {(("x", "*fp16"), ("n", "i64"), ("bias", "*fp32"))}

    def test_members_of_tuples_that_can_be_none_are_there_unless_a_point_says_otherwise(self):
        fields = {"params": {"x": "(*fp16?, (i32?, i64))"}, "derived": {}}
        there, absent = FIRST, {**FIRST, "types": {"x": "(*fp16, (none, i64))"}}
        assert [dict(v.signature)["x"] for v in expand(there, absent, **fields)][::3] == [
            "(*fp16,(i32,i64))",
            "(*fp16,(none,i64))",
        ]

    def test_points_that_share_variants_build_them_once(self):
        points = [{**FIRST, "hints": hints} for hints in ({"x": 16}, {"n": 16}, {"x": 16, "n": 16})]
        variants = expand(*points, {**FIRST, "types": {"n": "i64"}})
        assert len(variants) == len({(v.signature, v.constexprs, v.hints, v.options) for v in variants}) == 6 * (4 + 1)

    def test_a_point_may_be_for_some_archs(self):
        points = [{**FIRST, "archs": ["sm_80"]}, {"values": {"dtype": "bf16", "CAUSAL": False}}]
        assert {dict(v.axes)["dtype"] for v in expand(*points)} == {"bf16"}
        assert {dict(v.axes)["dtype"] for v in expand(*points, arch="sm_80")} == {"fp16", "bf16"}

    def test_exclude_and_core_hold_for_points_too(self):
        points = [FIRST, {"values": {"dtype": "fp32", "CAUSAL": False}}]
        assert {dict(v.axes)["dtype"] for v in expand(*points, exclude=[{"when": "dtype == 'fp32'"}])} == {"fp16"}
        core = expand_kernel(entry(*points, core="not CAUSAL"), "sm_90", "here", "core").variants
        assert {dict(v.axes)["dtype"] for v in core} == {"fp32"}

    def test_a_space_is_tried_for_the_points_alone(self):
        tuning = {"key": ["n"], "space": [{"BLOCK": [32, 64], "num_warps": [1, 2]}]}
        found = expand_space(
            entry({**FIRST, "hints": {"x": 16}}, derived={"HAS": "has(bias)"}, tuning=tuning), "sm_90", "k"
        )
        assert len(found.variants) == 3 + 4
        assert {(dict(v.axes)["dtype"], v.hints) for v in found.variants} == {("fp16", (("x", 16),))}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"values": {"dtype": "fp16"}}, "expected a value for axis 'CAUSAL', got none - at $.kernel[0].point[0].values"),
            ({"values": {"dtype": "fp8", "CAUSAL": True}}, "expected a value of axis 'dtype', 'fp16' or 'bf16' or 'fp32', got 'fp8'"),
            ({"values": {"dtype": "fp16", "CAUSAL": 1}}, "expected a value of axis 'CAUSAL', True or False, got 1"),
            ({"values": {**FIRST["values"], "CAUSEL": 1}}, "expected an axis or a derived constexpr, got 'CAUSEL'; did you mean 'CAUSAL'?"),
            ({"values": {**FIRST["values"], "HAS": False}}, "which allows the point's values of derived constexprs, got none"),
            ({"types": {"bias": "*fp16?"}}, "expected one type, since a point is one case, got '*fp16?'"),
            ({"types": {"n": "int"}}, "got 'int'; did you mean 'i32'? - at $.kernel[0].point[0].types.n"),
            ({"hints": {"y": 16}}, "expected a param with a type in [kernel.params], got 'y' - at $.kernel[0].point[0].hints"),
            ({"config": {"BLOCK": 256}}, "expected a config for the point"),
            ({"config": {"BLOK": 64}}, "expected a constexpr or option that configs set, got 'BLOK'; did you mean 'BLOCK'? - at $.kernel[0].point[0].config.BLOK"),
            ({"config": {"num_warps": 3}}, "expected one of 1, 2, 4, 8, 16, 32, got 3"),
            ({"archs": ["sm91"]}, "got 'sm91'; did you mean 'sm_90'?"),
        ],
    )  # fmt: skip
    def test_mistakes(self, change, message):
        assert message in refusal({**FIRST, **change})

    def test_a_point_stands_there_once(self):
        assert "expected each point once: remove this one, got point[0] again - at $.kernel[0].point[1]" in refusal(
            FIRST, FIRST
        )

    def test_a_config_of_another_arch_is_no_mistake(self):
        point = {**FIRST, "config": {"BLOCK": 128, "num_warps": 8}}
        assert len(expand(point)) == 2
        assert "expected a config for the point on sm_80" in refusal(point, arch="sm_80")
        assert expand(point, arch="sm_80", configs=[ENTRY["configs"][2]]) == ()


def test_a_point_of_an_arch_that_nobody_builds_for_is_a_mistake(write_manifest, tmp_path):
    text = (
        KERNEL
        + '[kernel.params]\nx = "*fp16"\n[[kernel.point]]\narchs = ["sm_90"]\n[[kernel.point]]\narchs = ["sm_91"]\n'
    )
    compiler = FakeCompiler(tmp_path / "journal", {"demo:add_kernel": FakeSource(("x",))})
    with pytest.raises(ManifestError, match=r"got 'sm_91'.*\$\.kernel\[0\]\.point\[1\]\.archs"):
        make_plans([write_manifest(text)], [], "full", compiler)


def sets_of(variants: tuple[Variant, ...]) -> list[set[str]]:
    return [{name for name, _ in variant.hints} for variant in variants]


class TestHintsThatHoldOneByOne:
    PARAMS = {f"p{place}": "*fp16" for place in range(6)}  # noqa: RUF012 - read only
    HINTS = dict.fromkeys(PARAMS, 16)

    @pytest.mark.parametrize("missing", [1, 2, 3, None])
    def test_every_set_with_so_many_missing_is_built(self, missing):
        hints = dict.fromkeys(("p0", "p1", "p2", "p3"), 16)
        partial = {"hints": hints} | ({} if missing is None else {"missing": missing})
        built = sets_of(expand_kernel(spec(params=self.PARAMS, partial_hints=[partial]), "sm_90", "here").variants)
        least = 1 if missing is None else 4 - missing
        expected = [set(chosen) for size in range(4, least - 1, -1) for chosen in combinations(hints, size)]
        assert built == [*expected, set()]

    def test_they_stand_beside_whole_sets(self):
        entry = spec(params=self.PARAMS, hints=[{"p5": 16}], partial_hints=[{"hints": {"p0": 16, "p1": 16}}])
        built = sets_of(expand_kernel(entry, "sm_90", "here").variants)
        assert built == [{"p5"}, {"p0", "p1"}, {"p0"}, {"p1"}, set()]

    @pytest.mark.parametrize(("missing", "at_most"), [(None, 32), (3, 32), (2, 21)])
    def test_too_many_are_refused_with_what_to_change(self, missing, at_most):
        partial = {"hints": self.HINTS, "at_most": at_most} | ({} if missing is None else {"missing": missing})
        count = sum(comb(6, left_out) for left_out in range(min(6, (missing or 6) + 1)))
        with pytest.raises(ManifestError) as caught:
            expand_kernel(spec(params=self.PARAMS, partial_hints=[partial]), "sm_90", "here")
        assert f"expected at most {at_most} sets of hints, got {count} from 6 hints" in str(caught.value)
        assert "lower `missing`, or raise `at_most` - at here.partial_hints[0]" in str(caught.value)
        entry = spec(params=self.PARAMS, partial_hints=[{**partial, "at_most": count}])
        assert len(expand_kernel(entry, "sm_90", "here").variants) == count + 1

    def test_a_param_that_is_none_counts_for_nothing(self):
        entry = spec(params={"a": "*fp16?", "b": "*fp16"}, partial_hints=[{"hints": {"a": 16, "b": 16}}])
        built = expand_kernel(entry, "sm_90", "here").variants
        assert sets_of(built[4:]) == [{"b"}, set()]

    def test_a_point_may_ask_for_them(self):
        points = [{**FIRST, "hints": {"x": 16, "n": 16, "bias": 16}, "missing": 1, "aligned_only": "as recorded"}]
        built = {tuple(sorted(names)) for names in sets_of(expand(*points))}
        assert built == {("bias", "n", "x"), ("bias", "n"), ("bias", "x"), ("n", "x")}
        many = {"hints": self.HINTS, "missing": 5}
        with pytest.raises(ManifestError, match="expected at most 32 sets of hints, got 63"):
            expand_kernel(spec(params=self.PARAMS, point=[many]), "sm_90", "here")


def test_the_schema_knows_both():
    with pytest.raises(msgspec.ValidationError, match="missing"):
        spec(point=[{"missing": -1}])
    with pytest.raises(msgspec.ValidationError, match="partial_hints"):
        spec(partial_hints=[{"hints": {}}])
