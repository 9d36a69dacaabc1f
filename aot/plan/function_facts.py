"""Facts of a kernel's source code: params, decorators, digest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nojit.runtime.errors import ManifestError
from nojit.runtime.table.parts import Param
from nojit.runtime.values import Value

__all__ = [
    "HEURISTICS",
    "ConfigHook",
    "Effect",
    "KernelSource",
    "SourceImportError",
    "SourcePlace",
    "module_of",
]


HEURISTICS = "@triton.heuristics"
"""Name of Triton's decorator that computes the value of a param or option at each call."""


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect that a decorator has when Triton launches the kernel, and that a bundle does not reproduce."""

    name: str
    """Name of the effect in the manifest's key `ignores`."""
    what: str
    when: str
    """When the effect takes place, for messages."""


@dataclass(frozen=True, slots=True)
class ConfigHook:
    """The blocks of descriptors that `pre_hook` of one `triton.Config` sets."""

    settings: tuple[tuple[str, Value], ...]
    """Constexprs of the `triton.Config`."""
    blocks: tuple[tuple[str, tuple[int | None, ...]], ...]
    """Block of each descriptor that the hook sets; None for a dimension that is not a constant."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Facts of a kernel function's source code."""

    name: str
    params: tuple[Param, ...]
    """The params, in the function's order."""
    unspecialized: frozenset[str]
    """Params in `do_not_specialize`: neither they nor their members take hints."""
    unaligned: frozenset[str]
    """Params in `do_not_specialize_on_alignment`: they do not take hint 16."""
    digest: str
    """SHA-256 in hex over the function and everything that it reaches, independent of line numbers."""
    gluon: bool = False
    """True if the kernel is written in Gluon, whose descriptors have layouts."""
    annotations: tuple[tuple[str, str], ...] = ()
    """Runtime params with a type annotation such as ``base: tl.int64``, as (param, type in Triton's text)."""
    constants: frozenset[str] = frozenset()
    """Runtime params annotated as pointers to constants, ``x_ptr: tl.const``."""
    debug: bool = False
    """Value of `debug` in the kernel's decorator. It is used if the manifest does not set the option."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of Triton that can change code and that the source or the environment set after Triton's import."""
    effects: tuple[Effect, ...] = ()
    """Effects of the kernel's decorators at a launch that a bundle does not reproduce."""
    computed: tuple[tuple[str, str], ...] = ()
    """Params and options whose value a decorator computes, as (name, decorator)."""
    hooks: tuple[ConfigHook, ...] = ()
    """Descriptor blocks that the `pre_hook` of each config of an autotuner sets."""
    answers: tuple[str, ...] = ()
    """Queries about the GPU that the source made during its import, as ``query = answer``."""
    of_arch: bool = False
    """True if the answer to one of these queries depends on the arch."""
    of_device: tuple[str, ...] = ()
    """Those queries with answers that differ between GPUs of the same arch."""
    reached: tuple[tuple[str, str], ...] = ()
    """Modules that the source's import loaded, as (module, file), sorted. Triton and its own imports are left out."""


class SourceImportError(ManifestError):
    """A source cannot be imported: none of its kernels can be built."""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where to find a kernel's function, from its manifest entry."""

    spelling: str
    """``package.module:function``, or ``path/to/file.py:function`` relative to `folder`."""
    folder: Path
    """Folder of the manifest."""
    where: str
    """The manifest entry, for messages."""
    project: Path = Path()
    """Folder that imports search in addition to `folder`: the build's current folder."""
    together: tuple[str, ...] = ()
    """Modules and files that one process imports for this manifest entry; empty if there is only the source's own.

    The entry's own module comes first, then those of functions that its constexprs name.
    """
    recorded: bool = False
    """True if the function is rebuilt from a recording; `spelling` is then ``path:digest of the source closure``."""
    functions: tuple[tuple[str, str], ...] = ()
    """For a recorded kernel, the spelling of each function that its constexprs name, by ``module:name``."""

    @property
    def module(self) -> str:
        """The module's name, the file's path, which ends with ``.py``, or the path of the recording."""
        return self.spelling.rpartition(":")[0] if self.recorded else module_of(self.spelling)

    @property
    def modules(self) -> tuple[str, ...]:
        """All modules and files that one process imports for this entry."""
        return self.together or (self.module,)


def module_of(spelling: str) -> str:
    """Return the module's name or the file's path in a source such as ``package.module:function``.

    `spelling`: the name, ``package.module:function``.
    """
    return spelling.partition(":")[0]
