"""A provider in an empty environment on a device: installed with pip, loaded by its name, launched by the real driver."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from nojit.aot.cli.group import cli

from tests.support.wheels import Environment, own_wheel, pip, wheel_of

# torch makes tensors only: nojit and what it needs are those of the empty environment, which come first
CHILD = """
import json, sys, time
from nojit import runtime
sys.path += json.loads(sys.argv[1])
import torch
x, y = torch.randn(10_007, device="cuda"), torch.randn(10_007, device="cuda")
out = torch.full_like(x, float("nan"))
torch.cuda.synchronize()
started = time.perf_counter()
bundle = runtime.load("acme-kernels")
bundle.kernel("vector_add")(x, y, out, x.numel())
elapsed_ms = (time.perf_counter() - started) * 1e3
torch.testing.assert_close(out, x + y, rtol=0, atol=0)
print(json.dumps({"files": [f.path for f in bundle.files], "runtime": runtime.__file__, "elapsed_ms": elapsed_ms}))
"""


@pytest.fixture
def wheels(device, bundle_folder: Path, tmp_path: Path) -> Path:
    words = ["wheel", str(bundle_folder), "--name", "acme-kernels", "--out", str(tmp_path / "dist")]
    result = CliRunner().invoke(cli, words, prog_name="nojit")
    assert result.exit_code == 0, result.output
    own_wheel(tmp_path / "dist")
    if sys.version_info < (3, 14):
        wheel_of("zstandard", tmp_path / "dist")
    return tmp_path / "dist"


def test_a_provider_is_all_that_a_first_kernel_needs(device, wheels: Path, tmp_path: Path) -> None:
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    environment = Environment(tmp_path / "env")
    words = ("install", "--no-index", "--no-compile", "--find-links", wheels, f"acme-kernels[sm{major}{minor}]")
    done = pip(environment, *words)
    assert done.returncode == 0, done.stderr
    before = environment.files()
    # a program's own folders, without a checkout's finder
    places = [str(Path(torch.__file__).parents[1]), *(place for place in sys.path if place.endswith("-packages"))]
    shown = json.loads(environment.run("-c", CHILD, json.dumps(places)))
    assert shown["runtime"].startswith(str(environment.site))
    assert all(path.startswith(str(environment.site)) for path in shown["files"])
    assert environment.files() == before
    print(f"from load to the first launch: {shown['elapsed_ms']:.1f} ms")  # noqa: T201 - shown with -s


def test_doctor_says_what_a_device_uses(device, bundle_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("NOJIT_BUNDLES", str(bundle_folder))
    result = CliRunner().invoke(cli, ["doctor", "--json"], prog_name="nojit")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    major, minor = torch.cuda.get_device_capability(device)
    assert said["devices"][0]["capability"] == major * 10 + minor
    (used,) = said["devices"][0]["used"]
    assert f"sm_{major}{minor}" in used
    assert said["devices"][0]["missing"] == []
    (state,) = (bundle for bundle in said["bundles"] if bundle["path"] == used)
    assert said["driver"]["version"] >= state["min_driver"]
