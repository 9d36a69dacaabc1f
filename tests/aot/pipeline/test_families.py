"""Builds for a family of architectures: one image for all of its chips, with the code that each of them would get."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.backends.cuda import vendor
from nojit.aot.backends.registry import arch_of
from nojit.aot.manifest.archs import (
    arch_number,
    arch_order,
    check_arch,
    check_target,
    chip_of,
    chips_of,
    family_of,
    target_of,
)
from nojit.runtime import loader
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import CompileError, ManifestError
from nojit.runtime.target import ARCHS, FAMILIES

from tests.aot.projects import KERNEL, Project, entry
from tests.fakecuda import FakeCuda

FAMILY_ARCHS = tuple(f"sm_{number}f" for number, members in FAMILIES.items() if len(members) > 1)
# an address that no other test takes for memory of the host: the runtime remembers which pages are a device's
FAR = 1 << 50
# a kernel with tensor cores: sm_100 has instructions for them that only chips of its family have
DOT = """
import triton
import triton.language as tl


@triton.jit
def k(out_ptr, V: tl.constexpr):
    i = tl.arange(0, 128)
    at = out_ptr + i[:, None] * 128 + i[None, :]
    x = tl.load(at).to(tl.float16)
    tl.store(at, tl.dot(x, x) + V)
"""


def test_the_families_are_known() -> None:
    assert set(FAMILY_ARCHS) >= {"sm_100f", "sm_120f"}


@pytest.mark.parametrize("arch", [*ARCHS, *FAMILY_ARCHS])
def test_a_target_leads_back_to_its_arch(arch: str) -> None:
    target = target_of(check_target(arch, "here"))
    assert arch_of(target) == arch
    assert target.arch == chip_of(arch)
    assert arch_number(arch) == int(chip_of(arch).removeprefix("sm_"))


def test_a_family_sorts_after_its_chip() -> None:
    assert sorted(["sm_100f", "sm_103", "sm_90", "sm_100"], key=arch_order) == ["sm_90", "sm_100", "sm_100f", "sm_103"]


@pytest.mark.parametrize("arch", ["sm_90f", "sm_80f", "sm_110f", "sm_12f", "sm_100a", "sm_100ff", "f", ""])
def test_what_is_no_family_is_no_target(arch: str) -> None:
    with pytest.raises(ManifestError, match="expected an arch such as sm_90"):
        check_target(arch, "here")


def test_a_chip_belongs_to_its_largest_family() -> None:
    families = {arch: family_of(arch) for arch in ARCHS}
    assert {arch: name for arch, name in families.items() if name} == {
        "sm_100": "sm_100f", "sm_103": "sm_100f", "sm_107": "sm_100f", "sm_120": "sm_120f", "sm_121": "sm_120f",
    }  # fmt: skip
    assert chips_of("sm_100f") == ("sm_100", "sm_103", "sm_107")
    assert chips_of("sm_103f") == ("sm_103", "sm_107")
    assert [chips_of(arch) for arch in ARCHS] == [(arch,) for arch in ARCHS]


def test_where_a_chip_is_meant_a_family_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"expected the arch of a chip, such as sm_100: .* got 'sm_100f'"):
        check_arch("sm_100f", "here")


@pytest.mark.triton
def test_one_bundle_serves_each_chip_of_the_family(
    project: Callable[[], Project], fakecuda: FakeCuda, tmp_path: Path
) -> None:
    made = project().write(source_py=KERNEL, dot_py=DOT)
    entries = entry("k", "source.py:k"), entry("dot", "dot.py:k")
    built = made.build(*entries, words=("--arch", "sm_100", "--arch", "sm_100f", "--arch", "sm_103"))
    assert built.code == 0, built.stderr
    images = {arch: built.images(arch) for arch in ("sm_100", "sm_100f", "sm_103")}
    code = {
        arch: {name: [vendor.code_of(image) for image in each] for name, each in found.items()}
        for arch, found in images.items()
    }
    assert code["sm_100"] == code["sm_100f"] == code["sm_103"]
    assert images["sm_100"] != images["sm_100f"]
    path = built.out / "demo-1.0-sm_100f.nojit"
    with BundleFile(path) as bundle:
        assert (bundle.index.target.arch, bundle.index.target.image_arch) == ("sm_100", "sm_100f")
    bundle = loader.load(path)
    for capability in (100, 103):
        fakecuda.set_devices(capability)
        fakecuda.add_memory(FAR, 4096)
        bundle.kernel("k")[(1,)](FAR, stream=0)
        assert fakecuda.last_launch().grid == (1, 1, 1)
    fakecuda.set_devices(120)
    assert not bundle.kernel("k").fits(0)


@pytest.mark.triton
def test_a_narrowed_build_keeps_the_bundles_of_chip_and_family_apart(project: Callable[[], Project]) -> None:
    made = project().write(source_py=KERNEL)
    entries = entry("one", "source.py:k"), entry("two", "source.py:k")
    assert made.build(*entries, words=("--arch", "sm_100f")).code == 0
    assert made.build(*entries, words=("--arch", "sm_100", "--kernel", "one")).code == 0
    built = made.build(*entries, words=("--arch", "sm_100f", "--kernel", "two"))
    assert "keeps one" in built.stderr
    assert {*built.images("sm_100")} == {"one"}
    assert {*built.images("sm_100f")} == {"one", "two"}


@pytest.mark.triton
def test_a_config_for_a_family_is_for_each_of_its_chips(project: Callable[[], Project]) -> None:
    text = entry("k", "source.py:k").replace("{ V = 1 }", '{ V = 1, archs = ["sm_100f"] }')
    words = (word for arch in ("sm_90", "sm_100", "sm_100f", "sm_103") for word in ("--arch", arch))
    built = project().write(source_py=KERNEL).build(text, words=(*words, "--dry-run", "--json"))
    assert built.code == 0, built.stderr
    assert [bundle["arch"] for bundle in json.loads(built.stdout)["bundles"]] == ["sm_100", "sm_100f", "sm_103"]


@pytest.mark.triton
def test_code_that_differs_for_the_family_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from nojit.aot.backends.cuda import backend
    from nojit.aot.compile.triton import compiler
    from nojit.aot.plan.function_facts import SourcePlace
    from nojit.aot.variants.expand import expand_kernel

    from tests.aot.entries import spec

    (tmp_path / "source.py").write_text(KERNEL, encoding="utf-8")
    place = SourcePlace("source.py:k", tmp_path, "demo.toml kernel k")
    written: dict[str, Any] = {"source": "source.py:k", "params": {"out_ptr": "*fp32"}, "configs": [{"V": 1}]}
    (variant,) = expand_kernel(spec(**written), "sm_100", "here").variants
    codes = iter(range(100))
    monkeypatch.setattr(backend, "code_of", lambda _: next(codes))
    before = backend.CUDABackend.make_cubin
    with pytest.raises(CompileError, match=r"expected the code for sm_100f to be that for sm_100a: .* each chip"):
        compiler.compile_variant(replace(variant, arch="sm_100f"), place)
    assert backend.CUDABackend.make_cubin is before
    assert compiler.compile_variant(variant, place).image
