"""Read what Triton makes of warp-specialized kernels: what their loops carry from turn to turn, and who uses barriers' memory.

    python -m tests.support.gluon_code

compiles a sample of each such kernel with the Triton that is installed, and records how much loops carry, beside the test that
compares. Every supported Triton must come to the same: 3.6 does not carry what nothing but a loop within a loop is bounded
by, and says nothing of it; a kernel of several tiles then waits for ever, or sums up too much.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.variant import CompiledVariant, Variant

__all__ = ["RECORDED", "carried", "compile_gluon", "overwritten_barriers"]

RECORDED = Path(__file__).resolve().parents[1] / "aot/loops.json"
BITS, BARRIER_BYTES = 8, 8


def compile_gluon(variant: Variant, place: SourcePlace) -> tuple[CompiledVariant, Mapping[str, str] | None]:
    """Compile a variant; return the code of each stage of Triton too, by its name, or None if it is no Gluon."""
    import triton
    from nojit.aot.compile.triton.compiler import compile_variant

    stages: Mapping[str, str] | None = None
    compile_ = triton.compile

    def keep(source: Any, **named: Any) -> Any:
        nonlocal stages
        # within the scope of knobs that `compile_variant` opens
        triton.knobs.compilation.store_binary_only = False
        compiled = compile_(source, **named)
        if is_gluon(place):
            stages = compiled.asm
        return compiled

    with mock.patch.object(triton, "compile", keep):
        return compile_variant(variant, place), stages


def is_gluon(place: SourcePlace) -> bool:
    """Return whether a kernel is written in Gluon."""
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


SHARED = re.compile(r"@global_smem(?:, i32 (\d+))?\)")
STORE = re.compile(r"\s*store (?:volatile )?(<(\d+) x )?i(\d+)>? ")


def overwritten_barriers(code: str) -> list[int]:
    """List the offsets in shared memory of barriers that code in LLVM's language also stores other values to.

    Triton gives the memory of a barrier that nobody waits for to other values, and Triton 3.6 lets warps store them while
    one warp still initializes the barrier.

    >>> init = 'asm "mbarrier.init [$1], 1;"(i1 %p, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 64))'
    >>> store = "  store i32 %x, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 {}), align 4"
    >>> overwritten_barriers("\\n".join([init, store.format(60), store.format(68), store.format(72)]))
    [64]
    >>> overwritten_barriers("\\n".join([init, store.format(60), store.format(72)]))
    []
    """
    barriers, stored = set(), set()
    for line in code.splitlines():
        place = SHARED.search(line)
        if place is None:
            continue
        first = int(place[1] or 0)
        if "mbarrier.init" in line:
            barriers.add(first)
        elif store := STORE.match(line):
            size = -(-int(store[2] or 1) * int(store[3]) // BITS)
            stored |= set(range(first, first + size))
    return sorted(first for first in barriers if stored & set(range(first, first + BARRIER_BYTES)))


def main() -> None:
    """Record the counts of every sample."""
    from tests.aot.test_compile_manifests import SAMPLES

    stages = {one.name: compile_gluon(one.variant(), one.place)[1] for one in SAMPLES if is_gluon(one.place)}
    counts = {name: carried(code["ttgir"]) for name, code in stages.items() if code}
    lines = [f"  {json.dumps(name)}: {json.dumps(count)}" for name, count in counts.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
