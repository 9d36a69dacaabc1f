"""What nojit itself is shipped as: its list of parts is whole, and its source distribution builds into a wheel that works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.wheels import Environment, pip, wheel_of

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = ("aot", "kernels", "runtime")


def test_wheels_are_built_for_every_python_that_is_named() -> None:
    named = {row.rpartition(" ")[2] for row in SETTINGS["project"]["classifiers"] if row.startswith("Programming")}
    built = {tag.removeprefix("cp").removesuffix("-*") for tag in SETTINGS["tool"]["cibuildwheel"]["build"]}
    assert {f"3.{tag[1:]}" for tag in built if not tag.endswith("t")} == {one for one in named if one.startswith("3.")}


def test_what_an_index_shows_links_to_no_file() -> None:
    text = (ROOT / SETTINGS["project"]["readme"]).read_text(encoding="utf-8")
    assert not re.search(r"\]\((?!https://)", text)
    for extra in ("cli", "build", "sign", "trust", "torch"):
        assert extra in text
        assert extra in SETTINGS["project"]["optional-dependencies"]


def test_pip_installs_torch_before_the_tests_packages_and_never_resolves_both_at_once(tmp_path: Path) -> None:
    """A build of torch for CUDA requires another Triton than `constraints.txt`: pip would find no set of versions."""
    make = ["make", "--dry-run", f"VENV={tmp_path}", f"{tmp_path}/.test"]
    printed = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    torch, rest = (next(at for at, line in enumerate(printed) if part in line) for part in ("^torch==", ".[dev]"))
    assert torch < rest
    assert "-c constraints.txt" not in printed[torch]
    assert not any(row.startswith("torch") for row in _required_by("dev"))


def _required_by(extra: str) -> set[str]:
    """Return what an extra requires, with what it takes from other extras."""
    rows = set(SETTINGS["project"]["optional-dependencies"][extra])
    others = {name for row in rows if row.startswith("nojit[") for name in row[len("nojit[") : -1].split(",")}
    return rows.union(*(_required_by(name) for name in others))


@pytest.mark.slow
def test_the_source_distribution_builds_without_a_warning_into_a_wheel_that_works(tmp_path: Path) -> None:
    if subprocess.run([sys.executable, "-c", "import build, setuptools"], capture_output=True, check=False).returncode:
        pytest.skip("needs build and setuptools: pip install 'nojit[ship]'")
    # a build leaves traces beside the sources
    copy = tmp_path / "checkout"
    unwanted = shutil.ignore_patterns(
        "__pycache__", "*.so", "*.egg-info", ".*", "artifacts", "build", "dist", "tests", "benchmarks"
    )
    shutil.copytree(ROOT, copy, ignore=unwanted, symlinks=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(copy)]
    # beside -Wall and -Wextra, which it asks for
    strict = os.environ | {"CFLAGS": "-Werror"}
    done = subprocess.run(command, env=strict, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    # a top-level package of another name would overwrite somebody's
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"nojit"}
    modules = {f"nojit/{path.relative_to(ROOT)}" for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert {
        name for name in names if name.startswith(tuple(f"nojit/{room}/" for room in ROOMS)) and name.endswith(".py")
    } == modules
    core, *library = sorted(name for name in names if ".so" in name)
    assert core.startswith("nojit/runtime/_core.")
    # what linkers look for names the library, which the loader looks for
    assert library == ["nojit/runtime/libnojit.so", "nojit/runtime/libnojit.so.0"]
    manifests = {f"nojit/manifests/{path.name}" for path in (ROOT / "manifests").glob("*.toml")}
    assert {name for name in names if name.startswith("nojit/manifests/")} == manifests
    # the C loops are what benchmarks compile; the rest is for programs that link libnojit
    engine = "nojit/runtime/engine"
    sources = ["nojit/aot/bench/c_loop.c", f"{engine}/cmake/nojitConfig.cmake", f"{engine}/cmake/nojitConfigVersion.cmake",
               f"{engine}/include/nojit.h", f"{engine}/include/nojit.hpp", f"{engine}/pkgconfig/nojit.pc"]  # fmt: skip
    assert sorted(name for name in names if name.endswith((".c", ".h", ".hpp", ".cmake", ".pc"))) == sources
    environment = Environment(tmp_path / "env")
    done = pip(environment, "install", "--no-deps", "--no-compile", wheel, wheel_of("zstandard", tmp_path / "shelf"))
    assert done.returncode == 0, done.stderr
    shown = environment.run("-c", "from nojit.runtime import _core, load; print(_core.__file__)")
    assert shown.strip() == str(environment.site / core)
    # a checkout that is called nojit, in the folder where Python starts, is not what was installed
    (environment.folder / "nojit/runtime").mkdir(parents=True)
    (environment.folder / "nojit/runtime/__init__.py").write_text("raise SystemExit('the checkout')")
    shown = environment.run("-c", "import nojit.runtime; print(nojit.__version__)")
    assert shown.strip() == SETTINGS["project"]["version"]


def test_an_editable_installation_compiles_only_what_changed(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    for name in ("setup.py", "pyproject.toml", "LICENSE", "package", "runtime/engine", "runtime/binding"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, tmp_path / name)
    for built in ("libnojit.so.0", "libnojit.so", f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"):
        (tmp_path / "runtime" / built).touch()
    # it writes what it is asked for, but nothing into it
    (tmp_path / "gcc").write_text(
        '#!/bin/sh\necho compiles >&2\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done\nexit 0\n'
    )
    (tmp_path / "gcc").chmod(0o755)
    environment = {
        name: text for name, text in os.environ.items() if name not in {"CC", "CFLAGS", "CPPFLAGS", "LDFLAGS"}
    }
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"

    def compiles(**flags: str) -> bool:
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment | flags, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return "compiles" in done.stderr

    assert not compiles()
    assert compiles(CFLAGS="-O0")
    # nobody asked for binaries with these flags again
    assert compiles()
    assert not compiles()
    header = next((tmp_path / "runtime/engine").rglob("*.h"))
    newer = (tmp_path / "runtime/libnojit.so").stat().st_mtime + 10
    os.utime(header, (newer, newer))
    assert compiles()
