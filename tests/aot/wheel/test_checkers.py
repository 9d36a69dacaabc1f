"""What others say of the wheels: twine, check-wheel-contents, and Hugging Face's kernels beside them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.aot.wheel.conftest import Make
from tests.support.wheels import Environment, own_wheel, pip, wheel_of

Wheel = Callable[..., Result]


def tool(name: str, *words: object) -> str:
    """Run a tool that lies beside this Python; without it the test is skipped."""
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"needs {name}: pip install 'nojit[ship]'")
    done = subprocess.run([path, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("layout", ["providers", "variants"])
def test_checkers_have_nothing_to_say(bundles: Make, wheel: Wheel, tmp_path: Path, layout: str) -> None:
    (tmp_path / "LICENSE").write_text("do as you like")
    said = ("--license", "Apache-2.0", "--license-file", tmp_path / "LICENSE", "--url", "Source=https://example.org")
    wheel(bundles("sm_80", "sm_90a"), "--layout", layout, *said)
    wheels = sorted((tmp_path / "dist").glob("*.whl"))
    assert len(wheels) == 3
    tool("twine", "check", "--strict", *wheels)
    for path in wheels:
        # which does not know the names of variant wheels yet
        plain = path.with_name(path.name.replace("-any-sm80", "-any").replace("-any-sm90", "-any"))
        shutil.copy(path, tmp_path / plain.name)
        assert tool("check-wheel-contents", tmp_path / plain.name).strip().endswith(": OK")


@pytest.mark.slow
def test_beside_the_kernels_of_the_hub(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    """Both are called kernels: installed together, each still has all of its files."""
    environment = Environment(tmp_path / "env")
    done = pip(environment, "install", "--no-deps", "--no-compile", "kernels", online=True)
    if done.returncode:
        pytest.skip(f"needs an index with the distribution kernels: {done.stderr.strip().splitlines()[-1]}")
    before = environment.files()
    wheel(bundles("sm_90a"))
    own = own_wheel(tmp_path / "shelf")
    provider = tmp_path / "dist/acme_kernels_sm90-1.0-py3-none-any.whl"
    done = pip(
        environment, "install", "--no-deps", "--no-compile", own, wheel_of("zstandard", tmp_path / "shelf"), provider
    )
    assert done.returncode == 0, done.stderr
    assert before.items() <= environment.files().items()
    code = (
        "import nojit.runtime; from importlib.util import find_spec; print(find_spec('kernels').origin); "
        "print(*nojit.runtime.load('acme-kernels').kernels)"
    )
    assert environment.run("-c", code).splitlines() == [str(environment.site / "kernels/__init__.py"), "add"]
