"""What a manifest entry comes to: which variants, in which order, and which entries are refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.manifest.archs import chips_of, known_archs
from nojit.aot.manifest.matrix import axes_of
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import Expansion, derived_of, expand_kernel
from nojit.aot.variants.variant import Variant
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr.expression import Pointer, parse
from nojit.runtime.table.parts import Derived
from nojit.runtime.values import DType, FunctionRef, identity

from tests.aot.conftest import ROOT
from tests.aot.entries import ARCH_NUMBERS, REQUIRES, RULES, Entry, entries, spec


def expand(arch: str = "sm_90", profile: str = "full", **fields: Any) -> Expansion:
    return expand_kernel(spec(**fields), arch, "demo.toml kernel k", profile)


def refusal(**fields: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        expand(**fields)
    return str(caught.value)


def hint_sets(expansion: Expansion) -> list[dict[str, int]]:
    return [dict(variant.hints) for variant in expansion.variants]


def constexprs(expansion: Expansion, name: str) -> list[Any]:
    return [dict(variant.constexprs)[name] for variant in expansion.variants]


class TestOrder:
    def test_matrix_then_configs_then_derived_then_hints(self):
        variants = expand(
            params={"x": "*{dtype}", "n": "i32"},
            matrix={"dtype": ["fp16", "bf16"], "FLAG": [False, True]},
            configs=[{"BLOCK": 64}, {"BLOCK": 32}],
            derived={"EVEN": "n % BLOCK == 0"},
            hints=[{"x": 16}],
        ).variants
        seen = [
            (*(value for _, value in v.axes), v.config_number, dict(v.derived)["EVEN"], len(v.hints)) for v in variants
        ]
        expected = product(("fp16", "bf16"), (False, True), (0, 1), (True, False), (1, 0))
        assert seen == list(expected)

    def test_is_the_same_every_time(self):
        def once() -> Expansion:
            return expand(params={"a": "*fp16?", "n": "i32"}, matrix={"X": ["b", "a"]}, hints=[{"n": 16}, {"n": 1}])

        assert once() == once()

    def test_constexprs_of_a_config_are_sorted_whatever_the_manifest_says(self):
        (variant,) = expand(configs=[{"Z": 1, "num_warps": 8, "A": 2}]).variants
        assert variant.constexprs == (("A", 2), ("Z", 1))
        assert variant.config.constexprs == (("A", 2), ("Z", 1))

    def test_the_signature_keeps_the_order_of_the_params(self):
        (variant,) = expand(params={"z": "i32", "a": "*fp16"}).variants
        assert variant.signature == (("z", "i32"), ("a", "*fp16"))


class TestOptions:
    def test_every_option_is_spelled_out(self):
        (variant,) = expand().variants
        built = {name: option.default for name, option in OPTIONS.items() if name != TOOLCHAIN}
        assert variant.options == tuple(sorted(built.items()))
        assert variant.config.options == (("num_warps", 4), ("num_stages", 3), ("num_ctas", 1), ("maxnreg", None))

    def test_a_config_overrides_the_kernel_which_overrides_the_default(self):
        variants = expand(
            options={"num_warps": 8, "debug": True}, configs=[{"A": 1}, {"A": 2, "num_warps": 2}]
        ).variants
        assert [dict(v.options)["num_warps"] for v in variants] == [8, 2]
        assert [dict(v.options)["debug"] for v in variants] == [True, True]

    def test_options_that_a_call_cannot_choose_by_do_not_tell_configs_apart(self):
        # the bundle would hold two rows under one key, which its reader refuses
        message = refusal(configs=[{"A": 1, "extern_libs": {"m": "a.bc"}}, {"A": 1, "extern_libs": {"m": "b.bc"}}])
        assert message.startswith("expected each variant once, got twice: k sm_90 A=1 num_warps=4 ")

    def test_options_that_the_entry_sets_tell_configs_apart(self):
        variants = expand(configs=[{"A": 1, "launch_pdl": True}, {"A": 1}], options={"debug": True}).variants
        told = [dict(variant.config.options) for variant in variants]
        plain = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "debug": True}
        assert told == [plain | {"launch_pdl": True}, plain | {"launch_pdl": False}]


HINTED = {"x": "*fp16", "y": "*fp16?", "n": "i32"}


class TestHints:
    def test_sets_are_whole_and_the_empty_one_is_implicit(self):
        expansion = expand(params={"x": "*fp16", "n": "i32"}, hints=[{"x": 16, "n": 16}, {"n": 1}])
        assert hint_sets(expansion) == [{"x": 16, "n": 16}, {"n": 1}, {}]

    def test_without_hints_there_is_one_variant(self):
        assert hint_sets(expand(params={"x": "*fp16"})) == [{}]

    def test_a_hint_on_a_param_that_is_none_says_nothing(self):
        expansion = expand(params=HINTED, hints=[{"x": 16, "y": 16}, {"y": 16}])
        assert hint_sets(expansion) == [{"x": 16, "y": 16}, {"y": 16}, {}, {"x": 16}, {}]
        assert [dict(v.signature)["y"] for v in expansion.variants] == ["*fp16"] * 3 + ["none"] * 2

    def test_hints_are_sorted_by_param(self):
        (variant, _) = expand(params=HINTED | {"y": "*fp16"}, hints=[{"x": 16, "n": 1}]).variants
        assert variant.hints == (("n", 1), ("x", 16))

    def test_on_members_of_tuples(self):
        params = {"x": "(*fp16, (i32, fp32), *fp16?)", "n": "i32"}
        there, absent = (
            [variant.hints for variant in expand(params=params, hints=[hints]).variants if variant.hints]
            for hints in ({"x.0": 16, "x.1.0": 1, "n": 16}, {"x.2": 16})
        )
        assert there == [(("n", 16), ("x.0", 16), ("x.1.0", 1))] * 2
        # the member that may be None has the hint where it is there, and none where it is not
        assert absent == [(("x.2", 16),)]

    def test_on_members_of_a_tuple_that_is_not_there(self):
        variants = expand(params={"x": "((i32, i32)?, *fp16)?"}, hints=[{"x.0.1": 16, "x.1": 16}]).variants
        assert [variant.hints for variant in variants] == [(("x.0.1", 16), ("x.1", 16)), (), (("x.1", 16),), (), ()]

    @pytest.mark.parametrize(
        ("hints", "message"),
        [
            ({"x": 16}, "expected a param with a type in [kernel.params], got 'x', which is a tuple of x.0, x.1.0 - at demo.toml kernel k.hints[0]"),
            ({"x.1": 16}, "got 'x.1', which is a tuple of x.1.0 - at "),
            ({"x.2": 16}, "expected a param with a type in [kernel.params], got 'x.2'; did you mean 'x.0'? - at "),
            ({"n.0": 16}, "got 'n.0'"),
            ({"x.1.0": 16}, "expected an int, or a pointer with hint 16, got x.1.0: fp32 with hint 16"),
            ({"x.0": 1}, "got x.0: *fp16 with hint 1"),
            ({"a": 16}, "expected an int, or a pointer with hint 16, got a: tensordesc<fp16[64]> with hint 16"),
        ],
    )  # fmt: skip
    def test_members_that_are_not_there_or_take_none(self, hints, message):
        params = {"x": "(*fp16, (fp32))", "n": "i32", "a": "tensordesc<fp16[64]>"}
        assert message in refusal(params=params, hints=[hints])

    def test_requires_implies_hints_for_every_variant_of_its_config(self):
        expansion = expand(
            params={"x": "*fp16", "n": "i32", "m": "i32"},
            hints=[{"m": 16}],
            configs=[{"A": 1, "requires": "aligned(x, 32) and n == 1 and m > 4"}, {"A": 2}],
        )
        assert hint_sets(expansion) == [{"x": 16, "n": 1, "m": 16}, {"x": 16, "n": 1}, {"m": 16}, {}]

    def test_requires_joined_by_or_implies_nothing(self):
        configs = [{"A": 1, "requires": "aligned(x, 16) or n == 1"}, {"A": 2}]
        assert hint_sets(expand(params={"x": "*fp16", "n": "i32"}, configs=configs)) == [{}, {}]

    def test_requires_on_a_constexpr_implies_nothing(self):
        configs = [{"A": 1, "requires": "A == 1"}, {"A": 2}]
        assert hint_sets(expand(params={"n": "i32"}, configs=configs)) == [{}, {}]

    def test_requires_on_a_param_that_takes_no_such_hint_implies_nothing(self):
        configs = [{"A": 1, "requires": "flag == 1"}, {"A": 2}]
        assert hint_sets(expand(params={"flag": "i1"}, configs=configs)) == [{}, {}]

    @pytest.mark.parametrize(
        ("hints", "message"),
        [
            ([{"z": 16}], "expected a param with a type in [kernel.params], got 'z' - at demo.toml kernel k.hints[0]"),
            ([{"n": 16}, {"nn": 16}], "got 'nn'; did you mean 'n'? - at demo.toml kernel k.hints[1]"),
            ([{"x": 1}], "expected an int, or a pointer with hint 16, got x: *fp16 with hint 1"),
            ([{"s": 16}], "got s: fp32 with hint 16"),
            ([{"b": 1}], "got b: i1 with hint 1"),
        ],
    )
    def test_hints_that_nothing_can_have(self, hints, message):
        params = {"x": "*fp16", "n": "i32", "s": "fp32", "b": "i1"}
        assert message in refusal(params=params, hints=hints)


class TestParams:
    def test_an_axis_that_types_optional_params_alone_has_one_variant_for_none(self):
        variants = expand(params={"x": "*{d}?"}, matrix={"d": ["fp16", "bf16"]}).variants
        assert [dict(variant.signature)["x"] for variant in variants] == ["*fp16", "none", "*bf16"]

    def test_an_optional_param_is_built_both_ways_and_never_as_none_alone(self):
        variants = expand(params={"a": "*fp16?", "b": "i32?"}).variants
        kinds = [tuple(kind for _, kind in v.signature) for v in variants]
        assert kinds == [("*fp16", "i32"), ("*fp16", "none"), ("none", "i32"), ("none", "none")]

    def test_axes_fill_types_and_are_no_constexprs(self):
        variants = expand(
            params={"x": "*{dtype}", "n": "{index}"}, matrix={"dtype": ["fp16"], "index": ["i32", "i64"]}
        ).variants
        assert [v.signature for v in variants] == [(("x", "*fp16"), ("n", "i32")), (("x", "*fp16"), ("n", "i64"))]
        assert [v.constexprs for v in variants] == [(), ()]
        assert [dict(v.axes)["index"] for v in variants] == ["i32", "i64"]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"params": {"x": "*{dtyp}"}, "matrix": {"dtype": ["fp16"]}}, "expected {dtyp} to be an axis of the matrix; did you mean 'dtype'? - at demo.toml kernel k.params"),
            ({"params": {"x": "*{d}"}, "matrix": {"d": ["fp16", 16]}}, "expected strings on an axis that params use as a type, got ['fp16', 16] - at demo.toml kernel k.matrix.d"),
            ({"params": {"x": "*{d}"}, "matrix": {"d": ["f16"]}}, "got '*f16'; did you mean 'fp16'? - at demo.toml kernel k.params.x"),
            ({"params": {"x": "pointer"}}, "expected a type in Triton's spelling, such as '*fp16' or 'i32', got 'pointer'"),
            ({"params": {"x": "i32"}, "matrix": {"x": [1]}}, "expected 'x' in one place, got it in params and matrix - at demo.toml kernel k"),
            ({"params": {"x": "i32"}, "derived": {"x": "true"}}, "expected 'x' in one place, got it in params and derived"),
            ({"matrix": {"A": [1]}, "configs": [{"A": 2}]}, "expected 'A' in one place, got it in matrix and configs[0]"),
            ({"derived": {"A": "true"}, "configs": [{"B": 1}, {"A": 2}]}, "expected 'A' in one place, got it in derived and configs[1]"),
        ],
    )  # fmt: skip
    def test_entries_that_contradict_themselves(self, fields, message):
        assert message in refusal(**fields)

    def test_configs_may_share_constexprs(self):
        assert constexprs(expand(configs=[{"A": 1}, {"A": 2}]), "A") == [1, 2]


class TestValues:
    def test_every_kind_that_a_manifest_can_say(self):
        matrix = {
            "V": [
                1,
                True,
                1.0,
                "1",
                {"dtype": "fp16"},
                {"function": "demo:gelu"},
                {"none": True},
                [1, [True, "a"]],
                "fp16",
            ]
        }
        values = constexprs(expand(matrix=matrix), "V")
        expected = [1, True, 1.0, "1", DType("fp16"), FunctionRef("demo:gelu"), None, (1, (True, "a")), "fp16"]
        assert [identity(value) for value in values] == [identity(value) for value in expected]

    def test_true_1_and_1_0_are_three_values(self):
        assert [type(value) for value in constexprs(expand(matrix={"V": [True, 1, 1.0]}), "V")] == [bool, int, float]
        assert [type(v) for v in constexprs(expand(configs=[{"V": True}, {"V": 1}, {"V": 1.0}]), "V")] == [
            bool,
            int,
            float,
        ]

    def test_nor_are_0_0_and_minus_0_0_one_value(self):
        assert len(expand(matrix={"V": [0.0, -0.0]}).variants) == 2

    @pytest.mark.parametrize(
        "values", [[1, 1], [True, True], ["a", "a"], [[1, 2], [1, 2]], [float("nan"), float("nan")]]
    )
    def test_an_axis_holds_each_value_once(self, values):
        assert refusal(matrix={"V": values}).startswith("expected each value of an axis once, got ")

    @pytest.mark.parametrize(
        "value",
        [{"dtyp": "fp16"}, {"dtype": 1}, {"dtype": "fp16", "none": True}, {"none": False}, {}, [{"x": 1}]],
    )
    def test_values_that_mean_nothing(self, value):
        message = refusal(matrix={"V": [value]})
        assert message.startswith("expected an int, float, bool, string, array, {dtype = ...}")
        assert message.endswith(" - at demo.toml kernel k.matrix.V[0]")

    @pytest.mark.parametrize("value", [1 << 64, -(1 << 64), "x" * 8193, [1] * 65])
    def test_values_that_no_bundle_can_carry(self, value):
        assert refusal(configs=[{"V": value}]).startswith("expected a")

    def test_the_widest_values_that_it_can(self):
        values = [(1 << 64) - 1, -(1 << 63), "x" * 8192]
        assert constexprs(expand(matrix={"V": values}), "V") == values


class TestDerived:
    def test_a_boolean_is_built_for_both_values(self):
        expansion = expand(params={"n": "i32"}, configs=[{"B": 64}], derived={"EVEN": "n % B == 0"})
        assert constexprs(expansion, "EVEN") == [True, False]
        assert [v.derived for v in expansion.variants] == [(("EVEN", True),), (("EVEN", False),)]

    def test_one_that_a_config_requires_is_built_true_only(self):
        expansion = expand(
            params={"n": "i32"},
            configs=[{"B": 64, "requires": "n > 0 and n  % (B) == 0"}, {"B": 32}],
            derived={"EVEN": "n % B == 0"},
        )
        assert [(*v.config.constexprs, v.derived) for v in expansion.variants] == [
            (("B", 64), (("EVEN", True),)),
            (("B", 32), (("EVEN", True),)),
            (("B", 32), (("EVEN", False),)),
        ]

    def test_one_that_asks_nothing_of_the_call_is_folded(self):
        expansion = expand(
            params={"n": "i32"},
            matrix={"D": [64, 128]},
            configs=[{"B": 64}],
            derived={"T": "D // B + 1", "X": "arch >= 90"},
        )
        assert constexprs(expansion, "T") == [2, 3]
        assert constexprs(expansion, "X") == [True, True]
        assert constexprs(expand("sm_80", derived={"X": "arch >= 90"}), "X") == [False]

    def test_one_with_values_is_built_for_those(self):
        expansion = expand(params={"n": "i32"}, derived={"W": {"expr": "min(n, 4)", "values": [4, 1, 2]}})
        assert constexprs(expansion, "W") == [4, 1, 2]

    def test_several_are_multiplied(self):
        derived = {"A": "n == 2", "W": {"expr": "n // 2", "values": [1, 2]}}
        expansion = expand(params={"n": "i32"}, derived=derived)
        assert list(zip(constexprs(expansion, "A"), constexprs(expansion, "W"), strict=True)) == [
            (True, 1), (True, 2), (False, 1), (False, 2),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("derived", "message"),
        [
            ({"W": "n // 2"}, "expected a boolean expression, or { expr = ..., values = [...] } with the values to build, got 'n // 2' - at demo.toml kernel k.derived.W"),
            ({"W": "n +"}, " - at demo.toml kernel k.derived.W"),
            ({"W": "NOPE == 1"}, " - at demo.toml kernel k.derived.W"),
            ({"W": {"expr": "n", "values": [1, 1]}}, "expected each variant once, got twice: k sm_90 "),
        ],
    )  # fmt: skip
    def test_those_that_cannot_be_built(self, derived, message):
        assert message in refusal(params={"n": "i32"}, derived=derived)

    def test_as_the_table_has_them(self):
        entry = spec(derived={"A": "n == 2", "W": {"expr": "n // 2", "values": [1]}})
        assert derived_of(entry) == (Derived("A", "n == 2"), Derived("W", "n // 2"))


class TestRules:
    def test_configs_name_their_archs(self):
        configs = [{"A": 1, "archs": ["sm_80"]}, {"A": 2, "archs": ["sm_80", "sm_90"]}, {"A": 3}]
        assert constexprs(expand("sm_80", configs=configs), "A") == [1, 2, 3]
        assert constexprs(expand("sm_90", configs=configs), "A") == [2, 3]

    def test_an_arch_without_a_config_has_no_variants(self):
        assert expand("sm_120", configs=[{"archs": ["sm_80"]}]) == Expansion((), 0)

    def test_when_sees_axes_constexprs_options_arch_and_what_is_there(self):
        configs = [
            {"B": 1, "when": "dtype == 'fp16'"},
            {"B": 2, "when": "B == 2 and num_warps == 4 and arch == 90"},
            {"B": 3, "when": "not has(x)"},
            {"B": 4},
        ]
        expansion = expand(params={"y": "*{dtype}", "x": "*fp16?"}, matrix={"dtype": ["fp16", "bf16"]}, configs=configs)
        assert constexprs(expansion, "B") == [1, 2, 4, 1, 2, 3, 4, 2, 4, 2, 3, 4]

    def test_when_compares_dtypes_and_functions_by_name(self):
        matrix = {"ACT": [{"function": "m:gelu"}, {"dtype": "fp16"}]}
        expansion = expand(
            matrix=matrix, configs=[{"B": 1, "when": "ACT == 'm:gelu'"}, {"B": 2, "when": "ACT == 'fp16'"}]
        )
        assert constexprs(expansion, "B") == [1, 2]

    def test_exclude_leaves_out_and_counts(self):
        expansion = expand(
            params={"n": "i32"},
            matrix={"D": [64, 128]},
            derived={"EVEN": "n == 8"},
            exclude=[{"when": "D == 128"}, {"when": "D == 64 and not EVEN"}],
            aligned_only="the test asks for n == 8",
        )
        assert expansion.excluded == 3
        assert constexprs(expansion, "EVEN") == [True]

    def test_excluding_all_of_a_case_is_no_mistake(self):
        assert expand(matrix={"D": [1, 2]}, exclude=[{"when": "true"}]) == Expansion((), 2)

    def test_core_keeps_a_part_that_full_contains(self):
        fields: dict[str, Any] = {"matrix": {"D": [1, 2, 3]}, "core": "D == 2"}
        core, full = expand(profile="core", **fields), expand(**fields)
        assert constexprs(core, "D") == [2]
        assert set(core.variants) < set(full.variants)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"configs": [{"archs": ["sm90"]}]}, "got 'sm90'; did you mean 'sm_90'? - at demo.toml kernel k.configs[0].archs"),
            ({"configs": [{"A": 1}, {"when": "A =="}]}, " - at demo.toml kernel k.configs[1].when"),
            ({"configs": [{"requires": ")"}]}, " - at demo.toml kernel k.configs[0].requires"),
            ({"configs": [{"when": "1"}]}, "expected a rule that is true or false, got '1', which is 1 - at demo.toml kernel k"),
            ({"configs": [{"when": "nope"}]}, "'nope'"),
            ({"exclude": [{"when": "x x"}]}, " - at demo.toml kernel k.exclude[0].when"),
            ({"core": "1 +", "configs": [{}]}, " - at demo.toml kernel k.core"),
            ({"configs": [{"A": 1}, {"A": 1}]}, "expected configs to differ, got configs[0] again - at demo.toml kernel k.configs[1]"),
            ({"configs": [{"A": 1}, {"A": 1, "num_warps": 4}]}, "expected configs to differ, got configs[0] again"),
            ({"configs": [{"A": 1}, {"A": 1, "when": "true or A == 1"}]}, "expected each variant once, got twice: k sm_90 A=1"),
        ],
    )  # fmt: skip
    def test_rules_that_are_refused(self, fields, message):
        assert message in refusal(**fields)

    def test_an_arch_that_does_not_exist(self):
        with pytest.raises(ManifestError, match="expected an arch such as sm_90"):
            expand("sm_1")


ALIGNED = [{"A": 1, "requires": "aligned(x, 16)"}]


class TestEveryCallIsServed:
    def test_a_case_without_a_variant_for_every_call_is_refused(self):
        message = refusal(params={"x": "*{d}"}, matrix={"d": ["fp16"], "F": [True]}, configs=ALIGNED)
        expected = (
            "expected a config without `requires`, built for every value of its derived constexprs, for d = 'fp16', F = True on sm_90, "
            "so that every call is served; add one, or state why some calls may fail: aligned_only = 'reason' - at demo.toml kernel k"
        )
        assert message == expected

    def test_a_kernel_without_axes_too(self):
        assert "for the kernel on sm_90" in refusal(params={"x": "*fp16"}, configs=ALIGNED)

    def test_each_derived_value_of_one_config_must_be_there(self):
        fields = {"params": {"n": "i32"}, "derived": {"EVEN": "n % A == 0"}, "configs": [{"A": 1}, {"A": 2}]}
        assert expand(**fields, exclude=[{"when": "A == 1 and not EVEN"}]).variants
        halves = [{"when": "A == 1 and not EVEN"}, {"when": "A == 2 and EVEN"}]
        assert "built for every value of its derived constexprs" in refusal(**fields, exclude=halves)

    def test_a_reason_allows_it(self):
        expansion = expand(params={"x": "*fp16"}, configs=ALIGNED, aligned_only="TMA needs 16 bytes")
        assert hint_sets(expansion) == [{"x": 16}]

    @pytest.mark.parametrize(
        ("listed", "built"),
        [
            ({"hints": [{"x": 16}]}, [{"x": 16}]),
            (
                {"partial_hints": [{"hints": {"x": 16, "n": 16}, "missing": 1}]},
                [{"x": 16, "n": 16}, {"x": 16}, {"n": 16}],
            ),
            ({}, [{}]),
        ],
    )
    def test_a_reason_leaves_out_the_variants_without_hints(self, listed, built):
        fields = {"params": {"x": "*fp16", "n": "i32"}, **listed}
        assert hint_sets(expand(**fields, aligned_only="TMA needs 16 bytes")) == built
        assert {} in hint_sets(expand(**fields))

    def test_each_case_counts_for_itself(self):
        configs = [*ALIGNED, {"A": 2, "when": "d == 'fp16'"}]
        assert "d = 'bf16'" in refusal(params={"x": "*{d}"}, matrix={"d": ["fp16", "bf16"]}, configs=configs)

    def test_a_case_that_is_not_built_needs_none(self):
        configs = [{"A": 1, "requires": "n > 4", "when": "d == 'fp16'"}, {"A": 2, "when": "d == 'fp16'"}]
        expansion = expand(params={"x": "*{d}", "n": "i32"}, matrix={"d": ["fp16", "bf16"]}, configs=configs)
        assert constexprs(expansion, "A") == [1, 2]

    def test_excluding_the_general_variant_is_refused(self):
        configs = [*ALIGNED, {"A": 2}]
        assert "so that every call is served" in refusal(
            params={"x": "*fp16"}, configs=configs, exclude=[{"when": "A == 2"}]
        )


class TestAxes:
    def test_tell_types_from_constexprs(self):
        axes = axes_of(spec(params={"x": "*{d}"}, matrix={"d": ["fp16"], "F": [True, {"dtype": "fp16"}]}), "here")
        assert [(axis.name, axis.is_type, axis.values) for axis in axes] == [
            ("d", True, ("fp16",)),
            ("F", False, (True, DType("fp16"))),
        ]


@pytest.mark.parametrize("path", sorted((ROOT / "manifests").glob("*.toml")), ids=lambda path: path.stem)
def test_every_manifest_of_the_project_expands_for_every_arch_it_can(path):
    manifest = load_manifest(path)
    assert set(manifest.bundle.archs) <= set(known_archs())
    for entry, arch in product(manifest.kernel, known_archs()):
        full = expand_kernel(entry, arch, str(path)).variants
        if arch in manifest.bundle.archs:
            core = expand_kernel(entry, arch, str(path), "core").variants
            assert set(core) <= set(full)
            # a kernel may be for some archs only: its configs say which
            assert bool(full) == any(
                arch in chips_of(named) for config in entry.configs for named in config.get("archs", [arch])
            )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["flex", "flex_decoding"])
def test_a_score_modification_of_ones_own_is_built_wherever_those_of_the_library_are(name, arch):
    mine = FunctionRef("mine.py:my_mod")
    for entry in load_manifest(ROOT / f"manifests/{name}.toml").kernel:
        if "SCORE_MOD" not in entry.matrix:
            continue
        axis = [*entry.matrix["SCORE_MOD"], {"function": mine.name}]
        added = msgspec.structs.replace(entry, matrix={**entry.matrix, "SCORE_MOD": axis})
        cases = {True: set(), False: set()}
        for variant in expand_kernel(added, arch, name).variants:
            constexprs = dict(variant.constexprs)
            others = [(key, constexprs[key]) for key in entry.matrix if key in constexprs and key != "SCORE_MOD"]
            cases[constexprs["SCORE_MOD"] == mine].add((variant.signature, tuple(others)))
        assert cases[True] == cases[False], entry.name


# -- an independent count --------------------------------------------------------------------------------------------


def count(entry: Entry, arch: str) -> int | None:
    """Count variants by the rules of the design alone; None if some case would not serve every call."""
    total = 0
    optional = {"p0": entry.optional} | {f"q{i}": mark for i, (_, mark) in enumerate(entry.others)}
    for flag in entry.flags:
        for presence in product(*((True, False) if mark else (True,) for mark in optional.values())):
            absent = {name for name, there in zip(optional, presence, strict=True) if not there}
            facts = (ARCH_NUMBERS[arch], flag)
            built, serves_all, never, left_out = 0, False, False, False
            for x, archs, when, requires in entry.configs:
                there = "p0" not in absent
                if (archs and arch not in archs) or not RULES[when](*facts, x, there):
                    continue
                excluded = entry.exclude and RULES[entry.exclude](*facts, x, there)
                if "aligned(p0" in requires and not there:
                    never |= not excluded
                    continue
                if excluded:
                    left_out = True
                    continue
                sets = {
                    frozenset(
                        (param, hint) for param, hint in (REQUIRES[requires] | dict(raw)).items() if param not in absent
                    )
                    for raw in (entry.hints if entry.hints and entry.reason else (*entry.hints, ()))
                }
                built += len(sets) * {"none": 1, "bool": 2, "values": 3, "folded": 1}[entry.derived]
                serves_all |= not requires
            if (built or (never and not left_out)) and not serves_all and not entry.reason:
                return None
            total += built
    return total


def case_of(variant: Variant) -> tuple[Any, ...]:
    return (tuple((name, identity(value)) for name, value in variant.axes), variant.signature)


@settings(deadline=None, max_examples=200)
@given(entries(), st.sampled_from(sorted(ARCH_NUMBERS)))
def test_the_count_is_that_of_an_independent_reference(entry, arch):
    expected = count(entry, arch)
    if expected is None:
        with pytest.raises(ManifestError, match="so that every call is served"):
            expand_kernel(entry.spec(), arch, "here")
        return
    variants = expand_kernel(entry.spec(), arch, "here").variants
    assert len(variants) == expected
    identities = {
        (v.signature, tuple((n, identity(x)) for n, x in v.constexprs), v.hints, v.config.options, v.config.requires)
        for v in variants
    }
    assert len(identities) == len(variants)
    if not entry.reason:
        general = {case_of(v) for v in variants if not v.hints and not v.config.requires}
        assert general == {case_of(v) for v in variants}


class TestTuplesAndDescriptors:
    def signatures(self, **fields):
        return [dict(variant.signature) for variant in expand(**fields).variants]

    def test_every_choice_of_optional_members_is_a_case(self):
        kinds = [types["x"] for types in self.signatures(params={"x": "(a: *fp16?, b: (i32?, fp32))"})]
        assert kinds == [
            "(a:*fp16,b:(i32,fp32))",
            "(a:*fp16,b:(none,fp32))",
            "(a:none,b:(i32,fp32))",
            "(a:none,b:(none,fp32))",
        ]

    def test_labels_name_the_members_that_are_none(self):
        labels = [variant.label() for variant in expand(params={"x": "(*fp16?, i32)"}).variants]
        assert [label.endswith("x.0=none") for label in labels] == [False, True]

    def test_axes_spell_members_and_blocks(self):
        variants = expand(
            params={"x": "({index}, *{dtype})", "a": "tensordesc<{dtype}[{M}, {W}]>"},
            matrix={"dtype": ["fp16", "bf16"], "index": ["i64"], "M": [16, 32], "W": ["64"]},
        ).variants
        assert [(dict(variant.signature), variant.constexprs) for variant in variants] == [
            ({"x": f"(i64,*{dtype})", "a": f"tensordesc<{dtype}[{m},64]>"}, (("M", m),))
            for dtype in ("fp16", "bf16")
            for m in (16, 32)
        ]

    def test_an_axis_spells_a_whole_type(self):
        kinds = ["tensordesc<fp16[64, 64]>", "(*fp16, i32?)"]
        assert [types["x"] for types in self.signatures(params={"x": "{kind}"}, matrix={"kind": kinds})] == [
            "tensordesc<fp16[64,64]>",
            "(*fp16,i32)",
            "(*fp16,none)",
        ]

    def test_a_config_can_choose_the_block(self):
        params = {"a": "tensordesc<{dtype}[{M}, 64]>?", "b": "(i32, tensordesc<{dtype}[{M},{N}]>)"}
        entry = spec(params=params, matrix={"dtype": ["fp16"], "N": [64]}, configs=[{"M": 64}, {"M": 128}])
        variants = expand_kernel(entry, "sm_90", "here").variants
        assert [(dict(variant.config.constexprs)["M"], *dict(variant.signature).values()) for variant in variants] == [
            (64, "tensordesc<fp16[64,64]>", "(i32,tensordesc<fp16[64,64]>)"),
            (128, "tensordesc<fp16[128,64]>", "(i32,tensordesc<fp16[128,64]>)"),
            (64, "none", "(i32,tensordesc<fp16[64,64]>)"),
            (128, "none", "(i32,tensordesc<fp16[128,64]>)"),
        ]

    def test_spellings_of_one_type_are_one(self):
        message = refusal(params={"x": "{kind}"}, matrix={"kind": ["(a: i32)", "(i32,)"]})
        assert "expected each variant once, got twice: k sm_90 kind='(i32,)'" in message
        assert message.partition(" - at ")[0].endswith("; remove the repeated value or config")

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"params": {"a": "tensordesc<fp16[{M}]>"}, "configs": [{"M": 64}, {"MM": 64}]},
             "expected {M} to be an axis of the matrix, or a constexpr of every config, got none in configs[1]; did you mean 'MM'? - at demo.toml kernel k.params"),
            ({"params": {"a": "tensordesc<fp16[{M}]>"}, "configs": [{"M": 48}]}, "expected a block whose dimensions are powers of two, got 'tensordesc<fp16[48]>' - at demo.toml kernel k.params.a"),
            ({"params": {"a": "*{M}"}, "configs": [{"M": 48}]}, "expected {M} to be an axis of the matrix - at"),
            ({"params": {"a": "tensordesc<fp16[{M}]>"}, "matrix": {"N": [64]}}, "expected {M} to be an axis of the matrix"),
            ({"params": {"a": "tensordesc<fp16[{M}]>"}, "matrix": {"M": [64, "64"]}}, "expected ints (or strings, if the axis is not a constexpr) on an axis that params use as a block's dimension, got [64, '64']"),
            ({"params": {"a": "tensordesc<fp16[{M}]>"}, "matrix": {"M": [True]}}, "expected ints (or strings, if the axis is not a constexpr)"),
            ({"params": {"a": "tensordesc<{M}[{M}]>"}, "matrix": {"M": [64]}}, "expected strings on an axis that params use as a type, got [64]"),
            ({"params": {"a": "tensordesc<fp16[{M}]>"}, "matrix": {"M": [48]}}, "expected a block whose dimensions are powers of two, got 'tensordesc<fp16[48]>' - at demo.toml kernel k.params.a"),
        ],
    )  # fmt: skip
    def test_what_cannot_spell_a_block(self, fields, message):
        assert message in refusal(**fields)


class TestDecidedByTypes:
    """What the types of a call and its config decide is not built for anything else."""

    def test_four_optional_pointers_with_flags_are_16_variants(self):
        names = ["a", "b", "c", "d"]
        found = expand(params=dict.fromkeys(names, "*fp16?"), derived={f"HAS_{name}": f"has({name})" for name in names})
        assert len(found.variants) == 16
        for variant in found.variants:
            types = dict(variant.signature)
            assert dict(variant.derived) == {f"HAS_{name}": types[name] != "none" for name in names}

    @pytest.mark.parametrize("kind", ["*fp16?", "i32?", "fp32?", "(*fp16, i32)?", "tensordesc<fp16[64,64]>?"])
    def test_has_asks_of_every_kind_of_param_whether_it_is_there(self, kind):
        found = expand(params={"x": kind}, derived={"HAS": "has(x)"}, exclude=[{"when": "not has(x) and arch == 80"}])
        assert [dict(variant.derived)["HAS"] for variant in found.variants] == [True, False]

    @pytest.mark.parametrize(
        ("expression", "values"),
        [
            ("has(x) and n > 4", [{True, False}, {False}]),
            ("n > 4 and has(x)", [{True, False}, {False}]),
            ("n > 4 or not has(x)", [{True, False}, {True}]),
            ("not (n > 4 and has(x))", [{True, False}, {True}]),
            ("dtype == 'fp32' and n > 4", [{False}, {False}]),
            ("has(n) and F", [{True}, {True}]),
            ("aligned(x, 32)", [{True, False}, {False}]),
        ],
    )
    def test_what_a_flag_can_be(self, expression, values):
        facts = {"params": {"x": "*{dtype}?", "n": "i32"}, "matrix": {"dtype": ["fp16"], "F": [True]}}
        found: dict[str, set[Any]] = {}
        for variant in expand(**facts, derived={"D": expression}).variants:
            found.setdefault(dict(variant.signature)["x"], set()).add(dict(variant.derived)["D"])
        assert [*found.values()] == values

    def test_a_config_that_these_types_never_allow_is_not_built(self):
        facts = {"params": {"x": "*fp16?", "y": "*{dtype}"}, "matrix": {"dtype": ["fp16", "fp32"]}}
        configs = [{"A": 1, "requires": "has(x) and dtype == 'fp16'"}, {"A": 2}]
        found = [
            (*dict(v.signature).values(), dict(v.constexprs)["A"]) for v in expand(**facts, configs=configs).variants
        ]
        assert found == [
            ("*fp16", "*fp16", 1),
            ("*fp16", "*fp16", 2),
            ("none", "*fp16", 2),
            ("*fp16", "*fp32", 2),
            ("none", "*fp32", 2),
        ]

    def test_a_config_that_these_types_always_allow_serves_every_call(self):
        configs = [{"A": 1, "requires": "has(x)"}, {"A": 2, "requires": "not has(x)"}]
        found = expand(params={"x": "*fp16?"}, configs=configs)
        assert [(v.signature[0][1], v.config_number) for v in found.variants] == [("*fp16", 0), ("none", 1)]

    def test_a_case_that_only_such_configs_were_for_is_not_forgotten(self):
        facts: dict[str, Any] = {"params": {"x": "*fp16?"}, "configs": [{"requires": "has(x)"}]}
        with pytest.raises(ManifestError, match="so that every call is served"):
            expand(**facts)
        assert len(expand(**facts, exclude=[{"when": "not has(x)"}]).variants) == 1

    def test_a_rule_of_the_build_that_asks_for_a_number_says_so(self):
        for fields in ({"exclude": [{"when": "n > 4"}]}, {"configs": [{"when": "n > 4"}]}, {"core": "n > 4"}):
            with pytest.raises(ManifestError, match="got 'n > 4', where only a call knows the value of 'n'"):
                expand_kernel(spec(params={"n": "i32"}, **fields), "sm_90", "here", "core")


FLAG_ATOMS = st.sampled_from(
    ["has(p)", "has(q)", "has(m)", "dtype == 'fp16'", "F", "arch >= 90", "n > 3", "n % 2 == 0", "aligned(m, 4)", "true"]
)


def flags(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner), inner.map("(not {})".format)
    )


@settings(deadline=None, max_examples=100)
@given(st.lists(st.recursive(FLAG_ATOMS, flags, max_leaves=6), min_size=1, max_size=3))
def test_flags_are_built_for_what_calls_can_give_and_decided_ones_for_nothing_else(texts):
    rules = {f"D{number}": parse(text) for number, text in enumerate(texts)}
    entry = spec(
        params={"p": "*fp16?", "q": "*fp16?", "m": "i32?", "n": "i32", "r": "*{dtype}"},
        matrix={"dtype": ["fp16", "fp32"], "F": [True, False]},
        derived={name: rule.text for name, rule in rules.items()},
    )
    built: dict[Any, set[tuple[Any, ...]]] = {}
    for variant in expand_kernel(entry, "sm_90", "here").variants:
        built.setdefault((variant.axes, variant.signature), set()).add(tuple(value for _, value in variant.derived))
    assert len(built) == 4 * 8
    for (axes, signature), choices in built.items():
        kinds = dict(signature)
        there = {name: None if kinds[name] == "none" else Pointer(16) for name in "pq"}
        seen = {
            tuple(rule.evaluate({"arch": 90, **dict(axes), **there, "m": m, "n": n}) for rule in rules.values())
            for m in ([None] if kinds["m"] == "none" else range(-1, 6))
            for n in range(-1, 6)
        }
        assert seen <= choices
        for place, rule in enumerate(rules.values()):
            if not rule.names & {"m", "n"}:
                assert {choice[place] for choice in choices} == {one[place] for one in seen}
