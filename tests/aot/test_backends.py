"""Another vendor of GPUs is one package: a build knows its archs, targets, options and settings by the registry alone."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner
from nojit.aot.backends.interface import Limits
from nojit.aot.backends.options import Option
from nojit.aot.backends.registry import pin, register, vendor_of, vendors
from nojit.aot.backends.settings import Role, Setting, keyed
from nojit.aot.cli.group import cli
from nojit.aot.compile.image_checks import checked_registers
from nojit.aot.compile.resource_pruning import prune_compiled
from nojit.aot.compile.toolchain.digests import all_left_out
from nojit.aot.compile.toolchain.triton_settings import all_knobs, all_variables, setting_of
from nojit.aot.manifest.archs import arch_number, check_arch, check_assembled, known_archs, target_of
from nojit.aot.plan.planner import make_plans
from nojit.runtime.bundle.format import TargetInfo
from nojit.runtime.errors import BundleError, CompileError, ManifestError

from tests.aot.conftest import HEADER, KERNEL
from tests.aot.fake_compiler import FakeCompiler, FakeSource

SOURCES = {"demo:add_kernel": FakeSource(("x_ptr", "n"), ("BLOCK",))}
ADD = KERNEL + '[kernel.params]\nx_ptr = "*fp16"\nn = "i32"\n[[kernel.configs]]\nBLOCK = 64\n'


@dataclass(frozen=True)
class Tiles:
    """A package's module `vendor`, in miniature: archs `tile_1` and `tile_2`."""

    pinned: list[tuple[int | None, Path | None]]
    NAME: str = "tiles"
    TRITON: str = "tiler"
    ARCHS: tuple[str, ...] = ("tile_1", "tile_2")
    EXPECTED: str = "tile_1 or tile_2"
    ASSEMBLER: str = "tileas"
    OPTIONS: dict[str, Option] = field(default_factory=dict)
    KNOBS: dict[str, Setting] = field(default_factory=lambda: {"tiler.depth": keyed("sets the depth", "TILER_DEPTH")})
    VARIABLES: dict[str, Setting] = field(default_factory=lambda: {"TILER_MODE": keyed("sets the mode")})
    LEFT_OUT: dict[str, str] = field(default_factory=lambda: {"backends/tiler/docs": "documentation"})
    CLASSIFIER: str = "Environment :: GPU"
    UNTRIED: str = ""
    IMAGE: str = "tile"
    WHEEL_VARIANTS: object = None

    def is_arch(self, arch: str) -> bool:
        return arch in self.ARCHS

    def arch_number(self, arch: str) -> int:
        return int(arch.removeprefix("tile_"))

    def chip_of(self, arch: str) -> str:
        return arch

    def opcodes_of(self, image: bytes) -> dict[bytes, Counter[int]]:
        return {}

    def chips_of(self, arch: str) -> tuple[str, ...]:
        return (arch,)

    def family_of(self, arch: str) -> str:
        return ""

    def target_of(self, arch: str) -> TargetInfo:
        return TargetInfo(self.NAME, arch, f"{arch}x", 64)

    def limits(self, arch: str) -> Limits:
        return Limits(1024, 512, 4096, 4)

    def device_name(self, arch: str) -> str:
        return arch

    def check_image(self, image: bytes, launch: object, image_arch: str, where: str) -> int:
        if image != image_arch.encode():
            raise BundleError("expected a tile", got=repr(image), where=where)
        return 7

    def code_of(self, image: bytes) -> dict[bytes, bytes]:
        return {b"": image}

    def parse_driver(self, text: str) -> int:
        return int(text)

    @contextlib.contextmanager
    def pin(self, min_driver: int | None, assembler: Path | None):
        self.pinned.append((min_driver, assembler))
        yield

    def backend(self) -> ModuleType:
        raise CompileError("expected a backend for tiles", got="none")


@pytest.fixture
def tiles():
    with register(vendor := Tiles([])):
        yield vendor
    assert vendor not in vendors()


def test_a_build_names_it_up_to_the_compiler(tiles, write_manifest, tmp_path):
    manifest = write_manifest(ADD, header=HEADER.replace('"sm_90"', '"tile_2", "sm_90"'))
    plans = make_plans([manifest], (), "full", FakeCompiler(tmp_path / "journal", SOURCES))
    assert [plan.arch for plan in plans] == ["tile_2", "sm_90"]
    variant = plans[0].kernels[0].variants[0]
    assert vendor_of(variant.arch) is tiles
    with pytest.raises(CompileError, match="expected a backend for tiles"):
        vendor_of(variant.arch).backend()


def test_its_archs_are_valid_and_named_in_messages(tiles):
    assert check_arch("tile_1", "here") == "tile_1"
    assert known_archs()[-2:] == ("tile_1", "tile_2")
    assert arch_number("tile_2") == 2
    assert target_of("tile_2") == TargetInfo("tiles", "tile_2", "tile_2x", 64)
    with pytest.raises(
        ManifestError,
        match="expected an arch such as sm_90, from sm_75 up, or gfx942, gfx950 or gfx1201, or tile_1 or tile_2, got 'tile_3'",
    ):
        check_arch("tile_3", "here")
    with pytest.raises(ManifestError, match=r"\(tile_2; --tileas takes another tileas\), got 'tile_1'"):
        check_assembled("tile_1", ("tile_2",), "here")


def test_its_settings_and_files_count(tiles):
    assert all_knobs()["tiler.depth"].role is Role.KEYED
    assert setting_of("tiler", "depth") is all_knobs()["tiler.depth"]
    assert setting_of("tiler", "other") is None
    assert all_variables()["TILER_MODE"].role is Role.KEYED
    assert all_left_out().keys() >= {"backends/tiler/docs", "backends/nvidia/bin"}


def test_a_vendor_takes_over_its_group_and_folder_of_triton():
    assert setting_of("proton", "anything").role is Role.WITHOUT_EFFECT
    with register(Tiles([], TRITON="proton")):
        assert setting_of("proton", "anything") is None


def test_its_images_and_limits_are_checked(tiles):
    variant = SimpleNamespace(arch="tile_1", kernel="add", label=lambda: "add")
    compiled = SimpleNamespace(
        registers=3, spill_bytes=0, launch=SimpleNamespace(num_warps=8, shared_bytes=0), image=b"tile_1x"
    )
    assert checked_registers(b"tile_1x", compiled.launch, "tile_1", "here") == 7
    with pytest.raises(CompileError, match="expected an image that agrees with its launch facts, got expected a tile"):
        checked_registers(b"other", compiled.launch, "tile_1", "here")
    assert prune_compiled(variant, compiled, 0) is None
    compiled.launch.num_warps = 16
    assert prune_compiled(variant, compiled, 0).reason == "threads over 512 of a block"


def test_its_assembler_is_pinned_with_the_others(tiles):
    with pin(12040, {"tileas": Path("/bin/tileas")}):
        assert tiles.pinned == [(12040, Path("/bin/tileas"))]


def test_commands_have_an_option_for_every_assembler():
    for command in ("build", "verify"):
        shown = CliRunner().invoke(cli, [command, "--help"]).output
        assert all(f"--{vendor.ASSEMBLER} " in shown for vendor in vendors() if vendor.ASSEMBLER)
        assert "-- " not in shown
