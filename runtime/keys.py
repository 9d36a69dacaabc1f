"""What the C core needs to know of a table: types, hints and programs, with every constexpr as a tag and 64 bits."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, TypeAlias

from nojit.runtime import _core
from nojit.runtime.call import expression_value
from nojit.runtime.constant_types import constant_of
from nojit.runtime.errors import ArgumentError, BundleError
from nojit.runtime.expr_ops import INSTRUCTION, INT64_MAX, INT64_MIN, ExpressionError, Op, Tag, constant
from nojit.runtime.expr_ops import Value as Operand
from nojit.runtime.interests import interests
from nojit.runtime.table import KernelTable, Missing, Tuning
from nojit.runtime.tuning_table import BUCKETS
from nojit.runtime.type_names import dtype_name, dtype_spellings
from nojit.runtime.values import DType, FunctionRef, Value, identity

__all__ = [
    "UNKNOWN",
    "Interner",
    "constexpr_value",
    "make_spec",
    "meant",
    "push_constant",
    "row_constexprs",
    "row_names",
    "row_programs",
]

Key: TypeAlias = tuple[int, int]
"""A value as C sees it: its tag and 64 bits."""

# beyond `Tag`, as _core/value.h numbers it: a value that no variant and no expression knows
UNKNOWN: Key = (7, 0)


class _Kind(IntEnum):
    """What an interned value is: these differ as constexprs, while expressions see a dtype's or function's name."""

    TEXT = 0
    DTYPE = 1
    FUNCTION = 2
    OTHER = 3


class Interner:
    """Numbers the strings, dtypes, functions and tuples that some variant or expression knows.

    Attributes:
        strings: ids of strings, which C looks up by itself.
    """

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def add(self, value: Operand) -> int:
        """Return the 64 bits that stand for a float, or for anything else that is neither int, bool nor None."""
        bits = self._find(value)
        if bits is not None:
            return bits
        name, kind = _name_and_kind(value)
        if kind is _Kind.DTYPE:
            # a call may spell it in another way, and is to be found again
            for spelled in dtype_spellings(str(name)):
                self.add(spelled)
        number = self._numbers.setdefault(name, len(self._numbers))
        bits = _core.OPAQUE_BASE + (kind << _core.OPAQUE_KIND_SHIFT) + number
        if isinstance(name, str):
            self.strings.setdefault(name, _core.OPAQUE_BASE + number)
        return bits

    def key(self, value: Value) -> Key:
        """Return a constexpr's tag and bits; `UNKNOWN` if no variant knows it."""
        if isinstance(value, bool):
            return Tag.BOOL, int(value)
        if value is None:
            return Tag.NONE, 0
        if isinstance(value, int):
            return (Tag.INT, value) if INT64_MIN <= value <= INT64_MAX else UNKNOWN
        bits = self._find(value)
        return UNKNOWN if bits is None else (Tag.OPAQUE, bits)

    def constant(self, name: str) -> Key:
        """Return the key of what a type of one value takes, which gets a number if it has none."""
        value = constant_of(name)
        if isinstance(value, str | DType | FunctionRef):
            self.add(value)
        return self.key(value)

    def seen(self, value: Value) -> Key:
        """Return what expressions see of a constexpr, which gets a number if it has none."""
        seen = expression_value(value)
        if isinstance(seen, bool) or seen is None or type(seen) is int:
            return self.key(seen)
        return Tag.OPAQUE, self.add(seen)

    def _find(self, value: Operand) -> int | None:
        if isinstance(value, float):
            (bits,) = struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(value) else value))
            return int(bits)
        name, kind = _name_and_kind(value)
        number = self._numbers.get(name)
        return None if number is None else _core.OPAQUE_BASE + (kind << _core.OPAQUE_KIND_SHIFT) + number


def _name_and_kind(value: Operand) -> tuple[Hashable, _Kind]:
    if isinstance(value, str):
        return value, _Kind.TEXT
    if isinstance(value, DType):
        return value.name, _Kind.DTYPE
    if isinstance(value, FunctionRef):
        return value.name, _Kind.FUNCTION
    return (None, identity(value)), _Kind.OTHER


def constexpr_value(value: Any, name: str, kernel: str) -> Value:
    """Turn what a caller passes for a constexpr into the value that a bundle stores.

    Numbers of numpy become Python's, a ``@triton.jit`` function becomes `FunctionRef`, and a dtype of Triton's, torch's or numpy's
    `DType`. A string may yet stand for a dtype: see `meant`.

    Raises:
        ArgumentError: nothing that a constexpr can be.
    """
    if value is None or type(value) in (bool, int, float, str, DType, FunctionRef):
        return value  # type: ignore[no-any-return] # its type was just compared
    if isinstance(value, str):
        # what it holds: `str` of a member of an enum is its name
        return str.__str__(value)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, tuple | list):
        return tuple(constexpr_value(item, name, kernel) for item in value)
    where = f"constexpr {name} of kernel {kernel}"
    found = _of_triton(value) or _of_dtype(value, name, where) or _of_numpy(value)
    if found is None:
        what = "expected int, float, bool, str, None, a tuple, a dtype or a jit function"
        raise ArgumentError(what, got=type(value).__name__, where=where, argument=name)
    return found[0]


def meant(value: Value, known: Iterable[Value]) -> Value:
    """Return what a string stands for where only dtypes are known for a constexpr: ``bfloat16`` for ``tl.bfloat16``.

    Args:
        value: what a caller passes, as `constexpr_value` has it; what is no string stays as it is.
        known: the values that were built.
    """
    if isinstance(value, tuple):
        tuples = [other for other in known if isinstance(other, tuple) and len(other) == len(value)]
        return tuple(meant(item, [other[place] for other in tuples]) for place, item in enumerate(value))
    dtype = dtype_name(value) if isinstance(value, str) else None
    if dtype is None:
        return value
    kinds = {type(other) for other in known}
    return DType(dtype) if DType in kinds and str not in kinds else value


def _of_dtype(value: Any, name: str, where: str) -> tuple[Value] | None:
    """Know a dtype of torch's or numpy's, and numpy's scalar classes, by its class's name: neither may be there."""
    if isinstance(value, type):
        spelled = value.__name__.rstrip("_") if value.__module__ in ("numpy", "ml_dtypes") else ""
    else:
        spelled = str(value) if any(kind.__name__ == "dtype" for kind in type(value).__mro__) else ""
    if not spelled:
        return None
    dtype = dtype_name(spelled)
    if dtype is None:
        raise ArgumentError("expected a dtype that Triton has", got=spelled, where=where, argument=name)
    return (DType(dtype),)


def _of_triton(value: Any) -> tuple[Value] | None:
    """Know Triton's own objects by their class's name: Triton itself may not be there."""
    kind = type(value)
    if not kind.__module__.startswith("triton."):
        return None
    if kind.__name__ == "constexpr":
        return (constexpr_value(value.value, "", ""),)
    if kind.__name__ == "dtype":
        return (DType(str(value.name)),)
    if kind.__name__ in ("JITFunction", "GluonJITFunction"):
        return (FunctionRef(f"{value.__module__}:{value.__name__}"),)
    return None


def _of_numpy(value: Any) -> tuple[Value] | None:
    if type(value).__module__ != "numpy":
        return None
    if type(value).__name__.startswith("bool"):
        return (bool(value),)
    try:
        return (operator.index(value),)
    except TypeError:
        pass
    try:
        return (float(value),)
    except (TypeError, ValueError):
        return None


def make_spec(
    table: KernelTable,
    options: Sequence[str],
    interner: Interner,
    arch: int,
    where: str,
    *,
    tuning: Tuning | None = None,
) -> _core.Spec:
    """Say what the key of a call consists of, for one table.

    Args:
        table: the kernel's variants for one target.
        options: the names that follow the params in a call's arguments.
        interner: gets every value that a key can hold.
        arch: what ``arch`` stands for: 90.
        where: the bundle and kernel, for errors.
        tuning: what orders the configs on the device; None if nothing does.

    Raises:
        BundleError: an expression of the table is too long, or asks for a name that is no param, or the table holds more
            than the core takes.
    """
    slots = {param.name: place for place, param in enumerate(table.params)}
    programs = _Programs(table, slots, interner, where)
    choosing = _choosing(table, programs, slots, arch, where)
    key = None if tuning is None else tuple([programs.of(text, {}) for text in tuning.key])
    bucket = BUCKETS.index(tuning.bucket) if tuning else 0
    try:
        return _core.Spec(table, slots, len(options), interner, choosing, key, bucket, arch)
    except ValueError as error:
        raise BundleError(str(error), where=where) from None


def _choosing(
    table: KernelTable, programs: _Programs, slots: Mapping[str, int], arch: int, where: str
) -> tuple[bytes, ...]:
    """Make the programs whose results choose a variant."""
    # most kernels ask for nothing that would have to be computed
    if not table.derived and not any(config.requires for config in table.configs):
        return ()
    try:
        asked = interests(table, arch)
    except ExpressionError as error:
        raise BundleError("expected expressions over the kernel's params", got=str(error), where=where) from None
    runtime = {slots[name] for name in table.runtime_params()}
    made = dict.fromkeys([programs.of(each.text, each.values) for each in asked])
    return tuple([program for program in made if _loads(program, runtime)])


def _loads(program: bytes, slots: Collection[int]) -> bool:
    """Say whether a program asks for one of some slots."""
    return any(op == Op.LOAD and operand in slots for op, operand in INSTRUCTION.iter_unpack(program))


class _Programs:
    """Makes programs of a table's expressions."""

    def __init__(self, table: KernelTable, slots: dict[str, int], interner: Interner, where: str) -> None:
        self._postfix = table.programs_by_expression()
        self._slots = slots
        self._interner = interner
        self._where = where
        self._constant = partial(push_constant, interner)

    def of(self, text: str, values: dict[str, Value]) -> bytes:
        """Make the program of an expression, with `values` in place.

        Raises:
            BundleError: it is too long, or asks for a name that is neither among `values` nor a param.
        """
        words = self._postfix.get(text, "")
        program = _core.assemble(words, values, self._slots, self._constant) if words else b""
        return program or self._made_of_text(text, values)

    def _made_of_text(self, text: str, values: dict[str, Value]) -> bytes:
        """Make the program of an expression of a table that has none, or say why there is none."""
        from nojit.runtime.postfix import TOO_LONG, names_of, postfix  # noqa: PLC0415 - bundles have it done

        try:
            words = postfix(text)
        except ExpressionError as error:
            raise self._fault(str(error)) from None
        program = _core.assemble(words, values, self._slots, self._constant)
        if program:
            return program
        strangers = sorted(names_of(words).difference(values, self._slots))
        raise self._fault(f"{f'unknown name {strangers[0]!r}' if strangers else TOO_LONG} in {text!r}")

    def _fault(self, got: str) -> BundleError:
        return BundleError("expected an expression over the kernel's params", got=got, where=self._where)


def push_constant(interner: Interner, value: Value) -> tuple[int, int]:
    """Make the instruction that pushes a value, which gets a number if a key holds one for it."""
    return constant(expression_value(value), interner.add)


def row_constexprs(table: KernelTable, row: int) -> dict[str, Value]:
    """Return what each constexpr and option is for one row: what a callable grid sees of it."""
    values: dict[str, Value] = {
        param.name: param.default
        for param in table.params
        if param.constexpr and not isinstance(param.default, Missing)
    }
    values.update(table.configs[table.columns["config"][row]].options)
    values.update(table.constexprs(row))
    return values


def row_names(table: KernelTable, row: int) -> dict[str, Value]:
    """Return what each constexpr, option and axis is for one row."""
    return {**table.axis_values(table.columns["meaning"][row]), **row_constexprs(table, row)}


def row_programs(
    table: KernelTable, names: Mapping[str, Value], interner: Interner, arch: int, where: str
) -> tuple[bytes, ...]:
    """Make the programs of the grid of one row, every constexpr in place.

    Args:
        table: the kernel's variants.
        names: as `row_names` gives them for the row.
        interner: gets every value that a program can hold.
        arch: what ``arch`` stands for: 90.
        where: the bundle and kernel, for errors.

    Raises:
        BundleError: as `make_spec`.
    """
    known = {**names, "arch": arch}
    slots = {param.name: place for place, param in enumerate(table.params) if not param.constexpr}
    programs = _Programs(table, slots, interner, where)
    return tuple([programs.of(text, known) for text in table.grid])
