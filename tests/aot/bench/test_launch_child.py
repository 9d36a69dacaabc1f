"""The process that measures launches, with a stand-in for torch: tensors of the fake framework that hold nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from nojit.aot.bench import benchmarks, launch_child
from nojit.aot.bench.bundles import LAUNCH
from nojit.aot.bench.cases import CASES
from nojit.runtime.errors import NojitError
from nojit.runtime.loader import Bundle

from tests.fakecuda import FakeCuda
from tests.support.bundles import make_bundle
from tests.support.instructions import launch_kernel


def make_torch(faketorch: ModuleType) -> Any:
    """Make as much of torch as the stage uses."""

    class Tensor(faketorch.Tensor):  # type: ignore[name-defined,misc] # the fake framework is compiled by the tests
        made = 0

        def __init__(self, count: int) -> None:
            Tensor.made += 1
            self.address = 0x10000 * Tensor.made
            super().__init__(self.address, "float32", (count,))
            self.count = count
            self.facts: tuple[Any, ...] = ()

        def clone(self) -> Tensor:
            return Tensor(self.count)

        def data_ptr(self) -> int:
            return self.address

        def zero_(self) -> None:
            pass

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, lanes: slice) -> Tensor:
            return self

        def __mul__(self, factor: int) -> Tensor:
            self.facts = (factor,)
            return self

        def __add__(self, offset: int) -> Tensor:
            self.facts += (offset,)
            return self

    def make(count: int, **_: Any) -> Tensor:
        return Tensor(count)

    stream = SimpleNamespace(cuda_stream=0)
    cuda = SimpleNamespace(current_device=lambda: 0, current_stream=lambda: stream, synchronize=lambda: None)
    return SimpleNamespace(arange=make, zeros=make, float32="float32", cuda=cuda, equal=lambda out, right: right.facts)


@pytest.fixture
def bundle(tmp_path: Path, fakecuda: FakeCuda, faketorch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    fakecuda.make_current(0)
    monkeypatch.setitem(sys.modules, "torch", make_torch(faketorch))
    return make_bundle(tmp_path / f"{LAUNCH}-1-sm_90.nojit", *map(launch_kernel, CASES.values()))


def test_a_stage_knows_its_tensors_and_what_is_right(bundle: Path, tmp_path: Path) -> None:
    with Bundle([bundle]) as opened:
        stage = launch_child.torch_stage(CASES[12], opened, tmp_path)
        assert tuple(stage.values) == CASES[12].names
        assert len(set(stage.addresses.values())) == 4
        assert stage.correct() == CASES[12].result


def test_a_request_in_a_file_is_answered_in_a_file(bundle: Path, tmp_path: Path) -> None:
    request = {"bundle": str(bundle), "arguments": [4, 1], "against": ["cupy"], "rounds": 2, "launches": 3}
    asked, answer = tmp_path / "asked.json", tmp_path / "answer.json"
    asked.write_text(json.dumps(request))
    launch_child.main([str(asked), str(answer)])
    bench = benchmarks._launch_bench(json.loads(answer.read_text()))
    assert (bench.rounds, bench.launches) == (2, 3)
    measured = {(figure.contender, figure.arguments) for figure in bench.figures}
    assert measured >= {(name, count) for name in ("c-loop", "nojit", "nojit-own-grid") for count in (4, 1)}
    assert {one.contender for one in bench.unmeasured} <= {"cupy", "nojit-bound"}
    assert all(figure.median_ratio is not None for figure in bench.figures)


def test_the_launches_are_asked_of_a_child(
    bundle: Path, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def call(module: str, request: dict[str, Any], _: str) -> dict[str, Any]:
        asked.append((module, request))
        return {"environment": {}, "rounds": 1, "launches": 2, "figures": [], "unmeasured": []}

    monkeypatch.setattr(benchmarks.children, "call", call)
    monkeypatch.setattr(benchmarks, "find_spec", lambda _: object())
    assert benchmarks.bench_launch(tmp_path, (4,), ("triton",), 1, 2).figures == ()
    wanted = {"bundle": str(bundle), "arguments": [4], "against": ["triton"], "rounds": 1, "launches": 2}
    assert asked == [("nojit.aot.bench.launch_child", wanted)]


def test_launches_need_torch(fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(benchmarks, "find_spec", lambda _: None)
    with pytest.raises(NojitError, match="for the launches: pip install torch"):
        benchmarks.bench_launch(tmp_path, (4,), (), 1, 1)


def test_launches_without_a_bundle_need_triton(
    fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmarks, "find_spec", lambda name: None if name == "triton" else object())
    with pytest.raises(NojitError, match=r"expected Triton, or --bundle with the output of `nojit bench bundles`"):
        benchmarks.bench_launch(None, (4,), (), 1, 1)
