"""The distribution nojit-autoserve, built and installed: variables alone record and serve each process of an environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from nojit.runtime.autostart import FOLDER, environment
from nojit.runtime.recording.file import read_recording

from tests.runtime.serve.conftest import PROGRAM, Recorded
from tests.support.wheels import Environment, own_wheel, pip, wheel_of

ROOT = Path(__file__).resolve().parents[3]
FOUND = "import sys; print(*sorted(each for each in sys.modules if each.startswith('nojit')))"
IMPORT = "try:\n    import triton\nexcept Exception as error:\n    print(type(error).__name__, error)"


PROJECTS = ("pyproject.toml", "autoserve/pyproject.toml")


def test_both_distributions_have_one_version_and_one_module() -> None:
    nojit, ours = (tomllib.loads((ROOT / each).read_text("utf-8"))["project"] for each in PROJECTS)
    assert ours["version"] == nojit["version"]
    assert ours["dependencies"] == [f"nojit=={nojit['version']}"]
    assert nojit["optional-dependencies"]["autoserve"] == [f"{ours['name']}=={nojit['version']}"]
    assert (ROOT / "autoserve/nojit_autoserve.py").samefile(Path(FOLDER) / "sitecustomize.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution."""
    if find_spec("build") is None or find_spec("setuptools") is None:
        pytest.skip("needs build and setuptools: pip install 'nojit[ship]'")
    folder = tmp_path_factory.mktemp("autoserve")
    # a build leaves traces beside the sources
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    for each in ("autoserve", "runtime/autostart"):
        shutil.copytree(ROOT / each, folder / each, symlinks=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "autoserve"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with both distributions and without Triton."""
    folder = tmp_path_factory.mktemp("installed")
    made = Environment(folder / "env")
    wheels = (wheel, own_wheel(folder), wheel_of("zstandard", folder))
    done = pip(made, "install", "--no-deps", "--no-index", *wheels)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.slow
def test_the_wheel_holds_the_module_and_its_hook_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert names == {"nojit_autoserve.py", "nojit-autoserve.pth"}
        assert archive.read("nojit_autoserve.py") == (Path(FOLDER) / "sitecustomize.py").read_bytes()
        assert len(archive.read("nojit-autoserve.pth").splitlines()) == 1


@pytest.mark.slow
def test_a_process_without_the_variables_imports_nothing_of_nojit(installed: Environment) -> None:
    assert installed.run("-c", FOUND).strip() == ""
    assert installed.run("-c", FOUND, NOJIT_RECORD="r").strip() == "nojit_autoserve"


@pytest.mark.slow
def test_isolated_processes_start_too(installed: Environment) -> None:
    assert installed.run("-I", "-c", FOUND, NOJIT_SERVE="s").strip() == "nojit_autoserve"
    assert installed.run("-S", "-c", FOUND, NOJIT_SERVE="s").strip() == ""


@pytest.mark.slow
@pytest.mark.triton
def test_a_process_is_served_where_the_variable_is_set(installed: Environment, recorded: Recorded) -> None:
    for variables in ({"PYTHONPATH": str(ROOT)}, environment({"PYTHONPATH": str(ROOT)})):
        given = {**driver_of(recorded), **variables, "NOJIT_SERVE": str(recorded.bundle)}
        facts = json.loads(installed.run("-m", PROGRAM, "add", **given))
        assert facts["served"] == [["tests.runtime.serve.programs.kernels:add", 1, 0, 0]]


@pytest.mark.slow
@pytest.mark.triton
def test_a_process_is_recorded_where_the_variable_is_set(
    installed: Environment, recorded: Recorded, tmp_path: Path
) -> None:
    # Triton finds its backends through its entry points
    for each in {file.parts[0] for file in distribution("triton").files or () if file.parts[0].startswith("triton")}:
        (tmp_path / each).symlink_to(distribution("triton").locate_file(each))
    paths = os.pathsep.join((str(ROOT), str(tmp_path)))
    facts = json.loads(
        installed.run(
            "-m", PROGRAM, "add", **driver_of(recorded), PYTHONPATH=paths, NOJIT_RECORD=str(tmp_path / "recording")
        )
    )
    assert not facts["served"]
    found = read_recording(tmp_path / "recording").specializations.values()
    assert [each["qualname"] for each in found] == ["add"]


@pytest.mark.slow
def test_a_bundle_that_is_missing_fails_the_import_of_triton_and_not_the_start(installed: Environment) -> None:
    printed = installed.run("-c", f"print('on')\n{IMPORT}", NOJIT_SERVE="/nowhere/artifacts").splitlines()
    assert printed[0] == "on"
    assert printed[1].startswith("FileNotFoundError")
    assert "/nowhere/artifacts" in printed[1]


@pytest.mark.slow
def test_without_nojit_a_served_program_fails_at_triton_and_a_recorded_one_goes_on(wheel: Path, tmp_path: Path) -> None:
    alone = Environment(tmp_path / "env")
    assert pip(alone, "install", "--no-deps", "--no-index", wheel).returncode == 0
    (tmp_path / "triton.py").touch()
    given = {"PYTHONPATH": str(tmp_path)}
    assert alone.run("-c", IMPORT, **given, NOJIT_SERVE="s").startswith("ModuleNotFoundError No module named 'nojit'")
    assert alone.run("-c", IMPORT, **given, NOJIT_RECORD="r") == ""


def driver_of(recorded: Recorded) -> dict[str, str]:
    """Return the variables of a recorded program's driver."""
    return {name: value for name, value in recorded.environment.items() if os.environ.get(name) != value}
