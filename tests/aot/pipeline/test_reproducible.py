"""A bundle is a function of manifests, sources and toolchain: the same bytes wherever, however and by whomever built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.aot.conftest import ROOT
from tests.support.digests import with_digests

pytestmark = [pytest.mark.triton, pytest.mark.slow]

SOURCE = """
import triton
import triton.language as tl

from constants_of_reproducible import SHIFT

SCALE = tl.constexpr(2)


@triton.jit(noinline=True)
def _limit(n):
    return n * 3 + SHIFT


@triton.jit
def _double(x):
    return x * SCALE


@triton.jit
def scale(x_ptr, out_ptr, n, KIND: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes, mask=lanes < _limit(n))
    if KIND == "double":
        x = _double(x)
    tl.device_assert(n > 0, "text that is kept")
    if EVEN:
        tl.store(out_ptr + lanes, x)
    else:
        tl.store(out_ptr + lanes, x, mask=lanes < n)


@triton.jit
def copy(x_ptr, out_ptr, F: tl.constexpr):
    tl.store(out_ptr, F(tl.load(x_ptr)))
"""

MANIFEST = """
schema = 1

[bundle]
name = "demo"
version = "1.0"
archs = ["sm_80", "sm_90"]

[[kernel]]
name = "scale"
source = "kernels/source.py:scale"
grid = ["cdiv(n, BLOCK)"]

[kernel.params]
x_ptr = "*{dtype}"
out_ptr = "*{dtype}"
n = "i32"

[kernel.matrix]
dtype = ["fp16", "fp32"]
KIND = ["double", "plain"]

[[kernel.hints]]
x_ptr = 16
out_ptr = 16
n = 16

[kernel.derived]
EVEN = "n % BLOCK == 0"

[[kernel.configs]]
BLOCK = 128

[[kernel]]
name = "copy"
source = "kernels/source.py:copy"

[kernel.params]
x_ptr = "*fp32"
out_ptr = "*fp32?"

[kernel.matrix]
F = [{ function = "kernels/source.py:_double" }]

[[kernel.exclude]]
when = "not has(out_ptr)"
"""


@dataclass(frozen=True)
class Circumstances:
    """Everything about a build that must not matter."""

    folder: str
    jobs: int
    environment: dict[str, str]
    umask: int
    absolute: bool
    """Whether paths are given in full, from elsewhere, or as seen from the manifest's folder."""


FIRST = Circumstances(
    folder="a",
    jobs=1,
    environment={"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0", "USER": "one"},
    umask=0o022,
    absolute=True,
)
SECOND = Circumstances(
    folder="somewhere else with spaces and a much longer name",
    jobs=3,
    environment={
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "C.UTF-8",
        "LANG": "de_DE.UTF-8",
        "PYTHONHASHSEED": "12345",
        "USER": "two",
        "COLUMNS": "40",
        "TRITON_DISABLE_LINE_INFO": "0",
        "SOURCE_DATE_EPOCH": "1",
    },
    umask=0o077,
    absolute=False,
)


def build(parent: Path, how: Circumstances) -> dict[str, bytes]:
    """Build the project in a process of its own; return its bundles."""
    folder = parent / how.folder
    (folder / "project" / "kernels").mkdir(parents=True)
    (folder / "project" / "demo.toml").write_text(MANIFEST, encoding="utf-8")
    (folder / "project" / "kernels" / "source.py").write_text(SOURCE, encoding="utf-8")
    constants = "import triton.language as tl\n\nSHIFT = tl.constexpr(1)\n"
    (folder / "project" / "kernels" / "constants_of_reproducible.py").write_text(constants, encoding="utf-8")
    (folder / "home").mkdir()
    base = folder / "project" if how.absolute else Path()
    with_digests(folder / "project" / "cache")
    places = [base / "demo.toml", "--out", base / "out", "--cache-dir", base / "cache"]
    subprocess.run(
        [sys.executable, "-m", "nojit", "build", *places, "--jobs", str(how.jobs), "--quiet"],
        cwd=folder if how.absolute else folder / "project",
        env=os.environ | {"HOME": str(folder / "home"), "TMPDIR": str(folder)} | how.environment,
        umask=how.umask,
        check=True,
        timeout=300,
    )
    return {path.name: path.read_bytes() for path in sorted((folder / "project" / "out").glob("*.nojit"))}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    parent = tmp_path_factory.mktemp("reproducible")
    return parent, build(parent, FIRST), build(parent, SECOND)


def test_the_same_bytes_under_all_circumstances(bundles):
    _, first, second = bundles
    assert list(first) == ["demo-1.0-sm_80.nojit", "demo-1.0-sm_90.nojit"]
    assert first == second


def test_and_the_same_report_but_for_the_time_it_took(bundles):
    parent, first, _ = bundles
    for name in first:
        reports = []
        for how in (FIRST, SECOND):
            path = (parent / how.folder / "project" / "out" / name).with_suffix(".report.json")
            report = json.loads(path.read_text(encoding="utf-8"))
            for variant in report["variants"]:
                assert variant.pop("compile_ms") > 0
            reports.append(report)
        assert reports[0] == reports[1]


def test_no_byte_says_where_or_by_whom(bundles):
    from nojit.runtime.bundle.file import BundleFile

    parent, first, _ = bundles
    for name in first:
        with BundleFile(parent / FIRST.folder / "project" / "out" / name) as bundle:
            for image in bundle.images():
                for word in (str(parent), str(ROOT), "source.py", "demo.toml"):
                    assert word.encode() not in image


def test_nothing_but_the_bundles_the_reports_and_the_cache_is_left(bundles):
    parent, _, _ = bundles
    for how in (FIRST, SECOND):
        folder = parent / how.folder
        assert sorted(path.name for path in folder.iterdir()) == ["home", "project"]
        assert list((folder / "home").iterdir()) == []
        assert not [path for path in (folder / "project").rglob("*") if path.name.startswith(".")]


def test_moving_a_project_recompiles_nothing(bundles):
    """The cache knows variants by what shapes them, not by where they lie."""
    parent, first, _ = bundles
    moved = parent / "moved"
    shutil.copytree(parent / FIRST.folder / "project", moved)
    shutil.rmtree(moved / "out")
    ran = subprocess.run(
        [sys.executable, "-m", "nojit", "build", "demo.toml", "--out", "out", "--cache-dir", "cache", "--json"],
        cwd=moved,
        check=True,
        timeout=300,
        capture_output=True,
    )
    assert {path.name: path.read_bytes() for path in sorted((moved / "out").glob("*.nojit"))} == first
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in (moved / "out").glob("*.report.json")]
    assert all(variant["cached"] for report in reports for variant in report["variants"]), ran.stderr
