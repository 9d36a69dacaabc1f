"""Wheels installed into empty environments by pip, and the first kernel there: no compiler, no index, nothing written."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.aot.wheel.conftest import Make
from tests.fakecuda import FakeCuda
from tests.support.wheels import Environment, own_wheel, pip, uv, wheel_of

Wheel = Callable[..., Result]

FIRST_KERNEL = """
import json, sys
from nojit import runtime
bundle = runtime.load("acme-kernels")
bundle.kernel("add")(3)
imported = sorted({"triton", "torch", "click", "pip"} & set(sys.modules))
print(json.dumps({"files": [file.path for file in bundle.files], "over": bundle.passed_over, "imported": imported}))
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this checkout and of what it needs."""
    folder = tmp_path_factory.mktemp("shelf")
    own_wheel(folder)
    wheel_of("zstandard", folder)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env")


@pytest.fixture
def install(shelf: Path, tmp_path: Path, environment: Environment) -> Callable[..., None]:
    """Install from the shelf and ``dist`` alone: with uv, which is fast, or with pip."""

    def run(*words: object, by: str = "uv") -> None:
        common = ("--no-index", "--find-links", shelf, "--find-links", tmp_path / "dist", *words)
        if by == "uv":
            done = uv("install", "--python", environment.python, "--link-mode", "copy", *common)
        else:
            done = pip(environment, "install", "--no-compile", *common)
        assert done.returncode == 0, done.stderr

    return run


def first_kernel(environment: Environment, driver: FakeCuda) -> dict[str, list[str]]:
    shown: dict[str, list[str]] = json.loads(environment.run("-c", FIRST_KERNEL, NOJIT_LIBCUDA=str(driver.path)))
    assert shown["imported"] == []
    return shown


def test_a_provider_is_all_that_a_first_kernel_needs(
    bundles: Make, wheel: Wheel, install: Callable[..., None], environment: Environment, fakecuda: FakeCuda
) -> None:
    wheel(bundles("sm_80", "sm_90a"))
    install("acme-kernels-sm90", by="pip")
    before = environment.files()
    for path in environment.site.rglob("*"):
        # root may write all the same: that nothing is new is looked at below
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    shown = first_kernel(environment, fakecuda)
    assert shown["files"] == [str(environment.site / "acme_kernels_sm90/acme-kernels-1.0-sm_90.nojit")]
    assert environment.files() == before
    for path in environment.site.rglob("*"):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def test_extras_of_the_thin_wheel_bring_providers(
    bundles: Make, wheel: Wheel, install: Callable[..., None], environment: Environment, fakecuda: FakeCuda
) -> None:
    wheel(bundles("sm_80", "sm_90a"))
    install("acme-kernels[sm90]")
    assert not (environment.site / "acme_kernels_sm80").exists()
    assert len(first_kernel(environment, fakecuda)["files"]) == 1
    install("acme-kernels[all]")
    shown = first_kernel(environment, fakecuda)
    assert [Path(path).name for path in shown["files"]] == [
        "acme-kernels-1.0-sm_80.nojit",
        "acme-kernels-1.0-sm_90.nojit",
    ]
    assert shown["over"] == []


def test_pip_takes_the_plain_wheel_and_it_works(
    bundles: Make, wheel: Wheel, install: Callable[..., None], environment: Environment, fakecuda: FakeCuda
) -> None:
    wheel(bundles("sm_80", "sm_90a"), "--layout", "variants")
    install("acme-kernels[sm90]", by="pip")
    shown = first_kernel(environment, fakecuda)
    assert [Path(path).name for path in shown["files"]] == [
        "acme-kernels-1.0-sm_80.nojit",
        "acme-kernels-1.0-sm_90.nojit",
    ]


def test_two_providers_of_one_kernel(
    bundles: Make, wheel: Wheel, install: Callable[..., None], environment: Environment, fakecuda: FakeCuda
) -> None:
    folder = bundles("sm_90a")
    wheel(folder)
    wheel(folder, "--layout", "variants", "--version", "2.0")
    install("acme-kernels==2.0", "acme-kernels-sm90==1.0")
    shown = first_kernel(environment, fakecuda)
    first, second = shown["files"]
    # both are called acme-kernels: then the names of the distributions decide
    assert "/acme_kernels/" in first
    assert "/acme_kernels_sm90/" in second
    assert shown["over"] == [[second, f"add of {first} comes first"]]


def test_the_thin_wheel_alone_says_what_there_is(
    bundles: Make, wheel: Wheel, install: Callable[..., None], environment: Environment
) -> None:
    wheel(bundles("sm_90a"))
    install("acme-kernels")
    code = (
        "from nojit import runtime\ntry: runtime.load('acme-kernels')\nexcept FileNotFoundError as error: print(error)"
    )
    assert "pip install 'acme-kernels[all]'" in environment.run("-c", code)


def test_an_uninstalled_provider_leaves_nothing(
    bundles: Make, wheel: Wheel, install: Callable[..., None], environment: Environment
) -> None:
    wheel(bundles("sm_90a"))
    install("nojit")
    before = set(environment.files())
    install("acme-kernels-sm90")
    assert uv("check", "--python", environment.python).returncode == 0
    assert uv("uninstall", "--python", environment.python, "acme-kernels-sm90").returncode == 0
    assert set(environment.files()) == before
