"""What a miss advises is followed: the manifest is edited as it says, built again, and the call is served."""

from __future__ import annotations

import re
import tomllib
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nojit.aot.pack.tables import build_table
from nojit.runtime.call.call_facts import Argument, CallFacts
from nojit.runtime.errors import ArgumentError, ManifestError, NoMatchingVariantError
from nojit.runtime.explain.explanation import choose
from nojit.runtime.table.table import KernelTable

from tests.aot.contents import kernel_content
from tests.aot.entries import spec
from tests.support.tables import held

ADVICE = "its manifest needs "
# what no edit of a manifest can mend
HOPELESS = re.compile(r"an int type for \w+ that holds|a value for \w+ that this call gives")


def table_of(entry: dict[str, Any]) -> KernelTable:
    content = kernel_content(spec(**entry))
    assert content is not None
    return held(build_table(content, {compiled.image: 0 for _, compiled in content.variants}))


def advice_of(entry: dict[str, Any], call: CallFacts) -> str:
    """Return what a miss advises; empty if the call is served."""
    try:
        choose(table_of(entry), call)
    except NoMatchingVariantError as error:
        return error.what.partition(ADVICE)[2] or "nothing"
    return ""


def follow(entry: dict[str, Any], advice: str) -> dict[str, Any]:
    """Edit an entry as a reader of the advice would."""
    edited = deepcopy(entry)
    lines = re.split(r" and (?=\w+ = |\[\[|\w+ with )", advice.partition("; one axis")[0])
    for line in lines:
        if config := re.fullmatch(r"\[\[kernel\.configs\]\] with (.*?)(, without `requires`|, whose `when` .*)?", line):
            wanted = tomllib.loads(f"config = {{ {config[1]} }}")["config"]
            # one that is there, but for a rule of the build, is not written again
            ruled = "whose `when`" in (config[2] or "")
            alike = [one for one in edited["configs"] if _settings(one) == _settings(wanted)]
            same = [one for one in alike if ("when" in one if ruled else "requires" not in one)]
            assert same or not ruled
            if same:
                same[0].pop("when", None)
            else:
                edited["configs"].append(wanted)
        elif value := re.fullmatch(r"(\w+) with (.+) among its values", line):
            edited["derived"][value[1]]["values"].append(int(value[2]))
        elif setting := re.fullmatch(r"(\w+) = (.+)", line):
            told = tomllib.loads(f"value = {setting[2]}")["value"]
            edited["params" if isinstance(told, str) else "matrix"][setting[1]] = told
        elif line == "a config without `requires`":
            edited["configs"].append({})
        elif "which an `exclude`" in line:
            edited["exclude"] = []
        elif "which `aligned_only` leaves out" in line:
            for point in edited["point"]:
                point.pop("hints", None)
                point.pop("aligned_only", None)
        else:
            raise AssertionError(f"cannot follow {line!r}")
    return edited


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    return {"num_warps": 4} | {name: value for name, value in config.items() if name not in ("when", "requires")}


def pointer(dtype: str, address: int = 256) -> Argument:
    return Argument("pointer", address, dtype)


def integer(value: int) -> Argument:
    return Argument("int", value)


NONE = Argument("none")
ONE_AXIS: dict[str, Any] = {
    "params": {"x_ptr": "*{dtype}", "w_ptr": "*{dtype}", "n": "i32"},
    "matrix": {"dtype": ["fp16", "bf16"]},
    "configs": [{"BLOCK": 64}, {"BLOCK": 128, "num_warps": 8}],
    "derived": {},
    "exclude": [],
}


def entry(**changes: Any) -> dict[str, Any]:
    return deepcopy(ONE_AXIS) | changes


def call(x: Argument, w: Argument, n: int = 64, **constexprs: Any) -> CallFacts:
    options = {name: constexprs.pop(name) for name in [*constexprs] if name == "num_warps"}
    return CallFacts({"x_ptr": x, "w_ptr": w, "n": integer(n)}, constexprs, options, arch=90)


FP16, FP32, BF16 = pointer("fp16"), pointer("fp32"), pointer("bf16")
CASES: list[tuple[str, dict[str, Any], CallFacts, str]] = [
    ("both", entry(), call(FP32, FP32), 'dtype = ["fp16", "bf16", "fp32"]'),
    ("apart", entry(), call(FP16, FP32), 'w_ptr = "*{w_dtype}" and w_dtype = ["fp16", "bf16", "fp32"]; one axis, \'dtype\', types x_ptr, w_ptr, so that w_ptr needs an axis of its own'),
    ("apart, built both", entry(), call(FP16, BF16), 'w_ptr = "*{w_dtype}" and w_dtype = ["fp16", "bf16"]; one axis'),
    ("apart, neither built", entry(), call(FP32, pointer("fp64")), 'dtype = ["fp16", "bf16", "fp32"] and w_ptr = "*{w_dtype}" and w_dtype = ["fp16", "bf16", "fp64"]'),
    ("one value", entry(matrix={"dtype": ["fp16"]}), call(FP16, FP32), 'x_ptr = "*{dtype}" and w_ptr = "*{w_dtype}" and w_dtype = ["fp16", "fp32"]'),
    ("fixed", entry(params={"x_ptr": "*{dtype}", "w_ptr": "*fp16", "n": "i32"}, matrix={"dtype": ["fp16"]}), call(FP32, FP32), 'x_ptr = "*{dtype}" and w_ptr = "*{dtype}" and dtype = ["fp16", "fp32"]'),
    ("own", entry(params={"x_ptr": "*fp16", "w_ptr": "*kfp32?", "n": "i32"}, matrix={}), call(FP32, FP16), 'x_ptr = "*{x_dtype}" and x_dtype = ["fp16", "fp32"] and w_ptr = "*k{w_dtype}?" and w_dtype = ["fp32", "fp16"]'),
    ("none", entry(), call(FP16, NONE), 'w_ptr = "*{dtype}?"'),
    ("large", entry(), call(FP16, FP16, 1 << 40), 'n = "i64"'),
    ("larger", entry(), call(FP16, FP16, 1 << 63), 'n = "u64"'),
    ("index", entry(params={"x_ptr": "*{dtype}", "w_ptr": "*{dtype}", "n": "{index}"}, matrix={"dtype": ["fp16"], "index": ["i32"]}), call(FP16, FP16, 1 << 40), 'n = "{index}" and index = ["i32", "i64"]'),
    ("type and size", entry(), call(FP32, FP32, 1 << 40), 'dtype = ["fp16", "bf16", "fp32"] and n = "i64"'),
    ("value", entry(matrix={"dtype": ["fp16"], "MODE": ["a"]}), call(FP16, FP16, MODE="b"), 'MODE = ["a", "b"]'),
    ("value and type", entry(matrix={"dtype": ["fp16"], "MODE": [1]}), call(BF16, BF16, MODE=True), 'x_ptr = "*{dtype}" and w_ptr = "*{dtype}" and dtype = ["fp16", "bf16"] and MODE = [1, true]'),
    ("excluded", entry(matrix={"dtype": ["fp16"], "MODE": [1, 2]}, exclude=[{"when": "MODE == 2"}]), call(FP16, FP16, MODE=2), "the combination of MODE = 2"),
    ("setting", entry(), call(FP16, FP16, BLOCK=32), "[[kernel.configs]] with BLOCK = 32"),
    ("setting of two", entry(configs=[{"A": 1, "B": 2}]), call(FP16, FP16, B=3), "[[kernel.configs]] with A = 1, B = 3"),
    ("option", entry(), call(FP16, FP16, num_warps=16), "[[kernel.configs]] with BLOCK = 64, num_warps = 16"),
    ("requires", entry(configs=[{"BLOCK": 64, "requires": "n > 100"}], aligned_only="a reason"), call(FP16, FP16), "[[kernel.configs]] with BLOCK = 64, without `requires`"),
    ("asked and requires", entry(configs=[{"BLOCK": 64}, {"BLOCK": 128, "requires": "n > 100"}]), call(FP16, FP16, BLOCK=128), "[[kernel.configs]] with BLOCK = 128"),
    ("when", entry(configs=[{"BLOCK": 64}, {"BLOCK": 128, "when": "dtype == 'bf16'"}]), call(FP16, FP16, BLOCK=128), "[[kernel.configs]] with BLOCK = 128, whose `when` leaves out"),
    ("listed", entry(derived={"LANES": {"expr": "next_pow2(n)", "values": [32, 64]}}), call(FP16, FP16, 1000), "LANES with 1024 among its values"),
    ("listed for a new type", entry(derived={"LANES": {"expr": "next_pow2(n)", "values": [32]}}), call(FP32, FP32), 'dtype = ["fp16", "bf16", "fp32"] and LANES with 64 among its values'),
    ("derived left out", entry(derived={"EVEN": "n % BLOCK == 0"}, exclude=[{"when": "not EVEN"}], aligned_only="a reason"), call(FP16, FP16, 3), "the derived values that this call gives, which an `exclude` leaves out"),
    ("hints", entry(point=[{"values": {"dtype": "fp16"}, "hints": {"n": 16}, "aligned_only": "a reason"}]), call(FP16, FP16, 3), "the variants without hints"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "facts", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_call_is_served_once_the_advice_is_followed(case: dict[str, Any], facts: CallFacts, expected: str) -> None:
    advice = advice_of(case, facts)
    assert advice.startswith(expected)
    edited = follow(case, advice)
    assert advice_of(edited, facts) == ""


DTYPES = ("fp16", "bf16", "fp32")
SPELLINGS = ("*{dtype}", "*{dtype}?", "*{other}", "*fp16", "*kbf16?", "*k{dtype}")


@st.composite
def drawn_entries(draw: st.DrawFn) -> dict[str, Any]:
    params = {name: draw(st.sampled_from(SPELLINGS)) for name in ("x_ptr", "w_ptr")}
    params["n"] = draw(st.sampled_from(["i32", "i64", "{index}"]))
    dtypes = st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2, unique=True)
    used = " ".join(params.values())
    matrix: dict[str, Any] = {name: draw(dtypes) for name in ("dtype", "other") if f"{{{name}}}" in used}
    if "{index}" in used:
        matrix["index"] = draw(st.sampled_from([["i32"], ["i32", "i64"]]))
    matrix["FLAG"] = draw(st.sampled_from([[True], [True, False], [1, "a"]]))
    rule = st.sampled_from(["n > 100", "aligned(x_ptr, 16)", "n % 16 == 0"])
    configs = [{"BLOCK": 64}]
    for block in draw(st.lists(st.sampled_from([32, 128]), max_size=2, unique=True)):
        more = draw(st.sampled_from([{}, {"num_warps": 8}, {"when": "FLAG == true"}]))
        configs.append({"BLOCK": block, **more, **({"requires": draw(rule)} if draw(st.booleans()) else {})})
    derived: dict[str, Any] = draw(
        st.sampled_from([{}, {"EVEN": "n % BLOCK == 0"}, {"L": {"expr": "min(next_pow2(n), 256)", "values": [32, 64]}}])
    )
    exclude = draw(st.sampled_from([[], [{"when": "FLAG == true"}], [{"when": "FLAG == 'a'"}]]))
    hints = draw(st.sampled_from([[], [{"n": 16}], [{"n": 1}, {"x_ptr": 16, "n": 16}]]))
    return {
        "params": params,
        "matrix": matrix,
        "configs": configs,
        "derived": derived,
        "exclude": exclude,
        "hints": hints,
    }


@st.composite
def drawn_calls(draw: st.DrawFn) -> CallFacts:
    pointers = [draw(st.sampled_from([*map(pointer, (*DTYPES, "fp64")), NONE, pointer("fp16", 8)])) for _ in range(2)]
    constexprs: dict[str, Any] = {"FLAG": draw(st.sampled_from([True, False, 1, "a", "b"]))}
    if draw(st.integers(0, 3)) == 0:
        constexprs["BLOCK"] = draw(st.sampled_from([16, 32, 64, 128]))
    options = {"num_warps": draw(st.sampled_from([4, 8, 16]))} if draw(st.integers(0, 3)) == 0 else {}
    arguments = {
        "x_ptr": pointers[0],
        "w_ptr": pointers[1],
        "n": integer(draw(st.sampled_from([1, 3, 64, 1000, 1 << 40]))),
    }
    return CallFacts(arguments, constexprs, options, arch=90)


@settings(max_examples=100, deadline=None)
@given(drawn_entries(), drawn_calls())
def test_advice_leads_to_a_served_call_in_three_steps_at_most(drawn: dict[str, Any], facts: CallFacts) -> None:
    try:
        assume(kernel_content(spec(**drawn)) is not None)
        first = advice_of(drawn, facts)
    except (ManifestError, ArgumentError):
        # no manifest, or a call of kinds that no manifest would serve
        assume(False)
    steps = [first]
    while steps[-1]:
        assume(not HOPELESS.search(steps[-1]))
        assert len(steps) <= 3, steps
        drawn = follow(drawn, steps[-1])
        steps.append(advice_of(drawn, facts))
