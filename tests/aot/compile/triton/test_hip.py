"""Images for AMD's GPUs: compiled by Triton without one, checked, packed, and named untried."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from nojit.aot.backends.hip import vendor
from nojit.aot.backends.hip.archs import ARCHS, facts_of
from nojit.aot.compile.triton.compiler import toolchain
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import CompileError

from tests.aot.conftest import ROOT
from tests.aot.projects import KERNEL, Built, Project, entry
from tests.fakecuda.build import build_hip
from tests.fakecuda.hip import FakeHip

pytestmark = pytest.mark.triton

MATMUL = """
import triton
import triton.language as tl


@triton.jit
def k(out_ptr, V: tl.constexpr):
    lanes = tl.arange(0, 32)
    tile = tl.load(out_ptr + lanes[:, None] * 32 + lanes[None, :])
    tl.store(out_ptr + lanes[:, None] * 32 + lanes[None, :], tl.dot(tile, tile) + V)
"""
TOLD = """
import json
import torch
from triton.runtime import driver

target = driver.active.get_current_target()
print("told", json.dumps([target.backend, target.arch, target.warp_size, torch.version.hip, torch.version.cuda,
      torch.cuda.get_device_capability(), torch.cuda.get_device_properties(0).gcnArchName,
      driver.active.utils.get_device_properties(0)["max_shared_mem"]]))
"""
ALL = tuple(word for arch in (*ARCHS, "sm_90") for word in ("--arch", arch))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build a kernel with a matrix product and one without for all of AMD's archs, and one of NVIDIA's."""
    project = Project(tmp_path_factory.mktemp("hip") / "project").write(a_py=KERNEL, b_py=MATMUL)
    return project.build(entry("exp", "a.py:k"), entry("dot", "b.py:k"), words=ALL)


def command(*words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "nojit", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_build_makes_bundles_of_both_vendors(built: Built) -> None:
    assert built.code == 0, built.stderr
    assert {path.name for path in built.out.glob("*.nojit")} == {f"demo-1.0-{arch}.nojit" for arch in (*ARCHS, "sm_90")}
    assert " ".join(built.stdout.split()).count(vendor.UNTRIED) == len(ARCHS)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_bundle_is_verified_and_says_that_it_is_untried(built: Built, arch: str) -> None:
    path = built.out / f"demo-1.0-{arch}.nojit"
    assert command("verify", path).startswith("OK")
    shown = command("inspect", path)
    assert "untried     never run on hardware" in shown
    release = facts_of(arch).min_driver
    assert f"images for {arch}; driver for ROCm {release // 1000}.{release % 1000 // 10} or newer" in shown
    with BundleFile(path) as bundle:
        target = bundle.index.target
        assert (target.backend, target.arch, target.image_arch, target.warp_size) == (
            "hip", arch, arch, facts_of(arch).warp_size,
        )  # fmt: skip
        (launch,) = bundle.table("dot").launches
        assert [slot.type for slot in launch.layout] == ["*fp32", "*i8", "*i8"]
        assert launch.shared_bytes > 0


LAUNCH = """
import json, os, sys
from pathlib import Path
from nojit import runtime
from tests.fakecuda.hip import FakeHip
from tests.support.tensors import PointerTensor

fake = FakeHip(Path(os.environ["NOJIT_LIBHIP"]))
bundle = runtime.load(sys.argv[1])
x = PointerTensor(0x10000, "torch.float32", "cuda:0")
told = {}
for name in bundle.kernels:
    kernel = bundle.kernel(name)
    chosen = kernel.explain(x, V=1).chosen
    kernel[(3,)](x, V=1, stream=0)
    last = fake.last_launch()
    told[name] = [chosen is not None, last.grid, last.block, last.shared_bytes, last.ints()[0]]
assert fake.violations() == [], fake.violations()
print(json.dumps(told))
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_a_gpu_selects_loads_and_launches_its_bundle_among_all(
    built: Built, arch: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hip, facts = FakeHip(build_hip(tmp_path_factory.mktemp("hip"))), facts_of(arch)
    environment = hip.environment(int(arch[3:]), driver_version=facts.min_driver)
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, built.out], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.keys() == {"exp", "dot"}
    for name, (chosen, *launch) in told.items():
        with BundleFile(built.out / f"demo-1.0-{arch}.nojit") as bundle:
            shared = bundle.table(name).launches[0].shared_bytes
        assert chosen
        assert launch == [[3, 1, 1], [4 * facts.warp_size, 1, 1], shared, 0x10000]


SHIPPED = """
import os, sys
from pathlib import Path
from nojit import runtime
from tests.fakecuda.hip import FakeHip
from tests.support.tensors import PointerTensor

fake = FakeHip(Path(os.environ["NOJIT_LIBHIP"]))
x = PointerTensor(0x10000, "torch.bfloat16", "cuda:0")
runtime.load(sys.argv[1]).kernel("rms_norm_fwd")(x, None, x, x, None, 3, 4096, 1, 1e-6, 4096, 0, stream=0)
assert fake.violations() == [], fake.violations()
print(fake.last_launch().grid[0])
"""


def test_a_shipped_kernel_is_built_and_launched_for_both_gpus_of_data_centers(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = [word for arch in ("gfx942", "gfx950") for word in ("--arch", arch)]
    words += ["--profile", "core", "--kernel", "rms_norm_fwd", "--cache-dir", str(tmp_path / "cache"), "-j", "2"]
    command("build", ROOT / "manifests/norm.toml", "--out", tmp_path / "out", *words)
    hip = FakeHip(build_hip(tmp_path_factory.mktemp("hip")))
    for device in (942, 950):
        ran = subprocess.run(
            [sys.executable, "-c", SHIPPED, tmp_path / "out"],
            capture_output=True,
            text=True,
            check=False,
            env=hip.environment(device, driver_version=7000),
        )
        assert (ran.stdout, ran.stderr) == ("3\n", "")


@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_a_bundle_of_a_build_for_both_vendors_is_built_again(built: Built, arch: str) -> None:
    path = built.out / f"demo-1.0-{arch}.nojit"
    assert command("verify", path, "--rebuild", "--sources", built.out.parents[1], "-j", "1").startswith("OK")


def test_a_bundle_whose_images_are_for_another_gfx_fails_verification(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-gfx942.nojit"
    with (
        BundleFile(built.out / "demo-1.0-gfx950.nojit") as bundle,
        BundleFile(built.out / "demo-1.0-gfx942.nojit") as own,
    ):
        launch = own.table("exp").launches[0]
        other = bundle.image("exp", 0)
    with pytest.raises(Exception, match="expected an image for gfx942, got gfx950"):
        vendor.check_image(other, launch, "gfx942", str(path))


def test_images_are_extracted_as_hsacos(built: Built, tmp_path: Path) -> None:
    command("extract", built.out / "demo-1.0-gfx942.nojit", "--kernel", "exp", "--out", tmp_path)
    (image,) = tmp_path.glob("*.hsaco")
    assert image.read_bytes() == built.images("gfx942")["exp"][0]


def test_a_source_sees_a_gpu_of_amds(tmp_path: Path) -> None:
    built = (
        Project(tmp_path / "project")
        .write(a_py=TOLD + KERNEL)
        .build(entry("a", "a.py:k"), words=("--dry-run", "--arch", "gfx942", "--arch", "sm_90"))
    )
    assert built.code == 0, built.stderr
    nvidia, amd = re.findall(r"told (.*)", built.stderr)
    assert amd == '["hip", "gfx942", 64, "6.0", null, [9, 4], "gfx942", 65536]'
    assert nvidia.startswith('["cuda", 90, 32, null, "')


def test_the_toolchain_names_what_makes_amds_code() -> None:
    assert {"amd-codegen", "amd-codegen.digest", "amd-ocml.digest", "amd-ockl.digest"} <= dict(
        toolchain("gfx942")
    ).keys()
    assert not any(name.startswith("amd") for name, _ in toolchain("sm_90"))


def test_spills_are_read_of_the_image() -> None:
    from nojit.aot.backends.hip.backend import spill_bytes

    name = b".vgpr_spill_count"
    assert [spill_bytes("", name + count) for count in (b"\x03", b"\xcc\x80", b"\xcd\x01\x00")] == [12, 512, 1024]
    assert spill_bytes("", b"nothing") == 0


def test_a_triton_without_a_code_generator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from nojit.aot.backends.hip import backend

    monkeypatch.setattr(backend, "amd", SimpleNamespace())
    assert backend.archs() == ()
    with pytest.raises(CompileError, match=r"expected Triton 3.9 or later to build for AMD's GPUs"):
        backend.tools("gfx942")


def test_options_of_the_other_vendor_are_refused_or_without_effect(tmp_path: Path) -> None:
    def make(name: str) -> Project:
        return Project(tmp_path / name).write(a_py=KERNEL)

    words = ("--arch", "gfx942")
    refused = make("a").build(entry("a", "a.py:k", "[kernel.options]\nclc = true"), words=words)
    assert refused.code == 1
    assert "expected options of Triton" in refused.stderr
    plain = make("b").build(entry("a", "a.py:k"), words=words)
    ignored = make("c").build(entry("a", "a.py:k", "[kernel.options]\nlaunch_pdl = true\nmaxnreg = 64"), words=words)
    assert plain.images("gfx942") == ignored.images("gfx942")
    own = make("d").build(entry("a", "a.py:k", "[kernel.options]\nwaves_per_eu = 2\nnum_warps = 8"), words=words)
    assert own.code == 0, own.stderr
