"""Manifests to plans: merging, archs, and what is refused because the kernel's source does not fit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.plan import Plan
from nojit.aot.plan.planner import make_plans
from nojit.aot.plan.variant_fit import fit_tuned
from nojit.runtime.errors import ManifestError
from nojit.runtime.tuning.tuned_tables import TunedConfig

from tests.aot.conftest import HEADER, KERNEL
from tests.aot.fake_compiler import FakeCompiler, FakeSource

SOURCES = {
    "demo:add_kernel": FakeSource(("x_ptr", "n"), ("BLOCK",)),
    "demo:mul_kernel": FakeSource(("x_ptr",)),
}
ADD = KERNEL + '[kernel.params]\nx_ptr = "*fp16"\nn = "i32"\n[[kernel.configs]]\nBLOCK = 64\n'
MUL = '[[kernel]]\nname = "mul"\nsource = "demo:mul_kernel"\n[kernel.params]\nx_ptr = "*fp32"\n'


@pytest.fixture
def compiler(tmp_path: Path) -> FakeCompiler:
    return FakeCompiler(tmp_path / "journal", SOURCES)


@pytest.fixture
def plan(write_manifest, compiler):
    def make(text: str, archs: tuple[str, ...] = (), **arguments: Any) -> list[Plan]:
        return make_plans([write_manifest(text)], archs, arguments.pop("profile", "full"), compiler, **arguments)

    return make


def refusal(plan, text: str, **arguments: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        plan(text, **arguments)
    return str(caught.value)


def names(plans: list[Plan]) -> list[str]:
    return [kernel.spec.name for kernel in plans[0].kernels]


def test_one_plan_per_bundle_and_arch(write_manifest, compiler):
    other = HEADER.replace('"demo"', '"other"').replace('["sm_90"]', '["sm_80", "sm_100"]')
    manifests = [write_manifest(ADD), write_manifest(MUL, name="other.toml", header=other)]
    plans = make_plans(manifests, (), "full", compiler)
    assert [plan.file_name for plan in plans] == [
        "demo-1.0-sm_90.nojit",
        "other-1.0-sm_80.nojit",
        "other-1.0-sm_100.nojit",
    ]
    assert [plan.count() for plan in plans] == [1, 1, 1]


def test_archs_that_are_asked_for_replace_the_manifests(plan):
    assert [made.arch for made in plan(ADD, ("sm_80", "sm_120"))] == ["sm_80", "sm_120"]


def test_manifests_of_one_bundle_merge_in_the_order_of_kernel_names(write_manifest, compiler):
    paths = [write_manifest(MUL, name="a.toml"), write_manifest(ADD, name="b.toml")]
    assert names(make_plans(paths, (), "full", compiler)) == ["add", "mul"]
    assert names(make_plans(paths[::-1], (), "full", compiler)) == ["add", "mul"]


def test_kernels_can_be_picked(plan):
    assert names(plan(ADD + MUL, kernels=["mul"])) == ["mul"]
    assert "expected a kernel of the manifests, got 'mull'; did you mean 'mul'?" in refusal(
        plan, ADD + MUL, kernels=["mull"]
    )


def test_kernels_without_a_variant_are_left_out_and_their_source_never_sought(plan):
    gone = '[[kernel]]\nname = "gone"\nsource = "nowhere:gone"\ncore = "false"\n'
    assert names(plan(ADD + gone, profile="core")) == ["add"]
    assert "nowhere:gone" in refusal(plan, ADD + gone)


def test_manifests_of_one_bundle_must_agree(write_manifest, compiler):
    paths = [write_manifest(ADD), write_manifest(MUL, name="b.toml", header=HEADER.replace('"1.0"', '"1.1"'))]
    with pytest.raises(ManifestError) as caught:
        make_plans(paths, (), "full", compiler)
    assert str(caught.value) == (
        "expected manifests of bundle 'demo' to agree on version '1.0', archs ['sm_90'] and toolchains [], "
        f"got version '1.1', archs ['sm_90'] and toolchains [] - at {paths[1]}:3:2 $.bundle"
    )


def test_one_kernel_in_two_manifests(write_manifest, compiler):
    paths = [write_manifest(ADD), write_manifest(ADD, name="b.toml")]
    with pytest.raises(ManifestError) as caught:
        make_plans(paths, (), "full", compiler)
    assert str(caught.value) == (
        f"expected kernel 'add' once in bundle 'demo', got it in {paths[0]} too - at {paths[1]}:9:1 $.kernel[0].name"
    )


def sources_of(*params: str, constexprs: tuple[str, ...]) -> dict[str, FakeSource]:
    return {"demo:add_kernel": FakeSource(params, constexprs)}


def made(write_manifest, tmp_path: Path, text: str, sources: dict[str, FakeSource]) -> list[Plan]:
    return make_plans([write_manifest(text)], (), "full", FakeCompiler(tmp_path / "journal", sources))


def test_constexprs_by_names_of_options_are_what_the_config_sets_these_to(write_manifest, tmp_path):
    sources = sources_of("x_ptr", "n", constexprs=("BLOCK", "num_stages", "maxnreg", "launch_pdl"))
    text = ADD + "num_stages = 4\n[[kernel.configs]]\nBLOCK = 128\nlaunch_pdl = true\n"
    (planned,) = made(write_manifest, tmp_path, text, sources)
    own = (
        {"num_stages": 4, "maxnreg": None, "launch_pdl": False},
        {"num_stages": 3, "maxnreg": None, "launch_pdl": True},
    )
    for variant, block, expected in zip(planned.kernels[0].variants, (64, 128), own, strict=True):
        assert dict(variant.constexprs) == dict(variant.config.constexprs) == {"BLOCK": block} | expected
        assert dict(variant.config.options) == {"num_warps": 4, "num_ctas": 1}
        assert expected.items() <= dict(variant.options).items()


def test_functions_that_constexprs_name_are_there(write_manifest, tmp_path):
    sources = sources_of("x_ptr", "n", constexprs=("BLOCK", "FN")) | {"demo:twice": FakeSource(("x",))}
    text = ADD + '[kernel.matrix]\nFN = [{ function = "demo:twice" }]\n'
    assert made(write_manifest, tmp_path, text, sources)
    with pytest.raises(ManifestError, match=r"'demo:thrice'.* - at .*:\d+:1 \$\.kernel\[0\]\.matrix\.FN$"):
        made(write_manifest, tmp_path, text.replace("twice", "thrice"), sources)


@pytest.mark.parametrize("name", ["num_stages", "launch_pdl"])
def test_runtime_params_by_names_of_options_are_refused(write_manifest, tmp_path, name):
    sources = sources_of("x_ptr", "n", name, constexprs=("BLOCK",))
    with pytest.raises(ManifestError) as caught:
        made(write_manifest, tmp_path, ADD + "launch_pdl = true\n", sources)
    assert str(caught.value).startswith(
        f"expected {name!r}, the name of an option that configs set, to be a constexpr of add_kernel: rename the param, "
        f"got a runtime param - at {tmp_path}"
    )


@pytest.mark.parametrize("place", ["matrix]\nnum_stages = [2, 3]", 'derived]\nnum_stages = "n % 2 == 0"'])
def test_an_option_has_one_value(write_manifest, tmp_path, place):
    sources = sources_of("x_ptr", "n", constexprs=("BLOCK", "num_stages"))
    with pytest.raises(
        ManifestError, match="expected only configs to set 'num_stages', as it is an option too: remove it"
    ):
        made(
            write_manifest, tmp_path, ADD.replace("[[kernel.configs]]", f"[kernel.{place}\n[[kernel.configs]]"), sources
        )


def test_tuned_tables_know_constexprs_by_names_of_options(write_manifest, tmp_path):
    config = TunedConfig((("BLOCK", 64), ("num_warps", 4), ("num_stages", 3), ("num_ctas", 1), ("maxnreg", None)), "")
    source = FakeCompiler(tmp_path / "journal", sources_of("x_ptr", constexprs=("BLOCK", "num_stages")))
    described = source.describe(SourcePlace("demo:add_kernel", tmp_path, ""))
    names = [name for name, _ in fit_tuned(config, described).settings]
    assert names == ["BLOCK", "num_stages", "num_warps", "num_ctas", "maxnreg"]


def test_an_arch_of_a_manifest_that_does_not_exist(write_manifest, compiler):
    path = write_manifest(ADD, header=HEADER.replace('["sm_90"]', '["sm_90", "sm_91"]'))
    with pytest.raises(ManifestError, match=r"\.toml:6:19 \$\.bundle\.archs\[1\]") as caught:
        make_plans([path], (), "full", compiler)
    assert str(caught.value).startswith("expected an arch that this toolchain assembles (sm_75, sm_80, ")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[[kernel.configs]]\nBLOCK = 32\narchs = ["sm_90", "sm_91"]\n', "$.kernel[0].configs[1].archs"),
        ('[kernel.tuning]\nkey = ["n"]\n[[kernel.tuning.space]]\nBLOCK = [32]\narchs = ["sm_91"]\n', "$.kernel[0].tuning.space[0].archs"),
    ],
)  # fmt: skip
def test_an_arch_of_a_config_that_nobody_builds_for(plan, text, place):
    message = refusal(plan, ADD + text)
    assert "expected an arch of sm_75, sm_80, " in message
    assert "got 'sm_91'; did you mean 'sm_90'?" in message
    assert message.endswith(place)


class Newer(FakeCompiler):
    def archs(self) -> tuple[str, ...]:
        return ("sm_90", "sm_130")


def test_an_arch_that_only_the_toolchain_knows_is_built_for(write_manifest, tmp_path):
    newer = Newer(tmp_path / "journal", SOURCES)
    path = write_manifest(ADD + '[[kernel.configs]]\nBLOCK = 32\narchs = ["sm_130"]\n')
    plans = make_plans([path], ("sm_90", "sm_130"), "full", newer)
    assert [(plan.arch, plan.count()) for plan in plans] == [("sm_90", 1), ("sm_130", 2)]
    with pytest.raises(
        ManifestError,
        match=r"that this toolchain assembles \(sm_90, sm_130; --ptxas takes another ptxas\), got 'sm_80'.* - at --arch",
    ):
        make_plans([path], ("sm_80",), "full", newer)


def test_a_wrong_name_in_a_config_is_placed(plan):
    message = refusal(plan, ADD + "[[kernel.configs]]\nBLOCK = 32\nnum_stagse = 4\n")
    assert message.endswith("demo.toml:19:1 $.kernel[0].configs[1].num_stagse")
    assert "'num_stagse'; did you mean 'num_stages'?" in message


@pytest.mark.parametrize(
    ("archs", "what"),
    [(("sm_91",), "that this toolchain assembles (sm_75, "), (("sm_90", "90"), "such as sm_90, from sm_75 up")],
)
def test_archs_that_do_not_exist(plan, archs, what):
    message = refusal(plan, ADD, archs=archs)
    assert message.startswith(f"expected an arch {what}")
    assert message.endswith(" - at --arch")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('n = "i32"\n', "", "expected a type in params for the kernel's 'n', got none"),
        ('n = "i32"\n', 'n = "i32"\nm = "i32"\n', "expected a runtime param of the kernel (x_ptr, n), got 'm'"),
        ("x_ptr", "x_prt", "got 'x_prt'; did you mean 'x_ptr'?"),
        ('n = "i32"\n', 'n = "i32"\nBLOCK = "i32"\n', "expected 'BLOCK' in one place"),
        ("BLOCK = 64\n", "", "expected a value in matrix, configs or derived for the kernel's 'BLOCK', got none"),
        ("BLOCK = 64\n", "BLOCK = 64\nBLOK = 1\n", "expected a constexpr of the kernel (BLOCK), got 'BLOK'; did you mean 'BLOCK'?"),
        ("BLOCK = 64\n", "BLOCK = 64\nnum_warp = 8\n", "got 'num_warp'; did you mean 'num_warps'?"),
        ('n = "i32"\n', "[kernel.matrix]\nn = [1]\n", "got 'n', which is a runtime param"),
    ],
)  # fmt: skip
def test_entries_that_do_not_fit_the_source(plan, old, new, expected):
    assert expected in refusal(plan, ADD.replace(old, new))


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ('[[kernel.configs]]\nBLOCK = 32\nrequires = "aligned(x_prt, 16)"\n', "expected a param, constexpr or axis, got 'x_prt'; did you mean 'x_ptr'? - at {path}:19:1 $.kernel[0].configs[1].requires"),
        ('[kernel.tuning]\nkey = ["n", "m"]\n', "expected an int param (n), got 'm' - at {path}:18:13 $.kernel[0].tuning.key[1]"),
        ('[kernel.tuning]\nkey = ["BLOCK"]\n', "expected an int param (n), got 'BLOCK' - at {path}:18:8 $.kernel[0].tuning.key[0]"),
    ],
)  # fmt: skip
def test_names_that_nothing_gives_a_value_to(plan, tmp_path, addition, expected):
    assert refusal(plan, ADD + addition) == expected.format(path=tmp_path / "demo.toml")


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ('["cdiv(m, BLOCK)"]', "expected a param, constexpr or axis, got 'm' - at {path}:12:9 $.kernel[0].grid[0]"),
        ('["1", "cdiv(n"]', " - at {path}:12:14 $.kernel[0].grid[1]"),
    ],
)
def test_grids_that_fail_at_every_call(plan, tmp_path, grid, expected):
    text = ADD.replace("[kernel.params]", f"grid = {grid}\n[kernel.params]")
    assert refusal(plan, text).endswith(expected.format(path=tmp_path / "demo.toml"))


def test_grids_and_rules_may_name_whatever_has_a_value(plan):
    text = ADD.replace("[kernel.params]", 'grid = ["cdiv(n, BLOCK)", "arch", "num_warps"]\n[kernel.params]')
    assert plan(text + '[[kernel.configs]]\nBLOCK = 32\nrequires = "n > BLOCK"\n')[0].count() == 2


class TestAllMistakesInOneRun:
    def test_of_every_stage_in_order_of_file_and_line(self, write_manifest, compiler):
        wrong = (
            '[[kernel]]\nname = "one"\nsource = "demo:add_kernel"\nzebra = 1\n'
            + ADD.replace('"*fp16"', '"*f16"')
            + '[[kernel]]\nname = "mul"\nsource = "demo:mule"\n[kernel.params]\nx_ptr = "*fp32"\n'
            + '[[kernel]]\nname = "grid"\nsource = "demo:mul_kernel"\ngrid = ["cdiv(x"]\n[kernel.params]\nx_ptr = "*fp32"\n'
        )
        paths = [write_manifest(wrong, name="b.toml"), write_manifest("[[kernel]\n", name="a.toml", header="")]
        with pytest.raises(ManifestError) as caught:
            make_plans(paths, ("sm_80", "sm_90"), "full", compiler)
        found = caught.value.mistakes
        assert [(Path(each.file).name, each.line, each.column, each.key) for each in found] == [
            ("a.toml", 1, 9, ""),
            ("b.toml", 10, 1, "$.kernel[0].zebra"),
            ("b.toml", 17, 1, "$.kernel[1].params.x_ptr"),
            ("b.toml", 23, 1, "$.kernel[2].source"),
            ("b.toml", 29, 9, "$.kernel[3].grid[0]"),
        ]
        lines = str(caught.value).splitlines()
        assert lines[0] == "5 mistakes"
        assert [line.strip() for line in lines[1:]] == list(map(str, found))

    def test_of_one_table(self, write_manifest):
        path = write_manifest(
            KERNEL + "[kernel.options]\nnum_warp = 4\nnum_stages = 99\nnum_ctas = 'x'\n[[kernel.exclude]]\n"
        )
        with pytest.raises(ManifestError) as caught:
            load_manifest(path)
        assert [each.key for each in caught.value.mistakes] == [
            "$.kernel[0].options.num_warp",
            "$.kernel[0].options.num_stages",
            "$.kernel[0].options.num_ctas",
            "$.kernel[0].exclude[0]",
        ]

    def test_of_one_kernel(self, write_manifest, compiler):
        wrong = (
            KERNEL + '[kernel.params]\nx_ptr = "*f16"\nn = "i23"\n[kernel.matrix]\nA = [{}]\nB = [1, 1]\n'
            "[[kernel.configs]]\nBLOCK = {}\n[[kernel.configs]]\nBLOCK = 1\narchs = ['sm_91']\n"
        )
        with pytest.raises(ManifestError) as caught:
            make_plans([write_manifest(wrong)], ("sm_80", "sm_90"), "full", compiler)
        found = [each.key.removeprefix("$.kernel[0].") for each in caught.value.mistakes]
        assert found == ["matrix.A[0]", "matrix.B", "configs[0].BLOCK", "configs[1].archs"]

    def test_of_types_and_hints_of_one_kernel(self, write_manifest, compiler):
        types = KERNEL + '[kernel.params]\nx_ptr = "*f16"\nn = "i23"\n'
        hints = KERNEL + '[kernel.params]\nx_ptr = "*fp16"\nn = "fp32"\n[[kernel.hints]]\nx = 16\nn = 16\n'
        for text, keys in ((types, ["params.x_ptr", "params.n"]), (hints, ["hints[0].x", "hints[0].n"])):
            with pytest.raises(ManifestError) as caught:
                make_plans([write_manifest(text)], (), "full", compiler)
            assert [each.key.removeprefix("$.kernel[0].") for each in caught.value.mistakes] == keys

    def test_of_keys_apart_and_of_what_the_function_takes(self, write_manifest, compiler):
        """What is wrong with a grid, a hint or a rule on what to build hides no mistake of another key."""
        apart = {
            'grid = ["n", 2]\n': "grid[1]",
            'grid = ["x"]\n': "grid[0]",
            "core = 1\n": "core",
            'core = "n"\n': "core",
            "hints = [{ n = 3 }]\n": "hints[0].n",
            'exclude = [{ when = "BLOK" }]\n': "exclude[0].when",
            "exclude = [{}]\n": "exclude[0]",
            'batch = ["m"]\n': "batch[0]",
            'tuning = { key = ["m"] }\n': "tuning.key[0]",
        }
        for wrong, key in apart.items():
            text = f'{KERNEL}{wrong}params = {{ x = "*fp16", n = "i32" }}\nconfigs = [{{ BLOCK = 1 }}, {{ requires = "n" }}]\n'
            with pytest.raises(ManifestError) as caught:
                make_plans([write_manifest(text)], (), "full", compiler)
            found = [each.key.removeprefix("$.kernel[0].") for each in caught.value.mistakes]
            assert found == [key, "configs[1].requires"], wrong
            text = text.replace(', { requires = "n" }', "")
            with pytest.raises(ManifestError) as caught:
                make_plans([write_manifest(text)], (), "full", compiler)
            found = {each.key.removeprefix("$.kernel[0].") for each in caught.value.mistakes}
            assert found == {key, "$.kernel[0]", "params.x"}, wrong

    def test_of_what_the_function_takes(self, write_manifest, compiler):
        text = KERNEL + '[kernel.params]\nx = "*fp16"\nn = "i32"\n[[kernel.configs]]\nBLOK = 1\n'
        with pytest.raises(ManifestError) as caught:
            make_plans([write_manifest(text)], ("sm_80", "sm_90"), "full", compiler)
        assert [(each.line, each.got) for each in caught.value.mistakes] == [
            (8, "none"),
            (8, "none"),
            (13, "'x'"),
            (16, "'BLOK'; did you mean 'BLOCK'?"),
        ]

    def test_one_alone_is_told_as_such(self, write_manifest):
        with pytest.raises(ManifestError) as caught:
            load_manifest(write_manifest(KERNEL + "zebra = 1\n"))
        (only,) = caught.value.mistakes
        assert only is caught.value

    def test_survive_a_pickle(self, write_manifest):
        with pytest.raises(ManifestError) as caught:
            load_manifest(write_manifest(KERNEL + "zebra = 1\nlion = 2\n"))
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        assert [each.line for each in again.mistakes] == [12, 13]
