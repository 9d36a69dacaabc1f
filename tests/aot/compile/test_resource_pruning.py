"""Which compiled configs are not worth measuring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nojit.aot.compile.resource_pruning import prune_compiled, prune_failed
from nojit.aot.manifest.archs import known_archs
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.expand import expand_kernel
from nojit.runtime.base.gpu_limits import shared_bytes_max
from nojit.runtime.errors import CompileError

from tests.aot.entries import spec
from tests.aot.fake_compiler import FakeCompiler, FakeSource

(VARIANT,) = expand_kernel(spec(params={"x": "*fp16"}), "sm_90", "here").variants
COMPILED = FakeCompiler(Path("/dev/null"), {"demo:k": FakeSource(("x",))}).compile_variant(
    VARIANT, SourcePlace("demo:k", Path(), "here")
)


def reason(arch="sm_90", spills=0, limit=0, registers=32, **launch):
    compiled = replace(COMPILED, spill_bytes=spills, registers=registers, launch=replace(COMPILED.launch, **launch))
    pruned = prune_compiled(replace(VARIANT, arch=arch), compiled, limit)
    return None if pruned is None else (pruned.reason, pruned.detail)


def test_a_sound_config_stays():
    assert reason() is None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"shared_bytes": 232_449}, ("shared memory over 232,448 bytes", "232,449")),
        ({"shared_bytes": 101_377, "arch": "sm_86"}, ("shared memory over 101,376 bytes", "101,377")),
        ({"spills": 1}, ("spills over 0 bytes of a thread", "1")),
        ({"spills": 65, "limit": 64}, ("spills over 64 bytes of a thread", "65")),
        ({"num_warps": 33}, ("threads over 1,024 of a block", "1,056")),
        ({"num_warps": 16, "registers": 129}, ("registers over 65,536 of a block", "69,632")),
    ],
)
def test_one_that_cannot_run_or_spills_goes(facts, expected):
    assert reason(**facts) == expected


@pytest.mark.parametrize(
    "facts",
    [{"shared_bytes": 232_448}, {"spills": 64, "limit": 64}, {"num_warps": 32}, {"num_warps": 16, "registers": 128}],
)
def test_one_at_the_limit_stays(facts):
    assert reason(**facts) is None


def test_every_arch_that_is_documented_has_a_limit_of_shared_memory():
    limits = {arch: shared_bytes_max(arch) for arch in known_archs()}
    assert {arch: limit and limit // 1024 for arch, limit in limits.items()} == {
        "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_88": None, "sm_89": 99, "sm_90": 227, "sm_100": 227,
        "sm_101": 227, "sm_103": 227, "sm_107": 327, "sm_110": 227, "sm_120": 99, "sm_121": 99,
        "gfx942": 64, "gfx950": 160, "gfx1201": 64,
    }  # fmt: skip


def test_shared_memory_prunes_nothing_where_no_limit_is_known():
    assert reason("sm_88", shared_bytes=1 << 20) is None
    assert reason("sm_130", shared_bytes=1 << 20) is None


def test_a_failure_keeps_the_compilers_words():
    pruned = prune_failed(VARIANT, CompileError("expected to compile", got="no registers left"))
    assert (pruned.kernel, pruned.reason) == ("k", "does not compile")
    assert pruned.detail == "expected to compile, got no registers left"
    assert pruned.label == VARIANT.label()
