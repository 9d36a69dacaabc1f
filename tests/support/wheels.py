"""Wheels for tests of installing: of this checkout and of what is installed here, so that no index is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path

import pytest
from nojit.aot.wheel.archive import Wheel, pack_wheel

__all__ = ["Environment", "own_wheel", "pip", "put_provider", "uv", "wheel_of"]

ROOT = Path(__file__).resolve().parents[2]


def own_wheel(folder: Path) -> Path:
    """Put the runtime and the build side of this checkout, as they are built, into a wheel that needs no compiler."""
    files = {}
    for room in ("runtime", "aot"):
        for path in sorted((ROOT / room).rglob("*")):
            # a library's version follows its ending
            ending = path.suffix in {".py", ".json"} or ".so" in path.suffixes
            if ending and "__pycache__" not in path.parts:
                files[f"nojit/{path.relative_to(ROOT)}"] = path.read_bytes()
    installed = distribution("nojit")
    # as setuptools leaves it in a checkout, or as it is installed
    about = installed.read_text("PKG-INFO") or installed.read_text("METADATA")
    points = b"[console_scripts]\nnojit = nojit.aot.cli:main\n"
    assert about is not None
    wheel = Wheel(
        "nojit", distribution("nojit").version, files, {"METADATA": about.encode(), "entry_points.txt": points}
    )
    return _write(folder, wheel)


def wheel_of(name: str, folder: Path) -> Path:
    """Put an installed distribution back into a wheel, for this Python alone."""
    found = distribution(name)
    about = f"{found.metadata['Name'].replace('-', '_')}-{found.version}.dist-info/".lower()
    made = {"RECORD", "WHEEL", "INSTALLER", "REQUESTED", "direct_url.json"}
    files, dist_info = {}, {}
    for path in found.files or ():
        spelled = str(path)
        if spelled.lower().startswith(about):
            if spelled[len(about) :] not in made:
                dist_info[spelled[len(about) :]] = path.read_binary()
        elif not spelled.startswith("..") and "__pycache__" not in spelled:
            files[spelled] = path.read_binary()
    return _write(folder, Wheel(found.metadata["Name"], found.version, files, dist_info))


def _write(folder: Path, wheel: Wheel) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / wheel.file_name
    path.write_bytes(pack_wheel(wheel, "tests"))
    return path


def put_provider(site: Path, distribution: str, entry: str = "") -> Path:
    """Put what is installed of a wheel of bundles into a folder of the path, and return the package for its bundles.

    Args:
        site: the folder.
        distribution: its name.
        entry: what programs call the bundles by; the name of the distribution if empty.
    """
    package = distribution.replace("-", "_")
    about = site / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[nojit.bundles]\n{entry or distribution} = {package}\n")
    (site / package).mkdir()
    return site / package


class Environment:
    """An empty virtual environment, in which nothing of this one is seen."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")

    def run(self, *words: object, **variables: str) -> str:
        """Run its Python and return what that writes."""
        done = subprocess.run(
            # no bytecode: what is installed is to stay as it is
            [str(self.python), "-B", *map(str, words)],
            capture_output=True,
            text=True,
            env=_clean() | variables,
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def files(self) -> dict[str, tuple[int, int]]:
        """List what is installed: size and time of each file."""
        return dict(self._files())

    def _files(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for path in sorted(self.site.rglob("*")):
            status = path.stat()
            yield str(path.relative_to(self.site)), (status.st_size, status.st_mtime_ns)


def pip(environment: Environment, *words: object, online: bool = False) -> subprocess.CompletedProcess[str]:
    """Run this environment's pip on another one; `online` lets it use what it is configured to."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment.python]
    options = () if online else ("--isolated",)
    variables = dict(os.environ) if online else _clean()
    return subprocess.run(
        [*map(str, command), *options, *map(str, words)], capture_output=True, text=True, env=variables, check=False
    )


def uv(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``uv pip``, which is beside this Python or on the path; without it the test is skipped."""
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("needs uv: pip install 'nojit[ship]'")
    command = [found, "pip", *map(str, words), "--no-cache", "--offline", "--no-config"]
    return subprocess.run(command, capture_output=True, text=True, env=_clean() | variables, check=False)


def _clean() -> dict[str, str]:
    """Return this process's environment variables without those that say where to look for what."""
    said: Mapping[str, str] = os.environ
    return {
        name: value for name, value in said.items() if not name.startswith(("NOJIT_", "NV_", "PIP_", "PYTHON", "UV_"))
    }
