"""Measure how busy a Dask scheduler keeps simulated workers, by the number of workers and the time of a job.

    python benchmarks/farm_simulation.py [--quick] [--svg docs/farm.svg]
    python benchmarks/farm_simulation.py --draw FIGURES --svg docs/farm.svg

The scheduler is real, and so are the build's loop, executor and cache; all get real jobs. The workers are real workers of Dask too, but
hundreds of them share a process, and instead of compiling they sleep for times as measured in a build of `manifests/`, and return images of
random bytes. Each worker has one thread. Needs no GPU, no Triton, and about ten minutes; run the script on a machine with 16 cores. On fewer,
the processes of the simulated workers take them from scheduler and build: compare CPU times, not the busy share. `FARM_FASTER=10` makes the
workers ten times as fast, so that 100 give the messages of 1,000.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# the mean of 15,934 variants, 100 core-minutes, and every twentieth part of the times of 392 of them, over their mean
MEAN_S = 0.38
SHAPE = (
    0.11,
    0.20,
    0.26,
    0.32,
    0.39,
    0.45,
    0.52,
    0.58,
    0.65,
    0.72,
    0.81,
    0.90,
    1.01,
    1.13,
    1.28,
    1.46,
    1.70,
    2.04,
    2.52,
    3.21,
)
# of a variant in the answer to a job, which is compressed: what a variant takes in a bundle
IMAGE_BYTES = 8600
# what each of the workers of a process would do many times a second, and a worker alone hardly notices
CONFIG = {
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.profile.interval": "60s",
    "distributed.worker.profile.cycle": "60s",
}
# for which the scheduler is watched while its workers wait
IDLE_S = 5.0
# how much faster than measured the workers are: with few of them, the rate of jobs of many
FASTER = float(os.environ.get("FARM_FASTER", "1"))
# of a closure, uncompressed: the median of `manifests/`
CLOSURE = {
    "definitions": [{"text": (ROOT / "kernels/pointwise/kernel_generated.py").read_text(encoding="utf-8")[:10_000]}]
}
TOOLS = (("simulation", "1"),)
NOJIT = "simulation"


@dataclass(slots=True)
class Spent:
    """The times of one simulated worker, in seconds. Processes of one machine share the clock."""

    began_at: float
    """When its first job began."""
    ended_at: float = 0.0
    """When its last job ended."""
    working_s: float = 0.0
    """In jobs."""
    asleep_s: float = 0.0
    """Asleep, as jobs asked: the rest of their time is the simulation's own work, and waits for its processor."""


# by the address of the worker; of all workers of this process
SPENT: dict[str, Spent] = {}


def seconds_of(key: str) -> float:
    """Return the simulated compile time of a variant."""
    shape = SHAPE[int(key[:8], 16) % len(SHAPE)]
    return MEAN_S * shape / (sum(SHAPE) / len(SHAPE))


async def simulate(message: bytes) -> bytes:
    """Sleep for as long as a job takes, and return results of a usual size."""
    from distributed import get_worker
    from nojit.aot.remote.messages import decode_job, encode_results
    from nojit.aot.variants.variant import CompiledVariant
    from nojit.runtime.table.parts import Launch

    started = time.monotonic()
    spent = SPENT.setdefault(get_worker().address, Spent(started))
    job = decode_job(message)
    launch = Launch("k", (), 4, 1, 0, 0, 1, 0, 1, False, False, ())
    found = []
    for key, _ in job.variants:
        seconds = seconds_of(key)
        await asyncio.sleep(seconds / FASTER)
        found.append((key, CompiledVariant(os.urandom(IMAGE_BYTES), launch, 32, 0, round(seconds * 1000))))
        spent.asleep_s += seconds / FASTER
    results = encode_results(found, job.arch)
    spent.ended_at = time.monotonic()
    spent.working_s += spent.ended_at - started
    return results


async def describe(question: bytes) -> bytes:
    """Return what every simulated worker has."""
    from nojit.aot.remote.messages import Description, decode_setup, encode_description

    _, archs = decode_setup(question)
    return encode_description(Description(NOJIT, "simulated", dict.fromkeys(archs, TOOLS)))


async def work(address: str, count: int) -> None:
    """Run simulated workers until a line is read, and print their times."""
    import dask
    import farm_simulation
    from distributed import Worker

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    with tempfile.TemporaryDirectory() as folder, dask.config.set(CONFIG):
        workers = [
            Worker(address, nthreads=1, memory_limit=0, dashboard=False, local_directory=folder) for _ in range(count)
        ]
        for start in range(0, count, 100):
            await asyncio.gather(*workers[start : start + 100])
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps([asdict(spent) for spent in farm_simulation.SPENT.values()]), flush=True)
        await asyncio.gather(*(worker.finished() for worker in workers))


class LocalCompiler:
    """The compiler of the simulated build."""

    def __init__(self) -> None:
        from nojit.aot.compile.sources.captured import Captured
        from nojit.runtime.base.strict_json import canonical_json

        self._captured = Captured("0" * 64, (), (("0" * 64, canonical_json(CLOSURE)),), ())

    def captured(self, *_: object) -> Any:
        """Return the closure of every kernel."""
        return self._captured

    def toolchain(self, _arch: str) -> Any:
        """Return the toolchain of every machine."""
        return TOOLS

    def check_compiled(self, *_: object) -> None:
        """Take every image."""

    @property
    def compile_variant(self) -> Callable[..., Any]:
        """Refuse to compile here."""

        def refuse(*_: object) -> Any:
            raise AssertionError("every variant is simulated elsewhere")

        return refuse


def jobs_of(count: int) -> list[Any]:
    """Return variants of kernels with 100 variants each."""
    from nojit.aot.compile.job_runner import Job
    from nojit.aot.plan.function_facts import SourcePlace
    from nojit.aot.variants.variant import Variant
    from nojit.runtime.table.parts import Config

    options = tuple((name, 4) for name in ("num_ctas", "num_stages", "num_warps"))
    config = Config((("BLOCK_M", 128), ("BLOCK_N", 64)), options, "")
    signature = tuple((f"param_{number}", "*fp16") for number in range(12))
    found = []
    for number in range(count):
        place = SourcePlace(f"kernels.k{number // 100}:kernel", Path("/"), f"manifest kernel {number // 100}")
        variant = Variant(
            "kernel",
            "sm_90",
            (("D", number),),
            signature,
            (("D", number), *config.constexprs),
            (),
            options,
            config,
            0,
            (),
        )
        found.append(Job(variant, place, hashlib.sha256(str(number).encode()).hexdigest()))
    return found


def measure(address: str, slots: int, variants: int, job_s: float, writes: bool) -> dict[str, float]:
    """Build with the simulated workers; return figures of the build.

    Args:
        address: Dask's address of the scheduler.
        slots: number of workers.
        variants: number of variants.
        job_s: time that a job should take, in seconds.
        writes: whether the build writes each image to a local cache.
    """
    import farm_simulation
    from nojit.aot.cache.cache import Cache
    from nojit.aot.compile import job_runner
    from nojit.aot.remote.build_facts import Build, Limits
    from nojit.aot.remote.connection import DaskConnection
    from nojit.aot.remote.executor import RemoteExecutor
    from nojit.aot.remote.messages import Setup

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    jobs = jobs_of(variants)
    build = Build(LocalCompiler(), Setup(NOJIT, None, 300.0), ("sm_90",), lambda: ThreadPoolExecutor(1), tell)
    limits = Limits(job_s=job_s, workers_s=600, late_s=120)
    run, describe = farm_simulation.simulate, farm_simulation.describe
    executor = RemoteExecutor(lambda: DaskConnection.open(address, 60, run, describe), address, build, limits)
    with executor, tempfile.TemporaryDirectory() as folder:
        executor.expect(["sm_90"])
        # meet the workers, as they are met while a build plans
        until = time.monotonic() + 300
        while executor.slots < slots:
            if time.monotonic() > until:
                raise SystemExit(f"expected {slots} workers within 300 s, got {executor.slots}")
            time.sleep(0.1)
        time.sleep(IDLE_S)
        print("begin", flush=True)
        used, started = time.process_time(), time.monotonic()
        cache = Cache(Path(folder))
        if not writes:
            cache.put_entry = lambda *_: None  # type: ignore[method-assign] # the time of a file depends on the file system
        # `nullcontext`, since the figures of the executor are read below
        here, opened = build.compiler.compile_variant, lambda: contextlib.nullcontext(executor)
        failed, ends = 0, []
        for finished in job_runner.run(jobs, here, opened, cache, keep_going=True):
            failed += finished.error is not None
            ends.append(time.monotonic() - started)
        seconds, used = time.monotonic() - started, time.process_time() - used
        sent = executor.jobs_sent
    ideal = sum(seconds_of(job.key) for job in jobs) / slots / FASTER
    return {
        "workers": slots,
        "job_s": job_s,
        "variants": variants,
        "failed": failed,
        "jobs": sent,
        "started_at": started,
        "seconds": round(seconds, 1),
        # until the first result came, and from 99% of the results to the last one
        "first_s": round(ends[0], 1),
        "last_s": round(seconds - ends[len(ends) * 99 // 100], 1),
        "busy": round(100 * ideal / seconds, 1),
        "client_cpu_s": round(used, 1),
    }


def run(case: tuple[int, int, float], processes: int, writes: bool, profile: Path | None) -> dict[str, float]:
    """Start a scheduler and workers, and measure one build in a process of its own.

    Args:
        case: number of workers, number of variants, time that a job should take in seconds.
        processes: number of processes that share the workers.
        writes: whether the build writes each image to a local cache.
        profile: file for a profile of the scheduler; None for no profile.
    """
    slots, variants, job_s = case
    known = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), known]))}
    here = [sys.executable, str(Path(__file__).resolve())]
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "scheduler.json"
        log = (Path(folder) / "log").open("wb")
        profiler = [] if profile is None else ["-m", "cProfile", "-o", str(profile)]
        command = [
            sys.executable,
            *profiler,
            "-m",
            "dask",
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
        ]
        started = [subprocess.Popen([*command, "--scheduler-file", str(told)], env=environment, stdout=log, stderr=log)]
        try:
            while not told.exists():
                if started[0].poll() is not None:
                    raise SystemExit((Path(folder) / "log").read_text())
                time.sleep(0.1)
            address = json.loads(told.read_text())["address"]
            for number in range(processes):
                count = slots // processes + (number < slots % processes)
                words = [*here, "--work", address, str(count)]
                started.append(
                    subprocess.Popen(
                        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                    )
                )
            for process in started[1:]:
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    raise SystemExit((Path(folder) / "log").read_text())
            words = [*here, "--measure", address, str(slots), str(variants), str(job_s)] + ["--write"] * writes
            started.insert(1, subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
            output = started[1].stdout
            # the build is about to begin
            if output is None or output.readline() != "begin\n":
                raise SystemExit((Path(folder) / "log").read_text())
            before = [cpu_s(process.pid) for process in started]
            found: dict[str, float] = json.loads(output.read())
            after = [cpu_s(process.pid) for process in [started[0], *started[2:]]]
            spent = [one for process in started[2:] for one in times_of(process)]
            waited = cpu_s(started[0].pid)
            time.sleep(IDLE_S)
            idle = (cpu_s(started[0].pid) - waited) / IDLE_S
            # a profile is written at an orderly end
            started[0].send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started[0].wait(IDLE_S)
        finally:
            for process in started:
                process.kill()
                process.wait()
        log.close()
    idles = idle_times(found.pop("started_at"), found, spent)
    return found | idles | shares(found, after[0] - before[0], sum(after[1:]) - sum(before[2:]), idle)


def times_of(process: subprocess.Popen[str]) -> list[Spent]:
    """Return the times of the workers of a process."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("expected a process with pipes")
    process.stdin.write("end\n")
    process.stdin.flush()
    return [Spent(**fields) for fields in json.loads(process.stdout.readline())]


def idle_times(started_at: float, found: dict[str, float], spent: list[Spent]) -> dict[str, float]:
    """Return for how long a worker did not sleep, in the mean: what keeps it from being busy.

    Args:
        started_at: when the build began.
        found: figures of the build.
        spent: the times of each worker that got jobs.
    """
    ended_at, count = started_at + found["seconds"], len(spent)
    between = [one.ended_at - one.began_at - one.working_s for one in spent]
    return {
        "used_workers": count,
        # until its first job, between its jobs, and after its last one
        "idle_start_s": round(sum(one.began_at - started_at for one in spent) / count, 2),
        "idle_between_s": round(sum(between) / count, 2),
        "idle_end_s": round(sum(ended_at - one.ended_at for one in spent) / count, 2),
        # in jobs, awake: with more processes for the same workers, it gets less
        "awake_s": round(sum(one.working_s - one.asleep_s for one in spent) / count, 2),
    }


def shares(found: dict[str, float], scheduler_s: float, workers_s: float, idle: float) -> dict[str, float]:
    """Return what the CPU times of a build say about larger farms.

    Args:
        found: figures of the build.
        scheduler_s: CPU time of the scheduler meanwhile, in seconds.
        workers_s: CPU time of all processes of workers, in seconds.
        idle: share of a core that the scheduler uses while its workers wait.
    """
    # of each worker: as long as the build would take if all of them were busy
    work_s = found["busy"] / 100 * found["seconds"]
    jobs_s = max(scheduler_s - idle * found["seconds"], 0.0)
    return {
        "scheduler_cpu_s": round(scheduler_s, 1),
        "scheduler_idle": round(idle, 3),
        # CPU time
        "scheduler_ms_per_job": round(1000 * jobs_s / found["jobs"], 2),
        "build_ms_per_job": round(1000 * found["client_cpu_s"] / found["jobs"], 2),
        "workers_cpu_s": round(workers_s, 1),
        # of a core, while all workers are busy
        "scheduler_share": round(jobs_s / work_s + idle, 3),
        "build_share": round(found["client_cpu_s"] / work_s, 3),
    }


def cpu_s(process: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def picture(found: list[dict[str, float]]) -> str:
    """Return the chart of the figures."""
    from nojit.aot.bench.plot import Bar, Chart, Group, svg

    def bars(name: str, value: Callable[[dict[str, float]], tuple[float, str]]) -> tuple[Bar, ...]:
        made = []
        for row in found:
            jobs = f"jobs of {row['job_s']:g} s" if row["job_s"] > MEAN_S else "jobs of one variant"
            percent, note = value(row)
            made.append(Bar(f"{row['workers']:,} workers, {jobs}", ((name, percent),), note))
        return tuple(made)

    def core(field: str) -> Callable[[dict[str, float]], tuple[float, str]]:
        return lambda row: (
            100 * row[field],
            f"{100 * row[field]:.0f}%, a core bears {round(row['workers'] / row[field], -1):,.0f}",
        )

    groups = (
        Group(
            "Time in which workers compile",
            bars("busy", lambda row: (row["busy"], f"{row['busy']:.0f}%, {row['seconds']:.0f} s")),
        ),
        Group(
            "Share of a core that the scheduler needs to keep all of them busy",
            bars("scheduler", core("scheduler_share")),
        ),
        Group("Share of a core that the build needs for it", bars("build", core("build_share"))),
    )
    text = f"a real scheduler and build; simulated compilations of {MEAN_S:g} s in the mean, 100 for each worker"
    return svg(Chart("Workers that one scheduler and one build keep busy", text, groups))


def main() -> None:
    """Measure, print the figures and write the chart."""
    # `timeout` ends the processes that this one started, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs=2)
    parser.add_argument("--measure", nargs=4)
    parser.add_argument("--only", nargs=3, help="workers, variants and seconds of a job: measure this alone")
    parser.add_argument(
        "--processes", type=int, default=max(2, (os.cpu_count() or 0) - 3), help="processes that share the workers"
    )
    parser.add_argument("--profile", type=Path, help="write a profile of the scheduler to this file, by cProfile")
    parser.add_argument("--write", action="store_true", help="write each image to a local cache, as a build does")
    parser.add_argument("--quick", action="store_true", help="a tenth of the variants")
    parser.add_argument("--svg", type=Path, help="write the chart to this file")
    parser.add_argument(
        "--draw", type=Path, help="draw the figures that this script printed to a file, and measure nothing"
    )
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.work[0], int(given.work[1])))
        return
    if given.measure:
        address, slots, variants, job_s = given.measure
        print(json.dumps(measure(address, int(slots), int(variants), float(job_s), given.write)))
        return
    if given.draw:
        rows = [json.loads(line) for line in given.draw.read_text().splitlines() if line.startswith("{")]
        given.svg.write_text(picture(rows), encoding="utf-8")
        return
    from nojit.aot.remote.batches import JOB_S

    scale = 10 if given.quick else 1
    cases = [
        (100, 10_000, JOB_S),
        (200, 20_000, JOB_S),
        (1000, 100_000, JOB_S),
        (1000, 100_000, 0.01),
        (2000, 200_000, JOB_S),
    ]
    if given.only:
        cases = [(int(given.only[0]), int(given.only[1]), float(given.only[2]))]
    found = []
    for slots, variants, job_s in cases:
        found.append(run((slots, variants // scale, job_s), given.processes, given.write, given.profile))
        print(json.dumps(found[-1]), flush=True)
    if given.svg:
        given.svg.write_text(picture(found), encoding="utf-8")


if __name__ == "__main__":
    main()
