"""What a source is told while nojit builds for this device's arch is what the same source finds on this device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aot.projects import KERNEL, Project, entry

pytestmark = [pytest.mark.gpu, pytest.mark.triton]

# what every device of an arch answers alike
QUESTIONS = """
torch.cuda.is_available()
torch.cuda.get_device_capability()
torch.cuda.is_bf16_supported()
torch.cuda.is_tf32_supported()
torch.version.hip
torch.utils._triton.has_triton()
torch.utils._triton.has_triton_tma()
torch.utils._triton.has_triton_tma_device()
torch.accelerator.current_accelerator().type
str(driver.get_active_torch_device())
driver.get_current_target().backend
driver.get_current_target().arch
driver.get_current_target().warp_size
driver.get_current_device()
driver.utils.get_device_properties(0)['max_shared_mem']
driver.utils.get_device_properties(0)['max_num_regs']
driver.utils.get_device_properties(0)['warpSize']
sorted(driver.utils.get_device_properties(0))
properties.major
properties.minor
properties.warp_size
properties.regs_per_multiprocessor
properties.max_threads_per_multi_processor
getattr(properties, 'shared_memory_per_block', 49152)
getattr(properties, 'shared_memory_per_block_optin', driver.utils.get_device_properties(0)['max_shared_mem'])
getattr(properties, 'shared_memory_per_multiprocessor', driver.utils.get_device_properties(0)['max_shared_mem'] + 1024)
[name for name, backend in triton.backends.backends.items() if backend.driver.is_active()]
""".strip().splitlines()
SOURCE = f"""
import json
import torch
import torch.utils._triton
import triton.backends
{KERNEL}
driver = triton.runtime.driver.active
properties = torch.cuda.get_device_properties(0)
answers = {{}}
for question in {QUESTIONS!r}:
    answers[question] = eval(question)
print("told", json.dumps(answers))
"""


def told(output: str) -> dict[str, object]:
    """What the source printed."""
    (line,) = [line for line in output.splitlines() if line.startswith("told ")]
    answers: dict[str, object] = json.loads(line.removeprefix("told "))
    return answers


def test_a_target_answers_as_a_device_of_it_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    major, minor = torch.cuda.get_device_capability()
    made = Project(tmp_path / "project").write(a_py=SOURCE)
    built = made.build(entry("a", "a.py:k"), words=("--dry-run", "--arch", f"sm_{major}{minor}"))
    assert built.code == 0, built.stderr
    ran = subprocess.run(
        [sys.executable, str(made.folder / "a.py")], capture_output=True, text=True, check=True, timeout=300
    )
    assert told(built.stderr) == told(ran.stdout)
