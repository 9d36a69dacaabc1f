"""The example of a kernel that comes from a program with Triton's JIT: built from its manifest, called as it was called."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from nojit import runtime

from tests.fakecuda import FakeCuda

FOLDER = Path(__file__).resolve().parents[2] / "examples/porting"
ROWS, COLS = 512, 1000

pytestmark = pytest.mark.triton

# the JIT of the example, interpreted; its autotuner would time on a GPU
INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from kernel import scale_rows_kernel
kernel = scale_rows_kernel.fn.fn
for rows, cols, block_m, block_n, act, biased in ((5, 96, 1, 32, "relu", True), (7, 70, 4, 32, "", False)):
    x, scale = torch.randn(rows, cols, dtype=torch.bfloat16), torch.randn(rows)
    bias, out = torch.randn(rows) if biased else None, torch.full_like(x, float("nan"))
    kernel[-(-rows // block_m),](
        x, scale, bias, out, rows, cols, cols, ACTIVATION=act, BLOCK_M=block_m, BLOCK_N=block_n, EVEN=cols % block_n == 0
    )
    exact = x.double() * scale.double()[:, None] + (bias.double()[:, None] if biased else 0.0)
    torch.testing.assert_close(out.double(), exact.relu() if act else exact, atol=1e-2, rtol=1e-2)
"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from nojit.aot.cache.cache import Cache
    from nojit.aot.compile.triton import compiler
    from nojit.aot.pipeline.build import build
    from nojit.aot.plan.planner import make_plans

    out = tmp_path_factory.mktemp("porting")
    (plan,) = make_plans([FOLDER / "scale_rows.toml"], ["sm_90"], "full", compiler)
    kept = [
        variant for variant in plan.kernels[0].variants if dict(variant.axes) == {"dtype": "fp32", "ACTIVATION": "relu"}
    ]
    assert (plan.count(), len(kept)) == (64, 16)
    small = replace(plan, kernels=(replace(plan.kernels[0], variants=tuple(kept)),))
    assert not build([small], out, compiler, Cache(out / "cache"), lambda: ThreadPoolExecutor(1)).failures
    return out


@pytest.mark.parametrize("block", [{}, {"BLOCK_M": 4}, {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 4}], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_calls_stay_as_they_were(bundles, fakecuda: FakeCuda, faketorch, block, biased):
    scale_rows = runtime.load(bundles).kernel("scale_rows")
    x, out = (faketorch.Tensor(address << 20, "float32", (ROWS, COLS)) for address in (1, 5))
    scale, bias = (faketorch.Tensor(address << 20, "float32", (ROWS,)) for address in (9, 10))
    given = (x, scale, bias if biased else None, out, ROWS, COLS, COLS)
    scale_rows[lambda meta: (-(-ROWS // meta["BLOCK_M"]),)](*given, ACTIVATION="relu", **block)
    scale_rows(*given, ACTIVATION="relu", **block)
    rows = block.get("BLOCK_M", 1)
    assert {launch.grid for launch in fakecuda.launches()} == {(ROWS // rows, 1, 1)}
    # 1,000 are no whole steps of 1,024 or 256
    assert "EVEN=False" in scale_rows.explain(*given, ACTIVATION="relu", **block).chosen


def test_the_kernel_computes_what_it_says():
    pytest.importorskip("torch")
    command = [sys.executable, "-c", INTERPRETED, str(FOLDER)]
    subprocess.run(command, check=True, env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin"}, timeout=300)
