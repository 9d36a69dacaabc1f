"""Measure the build: time against a bare process pool, size against Triton's cache and solid LZMA, and reading of images.

    python benchmarks/build_bars.py time [--arch sm_90 ...] [--kernel K ...] [--jobs 2]
    python benchmarks/build_bars.py again [--variants 1024] [--sources 8]
    python benchmarks/build_bars.py shared [--variants 400] [--builds 16] [--cache s3://bucket/empty]
    python benchmarks/build_bars.py dask [--arch sm_90] [--kernel K ...] [--workers 4] [--repeat 3]
    python benchmarks/build_bars.py size BUNDLE [--every 1]
    python benchmarks/build_bars.py families [--variants 120] [--seed 0] [--family sm_100f ...]

`time` compiles the same variants twice with cold caches: in a bare `multiprocessing.Pool` that calls `triton.compile` as a
script would, and with `nojit build`. Then it builds again without changes. `again` writes a project of small kernels, builds it,
and times builds without changes: with the stamp, and with `--recheck`. `shared` starts several builds of such a project at once, on
one empty shared cache, each with a local cache of its own, then times one more. `dask` starts a scheduler and workers of one thread each
in an empty folder, from the installed nojit, and times cold builds of `manifests/` with them and with as many local processes, in turns; it
compares the bundles. Workers are new for each build: they have not imported Triton. `size` compares a bundle of `manifests/` (full profile)
with its cubins in Triton's cache, line info included: it compiles every n-th variant as Triton would, and extrapolates. `families` compiles
a random sample of `manifests/` (full profile), in one process, for a chip and for its family, and compares the sizes of the compressed images.
Needs no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import lzma
import multiprocessing
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

ROOT = Path(__file__).resolve().parent.parent
# of the images of a bundle
_LEVEL = 12


def tasks(archs: list[str], kernels: list[str], every: int) -> list[tuple[Any, Any]]:
    """List every n-th variant of the manifests, with the location of its source."""
    from nojit.aot.compile.triton import compiler
    from nojit.aot.manifest.reader import find_manifests
    from nojit.aot.plan.planner import make_plans

    plans = make_plans(find_manifests([ROOT / "manifests"]), archs, "full", compiler, kernels)
    return [(variant, kernel.place) for plan in plans for kernel in plan.kernels for variant in kernel.variants][
        ::every
    ]


def compile_bare(task: tuple[Any, Any]) -> int:
    """Compile as a script would, with Triton's defaults and cache; return the size of the cached cubin in bytes."""
    import triton
    from nojit.aot.compile.triton.compiler import ast_source, gpu_target

    variant, place = task
    options = {name: value for name, value in variant.options if value is not None}
    return len(
        triton.compile(ast_source(variant, place), target=gpu_target(variant.arch), options=options).asm["cubin"]
    )


def bare_pool(archs: list[str], kernels: list[str], every: int, jobs: int) -> dict[str, Any]:
    """Time the bare pool in a new process, imports included."""
    code = (
        "import json, sys, time; started = time.monotonic(); sys.path.insert(0, sys.argv[1]);"
        "import build_bars, multiprocessing; tasks = build_bars.tasks(*json.loads(sys.argv[2]));"
        "pool = multiprocessing.get_context('fork').Pool(int(sys.argv[3]));"
        "lengths = pool.map(build_bars.compile_bare, tasks, chunksize=1);"
        "print(json.dumps({'seconds': time.monotonic() - started, 'lengths': lengths}))"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-c",
            code,
            str(Path(__file__).parent),
            json.dumps([archs, kernels, every]),
            str(jobs),
        ]
        environment = os.environ | {"TRITON_CACHE_DIR": folder}
        ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout)


def nojit_build(archs: list[str], kernels: list[str], jobs: int, folder: Path) -> float:
    """Return the time of one `nojit build`, in seconds."""
    command = [sys.executable, "-m", "nojit", "build", str(ROOT / "manifests"), "--jobs", str(jobs), "-q"]
    command += ["--out", str(folder / "out"), "--cache-dir", str(folder / "cache")]
    command += [word for arch in archs for word in ("--arch", arch)]
    command += [word for kernel in kernels for word in ("--kernel", kernel)]
    started = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - started


def read_times_us(bundle: Path) -> list[float]:
    """Time the first read of every image, each in a newly opened bundle so that no group is cached."""
    from nojit.runtime.bundle.file import BundleFile

    with BundleFile(bundle) as probe:
        images = [(entry.name, number) for entry in probe.index.kernels for number in range(entry.images)]
    times = []
    for kernel, number in images:
        with BundleFile(bundle) as opened:
            opened.table(kernel)
            started = time.perf_counter_ns()
            opened.image(kernel, number)
            times.append((time.perf_counter_ns() - started) / 1000)
    return times


def time_bars(given: argparse.Namespace) -> None:
    """Print build times."""
    with tempfile.TemporaryDirectory() as name:
        cold = nojit_build(given.arch, given.kernel, given.jobs, Path(name))
        again = min(nojit_build(given.arch, given.kernel, given.jobs, Path(name)) for _ in range(3))
    bare = bare_pool(given.arch, given.kernel, 1, given.jobs)
    count = len(bare["lengths"])
    print(f"{count} variants, {given.jobs} processes, cold caches")
    print(f"build / bare pool    {cold / bare['seconds']:.3f}   ({cold:.1f} s / {bare['seconds']:.1f} s)   bar 1.15")
    print(f"rebuild, unchanged   {again:.2f} s for {count} variants   bar 1 s for 1,000")


KERNEL = """
import triton
import triton.language as tl


@triton.jit
def k(out_ptr, V: tl.constexpr):
    tl.store(out_ptr, tl.load(out_ptr) + V)
"""
MANIFEST = """
schema = 1

[bundle]
name = "again"
version = "1.0"
archs = ["sm_80"]

[[kernel]]
name = "k{number}"
source = "k{number}.py:k"
params = {{ out_ptr = "*fp32" }}
matrix = {{ V = {values} }}
"""


def write_project(folder: Path, sources: int, variants: int) -> None:
    """Write sources of one small kernel each, with `variants` variants in total."""
    values = list(range(variants // sources))
    for number in range(sources):
        (folder / f"k{number}.py").write_text(KERNEL)
        (folder / f"k{number}.toml").write_text(MANIFEST.format(number=number, values=values))


def again_bars(given: argparse.Namespace) -> None:
    """Print the cost of builds without changes: elapsed time, and CPU time of all processes."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), given.sources, given.variants)
        command = [sys.executable, "-m", "nojit", "build", name, "--jobs", str(given.jobs), "-q"]
        command += ["--out", f"{name}/out", "--cache-dir", f"{name}/cache"]
        subprocess.run(command, check=True)
        print(f"{given.variants} variants of {given.sources} sources, nothing changed, best of 5")
        for words, bar in (([], "   bar 1 s for 1,000"), (["--recheck"], "")):
            wall, cpu = map(min, zip(*(timed([*command, *words]) for _ in range(5)), strict=True))
            print(f"{' '.join(words) or 'with the stamp':<15} {wall:.2f} s, CPU time {cpu:.2f} s{bar}")


def shared_bars(given: argparse.Namespace) -> None:
    """Print how often builds on one empty shared cache compile, and the time of one more build."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), given.sources, given.variants)
        url = given.cache or f"file://{name}/shared"
        words = ["--jobs", str(given.jobs), "--json", "--cache", url]
        commands = [
            [
                sys.executable,
                "-m",
                "nojit",
                "build",
                name,
                *words,
                "--out",
                f"{place}/out",
                "--cache-dir",
                f"{place}/cache",
            ]
            for place in (f"{name}/{number}" for number in range(given.builds + 1))
        ]
        started = time.monotonic()
        running = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands[:-1]]
        uses = [json.loads(build.communicate()[0])["cache"] for build in running]
        seconds = time.monotonic() - started
        misses, faults = (sum(use[count] for use in uses) for count in ("misses", "faults"))
        print(
            f"{given.builds} builds at once    {misses / given.variants:.3f} compilations of each of {given.variants} variants, "
            f"{faults} faults, {seconds:.1f} s   bar 1.1"
        )
        started = time.monotonic()
        use = json.loads(subprocess.check_output(commands[-1]))["cache"]
        seconds = time.monotonic() - started
        print(
            f"one more build      {use['shared_hits']} of {given.variants} from the cache in {seconds:.1f} s   bar 15 s"
        )


def dask_bars(given: argparse.Namespace) -> None:
    """Print the time of a build on Dask's workers against one with as many local processes, and whether the bundles are equal."""
    ratios, walls, count = [], {"local": [], "dask": []}, 0
    with tempfile.TemporaryDirectory() as name:
        for number in range(given.repeat):
            folder = Path(name) / str(number)
            made: dict[str, dict[str, bytes]] = {}
            order = ("local", "dask") if number % 2 == 0 else ("dask", "local")
            for way in order:
                with contextlib.ExitStack() as stack:
                    words = []
                    if way == "dask":
                        address = stack.enter_context(dask_farm(folder / "farm", given.workers))
                        words = ["--executor", f"dask://{address}"]
                    seconds, count = bars_build(given, folder / way, words)
                walls[way].append(seconds)
                made[way] = {path.name: path.read_bytes() for path in (folder / way / "out").glob("*.nojit")}
                print(f"{way:<6} {seconds:7.1f} s   {count} variants", flush=True)
            ratios.append(walls["dask"][-1] / walls["local"][-1])
            print(
                f"bundles are {'equal' if made['dask'] == made['local'] and made['dask'] else 'NOT EQUAL'}", flush=True
            )
    local, dask = (statistics.median(walls[way]) for way in ("local", "dask"))
    print(f"{count} variants, {given.workers} workers of one thread, cold caches, median of {given.repeat}")
    print(
        f"dask / local pool    {statistics.median(ratios):.3f}   ({dask:.1f} s / {local:.1f} s; {min(ratios):.3f} to {max(ratios):.3f})   bar 1.1"
    )


def bars_build(given: argparse.Namespace, folder: Path, words: list[str]) -> tuple[float, int]:
    """Build with cold caches; return the seconds and the number of variants."""
    command = [sys.executable, "-m", "nojit", "build", str(ROOT / "manifests"), "--jobs", str(given.workers), "--json"]
    command += ["--profile", given.profile, "--out", str(folder / "out"), "--cache-dir", str(folder / "cache"), *words]
    command += [word for arch in given.arch for word in ("--arch", arch)]
    command += [word for kernel in given.kernel for word in ("--kernel", kernel)]
    started = time.monotonic()
    document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    seconds = time.monotonic() - started
    return seconds, sum(len(report["variants"]) for report in document["bundles"])


@contextlib.contextmanager
def dask_farm(folder: Path, workers: int) -> Iterator[str]:
    """Start a scheduler and workers in an empty folder; yield the scheduler's host and port."""
    folder.mkdir(parents=True)
    told = folder / "scheduler.json"
    environment = os.environ | {"NOJIT_CACHE_DIR": str(folder / "digests")}
    dask = [sys.executable, "-m", "dask"]
    commands = [[*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(told)]]
    commands += [[*dask, "worker", "--scheduler-file", str(told), "--nthreads", "1", "--no-nanny"]] * workers
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "log").open("wb") as log:
            for command in commands:
                words = [*command, "--no-dashboard"]
                started.append(subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log))
                while not told.exists():
                    time.sleep(0.05)
        address = json.loads(told.read_text())["address"].removeprefix("tcp://")
        wait_for_workers(address, workers)
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_for_workers(address: str, workers: int) -> None:
    """Wait until a scheduler has its workers."""
    code = "import sys; from distributed import Client; Client(sys.argv[1], timeout=60).wait_for_workers(int(sys.argv[2]), 120)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, f"tcp://{address}", str(workers)], check=True)


def timed(command: list[str]) -> tuple[float, float]:
    """Run a command; return its elapsed seconds, and the CPU seconds of it and its children."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size_bars(given: argparse.Namespace) -> None:
    """Print a bundle's size, and the time to read an image."""
    from nojit.runtime.bundle.file import BundleFile

    with BundleFile(given.bundle) as opened:
        arch = opened.index.target.arch
        tables = [opened.table(name) for name in opened.kernels]
        images = list(opened.images())
    variants = sum(len(table) for table in tables)
    bare = bare_pool([arch], [], given.every, given.jobs)["lengths"]
    cached = sum(bare) * variants / len(bare)
    solid = len(lzma.compress(b"".join(images), preset=9 | lzma.PRESET_EXTREME))
    size, times = given.bundle.stat().st_size, read_times_us(given.bundle)
    print(f"{variants} variants, {len(images)} distinct images, {sum(map(len, images)):,} bytes without line info")
    print(
        f"as Triton caches them   {cached / size:.2f} x the bundle   ({cached:,.0f} / {size:,} bytes, {len(bare)} variants compiled)   bar 15"
    )
    print(f"solid LZMA              the bundle is {size / solid:.3f} x   ({solid:,} bytes)   bar 1.6")
    print(
        f"read one image          median {statistics.median(times):.0f} us, worst {max(times):.0f} us of {len(times)}   bar 1,000 us"
    )


def family_bars(given: argparse.Namespace) -> None:
    """Print the compressed size of a sample's images for each family, relative to those of its chip."""
    from nojit.aot.compile.triton import compiler
    from nojit.runtime.errors import CompileError

    for family in given.family or ["sm_100f", "sm_120f"]:
        chip = family.removesuffix("f")
        known = tasks([chip], [], 1)
        chosen = random.Random(given.seed).sample(known, min(given.variants, len(known)))  # noqa: S311 - no secret
        sizes, alike, refused = {chip: 0, family: 0}, 0, []
        for variant, place in chosen:
            pair = [dataclasses.replace(variant, arch=arch) for arch in sizes]
            try:
                images = [compiler.compile_variant(each, place).image for each in pair]
            except CompileError as error:
                refused.append(f"{error.where}: {error.got}")
                continue
            alike += len({*map(len, images)}) == 1
            for arch, image in zip(sizes, images, strict=True):
                sizes[arch] += len(zstandard.ZstdCompressor(level=_LEVEL).compress(image))
        print(
            f"{family:<8} {sizes[family] / sizes[chip]:.4f} x {chip}   ({sizes[family]:,} / {sizes[chip]:,} bytes of "
            f"{len(chosen) - len(refused)} of {len(known):,} variants, {alike} of one length)   bar 1.15"
        )
        print(*(f"not compiled: {each}" for each in refused), sep="\n", flush=True)


def main() -> None:
    """Print the figures with their bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    modes = parser.add_subparsers(required=True)
    timing = modes.add_parser("time")
    timing.add_argument("--arch", action="append", default=[])
    timing.add_argument("--kernel", action="append", default=[])
    timing.set_defaults(measure=time_bars)
    repeating = modes.add_parser("again")
    repeating.add_argument("--variants", type=int, default=1024)
    repeating.add_argument("--sources", type=int, default=8)
    repeating.set_defaults(measure=again_bars)
    sharing = modes.add_parser("shared")
    sharing.add_argument("--variants", type=int, default=400)
    sharing.add_argument("--sources", type=int, default=1)
    sharing.add_argument("--builds", type=int, default=16)
    sharing.add_argument("--cache", default="", help="URL of an empty shared cache; default: a new folder")
    sharing.set_defaults(measure=shared_bars)
    spreading = modes.add_parser("dask")
    spreading.add_argument("--arch", action="append", default=[])
    spreading.add_argument("--kernel", action="append", default=[])
    spreading.add_argument("--profile", default="core")
    spreading.add_argument("--workers", type=int, default=4)
    spreading.add_argument("--repeat", type=int, default=3)
    spreading.set_defaults(measure=dask_bars)
    sizing = modes.add_parser("size")
    sizing.add_argument("bundle", type=Path)
    sizing.add_argument("--every", type=int, default=1, help="compile only every n-th variant, and scale")
    sizing.set_defaults(measure=size_bars)
    relating = modes.add_parser("families")
    relating.add_argument("--family", action="append", help="default: sm_100f and sm_120f")
    relating.add_argument("--variants", type=int, default=120, help="size of the sample of each family")
    relating.add_argument("--seed", type=int, default=0)
    relating.set_defaults(measure=family_bars)
    given = parser.parse_args()
    given.measure(given)


if __name__ == "__main__":
    main()
