"""The command that serves a program, where only the runtime is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from nojit.runtime.autostart import FOLDER
from nojit.runtime.errors import ArgumentError, NojitError
from nojit.runtime.serve import run

from tests.support.bundles import kernel, make_bundle

SHOWN = ("NOJIT_SERVE", "NOJIT_MISS", "NOJIT_SERVE_PRELOAD", "PYTHONPATH")
SHOW = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {SHOWN}}}))"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "add.nojit", kernel("add", {"n": "i32"}), name="installed-name")


def started(*words: str, folder: Path, module: str = "nojit.runtime.serve") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *module.split(), *words]
    environment = {name: value for name, value in os.environ.items() if name not in SHOWN}
    return subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["nojit.runtime.serve", "nojit run"])
def test_the_command_gets_absolute_paths_and_the_policy(
    tmp_path: Path, module: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOJIT_BUNDLES", str(bundle))
    words = [
        "--bundle",
        "add.nojit",
        "--bundle=installed-name",
        "--miss",
        "warn",
        "--preload",
        "--",
        sys.executable,
        "-c",
        SHOW,
    ]
    ended = started(*words, folder=tmp_path, module=module)
    assert ended.returncode == 0, ended.stderr
    variables = json.loads(ended.stdout)
    assert variables["NOJIT_SERVE"] == f"{bundle}:installed-name"
    assert variables["NOJIT_MISS"] == "warn"
    assert variables["NOJIT_SERVE_PRELOAD"] == "1"
    assert Path(variables["PYTHONPATH"].split(":")[0]).samefile(FOLDER)


@pytest.mark.parametrize("module", ["nojit.runtime.serve", "nojit run"])
@pytest.mark.usefixtures("bundle")
def test_the_program_has_its_own_exit_code_and_options(tmp_path: Path, module: str) -> None:
    program = "import sys; print(sys.argv[1:]); sys.exit(7)"
    ended = started("--bundle", ".", sys.executable, "-c", program, "--miss", "--", folder=tmp_path, module=module)
    assert (ended.returncode, ended.stdout) == (7, "['--miss', '--']\n")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "expected --bundle and a command"),
        (["--bundle", "."], "expected --bundle and a command"),
        (["--", "true"], "expected --bundle and a command"),
        (["--bundle"], "expected a value after --bundle"),
        (["--bundel", ".", "true"], "expected --bundle, --miss, --preload, got '--bundel'"),
        (["--bundle", ".", "--miss", "nothing", "true"], "expected --miss to be error, warn, jit, got 'nothing'"),
        (["--bundle", ".", "--preload=1", "true"], "got '--preload=1'"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(words: list[str], what: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        run.main(words)
    assert what in str(caught.value)
    assert "usage: python -m nojit.runtime.serve --bundle PATH" in str(caught.value)


@pytest.mark.parametrize("module", ["nojit.runtime.serve", "nojit run"])
@pytest.mark.parametrize("place", ["missing", "missing.nojit", "damaged.nojit", "empty"])
def test_a_bundle_that_cannot_be_opened_is_an_error_before_the_program_starts(
    tmp_path: Path, module: str, place: str
) -> None:
    (tmp_path / "damaged.nojit").write_bytes(b"no bundle")
    (tmp_path / "empty").mkdir()
    ended = started("--bundle", place, "--", sys.executable, "-c", "print('ran')", folder=tmp_path, module=module)
    assert ended.returncode in {1, 3}
    assert ended.stdout == ""
    assert place in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_path_that_does_not_exist_is_an_error_before_the_program_starts(tmp_path: Path) -> None:
    ended = started("--bundle", "./nowhere", "--", "true", folder=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == "nojit: expected a bundle or a folder with bundles, found nothing - at ./nowhere\n"


def test_a_program_that_cannot_run_is_an_error() -> None:
    with pytest.raises(NojitError, match="expected a program to run, got No such file or directory - at /no/program"):
        run.run(["/no/program"], os.environ)
    with pytest.raises(NojitError, match=r"expected a program to run, got .*empty"):
        run.run([""], os.environ)
