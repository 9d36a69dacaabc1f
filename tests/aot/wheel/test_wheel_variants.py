"""Wheel variants as uv chooses them: by the arch and the driver that NVIDIA's provider is told of, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.aot.wheel.conftest import Make
from tests.support.wheels import uv

Wheel = Callable[..., Result]
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")


@pytest.fixture
def chosen(bundles: Make, wheel: Wheel, tmp_path: Path) -> Callable[..., list[str]]:
    """Make wheel variants and list the bundles that uv installs on a machine."""

    def install(*image_archs: str, preview: bool = True, **machine: str) -> list[str]:
        wheel(bundles(*image_archs), "--layout", "variants")
        flags = ("--preview-features", "wheel-variants") if preview else ()
        places = ("--no-index", "--no-deps", "--find-links", tmp_path / "dist", "--target", tmp_path / "target")
        variables = {f"NV_VARIANT_PROVIDER_FORCE_{name}": value for name, value in machine.items()}
        done = uv("install", *flags, *places, "acme-kernels", **variables)
        assert done.returncode == 0, done.stderr
        return sorted(path.stem.rpartition("-")[2] for path in (tmp_path / "target").rglob("*.nojit"))

    return install


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ("7.5", "sm_75"),
        ("8.0", "sm_80"),
        ("8.6", "sm_86"),
        # the nearest minor version below runs there
        ("8.7", "sm_86"),
        ("8.9", "sm_89"),
        ("9.0", "sm_90"),
        ("10.0", "sm_100"),
        ("10.3", "sm_103"),
        ("12.0", "sm_120"),
    ],
)
def test_each_gpu_gets_its_own(chosen: Callable[..., list[str]], capability: str, arch: str) -> None:
    assert chosen(*ARCHS, SM_ARCH=capability, CUDA_DRIVER_VERSION="13.0") == [arch]


@pytest.mark.parametrize(
    ("capability", "arch"), [("10.0", "sm_100f"), ("10.3", "sm_100f"), ("12.0", "sm_120f"), ("12.1", "sm_120f")]
)
def test_each_chip_of_a_family_gets_the_familys(chosen: Callable[..., list[str]], capability: str, arch: str) -> None:
    assert chosen("sm_90a", "sm_100f", "sm_120f", SM_ARCH=capability, CUDA_DRIVER_VERSION="13.0") == [arch]


def test_variants_that_no_installer_tells_apart_are_refused(bundles: Make, wheel: Wheel) -> None:
    result = wheel(bundles("sm_100a", "sm_100f"), "--layout", "variants", code=1)
    assert "expected variants that installers can tell apart" in result.stderr
    assert "got sm_100 and sm_100f" in result.stderr


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({}, "no GPU"),
        ({"SM_ARCH": "7.0", "CUDA_DRIVER_VERSION": "13.0"}, "a GPU that is too old"),
        ({"SM_ARCH": "9.0", "CUDA_DRIVER_VERSION": "12.8"}, "a driver that is too old for sm_90"),
    ],
)
def test_otherwise_everything_is_installed(chosen: Callable[..., list[str]], machine: dict[str, str], why: str) -> None:
    assert chosen("sm_80", "sm_90a", **machine) == ["sm_80", "sm_90"], why


def test_an_older_driver_gets_what_it_loads(chosen: Callable[..., list[str]]) -> None:
    assert chosen("sm_80", "sm_90a", SM_ARCH="8.0", CUDA_DRIVER_VERSION="12.2") == ["sm_80"]


def test_an_installer_that_knows_no_variants_gets_everything(chosen: Callable[..., list[str]]) -> None:
    assert chosen("sm_80", "sm_90a", preview=False, SM_ARCH="9.0", CUDA_DRIVER_VERSION="13.0") == ["sm_80", "sm_90"]
