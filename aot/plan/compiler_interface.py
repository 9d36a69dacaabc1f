"""Interface of the compiler that a build needs; `nojit.aot.compile.by_toolchain` has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.variants.variant import CompiledVariant, Variant

__all__ = ["Compiler"]


class Compiler(Protocol):
    """The compiler that a build needs; `nojit.aot.compile.by_toolchain` has one."""

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Names of its toolchains, the default one first; empty for the only one of a build that names none."""

    @property
    def tritons(self) -> tuple[tuple[str, str], ...]:
        """Name and version of Triton of each toolchain, in the order of `toolchains`; the name is empty if nothing names it."""

    def of(self, names: Sequence[str]) -> Compiler:
        """Return a compiler with some of the toolchains; this one if `names` is empty.

        Raises:
            ManifestError: a toolchain is missing.
        """

    @property
    def compile_variant(self) -> Callable[[Variant, SourcePlace], CompiledVariant]:
        """Function that compiles one variant of the kernel at a given place."""

    def describe(self, place: SourcePlace, arch: str) -> KernelSource:
        """Return the facts of a kernel's source code, as its module defines the kernel for an arch.

        `place`: where the kernel's source is.
        """

    def variant_keys(self, variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
        """Return the cache keys of variants of one arch, without compiling them.

        `place`: where the kernel's source is.
        """

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        """Raise `CompileError` if a cached result cannot be that of a variant."""

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        """Return the tools and settings that determine images for an arch."""

    def archs(self) -> tuple[str, ...]:
        """Return the archs that can be built; empty if unknown."""

    def min_driver(self, arch: str) -> int:
        """Return the oldest CUDA version whose driver loads images for an arch."""

    def prepare(self, asked: Iterable[tuple[SourcePlace, str]]) -> None:
        """Import the sources of the given (place, arch) pairs in advance, so that `describe` is fast.

        `asked`: the sources, each with an arch.
        """

    def session(self, timeout_s: float, tell: Callable[[str], None], jobs: int) -> AbstractContextManager[None]:
        """Return a context manager within which the compiler can be used.

        `timeout_s` is the time limit of one import in seconds, `tell` receives the imports' output, and `jobs` is the
        number of parallel imports.
        """
