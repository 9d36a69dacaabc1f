"""Ctrl-C and SIGTERM in the middle of a build: its workers are gone, and nothing lies around."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aot.conftest import ROOT

# a suite that runs in a shell's background inherits a SIGINT that is ignored
PROGRAM = """
import signal
import sys
from pathlib import Path
from tests.aot.cli.conftest import demo_compiler
from nojit.aot.cli import main
from nojit.aot.cli.building import run_build as build
signal.signal(signal.SIGINT, signal.default_int_handler)
folder = Path(sys.argv.pop(1))
build.load_compiler = lambda *_: demo_compiler(folder, mishaps={"sm_": "hang"})
main()
"""


def _children(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def _alive(process: int) -> bool:
    try:
        return (Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]) != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGTERM, signal.SIGTERM], 143),
    ],
)
def test_signal_ends_workers_and_leaves_nothing(
    signals: list[signal.Signals], code: int, manifest: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    # a worker's first line says that it compiles
    os.mkfifo(tmp_path / "journal")
    journal = os.open(tmp_path / "journal", os.O_RDONLY | os.O_NONBLOCK)
    arguments = ["build", str(manifest), "--out", str(tmp_path / "out"), "-j", "2"]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(temporary),
        "NOJIT_CACHE_DIR": str(tmp_path / "cache"),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert select.select([journal], [], [], 60)[0], "no worker came to compile"
        children = _children(process.pid)
        assert children
        for number in signals:
            process.send_signal(number)
        stdout, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
        os.close(journal)
    assert process.returncode == code
    assert stdout == ""
    word = "interrupted" if code == 130 else "terminated"
    assert stderr.endswith(f"{word}: compiled variants are cached; run the same command to continue\n")
    assert len([line for line in stderr.splitlines() if word in line]) == 1
    assert "Traceback" not in stderr
    assert not [child for child in children if _alive(child)]
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "out").exists()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_signals_that_a_parent_ignores_stay_ignored() -> None:
    code = (
        "import signal, nojit.aot.cli as cli\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "True\n"
