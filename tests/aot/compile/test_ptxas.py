"""Which ptxas assembles, for which drivers."""

from __future__ import annotations

import json
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from click.testing import CliRunner
from nojit.aot.backends.cuda.ptxas import parse_cuda, pin, pinned, read_ptxas
from nojit.aot.cli.group import cli
from nojit.aot.provenance.statement import statement_path
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import CompileError

ROOT = Path(__file__).resolve().parents[3]
OLD, NEW = "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"


def program(path: Path, says: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def ptxas(path: Path, version: str) -> Path:
    return program(path, f"Cuda compilation tools, release {version}, V{version}.86")


@pytest.fixture
def triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Triton's folder of tools, with a ptxas of CUDA 12.9 and a later one of 13.4."""
    spec = ModuleSpec("triton", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "triton")]
    monkeypatch.setattr("nojit.aot.backends.cuda.ptxas.find_spec", lambda name: spec if name == "triton" else None)
    folder = tmp_path / "triton/backends/nvidia/bin"
    ptxas(folder / "ptxas", "12.9")
    ptxas(folder / "ptxas-blackwell", "13.4")
    return folder


def test_nothing_is_pinned_where_nothing_is_asked() -> None:
    assert pinned({}, None, None) == {}


@pytest.mark.parametrize("asked", [12000, 12040, 12090, 12990])
def test_the_older_one_stands_in(triton: Path, asked: int) -> None:
    assert pinned({}, asked, None) == dict.fromkeys((OLD, NEW), str(triton / "ptxas"))


@pytest.mark.parametrize("asked", [13000, 13040, 14000])
def test_what_will_do_stays(triton: Path, asked: int) -> None:
    assert pinned({}, asked, None) == {OLD: str(triton / "ptxas"), NEW: str(triton / "ptxas-blackwell")}


def test_none_is_old_enough(triton: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        pinned({}, 11080, None)
    message = str(raised.value)
    assert "expected a ptxas of CUDA 11 or older" in message
    assert f"{triton / 'ptxas'} of CUDA 12.9" in message
    assert f"{triton / 'ptxas-blackwell'} of CUDA 13.4" in message
    with pytest.raises(CompileError, match=r"got .*/mine of CUDA 13\.0"):
        pinned({}, 12000, ptxas(tmp_path / "mine", "13.0"))


def test_the_environments_own_is_looked_at(triton: Path, tmp_path: Path) -> None:
    mine = ptxas(tmp_path / "mine", "11.8")
    assert pinned({OLD: str(mine)}, 12000, None) == dict.fromkeys((OLD, NEW), str(mine))
    with pytest.raises(CompileError, match="expected a ptxas: name another with --ptxas, got"):
        pinned({OLD: str(tmp_path / "missing")}, 12000, None)


def test_one_that_is_given_assembles_everything(triton: Path, tmp_path: Path) -> None:
    mine = ptxas(tmp_path / "mine", "12.4")
    for asked in (None, 12000):
        assert pinned({NEW: "/elsewhere"}, asked, mine) == dict.fromkeys((OLD, NEW), str(mine))


def test_a_triton_of_one_ptxas(triton: Path) -> None:
    (triton / "ptxas-blackwell").unlink()
    assert pinned({}, 12000, None) == {OLD: str(triton / "ptxas")}


def test_what_is_no_ptxas_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"expected a ptxas: name another with --ptxas, got .*No such file"):
        read_ptxas(tmp_path / "missing")
    with pytest.raises(CompileError, match="expected a ptxas: name another with --ptxas, got a folder - at"):
        read_ptxas(tmp_path)
    with pytest.raises(CompileError, match="expected a ptxas that prints its version"):
        read_ptxas(program(tmp_path / "other", "hello"))
    with pytest.raises(CompileError, match="expected a ptxas that prints its version"):
        read_ptxas(program(tmp_path / "failing", "release 12.4", code=1))


def test_the_environment_is_left_as_it_was(triton: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEW, str(triton / "ptxas-blackwell"))
    monkeypatch.delenv(OLD, raising=False)
    with pin(12000, None):
        assert os.environ[OLD] == os.environ[NEW] == str(triton / "ptxas")
    assert OLD not in os.environ
    assert os.environ[NEW] == str(triton / "ptxas-blackwell")


def test_versions() -> None:
    assert [parse_cuda(text) for text in ("12", "12.0", "12.9", "13.10")] == [12000, 12000, 12090, 13100]
    for text in ("", "12.", "12.4.1", "v12", "-1", "1 2"):
        with pytest.raises(ValueError, match="expected a CUDA version"):
            parse_cuda(text)


def test_a_wrong_version_is_wrong_usage() -> None:
    result = CliRunner().invoke(cli, ["build", "--min-driver", "new"], prog_name="nojit")
    assert result.exit_code == 2
    assert "expected a CUDA version such as 12.4, got 'new'" in result.stderr


@pytest.mark.triton
def test_an_older_driver_loads_what_is_built_for_it(tmp_path: Path) -> None:
    name = "vector-add-1.0-sm_90.nojit"
    words = ["build", str(ROOT / "examples/vector_add/vector_add.toml"), "--arch", "sm_90", "--jobs", "1"]
    for folder, more in (("usual", []), ("older", ["--min-driver", "12.4"])):
        result = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / folder), *more], prog_name="nojit")
        assert result.exit_code == 0, result.output
    with BundleFile(tmp_path / "usual" / name) as usual, BundleFile(tmp_path / "older" / name) as older:
        assert older.index.min_driver == 12000
        assert dict(older.index.toolchain)["ptxas"].startswith("12.")
        assert older.index.min_driver <= usual.index.min_driver
    asked = [
        json.loads(statement_path(tmp_path / folder / name).read_bytes())["predicate"]["buildDefinition"]
        for folder in ("usual", "older")
    ]
    assert [one["externalParameters"]["minDriver"] for one in asked] == [None, "12.4"]
    again = ["verify", str(tmp_path / "older" / name), "--rebuild", "--sources", str(ROOT), "--jobs", "1"]
    result = CliRunner().invoke(cli, again, prog_name="nojit")
    assert result.exit_code == 0, result.output


def test_a_name_alone_is_of_this_folder_and_not_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ptxas(tmp_path / "here/mine", "12.8")
    ptxas(tmp_path / "bin/mine", "13.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path / "here")
    # the one in PATH is of CUDA 13
    assert pinned({}, 12000, Path("mine")) == dict.fromkeys((OLD, NEW), str(tmp_path / "here/mine"))
