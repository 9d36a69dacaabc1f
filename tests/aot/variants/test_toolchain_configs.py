"""Several toolchains in one bundle: which compiles each config, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.plan.plan import Plan, absent_kernels
from nojit.aot.plan.planner import make_plans
from nojit.aot.variants.left_out import Absence
from nojit.runtime.errors import ManifestError, NojitError

from tests.aot.conftest import HEADER, KERNEL
from tests.aot.fake_compiler import FakeCompiler, FakeSource

SOURCES = {"demo:add_kernel": FakeSource(("x_ptr", "n"), ("BLOCK",))}
ADD = KERNEL + '[kernel.params]\nx_ptr = "*fp16"\nn = "i32"\n'
CONFIG = "[[kernel.configs]]\nBLOCK = 64\n"
TUNING = '[kernel.tuning]\nkey = ["n"]\n[[kernel.tuning.space]]\nBLOCK = [32, 64]\n'
TABLE = """
schema = 1
kernel = "add"
key = ["n"]
device = { name = "NVIDIA H200", arch = "sm_90", multiprocessors = 132, memory_bytes = 1 }
[[config]]
BLOCK = 64
num_warps = 8
toolchain = "3.6"
[[config]]
BLOCK = 64
num_warps = 8
toolchain = "3.9"
[[config]]
BLOCK = 64
num_warps = 4
[[entry]]
rows = [{ at = [64], use = [1, 0], us = [1.0, 2.0] }, { at = [512], use = [0, 2, 1] }]
"""


@pytest.fixture
def plan(write_manifest, tmp_path: Path):
    def make(text: str, toolchains: tuple[str, ...] = (), header: str = HEADER, **arguments: Any) -> Plan:
        compiler = FakeCompiler(tmp_path / "journal", SOURCES, toolchains=toolchains)
        (made,) = make_plans([write_manifest(text, header=header)], (), "full", compiler, **arguments)
        return made

    return make


def chosen(plan: Plan) -> list[tuple[str, Any]]:
    """The toolchain that compiles each variant, and the one that the bundle stores."""
    return [(each.toolchain, dict(each.config.options).get("toolchain")) for each in plan.kernels[0].variants]


def listed(header: str, *names: str) -> str:
    return f"{header}toolchains = {list(names)}\n"


def test_one_toolchain_adds_nothing_to_configs(plan):
    assert chosen(plan(ADD + CONFIG)) == [("", None)]
    named = plan(ADD + CONFIG, ("3.9",))
    assert (chosen(named), named.toolchains) == ([("3.9", None)], ("3.9",))
    unnamed = tuple(replace(each, toolchain="") for each in named.kernels[0].variants)
    assert unnamed == plan(ADD + CONFIG).kernels[0].variants


def test_configs_that_name_no_toolchain_take_the_first(plan):
    made = plan(ADD + CONFIG, ("3.9", "3.6"))
    assert (chosen(made), made.toolchains, made.used_toolchains()) == ([("3.9", "3.9")], ("3.9", "3.6"), ("3.9",))
    assert chosen(plan(ADD + CONFIG, ("3.6", "3.9"))) == [("3.6", "3.6")]


def test_a_manifest_orders_the_toolchains_of_the_command_line(plan):
    made = plan(ADD + CONFIG, ("3.9", "3.8", "3.6"), listed(HEADER, "3.6", "3.9"))
    assert (made.toolchains, chosen(made)) == (("3.6", "3.9"), [("3.6", "3.6")])


def test_a_config_and_a_kernel_may_name_their_toolchain(plan):
    text = ADD + CONFIG + 'toolchain = "3.6"\n' + "[[kernel.configs]]\nBLOCK = 32\n"
    assert chosen(plan(text, ("3.9", "3.6"))) == [("3.6", "3.6"), ("3.9", "3.9")]
    assert chosen(plan(ADD + CONFIG + '[kernel.options]\ntoolchain = "3.6"\n', ("3.9", "3.6"))) == [("3.6", "3.6")]


def test_configs_that_differ_in_the_toolchain_alone_are_two(plan):
    text = ADD + CONFIG + 'toolchain = "3.6"\n' + CONFIG + 'toolchain = "3.9"\n'
    assert chosen(plan(text, ("3.9", "3.6"))) == [("3.6", "3.6"), ("3.9", "3.9")]


def test_rules_do_not_see_the_toolchain(plan):
    with pytest.raises(ManifestError, match="toolchain"):
        plan(ADD + CONFIG + "[[kernel.exclude]]\nwhen = \"toolchain == '3.6'\"\n", ("3.9", "3.6"))


@pytest.mark.parametrize(
    "place", ["[[kernel.configs]]\nBLOCK = 64\n", "[[kernel.configs]]\nBLOCK = 64\n[kernel.options]\n"]
)
def test_an_unknown_toolchain_is_refused_where_it_is_named(plan, place):
    with pytest.raises(ManifestError) as caught:
        plan(ADD + place + 'toolchain = "3.7"\n', ("3.9", "3.6"))
    text = str(caught.value)
    assert (
        "expected a toolchain of the bundle (3.9, 3.6): list it in `toolchains` of [bundle], or pass --toolchain"
        in text
    )
    assert all(part in text for part in ("got '3.7'", "demo.toml:", ".toolchain"))


def test_a_toolchain_cannot_be_named_where_none_is(plan):
    with pytest.raises(ManifestError, match=r"expected a toolchain of the bundle \(none is named\).*got '3.6'"):
        plan(ADD + CONFIG + 'toolchain = "3.6"\n')


def test_a_missing_toolchain_is_reported_at_the_manifests_list(plan):
    with pytest.raises(ManifestError, match=r"got 3\.6 - at .*demo\.toml:7:\d+ \$\.bundle\.toolchains"):
        plan(ADD + CONFIG, ("3.9",), listed(HEADER, "3.9", "3.6"))


def test_manifests_of_a_bundle_agree_on_toolchains(write_manifest, tmp_path):
    paths = [
        write_manifest(ADD + CONFIG, header=listed(HEADER, "3.9")),
        write_manifest((ADD + CONFIG).replace('"add"', '"mul"'), name="other.toml"),
    ]
    compiler = FakeCompiler(tmp_path / "journal", SOURCES, toolchains=("3.9",))
    with pytest.raises(ManifestError, match=r"to agree on .* and toolchains \['3\.9'\], got .* and toolchains \[\]"):
        make_plans(paths, (), "full", compiler)


def test_a_tuning_bundle_has_every_config_by_every_toolchain(plan):
    made = plan(ADD + CONFIG + TUNING, ("3.9", "3.6"), tuning=True)
    blocks = [dict(each.constexprs)["BLOCK"] for each in made.kernels[0].variants]
    assert sorted(zip(blocks, chosen(made), strict=True)) == [
        (32, ("3.6", "3.6")), (32, ("3.9", "3.9")), (64, ("3.6", "3.6")), (64, ("3.9", "3.9")),
    ]  # fmt: skip
    # and those that name one by that alone
    pinned = plan(
        ADD + CONFIG + TUNING + 'toolchain = ["3.6"]\n[kernel.options]\ntoolchain = "3.6"\n',
        ("3.9", "3.6"),
        tuning=True,
    )
    assert {each.toolchain for each in pinned.kernels[0].variants} == {"3.6"}


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    folder = tmp_path / "tuned"
    folder.mkdir()
    path = folder / "add.toml"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_the_tuned_table_says_which_toolchain_compiles_each_config(plan, tuned):
    made = plan(ADD + CONFIG + TUNING, ("3.6", "3.9"))
    # of two configs that are best once, the first; one that names no toolchain takes the default
    assert {(each.toolchain, dict(each.config.options)["num_warps"]) for each in made.kernels[0].variants} == {
        ("3.6", 8), ("3.9", 8), ("3.6", 4),
    }  # fmt: skip
    assert made.used_toolchains() == ("3.6", "3.9")


def test_a_bundle_of_one_toolchain_takes_the_configs_of_a_table_of_several(plan, tuned):
    for names in ((), ("3.6",), ("3.9",)):
        made = plan(ADD + CONFIG + TUNING, names)
        # the two configs that differ in their toolchain are one
        assert [dict(each.config.options) for each in made.kernels[0].variants] == [
            {"num_warps": warps, "num_stages": 3, "num_ctas": 1, "maxnreg": None} for warps in (8, 4)
        ]
        assert chosen(made) == [("".join(names), None)] * 2


def test_a_table_of_another_toolchain_is_refused(plan, tuned):
    with pytest.raises(
        NojitError,
        match=r"expected a toolchain of the bundle \(3\.9, 3\.8\): add --toolchain 3\.6=VENV, or tune again, got '3\.6'",
    ):
        plan(ADD + CONFIG + TUNING, ("3.9", "3.8"))


NEWER = ADD.replace("[kernel.params]", 'triton = ">=3.7"\n[kernel.params]')


@pytest.mark.parametrize("version", ["3.7.0", "3.7", "3.10.1", "3.9.0+git1a2b", "4.0", ""])
def test_a_triton_that_is_new_enough_compiles_a_kernel_that_needs_it(write_manifest, tmp_path, version):
    compiler = FakeCompiler(tmp_path / "journal", SOURCES, version=version)
    (made,) = make_plans([write_manifest(NEWER + CONFIG)], (), "full", compiler)
    assert (made.count(), made.absent, made.too_new) == (1, (), ())


def test_a_kernel_that_needs_a_newer_triton_is_left_out(write_manifest, tmp_path):
    other = (ADD + CONFIG).replace('"add"', '"mul"')
    path = write_manifest(NEWER + CONFIG + other)
    compiler = FakeCompiler(tmp_path / "journal", SOURCES, version="3.6.0")
    (made,) = make_plans([path], (), "full", compiler)
    assert [kernel.spec.name for kernel in made.kernels] == ["mul"]
    assert (made.absent, made.too_new) == (("add",), (("add", ">=3.7"),))
    (absence,) = absent_kernels([made])
    assert absence == Absence("demo", "add", ("sm_90",), ">=3.7")


def test_mistakes_of_a_kernel_that_is_left_out_are_reported(write_manifest, tmp_path):
    path = write_manifest(NEWER + CONFIG + "[[kernel.exclude]]\nwhen = \"BLOCK == 'x'\"\n")
    with pytest.raises(ManifestError, match="exclude"):
        make_plans([path], (), "full", FakeCompiler(tmp_path / "journal", SOURCES, version="3.6.0"))


def test_only_toolchains_that_are_new_enough_compile_a_kernel(plan):
    assert chosen(plan(NEWER + CONFIG, ("3.6", "3.9"))) == [("3.9", None)]
    assert chosen(plan(NEWER + CONFIG, ("3.6", "3.9", "3.8"))) == [("3.9", "3.9")]


def test_a_toolchain_that_is_too_old_for_a_kernel_is_refused_where_it_is_named(plan):
    with pytest.raises(ManifestError, match=r"compiles the kernel, whose triton is '>=3.7', got '3.6'.*toolchain"):
        plan(NEWER + CONFIG + 'toolchain = "3.6"\n', ("3.6", "3.9"))


@pytest.mark.parametrize("written", ["3.7", ">3.7", ">=3", ">= 3.7", "==3.7", ">=3.7,<3.9", ""])
def test_a_requirement_of_another_form_is_refused(plan, written):
    with pytest.raises(ManifestError, match=r"the oldest Triton that compiles the kernel, such as '>=3\.7'.*\.triton"):
        plan(NEWER.replace(">=3.7", written) + CONFIG)
