"""The example that records, builds and covers a program with two commands, without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/record_serve"


def nojit(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NOJIT_CACHE_DIR": str(folder / "cache"), "TRITON_DEFAULT_FP_FUSION": "1"}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    command = [sys.executable, "-m", "nojit", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "count", "kernel"),
    [
        (("program.py", "--rows", "64"), "4 kernels", "layers:linear_kernel"),
        (("compiled.py",), "13 kernels", "torch._inductor:scale_kernel"),
    ],
)
def test_a_program_is_recorded_and_built_without_a_gpu_and_every_call_is_covered(
    tmp_path: Path, program: tuple[str, ...], count: str, kernel: str
):
    command = [sys.executable, str(EXAMPLE / program[0]), "--no-digest", *program[1:]]
    recorded = nojit("record", "-o", "example.nojitrec", "--fake", "sm_90", "--", *command, folder=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    assert count in recorded.stderr
    built = nojit("build", "example.nojitrec", "--arch", "sm_90", "--out", "bundles", folder=tmp_path)
    assert built.returncode == 0, built.stderr
    covered = nojit("coverage", "example.nojitrec", "bundles", folder=tmp_path)
    assert covered.returncode == 0, covered.stdout
    assert kernel in covered.stdout
