"""Expressions of a manifest are typed when it is read: what passes cannot fail for a type's sake."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.plan.planner import make_plans
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.operations import UNSEEN, Pointer

from tests.aot.conftest import HEADER
from tests.aot.fake_compiler import FakeCompiler, FakeSource

# every type that a name can have, and names of several
ENTRY = """
[[kernel]]
name = "k"
source = "demo:k"
{grid}
{core}
[kernel.params]
x_ptr = "*fp16"
y_ptr = "*{dtype}?"
n = "i32"
m = "i64?"
flag = "i1"
scale = "fp32"
either = "{kind}"
pair = "(i32, *fp16)"
desc = "tensordesc<fp16[64]>"
never = "none"
[kernel.matrix]
dtype = ["fp16", "bf16"]
kind = ["i32", "fp32"]
ACT = ["relu", 3]
WINDOW = [{ none = true }, 128]
CAUSAL = [true, false]
DTYPE = [{ dtype = "fp32" }]
RATIO = [1.5]
SHAPE = [[1, 2]]
[kernel.derived]
EVEN = "n % 16 == 0"
HALF = "BLOCK // 2"
WIDE = { expr = "min(next_pow2(n), 64)", values = [32, 64] }
{derived}
[[kernel.configs]]
BLOCK = 64
MODE = "fast"
num_warps = 8
{config}
[[kernel.configs]]
BLOCK = 128
MODE = 2
maxnreg = 64
{rest}
"""
PARTS = ("grid", "core", "derived", "config", "rest")


def quoted(text: str) -> str:
    return f'"{text}"' if '"' not in text else f"'''{text}'''"


PLACES = {
    "grid": lambda text: {"grid": f"grid = [{text}]"},
    "core": lambda text: {"core": f"core = {text}"},
    "derived": lambda text: {"derived": f"NEW = {text}"},
    "values": lambda text: {"derived": f"NEW = {{ expr = {text}, values = [1, 2] }}"},
    "when": lambda text: {"config": f"when = {text}"},
    "requires": lambda text: {"config": f"requires = {text}"},
    "exclude": lambda text: {"rest": f"[[kernel.exclude]]\nwhen = {text}"},
    "key": lambda text: {"rest": f"[kernel.tuning]\nkey = [{text}]"},
    "tuning.when": lambda text: {"rest": f'[kernel.tuning]\nkey = ["n"]\nwhen = {text}'},
    "space.when": lambda text: {
        "rest": f'[kernel.tuning]\nkey = ["n"]\n[[kernel.tuning.space]]\nBLOCK = [64, 128]\nMODE = "fast"\nwhen = {text}'
    },
    "space.requires": lambda text: {
        "rest": f'[kernel.tuning]\nkey = ["n"]\n[[kernel.tuning.space]]\nBLOCK = [64, 128]\nMODE = "fast"\nrequires = {text}'
    },
}
BUILD = {"core", "when", "exclude", "tuning.when", "space.when"}
GIVES = {"grid": (int,), "key": (int,), "values": (int,), "derived": (bool, int)}


def manifest(place: str, text: str) -> str:
    parts = dict.fromkeys(PARTS, "") | PLACES[place](quoted(text))
    entry = ENTRY
    for part, words in parts.items():
        entry = entry.replace(f"{{{part}}}\n", f"{words}\n")
    return HEADER + entry


def refusal(folder: Path, place: str, text: str) -> str:
    """Return what reading says of an expression; empty if it takes it."""
    path = folder / "demo.toml"
    path.write_text(manifest(place, text), encoding="utf-8")
    try:
        load_manifest(path)
    except ManifestError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        ("requires", "n", "expected a bool, got an int from 'n'"),
        ("requires", "flag and n", "and takes bools, got an int 'n'"),
        ("requires", "not n", "not takes a bool, got an int 'n'"),
        ("requires", "x_ptr", "expected a bool, got a pointer from 'x_ptr'"),
        ("requires", "x_ptr == none", "== takes ints, bools, strings and other constants; use has(x_ptr) to ask whether it is present, got a pointer 'x_ptr'"),
        ("requires", "y_ptr != none", "got none or a pointer 'y_ptr'"),
        ("requires", "x_ptr % 16 == 0", "% takes ints, got a pointer 'x_ptr'"),
        ("requires", "pair == none", "got a tuple or tensor descriptor, which expressions do not see 'pair'"),
        ("requires", "desc > 1", "got a tuple or tensor descriptor"),
        ("requires", "aligned(scale, 16)", "aligned takes a pointer or an int, got a float 'scale'"),
        ("requires", "aligned(x_ptr, flag)", "aligned takes a number of bytes, got a bool 'flag'"),
        ("requires", "m > 3", "> takes ints, got none 'm', where m = none"),
        ("requires", "WINDOW < n", "< takes ints, got none 'WINDOW', where WINDOW = none"),
        ("requires", "either > 1", "> takes ints, got a float 'either', where kind = str 'fp32'"),
        ("requires", "flag == 1", "expected two sides of the same type, got a bool and int 1 in 'flag == 1'"),
        ("requires", "n == 'x'", "got an int and str 'x'"),
        ("requires", "dtype == 16", "expected two sides of the same type"),
        ("requires", "EVEN", "expected a param, constexpr or axis, got 'EVEN'"),
        ("grid", "x_ptr", "expected an int, got a pointer from 'x_ptr'"),
        ("grid", "dtype", "expected an int, got a string from 'dtype'"),
        ("grid", "n == 1", "expected an int, got a bool from 'n == 1'"),
        ("grid", "scale", "expected an int, got a float from 'scale'"),
        ("grid", "m", "expected an int, got none from 'm', where m = none"),
        ("grid", "EVEN * 2", "* takes ints, got a bool 'EVEN'"),
        ("grid", "cdiv(n, MODE)", "cdiv takes ints, got str 'fast' 'MODE'"),
        ("grid", "SHAPE", "expected an int, got a tuple"),
        ("derived", "dtype", "expected an int or a bool, got a string from 'dtype'"),
        ("derived", "DTYPE", "expected an int or a bool, got a string from 'DTYPE'"),
        ("derived", "x_ptr", "got a pointer"),
        ("values", "n > 1", "expected an int, got a bool from 'n > 1'"),
        ("when", "BLOCK", "expected a bool, got an int from 'BLOCK'"),
        ("when", "MODE > 1", "> takes ints, got a string 'MODE'"),
        ("when", "n > 1", "got 'n > 1', with 'n', whose value only a call has"),
        ("when", "aligned(x_ptr, 16)", "with 'x_ptr', whose value only a call has"),
        ("when", "EVEN", "got 'EVEN'"),
        ("exclude", "MODE > 1", "> takes ints, got str 'fast' 'MODE', where MODE = str 'fast'"),
        ("exclude", "HALF", "expected a bool, got an int from 'HALF'"),
        ("exclude", "BLOK == 1", "expected an axis, constexpr, option or arch, got 'BLOK'; did you mean 'BLOCK'?"),
        ("exclude", "maxnreg > 32", "> takes ints, got none 'maxnreg', where maxnreg = none"),
        ("core", "ACT == 3 or ACT > 4", "> takes ints, got str 'relu' 'ACT'"),
        ("core", "arch", "expected a bool, got an int from 'arch'"),
        ("key", "flag", "expected an int param"),
        ("tuning.when", "dtype", "expected a bool, got a string from 'dtype'"),
        ("space.when", "BLOCK * num_warps", "expected a bool, got an int"),
        ("space.requires", "n", "expected a bool, got an int"),
        ("grid", "n + ", "expected a value at column 4 of 'n + '"),
    ],
)  # fmt: skip
def test_wrong_types_are_refused_when_the_manifest_is_read(
    tmp_path: Path, place: str, text: str, expected: str
) -> None:
    message = refusal(tmp_path, place, text)
    assert expected in message
    key = {"values": "derived", "tuning.when": "tuning"}.get(place, place.partition(".")[0])
    assert re.search(rf"demo\.toml:\d+:\d+ \$\.kernel\[0\]\S*{key}", message)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("requires", "m != none and m > 3"),
        ("requires", "m == none or m > 3"),
        ("requires", "not (m == none) and cdiv(m, 4) > 1"),
        ("requires", "has(m) and m > 3"),
        ("requires", "has(pair) and has(desc) and not has(never)"),
        ("requires", "aligned(x_ptr, 16) and aligned(y_ptr, 16) and aligned(n, 4) and not aligned(never, 4)"),
        ("requires", "kind != 'fp32' and either > 1"),
        ("requires", "flag and flag == true and scale == RATIO and DTYPE == 'fp32'"),
        ("requires", "maxnreg == none or maxnreg > 3"),
        ("grid", "cdiv(n, BLOCK) * min(HALF, WIDE) + arch"),
        ("derived", "CAUSAL"),
        ("derived", "has(y_ptr)"),
        ("derived", "num_warps * 32"),
        ("when", "has(y_ptr) and dtype == 'fp16'"),
        ("when", "WINDOW == none or WINDOW <= BLOCK"),
        ("when", "MODE == 'fast' and SHAPE == SHAPE"),
        ("exclude", "ACT == 'relu' or ACT > 2"),
        ("exclude", "MODE == 'fast' or MODE > 1"),
        ("core", "EVEN and HALF < WIDE and arch >= 80"),
        ("key", "n * m"),
        ("space.when", "BLOCK >= 32 * num_warps"),
    ],
)  # fmt: skip
def test_right_types_pass(tmp_path: Path, place: str, text: str) -> None:
    assert not refusal(tmp_path, place, text)


def test_defaults_of_the_function_are_typed_with_its_source(tmp_path: Path, write_manifest: Any) -> None:
    entry = '\n[[kernel]]\nname = "k"\nsource = "demo:k"\nparams = { n = "i32" }\n'
    sources = {"demo:k": FakeSource(("n",), ("BLOCK",), defaults=(("BLOCK", 64), ("ACT", "relu")))}
    compiler = FakeCompiler(tmp_path / "journal", sources)
    assert make_plans([write_manifest(f'{entry}grid = ["cdiv(n, BLOCK)"]\n')], (), "full", compiler)
    for text, expected in (
        ("cdiv(n, ACT)", "cdiv takes ints, got a string 'ACT'"),
        ("n + BLOK", "expected a param, constexpr or axis, got 'BLOK'; did you mean 'BLOCK'?"),
    ):
        path = write_manifest(f'{entry}grid = ["{text}"]\n')
        load_manifest(path)
        with pytest.raises(ManifestError, match=re.escape(expected)):
            make_plans([path], (), "full", compiler)


INTS = ["n", "BLOCK", "num_warps", "arch", "HALF", "WIDE", "0", "7", "64"]
TERMS: dict[str, list[str]] = {
    "int": INTS,
    "bool": ["flag", "CAUSAL", "EVEN", "true", "false", "has(y_ptr)", "has(pair)", "has(m)", "aligned(x_ptr, 16)"],
    "string": ["dtype", "DTYPE", "'fp16'"],
    "float": ["scale", "RATIO"],
    "other": [
        "x_ptr",
        "y_ptr",
        "pair",
        "desc",
        "never",
        "SHAPE",
        "none",
        "m",
        "WINDOW",
        "ACT",
        "either",
        "MODE",
        "maxnreg",
    ],
}
# of names with several types: a test, and what holds once it is passed
GUARDS = [("m == none", "m"), ("WINDOW == none", "WINDOW"), ("ACT == 'relu'", "ACT"), ("kind == 'fp32'", "either")]


# how each form is written of parts of some types; `{op}` is one of the operators behind it
FORMS: dict[str, list[tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "int": [
        ("({}) {op} ({})", ("int", "int"), ("+", "-", "*", "//", "%")),
        ("{op}({}, {})", ("int", "int"), ("cdiv", "min", "max")),
        ("next_pow2({})", ("int",), ("",)),
    ],
    "bool": [
        ("({}) {op} ({})", ("int", "int"), ("<", "<=", ">", ">=", "==", "!=")),
        ("({}) {op} ({})", ("bool", "bool"), ("==", "!=", "and", "or")),
        ("({}) {op} ({})", ("string", "string"), ("==", "!=")),
        ("not ({})", ("bool",), ("",)),
        *(("(" + test + " or " + name + " > ({}))", ("int",), ("",)) for test, name in GUARDS),
    ],
}


@st.composite
def expressions(draw: Any, kind: str, names: frozenset[str], slips: bool, depth: int = 3) -> str:
    """Write an expression of a type; one in eight parts has another type if it may have slips."""
    if slips and draw(st.integers(0, 7)) == 0:
        kind = draw(st.sampled_from([*TERMS]))
    terms = [term for term in TERMS[kind] if expr.parse(term).names <= names] or ["1"]
    forms = [form for form in FORMS.get(kind, []) if expr.parse(_blank(form[0], form[2][0])).names - {"hole"} <= names]
    form = draw(st.sampled_from([None, *forms])) if depth else None
    if form is None:
        return draw(st.sampled_from(terms))
    text, parts, operators = form
    written = [draw(expressions(part, names, slips, depth - 1)) for part in parts]
    return text.format(*written, op=draw(st.sampled_from(operators)))


def _blank(text: str, op: str) -> str:
    return text.replace("{}", "hole").replace("{op}", op)


PARAMS = {"x_ptr", "y_ptr", "n", "m", "flag", "scale", "either", "pair", "desc", "never"}
AXES = {"dtype", "kind", "ACT", "WINDOW", "CAUSAL", "DTYPE", "RATIO", "SHAPE"}
CONFIG = {"BLOCK", "MODE", "num_warps", "arch"}
DERIVED = {"EVEN", "HALF", "WIDE"}
NAMES = {
    "grid": PARAMS | AXES | CONFIG | DERIVED,
    "derived": PARAMS | AXES | CONFIG,
    "values": PARAMS | AXES | CONFIG,
    "requires": PARAMS | AXES | CONFIG,
    "space.requires": PARAMS | AXES | CONFIG,
    "when": {"y_ptr", "pair"} | AXES | CONFIG,
    "space.when": {"y_ptr", "pair"} | AXES | CONFIG,
    "core": {"y_ptr", "pair"} | AXES | CONFIG | DERIVED,
    "exclude": {"y_ptr", "pair"} | AXES | CONFIG | DERIVED,
    "tuning.when": {"y_ptr", "pair"} | AXES | CONFIG | DERIVED,
}
# what is wrong with values, and no type's fault
VALUES = re.compile("does not fit in 64 bits|division by zero|needs a positive")


def drawn_values(place: str, chance: random.Random) -> dict[str, Any]:
    """Draw what names stand for, as a build or a call gives it to them."""
    kind = chance.choice(["i32", "fp32"])
    config = {"BLOCK": 64, "MODE": "fast", "num_warps": 8, "maxnreg": None}
    if place not in ("when", "requires", "space.when", "space.requires"):
        config = chance.choice([config, {"BLOCK": 128, "MODE": 2, "num_warps": 4, "maxnreg": 64}])
    number = chance.choice([-3, 0, 1, 5, 64, 1 << 40])
    values: dict[str, Any] = {
        "x_ptr": Pointer(chance.choice([16, 4])),
        "y_ptr": chance.choice([None, Pointer(32)]),
        "n": number,
        "m": chance.choice([None, number]),
        "flag": chance.choice([True, False]),
        "scale": 0.5,
        "either": number if kind == "i32" else 2.5,
        "pair": UNSEEN,
        "desc": UNSEEN,
        "never": None,
    }
    if place in BUILD:
        values = {
            name: value if value is None or isinstance(value, Pointer) else UNSEEN for name, value in values.items()
        }
    derived = {"EVEN": number % 16 == 0, "HALF": config["BLOCK"] // 2, "WIDE": chance.choice([32, 64])}
    return {
        **values,
        **config,
        **derived,
        "arch": 90,
        "dtype": chance.choice(["fp16", "bf16"]),
        "kind": kind,
        "ACT": chance.choice(["relu", 3]),
        "WINDOW": chance.choice([None, 128]),
        "CAUSAL": chance.choice([True, False]),
        "DTYPE": "fp32",
        "RATIO": 1.5,
        "SHAPE": (1, 2),
    }


WRONG_NUMBER = object()


def value_of(parsed: expr.Expression, values: dict[str, Any]) -> object:
    """Evaluate; `WRONG_NUMBER` where only numbers are to blame, the message where anything else is."""
    try:
        return parsed.evaluate(values)
    except expr.ExpressionError as error:
        return WRONG_NUMBER if VALUES.search(error.message) else error.message


@settings(max_examples=120, deadline=None)
@given(st.data(), st.randoms(use_true_random=False))
def test_what_passes_never_fails_for_a_types_sake(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, chance: random.Random
) -> None:
    place = data.draw(st.sampled_from([*NAMES]))
    slips = data.draw(st.booleans())
    kind = {"grid": "int", "values": "int"}.get(place, "bool")
    text = data.draw(expressions(kind, frozenset(NAMES[place]), slips))
    # a test within the other side of itself is a slip: there the name has one type
    assume(slips or all(text.count(test) < 2 for test, _ in GUARDS))
    message = refusal(tmp_path_factory.getbasetemp(), place, text)
    if message:
        # nothing is refused that has no slip
        assert slips, message
        return
    parsed = expr.parse(text)
    for _ in range(12):
        value = value_of(parsed, drawn_values(place, chance))
        assert value is WRONG_NUMBER or type(value) in GIVES.get(place, (bool,)), f"{text}: {value}"
