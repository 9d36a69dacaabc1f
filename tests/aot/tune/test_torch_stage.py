"""What the stage does around a launch, on host tensors: candidates, comparison, and who is to blame for an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nojit.aot.tune.events import Listed
from nojit.aot.tune.find import Found
from nojit.aot.tune.stage import ContextLost, Unready
from nojit.aot.tune.worker import Setup
from nojit.runtime.errors import ArgumentError, DriverError, NojitError

from tests.support.bundles import kernel, make_bundle

torch = pytest.importorskip("torch")
from nojit.aot.tune import torch_stage  # noqa: E402 - it imports torch
from nojit.kernels.problem import Work  # noqa: E402 - likewise

N = 64


class Event:
    """A clock that goes up by a millisecond whenever it is looked at."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = math.nan

    def record(self) -> None:
        Event.now += 1
        self.at = Event.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


@pytest.fixture
def sick(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Let a host pose as a GPU; what is put into the list is raised by every synchronization."""
    errors: list[Exception] = []

    def synchronize() -> None:
        if errors:
            raise errors[0]

    properties = SimpleNamespace(
        name="Fake", major=9, minor=0, multi_processor_count=132, total_memory=1 << 30, uuid="1", L2_cache_size=1024
    )
    real = torch.empty
    cuda = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "get_device_properties": lambda _: properties,
        "synchronize": synchronize,
        "current_stream": lambda: SimpleNamespace(synchronize=synchronize),
        "Event": Event,
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: real(size, dtype=dtype) if device else None)
    monkeypatch.setattr("nojit.runtime.healthy", lambda: True, raising=False)
    return errors


class AddProblem:
    name, kernel, shape_class, dtype = "some", "add", "small", "fp32"

    @property
    def sizes(self) -> dict[str, int]:
        return {"n": N}

    def prepare(self, device: str) -> Work:
        assert device == "cuda"
        x, out = torch.ones(N), torch.zeros(N)
        return Work("add", (x, out, N), {}, (out,), (x + 1,), (0.01,), 8 * N, N)


@pytest.fixture
def stage(sick: list[Exception], tmp_path: Path) -> torch_stage.TorchStage:
    params = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    configs = [{"BLOCK": 256}, {"BLOCK": 512}, {"BLOCK": 1024}]
    bundle = make_bundle(tmp_path / "some.nojit", kernel("add", params, configs=configs))
    problems = tmp_path / "problems.py"
    problems.write_text(
        "from tests.aot.tune.test_torch_stage import AddProblem\ndef problems(use): return [AddProblem()]\n",
        encoding="utf-8",
    )
    return torch_stage.open_stage(Setup("", bundle, (str(problems),), ()))


def launcher(value: float) -> Callable[..., None]:
    def launch(x: Any, out: Any, n: int) -> None:
        out[:n] = x + value

    return launch


def raising(error: Exception) -> Callable[..., None]:
    def launch(*_: Any) -> None:
        raise error

    return launch


def opened(stage: torch_stage.TorchStage, *launchers: Callable[..., None]) -> torch_stage.TorchTrial:
    trial = stage.open(0)
    trial._launchers = list(launchers)
    return trial


def test_what_is_here(stage: torch_stage.TorchStage) -> None:
    hello = stage.hello()
    assert (hello.device.name, hello.device.arch, hello.device.uuid) == ("Fake", "sm_90", "1")
    assert hello.problems == (Listed("add", "some", "tune", "small", "fp32", {"n": N}),)
    assert stage.flush_us > 0
    assert stage.clock_mhz() is None


def test_each_config_is_a_candidate(stage: torch_stage.TorchStage) -> None:
    candidates = stage.open(0).opened.candidates
    assert [candidate.settings["BLOCK"] for candidate in candidates] == [256, 512, 1024]
    assert all(len(candidate.image) == 64 for candidate in candidates)
    assert len({candidate.identity for candidate in candidates}) == 3


def test_right_and_wrong(stage: torch_stage.TorchStage) -> None:
    trial = opened(stage, launcher(1), launcher(1.5), lambda *_: None)
    assert trial.check(0) == ("ok", "")
    assert trial.check(1) == ("wrong", "output 0 is off by 0.5, at most 0.01 allowed")
    # what the one before has written does not pass for the result of one that writes nothing
    assert trial.check(2) == ("wrong", "output 0 is off by nan, at most 0.01 allowed")
    trial.close()


def test_equal_infinities_are_right() -> None:
    inf = torch.tensor([float("-inf"), 1.0])
    assert torch_stage._error(inf, inf) == 0
    assert torch_stage._error(inf.bfloat16(), inf + 0.25) == 0.25
    assert torch_stage._error(torch.zeros(2), inf) == math.inf
    assert math.isnan(torch_stage._error(inf / inf, torch.zeros(2)))
    assert torch_stage._error(torch.zeros(0), torch.zeros(0)) == 0


def test_an_error_is_the_configs_unless_the_context_is_gone(
    stage: torch_stage.TorchStage, sick: list[Exception]
) -> None:
    refused = DriverError("cuLaunchKernel", 1, "CUDA_ERROR_INVALID_VALUE")
    trial = opened(stage, raising(refused), raising(ArgumentError("no")))
    assert trial.check(0)[0] == "failed"
    assert trial.check(1) == ("failed", "ArgumentError: no")
    sick.append(RuntimeError("CUDA error: an illegal memory access was encountered\nmore"))
    with pytest.raises(ContextLost, match=r"CUDA_ERROR_INVALID_VALUE"):
        trial.check(0)
    trial._launchers = [launcher(1)]
    with pytest.raises(ContextLost, match=r"illegal memory access was encountered$"):
        trial.check(0)


def test_samples_come_in_the_order_asked_for(stage: torch_stage.TorchStage, sick: list[Exception]) -> None:
    seen: list[int] = []
    trial = opened(stage, *(lambda *_, n=n: seen.append(n) for n in range(3)))
    assert trial.time([2, 0, 1, 0]) == [1000.0] * 4
    assert seen == [2, 0, 1, 0]
    sick.append(RuntimeError("CUDA error: unspecified launch failure"))
    with pytest.raises(ContextLost, match="unspecified"):
        trial.time([0])


def test_a_problem_that_cannot_be_set_up(
    stage: torch_stage.TorchStage, sick: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: AddProblem, device: str) -> Work:
        raise RuntimeError(f"no room on {device}")

    monkeypatch.setattr(AddProblem, "prepare", broken)
    problem = SimpleNamespace(prepare=lambda device: broken(AddProblem(), device))
    stage._problems = [Found(stage.hello().problems[0], problem, {})]
    with pytest.raises(Unready, match="RuntimeError: no room on cuda"):
        stage.open(0)
    sick.append(RuntimeError("CUDA error"))
    with pytest.raises(ContextLost):
        stage.open(0)


def test_a_call_that_nothing_serves(stage: torch_stage.TorchStage) -> None:
    wide = SimpleNamespace(
        prepare=lambda _: Work("add", (torch.ones(4).half(), torch.ones(4), 4), {}, (), (), (), 1, 1)
    )
    stage._problems = [Found(stage.hello().problems[0], wide, {})]
    with pytest.raises(Unready, match="no variant of the bundle serves it"):
        stage.open(0)
    other = SimpleNamespace(prepare=lambda _: Work("mul", (), {}, (), (), (), 1, 1))
    stage._problems = [Found(stage.hello().problems[0], other, {})]
    with pytest.raises(Unready, match="the operator launches mul here"):
        stage.open(0)


def test_nothing_to_measure_with(
    stage: torch_stage.TorchStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_bundle(tmp_path / "other.nojit", kernel("copy", {"x_ptr": "*fp32"}))
    setup = Setup("", other, (str(tmp_path / "problems.py"),), ())
    with pytest.raises(NojitError, match="expected problems for some of copy, got add"):
        torch_stage.open_stage(setup)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NojitError, match="expected a CUDA device that torch can use, got none"):
        torch_stage.open_stage(setup)
