"""Builders in processes of their own divide the variants of one cold shared cache, also if one is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aot.cache.jobs import Machine, jobs
from tests.aot.conftest import ROOT

BUILD = """
import json, sys
from pathlib import Path
from nojit.aot.cache.time_limits import Limits
from tests.aot.cache.jobs import Machine, jobs

folder, place, count, mishap, expiry_s = sys.argv[1:]
machine = Machine(Path(folder), **({mishap: "hang"} if mishap else {}))
print("ready", flush=True)
sys.stdin.readline()
events = machine.build(jobs(int(count)), place, limits=Limits(beat_s=0.2, expiry_s=float(expiry_s), poll_s=0.2), ahead=2)
images = sorted((event.job.key, event.compiled.image.hex()) for event in events)
print(json.dumps([machine.told, machine.use, images]))
"""


def start(folder: Path, place: str, count: int, mishap: str = "", expiry_s: float = 30) -> subprocess.Popen[str]:
    words = [sys.executable, "-W", "ignore", "-c", BUILD, folder, place, count, mishap, expiry_s]
    return subprocess.Popen(
        list(map(str, words)), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )


def begin(builders: list[subprocess.Popen[str]]) -> None:
    for builder in builders:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "ready\n"
    for builder in builders:
        assert builder.stdin is not None
        builder.stdin.write("\n")
        builder.stdin.flush()


def end(builder: subprocess.Popen[str]) -> tuple[list[str], dict[str, int], list[list[str]]]:
    out, _ = builder.communicate(timeout=600)
    assert builder.returncode == 0
    told, use, images = json.loads(out)
    return told, use, images


def compiled(folder: Path) -> int:
    """Count the variants that the machines of a folder compiled."""
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*/journal"))


@pytest.mark.parametrize(("scheme", "count", "builders"), [("file", 64, 8), ("s3", 24, 4)])
def test_compile_each_variant_once(
    tmp_path: Path, new_url: Callable[[str], str], scheme: str, count: int, builders: int
) -> None:
    place = new_url(scheme)
    started = [start(tmp_path / "machines" / str(number), place, count) for number in range(builders)]
    begin(started)
    ended = [end(builder) for builder in started]
    assert compiled(tmp_path / "machines") <= 1.1 * count
    alone = Machine(tmp_path / "alone").build(jobs(count), None)
    right = sorted([event.job.key, event.compiled.image.hex()] for event in alone if event.compiled)
    assert all((told, images) == ([], right) for told, _, images in ended)
    # who had less to do took the others' results
    assert sum(use.get("misses", 0) for _, use, _ in ended) <= 1.1 * count
    assert all(use.get("misses", 0) + use.get("shared_hits", 0) == count for _, use, _ in ended)


def test_a_killed_builder_keeps_no_variant_from_the_others(tmp_path: Path) -> None:
    place = tmp_path / "place"
    victim = start(tmp_path / "machines/victim", f"file://{place}", 16, "D5")
    begin([victim])
    journal = tmp_path / "machines/victim/journal"
    claim = place / f"claims/{jobs(6)[5].key}.0"
    others = [start(tmp_path / f"machines/{number}", f"file://{place}", 16, expiry_s=2) for number in range(3)]
    # it never gets past this one
    while not (claim.exists() and journal.exists() and "D=5 " in journal.read_text()):
        assert victim.poll() is None
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    begin(others)
    ended = [end(builder) for builder in others]
    assert all(told == [] and len(images) == 16 for told, _, images in ended)
    # two that the victim had claimed, and the lost one's line in its journal
    assert compiled(tmp_path / "machines") <= 16 + 2
