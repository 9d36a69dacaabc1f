"""Launch in loops, with a call of the fake framework's between them at which callgrind writes down its count.

    python -m tests.support.instructions_child BUNDLE FAKETORCH SCENARIOS

SCENARIOS is JSON: a list of objects with ``kernel``, ``statement``, ``tensors``, ``numbers`` and
``before``.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

from nojit import runtime

from tests.fakecuda.build import load_extension

LAUNCHES = 100
_LOOP = "def run(count):\n    for _ in repeat(None, count):\n        {}\n"


def compile_loop(statement: str, names: dict[str, Any]) -> Callable[[int], None]:
    """Make a function that runs a statement so many times."""
    exec(_LOOP.format(statement), names)
    loop: Callable[[int], None] = names["run"]
    return loop


def main(words: list[str]) -> None:
    """For each scenario: warm up, then once and twice as many launches, each followed by a mark."""
    path, faketorch, scenarios = words
    framework = load_extension(Path(faketorch))
    mark, tensor = framework.counts, framework.Tensor
    bundle = runtime.load(path)
    for scenario in json.loads(scenarios):
        kernel = bundle.kernel(scenario["kernel"])
        tensors = {name: tensor(0x10000 * (place + 1), "float32") for place, name in enumerate(scenario["tensors"])}
        names = {**tensors, **scenario["numbers"], "kernel": kernel, "grid": (1,), "repeat": repeat}
        if "bound(" in scenario["statement"]:
            names["bound"] = kernel.bind(names["grid"])
        exec(scenario["before"], names)
        loop = compile_loop(scenario["statement"], names)
        loop(LAUNCHES)
        gc.collect()
        gc.disable()
        mark()
        loop(LAUNCHES)
        mark()
        loop(2 * LAUNCHES)
        mark()
        gc.enable()


if __name__ == "__main__":
    main(sys.argv[1:])
