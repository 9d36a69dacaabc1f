"""Count the instructions that one launch takes on the host, with callgrind, against the fake driver.

    python -m tests.support.instructions

measures on this Python and records the figures beside the test that compares with them. What the fake driver does in
``cuLaunchKernel`` is not counted. Of two loops, one twice as long as the other, the difference is what launches took:
whatever else runs once cancels out. Counts are of a build of Python, of a compiler and of its flags; on one machine
they repeat to a few instructions, however busy it is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nojit.aot.bench.cases import BLOCK, CASES, NUM_WARPS, Case
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable

from tests.fakecuda.build import build_driver, build_faketorch
from tests.support.bundles import SyntheticKernel, kernel, make_bundle
from tests.support.instructions_child import LAUNCHES

__all__ = [
    "FIGURES",
    "PLANS",
    "PYTHON",
    "Scenario",
    "count",
    "count_loads",
    "known_figures",
    "launch_kernel",
    "launch_scenarios",
    "remembered_scenarios",
    "served_scenarios",
    "tuning_scenarios",
    "variant_scenarios",
]

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "tests/runtime/instructions.json"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}" + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# the function in C behind `faketorch.counts`
_MARK = "counts"
# in the driver, not on the way to it
_NOT_COUNTED = ("cuLaunchKernel", "cuLaunchKernelEx")
# the engine's function that `nj_kernel_load` calls for each variant
_LOAD_ONE = "nj_plan_of"
# as many as can be made in a second under valgrind, where each is chosen among 10,000 variants
PLANS = 20
_SPELLINGS = {
    "kernel[grid]": "kernel[grid]({triton})",
    "kernel": "kernel({positional})",
    "bound": "bound({positional})",
}
# what says that tensors are plain are the cheapest functions that give an answer
_REMEMBERED = """
from nojit.runtime import _core
tensors, numbers = ({tensors},), ({numbers},)
plain = _core.Plain((type({first}),), property(().count), [].__contains__, bool, ((bool, False),))
memo = _core.Memo(plain, (), len(tensors), 8)
places = tuple((place, place) for place in range(len(tensors)))
steps = ((kernel, (*[None] * len(tensors), *numbers), (), places, False),)
memo.remember(_core.Recipe(len(tensors), steps, (0,)), {call})
assert memo({call}) is {first}
"""


# an object with as many attributes as a function of Triton has: a dict of this size is looked up in another way than a small one
_SERVED = """
from nojit.runtime import _core
Function = type("Function", (), {"__getitem__": _core.Subscript("_nojit_served", None)})
fn = Function()
vars(fn).update(dict.fromkeys(map("attribute_{}".format, range(32))))
fn._nojit_served = _core.Served(kernel, None, ([], [], []))
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A launch to count."""

    name: str
    kernel: str
    statement: str
    """Sees `kernel`, `grid`, `bound`, and the arguments by name."""
    tensors: tuple[str, ...]
    numbers: dict[str, int]
    before: str = ""
    """Runs once before anything is counted, and sees the same."""


def launch_kernel(case: Case) -> SyntheticKernel:
    """Make the kernel of a case without Triton: its manifest in other words."""
    params = dict.fromkeys(case.tensors, "*fp32") | dict.fromkeys(case.ints, "i32")
    block = {"BLOCK": BLOCK} if case.inputs else {}
    return kernel(
        case.kernel,
        params | dict.fromkeys(block, "constexpr"),
        configs=[{**block, "num_warps": NUM_WARPS}],
        hints=[dict.fromkeys(case.names, 16)],
        grid=["cdiv(n, BLOCK)"] if case.inputs else ["1"],
    )


def launch_scenarios() -> tuple[Scenario, ...]:
    """List every case of the launch benchmark in each of nojit's ways to call it."""
    return tuple(
        Scenario(
            f"{way}, {case.arguments} arguments",
            case.kernel,
            spelling.format(triton=case.as_triton(), positional=case.positional()),
            case.tensors,
            case.numbers,
        )
        for case in CASES.values()
        for way, spelling in _SPELLINGS.items()
    )


def remembered_scenarios() -> tuple[Scenario, ...]:
    """List the launch of four arguments as it is, and as a call that a memo knows, of three tensors and a number."""
    case = CASES[4]
    tensors, numbers = ", ".join(case.tensors), ", ".join(case.ints)
    call = f"{tensors}, None, {numbers}"
    prepared = _REMEMBERED.format(tensors=tensors, numbers=numbers, call=call, first=case.tensors[0])
    return (
        Scenario("not remembered", case.kernel, f"kernel({case.positional()})", case.tensors, case.numbers),
        Scenario("remembered", case.kernel, f"memo({call})", case.tensors, case.numbers, prepared),
    )


def served_scenarios() -> tuple[Scenario, ...]:
    """List launches of functions of Triton that are served, and the same launches of kernels."""
    return tuple(
        Scenario(
            f"{name}, {case.arguments} arguments",
            case.kernel,
            f"{called}[grid]({case.as_triton()})",
            case.tensors,
            case.numbers,
            _SERVED,
        )
        for case in (CASES[4], CASES[12])
        for name, called in (("not served", "kernel"), ("served", "fn"))
    )


def variant_scenarios(counts: Sequence[int]) -> tuple[Scenario, ...]:
    """List the same launch from tables of so many variants; from the first few, with a plan for each that is there."""
    call = "kernel[grid](x, n, MODE={})"
    return tuple(
        Scenario(
            f"{number} variants, {plans} plans",
            f"variants_{number}",
            call.format(0),
            ("x",),
            {"n": 48},
            f"for mode in range({plans}): {call.format('mode')}",
        )
        for number in counts
        for plans in sorted({1, min(number, PLANS)})
    )


def tuning_scenarios() -> tuple[Scenario, ...]:
    """List the same launch of four arguments with a tuning table and without, in each of nojit's ways to call it."""
    return tuple(
        Scenario(
            f"{way}, {name}",
            name,
            spelling.format(triton="x, y, n, m", positional="x, y, n, m"),
            ("x", "y"),
            {"n": 4080, "m": 48},
        )
        for way, spelling in _SPELLINGS.items()
        for name in ("untuned", "tuned")
    )


def tuning_kernel(name: str) -> SyntheticKernel:
    """Make a kernel of four arguments; ``tuned`` has a table whose key is two expressions."""
    device = TunedDevice("Fake GPU sm_90", "sm_90", 132, 140 << 30)
    rows = tuple(TuningRow((n, 4096), (n % 2,), (0,)) for n in (16, 1024, 4097))
    table = TuningTable(device, (TuningBlock.of((0,), rows),))
    return kernel(
        name,
        {"x": "*fp32", "y": "*fp32", "n": "i32", "m": "i32", "BLOCK": "constexpr"},
        configs=[{"BLOCK": 128}, {"BLOCK": 256}],
        hints=[{"x": 16, "y": 16, "n": 16, "m": 16}],
        grid=["cdiv(n, BLOCK)"],
        tuning=Tuning(("n", "n * m"), "quarter_pow2", (table,)) if name == "tuned" else None,
    )


def variant_kernel(number: int) -> SyntheticKernel:
    """Make a kernel with so many variants, all of one case each."""
    params = {"x": "*fp32", "n": "i32", "MODE": "constexpr"}
    return kernel(f"variants_{number}", params, matrix={"MODE": list(range(number))})


def count(folder: Path, scenarios: Sequence[Scenario], variants: Sequence[int] = ()) -> dict[str, float]:
    """Count the instructions of one launch in each scenario.

    Args:
        folder: gets the fakes, a bundle, and what callgrind writes.
        scenarios: what to launch.
        variants: kernels to have in the bundle beside those of the cases, by their number of variants.
    """
    driver, faketorch = build_driver(folder), build_faketorch(folder)
    kernels = [*map(launch_kernel, CASES.values()), *map(variant_kernel, variants)]
    kernels += map(tuning_kernel, ("tuned", "untuned"))
    bundle = make_bundle(folder / "counted.nojit", *kernels)
    asked = json.dumps([asdict(scenario) for scenario in scenarios])
    options = [
        *(f"--toggle-collect={function}" for function in _NOT_COUNTED),
        # after them, for they would begin with counting off
        "--collect-atstart=yes",
    ]
    child = ("tests.support.instructions_child", bundle, faketorch, asked)
    return _launch_costs(_counts(folder, options, child, driver), scenarios)


def count_loads(folder: Path, variants: Sequence[int]) -> dict[int, float]:
    """Count the instructions by which ``nj_kernel_load`` loads one variant, of kernels with so many of them."""
    driver, faketorch = build_driver(folder), build_faketorch(folder)
    kernels = [variant_kernel(number) for number in variants]
    bundle = make_bundle(folder / "loaded.nojit", *kernels)
    child = ("tests.support.loads_child", bundle, faketorch, *(one.table.kernel for one in kernels))
    dumps = _counts(folder, [f"--toggle-collect={_LOAD_ONE}"], child, driver)
    return {number: dump / number for number, dump in zip(variants, dumps, strict=False)}


def _counts(folder: Path, options: Sequence[str], child: Sequence[str | Path], driver: Path) -> list[int]:
    """Run a module with arguments under callgrind; return what was counted before each mark."""
    command = [
        "valgrind",
        "--tool=callgrind",
        f"--callgrind-out-file={folder}/callgrind.out",
        f"--dump-before={_MARK}",
        *options,
        *(sys.executable, "-m"),
        *map(str, child),
    ]
    environment = os.environ | {"NOJIT_LIBCUDA": str(driver), "FAKECUDA_DEVICES": "90", "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert not ended.returncode, ended.stderr[-4000:]
    return _dumps(folder)


def _dumps(folder: Path) -> list[int]:
    """Read what was counted before each mark."""
    numbered = sorted(folder.glob("callgrind.out.*"), key=lambda path: int(path.suffix[1:]))
    found = [re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.MULTILINE) for path in numbered]
    return [int(match[1]) for match in found if match]


def _launch_costs(dumps: Sequence[int], scenarios: Sequence[Scenario]) -> dict[str, float]:
    assert len(dumps) >= 3 * len(scenarios), f"{len(dumps)} dumps of {len(scenarios)} scenarios"
    pairs = [(dumps[3 * place + 1], dumps[3 * place + 2]) for place in range(len(scenarios))]
    return {one.name: (twice - once) / LAUNCHES for one, (once, twice) in zip(scenarios, pairs, strict=True)}


def known_figures() -> dict[str, Mapping[str, float]]:
    """Read the recorded figures, by Python."""
    figures: dict[str, Mapping[str, float]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return figures


def main() -> None:
    """Record the figures of this Python."""
    with tempfile.TemporaryDirectory() as name:
        counted = count(Path(name), launch_scenarios())
    figures = (known_figures() if FIGURES.exists() else {}) | {PYTHON: {key: round(n) for key, n in counted.items()}}
    FIGURES.write_text(json.dumps(dict(sorted(figures.items())), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
