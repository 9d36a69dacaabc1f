"""Bundles to make wheels of, and what opens wheels again."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nojit.aot.backends.registry import arch_of
from nojit.aot.cli.group import cli

from tests.support.bundles import kernel, make_bundle, target

Make = Callable[..., Path]


@pytest.fixture
def bundles(tmp_path: Path) -> Make:
    """Write bundles of one small kernel, one for each image arch, into a folder."""

    def make(*image_archs: str, name: str = "acme-kernels", version: str = "1.0", **facts: Any) -> Path:
        folder = tmp_path / "artifacts"
        folder.mkdir(exist_ok=True)
        for image_arch in image_archs:
            on = target(image_arch)
            needed = 13000 if image_arch.endswith("a") else 12000
            add = kernel(facts.get("kernel", "add"), {"n": "i32"}, grid=["n"], on=on)
            path = folder / f"{name}-{version}-{arch_of(on)}.nojit"
            make_bundle(path, add, name=name, version=version, on=on, min_driver=needed)
        return folder

    return make


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[..., Result]:
    """Run `nojit wheel` into the folder ``dist``."""

    def invoke(*words: object, code: int = 0) -> Result:
        out = () if "--out" in words else ("--out", str(tmp_path / "dist"))
        result = CliRunner().invoke(cli, ["wheel", *map(str, words), *out], prog_name="nojit")
        assert result.exit_code == code, result.output
        return result

    return invoke


def entries(path: Path) -> dict[str, bytes]:
    """Read every file of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
