"""Variants, the units of a build: one kernel with types, hints, constexprs and options, for one target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final

import msgspec
from nojit.aot.manifest.types import NONE, plain
from nojit.aot.variants.table_json import encode_launches
from nojit.runtime._core import IMAGE_BYTES_MAX, check_json, read_launch
from nojit.runtime.base.strict_json import Json, canonical_json, refuse
from nojit.runtime.table.parts import Config, Launch
from nojit.runtime.types.constants import constant_of, is_constant
from nojit.runtime.types.names import leaves
from nojit.runtime.values import LAYOUTS, FunctionRef, Value, spell

__all__ = [
    "CompiledVariant",
    "Facts",
    "Variant",
    "decode_compiled",
    "encode_compiled",
    "facts_of",
    "functions_in",
    "functions_of",
]

# columns of a variant table have 32 bits
_Column = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel with types, hints, constexprs and options for one target, before compilation."""

    kernel: str
    arch: str
    axes: tuple[tuple[str, Value], ...]
    """Value of each matrix axis: types, and constexprs that a caller chooses."""
    signature: tuple[tuple[str, str], ...]
    """Type of each runtime param, in the manifest's order; ``none`` where None is compiled in. Members of tuples may be
    named."""
    constexprs: tuple[tuple[str, Value], ...]
    """Value of every constexpr, whether from the matrix, the config or a derived expression."""
    hints: tuple[tuple[str, int], ...]
    """Hints as (param or tuple member, 16 or 1), sorted. 16 means divisible by 16; 1 means equal to 1."""
    options: tuple[tuple[str, Value], ...]
    """Value of every compiler option, including defaults, sorted by name."""
    config: Config
    """The config of the variant, in the form that bundles store."""
    config_number: int
    """Number of the config in the manifest, for messages."""
    derived: tuple[tuple[str, Value], ...]
    """Derived constexprs as (name, compiled-in value)."""
    line_info: bool = False
    """True if the image maps instructions to lines of the source file."""
    toolchain: str = ""
    """Name of the toolchain that compiles the variant; empty for the only one of a build that names none."""

    def label(self) -> str:
        """Return a one-line description of the variant, for messages and reports."""
        words = [f"{name}={spell(value)}" for name, value in self.axes]
        words += [
            f"{name}={spell(value)}"
            for name, value in self.config.constexprs + self.config.options + self.derived
            if value is not None
        ]
        compiled_in = [leaf for param, kind in self.signature for leaf in leaves(plain(kind), param)]
        words += [f"{path}=none" for path, kind in compiled_in if kind == NONE]
        words += [f"{path}={spell(constant_of(kind))}" for path, kind in compiled_in if is_constant(kind)]
        words += [f"{param}:{hint}" for param, hint in self.hints]
        return f"{self.kernel} {self.arch} {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class CompiledVariant:
    """Machine code of one variant, with the facts that a launch needs."""

    image: bytes
    """The cubin. It has line info only if the variant has `line_info` set."""
    launch: Launch
    registers: int
    """Registers per thread."""
    spill_bytes: int
    """Spilled bytes per thread: the spill stores that ptxas reports."""
    compile_ms: int
    """Wall time of the compilation, in milliseconds."""
    key: str = field(default="", compare=False)
    """Cache key of the variant, computed by the process that compiled it; empty if unknown."""


def functions_of(variant: Variant) -> Iterator[tuple[str, FunctionRef]]:
    """Yield the functions that a variant takes as arguments, each as (name of its constexpr or param, function)."""
    # most variants have none, and a farm asks for those of each
    may_have = [pair for pair in variant.constexprs if isinstance(pair[1], (FunctionRef, tuple))]
    for name, value in sorted(may_have, key=lambda pair: pair[0]):
        yield from ((name, function) for function in functions_in(value))
    yield from _functions_signed(variant.signature)


@lru_cache(maxsize=4096)
def _functions_signed(signature: tuple[tuple[str, str], ...]) -> tuple[tuple[str, FunctionRef], ...]:
    return tuple((name, function) for name, kind in signature for function in _functions_typed(kind))


@lru_cache(maxsize=4096)
def _functions_typed(kind: str) -> tuple[FunctionRef, ...]:
    constants = (constant_of(leaf) for _, leaf in leaves(plain(kind), "") if is_constant(leaf))
    return tuple(function for constant in constants for function in functions_in(constant))


def functions_in(value: Value) -> Iterator[FunctionRef]:
    """Yield the functions in a constexpr's value, which can be a function or a tuple that contains some.

    In a recorded kernel, members of enums are among them; layouts of Gluon never are.
    """
    if isinstance(value, FunctionRef) and not value.name.startswith(LAYOUTS):
        yield value
    for item in value if isinstance(value, tuple) else ():
        yield from functions_in(item)


class Facts(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of the first line of an entry."""

    arch: str
    compile_ms: _Column
    image_bytes: Annotated[int, msgspec.Meta(ge=0, le=IMAGE_BYTES_MAX)]
    launch: msgspec.Raw
    layout: str
    registers: Annotated[int, msgspec.Meta(ge=0, le=255)]
    spill_bytes: _Column


_FACTS: Final = msgspec.json.Decoder(Facts)


def encode_compiled(compiled: CompiledVariant, arch: str) -> bytes:
    """Return a compiled variant as a cache entry: a line of canonical JSON with its facts, then its image.

    Args:
        compiled: the variant.
        arch: the arch that it was compiled for.
    """
    (launch,), (layout,) = encode_launches([compiled.launch])
    facts: dict[str, Json] = {
        "arch": arch,
        "compile_ms": compiled.compile_ms,
        "image_bytes": len(compiled.image),
        "launch": launch,
        "layout": layout,
        "registers": compiled.registers,
        "spill_bytes": compiled.spill_bytes,
    }
    return b"%b\n%b" % (canonical_json(facts), compiled.image)


def decode_compiled(data: bytes, arch: str) -> CompiledVariant:
    """Return the compiled variant of a cache entry. The entry is untrusted and checked as strictly as a bundle.

    Args:
        data: the entry.
        arch: the expected arch.

    Raises:
        BundleFormatError: the entry has another form, or is for another arch.
    """
    head, _, image = data.partition(b"\n")
    facts = facts_of(head)
    if facts.arch != arch:
        raise refuse("arch", f"expected an image for {arch}", got=ascii(facts.arch))
    if facts.image_bytes != len(image):
        raise refuse("size", f"expected an image of {facts.image_bytes} bytes", got=len(image))
    launch = read_launch(bytes(facts.launch), facts.layout, "")
    return CompiledVariant(image, launch, facts.registers, facts.spill_bytes, facts.compile_ms)


def facts_of(head: bytes) -> Facts:
    """Return the facts in the first line of an entry, without its line end.

    Raises:
        BundleFormatError: the line is no canonical JSON, or has other fields, or values out of range.
    """
    check_json(head, "")
    try:
        return _FACTS.decode(head)
    except msgspec.DecodeError as error:
        raise refuse("fields", "expected the facts of a compiled variant", got=str(error)) from None
