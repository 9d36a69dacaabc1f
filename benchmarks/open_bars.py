"""Measure opening of a synthetic bundle of 10,000 variants, spread over kernels or all in one kernel.

Needs neither Triton nor a GPU. Every figure comes from a new process.

    python benchmarks/open_bars.py [--variants 10000] [--repeat 15]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from nojit.aot.manifest.archs import target_of
from nojit.aot.pack.bundle import BundleContent, pack
from nojit.aot.pack.tables import KernelContent
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.bundle.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.table.parts import Axis, Config, Launch, Param, Slot

_PROBE = """
import json, resource, sys, time
def now(): return time.perf_counter_ns() / 1e6
def peak_kb():  # of this program: ru_maxrss would count what the parent held when it forked
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
started = now()
from nojit import runtime
runtime.load
imported = now()
before = peak_kb()
bundle = runtime.load(sys.argv[1])
opened = now()
held = peak_kb() - before
bundle.kernel(sys.argv[2])
print(json.dumps([imported - started, opened - imported, now() - opened, held / 1024]))
"""


def synthetic_kernel(name: str, variants: int, chance: random.Random) -> KernelContent:
    """Return a kernel with the given number of variants: four types, sixteen configs, and as many hint sets as needed."""
    dtypes = ("fp16", "bf16", "fp32", "fp64")
    configs = [
        Config(
            (("BLOCK", 32 * (i + 1)),), (("num_warps", 4), ("num_stages", 3), ("num_ctas", 1), ("maxnreg", None)), ""
        )
        for i in range(16)
    ]
    params = tuple(Param(f"p{i}", constexpr=False) for i in range(12))
    rows = []
    for number in range(variants):
        dtype, config = dtypes[number % 4], configs[number // 4 % 16]
        mask = number // 64
        hints = tuple(sorted((f"p{i}", 16) for i in range(10) if mask >> i & 1))
        variant = Variant(
            kernel=name,
            arch="sm_90",
            axes=(("dtype", dtype), ("LEVEL", mask >> 10)),
            signature=tuple((param.name, f"*{dtype}" if i < 6 else "i32") for i, param in enumerate(params)),
            constexprs=(("LEVEL", mask >> 10), *config.constexprs),
            hints=hints,
            options=config.options,
            config=config,
            config_number=number // 4 % 16,
            derived=(),
        )
        layout = tuple(Slot(param, kind) for param, kind in variant.signature)
        layout += (Slot(GLOBAL_SCRATCH, "*i8"), Slot(PROFILE_SCRATCH, "*i8"))
        launch = Launch("kernel", layout, 4, 1, 1024 * (number % 64), 0, 1, 0, 1, cooperative=False, pdl=False)
        image = b"synthetic" + number.to_bytes(4, "little") + bytes(chance.choices(range(4), k=256))
        rows.append((variant, CompiledVariant(image, launch, number % 255, 0, 0)))
    axes = (
        Axis("dtype", is_type=True, values=dtypes),
        Axis("LEVEL", is_type=False, values=tuple(range(1 + (variants >> 16)))),
    )
    constexprs = (Param("LEVEL", constexpr=True), Param("BLOCK", constexpr=True))
    return KernelContent(name, params + constexprs, ("cdiv(p6, BLOCK)",), None, axes, (), tuple(rows))


def write(path: Path, kernels: list[KernelContent]) -> None:
    """Pack kernels into a bundle."""
    content = BundleContent(
        "synthetic", "1", target_of("sm_90"), (("triton", "synthetic"),), 13000, "0" * 64, tuple(kernels)
    )
    path.write_bytes(pack(content).data)


def main() -> None:
    """Print the figures with their bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=15)
    given = parser.parse_args()
    chance = random.Random(1)  # noqa: S311 - filler bytes
    with tempfile.TemporaryDirectory() as name:
        shapes = {"100 kernels": 100, "1 kernel": 1}
        for shape, kernels in shapes.items():
            path = Path(name) / f"{kernels}.nojit"
            write(path, [synthetic_kernel(f"k{i}", given.variants // kernels, chance) for i in range(kernels)])
            runs = []
            for _ in range(given.repeat):
                ran = subprocess.run([sys.executable, "-c", _PROBE, str(path), "k0"], check=True, capture_output=True)
                runs.append(json.loads(ran.stdout))
            imported, opened, first, held = (statistics.median(column) for column in zip(*runs, strict=True))
            print(
                f"{given.variants:,} variants in {shape}: import {imported:.1f} ms (bar 30), open {opened:.2f} ms (bar 5)"
                f" and {held:.1f} MB (bar 20), first kernel() {first:.2f} ms (bar 10)"
            )


if __name__ == "__main__":
    main()
