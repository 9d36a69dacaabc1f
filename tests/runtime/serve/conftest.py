"""A program recorded on the fake driver, its bundle, and the program served from it; scripts where Triton is hidden."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.serve.session import Serving, serve, unserve

from tests.fakecuda import FakeCuda
from tests.fakecuda.build import build_driver
from tests.support.tensors import PointerTensor

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "tests.runtime.serve.programs.program"
Facts = dict[str, Any]
HIDE = "import tests.support.hidden_triton\n"
INSTALL = "from nojit.runtime.serve import standin\nassert standin.install()\n"
# modules that import these packages at their top
NEEDS = {
    "torch": ["test_inductor.py"],
    "triton": ["test_single_functions.py", "test_program.py", "test_session.py", "test_standin_facts.py"],
}
collect_ignore = [
    module for package, modules in NEEDS.items() if importlib.util.find_spec(package) is None for module in modules
]


class Recorded:
    """A recorded run of the program: its bundle, and what Triton's JIT handed to the driver."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        driver = build_driver(folder)
        self.bundle = folder / "artifacts"
        self.environment = os.environ | {
            "NOJIT_LIBCUDA": str(driver),
            "LD_LIBRARY_PATH": str(folder),
            "FAKECUDA_DEVICES": "90",
            "TRITON_CACHE_DIR": str(folder / "cache"),
            # unset, Triton 3.9 warns
            "TRITON_DEFAULT_FP_FUSION": "1",
            "PYTHONWARNINGS": "ignore",
        }
        nojit = [sys.executable, "-m", "nojit"]
        recording = folder / "program.nojitrec"
        self.jit = json.loads(self.run([*nojit, "record", "-o", recording, "--", sys.executable, "-m", PROGRAM]))
        self.run([*nojit, "build", recording, "--out", self.bundle, "--cache-dir", folder / "nojit-cache"])

    def run(self, words: list[Any], **variables: str) -> str:
        """Run a command; return its standard output."""
        environment = self.environment | variables
        ended = subprocess.run(
            [*map(str, words)], check=False, cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert not ended.returncode, ended.stderr[-4000:]
        return ended.stdout

    def serve(self, *words: Any, **variables: str) -> str:
        """Run a command that is served."""
        return self.run(
            [sys.executable, "-m", "nojit.runtime.serve", "--bundle", self.bundle, "--", *words], **variables
        )


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def program(recorded: Recorded) -> Facts:
    """What the served program handed to the driver."""
    facts: Facts = json.loads(recorded.serve(sys.executable, "-m", PROGRAM))
    return facts


Serve = Callable[..., Serving]


@pytest.fixture
def served(recorded: Recorded, fakecuda: FakeCuda) -> Iterator[Serve]:
    """Serve this process until the test ends; arguments as for `serve`."""

    def begin(**options: Any) -> Serving:
        return serve(recorded.bundle, **{"miss": "error", **options})

    yield begin
    unserve()


@pytest.fixture
def default_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch say that the default stream is current: builds for CPUs know no streams, and nojit warns once in a process."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _device: 0, raising=False)


@pytest.fixture
def tensors(fakecuda: FakeCuda) -> list[PointerTensor]:
    return [PointerTensor(0x10000 * number, "torch.float32") for number in (1, 2, 3)]


def run(
    script: str,
    *,
    hidden: bool = True,
    installed: bool = True,
    version: str = "",
    paths: tuple[Path, ...] = (),
    **env: str,
) -> str:
    """Run a script in a process of its own, and return what it prints. The stand-in has the names of a version of Triton."""
    install = INSTALL.replace("install()", f"install(standin.Recorded(version={version!r}))") if version else INSTALL
    lines = (HIDE if hidden else "") + (install if installed else "") + script
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "NOJIT_"))}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT))), "CUDA_VISIBLE_DEVICES": "", **env}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", lines],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def without_triton() -> Callable[..., Any]:
    """Run a script over the stand-in; it prints JSON on its last line."""
    return lambda script, **settings: json.loads(run(script, **settings).splitlines()[-1])
