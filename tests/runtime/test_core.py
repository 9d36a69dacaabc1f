"""The C core by itself: numbers and layouts that it shares with Python, CUDA and DLPack; programs; what it refuses."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import struct
import subprocess
import sys
from array import array
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.call.call_facts import Argument
from nojit.runtime.errors import BundleError
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.expression import ExpressionError, Op, Pointer, Tag
from nojit.runtime.expr.postfix import evaluate, postfix
from nojit.runtime.table.parts import Case, Config, Param
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import DType, FunctionRef

from tests.fakecuda.driver import FakeCuda
from tests.reference import expressions as reference
from tests.support.tables import held

SOURCES = Path(__file__).parents[2] / "runtime"
BINDING, ENGINE = SOURCES / "binding", SOURCES / "engine"
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


def test_python_names_every_operation() -> None:
    """The engine's table holds each instruction of its machine, and Python takes the numbers from there."""
    numbers = enumerators("engine/expr/machine.h", "NJ_OP_")
    assert {name: number for name, number, *_ in _core.operations()} == numbers
    assert {op.name: op.value for op in Op} == numbers


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


PASSED = VALUES.filter(lambda value: value is not expr.MISSING and not isinstance(value, str))


def passed(value: Any) -> Argument:
    if isinstance(value, Pointer):
        return Argument("pointer", value.address, "fp16")
    if value is expr.UNSEEN:
        return Argument("tuple")
    return Argument("none") if value is None else Argument("bool" if isinstance(value, bool) else "int", value)


@settings(max_examples=600, deadline=None)
@given(
    text=st.one_of(PRODUCTS, st.recursive(ATOMS, larger, max_leaves=6)),
    values=st.lists(st.one_of(PASSED, NEAR_POWERS), min_size=4, max_size=4),
)
def test_tuning_keys_are_what_the_language_says(text: str, values: list[Any]) -> None:
    names = dict(zip(NAMES, values, strict=True))
    table = bare_table([Param(name, constexpr=False) for name in NAMES])
    tuning = _core.Tuning((text,), "exact", ())
    arguments = {name: passed(value) for name, value in names.items()}
    selection = _core.Selection(table.handle(), arguments, {}, {}, 0, (tuning, -1, 0), "here")
    kept, number = reference.outcome(lambda: reference.evaluate(text, names))
    assert selection.numbers == (number if kept == "int" else 0,)


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
    constants = constants_of(ENGINE / "driver/abi.h", r"(?:CUDA|CU)_\w+")
    assert len(constants) > 15
    ours = numbers_in("driver/abi.h", CUDA_FIELDS, constants, tmp_path, ENGINE)
    assert ours == numbers_in("cuda.h", CUDA_FIELDS, constants, tmp_path, include)


def test_dlpack_declarations_agree_with_torch(tmp_path: Path) -> None:
    include = package_folder("torch") / "include" / "ATen"
    constants = constants_of(BINDING / "tensor/dlpack_exchange.h", r"kDL\w+")
    assert len(constants) > 3
    ours = numbers_in("tensor/dlpack_exchange.h", DLPACK_FIELDS, constants, tmp_path, BINDING)
    assert ours == numbers_in("dlpack.h", DLPACK_FIELDS, constants, tmp_path, include)
    codes = constants_of(ENGINE / "base/dlpack.h", r"kDL\w+")
    assert len(codes) > 8
    ours = numbers_in("base/dlpack.h", {}, codes, tmp_path, ENGINE)
    assert ours == numbers_in("dlpack.h", {}, codes, tmp_path, include)


# what the types refuse


def bare_table(params: Sequence[Param], types: Sequence[str] = ("i32",)) -> KernelTable:
    """Make a table without rows."""
    signatures = tuple([(kind,) * sum(not param.constexpr for param in params) for kind in types])
    cases = tuple([Case(number, ()) for number in range(len(types))])
    columns = {name: array("I") for name in _core.COLUMNS}
    config = Config((), (), "")
    return held(
        KernelTable("k", tuple(params), (), None, (), (), signatures, cases, (config,), ((),), ((),), (), (), columns)
    )


def spec_of(
    params: Sequence[Param], types: Sequence[str] = ("i32",), options: int = 0, ordering: Any = None
) -> _core.Spec:
    return _core.Spec(bare_table(params, types).handle(), options, _core.Ids(), 90, ordering, "here")


def test_specs_refuse_what_they_cannot_hold() -> None:
    one = [Param("x", constexpr=False)]
    assert len(spec_of(one)) == 0
    with pytest.raises(BundleError, match="at most 60 types of one param"):
        spec_of(one, [f"={number}" for number in range(61)])
    with pytest.raises(BundleError, match="at most 2048 words of facts"):
        spec_of([Param(f"x{place}", constexpr=False) for place in range(300)], ["(i32)"])
    with pytest.raises(BundleError, match="at most 512"):
        spec_of([Param(f"C{place}", constexpr=True, default=0) for place in range(513)])


@pytest.mark.parametrize("options", [513, 2**62])
def test_specs_refuse_options_that_no_kernel_has(options: int) -> None:
    with pytest.raises(BundleError, match="at most 512"):
        spec_of([], options=options)


def test_specs_refuse_misuse() -> None:
    tuning = _core.Tuning((), "exact", (("a device", 1, 1, ()),))
    assert len(spec_of([], ordering=(tuning, 0, 1))) == len(spec_of([], ordering=0)) == 0
    for ordering in (1.0, (tuning, 0), (tuning, "0", 1), (None, 0, 1)):
        with pytest.raises(TypeError):
            spec_of([], ordering=ordering)
    for misuse in ({"ordering": (tuning, 1, 1)}, {"options": -1}):
        with pytest.raises(ValueError, match="expected"):
            spec_of([], **misuse)
    with pytest.raises(TypeError, match="expected a Table"):
        _core.Spec({}, 0, _core.Ids(), 90, None, "here")  # type: ignore[arg-type] # the misuse under test
    with pytest.raises(TypeError):
        _core.Spec(bare_table([]).handle(), 0, {}, 90, None, "here")  # type: ignore[arg-type] # likewise


@pytest.mark.parametrize(
    ("key", "bucket", "tables", "error"),
    [
        (("a",) * 9, "exact", (), ValueError),
        (["a"], "pow2", (), TypeError),
        ((1,), "pow2", (), TypeError),
        ((), "pow2", (1,), TypeError),
        ((), 0, (), TypeError),
        ((), "pow3", (), ValueError),
        ((), "pow2", (("d", 1, 1, (1,)),), TypeError),
        ((), "pow2", (("d", 1, 1, (((0,), 1),)),), TypeError),
        ((), "pow2", (("d", 1, 1, (((-1,), ((), (), (), ())),)),), ValueError),
        (("n",), "pow2", (("d", 1, 1, (((0,), (((),), ((0,),), ((0,),), ())),)),), ValueError),
    ],
)
def test_tunings_refuse_misuse(key: Any, bucket: Any, tables: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        _core.Tuning(key, bucket, tables)


def test_tunings_need_tables_to_find_one() -> None:
    with pytest.raises(ValueError, match="expected tables"):
        _core.Tuning((), "pow2", ()).closest("d", 1, 1)


@pytest.mark.parametrize("text", ["n +", "m", "'"])
def test_a_tuning_key_that_is_no_expression_over_params_is_refused(text: str) -> None:
    table = bare_table([Param("n", constexpr=False)])
    ordering = (_core.Tuning((text,), "exact", ()), -1, 1)
    with pytest.raises(BundleError, match="expected an expression over the kernel's params"):
        _core.Selection(table.handle(), {"n": Argument("int", 1)}, {}, {}, 0, ordering, "here")


def test_selections_refuse_misuse() -> None:
    handle = bare_table([Param("n", constexpr=False)]).handle()
    made = _core.Selection(handle, {"n": Argument("int", 1)}, {}, {}, 0, None, "here")
    assert (made.fault, made.fitting, made.wanted, made.numbers, made.rows(False), made.stages()) == (
        None,
        (True,),
        (),
        (),
        (),
        b"",
    )
    for misuse in (made.key, made.underived):
        with pytest.raises(IndexError):
            misuse(0)
    for misuse in (made.misfits, made.apart, made.unset, made.failing):
        for place in (1, -1, 1 << 70):
            with pytest.raises(IndexError):
                misuse(place)
    wrong = _core.Selection(handle, {"n": Argument("float", 1.0)}, {}, {}, 0, None, "here")
    assert wrong.fault == ("kind", "n")
    for asked in (lambda: wrong.rows(False), wrong.stages):
        with pytest.raises(ValueError, match="expected a call that the kernel can take"):
            asked()
    for arguments in ({}, {"m": Argument("int", 1)}, {"n": Argument("int", 1), "m": Argument("int", 1)}):
        assert _core.Selection(handle, arguments, {}, {}, 0, None, "here").fault == ("name", "")
    for argument in (1, None, Argument("tuple", items=(1,))):  # type: ignore[arg-type] # the misuse under test
        with pytest.raises((AttributeError, TypeError)):
            _core.Selection(handle, {"n": argument}, {}, {}, 0, None, "here")  # type: ignore[dict-item] # likewise


def test_ids_are_of_types_and_names() -> None:
    ids = _core.Ids()
    for value in ("bf16", DType("bf16"), FunctionRef("bf16"), (1, ("a", -0.0)), 1.5, 3, None, True):
        assert ids.find(value) == ids.add(value) or isinstance(value, str | DType | FunctionRef | tuple)
        assert ids.find(value) == ids.add(value)
    found = [
        ids.find(value) for value in ("bf16", DType("bf16"), FunctionRef("bf16"), (1, ("a", -0.0)), (1, ("a", 0.0)))
    ]
    assert len({*found}) == 5
    assert [ids.find(value)[0] for value in ("torch.bfloat16", "bfloat16", "fp16", (1, ("a", 0.0)), 1 << 63)] == [
        4,
        4,
        7,
        7,
        7,
    ]
    with pytest.raises(TypeError, match="expected a constexpr value"):
        ids.add(object())  # type: ignore[arg-type] # the misuse under test
    assert ids.find(object()) == (7, 0)  # type: ignore[arg-type] # likewise


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: _core.run_program(b"", (1,)),
        lambda: _core.Dispatcher("k", ("x",), (), _core.Ids()),
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


def test_a_dispatcher_in_a_cycle_through_a_default_is_freed() -> None:
    cyclic = _core.Dispatcher.__new__(_core.Dispatcher)
    # of this cycle, nothing but the dispatcher can drop a reference
    cyclic.__init__("cycle", (("x", False, MethodType(print, cyclic)),), (), _core.Ids())  # type: ignore[misc] # made in two steps for it
    del cyclic
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is _core.Dispatcher and one.name == "cycle"]


def test_dispatchers_refuse_misuse() -> None:
    bare = _core.Dispatcher.__new__(_core.Dispatcher)
    for misuse in (bare, bare._facts, lambda: bare[(1,)]):
        with pytest.raises(RuntimeError, match="__init__ was not called"):
            misuse()
    made = _core.Dispatcher("k", (("x", False),), (), _core.Ids())
    with pytest.raises(RuntimeError, match="called before"):
        made.__init__("k", (), (), _core.Ids())  # type: ignore[misc] # the misuse under test
    with pytest.raises(TypeError):
        _core.Dispatcher("k", (("x",),), (), _core.Ids())  # type: ignore[arg-type] # the misuse under test
    with pytest.raises(ValueError, match="at most 512 params and options, got 513"):
        _core.Dispatcher("k", tuple((f"x{i}", False) for i in range(513)), (), _core.Ids())
    for names, options in ((("x", "x"), ()), (("x", "num_warps"), ("num_warps",))):
        with pytest.raises(ValueError, match=f"of different names, got '{names[-1]}' twice"):
            _core.Dispatcher("k", tuple((name, False) for name in names), options, _core.Ids())


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
