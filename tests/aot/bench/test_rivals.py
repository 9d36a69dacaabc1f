"""How other launchers are called, against stand-ins: their own software needs a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from nojit.aot.bench import rivals
from nojit.aot.bench.case_setup import Unavailable
from nojit.aot.bench.cases import CASES

from tests.aot.bench.conftest import SetUp

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


class Jitted:
    """Notes grids and calls, as a function under ``triton.jit`` takes them."""

    def __init__(self, compiled: object = None) -> None:
        self.calls: Calls = []
        self.grids: list[Any] = []
        self.compiled = compiled

    def __getitem__(self, grid: Any) -> Any:
        self.grids.append(grid)
        return self

    def __call__(self, *args: Any, **named: Any) -> object:
        self.calls.append((args, named))
        return self.compiled


def prepare(name: str) -> Any:
    return next(rival for rival in rivals.RIVALS if rival.name == name).prepare


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Modules to import instead of the real ones."""
    known: dict[str, Any] = {}

    def find(name: str) -> Any:
        if name not in known:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return known[name]

    monkeypatch.setattr(rivals, "import_module", find)
    return known


def test_triton_gets_the_call_that_nojit_gets(set_up: SetUp, modules: dict[str, Any]) -> None:
    jitted, stage = Jitted(), set_up(CASES[12])
    modules["nojit.aot.bench.kernels"] = SimpleNamespace(launch_12=jitted)
    prepare("triton")(stage)(2)
    args, named = jitted.calls[-1]
    assert len(jitted.calls) == 2
    assert jitted.grids[-1] == (1,)
    assert args == tuple(stage.values[name] for name in CASES[12].tensors)
    assert named == CASES[12].numbers | {"BLOCK": 1024, "num_warps": 4}


def test_the_autotuner_chooses_the_config_itself(set_up: SetUp, modules: dict[str, Any]) -> None:
    jitted, stage = Jitted(), set_up(CASES[4])
    asked: dict[str, Any] = {}

    def autotune(**words: Any) -> Any:
        asked.update(words)
        return lambda function: function

    triton = SimpleNamespace(Config=lambda constexprs, num_warps: (constexprs, num_warps), autotune=autotune)
    modules["nojit.aot.bench.kernels"] = SimpleNamespace(triton=triton, launch_4=jitted)
    prepare("triton-autotuned")(stage)(1)
    assert asked == {"configs": [({"BLOCK": 1024}, 4), ({"BLOCK": 1024}, 2)], "key": ["n"]}
    assert jitted.calls == [(tuple(stage.values.values()), {})]


@pytest.mark.parametrize("module", ["static_triton_launcher", "static_cuda_launcher"])
def test_inductor_launches_what_triton_compiled(set_up: SetUp, modules: dict[str, Any], module: str) -> None:
    compiled = SimpleNamespace(asm={"cubin": b"code"})
    runs: list[tuple[Any, ...]] = []

    class Launcher:
        def __init__(self, kernel: Any) -> None:
            assert Path(kernel._cubin_path).read_bytes() == b"code"

        def load_kernel(self, device: int) -> None:
            assert device == 0

        def run(self, *args: Any) -> None:
            runs.append(args)

    stage = set_up(CASES[4])
    modules["torch"] = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 70 + device))
    modules["nojit.aot.bench.kernels"] = SimpleNamespace(launch_4=Jitted(compiled))
    modules[f"torch._inductor.runtime.{module}"] = SimpleNamespace(StaticallyLaunchedCudaKernel=Launcher)
    prepare("inductor")(stage)(1)
    assert runs == [(1, 1, 1, 70, *stage.values.values())]


@pytest.mark.parametrize("name", ["cuda.core", "cuda.core.experimental"])
def test_cuda_core_gets_addresses_and_sized_ints(set_up: SetUp, modules: dict[str, Any], name: str) -> None:
    launched: list[tuple[Any, ...]] = []
    code = SimpleNamespace(get_kernel=lambda symbol: f"kernel {symbol}")
    core = SimpleNamespace(
        Device=lambda ordinal: SimpleNamespace(set_current=lambda: None, default_stream="default"),
        ObjectCode=SimpleNamespace(from_cubin=lambda image: code),
        LaunchConfig=lambda **facts: facts,
        Stream=SimpleNamespace(from_handle=lambda handle: handle),
        launch=lambda *args: launched.append(args),
    )
    modules["cuda.core"] = ModuleType("cuda.core")
    modules[name] = core
    stage = set_up(CASES[4])
    prepare("cuda.core")(replace(stage, stream=7))(1)
    assert launched.pop()[0] == 7
    prepare("cuda.core")(stage)(1)
    ((stream, config, kernel, *args),) = launched
    assert (stream, config["grid"], config["block"], kernel) == ("default", (1,), (128,), "kernel launch_4")
    assert [getattr(value, "value", value) for value in args] == [*stage.addresses.values(), 1024, 0, 0]


def test_cupy_gets_arrays_and_sized_ints(set_up: SetUp, modules: dict[str, Any]) -> None:
    launched: list[tuple[Any, ...]] = []
    module = SimpleNamespace(get_function=lambda symbol: lambda *args, shared_mem: launched.append((*args, shared_mem)))
    modules["cupy"] = SimpleNamespace(
        RawModule=lambda path: module, from_dlpack=lambda one: ("array", one), int32=lambda one: ("int32", one)
    )
    stage = set_up(CASES[4])
    prepare("cupy")(stage)(1)
    ((grid, block, args, shared),) = launched
    tensors = [("array", stage.values[name]) for name in CASES[4].tensors]
    assert (grid, block, shared) == ((1,), (128,), 0)
    assert list(args) == [*tensors, ("int32", 1024), 0, 0]


def test_torch_adds_two_vectors(set_up: SetUp, modules: dict[str, Any]) -> None:
    added: Calls = []
    modules["torch"] = SimpleNamespace(add=lambda *args, **named: added.append((args, named)))
    stage = set_up(CASES[4])
    prepare("torch")(stage)(1)
    x, y, out, _ = stage.values.values()
    assert added == [((x, y), {"out": out})]


def test_a_torch_without_a_static_launcher_is_no_rival(modules: dict[str, Any]) -> None:
    with pytest.raises(Unavailable, match="no static launcher"):
        rivals._static_launcher()
