"""Which ptxas assembles: Triton's own, or one that is pinned so that an older driver loads its images.

A driver loads images of every toolkit of its own CUDA major version, and of none of a later one. Triton brings several
ptxas, of different major versions, and takes the later one for newer architectures. To pin one is to set the variables that
Triton reads, here and for the worker processes. Triton is not imported.
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

from nojit.runtime.errors import CompileError, worded
from nojit.runtime.target import ImageArch, parse_image_arch, spell_cuda

__all__ = ["Ptxas", "gpu_names", "parse_cuda", "pin", "pinned", "read_ptxas"]

# what Triton 3.6 to 3.9 reads, and its own file for each
_VARIABLES = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell"}
_RELEASE = re.compile(r"release ([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class Ptxas:
    """One ptxas."""

    path: Path
    cuda: int
    """CUDA version, 12090 for 12.9."""

    @property
    def min_driver(self) -> int:
        """Least CUDA version whose driver loads its images."""
        return self.cuda // 1000 * 1000

    def __str__(self) -> str:
        return f"{self.path} of CUDA {spell_cuda(self.cuda)}"


def parse_cuda(text: str) -> int:
    """Read ``12.4`` as 12040, and ``12`` as 12000.

    Raises:
        ValueError: it is spelled otherwise.
    """
    match = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?", text)
    if match is None:
        raise ValueError(f"expected a CUDA version such as 12.4, got {text!r}")
    return int(match[1]) * 1000 + int(match[2] or 0) * 10


def read_ptxas(path: Path) -> Ptxas:
    """Ask a ptxas for its version.

    Raises:
        CompileError: it is none.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        got = worded(error)
        raise CompileError("expected a ptxas", got=got, where=str(path)) from None
    match = _RELEASE.search(done.stdout)
    if done.returncode or match is None:
        raise CompileError("expected a ptxas that says its version", got=repr(done.stdout[-200:]), where=str(path))
    return Ptxas(path.absolute(), int(match[1]) * 1000 + int(match[2]) * 10)


@lru_cache(maxsize=16)
def gpu_names(path: str) -> frozenset[ImageArch]:
    """Ask a ptxas which GPUs it assembles for; empty if it does not say, as a script may not."""
    try:
        done = subprocess.run([path, "--help"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(map(parse_image_arch, re.findall(r"'(sm_[0-9]{2,3}[af]?)'", done.stdout)))


@contextlib.contextmanager
def pin(min_driver: int | None, given: Path | None) -> Iterator[None]:
    """Have Triton assemble so, in this process and those that it starts, until the block ends.

    Args:
        min_driver: as for `pinned`.
        given: likewise.

    Raises:
        CompileError: likewise.
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
    """Say which environment variables make Triton assemble with a ptxas whose images a driver loads.

    Without `given`, what Triton takes of itself stays where it will do, and else another one of Triton's stands in.

    Args:
        environment: may name others than Triton's own already.
        min_driver: CUDA version of the oldest driver that is to load the images, 12040 for 12.4; None for any.
        given: use this one.

    Raises:
        CompileError: there is none; the message lists those that were looked at.
    """
    if given is not None:
        # a name alone would be looked for in PATH
        chosen = read_ptxas(given.absolute())
        if min_driver is not None and chosen.min_driver > min_driver:
            raise _none_old_enough(min_driver, [chosen])
        return dict.fromkeys(_VARIABLES, str(chosen.path))
    if min_driver is None:
        return {}
    own = {variable: read_ptxas(Path(path)) for variable, path in _own(environment)}
    fit = [ptxas for ptxas in own.values() if ptxas.min_driver <= min_driver]
    if not fit:
        raise _none_old_enough(min_driver, list(own.values()))
    newest = max(fit, key=lambda ptxas: ptxas.cuda)
    return {variable: str((ptxas if ptxas in fit else newest).path) for variable, ptxas in own.items()}


def _own(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what each variable stands for, set or not."""
    spec = find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        raise CompileError("expected Triton to be installed, which brings ptxas", got="none")
    folder = Path(next(iter(spec.submodule_search_locations)), "backends", "nvidia", "bin")
    for variable, name in _VARIABLES.items():
        path = environment.get(variable) or str(folder / name)
        # the oldest Triton that is supported has but one
        if variable in environment or Path(path).exists():
            yield variable, path


def _none_old_enough(min_driver: int, known: list[Ptxas]) -> CompileError:
    what = f"expected a ptxas of CUDA {min_driver // 1000} or older, so that the driver loads its images; --ptxas names one"
    return CompileError(what, got=", ".join(dict.fromkeys(map(str, known))))
