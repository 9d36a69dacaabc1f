"""Cases, kernels and manifest of the launch benchmark say the same."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from nojit.aot import bench
from nojit.aot.bench.cases import BLOCK, CASES, NUM_WARPS, Case

FOLDER = Path(bench.__file__).parent
FUNCTIONS = {
    node.name: [argument.arg for argument in node.args.args]
    for node in ast.parse((FOLDER / "kernels.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef)
}
KERNELS = {entry["name"]: entry for entry in tomllib.loads((FOLDER / "launch.toml").read_text())["kernel"]}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.kernel)


def test_there_is_a_case_for_every_kernel() -> None:
    assert {case.kernel for case in CASES.values()} == FUNCTIONS.keys() == KERNELS.keys()


@EVERY
def test_a_case_has_as_many_arguments_as_it_says(case: Case) -> None:
    assert len(case.names) == case.arguments
    assert FUNCTIONS[case.kernel] == [*case.names, *(["BLOCK"] if case.inputs else [])]


@EVERY
def test_the_manifest_builds_what_the_case_calls(case: Case) -> None:
    entry = KERNELS[case.kernel]
    assert tuple(entry["params"]) == case.names
    assert {name for name, kind in entry["params"].items() if kind == "*fp32"} == set(case.tensors)
    (config,) = entry["configs"]
    assert config == ({"BLOCK": BLOCK} if case.inputs else {}) | {"num_warps": NUM_WARPS}
    assert entry["hints"] == [dict.fromkeys(case.names, 16)]


@EVERY
def test_every_hint_holds_and_no_number_is_one(case: Case) -> None:
    assert all(value % 16 == 0 and value > 0 for value in case.numbers.values())


def test_calls_are_spelled_out() -> None:
    assert CASES[1].as_triton() == "out_ptr"
    assert CASES[4].as_triton() == "x_ptr, y_ptr, out_ptr, n, BLOCK=1024"
    assert CASES[12].given().startswith("a_ptr, b_ptr, c_ptr, out_ptr, n=n, s0=s0, ")
    assert CASES[12].as_triton().endswith("s6=s6, BLOCK=1024, num_warps=4")
    assert CASES[12].positional().endswith("out_ptr, n, s0, s1, s2, s3, s4, s5, s6")


@EVERY
def test_the_result_is_what_the_kernel_sums(case: Case) -> None:
    text = (FOLDER / "kernels.py").read_text(encoding="utf-8")
    body = re.split(r"@triton\.jit\n", text.partition(f"def {case.kernel}(")[2])[0]
    assert body.count("tl.load(") == len(case.inputs)
    summed = set(re.findall(r"\bs\d+\b", body.partition('"""')[2]))
    assert summed == {name for name in case.ints if name != "n"}
    assert case.result == ((len(case.inputs), sum(case.numbers[name] for name in summed)) if case.inputs else (0, 1))
