"""Child process that measures launches with torch, one case after another. `children` runs it with `-m`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from nojit.aot.bench.case_setup import Stage
from nojit.aot.bench.cases import CASES, LENGTH, Case
from nojit.aot.bench.launch import LaunchBench, chosen, measure
from nojit.aot.inspect.doctor import describe
from nojit.runtime.loader import Bundle

__all__ = ["main", "run", "torch_stage"]


def main(words: Sequence[str]) -> None:
    """Read the request from the file `words[0]`, measure, and write the result to the file `words[1]`."""
    request = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    Path(words[1]).write_text(json.dumps(asdict(run(request))), encoding="utf-8")


def run(request: dict[str, Any]) -> LaunchBench:
    """Measure each case of a request.

    Args:
        request: has ``bundle``, ``arguments``, ``against``, ``rounds`` and ``launches``.
    """
    rounds, launches = request["rounds"], request["launches"]
    result = LaunchBench(describe(), rounds, launches, (), ())
    with Bundle([request["bundle"]]) as bundle, tempfile.TemporaryDirectory() as folder:
        for arguments in request["arguments"]:
            stage = torch_stage(CASES[arguments], bundle, Path(folder))
            figures, missing = measure(stage, chosen(request["against"]), rounds, launches)
            result = replace(result, figures=(*result.figures, *figures), unmeasured=(*result.unmeasured, *missing))
    return result


def torch_stage(case: Case, bundle: Bundle, folder: Path) -> Stage:
    """Return the stage of a case, with torch tensors on the current device."""
    torch: Any = import_module("torch")
    lanes = torch.arange(LENGTH, dtype=torch.float32, device="cuda")
    tensors = {name: lanes.clone() for name in case.inputs}
    out = torch.zeros(LENGTH if case.inputs else 1, dtype=torch.float32, device="cuda")
    factor, offset = case.result
    right = lanes[: len(out)] * factor + offset
    tensors["out_ptr"] = out
    return Stage(
        case=case,
        bundle=bundle,
        values={**tensors, **case.numbers},
        addresses={name: tensor.data_ptr() for name, tensor in tensors.items()},
        device=torch.cuda.current_device(),
        stream=torch.cuda.current_stream().cuda_stream,
        folder=folder,
        clear=out.zero_,
        synchronize=torch.cuda.synchronize,
        correct=partial(torch.equal, out, right),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
