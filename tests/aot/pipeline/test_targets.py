"""The choice of targets: a family's where that costs no chip anything, else each chip's own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.cache.cache import Cache
from nojit.aot.pipeline.targets import KernelTarget, choose_targets, with_families
from nojit.aot.plan.planner import make_plans

from tests.aot.conftest import KERNEL
from tests.aot.fake_compiler import FakeCompiler, FakeSource

SOURCES = {"demo:add_kernel": FakeSource(("x_ptr", "n"), ("BLOCK",))}
ADD = KERNEL + '[kernel.params]\nx_ptr = "*fp16"\nn = "i32"\n'
CONFIG = "[[kernel.configs]]\nBLOCK = 64\n"


class _EveryArch(FakeCompiler):
    """A compiler whose archs are unknown, families among them."""

    def archs(self) -> tuple[str, ...]:
        return ()


@pytest.fixture
def choose(write_manifest, tmp_path: Path):
    def make(archs: Sequence[str], text: str = ADD + CONFIG, **compiler: Any) -> list[KernelTarget]:
        fake = _EveryArch(tmp_path / "journal", SOURCES, **compiler)
        plans = make_plans([write_manifest(text)], with_families(archs, ()), "full", fake)
        return [*choose_targets(plans, archs, fake, Cache(tmp_path / "cache"), lambda: ThreadPoolExecutor(1))]

    return make


def chosen(targets: list[KernelTarget]) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.arch, one.chips) for one in targets]


def test_the_targets_to_compare_are_chips_and_their_families():
    assert with_families(["sm_90", "sm_103"], ()) == ("sm_90", "sm_100", "sm_100f", "sm_103")
    assert with_families(["sm_120f"], ()) == ("sm_120", "sm_120f", "sm_121")
    # what this toolchain cannot assemble is left out
    assert with_families(["sm_103"], ("sm_100", "sm_103")) == ("sm_103",)
    assert with_families(["sm_100f"], ("sm_100", "sm_100f")) == ("sm_100", "sm_100f")


def test_chips_that_would_get_the_same_code_share_their_family(choose):
    targets = choose(["sm_90", "sm_100", "sm_103", "sm_121"], same_image=True)
    assert chosen(targets) == [
        ("sm_90", ("sm_90",)), ("sm_100f", ("sm_100", "sm_103")), ("sm_120f", ("sm_121",)),
    ]  # fmt: skip
    assert [one.runs_on for one in targets] == [("sm_90",), ("sm_100", "sm_103", "sm_107"), ("sm_120", "sm_121")]
    assert [(one.variants, one.reordered, one.reason) for one in targets] == [(1, 0, "")] * 3


@pytest.mark.parametrize(
    ("arch", "runs_on"),
    [
        ("sm_80", ("sm_80", "sm_86", "sm_89")),
        ("sm_86", ("sm_86", "sm_89")),
        ("sm_87", ("sm_87",)),
        ("sm_110", ("sm_110",)),
    ],
)
def test_the_chips_that_run_an_image_leave_tegras_out(choose, arch, runs_on):
    (target,) = choose([arch], same_image=True)
    assert (target.arch, target.runs_on) == (arch, runs_on)


def test_chips_that_would_get_other_code_have_images_of_their_own(choose):
    targets = choose(["sm_100", "sm_103"])
    assert chosen(targets) == [("sm_100", ("sm_100",)), ("sm_103", ("sm_103",))]
    assert {one.reason for one in targets} == {"1 of 1 have other instructions on sm_100"}
    assert [one.runs_on for one in targets] == [("sm_100",), ("sm_103",)]


def test_a_variant_that_does_not_compile_for_a_chip_keeps_the_family_away(choose):
    targets = choose(["sm_100", "sm_103"], same_image=True, mishaps={"sm_103": "fail"})
    assert {one.reason for one in targets} == {"1 of 1 do not compile for sm_103"}
    assert [(one.arch, one.failed) for one in targets] == [("sm_100", 0), ("sm_103", 1)]


def test_variants_that_do_not_compile_for_a_chip_without_a_family_are_counted(choose):
    assert [one.failed for one in choose(["sm_90"], mishaps={"sm_90": "fail"})] == [1]


def test_a_chip_with_configs_of_its_own_keeps_the_family_away(choose):
    text = ADD + CONFIG + '[[kernel.configs]]\nBLOCK = 32\narchs = ["sm_103"]\n'
    targets = choose(["sm_100", "sm_103"], text, same_image=True)
    assert chosen(targets) == [("sm_100", ("sm_100",)), ("sm_103", ("sm_103",))]
    assert {one.reason for one in targets} == {"sm_103 has other configs"}


def test_a_config_for_a_family_is_built_for_each_chip_of_it(choose):
    text = ADD + CONFIG + '[[kernel.configs]]\nBLOCK = 32\narchs = ["sm_100f"]\n'
    (target,) = choose(["sm_100", "sm_103"], text, same_image=True)
    assert (target.arch, target.variants) == ("sm_100f", 2)
    assert choose(["sm_110"], text, same_image=True)[0].variants == 1
