"""Environments that lend their Triton to a build, and what is said of those that cannot."""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path

import pytest
from nojit.aot.compile.by_toolchain import find_toolchains
from nojit.aot.compile.toolchain.installed_triton import find_triton, is_version
from nojit.runtime.errors import CompileError

from tests.support.tritons import python_of

ABI = sysconfig.get_config_var("SOABI")


def environment(folder: Path, version: str, abi: str = ABI, place: str = "/site/triton") -> Path:
    """An environment whose Python says this of its Triton."""
    answer = json.dumps([abi, "3.14", version, [place]])
    return python_of(folder, f"echo noise; echo; echo '{answer}'")


@pytest.mark.parametrize(
    ("name", "full", "fits"),
    [
        ("3.6", "3.6.0", True), ("3.6.0", "3.6.0", True), ("3.6.0", "3.6.0+git1", True), ("3.6.0+git1", "3.6.0+git1", True),
        ("3.6", "3.60.0", False), ("3.6.1", "3.6.0", False), ("3", "3.6.0", True), ("3.6", "", False),
    ],
)  # fmt: skip
def test_a_name_is_a_version_or_its_first_parts(name, full, fits):
    assert is_version(name, full) is fits


def test_the_triton_of_an_environment_is_found_by_asking_its_python(tmp_path):
    folder = environment(tmp_path / "venv", "3.6.0")
    found = find_triton("3.6", folder)
    assert (found.name, found.version, found.folder) == ("3.6", "3.6.0", Path("/site"))
    assert find_triton("3.6", folder / "bin" / "python") == found


REFUSED = {
    "missing": (None, "got no such path"),
    "empty": ("", r"got no .*/bin/python"),
    "silent": ("true", "got a program that is no Python"),
    "broken": (
        "echo 'ImportError: libtriton.so: cannot open' >&2; exit 1",
        "got ImportError: libtriton.so: cannot open",
    ),
    "dead": ("exit 7", "got exit code 7"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_an_environment_without_triton_is_refused_with_what_it_said(tmp_path, how):
    script, got = REFUSED[how]
    folder = tmp_path / "venv"
    if script == "":
        folder.mkdir()
    elif script is not None:
        python_of(folder, script)
    with pytest.raises(
        CompileError, match=rf"expected a virtual environment with Triton, or its Python.*{got}.* - at {folder}"
    ):
        find_triton("3.6", folder)


def test_a_python_that_cannot_be_started_is_refused(tmp_path):
    (python_of(tmp_path, "") / "bin" / "python").chmod(0o644)
    with pytest.raises(CompileError, match=r"got .*ermission denied"):
        find_triton("3.6", tmp_path)


def test_a_fifo_for_an_environment_is_named(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(CompileError, match=r"got a FIFO - at .*/fifo"):
        find_triton("3.6", tmp_path / "fifo")


def test_an_environment_of_another_version_is_refused(tmp_path):
    folder = environment(tmp_path, "3.9.0")
    with pytest.raises(
        CompileError, match=rf"expected Triton 3\.6: .*--toolchain 3\.9\.0={folder}, got Triton 3\.9\.0"
    ):
        find_triton("3.6", folder)


def test_an_environment_of_another_python_is_refused(tmp_path):
    folder = environment(tmp_path, "3.6.0", "cpython-314-x86_64-linux-gnu")
    with pytest.raises(
        CompileError, match=rf"expected an environment of Python .*{ABI}, got Python 3\.14 with cpython-314-"
    ):
        find_triton("3.6", folder)


def test_two_names_for_one_version_are_refused(tmp_path):
    folder = environment(tmp_path, "3.6.0")
    with pytest.raises(
        CompileError, match=r"expected toolchains of different versions: .*got 3\.6 and 3\.6\.0, both Triton 3\.6\.0"
    ):
        find_toolchains([("3.6", folder), ("3.6.0", folder)])


def test_a_toolchain_without_a_place_is_the_builds_own(monkeypatch):
    monkeypatch.setattr("nojit.aot.compile.by_toolchain.own_version", lambda: "3.9.0")
    (found,) = find_toolchains([("3.9", None)])
    assert (found.name, found.version, found.folder) == ("3.9", "3.9.0", None)
    with pytest.raises(
        CompileError, match=r"expected --toolchain 3\.6=VENV, .* got Triton 3\.9\.0, of the build's own environment"
    ):
        find_toolchains([("3.6", None)])
