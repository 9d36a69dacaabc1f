"""The processes of `record_serve.py`: each measures one thing and prints it as JSON.

    python benchmarks/record_serve_child.py record|first|compiled|launch|recording [SETTING=VALUE...]

With ``FAKECUDA_DEVICES`` set, the tests' driver stands for a GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
ARGUMENTS = (4, 12)
KERNEL_MS = 10.0
# steps of `spin` to calibrate with
STEPS = 1_000_000
now = time.perf_counter_ns


class Stage:
    """Tensors on a GPU, or on the tests' driver."""

    def __init__(self) -> None:
        import torch

        self.is_fake = "FAKECUDA_DEVICES" in os.environ
        self._torch = torch
        if self.is_fake:
            from tests.fakecuda.driver import FakeCuda

            fake = FakeCuda(Path(os.environ["NOJIT_LIBCUDA"]))
            fake.call("cuInit", 0)
            fake.add_memory(0x10000, 1 << 20)
            # Triton's driver asks torch once that is imported
            answers: dict[str, Any] = {"current_device": lambda: 0, "get_device_capability": lambda _device=0: (9, 0)}
            answers |= dict.fromkeys(("_lazy_init", "init"), lambda: None)
            for name, answer in answers.items():
                setattr(torch.cuda, name, answer)
            torch._C._cuda_getCurrentRawStream = lambda _device: 0  # noqa: SLF001 - torch's name
        else:
            torch.ones(1, device="cuda")
        self.synchronize()

    def tensors(self, count: int) -> list[Any]:
        """Return vectors of a block."""
        if not self.is_fake:
            return [self._torch.ones(1024, device="cuda") for _ in range(count)]
        from tests.support.tensors import PointerTensor

        return [PointerTensor(0x10000 * place, "torch.float32") for place in range(1, count + 1)]

    def synchronize(self) -> None:
        """Wait for all launches."""
        if not self.is_fake:
            self._torch.cuda.synchronize()

    def start_triton(self) -> None:
        """Import Triton; with the tests' driver, let it take that: torch finds no GPU."""
        import triton

        if self.is_fake and not triton.__version__.endswith("nojit"):
            from triton.backends.nvidia.driver import CudaDriver

            sys.modules["triton.runtime.driver"]._create_driver = CudaDriver  # type: ignore[attr-defined] # noqa: SLF001 - Triton's name


class Calls:
    """The launches that are measured: statements and their names."""

    def __init__(self, stage: Stage) -> None:
        stage.start_triton()
        import record_serve_kernels  # type: ignore[import-not-found] # beside this script
        from nojit.aot.bench import kernels
        from nojit.aot.bench.cases import CASES

        self.tuned = record_serve_kernels.tuned_4
        self.spin = record_serve_kernels.spin
        if stage.is_fake:
            self.tuned.do_bench = lambda call, quantiles: (call(), [1.0] * len(quantiles))[1]
        self.tensors = tensors = stage.tensors(4)
        self.names: dict[str, dict[str, Any]] = {}
        self.statements: dict[str, str] = {}
        for count in ARGUMENTS:
            case = CASES[count]
            arguments = dict(zip(case.tensors, tensors, strict=False)) | case.numbers
            self.names[str(count)] = {"fn": getattr(kernels, case.kernel), "grid": (1,), **arguments}
            self.statements[str(count)] = f"fn[grid]({case.as_triton()})"
        self.names["tuned"] = {**self.names["4"], "fn": self.tuned}
        self.statements["tuned"] = "fn[grid](x_ptr, y_ptr, out_ptr, n)"
        self.names["spin"] = {"fn": self.spin, "grid": (1,), "out_ptr": tensors[0], "steps": STEPS}
        self.statements["spin"] = "fn[grid](out_ptr, steps)"

    def run(self, name: str) -> None:
        """Make a call once."""
        exec(self.statements[name], self.names[name])  # noqa: S102 - the text is ours

    def timer(self, name: str, **other: Any) -> Callable[[int], float]:
        """Return a timer of a call in microseconds, with other values of some names; on the tests' driver, of the CPU's time."""
        clock = time.thread_time if "FAKECUDA_DEVICES" in os.environ else time.perf_counter
        timer = timeit.Timer(self.statements[name], globals={**self.names[name], **other}, timer=clock)
        return lambda launches: timer.timeit(launches) * 1e6 / launches


def record(stage: Stage, _given: dict[str, str]) -> dict[str, Any]:
    """Launch each kernel once, for a recording; print a digest of each tensor, on a GPU."""
    calls = Calls(stage)
    for name in calls.statements:
        calls.run(name)
    stage.synchronize()
    for place, tensor in enumerate(calls.tensors):
        if not stage.is_fake:
            sys.stdout.write(f"tensor {place} {hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()}\n")
    return {"ran": list(calls.statements)}


def first(_stage: Stage, given: dict[str, str]) -> dict[str, Any]:
    """Time the first launch of the process, from the call to its return."""
    started = now()
    calls = Calls(_stage)
    imported = now()
    # arguments are ready: the clock runs for the call alone
    code = compile(calls.statements["4"], "first", "exec")
    called = now()
    exec(code, calls.names["4"])  # noqa: S102 - the text is ours
    returned = now()
    _stage.synchronize()
    done = now()
    if given["way"].startswith("served"):
        require_served(1)
    return {
        "import_ms": (imported - started) / 1e6,
        "first_ms": (returned - called) / 1e6,
        "done_ms": (done - called) / 1e6,
    }


def launch(stage: Stage, given: dict[str, str]) -> dict[str, Any]:
    """Time served launches and nojit's own, in turns."""
    from nojit import runtime

    rounds, launches, calls = int(given["rounds"]), int(given["launches"]), Calls(stage)
    bundle, found = runtime.load(given["bundle"]), {}
    for count in map(str, ARGUMENTS):
        timers = {"served": calls.timer(count), "nojit": calls.timer(count, fn=bundle.kernel(f"launch_{count}"))}
        found[count] = in_turns(stage, timers, rounds, launches)
    found["tuned"] = in_turns(stage, {"served": calls.timer("tuned")}, rounds, launches)
    require_served(2 * rounds * launches)
    return found


def recording(stage: Stage, given: dict[str, str]) -> dict[str, Any]:
    """Time launches of Triton's JIT with a recording and without, in turns."""
    rounds, launches, calls = int(given["rounds"]), int(given["launches"]), Calls(stage)
    found: dict[str, Any] = {}
    for name in ("4", "12", "tuned"):
        calls.run(name)
        timer = calls.timer(name)
        found[name] = with_and_without(stage, timer, rounds, partial(timer, launches), given["folder"])
    if stage.is_fake:
        return found
    calls.run("spin")
    stage.synchronize()
    started = now()
    calls.run("spin")
    stage.synchronize()
    calls.names["spin"]["steps"] = 16 * round(STEPS * KERNEL_MS / ((now() - started) / 1e6) / 16)

    def program() -> float:
        begun = now()
        for _ in range(20):
            calls.run("spin")
            stage.synchronize()
        return (now() - begun) / 20e3

    found["spin"] = with_and_without(stage, lambda _: program(), 6, program, given["folder"])
    return found


def in_turns(
    stage: Stage, timers: dict[str, Callable[[int], float]], rounds: int, launches: int
) -> dict[str, list[float]]:
    """Return microseconds of a launch in each round, by contender; each round starts with another one."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers.items())
    for _, timer in order:
        timer(launches)
    for _ in range(rounds):
        for name, timer in order:
            stage.synchronize()
            times[name].append(timer(launches))
        order = order[1:] + order[:1]
    stage.synchronize()
    return times


def with_and_without(
    stage: Stage, warm: Callable[[int], float], rounds: int, measure: Callable[[], float], folder: str
) -> dict[str, list[float]]:
    """Return what a measurement gives in each round, without a recording and with one."""
    import nojit

    times: dict[str, list[float]] = {"plain": [], "recorded": []}
    for number in range(rounds):
        for name in ("plain", "recorded") if number % 2 else ("recorded", "plain"):
            session = nojit.record(Path(folder, "overhead.nojitrec")) if name == "recorded" else None
            # past the launches at which a recording writes a sample
            warm(64)
            stage.synchronize()
            times[name].append(measure())
            stage.synchronize()
            if session is not None:
                session.stop()
    return times


def compiled(stage: Stage, given: dict[str, str]) -> dict[str, Any]:
    """Return the time of the first call of a compiled module, from the call to the end of its kernels."""
    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples/record_serve"))
    from compiled import TOKENS, WIDTH, Block

    torch.manual_seed(0)
    block = Block().to("cuda", torch.bfloat16)
    x = torch.randn(2, TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda")
    call = torch.compile(block)
    stage.synchronize()
    began = now()
    with torch.no_grad():
        call(x)
    stage.synchronize()
    ended = now()
    if "way" in given:
        require_served(1)
    return {"first_ms": (ended - began) / 1e6}


def require_served(launches: int) -> None:
    """Require that bundles served at least so many launches, and that none missed."""
    from nojit import runtime

    counted = runtime.counters().served
    if sum(each.launches for each in counted) < launches or any(each.misses for each in counted):
        raise SystemExit(f"expected {launches} served launches and no miss, got {counted}")


def main() -> None:
    """Measure what the command line names."""
    work, *words = sys.argv[1:]
    given = dict(word.split("=", 1) for word in words)
    if given.get("way") == "served, no Triton":
        import tests.support.hidden_triton  # noqa: F401 - hides it
    measures: dict[str, Callable[[Stage, dict[str, str]], dict[str, Any]]] = {
        "record": record,
        "first": first,
        "compiled": compiled,
        "launch": launch,
        "recording": recording,
    }
    found = measures[work](Stage(), given)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
