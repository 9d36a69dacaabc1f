"""The stage of the launch benchmark on the fake driver: tensors without contents, images without code."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from nojit.aot.bench.case_setup import Stage
from nojit.aot.bench.cases import BLOCK, Case
from nojit.runtime.loader import Bundle

from tests.fakecuda import FakeCuda
from tests.support.bundles import SyntheticKernel, kernel, make_bundle
from tests.support.instructions import launch_kernel

SetUp = Callable[[Case], Stage]
BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def load_script(name: str) -> ModuleType:
    """Import a script of `benchmarks/`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def cold_kernel(number: int) -> SyntheticKernel:
    """A kernel of the cold starts."""
    params = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return kernel(f"cold_{number}", params, configs=[{"BLOCK": BLOCK, "num_warps": 4}], grid=["cdiv(n, BLOCK)"])


@pytest.fixture
def set_up(tmp_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> Iterator[SetUp]:
    """Set a case up."""
    bundles: list[Bundle] = []

    def build(case: Case) -> Stage:
        bundles.append(Bundle([make_bundle(tmp_path / f"{len(bundles)}.nojit", launch_kernel(case))]))
        addresses = {name: 0x10000 * (place + 1) for place, name in enumerate(case.tensors)}
        tensors = {name: faketorch.Tensor(address, "float32") for name, address in addresses.items()}
        return Stage(
            case=case,
            bundle=bundles[-1],
            values={**tensors, **case.numbers},
            addresses=addresses,
            device=0,
            stream=0,
            folder=tmp_path,
            clear=lambda: None,
            synchronize=lambda: fakecuda.make_current(0),
            correct=lambda: True,
        )

    yield build
    for bundle in bundles:
        bundle.close()
