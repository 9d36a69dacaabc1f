"""`nojit diff` of recordings: each difference is named, with its kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.recorded_builds.compare import Difference, compare_recordings
from nojit.runtime.recording.file import read_recording

from tests.aot.recorded_builds import programs
from tests.runtime.recording.programs import kernels
from tests.support.recordings import Recorder, Tensor

pytestmark = pytest.mark.triton

ADD = "tests.aot.recorded_builds.programs:add"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Recorder, Recorder]:
    """Recorders of the recordings ``a`` and ``b``."""
    return Recorder(tmp_path / "a"), Recorder(tmp_path / "b")


def compare(tmp_path: Path) -> list[Difference]:
    return [*compare_recordings(read_recording(tmp_path / "a"), read_recording(tmp_path / "b"))]


def add_winner(recorder: Recorder, function: Any, **config: int) -> None:
    module, _, qualname = ADD.partition(":")
    kwargs = [[name, value] for name, value in config.items() if name.isupper()]
    options = [[name, value] for name, value in config.items() if not name.isupper()]
    facts = {"module": module, "qualname": qualname, "closure": recorder.write_closure(function), "time_ns": None}
    recorder.writer.add("winner", key=[["n", 7]], config={"kwargs": kwargs, "options": options}, **facts)


def test_equal_calls_of_two_processes_are_no_difference(pair: tuple[Recorder, Recorder], tmp_path: Path) -> None:
    for recorder in pair:
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=3)
        recorder.call(kernels.with_activation, Tensor(), kernels.squash, BLOCK=64)
    assert compare(tmp_path) == []


def test_kernels_of_one_name_and_several_sources_are_compared_by_source(
    pair: tuple[Recorder, Recorder], tmp_path: Path
) -> None:
    # as torch.compile names its kernels
    other = pair[0].write_closure(programs.with_rest)
    pair[1].write_closure(programs.with_rest)
    for recorder, launches in zip(pair, (5, 7), strict=True):
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=launches)
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=3, change={"closure": other})
    (found,) = compare(tmp_path)
    assert (found.kind, found.before, found.after) == ("launches", "5", "7")
    assert found.what.endswith(f"source {pair[0].write_closure(programs.add)[:12]}")


def test_a_kernel_of_one_source_more_is_named(pair: tuple[Recorder, Recorder], tmp_path: Path) -> None:
    for recorder in pair:
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=3)
    other = pair[1].write_closure(programs.with_rest)
    pair[1].call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=3, change={"closure": other})
    source, found = compare(tmp_path)
    assert source.kind == "source"
    assert (found.kind, found.before, found.after, found.tuned) == ("specialization", "not recorded", "recorded", False)


def test_a_call_that_differs_is_paired_with_its_nearest_and_its_parts_are_named(
    pair: tuple[Recorder, Recorder], tmp_path: Path
) -> None:
    for recorder, number, block in zip(pair, (7, 16), (64, 128), strict=True):
        recorder.call(programs.add, Tensor(), Tensor(), number, BLOCK=block)
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=32)
    (found,) = compare(tmp_path)
    assert (found.kind, found.kernel, found.tuned) == ("specialization", ADD, False)
    assert (found.before, found.after) == ("BLOCK=64", "BLOCK=128 n:16")
    assert "sm_90" in found.what


def test_a_kernel_of_one_side_and_another_source_are_named(pair: tuple[Recorder, Recorder], tmp_path: Path) -> None:
    pair[0].call(programs.with_rest, Tensor("i32"), 16, 3)
    pair[0].call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    digest = pair[1].write_closure(programs.checked)
    pair[1].call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, change={"closure": digest})
    source, lone = compare(tmp_path)
    assert (source.kind, source.kernel, source.after) == ("source", ADD, digest[:12])
    assert (lone.kind, lone.before, lone.after) == ("kernel", "recorded", "not recorded")
    assert lone.kernel.endswith(":with_rest")


def test_another_choice_of_an_autotuner_is_told_from_other_differences(
    pair: tuple[Recorder, Recorder], tmp_path: Path
) -> None:
    live, fake = pair
    live.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, trial=True)
    live.call(programs.add, Tensor(), Tensor(), 7, BLOCK=128, num_warps=8)
    add_winner(live, programs.add, BLOCK=128, num_warps=8)
    fake.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    add_winner(fake, programs.add, BLOCK=64, num_warps=4)
    found = compare(tmp_path)
    assert [(each.kind, each.before, each.after) for each in found] == [
        ("specialization", "only tried by an autotuner", "launched"),
        ("specialization", "recorded", "not recorded"),
        ("winner", "BLOCK=128 num_warps=8", "BLOCK=64 num_warps=4"),
    ]
    assert all(each.tuned for each in found)
    fake.call(programs.add, Tensor(), Tensor(), 16, BLOCK=64)
    assert [each.tuned for each in compare(tmp_path) if each.kind == "specialization"] == [True, True, False]


def test_a_config_that_another_call_has_too_is_an_autotuners_choice(
    pair: tuple[Recorder, Recorder], tmp_path: Path
) -> None:
    # a key that two calls share: a simulated GPU runs both with the first config
    add_winner(pair[0], programs.add, BLOCK=128)
    add_winner(pair[1], programs.add, BLOCK=64)
    for recorder, blocks in zip(pair, ((64, 128), (64, 64)), strict=True):
        for kind, block in zip(("fp16", "bf16"), blocks, strict=True):
            recorder.call(programs.add, Tensor(kind), Tensor(kind), 7, BLOCK=block)
            recorder.call(programs.add, Tensor(kind), Tensor(kind), 1, BLOCK=64)
    recorder.call(programs.add, Tensor("fp32"), Tensor("fp32"), 7, BLOCK=64)
    found = [each for each in compare(tmp_path) if each.kind == "specialization"]
    assert [("fp32" in each.what, each.tuned) for each in found] == [(False, True), (True, False)]


def test_launches_versions_and_problems_are_compared(tmp_path: Path) -> None:
    for folder, count, version in (("a", 1, "2.11.0"), ("b", 2, "2.13.0")):
        recorder = Recorder(tmp_path / folder, torch=version)
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=count)
    recorder.writer.add("problem", what="Tensor.item()", where="a.py:3")
    found = [(each.kind, each.kernel, each.before, each.after) for each in compare(tmp_path)]
    assert found == [
        ("version", "", "2.11.0", "2.13.0"),
        ("launches", ADD, "1", "2"),
        ("problem", "a.py:3", "none", "recorded"),
    ]


def test_the_command_shows_each_difference_and_can_fail(
    pair: tuple[Recorder, Recorder], tmp_path: Path, run: Callable[..., Any], document: Callable[..., Any]
) -> None:
    for recorder, block in zip(pair, (64, 128), strict=True):
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=block)
        add_winner(recorder, programs.add, BLOCK=block)
    words = ("diff", tmp_path / "a", tmp_path / "b", "--exit-code")
    shown = run(*words)
    assert shown.exit_code == 1
    assert "BLOCK=64 -> BLOCK=128" in shown.stdout
    assert "2 differences" in shown.stdout
    ignored = run(*words, "--ignore-tuning")
    assert (ignored.exit_code, "no differences; 2 differences left out" in ignored.stdout) == (0, True)
    assert len(document(*words, code=1)["differences"]) == 2
    mixed = run("diff", tmp_path / "a", tmp_path / "x.nojit")
    assert (mixed.exit_code, "two recordings or two bundles" in mixed.output) == (1, True)
