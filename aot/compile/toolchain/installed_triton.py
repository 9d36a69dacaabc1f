"""Copies of Triton that a build may compile with: that of its own environment, and those of other environments.

An environment lends only its Triton, with the programs that Triton brings. Everything else, Python included, is the
build's own in every process. So the environments may lack nojit and the packages of kernel sources.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder, PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import CompileError, ManifestError

__all__ = [
    "InstalledTriton",
    "check_unnamed",
    "files_of",
    "find_triton",
    "is_version",
    "own_version",
    "triton_of",
    "use_triton",
]

# time limit for a Python to start and to import Triton
_START_S: Final = 300.0
# the last line that it prints, since imports may print too
_PROBE: Final = """
import json, sysconfig, triton
print()
print(json.dumps([sysconfig.get_config_var("SOABI"), sysconfig.get_python_version(), triton.__version__, list(triton.__path__)]))
"""


@dataclass(frozen=True, slots=True)
class InstalledTriton:
    """One copy of Triton, under the name that command lines and manifests give it."""

    name: str
    """The version, or its first parts: ``3.6``; empty for the only copy of a build that names none."""
    version: str
    folder: Path | None
    """Folder that contains the package `triton`; None for the build's own environment."""


def is_version(name: str, full: str) -> bool:
    """Return whether a name of a Triton fits a full version: ``3.6`` and ``3.6.0`` fit ``3.6.0+git1``."""
    release = full.partition("+")[0]
    return name in {full, release} or release.startswith(f"{name}.")


def files_of(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that say which Triton environments have: their settings and their programs.

    `places`: virtual environments, or the Python programs of environments.
    """
    for place in places:
        yield from (place / "pyvenv.cfg", place / "bin" / "python") if place.is_dir() else (place,)


def check_unnamed(names: Sequence[str]) -> None:
    """Check that a manifest names no toolchain, for a compiler without `--toolchain`.

    Raises:
        ManifestError: `names` is not empty.
    """
    if names:
        what = "expected no toolchains, as with one Triton that nothing names"
        raise ManifestError(what, got=", ".join(names))


def own_version() -> str:
    """Return the version of Triton in the build's own environment; empty if it has none."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return ""


def find_triton(name: str, place: Path) -> InstalledTriton:
    """Return the Triton of an environment, after importing it there.

    Args:
        name: name of the toolchain.
        place: a virtual environment, or the Python program of an environment.

    Raises:
        CompileError: the environment has no Triton of that version that the build's Python can import.
    """
    abi, python, found, folders = _asked(place)
    own = sysconfig.get_config_var("SOABI")
    if abi != own:
        what = f"expected an environment of Python {sysconfig.get_python_version()}, as the build's, with the ABI {own}"
        raise CompileError(what, got=f"Python {python} with {abi}", where=str(place))
    if not is_version(name, found):
        what = f"expected Triton {name}: pip install triton=={name}.* there, or pass --toolchain {found}={place}"
        raise CompileError(what, got=f"Triton {found}", where=str(place))
    return InstalledTriton(name, found, Path(folders[0]).parent)


def _asked(place: Path) -> Any:
    # absolute: a name alone would be searched in PATH
    program = (place / "bin" / "python" if place.is_dir() else place).absolute()
    what = (
        f"expected a virtual environment with Triton, or its Python: python -m venv {place}, and install triton there"
    )
    if not program.is_file():
        got = "no such path"
        if place.exists():
            got = f"no {place / 'bin' / 'python'}" if place.is_dir() else file_kind(place.stat().st_mode)
        raise CompileError(what, got=got, where=str(place))
    try:
        # -I: without this process's PYTHONPATH and folder
        done = subprocess.run(
            [program, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=_START_S, check=False
        )
        answer = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired) as error:
        got = worded(error) if isinstance(error, OSError) else f"no answer within {_START_S:g} s"
        raise CompileError(what, got=got, where=str(place)) from None
    except (ValueError, LookupError):
        answer = None
    else:
        if answer is None:
            got = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
            raise CompileError(what, got=got, where=str(place), log=done.stderr)
    if answer is None:
        raise CompileError(what, got="a program that is no Python", where=str(place))
    return answer


class _Finder(MetaPathFinder):
    """Finder of the package `triton`, and of its distribution, in a folder; of nothing else there."""

    def __init__(self, folder: str) -> None:
        self._path = [folder]

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the package; its submodules follow from its path."""
        return PathFinder.find_spec(fullname, self._path) if fullname == "triton" else None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008 - as `DistributionFinder` has it
    ) -> Iterator[Distribution]:
        """Yield Triton's distribution, whose entry points name its backends."""
        if context.name in {None, "triton"}:
            yield from MetadataPathFinder.find_distributions(DistributionFinder.Context(name="triton", path=self._path))


def use_triton(folder: str) -> None:
    """Make this process import Triton from a folder; call before its first import."""
    sys.meta_path.insert(0, _Finder(folder))


@contextlib.contextmanager
def triton_of(triton: InstalledTriton | None) -> Iterator[None]:
    """Let this process find a Triton, which it does not import, until the ``with`` block ends.

    `triton`: the Triton to find; None for that of the build's environment.
    """
    finders = [_Finder(str(triton.folder))] if triton is not None and triton.folder is not None else []
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
