"""A GPU that is made up: times that follow from the config, and configs that are wrong, fail, or take the device down.

The bundle's path names a JSON file beside it, which says what there is::

    {"problems": 3, "configs": 8, "noise": 0.02, "faults": {"2": "wrong"}, "waits": 1, "rules": [""]}

The problem that `waits` is timed until whoever started the process is dead.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.events import Candidate, Hello, Listed, Opened
from nojit.aot.tune.measure.measured_gpu import ContextLost, Unready
from nojit.aot.tune.store.records import Device, Status
from nojit.runtime.errors import NojitError

DEVICE = Device("Fake", "sm_90", 132, 1 << 30, "1.0", "GPU-0")


def true_us(problem: int, candidate: int) -> float:
    """The time of a config without noise; another one is the best for each problem."""
    return 10.0 * (1 + problem % 3) * (1 + 0.07 * ((candidate - problem) % 13))


class FakeTrial:
    def __init__(self, gpu: FakeGpu, problem: int) -> None:
        self._gpu = gpu
        self._problem = problem
        candidates = [
            Candidate({"BLOCK": 1 << n, "num_warps": 4}, tuple(gpu.said.get("rules", [""])), f"{n:064x}")
            for n in range(gpu.said["configs"])
        ]
        self.opened = Opened(
            ("n",), (1 << problem,), {"dtype": "bf16"}, 1000, 10, {"tunables": ("BLOCK",)}, tuple(candidates)
        )

    def check(self, candidate: int) -> tuple[Status, str]:
        self._gpu.log("check", self._problem, candidate)
        fault = self._gpu.fault(candidate)
        if fault == "wrong":
            return "wrong", "output 0 is off by 3"
        if fault == "failed":
            return "failed", "DriverError: refused"
        if fault == "lost":
            raise ContextLost("CUDA error: an illegal memory access was encountered")
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hangs":
            time.sleep(3600)
        return "ok", ""

    def time(self, order: Sequence[int]) -> list[float]:
        while self._problem == self._gpu.said.get("waits") and os.getppid() == self._gpu.parent:
            time.sleep(0.01)
        for candidate in order:
            self._gpu.log("time", self._problem, candidate)
            if self._gpu.fault(candidate) == "late":
                raise ContextLost("CUDA error: unspecified launch failure")
        noise = self._gpu.said.get("noise", 0.0)
        return [true_us(self._problem, one) * (1 + abs(self._gpu.rng.gauss(0, noise))) for one in order]

    def close(self) -> None:
        self._gpu.log("close", self._problem, 0)


class FakeGpu:
    flush_us = 40.0

    def __init__(self, setup: Setup) -> None:
        self._facts = Path(f"{setup.bundle}.json")
        self.said: dict[str, Any] = json.loads(self._facts.read_text(encoding="utf-8"))
        if "refuses" in self.said:
            raise NojitError(self.said["refuses"])
        self.rng = random.Random(7)
        self._setup = setup
        self.parent = os.getppid()

    def log(self, *words: object) -> None:
        with Path(f"{self._facts}.log").open("a", encoding="utf-8") as file:
            file.write(" ".join(map(str, words)) + "\n")

    def fault(self, candidate: int) -> str:
        found: str = self.said.get("faults", {}).get(str(candidate), "")
        return found

    def hello(self) -> Hello:
        kernels = self.said.get("kernels", ["add"])
        listed = [
            Listed(kernel, f"problem {n}", "tune", "some", "bf16", {"n": self.said.get("scale", 1) << n})
            for kernel in kernels
            for n in range(self.said["problems"])
        ]
        return Hello(DEVICE, "2.11", tuple(listed), ())

    def open(self, problem: int) -> FakeTrial:
        if problem == self.said.get("unready"):
            raise Unready("no variant of the bundle serves it")
        return FakeTrial(self, problem)

    def clock_mhz(self) -> int | None:
        return 1980


def open_gpu(setup: Setup) -> FakeGpu:
    return FakeGpu(setup)
