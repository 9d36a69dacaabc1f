"""A compiler for tests of the build: no Triton, images that follow from a variant's key, and failures on demand.

It is a plain picklable value, so it works in the pool's worker processes too; what it compiled is counted in a file, one
line per call, that all processes append to.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nojit.aot.manifest.archs import known_archs
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.bundle.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.errors import CompileError, ManifestError
from nojit.runtime.table.parts import MISSING, Launch, Param, Slot
from nojit.runtime.values import encode_value

__all__ = ["FakeCompiler", "FakeSource"]

_SCRATCH = (Slot(GLOBAL_SCRATCH, "*i8"), Slot(PROFILE_SCRATCH, "*i8"))


@dataclass(frozen=True, slots=True)
class FakeSource:
    """A kernel function: what it takes, and which helpers it reaches."""

    params: tuple[str, ...]
    constexprs: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    defaults: tuple[tuple[str, int | str], ...] = ()
    """Of constexprs; those that are no `constexprs` above are ones besides."""


@dataclass(frozen=True)
class FakeCompiler:
    """Implements `nojit.aot.plan.compiler_interface.Compiler`.

    Attributes:
        journal: a file that gets one line per variant that is compiled.
        sources: the kernel functions, by the spelling of the manifest.
        helpers: text of each helper; a kernel's digest covers those that it reaches.
        mishaps: what happens instead of compiling, by a part of the variant's label: ``fail``, ``exit``, ``segv``,
            ``hang``, ``bug`` (an exception that is no CompileError).
        same_image: whether every variant of a kernel gets one image.
        version: of the toolchain.
        first_line: where the sources stand in their files: moves what has line info, and nothing else.
        reached: modules that every source imports, each with its file.
    """

    journal: Path
    sources: Mapping[str, FakeSource]
    helpers: Mapping[str, str] = field(default_factory=dict)
    mishaps: Mapping[str, str] = field(default_factory=dict)
    same_image: bool = False
    version: str = "1.0"
    first_line: int = 1
    reached: tuple[tuple[str, str], ...] = ()
    toolchains: tuple[str, ...] = ()

    @property
    def tritons(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, name) for name in self.toolchains) or (("", self.version),)

    def of(self, names: Sequence[str]) -> FakeCompiler:
        for name in names:
            if name not in self.toolchains:
                raise ManifestError("expected a toolchain of the fake compiler", got=name)
        return replace(self, toolchains=tuple(names)) if names else self

    def describe(self, place: SourcePlace, arch: str = "") -> KernelSource:
        source = self.sources.get(place.spelling)
        if source is None:
            raise ManifestError("expected a function", got=repr(place.spelling), where=place.where)
        texts = [place.spelling, *(f"{name}={self.helpers[name]}" for name in source.helpers)]
        params = [Param(name, constexpr=False) for name in source.params]
        defaults = dict(source.defaults)
        constexprs = dict.fromkeys((*source.constexprs, *defaults))
        params += [Param(name, constexpr=True, default=defaults.get(name, MISSING)) for name in constexprs]
        return KernelSource(
            name=place.spelling.rpartition(":")[2],
            params=tuple(params),
            unspecialized=frozenset(),
            unaligned=frozenset(),
            digest=hashlib.sha256("\n".join(texts).encode()).hexdigest(),
            reached=self.reached,
        )

    def variant_key(self, variant: Variant, source: KernelSource, place: SourcePlace) -> str:
        facts: list[Any] = [
            source.digest,
            variant.arch,
            [list(pair) for pair in variant.signature],
            [[name, encode_value(value)] for name, value in variant.constexprs],
            [list(hint) for hint in variant.hints],
            [[name, encode_value(value)] for name, value in variant.options],
            self.version,
            variant.toolchain,
        ]
        if variant.line_info:
            facts.append(["line info", self.first_line])
        return hashlib.sha256(canonical_json(facts)).hexdigest()

    def variant_keys(self, variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
        return tuple(self.variant_key(variant, source, place) for variant in variants)

    def compile_variant(self, variant: Variant, place: SourcePlace) -> CompiledVariant:
        label = variant.label()
        # one write of one short line: appends of several processes do not mix
        with self.journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{label}\n")
        for part, mishap in self.mishaps.items():
            if part in label:
                _suffer(mishap)
        types = dict(variant.signature)
        ones = {param for param, hint in variant.hints if hint == 1}
        layout = [Slot(name, kind) for name, kind in types.items() if kind != "none" and name not in ones]
        options = dict(variant.options)
        return CompiledVariant(
            image=self._image(variant, place),
            launch=Launch(
                symbol=variant.kernel,
                layout=(*layout, *_SCRATCH),
                num_warps=_int(options["num_warps"]),
                num_ctas=_int(options["num_ctas"]),
                shared_bytes=0,
                global_scratch_bytes=0,
                global_scratch_align=1,
                profile_scratch_bytes=0,
                profile_scratch_align=1,
                cooperative=False,
                pdl=False,
            ),
            registers=32,
            spill_bytes=8 if "spills" in label else 0,
            compile_ms=7,
        )

    def check_compiled(self, variant: Variant, compiled: CompiledVariant) -> None:
        if not compiled.image.startswith(b"fake image\n"):
            raise CompileError("expected a fake image", got=repr(compiled.image[:20]))

    def toolchain(self, arch: str) -> tuple[tuple[str, str], ...]:
        names = [f"{name}/fake" for name in self.toolchains] if len(self.toolchains) > 1 else ["fake"]
        return tuple((name, self.version) for name in names)

    def archs(self) -> tuple[str, ...]:
        return known_archs()

    def min_driver(self, arch: str) -> int:
        return 12000

    def prepare(self, asked: object) -> None:
        pass

    def session(self, timeout_s: float, tell: Callable[[str], None], jobs: int = 1) -> AbstractContextManager[None]:
        return nullcontext()

    def compiled(self) -> list[str]:
        """Return the label of each variant that was compiled, in any order, once per call."""
        return self.journal.read_text(encoding="utf-8").splitlines() if self.journal.exists() else []

    def _image(self, variant: Variant, place: SourcePlace) -> bytes:
        if variant.line_info:
            return self._image(replace(variant, line_info=False), place) + f"line {self.first_line}".encode()
        key = variant.kernel if self.same_image else self.variant_key(variant, self.describe(place), place)
        # compresses a little, as code does
        return b"fake image\n" + hashlib.sha256(key.encode()).digest() * 20


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected an int, got {value!r}")
    return value


def _suffer(mishap: str) -> None:
    match mishap:
        case "fail":
            raise CompileError("expected to compile", got="a fake failure", where="fake.py:1", log="line 1\nline 2")
        case "exit":
            os._exit(3)
        case "segv":
            # the default action: faulthandler, which pytest turns on, would print every thread
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            threading.Event().wait()
        case "bug":
            raise ZeroDivisionError("a bug of the compiler")
        case other:
            raise ValueError(f"expected a mishap, got {other!r}")
