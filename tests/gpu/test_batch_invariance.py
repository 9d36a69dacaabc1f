"""With ``NOJIT_BATCH_INVARIANT`` a part of a batch gets the bits that it gets in the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(bundles: Path, said: str) -> dict[str, dict[str, bool]]:
    """Run `batch.py` in a process that was told so."""
    environment = os.environ | {"NOJIT_BUNDLES": str(bundles), "NOJIT_BATCH_INVARIANT": said}
    command = [sys.executable, "-m", "tests.gpu.batch"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_parts_of_a_batch_get_the_bits_of_the_whole(device, bundle_folder):
    found = run(bundle_folder, "1")
    assert len(found) >= 20
    assert {name: parts for name, parts in found.items() if not all(parts.values())} == {}


def test_without_it_they_do_not(device, bundle_folder):
    """Else the test above would say nothing."""
    found = run(bundle_folder, "0")
    for name in ("mm 512", "int4", "decoding"):
        assert not all(found[name].values()), name
