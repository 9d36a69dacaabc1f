"""One kernel with its types, hints, constexprs and options, for one architecture: the unit of a build."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from nojit.aot.types import NONE, plain
from nojit.runtime.table import Config, Launch, Slot, TensorMap
from nojit.runtime.type_names import leaves
from nojit.runtime.values import FunctionRef, Value, spell

__all__ = ["CompiledVariant", "Variant", "decode_compiled", "encode_compiled", "functions_in"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel + types + hints + constexprs + options for one target, before it is compiled."""

    kernel: str
    arch: str
    axes: tuple[tuple[str, Value], ...]
    """The point of the matrix: type axes and constexprs that a caller chooses."""
    signature: tuple[tuple[str, str], ...]
    """Type of each runtime param, in the manifest's order; ``none`` where None is compiled in. Members of tuples may be
    named."""
    constexprs: tuple[tuple[str, Value], ...]
    """Every constexpr: from the matrix, the config, the derived ones."""
    hints: tuple[tuple[str, int], ...]
    """(param or member of a tuple, 16 or 1), sorted."""
    options: tuple[tuple[str, Value], ...]
    """Every compiler option, spelled out, sorted."""
    config: Config
    """The config that it runs with, as the runtime sees it."""
    config_number: int
    """Place of the config in the manifest, for messages."""
    derived: tuple[tuple[str, Value], ...]
    """Derived constexprs and the values that were compiled in."""
    # not in its repr, which goes into the inputs of bundles: a twin with line info is known by those of its bundle
    line_info: bool = field(default=False, repr=False)
    """Whether the image says which line of the source each instruction comes from."""

    def label(self) -> str:
        """Describe it in one line, for messages and reports."""
        words = [f"{name}={spell(value)}" for name, value in self.axes]
        words += [
            f"{name}={spell(value)}"
            for name, value in self.config.constexprs + self.config.options + self.derived
            if value is not None
        ]
        absent = (leaf for param, kind in self.signature for leaf in leaves(plain(kind), param))
        words += [f"{path}=none" for path, kind in absent if kind == NONE]
        words += [f"{param}:{hint}" for param, hint in self.hints]
        return f"{self.kernel} {self.arch} {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class CompiledVariant:
    """One variant's machine code and the launch facts that came with it."""

    image: bytes
    """The cubin; with line info only if the variant asks for it."""
    launch: Launch
    registers: int
    """Registers of a thread."""
    spill_bytes: int
    """Bytes that a thread spills, stores as ptxas counts them."""
    compile_ms: int
    """Wall time that the compiler took when the image was made."""


def functions_in(value: Value) -> Iterator[FunctionRef]:
    """List the functions that a value names."""
    if isinstance(value, FunctionRef):
        yield value
    for item in value if isinstance(value, tuple) else ():
        yield from functions_in(item)


def encode_compiled(compiled: CompiledVariant) -> bytes:
    """Lay out a compiled variant for the cache: length of the facts, the facts as JSON, the image."""
    facts = {
        "launch": asdict(compiled.launch),
        "registers": compiled.registers,
        "spill_bytes": compiled.spill_bytes,
        "compile_ms": compiled.compile_ms,
    }
    text = json.dumps(facts, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "little") + text + compiled.image


def decode_compiled(data: bytes) -> CompiledVariant:
    """Read what `encode_compiled` wrote; the cache has checked that the bytes are those."""
    end = 4 + int.from_bytes(data[:4], "little")
    facts = json.loads(data[4:end])
    launch = facts.pop("launch")
    layout = tuple(Slot(**slot) for slot in launch.pop("layout"))
    maps = tuple(TensorMap(**{**each, "block": tuple(each["block"])}) for each in launch.pop("tensor_maps", ()))
    return CompiledVariant(image=data[end:], launch=Launch(layout=layout, tensor_maps=maps, **launch), **facts)
