"""Where the bundles of the benchmarks come from."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.bench import bundles, children
from nojit.aot.inspect.doctor import DriverState
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, NojitError, PackageError

from tests.aot.bench.conftest import cold_kernel
from tests.support.bundles import make_bundle
from tests.support.digests import with_digests


def test_a_bundle_is_found_by_its_name_and_arch(tmp_path: Path) -> None:
    for name in ("nojit-bench-cold-1-1-sm_80", "nojit-bench-cold-1-1-sm_90", "nojit-bench-launch-1-sm_90"):
        make_bundle(tmp_path / f"{name}.nojit", cold_kernel(0))
    assert bundles.find(tmp_path, "nojit-bench-cold-1", "sm_90").name == "nojit-bench-cold-1-1-sm_90.nojit"
    one = tmp_path / "nojit-bench-launch-1-sm_90.nojit"
    assert bundles.find(one, "whatever", "sm_80") == one


def test_a_bundle_that_is_not_there_is_named_with_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="build it with `nojit bench bundles --arch sm_90`, got none"):
        bundles.find(tmp_path, bundles.LAUNCH, "sm_90")


def test_a_folder_with_two_versions_of_a_bundle_names_both(tmp_path: Path) -> None:
    for version in ("1", "2"):
        make_bundle(tmp_path / f"{bundles.LAUNCH}-{version}-sm_90.nojit", cold_kernel(0))
    message = (
        rf"`nojit clean` deletes older ones, got {bundles.LAUNCH}-1-sm_90.nojit, {bundles.LAUNCH}-2-sm_90.nojit - at"
    )
    with pytest.raises(BundleError, match=message):
        bundles.find(tmp_path, bundles.LAUNCH, "sm_90")


def test_building_needs_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "find_spec", lambda _: None)
    with pytest.raises(NojitError, match=r"expected Triton, .*: pip install 'nojit\[build\]'$"):
        bundles.build(tmp_path, "sm_90", (1,))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "find_spec", lambda _: True)
    (tmp_path / "file").touch()
    with pytest.raises(PackageError, match=r"expected a folder to write to, got a file - at .*file\Z"):
        bundles.build(tmp_path / "file", "sm_90", (1,))


def test_a_device_that_nothing_is_built_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "probe_driver", lambda: DriverState(version=13000, devices=(70,), problem=""))
    with pytest.raises(NojitError, match=r"from sm_75 up, .*got 'sm_70'.* - at device 0"):
        bundles.device_arch()


def test_no_two_kernels_of_a_cold_start_are_alike(tmp_path: Path) -> None:
    text = bundles.cold_source(tmp_path, 50).read_text()
    bodies = {body.partition("mask)")[2] for body in text.split("@triton.jit")[1:]}
    assert len(bodies) == 50
    compile(text, "cold.py", "exec")


def test_a_child_that_fails_says_what_it_was_for() -> None:
    with pytest.raises(NojitError, match="expected the exit to succeed, got exit code 7"):
        children.run(["-c", "raise SystemExit(7)"], "the exit")


def test_a_child_answers_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echoing.py").write_text(
        "import json, sys, pathlib\n"
        "asked = json.loads(pathlib.Path(sys.argv[1]).read_text())\n"
        "pathlib.Path(sys.argv[2]).write_text(json.dumps({'got': asked}))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert children.call("echoing", {"a": [1]}, "echoing") == {"got": {"a": [1]}}


@pytest.mark.triton
def test_the_kernels_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_CACHE_DIR", str(with_digests(tmp_path / "cache")))
    bundles.build(tmp_path, "sm_90", (2,), launch=True)
    with BundleFile(bundles.find(tmp_path, bundles.cold_name(2), "sm_90")) as cold:
        assert cold.kernels == ("cold_0", "cold_1")
        assert [entry.images for entry in cold.index.kernels] == [1, 1]
    with BundleFile(bundles.find(tmp_path, bundles.LAUNCH, "sm_90")) as launch:
        assert set(launch.kernels) == {"launch_1", "launch_4", "launch_12", "launch_30"}


@pytest.mark.parametrize("module", ["benchmarks", "launch_child", "cold_start", "rivals", "contenders", "bundles"])
def test_the_benchmarks_import_neither_torch_nor_triton(module: str) -> None:
    code = (
        f"import sys, nojit.aot.bench.{module}; print([n for n in ('torch', 'triton', 'msgspec') if n in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.triton
def test_the_source_compiles_under_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(bundles.cold_source(tmp_path, 2).parent)
    module: Any = importlib.import_module("cold_2")
    assert module.cold_1.arg_names == ["x_ptr", "out_ptr", "n", "BLOCK"]
