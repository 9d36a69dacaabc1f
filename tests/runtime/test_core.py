"""The C core by itself: numbers and layouts that it shares with Python, CUDA and DLPack; programs; what it refuses."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core, expr
from nojit.runtime.expr import ExpressionError, Op, Pointer, Tag
from nojit.runtime.keys import Interner
from nojit.runtime.postfix import evaluate, postfix
from nojit.runtime.table import KernelTable, Param, TensorMap
from nojit.runtime.tuning import bucket_of
from nojit.runtime.tuning_table import BUCKETS

from tests.fakecuda.driver import FakeCuda
from tests.reference import expressions as reference

SOURCES = Path(__file__).parents[2] / "runtime"
BINDING, ENGINE = SOURCES / "_core", SOURCES / "engine"
INT64 = st.integers(expr.INT64_MIN, expr.INT64_MAX)
INTS = st.one_of(st.integers(-20, 20), st.sampled_from([expr.INT64_MIN, expr.INT64_MAX, 2**62, 2**62 + 1]), INT64)
VALUES = st.one_of(
    INTS,
    st.booleans(),
    st.none(),
    st.sampled_from(["x", "y"]),
    st.builds(Pointer, st.one_of(st.integers(0, 64), st.just(2**64 - 16))),
    st.just(expr.MISSING),
    st.just(expr.UNSEEN),
    st.integers(1 << 63, (1 << 64) - 1),
)


def enumerators(header: str, prefix: str) -> dict[str, int]:
    text = (SOURCES / header).read_text()
    return {name: int(number) for name, number in re.findall(rf"{prefix}(\w+) = (\d+),", text)}


def test_opcodes_agree_with_python() -> None:
    assert enumerators("engine/expr/machine.h", "NJ_OP_") == {op.name: op.value for op in Op}


def test_buckets_are_numbered_as_in_python() -> None:
    numbers = enumerators("_core/spec.h", "NJ_BUCKET_")
    assert {name.lower(): number for name, number in numbers.items()} == {kind: i for i, kind in enumerate(BUCKETS)}


def test_tags_agree_with_python() -> None:
    tags = enumerators("engine/expr/value.h", "NJ_TAG_")
    assert {name: tags[name] for name in Tag.__members__} == {tag.name: tag.value for tag in Tag}


# programs: the machine against the plain reading of the language


def as_pair(value: Any) -> tuple[int, int]:
    if value is expr.MISSING or value is None:
        return Tag.MISSING if value is expr.MISSING else Tag.NONE, 0
    if isinstance(value, bool):
        return Tag.BOOL, int(value)
    if isinstance(value, str):
        return Tag.OPAQUE, ord(value)
    if isinstance(value, Pointer):
        return Tag.POINTER, struct.unpack("<q", struct.pack("<Q", value.address))[0]
    if value is expr.UNSEEN or not expr.INT64_MIN <= value <= expr.INT64_MAX:
        # a tuple, or an int of 64 bits without a sign
        return (8, 1 << 32) if value is expr.UNSEEN else (6, value - (1 << 64))
    return Tag.INT, value


def assemble(text: str) -> bytes:
    """Make the program of an expression over `NAMES`."""
    return _core.assemble(postfix(text), {}, {name: i for i, name in enumerate(NAMES)}, lambda word: (4, ord(word)))


NAMES = ("a", "b", "c", "d")
OPERATORS = ("+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=")
ATOMS = st.one_of(
    st.sampled_from([*NAMES, "true", "false", "none", "'x'", "0", "1", "-1", "16", "9223372036854775807"]),
    st.integers(0, 40).map(str),
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from([*OPERATORS, "and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["cdiv", "min", "max", "aligned"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        st.tuples(st.sampled_from(["-", "not "]), inner).map(lambda t: f"({t[0]}{t[1]})"),
        st.tuples(st.sampled_from(["next_pow2", "has"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
    )


@settings(max_examples=400, deadline=None)
@given(text=st.recursive(ATOMS, larger, max_leaves=12), values=st.lists(VALUES, min_size=4, max_size=4))
def test_the_machine_computes_what_the_language_says(text: str, values: list[Any]) -> None:
    names = dict(zip(NAMES, values, strict=True))
    assert reference.outcome(lambda: evaluate(postfix(text), names), ExpressionError) == reference.outcome(
        lambda: reference.evaluate(text, names)
    )


NEAR_POWERS = st.builds(lambda bit, off: min((1 << bit) + off, expr.INT64_MAX), st.integers(0, 63), st.integers(-9, 9))
PRODUCTS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6).map(" * ".join)


@settings(max_examples=600, deadline=None)
@given(
    text=st.one_of(PRODUCTS, st.recursive(ATOMS, larger, max_leaves=6)),
    kind=st.sampled_from(BUCKETS),
    values=st.lists(st.one_of(VALUES, NEAR_POWERS), min_size=4, max_size=4),
)
def test_tuning_keys_are_rounded_as_python_rounds_them(text: str, kind: str, values: list[Any]) -> None:
    program = assemble(text)
    kept, number = reference.outcome(lambda: reference.evaluate(text, dict(zip(NAMES, values, strict=True))))
    expected = bucket_of(kind, number) if kept == "int" else 0
    assert _core.tuning_key(program, BUCKETS.index(kind), tuple(map(as_pair, values))) == expected


@settings(max_examples=400, deadline=None)
@given(word=st.sampled_from([*OPERATORS, "cdiv", "min", "max", "aligned"]), a=VALUES, b=VALUES)
def test_every_operation_agrees_on_any_two_values(word: str, a: Any, b: Any) -> None:
    text = f"a {word} b" if word in OPERATORS else f"{word}(a, b)"
    names = {"a": a, "b": b}
    assert reference.outcome(lambda: evaluate(postfix(text), names), ExpressionError) == reference.outcome(
        lambda: reference.evaluate(text, names)
    )


@settings(max_examples=300, deadline=None)
@given(
    code=st.lists(st.tuples(st.integers(0, 29), st.integers(-1, 6)), min_size=1, max_size=14),
    values=st.lists(VALUES, min_size=2, max_size=2),
)
def test_any_instructions_are_refused_or_run_safely(code: list[tuple[int, int]], values: list[Any]) -> None:
    program = b"".join(struct.pack("<B7xq", op, operand) for op, operand in code)
    with contextlib.suppress(ValueError):
        assert len(_core.run_program(program, tuple(map(as_pair, values)))) in (2, 3)


@pytest.mark.parametrize(
    "program",
    [b"", b"\1" * 15, struct.pack("<B7xq", Op.LOAD, 2), struct.pack("<B7xq", Op.CONST_INT, 1) * 2],
    ids=["empty", "cut", "no such slot", "two values left"],
)
def test_broken_programs_are_refused(program: bytes) -> None:
    with pytest.raises(ValueError, match="program"):
        _core.run_program(program, ((Tag.INT, 1), (Tag.INT, 2)))


def test_the_deepest_stack_runs() -> None:
    deep = "1" + " + (2" * 31 + ")" * 31
    program = assemble(deep.replace("1", "a").replace("2", "b"))
    assert _core.run_program(program, ((Tag.INT, 1), (Tag.INT, 2))) == (Tag.INT, 63)


# layouts: declared here so that building needs neither CUDA nor torch, checked where they are at hand


def package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(spec.origin).parent


CUDA_FIELDS = {
    "CUlaunchAttribute": ["id", "value"],
    "CUlaunchConfig": ["gridDimX", "blockDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs"],
}
DLPACK_FIELDS = {
    "DLTensor": ["data", "device", "ndim", "dtype", "shape", "strides", "byte_offset"],
    "DLManagedTensorVersioned": ["version", "manager_ctx", "deleter", "flags", "dl_tensor"],
    "DLPackExchangeAPI": [
        "header",
        "managed_tensor_allocator",
        "managed_tensor_from_py_object_no_sync",
        "managed_tensor_to_py_object_no_sync",
        "dltensor_from_py_object_no_sync",
        "current_work_stream",
    ],
}


def numbers_in(header: str, fields: dict[str, list[str]], constants: list[str], folder: Path, include: Path) -> str:
    """Print sizes, offsets and constants as a header has them."""
    lines = [f'printf("{kind} %zu\\n", sizeof({kind}));' for kind in fields]
    lines += [
        f'printf("{kind}.{name} %zu\\n", offsetof({kind}, {name}));' for kind, names in fields.items() for name in names
    ]
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in constants]
    main = f"#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\nint main(void) {{ {' '.join(lines)} }}\n"
    source, binary = folder / "print.c", folder / "print"
    source.write_text(main)
    subprocess.run(["gcc", f"-I{include}", str(source), "-o", str(binary)], check=True)
    return subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout


def constants_of(header: Path, pattern: str) -> list[str]:
    return re.findall(rf"\b({pattern}) = ", header.read_text())


@pytest.mark.triton
def test_cuda_declarations_agree_with_cuda_h(tmp_path: Path) -> None:
    include = package_folder("triton") / "backends" / "nvidia" / "include"
    constants = constants_of(ENGINE / "cuda/abi.h", r"(?:CUDA|CU)_\w+")
    assert len(constants) > 15
    ours = numbers_in("cuda/abi.h", CUDA_FIELDS, constants, tmp_path, ENGINE)
    assert ours == numbers_in("cuda.h", CUDA_FIELDS, constants, tmp_path, include)


def test_dlpack_declarations_agree_with_torch(tmp_path: Path) -> None:
    include = package_folder("torch") / "include" / "ATen"
    constants = constants_of(BINDING / "dlpack.h", r"kDL\w+")
    assert len(constants) > 10
    ours = numbers_in("dlpack.h", DLPACK_FIELDS, constants, tmp_path, BINDING)
    assert ours == numbers_in("dlpack.h", DLPACK_FIELDS, constants, tmp_path, include)


# what the types refuse


def spec_of(params: Sequence[Param], *rest: Any, types: Sequence[str] = ("i32",)) -> _core.Spec:
    """Make the spec of a table without rows."""
    signatures = tuple([(kind,) * sum(not param.constexpr for param in params) for kind in types])
    table = KernelTable("k", tuple(params), (), None, (), (), signatures, (), (), (), (), (), (), {})
    return _core.Spec(table, {param.name: place for place, param in enumerate(params)}, 0, Interner(), *rest)


def test_specs_refuse_what_they_cannot_hold() -> None:
    program = assemble("1 == 1")
    one = [Param("x", constexpr=False)]
    with pytest.raises(ValueError, match="program"):
        spec_of(one, (b"x",))
    with pytest.raises(ValueError, match="at most 60 types"):
        spec_of(one, (), types=tuple(f"*fp{bits}" for bits in range(61)))
    with pytest.raises(ValueError, match="at most 2048 words of facts"):
        spec_of([], (program,) * 3000)
    with pytest.raises(ValueError, match="at most 512"):
        spec_of([Param(f"C{place}", constexpr=True) for place in range(513)], ())
    with pytest.raises(ValueError, match="at most 2048 words of facts"):
        spec_of([], (), (program,) * 3000, 0)
    with pytest.raises(ValueError, match="program"):
        spec_of([], (), (program, b"x"), 0)
    for bucket in (-1, 4):
        with pytest.raises(ValueError, match="bucket of 0 to 3"):
            spec_of([], (), (program,), bucket)


@pytest.mark.parametrize("params", [1, 3, 300])
@pytest.mark.parametrize("slots", [0, 1, 2])
def test_specs_refuse_a_table_of_other_params_than_they_have_slots_for(params: int, slots: int) -> None:
    many = tuple(Param(f"x{place}", constexpr=False) for place in range(params))
    table = KernelTable("k", many, (), None, (), (), (("i32",) * params,), (), (), (), (), (), (), {})
    places = {f"x{place}": place for place in range(slots)}
    if params == slots:
        _core.Spec(table, places, 0, Interner(), ())
        return
    with pytest.raises(ValueError, match="a slot for each"):
        _core.Spec(table, places, 0, Interner(), ())
    with pytest.raises(ValueError, match="a slot for each"):
        _core.Spec(table, places, params, Interner(), ())


@pytest.mark.parametrize("options", [-1, -(2**62), 2**62, 513])
def test_specs_refuse_options_that_no_kernel_has(options: int) -> None:
    table = KernelTable("k", (), (), None, (), (), (), (), (), (), (), (), (), {})
    with pytest.raises(ValueError, match="at most 512"):
        _core.Spec(table, {}, options, Interner(), ())


class Fleeting:
    """A table whose fields nobody holds."""

    def __getattr__(self, name: str) -> Any:
        return {"dict": 1} if name in {"param_types", "programs_by_expression"} else (object(),) * 3

    def param_types(self) -> dict[str, Any]:
        return {}


def test_fields_that_nobody_holds_are_none() -> None:
    table: Any = Fleeting()
    for slots in ({}, {"a": 0, "b": 1, "c": 2}):
        with contextlib.suppress(ValueError, TypeError):
            _core.Spec(table, slots, 0, Interner(), ())
    assert _core.plain_row(table, 0, table, {}, 90, str) is None


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: _core.run_program(b"", (1,)),
        lambda: _core.tuning_key(b"", 2, (None,)),
        lambda: _core.Dispatcher("k", ("x",), (), {}),
        lambda: _core.Recipe(0, (1,), ()),
        lambda: _core.Recipe(0, ((len, (), (), (1,), True),), ()),
        lambda: _core.assemble("x", {"x": "text"}, {}, lambda _: None),
        lambda: _core.assemble("x", {"x": "text"}, {}, lambda _: 1),
        lambda: _core.assemble("x", {"x": "text"}, {}, lambda _: ("a", "b")),
    ],
)
def test_what_is_no_tuple_is_a_type_error(misuse: Any) -> None:
    with pytest.raises(TypeError):
        misuse()


def test_dispatchers_refuse_misuse() -> None:
    bare = _core.Dispatcher.__new__(_core.Dispatcher)
    for misuse in (bare, bare._facts, lambda: bare[(1,)]):
        with pytest.raises(RuntimeError, match="__init__ was not called"):
            misuse()
    made = _core.Dispatcher("k", (("x", False),), (), {})
    with pytest.raises(RuntimeError, match="called before"):
        made.__init__("k", (), (), {})  # type: ignore[misc] # the misuse under test
    with pytest.raises(TypeError):
        _core.Dispatcher("k", (("x",),), (), {})  # type: ignore[arg-type] # the misuse under test
    with pytest.raises(ValueError, match="at most 512 params and options, got 513"):
        _core.Dispatcher("k", tuple((f"x{i}", False) for i in range(513)), (), {})
    for names, options in ((("x", "x"), ()), (("x", "num_warps"), ("num_warps",))):
        with pytest.raises(ValueError, match=f"of different names, got '{names[-1]}' twice"):
            _core.Dispatcher("k", tuple((name, False) for name in names), options, {})


def test_a_process_without_a_driver_is_not_healthy_and_needs_none_for_that() -> None:
    code = "from nojit.runtime import _core; print(_core.healthy(), _core.ARGUMENTS_MAX)"
    environment = os.environ | {"NOJIT_LIBCUDA": "/nowhere/libcuda.so.1"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "False 512\n"


def test_a_process_with_a_driver_that_it_has_not_started_is_healthy(fakecuda: FakeCuda) -> None:
    code = "from nojit.runtime import _core; print(_core.healthy())"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=fakecuda.environment(90)
    )
    assert result.stdout == "True\n"


def test_a_process_whose_driver_finds_no_device_is_not_healthy(fakecuda: FakeCuda) -> None:
    code = """
from nojit.runtime import _core
from nojit.runtime.errors import DriverError
try:
    _core.device_count()
except DriverError as error:
    print(error.code, _core.healthy(), _core.device_count(), _core.healthy())
"""
    environment = fakecuda.environment(90, fail=(("cuInit", 0, 100),))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    # an attempt that works makes it so
    assert result.stdout == "100 False 1 True\n"


@pytest.mark.parametrize("field", ["element_bytes", "element_type", "block"])
def test_a_tensor_map_of_numbers_without_end_is_at_fault(field: str) -> None:
    right = TensorMap("x", 0, 2, 6, (64,), fp4_padded=False)
    assert _core.map_fault("tensordesc<fp16[64]>", right) is None
    wrong = replace(right, **{field: (1 << 99,) if field == "block" else 1 << 99})
    assert isinstance(_core.map_fault("tensordesc<fp16[64]>", wrong), str)


def test_a_tensor_map_is_held_against_a_type_alone() -> None:
    with pytest.raises(UnicodeEncodeError):
        _core.map_fault("\ud800", None)
    assert _core.map_fault("tensordesc<fp16[", None) == "a descriptor"
