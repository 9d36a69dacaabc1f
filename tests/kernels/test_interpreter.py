"""What makes Triton's interpreter faster for these tests changes nothing of what it computes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kernels.interpreter import ROOT


@pytest.mark.triton
def test_a_hastened_interpreter_computes_refuses_and_raises_the_same():
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.interpreter_alike"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" 0 differ\n"), done.stdout
