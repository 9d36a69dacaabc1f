"""Count what the loops of warp-specialized kernels carry from turn to turn, in the code that Triton makes of them.

    python -m tests.support.loops

compiles a sample of each such kernel with the Triton that is installed, and records the counts beside the test that compares
with them. Every supported Triton must come to the same: 3.6 does not carry what nothing but a loop within a loop is bounded
by, and says nothing of it; a kernel of several tiles then waits for ever, or sums up too much.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.variant import CompiledVariant, Variant

__all__ = ["RECORDED", "compile_and_count"]

RECORDED = Path(__file__).resolve().parents[1] / "aot/loops.json"


def compile_and_count(variant: Variant, place: SourcePlace) -> tuple[CompiledVariant, list[int] | None]:
    """Compile a variant, and count what each of its loops carries, in the order in which they begin; None if it is no Gluon."""
    import triton
    from nojit.aot.compile.triton.compiler import compile_variant

    counts: list[int] | None = None
    compile_ = triton.compile

    def count(source: Any, **named: Any) -> Any:
        nonlocal counts
        # within the scope of knobs that `compile_variant` opens
        triton.knobs.compilation.store_binary_only = False
        compiled = compile_(source, **named)
        if _is_gluon(place):
            counts = carried(compiled.asm["ttgir"])
        return compiled

    with mock.patch.object(triton, "compile", count):
        return compile_variant(variant, place), counts


def _is_gluon(place: SourcePlace) -> bool:
    module, _, name = place.spelling.rpartition(":")
    return bool(getattr(importlib.import_module(module), name).is_gluon())


def carried(code: str) -> list[int]:
    """Count what each loop carries.

    >>> carried("scf.for %i = %a to %b step %c  : i32 {")
    [0]
    >>> carried("%x:2 = scf.for %i = %a to %b step %c iter_args(%y = %p, %z = %q) -> (i32, i32)  : i32 {")
    [2]
    """
    loops = re.findall(r"scf\.for [^\n]*", code)
    return [loop.partition("iter_args")[2].count(" = ") for loop in loops]


def main() -> None:
    """Record the counts of every sample."""
    from tests.aot.test_compile_manifests import SAMPLES

    counts = {one.name: compile_and_count(one.variant(), one.place)[1] for one in SAMPLES if _is_gluon(one.place)}
    lines = [f"  {json.dumps(name)}: {json.dumps(count)}" for name, count in counts.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
