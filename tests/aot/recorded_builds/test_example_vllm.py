"""The example of a plugin for vLLM, with its stand-in: a compile key is made available by loading what was built for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakecuda.build import build_driver

pytestmark = [pytest.mark.triton, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/vllm_plugin"

WORKER = """
import json, warnings
import torch
from kernel import SLOTS
from nojit import runtime
from standin import load_plugins
from tests.support.tensors import PointerTensor

warnings.simplefilter("ignore", runtime.StreamWarning)
load_plugins()
load_plugins()
keys = SLOTS.warmup()
loaded = runtime.counters().loaded

def tensor(dtype, count):
    made = PointerTensor(0x10000, dtype)
    made.numel = lambda: count
    return made

for tokens in (33, 64, 4096):
    SLOTS(tensor("torch.int32", 9), tensor("torch.int64", tokens), tensor("torch.int64", tokens), 32)
again = runtime.counters().loaded
try:
    SLOTS.compile(SLOTS.CompileKey(64, 64, True))
    missed = ""
except Exception as error:
    missed = type(error).__name__
(served,) = runtime.counters().served
print(json.dumps([keys, loaded > 0, again - loaded, served.launches, served.misses, missed]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with the plugin installed, recorded and built."""
    folder = tmp_path_factory.mktemp("vllm")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").symlink_to(ROOT / "tests")
    about = folder / "nojit_vllm_example-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: nojit-vllm-example\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nnojit = nojit_vllm:register\n")
    recording = folder / "vllm.nojitrec"
    program = [sys.executable, folder / "program.py"]
    nojit = [sys.executable, "-m", "nojit"]
    assert run(folder, *nojit, "record", "--fake", "sm_90", "-o", recording, "--", *program).startswith("8 keys")
    run(folder, *nojit, "build", recording, "--name", "vllm-kernels", "--out", folder / "bundles")
    return folder


def run(folder: Path, *words: object, **variables: str) -> str:
    """Run a command where the example is installed; return its standard output."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("NOJIT_")}
    given |= {"PYTHONPATH": str(folder), "NOJIT_CACHE_DIR": str(folder / "cache"), "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(
        [*map(str, words)], env=given | variables, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def worker(folder: Path, **variables: str) -> list[object]:
    """Run a worker that finds the bundles by their name."""
    given = {
        "NOJIT_LIBCUDA": str(build_driver(folder)),
        "FAKECUDA_DEVICES": "90",
        "NOJIT_BUNDLES": str(folder / "bundles"),
    }
    given["TRITON_CACHE_DIR"] = str(folder / "triton")
    found: list[object] = json.loads(run(folder, sys.executable, "-c", WORKER, **given, **variables).splitlines()[-1])
    return found


def test_a_key_that_was_warmed_up_is_loaded_and_launched_without_a_compile(folder: Path) -> None:
    assert worker(folder, NOJIT_MISS="error") == [8, True, 0, 3, 1, "NoMatchingVariantError"]
    assert not (folder / "triton").exists()


def test_the_plugin_lets_triton_compile_other_keys(folder: Path) -> None:
    assert worker(folder) == [8, True, 0, 3, 1, ""]
    assert (folder / "triton").exists()


def test_a_process_that_is_served_already_stays_as_it_is(folder: Path) -> None:
    code = "import nojit_vllm, sys; nojit_vllm.register(); print('nojit.runtime' in sys.modules)"
    for variable in ("NOJIT_SERVE", "NOJIT_RECORD"):
        assert run(folder, sys.executable, "-c", code, **{variable: "x"}) == "False\n"
