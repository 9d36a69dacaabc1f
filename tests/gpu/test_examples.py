"""The example's models on a device, from a bundle: the program itself judges losses and gradients."""

from __future__ import annotations

import subprocess
import sys

from tests.gpu.conftest import ROOT


def test_two_transformers_train_as_with_torch(device, bundle_folder):
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/transformers/run.py", "--bundle", bundle_folder, "--rounds", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("nojit") == ran.stdout.count("torch, fp32") == 2
