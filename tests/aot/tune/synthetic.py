"""A database of made-up measurements, whose right answers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from nojit.aot.tune.store.database import open_database
from nojit.aot.tune.store.records import Config, Device, KernelFacts, Measurement, Problem, Pruned, Run

H200 = Device("NVIDIA H200", "sm_90", 132, 150754820096, "580.82.07", "GPU-1")
SPACE = {"BLOCK_M": (32, 64, 128), "BLOCK_N": (32, 64), "num_warps": (4, 8)}
Time = Callable[[Mapping[str, Any], Mapping[str, Any], tuple[int, int]], "float | str"]
"""From a config's settings, a case and a key: microseconds, or ``wrong``, ``failed`` or ``absent``."""


def settings(space: Mapping[str, Iterable[Any]] = SPACE) -> list[dict[str, Any]]:
    return [
        dict(zip(space, values, strict=True)) | {"num_ctas": 1, "maxnreg": None} for values in product(*space.values())
    ]


def plain_time(config: Mapping[str, Any], case: Mapping[str, Any], key: tuple[int, int]) -> float:
    """Large tiles are best for large problems, small ones for small; 8 warps cost 3 % with small tiles."""
    ideal = min(max(key[0] // 16, 32), 128)
    tile = abs(config["BLOCK_M"].bit_length() - ideal.bit_length())
    return (
        key[0] * key[1] / 1000 * (1 + 0.2 * tile + 0.02 * (config["BLOCK_N"] != 64) + 0.03 * (config["num_warps"] != 4))
    )


def problem(kernel: int, key: tuple[int, int], **facts: Any) -> Problem:
    case = {"dtype": "bf16", "CAUSAL": True} | facts.pop("case", {})
    name = "x".join(map(str, key)) + ("" if case["CAUSAL"] else "-full")
    use, shape = facts.pop("use", "tune"), facts.pop("shape_class", "square")
    return Problem(kernel, name, use, shape, str(case["dtype"]), case, key, {"m": key[0], "n": key[1]}, 1000, 0)


KEYS = [(512, 64), (1024, 64), (2048, 128), (4096, 128)]
HELD_OUT = [(600, 64), (3000, 128)]


def write_database(
    path: Path,
    *,
    time: Time = plain_time,
    keys: Iterable[tuple[int, int]] = KEYS,
    held_out: Iterable[tuple[int, int]] = HELD_OUT,
    cases: Iterable[Mapping[str, Any]] = ({},),
    configs: Iterable[Mapping[str, Any]] | None = None,
    requires: Callable[[Mapping[str, Any]], str] = lambda _: "",
    noise: float = 0.004,
    device: Device = H200,
    kernel: str = "toy",
    alike: Mapping[str, Any] | None = None,
) -> Path:
    """Measure every config of `configs` at every problem, once, in rung 2."""
    with open_database(path, create=True) as database:
        place = database.add_device(device)
        run = database.start_run(Run(place, "2026-01-01", "toy-tuning.nojit", "0" * 64, "0.1.0", "2.9", None, 0))
        facts = KernelFacts(
            kernel, ("m", "n * heads"), alike or {}, {"tunables": tuple(SPACE), "numerics": (), "semantics": ()}
        )
        number = database.add_kernel(facts)
        numbers = [(database.add_config(Config(number, one, requires(one))), one) for one in configs or settings()]
        for use, wanted in (("tune", keys), ("held_out", held_out)):
            for key, case in product(wanted, cases):
                one = problem(number, key, case=dict(case), use=use)
                owner = database.add_problem(one)
                taken = [measurement(run, owner, id_, time(values, one.case, key), noise) for id_, values in numbers]
                database.record([each for each in taken if each is not None])
        database.record_pruned([Pruned(run, number, "BLOCK_M=256", "needs 300000 B of shared memory")])
        database.end_run(run)
    return path


def measurement(
    run: int, problem: int, config: int, us: float | str, noise: float, *, rung: int = 2, image: str = "i"
) -> Measurement | None:
    if us == "absent":
        return None
    if isinstance(us, str):
        return Measurement(
            run, problem, config, image, us, rung, 0, None, None, None, None, "2026-01-01T00:00:00", "off by 3"
        )  # type: ignore[arg-type]
    taken = f"2026-01-01T00:00:0{rung}"
    return Measurement(run, problem, config, image, "ok", rung, 10, us, noise, us * 0.99, 1980, taken)
