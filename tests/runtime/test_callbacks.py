"""The methods and attributes that C asks of Python's objects by name: one list in C, one in Python."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from nojit.runtime import called_by_c
from nojit.runtime.call.call_facts import Argument
from nojit.runtime.errors import NojitError
from nojit.runtime.first_call.callbacks import FirstCalls
from nojit.runtime.serve.function import Function
from nojit.runtime.values import DType, FunctionRef

RUNTIME = Path(__file__).parents[2] / "runtime"
HEADER = (RUNTIME / "binding/python/callbacks.h").read_text(encoding="utf-8")
LISTS = {"PY_KERNEL_CALLBACKS": "KernelCallbacks", "PY_SERVED_CALLBACKS": "ServedCallbacks"}


def listed(name: str) -> dict[str, list[str]]:
    text = re.search(rf"#define {name}\(METHOD\)(.*?[^\\])\n", HEADER, re.DOTALL)
    assert text is not None
    return {method: params.split(", ") for method, params in re.findall(r'METHOD\((\w+), "([\w, ]+)"\)', text[1])}


def typed(protocol: str) -> dict[str, list[str]]:
    methods = {name: code for name, code in vars(getattr(called_by_c, protocol)).items() if inspect.isfunction(code)}
    return {name: [*inspect.signature(code).parameters][1:] for name, code in methods.items() if code.__doc__}


@pytest.mark.parametrize("name", LISTS)
def test_the_methods_that_c_lists_are_those_of_the_protocol(name: str) -> None:
    assert listed(name)
    assert listed(name) == typed(LISTS[name])


def test_the_runtime_has_every_method_that_c_calls() -> None:
    for name, cls in (("PY_KERNEL_CALLBACKS", FirstCalls), ("PY_SERVED_CALLBACKS", Function)):
        for method, params in listed(name).items():
            code = getattr(cls, method).__code__
            assert list(code.co_varnames[1 : code.co_argcount]) == params, method


def test_the_attributes_that_c_reads_are_those_of_the_values() -> None:
    (text,) = re.findall(r"#define PY_ATTRIBUTES\(NAME\) (.*)", HEADER)
    told = NojitError("what", got="got")
    named = {*Argument.__match_args__, *DType.__match_args__, *FunctionRef.__match_args__, *vars(told)}
    assert set(re.findall(r"NAME\((\w+)\)", text)) - named == set()


def test_no_other_file_of_the_binding_spells_a_callback() -> None:
    methods = {*listed("PY_KERNEL_CALLBACKS"), *listed("PY_SERVED_CALLBACKS")}
    for path in (RUNTIME / "binding").rglob("*.c"):
        text = path.read_text(encoding="utf-8")
        assert {method for method in methods if f'"{method}"' in text} == set(), path
        assert not re.search(r'PyObject_CallMethod\([^;]*"_[a-z]', text), path
