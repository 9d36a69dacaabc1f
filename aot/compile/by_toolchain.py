"""Compiler of a build with several toolchains: it passes each variant to the compiler of the variant's toolchain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nojit.aot.compile.image_checks import check_compiled
from nojit.aot.compile.processes.source_compiler import SourceCompiler
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.compile.sources.reads import Notes
from nojit.aot.compile.toolchain.installed_triton import InstalledTriton, find_triton, is_version, own_version
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError, ManifestError

__all__ = ["ToolchainCompiler", "find_toolchains"]


def find_toolchains(given: Sequence[tuple[str, Path | None]]) -> tuple[InstalledTriton, ...]:
    """Return the Tritons that a command line names.

    Args:
        given: name and environment of each; None stands for the build's own environment.

    Raises:
        CompileError: an environment lacks the Triton, or two names mean one version.
    """
    found: dict[str, InstalledTriton] = {}
    for name, place in given:
        triton = _own(name) if place is None else find_triton(name, place)
        other = found.setdefault(triton.version, triton)
        if other is not triton:
            got = f"{other.name} and {name}, both Triton {triton.version}"
            raise CompileError("expected toolchains of different versions: leave one out", got=got)
    return tuple(found.values())


def _own(name: str) -> InstalledTriton:
    version = own_version()
    if not is_version(name, version):
        what = f"expected --toolchain {name}=VENV, with the virtual environment of Triton {name}"
        raise CompileError(what, got=f"Triton {version}, of the build's own environment" if version else "no Triton")
    return InstalledTriton(name, version, None)


class ToolchainCompiler:
    """Compiler that implements `nojit.aot.plan.compiler_interface.Compiler` for the toolchains of a command line.

    Attributes:
        toolchains: names of the toolchains, the default one first; empty for the only one of a build that names none.
        compile_variant: compiles a variant with the variant's toolchain.

    Args:
        compilers: the compiler of each toolchain, by name, the default one first.
    """

    def __init__(self, compilers: Mapping[str, SourceCompiler]) -> None:
        self.toolchains = tuple(name for name in compilers if name)
        self.compile_variant = _Compile(self)
        self._compilers = dict(compilers)

    @property
    def tritons(self) -> tuple[tuple[str, str], ...]:
        """Name and version of Triton of each toolchain."""
        return tuple((name, compiler.tritons[0][1]) for name, compiler in self._compilers.items())

    @property
    def notes(self) -> Notes:
        """Files and variables that the processes of all toolchains read."""
        notes = Notes()
        for compiler in self._compilers.values():
            notes.merge(compiler.notes)
        return notes

    def of(self, names: Sequence[str]) -> ToolchainCompiler:
        """Return a compiler with some of the toolchains, in another order; this one if `names` is empty.

        Raises:
            ManifestError: a toolchain is missing, or two names mean one.
        """
        found: dict[str, SourceCompiler] = {}
        for name in names:
            compiler = self._named(name)
            if compiler in found.values():
                what = "expected toolchains of different versions: leave one out"
                raise ManifestError(what, got=", ".join(names))
            found[name] = compiler
        return ToolchainCompiler(found) if names else self

    def _named(self, name: str) -> SourceCompiler:
        if name in self._compilers:
            return self._compilers[name]
        own = own_version()
        # the only toolchain of a command line that names none
        if not self.toolchains and is_version(name, own):
            return self._compilers[""]
        known = ", ".join(self.toolchains) or f"only {own}, of the build's own environment"
        place = "" if is_version(name, own) else "=VENV"
        raise ManifestError(f"expected --toolchain {name}{place} for each toolchain of the manifest", got=known)

    @property
    def _default(self) -> SourceCompiler:
        return next(iter(self._compilers.values()))

    def compiler_of(self, variant: Variant) -> SourceCompiler:
        """Return the compiler of a variant's toolchain; the default one if the variant names none."""
        return self._named(variant.toolchain) if variant.toolchain else self._default

    @contextlib.contextmanager
    def session(self, timeout_s: float, tell: Callable[[str], None], jobs: int = 1) -> Iterator[None]:
        """Allow processes of every toolchain to start until the block ends; see `SourceCompiler.session`.

        `timeout_s`: time limit of one import, in seconds; `tell`: receives the output of imports; `jobs`: number of imports
        that run at once.
        """
        with contextlib.ExitStack() as stack:
            for compiler in self._compilers.values():
                stack.enter_context(compiler.session(timeout_s, tell, jobs))
            yield

    def prepare(self, asked: Iterable[tuple[SourcePlace, str]]) -> None:
        """Import sources in parallel, with each toolchain in turn; see `SourceCompiler.prepare`.

        `asked`: the sources, each with an arch.
        """
        listed = list(asked)
        for compiler in self._compilers.values():
            compiler.prepare(listed)

    def describe(self, place: SourcePlace, arch: str) -> KernelSource:
        """Return the params and dependencies of a kernel function, as the default toolchain reads it.

        `place`: where the kernel's source is.

        Raises:
            ManifestError: as `SourceCompiler.describe`.
        """
        return self._default.describe(place, arch)

    def captured(self, place: SourcePlace, arch: str, names: Sequence[str]) -> Captured:
        """Return the source of a kernel as the default toolchain reads it; see `SourceCompiler.captured`.

        `place`: where the kernel's source is; `names`: names of functions among its constexprs.
        """
        return self._default.captured(place, arch, names)

    def variant_keys(self, variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
        """Return the keys of variants, all of one arch, each with its own toolchain.

        `place`: where the kernel's source is.

        Raises:
            ManifestError: as `SourceCompiler.variant_keys`, or a toolchain reads other params than the default one.
        """
        keys: dict[Variant, str] = {}
        for name in dict.fromkeys(variant.toolchain for variant in variants):
            mine = [variant for variant in variants if variant.toolchain == name]
            compiler = self.compiler_of(mine[0])
            own = source if compiler is self._default else self._described(compiler, source, place, mine[0])
            keys |= zip(mine, compiler.variant_keys(mine, own, place), strict=True)
        return tuple(keys[variant] for variant in variants)

    def _described(
        self, compiler: SourceCompiler, source: KernelSource, place: SourcePlace, one: Variant
    ) -> KernelSource:
        own = compiler.describe(place, one.arch)
        if own.params != source.params:
            what = f"expected the params that the source has with Triton {self.toolchains[0]}, in their order: "
            what += ", ".join(param.name for param in source.params)
            got = f"{', '.join(param.name for param in own.params)} with Triton {one.toolchain}"
            raise ManifestError(what, got=got, where=place.where)
        # listed once all kernels of the source are described
        return replace(own, reached=source.reached)

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        """See `nojit.aot.compile.image_checks.check_compiled`."""
        check_compiled(variant, compiled)

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        """Return the tools of every toolchain. If there are several, the names of tools start with that of their toolchain."""
        if len(self._compilers) == 1:
            return self._default.toolchain(arch)
        return tuple(
            sorted(
                (f"{name}/{tool}", version)
                for name, compiler in self._compilers.items()
                for tool, version in compiler.toolchain(arch)
            )
        )

    def archs(self) -> tuple[str, ...]:
        """Return the archs that every toolchain can build, in the order of the default one; empty if one does not list its targets."""
        listed = [compiler.archs() for compiler in self._compilers.values()]
        return tuple(arch for arch in listed[0] if all(arch in others for others in listed[1:]))

    def min_driver(self, arch: str) -> int:
        """Return the oldest CUDA version whose driver loads the images of every toolchain (13000 for 13.0)."""
        return max(compiler.min_driver(arch) for compiler in self._compilers.values())


class _Compile:
    """Function that compiles a variant with its toolchain. A pool calls `home` instead, and keeps the processes."""

    def __init__(self, compiler: ToolchainCompiler) -> None:
        self._compiler = compiler

    def home(self, variant: Variant, place: SourcePlace) -> Any:
        """Return the starter of the workers for a variant.

        `place`: where the kernel's source is.
        """
        return self._compiler.compiler_of(variant).compile_variant.home(variant, place)

    def __call__(self, variant: Variant, place: SourcePlace) -> CompiledVariant:
        """Compile a variant.

        `place`: where the kernel's source is.
        """
        return self._compiler.compiler_of(variant).compile_variant(variant, place)


_: type[Compiler] = ToolchainCompiler
