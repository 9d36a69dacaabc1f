"""The example of a package for the Hugging Face Hub: it launches its functions from the bundles in it, and nothing is compiled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from runpy import run_path
from typing import Any

import nojit
import pytest

from tests.fakecuda.build import build_driver

pytestmark = [pytest.mark.triton, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/hub_kernel"

# what `kernels` does with a local package, where it is not installed
LOADER = """
import importlib.util, json, sys

def get_local_kernel(path):
    folder = path / "build/torch-universal"
    name = json.loads((folder / "metadata.json").read_text())["id"]
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
USE = """
import json, sys, warnings
from pathlib import Path
import triton
from kernels import get_local_kernel
from nojit import runtime
from tests.support.tensors import PointerTensor

def compiles(*_, **__):
    raise AssertionError("a compile")

triton.compile = triton.runtime.jit.JITFunction._do_compile = compiles
warnings.simplefilter("ignore", runtime.StreamWarning)

def tensor(*shape, dtype="torch.float16"):
    made = PointerTensor(0x10000, dtype)
    made.shape = shape
    return made

package = get_local_kernel(Path(sys.argv[1]))
package.silu_and_mul(tensor(5, 704), tensor(5, 1408))
package.gelu_and_mul(tensor(2, 701), tensor(2, 1402))
failure = ""
try:
    package.silu_and_mul(tensor(5, 704, dtype="torch.float64"), tensor(5, 1408))
except Exception as error:
    failure = type(error).__name__
print(json.dumps([package.__name__, runtime.counters().loaded, failure, runtime.counters().served[-1].launches]))
"""


@pytest.mark.parametrize(("value", "miss"), [(None, "jit"), ("", "jit"), ("error", "error")])
def test_an_empty_policy_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, miss: str
) -> None:
    shutil.copy(EXAMPLE / "build/torch-universal/bundled.py", tmp_path)
    (tmp_path / "a.nojit").touch()
    monkeypatch.delenv("NOJIT_RECORD", raising=False)
    monkeypatch.delenv("NOJIT_MISS", raising=False)
    if value is not None:
        monkeypatch.setenv("NOJIT_MISS", value)
    monkeypatch.setattr(nojit, "serve_function", lambda _function, _folder, miss: miss)
    assert run_path(str(tmp_path / "bundled.py"))["bundled"](None) == miss


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, recorded and built."""
    folder = tmp_path_factory.mktemp("hub")
    shutil.copytree(EXAMPLE, folder / "hub_kernel", ignore=shutil.ignore_patterns("__pycache__", "*.nojit"))
    # a checkout holds a folder `kernels`
    (folder / "tests").symlink_to(ROOT / "tests")
    if not any(distributions(name="kernels")):
        (folder / "kernels.py").write_text(LOADER, encoding="utf-8")
    recording, variant = folder / "hub.nojitrec", folder / "hub_kernel/build/torch-universal"
    program = [sys.executable, folder / "hub_kernel/use.py"]
    run(folder, sys.executable, "-m", "nojit", "record", "--fake", "sm_90", "-o", recording, "--", *program)
    named = ("--name", "gated-activations", "--arch", "sm_90")
    run(folder, sys.executable, "-m", "nojit", "build", recording, *named, "--out", variant)
    run(folder, sys.executable, "-m", "nojit", "coverage", recording, variant)
    # with bundles beside it, the package is recorded again
    run(
        folder,
        sys.executable,
        "-m",
        "nojit",
        "record",
        "--fake",
        "sm_90",
        "-o",
        folder / "again.nojitrec",
        "--",
        *program,
    )
    return folder / "hub_kernel"


def run(folder: Path, *words: object, **variables: str) -> str:
    """Run a command where the package's loader is found; return its standard output."""
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""))),
        "NOJIT_CACHE_DIR": str(folder / "cache"),
    }
    given |= {"TRITON_DEFAULT_FP_FUSION": "1", "HF_HUB_OFFLINE": "1", **variables}
    done = subprocess.run([*map(str, words)], env=given, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def use(package: Path, **variables: str) -> list[Any]:
    driver = build_driver(package.parent)
    given = {"NOJIT_LIBCUDA": str(driver), "FAKECUDA_DEVICES": "90", **variables}
    found: list[Any] = json.loads(run(package.parent, sys.executable, "-c", USE, package, **given).splitlines()[-1])
    return found


def test_the_package_launches_from_its_bundle(package: Path) -> None:
    assert use(package, NOJIT_MISS="error") == ["_gated_activations_1", 2, "NoMatchingVariantError", 2]


def test_a_package_whose_source_has_changed_launches_nothing_from_its_bundle(package: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(package.parent, tmp_path / "hub", symlinks=True) / "hub_kernel"
    source = changed / "build/torch-universal/activations.py"
    source.write_text(source.read_text(encoding="utf-8").replace("(gate) * up", "(gate) + up"), encoding="utf-8")
    with pytest.raises(AssertionError, match="is not the function that was recorded"):
        use(changed, NOJIT_MISS="error")
