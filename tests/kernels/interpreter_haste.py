"""Spare Triton's interpreter work that comes to nothing: of the tests of kernels, most of the time is its bookkeeping.

What kernels compute, what they are refused, and what they raise stays as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import (
    InterpretedFunction,
    TensorHandle,
    interpreter_builder,
    interpreter_semantic,
)

__all__ = ["hasten"]


def hasten() -> None:
    """Replace parts of the interpreter of this process by what is faster."""
    _patch_once_a_launch()
    _pass_semantics_quickly()
    _leave_out_what_is_asserted_in_debug_mode()
    _find_numpy_types_in_a_table()
    _make_types_once()
    _unwrap_by_type()
    _hold_data_quickly()
    _match_operands_once()
    _cast_plain_numbers_at_once()


def _patch_once_a_launch() -> None:
    """Spare the interpreter its patching of triton at each call of a helper: one a launch and module is enough."""
    plain_run, patch_lang = InterpretedFunction.run, interpreter._patch_lang
    patched: set[str] = set()

    def run(self: InterpretedFunction, *args: Any, **kwargs: Any) -> None:
        patched.clear()
        plain_run(self, *args, **kwargs)

    def call(self: InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
        if self.fn.__module__ not in patched:
            patch_lang(self.fn)
            patched.add(self.fn.__module__)
        return self.rewrite()(*args, **kwargs)

    InterpretedFunction.run, InterpretedFunction.__call__ = run, call


def _pass_semantics_quickly() -> None:
    """Spare each call of a builtin a copy of its named arguments, and a look whether it got what is passed here."""

    def patch(obj: Any, name: str, member: Callable[..., Any], _builder: Any, scope: Any) -> None:
        if obj is tl.tensor and name in _MEMBERS:
            scope.set_attr(obj, name, _MEMBERS[name])
            return
        plain = inspect.unwrap(member, stop=lambda one: not hasattr(one, "signature"))

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = interpreter_semantic
            return plain(*args, **kwargs)

        scope.set_attr(obj, name, call)

    interpreter._patch_attr = patch


def _leave_out_what_is_asserted_in_debug_mode() -> None:
    """Compute no sum and no product twice: that it does not overflow is asserted in debug mode alone, which this is not."""
    assert not interpreter_builder.options.debug
    interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)


def _find_numpy_types_in_a_table() -> None:
    """Spare the interpreter the making of a table each time that it looks into it."""
    plain = interpreter._get_np_dtype
    known: dict[str, np.dtype[Any]] = {}

    def find(of: Any) -> np.dtype[Any]:
        element = of.element_ty if isinstance(of, tl.block_type) else of
        if isinstance(element, tl.pointer_type):
            return plain(element)  # type: ignore[no-any-return]
        if element.name not in known:
            known[element.name] = plain(element)
        return known[element.name]

    interpreter._get_np_dtype = find


def _make_types_once() -> None:
    """Keep the types of blocks, and what tensors of a type have alike: their shape, and the number and type of elements."""
    plain_block, plain_tensor = tl.block_type.__init__, tl.tensor.__init__
    known: dict[tuple[Any, ...], tl.block_type] = {}

    def make(cls: type[tl.block_type], *args: Any) -> tl.block_type:
        return known.get(_key(cls, *args)) or object.__new__(cls)

    def fill(self: tl.block_type, element_ty: tl.dtype, shape: Any) -> None:
        if "name" not in self.__dict__:
            plain_block(self, element_ty, shape)
            known[_key(type(self), element_ty, self.shape)] = self

    def describe(self: tl.tensor, handle: Any, of: tl.dtype) -> None:
        alike = of.__dict__.get("_alike")
        if alike is None:
            plain_tensor(self, handle, of)
            of._alike = self.shape, self.numel, self.dtype
            return
        self.handle, self.type = handle, of
        self.shape, self.numel, self.dtype = alike

    tl.block_type.__new__, tl.block_type.__init__, tl.tensor.__init__ = make, fill, describe


def _key(kind: type, element: Any, shape: Any) -> tuple[Any, ...]:
    """Say by what a type of blocks is known; one whose sizes are no plain ints is not."""
    return kind, type(element), element.name, getattr(element, "address_space", ""), *shape, *map(type, shape)


def _unwrap_by_type() -> None:
    """Spare what is mostly no constant four questions of whether it is one, or holds some."""
    plain = tl.core._unwrap_if_constexpr
    as_they_are = {tl.tensor, tl.dtype, tl.block_type, tl.pointer_type, int, float, bool, type(None)}

    def unwrap(value: Any) -> Any:
        kind = type(value)
        if kind in as_they_are:
            return value
        return value.value if kind is tl.constexpr else plain(value)

    tl.core._unwrap_if_constexpr = tl._unwrap_if_constexpr = unwrap


def _hold_data_quickly() -> None:
    """Ask of data whether it is too wide for its type, and nothing else."""
    plain = TensorHandle.__post_init__

    def hold(self: TensorHandle, data: Any, dtype: tl.dtype, attr: dict[str, Any] | None = None) -> None:
        self.data, self.dtype, self.attr = data, dtype, {} if attr is None else attr
        size = data.itemsize
        if size > 1 and type(dtype) is not tl.pointer_type and 8 * size > dtype.primitive_bitwidth:
            plain(self)

    TensorHandle.__init__ = hold


def _match_operands_once() -> None:
    """Keep how operands of two types are made alike, and each number as a tensor of the type that it becomes."""
    plain_check, plain_spread = TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value
    known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def match(plain: Callable[..., Any], semantic: TritonSemantic[Any], lhs: Any, rhs: Any, *rules: bool) -> Any:
        key = _operand(lhs), _operand(rhs), rules
        found = known.get(key)
        if found is None:
            left, right = plain(semantic, lhs, rhs, *rules)
            if len(known) > _MOST_KNOWN:
                known.clear()
            # types are told apart by where they lie, so they must stay
            known[key] = _change(lhs, left), _change(rhs, right), getattr(lhs, "type", None), getattr(rhs, "type", None)
            return left, right
        left, right = found[0], found[1]
        return left(lhs) if left is not None else lhs, right(rhs) if right is not None else rhs

    def check(  # noqa: PLR0917 - as Triton passes them
        self: TritonSemantic[Any],
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        return match(plain_check, self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    def spread(self: TritonSemantic[Any], lhs: Any, rhs: Any) -> Any:
        return match(plain_spread, self, lhs, rhs)

    TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value = check, spread


def _cast_plain_numbers_at_once() -> None:
    """Spare what numpy casts by itself the questions that lead there."""
    plain = TritonSemantic.cast
    plain_types = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"fp32", "fp64"}

    def cast(self: TritonSemantic[Any], value: Any, to: Any, rounding: str | None = None) -> Any:
        of = value.type
        source, target = of.scalar, to.scalar
        if source.name == target.name and type(source) is tl.dtype:
            return value
        if (
            rounding is None
            and target.name in plain_types
            and (source.name in plain_types or source.name == "int1" or (source.name, target.name) == ("fp16", "fp32"))
        ):
            handle = TensorHandle(value.handle.data.astype(interpreter._get_np_dtype(target)), target)
            return tl.tensor(handle, of.with_element_ty(target) if of.is_block() else to)
        return plain(self, value, to, rounding)

    TritonSemantic.cast = cast


_MOST_KNOWN = 10_000


def _operand(value: Any) -> Any:
    """Say what operands are alike that are treated alike: tensors of a type, and equal numbers, but no two zeros."""
    kind = type(value)
    if kind is tl.tensor:
        return id(value.type)
    return kind, value or str(value)


def _change(before: Any, after: tl.tensor) -> Callable[[Any], Any] | None:
    """Return what makes of an operand what was made of one like it, or None if nothing does."""
    if after is before:
        return None
    if type(before) is not tl.tensor:
        return lambda _: after
    scalar, of = after.type.scalar, after.type
    is_cast, is_block = before.type.scalar != scalar, before.type.is_block()
    shape = [int(size) for size in of.shape] if of.is_block() else []
    missing = len(shape) - len(before.type.shape) if is_block else 0
    is_spread = is_block and list(before.type.shape) != shape

    def change(value: tl.tensor) -> tl.tensor:
        if is_cast:
            value = interpreter_semantic.cast(value, scalar)
        handle = value.handle
        if shape and not is_block:
            handle = interpreter_builder.create_splat(of, handle)
        elif is_spread:
            data = handle.data
            if missing:
                data = data.reshape((1,) * missing + data.shape)
            handle = TensorHandle(np.broadcast_to(data, shape), handle.dtype.scalar)
        return tl.tensor(handle, of)

    return change


def _operator(
    name: str, compute: np.ufunc, types: frozenset[str], *, swapped: bool = False
) -> Callable[[Any, Any], Any]:
    """Return an operator that has numpy alone compute, once Triton has said what comes of operands of two types.

    Args:
        name: of what Triton does.
        compute: what that is where the operands have one of `types`, or are signed integers.
        types: the names of types.
        swapped: whether the tensor is the second operand.
    """
    # that sums and products do not overflow is asked in debug mode alone
    rest = (False,) if name in _ARITHMETIC else ()
    plain = getattr(interpreter_semantic, name)
    known: dict[tuple[Any, ...], _Known] = {}

    def call(self: tl.tensor, other: Any) -> Any:
        if type(other) is tl.tensor:
            key = id(self.type), id(other.type)
        else:
            other = tl.core._unwrap_if_constexpr(other)
            key = id(self.type), type(other), (other or str(other)) if type(other) in _NUMBERS else None
        found = known.get(key)
        if found is not None:
            left, right = self.handle.data, other.handle.data if found.number is None else found.number
            if left.dtype is found.left and right.dtype is found.right:
                data = found.compute(right, left) if swapped else found.compute(left, right)
                return tl.tensor(TensorHandle(data, found.of or self.handle.dtype.scalar), found.type)
        result = plain(other, self, *rest) if swapped else plain(self, other, *rest)
        is_new = found is None and key[-1] is not None and not (swapped and type(other) is tl.tensor)
        if is_new and (new := _learn(self, other, result, compute, types)):
            if len(known) > _MOST_KNOWN:
                known.clear()
            known[key] = new
        return result

    return call


@dataclass(frozen=True, slots=True)
class _Known:
    """What comes of operands of two types, or of a type and a number."""

    compute: Callable[[Any, Any], Any]
    type: Any
    """Of the tensor that comes out."""
    of: Any
    """The type that its data are said to have; None for what those of the tensor are."""
    left: np.dtype[Any]
    """Of the tensor's array; one that has another is no such operand."""
    right: np.dtype[Any]
    number: Any
    """The other operand as an array; None for a tensor."""
    kept: tuple[Any, ...]
    """The operands' types, which must stay: they are told apart by where they lie."""


def _learn(
    self: tl.tensor, other: Any, result: tl.tensor, compute: Callable[[Any, Any], Any], types: frozenset[str]
) -> _Known | None:
    """Return what there is to know of an operator and its operands; None if Triton must be asked each time."""
    mine = self.type.scalar
    if type(other) is not tl.tensor:
        as_it_is, tensor = interpreter_semantic.binary_op_type_checking_impl(self, other, True)
        number = tensor.handle.data
        if mine.name not in types or as_it_is is not self or tensor.type.scalar is not mine:
            return None
        return _Known(compute, result.type, None, self.handle.data.dtype, number.dtype, number, (self.type,))
    its = other.type.scalar
    of = result.handle.dtype
    if type(mine) is tl.pointer_type:
        if compute is not np.add or its.name not in _SIGNED:
            return None
        compute = partial(_move, max(1, mine.element_ty.primitive_bitwidth // 8))
    elif mine is its and mine.name in types:
        of = None
    elif not {mine.name, its.name} <= _SIGNED:
        return None
    arrays = self.handle.data.dtype, other.handle.data.dtype
    return _Known(compute, result.type, of, *arrays, None, (self.type, other.type))


def _move(size: int, pointers: Any, offsets: Any) -> Any:
    """Move pointers to elements of so many bytes."""
    return pointers + size * offsets.astype(np.uint64)


def _get_item() -> Callable[[Any, Any], Any]:
    plain = inspect.unwrap(tl.tensor.__getitem__)
    known: dict[tuple[Any, ...], tuple[tl.block_type, tl.block_type]] = {}

    def call(self: tl.tensor, slices: Any) -> Any:
        if type(slices) is not tuple or not all(one is None or one == _ALL for one in slices):
            return plain(self, slices, _semantic=interpreter_semantic)
        key = id(self.type), *(one is None for one in slices)
        found = known.get(key)
        if found is None:
            got = plain(self, slices, _semantic=interpreter_semantic)
            if self.type.is_block():
                known[key] = got.type, self.type
            return got
        return tl.tensor(TensorHandle(self.handle.data[slices], self.dtype), found[0])

    return call


_ALL = slice(None)
_NUMBERS = {int, float, bool}
_SIGNED = frozenset({"int8", "int16", "int32", "int64"})
_INTEGERS = _SIGNED | {f"u{name}" for name in _SIGNED}
_PLAIN = _INTEGERS | {"fp16", "fp32", "fp64"}
_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_COMPARISONS = {
    "__lt__": ("less_than", np.less),
    "__le__": ("less_equal", np.less_equal),
    "__gt__": ("greater_than", np.greater),
    "__ge__": ("greater_equal", np.greater_equal),
    "__eq__": ("equal", np.equal),
    "__ne__": ("not_equal", np.not_equal),
}
_BITWISE = {
    "__and__": ("and_", np.bitwise_and),
    "__or__": ("or_", np.bitwise_or),
    "__xor__": ("xor_", np.bitwise_xor),
}
_MEMBERS = {
    "__getitem__": _get_item(),
    **{
        f"__{'r' * swapped}{name}__": _operator(name, compute, _PLAIN, swapped=swapped)
        for name, compute in _ARITHMETIC.items()
        for swapped in (False, True)
    },
    **{member: _operator(*what, _PLAIN) for member, what in _COMPARISONS.items()},
    **{member: _operator(*what, _INTEGERS | {"int1"}) for member, what in _BITWISE.items()},
}
"""Members of tensors in place of Triton's."""
