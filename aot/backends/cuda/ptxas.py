"""Choice of ptxas, CUDA's assembler: Triton's own, or a pinned one whose images an older driver loads.

A driver loads images of every toolkit of its CUDA major version, but not of later major versions. Triton brings several
ptxas of different major versions, and uses the later one for newer archs. Pinning sets the variables that Triton reads,
for this process and its workers. This module does not import Triton.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from nojit.runtime.base.file_kinds import check_regular
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import CompileError
from nojit.runtime.target import ImageArch, parse_image_arch, spell_cuda

__all__ = ["Ptxas", "gpu_names", "parse_cuda", "pin", "pinned", "read_ptxas"]

# variables that Triton 3.6 to 3.9 reads, each with the name of Triton's own file
_VARIABLES = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell"}
_RELEASE = re.compile(r"release ([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class Ptxas:
    """A ptxas executable with its CUDA version."""

    path: Path
    cuda: int
    """CUDA version as a number: 12090 for 12.9."""

    @property
    def min_driver(self) -> int:
        """Oldest CUDA version whose driver loads the images of this ptxas, as a number: 12000 for 12.0."""
        return self.cuda // 1000 * 1000

    def __str__(self) -> str:
        return f"{self.path} of CUDA {spell_cuda(self.cuda)}"


def parse_cuda(text: str) -> int:
    """Return a CUDA version as a number: 12040 for ``12.4``, 12000 for ``12``.

    Raises:
        ValueError: the text has another form.
    """
    match = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?", text)
    if match is None:
        raise ValueError(f"expected a CUDA version such as 12.4, got {text!r}")
    return int(match[1]) * 1000 + int(match[2] or 0) * 10


def read_ptxas(path: Path) -> Ptxas:
    """Return the ptxas at a path, with the CUDA version that it reports.

    Raises:
        CompileError: the file is not a ptxas.
    """
    try:
        check_regular(path)
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        got = worded(error)
        raise CompileError("expected a ptxas: name another with --ptxas", got=got, where=str(path)) from None
    match = _RELEASE.search(done.stdout)
    if done.returncode or match is None:
        raise CompileError(
            "expected a ptxas that prints its version: name another with --ptxas",
            got=repr(done.stdout[-200:]),
            where=str(path),
        )
    return Ptxas(path.absolute(), int(match[1]) * 1000 + int(match[2]) * 10)


@lru_cache(maxsize=16)
def gpu_names(path: str) -> frozenset[ImageArch]:
    """Return the archs that a ptxas assembles for; empty if it does not list them (it may be a wrapper script)."""
    try:
        done = subprocess.run([path, "--help"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(map(parse_image_arch, re.findall(r"'(sm_[0-9]{2,3}[af]?)'", done.stdout)))


@contextlib.contextmanager
def pin(min_driver: int | None, given: Path | None) -> Iterator[None]:
    """Make this process and its children use a certain ptxas until the ``with`` block ends.

    Args:
        min_driver: CUDA version of the oldest driver that must load the images, 12040 for 12.4; None for any.
        given: the ptxas to use; None to choose one of Triton's.

    Raises:
        CompileError: no ptxas is old enough.
    """
    chosen = pinned(os.environ, min_driver, given)
    before = {variable: os.environ.get(variable) for variable in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


def pinned(environment: Mapping[str, str], min_driver: int | None, given: Path | None) -> dict[str, str]:
    """Return the environment variables that make Triton use a ptxas whose images a driver loads.

    Without `given`, Triton keeps its own choice if that is old enough, and otherwise gets another of its own ptxas.

    Args:
        environment: the current variables, which may already name another ptxas.
        min_driver: CUDA version of the oldest driver that must load the images, 12040 for 12.4; None for any.
        given: the ptxas to use; None to choose.

    Raises:
        CompileError: no ptxas is old enough; the message lists those that were tried.
    """
    if given is not None:
        # absolute: a bare name would be searched in PATH
        chosen = read_ptxas(given.absolute())
        if min_driver is not None and chosen.min_driver > min_driver:
            raise _none_old_enough(min_driver, [chosen])
        return dict.fromkeys(_VARIABLES, str(chosen.path))
    if min_driver is None:
        return {}
    own = {variable: read_ptxas(Path(path)) for variable, path in _candidates(environment)}
    fit = [ptxas for ptxas in own.values() if ptxas.min_driver <= min_driver]
    if not fit:
        raise _none_old_enough(min_driver, list(own.values()))
    newest = max(fit, key=lambda ptxas: ptxas.cuda)
    return {variable: str((ptxas if ptxas in fit else newest).path) for variable, ptxas in own.items()}


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each environment variable that names a ptxas, with its value or else the path of Triton's own ptxas."""
    spec = find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        raise CompileError("expected an installed Triton, which contains ptxas: pip install triton", got="none")
    folder = Path(next(iter(spec.submodule_search_locations)), "backends", "nvidia", "bin")
    for variable, name in _VARIABLES.items():
        path = environment.get(variable) or str(folder / name)
        # the oldest supported Triton has only one
        if variable in environment or Path(path).exists():
            yield variable, path


def _none_old_enough(min_driver: int, known: list[Ptxas]) -> CompileError:
    what = f"expected a ptxas of CUDA {min_driver // 1000} or older, so that the driver loads its images; name one with --ptxas"
    return CompileError(what, got=", ".join(dict.fromkeys(map(str, known))))
