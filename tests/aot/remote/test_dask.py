"""Builds on a real scheduler: workers without a checkout give the bytes of one machine, whatever ends in between."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tests.aot.projects import Project, entry
from tests.aot.remote.dask_farm import Build, Cable, Farm, opened

pytestmark = pytest.mark.triton

HELPERS = """
import triton
import triton.language as tl

SCALE = tl.constexpr(2.5)


@triton.jit
def scaled(x):
    return x * SCALE


@triton.jit
def plain(x):
    return x
"""
KERNELS = """
import triton
import triton.language as tl
from helpers import SCALE, scaled


@triton.jit
def k(out_ptr, V: tl.constexpr):
    tl.store(out_ptr, scaled(tl.exp(tl.load(out_ptr))) + V * SCALE)


@triton.jit
def given(out_ptr, F: tl.constexpr, V: tl.constexpr):
    tl.store(out_ptr, F(tl.load(out_ptr)) + V)


@triton.jit
def bad(out_ptr, V: tl.constexpr):
    tl.static_assert(V == 0, "only 0 compiles")
    tl.store(out_ptr, V)


@triton.jit
def slow(out_ptr, V: tl.constexpr):
    for i in tl.static_range(100000):
        tl.store(out_ptr + i, V)
"""
COUNT = 8
MANY = (entry("many", "kernels.py:k").replace("configs = [{ V = 1 }]", f"matrix = {{ V = {list(range(COUNT))} }}"),)
Make = Callable[[str], Project]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A farm for all tests, since every worker imports Triton; the last test ends its parts."""
    with opened(Farm(tmp_path_factory.mktemp("dask") / "empty", DISABLE_PTXAS_OPT="")) as made:
        made.start(2)
        yield made


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda name: Project(tmp_path / name).write(kernels_py=KERNELS, helpers_py=HELPERS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bundle that one machine builds."""
    project = Project(tmp_path_factory.mktemp("alone") / "p").write(kernels_py=KERNELS, helpers_py=HELPERS)
    built = project.build(*MANY)
    assert built.code == 0, built.stderr
    return bundles(project)


def bundles(project: Project) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (project.folder / "out").glob("*.nojit")}


def start(project: Project, url: str, *entries: str, words: tuple[str, ...] = (), **limits: float) -> Build:
    return Build(project.command(*(entries or MANY), words=("--executor", url, *words)), **limits)


def failures(document: dict[str, Any]) -> list[Any]:
    return [failure for report in document["bundles"] for failure in report["failures"]]


def test_ctrl_c_leaves_no_work_and_the_next_build_resumes(farm: Farm, make: Make, alone: Any) -> None:
    project = make("p")
    build = start(project, farm.url, entry("slow", "kernels.py:slow"), *MANY, job_s=0.2)
    build.wait_for("compiled")
    build.process.send_signal(signal.SIGINT)
    code, document = build.end()
    assert code == 130
    assert "run the same command to continue" in document["error"]["message"]
    assert not bundles(project)
    # the workers take the next build, after a cut cable
    with opened(Cable(farm.port)) as cable:
        build = start(project, cable.url, job_s=0.2)
        build.wait_for("compiled")
        cable.cut()
        code, document = build.end()
    assert code == 0, build.told
    assert any("lost the scheduler" in text for text in build.told)
    assert any(variant["cached"] for variant in document["bundles"][0]["variants"])
    assert bundles(project) == alone


def test_what_a_build_cannot_compile_reads_as_on_one_machine(farm: Farm, make: Make) -> None:
    entries = (
        entry("given", "kernels.py:given").replace(
            "configs = [{ V = 1 }]",
            'configs = [{ V = 1, F = { function = "helpers:scaled" } }, { V = 2, F = { function = "helpers:plain" } }]',
        ),
        entry("bad", "kernels.py:bad").replace("configs = [{ V = 1 }]", "matrix = { V = [0, 1] }"),
        entry("slow", "kernels.py:slow"),
    )
    project, words = make("p"), ("-k", "--timeout", "4")
    code, far = (build := start(project, farm.url, *entries, words=words)).end()
    assert code == 1
    made = bundles(project)
    for path in (project.folder / "out").iterdir():
        path.unlink()
    _, near = Build(project.command(*entries, words=words, cache=project.folder / "other")).end()
    assert failures(far) == [failure | {"log": ANY} for failure in failures(near)]
    assert len(failures(far)) == 2, failures(far)
    bad, slow = failures(far)
    assert "kernels.py:19:5" in bad["where"]
    assert "<" not in bad["log"]
    assert "expected to compile within 4 s" in slow["message"]
    assert not any("this machine" in text for text in build.told), build.told
    assert made == bundles(project)


def test_killed_stuck_and_other_workers_cost_only_time(farm: Farm, make: Make, alone: Any) -> None:
    project = make("p")
    farm.start(1)
    farm.start(1, DISABLE_PTXAS_OPT="1")
    # only the silence of the stuck worker tells that its jobs belong to others
    build = start(project, farm.url, job_s=0.2, late_s=600, silent_s=3)
    build.wait_for("compiled")
    farm.workers[0].kill()
    farm.workers[1].send_signal(signal.SIGSTOP)
    code, _ = build.end()
    assert (code, build.told[-1]) == (0, f"{COUNT} of {COUNT} compiled: many"), build.told
    assert bundles(project) == alone
    assert not any(path.suffix == ".py" for path in farm.folder.rglob("*"))
    (refused,) = (text for text in build.told if "is not used" in text)
    assert "expected ptxas 12" in refused
    assert "with DISABLE_PTXAS_OPT=1" in refused


def test_a_scheduler_that_ends_leaves_old_bundles_and_what_was_compiled(farm: Farm, make: Make, alone: Any) -> None:
    project = make("p")
    (project.folder / "out").mkdir()
    for name, old in alone.items():
        (project.folder / "out" / name).write_bytes(old)
    others = MANY[0].replace(str(list(range(COUNT))), str(list(range(2, 2 + COUNT))))
    entries = (others, entry("slow", "kernels.py:slow"))
    build = start(project, farm.url, *entries, job_s=0.2, silent_s=3, reconnect_s=0.5, connect_s=1)
    build.wait_for("compiled")
    farm.scheduler.kill()
    code, document = build.end()
    assert code == 1
    assert any(text.endswith("trying again for 0.5 s") for text in build.told), build.told
    assert f"expected a scheduler at tcp://127.0.0.1:{farm.port} (" in document["error"]["message"]
    assert bundles(project) == alone
    # what the next build goes on with
    assert any(path.read_bytes().startswith(b"nojit-cache") for path in (project.folder / "cache").glob("??/*"))
