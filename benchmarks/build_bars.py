"""Measure the build: wall time against a bare pool, size against Triton's cache and solid LZMA, rebuild, image reads.

Compiles every variant of the given manifests for one arch twice with cold caches: once in a bare `multiprocessing.Pool`
that calls `triton.compile` as a script would, once through `nojit build`. Needs no GPU.

    python benchmarks/build_bars.py [--arch sm_90] [--profile full] [--jobs 2] [--limit N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _tasks(arch: str, profile: str, limit: int | None) -> list[tuple[Any, Any]]:
    from nojit.aot import compiler
    from nojit.aot.manifest import find_manifests
    from nojit.aot.plan import make_plans

    plans = make_plans(find_manifests([ROOT / "manifests"]), [arch], profile, compiler)
    tasks = [(variant, kernel.place) for plan in plans for kernel in plan.kernels for variant in kernel.variants]
    return tasks[:limit]


def _bare(task: tuple[Any, Any]) -> tuple[str, int]:
    """Compile as a script would: Triton's defaults, Triton's own cache folder."""
    import triton
    from nojit.aot.compiler import ast_source, gpu_target

    variant, place = task
    options = {name: value for name, value in variant.options if value is not None}
    compiled = triton.compile(ast_source(variant, place), target=gpu_target(variant.arch), options=options)
    image = compiled.asm["cubin"]
    return hashlib.sha256(image).hexdigest(), len(image)


def bare_pool(arch: str, profile: str, jobs: int, limit: int | None, folder: Path) -> dict[str, Any]:
    """Time the bare pool in a process of its own, imports included."""
    code = (
        "import json, sys, time; started = time.monotonic(); sys.path.insert(0, sys.argv[1]);"
        "import build_bars; tasks = build_bars._tasks(sys.argv[2], sys.argv[3], json.loads(sys.argv[5]));"
        "import multiprocessing; pool = multiprocessing.get_context('fork').Pool(int(sys.argv[4]));"
        "done = pool.map(build_bars._bare, tasks, chunksize=1);"
        "print(json.dumps({'seconds': time.monotonic() - started, 'variants': len(tasks),"
        " 'cubin_bytes': sum(length for _, length in done)}))"
    )
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "triton")}
    command = [sys.executable, "-c", code, str(Path(__file__).parent), arch, profile, str(jobs), json.dumps(limit)]
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout)


def nojit_build(arch: str, profile: str, jobs: int, folder: Path) -> float:
    """Time one run of the command."""
    command = [sys.executable, "-m", "nojit.aot.cli", "build", str(ROOT / "manifests"), "--arch", arch]
    command += [
        "--profile",
        profile,
        "--jobs",
        str(jobs),
        "--out",
        str(folder / "out"),
        "--cache-dir",
        str(folder / "cache"),
        "-q",
    ]
    started = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - started


def read_times_us(bundle: Path) -> list[float]:
    """Time the first read of every image, each in a bundle opened afresh so that no group is at hand."""
    from nojit.runtime.bundle import BundleFile

    with BundleFile(bundle) as probe:
        count = probe.index.image_count
    times = []
    for number in range(count):
        with BundleFile(bundle) as opened:
            opened.groups()
            started = time.perf_counter_ns()
            opened.image(number)
            times.append((time.perf_counter_ns() - started) / 1000)
    return times


def main() -> None:
    """Print the bars and what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--profile", default="full", choices=["core", "full"])
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--limit", type=int, help="compile only so many variants in the bare pool, and skip the build")
    given = parser.parse_args()
    from nojit.runtime.bundle import BundleFile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cold = nojit_build(given.arch, given.profile, given.jobs, folder)
        again = min(nojit_build(given.arch, given.profile, given.jobs, folder) for _ in range(3))
        bare = bare_pool(given.arch, given.profile, given.jobs, given.limit, folder)
        (bundle,) = (folder / "out").glob("*.nojit")
        with BundleFile(bundle) as opened:
            images = list(opened.images())
        solid = len(lzma.compress(b"".join(images), preset=9 | lzma.PRESET_EXTREME))
        size = bundle.stat().st_size
        times = read_times_us(bundle)
        print(f"variants            {bare['variants']}, {len(images)} distinct images, {sum(map(len, images)):,} bytes")
        print(
            f"build / bare pool   {cold / bare['seconds']:.3f}   ({cold:.1f} s / {bare['seconds']:.1f} s, {given.jobs} processes)   bar 1.15"
        )
        print(f"rebuild, unchanged  {again:.2f} s   bar 1 s for 1,000 variants")
        print(
            f"Triton cubins       {bare['cubin_bytes'] / size:.2f} x the bundle   ({bare['cubin_bytes']:,} / {size:,} bytes)   bar 15"
        )
        print(f"solid LZMA          bundle is {size / solid:.3f} x   ({solid:,} bytes)   bar 1.6")
        print(f"read one image      median {statistics.median(times):.0f} us, worst {max(times):.0f} us   bar 1,000 us")


if __name__ == "__main__":
    main()
