"""Source closures: what they hold, what identifies them, and how drift is found."""

import importlib
import importlib.util
import sys

import pytest
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.recording.closure import capture, digest_of
from nojit.runtime.recording.drift import drift_of, fingerprint

from tests.runtime.recording.programs import annotated, helpers, kernels

pytestmark = pytest.mark.triton


def names(closure):
    return [(each["module"].rpartition(".")[2], each["qualname"]) for each in closure["definitions"]]


def test_a_closure_holds_every_function_that_the_kernel_reaches_once():
    found = names(capture(kernels.kernel))
    assert found[0] == ("kernels", "kernel")
    assert sorted(found[1:]) == [
        ("helpers", "shift"),
        ("kernels", "apart"),
        ("kernels", "squash"),
        ("kernels", "through"),
    ]


def test_constants_and_imports_are_told_apart():
    (kernel, *_) = capture(kernels.kernel)["definitions"]
    assert kernel["names"]["SCALE"] == {"constexpr": {"value": 2}}
    assert kernel["names"]["tl"] == {"import": ["triton.language"]}
    assert "x_ptr" not in kernel["names"]


def test_a_module_of_the_program_is_held_by_what_the_text_reads_of_it():
    through = next(each for each in capture(kernels.kernel)["definitions"] if each["qualname"] == "through")
    assert through["names"]["helpers.BIAS"] == {"constexpr": {"value": 7}}
    assert set(through["names"]) == {"helpers", "helpers.BIAS", "helpers.shift", "squash"}


def test_captured_variables_count_as_globals():
    two, three = capture(kernels.make(2)), capture(kernels.make(3))
    assert two["definitions"][0]["names"]["factor"] == {"constexpr": {"value": 2}}
    assert digest_of(two) != digest_of(three)
    assert digest_of(two) == digest_of(capture(kernels.make(2)))


def test_no_path_of_the_machine_is_in_a_closure():
    text = canonical_json(capture(kernels.kernel)).decode()
    assert __file__.rpartition("/tests/")[0] not in text


def test_a_line_above_the_kernel_changes_no_digest():
    closure = capture(kernels.kernel)
    moved = {"definitions": [{**each, "line": each["line"] + 5} for each in closure["definitions"]]}
    assert digest_of(moved) == digest_of(closure)


def test_a_fingerprint_holds_no_source():
    text = canonical_json(fingerprint(capture(kernels.kernel))).decode()
    assert "tl.load" not in text
    assert "docstring" not in text


def test_an_unchanged_function_has_not_drifted():
    assert not drift_of(kernels.kernel, fingerprint(capture(kernels.kernel)))


@pytest.mark.parametrize(
    ("place", "name", "value", "expected"),
    [
        (kernels, "SCALE", 3, "the value of SCALE in tests.runtime.recording.programs.kernels:kernel differs"),
        (helpers, "BIAS", 8, "the value of helpers.BIAS in tests.runtime.recording.programs.kernels:through differs"),
        (kernels, "squash", helpers.shift, "the source text of tests.runtime.recording.programs.helpers:shift differs"),
        (kernels, "shift", None, "shift in tests.runtime.recording.programs.kernels:kernel is no longer a function"),
    ],
)
def test_a_changed_helper_or_global_is_named(monkeypatch, place, name, value, expected):
    known = fingerprint(capture(kernels.kernel))
    monkeypatch.setattr(place, name, value)
    assert drift_of(kernels.kernel, known).startswith(expected)


def test_a_changed_default_is_named(monkeypatch):
    known = fingerprint(capture(kernels.kernel))
    monkeypatch.setattr(kernels.squash.fn, "__defaults__", (2.75,))
    assert drift_of(kernels.kernel, known).startswith("the value of limit in")


def test_a_name_that_only_an_annotation_of_a_helper_uses_is_held(tmp_path, monkeypatch):
    text = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef twice(a: tl.tensor):\n    return a + a\n"
    (tmp_path / "only_annotated.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("only_annotated")
    assert "tl" in capture(module.twice)["definitions"][0]["names"]


PROGRAM = """
import enum
from typing import NamedTuple

import triton
import triton.language as tl


class Mode(enum.Enum):
    ADD = 1


class Pair(NamedTuple):
    a: int
    b: int


PAIR = Pair(1, 2)


@triton.jit
def helper(x):
    return x + PAIR.a


@triton.jit
def kernel(x_ptr, MODE: tl.constexpr = Mode.ADD):
    tl.store(x_ptr, helper(tl.load(x_ptr)))
"""


def test_a_program_has_one_name_in_all_its_processes(tmp_path, monkeypatch):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    loaded = []
    # as Python and as multiprocessing call the module
    for name in ("__main__", "__mp_main__"):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        loaded.append(module)
    first, second = (capture(module.kernel) for module in loaded)
    assert "__mp_main__" not in canonical_json(second).decode()
    assert digest_of(first) == digest_of(second)
    assert not drift_of(loaded[1].kernel, fingerprint(first))
    for name in ("helper", "Mode"):
        values = [getattr(module, name) for module in loaded]
        known = [constexpr_value(getattr(each, "ADD", each), "", "") for each in values]
        assert known[0] == known[1]


def test_a_foreign_class_in_an_annotation_is_held_by_name():
    kernel, helper = capture(annotated.kernel)["definitions"]
    held = {"x_ptr": "Tensor", "y_ptr": "Tensor", "n": "int", "quoted": "fr.Tensor", "BLOCK": "constexpr"}
    assert kernel["annotations"] == held
    assert helper["annotations"] == {"value": "Tensor", "scale": "fr.Tensor"}
    assert not drift_of(annotated.kernel, fingerprint(capture(annotated.kernel)))
