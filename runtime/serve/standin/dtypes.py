"""The dtypes of ``triton.language``."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

from nojit.runtime import _core
from nojit.runtime.serve.standin.constants import BaseType, unwrap
from nojit.runtime.serve.standin.registry import export, exported
from nojit.runtime.serve.standin.type_names import BITS

__all__ = ["DType", "PointerType"]

# of each floating-point type of the engine's `base/dtype.c`: bits of the mantissa, and the bias of the exponent
_FLOATS: Final = {
    "fp8e4b15": (3, 15),
    "fp8e4nv": (3, 7),
    "fp8e4b8": (3, 8),
    "fp8e5": (2, 15),
    "fp8e5b16": (2, 16),
    "fp16": (10, 15),
    "bf16": (7, 127),
    "fp32": (23, 127),
    "fp64": (52, 1023),
}
_INTS: Final = [_core.dtype_name(name) or "" for name, kind, _, _ in _core.dtypes() if kind == "int"]
_SIGNED: Final = tuple(name for name in _INTS if name.startswith("int"))
_UNSIGNED: Final = ("int1", *(name for name in _INTS if name.startswith("uint")))


class Signedness(enum.Enum):
    """Whether an integer has a sign."""

    SIGNED = 0
    UNSIGNED = 1


class Kind(enum.Enum):
    """The order in which types are promoted."""

    BOOLEAN = 0
    INTEGRAL = 1
    FLOATING = 2


@exported("triton.language.core", "dtype")
class DType(BaseType):
    """A scalar type.

    Args:
        name: ``fp16``, ``int32``, ….

    Raises:
        AssertionError: Triton has no such dtype.
    """

    SINT_TYPES: Final = [*_SIGNED]
    UINT_TYPES: Final = [*_UNSIGNED]
    FP_TYPES: Final = [*_FLOATS]
    STANDARD_FP_TYPES: Final = ["fp16", "bf16", "fp32", "fp64"]
    OTHER_TYPES: Final = ["void"]
    SIGNEDNESS = Signedness
    KIND = Kind

    def __init__(self, name: Any) -> None:
        self.name: str = unwrap(name)
        if not self.is_dtype(self.name):
            raise AssertionError(self.name)
        self.primitive_bitwidth = BITS[self.name]
        self.itemsize = self.primitive_bitwidth // 8
        if self.is_int():
            self.int_signedness = Signedness.SIGNED if self.is_int_signed() else Signedness.UNSIGNED
            self.int_bitwidth = self.primitive_bitwidth
        elif self.name in _FLOATS:
            self.fp_mantissa_width, self.exponent_bias = _FLOATS[self.name]

    @staticmethod
    def is_dtype(type_str: str) -> bool:
        """Say whether Triton has a dtype with this name."""
        return bool(unwrap(type_str) in {*_SIGNED, *_UNSIGNED, *_FLOATS, "void"})

    def is_fp8(self) -> bool:
        """Say whether this is one of the 8-bit floating-point types."""
        return "fp8" in self.name

    def is_floating(self) -> bool:
        """Say whether this is a floating-point type."""
        return self.name in _FLOATS

    def is_standard_floating(self) -> bool:
        """Say whether this is a floating-point type of 16 bits or more."""
        return self.name in self.STANDARD_FP_TYPES

    def is_int_signed(self) -> bool:
        """Say whether this is an integer with a sign."""
        return self.name in _SIGNED

    def is_int_unsigned(self) -> bool:
        """Say whether this is an integer without a sign, or a bool."""
        return self.name in _UNSIGNED

    def is_int(self) -> bool:
        """Say whether this is an integer or a bool."""
        return self.is_int_signed() or self.is_int_unsigned()

    def is_bool(self) -> bool:
        """Say whether this is ``int1``."""
        return self.name == "int1"

    def kind(self) -> Kind:
        """Return the type's place in the order of promotion."""
        if self.is_bool():
            return Kind.BOOLEAN
        if self.is_int():
            return Kind.INTEGRAL
        if not self.is_floating():
            raise AssertionError
        return Kind.FLOATING

    def get_int_max_value(self) -> int:
        """Return the greatest value of an integer type."""
        if not self.is_int():
            raise AssertionError
        return (1 << (self.int_bitwidth - self.is_int_signed())) - 1

    def get_int_min_value(self) -> int:
        """Return the least value of an integer type."""
        if not self.is_int():
            raise AssertionError
        return -(1 << (self.int_bitwidth - 1)) if self.is_int_signed() else 0

    @staticmethod
    def is_void() -> bool:
        """Raise Triton's error: it does not answer this."""
        raise RuntimeError("Not implemented")

    @staticmethod
    def is_block() -> bool:
        """Say whether this is the type of a block."""
        return False

    @staticmethod
    def is_ptr() -> bool:
        """Say whether this is a pointer."""
        return False

    @staticmethod
    def is_const() -> bool:
        """Say whether this is a pointer to constants."""
        return False

    def __eq__(self, other: object) -> bool:
        other = unwrap(other)
        return isinstance(other, DType) and self.name == other.name

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.name,))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"triton.language.{self.codegen_name()}"

    @property
    def scalar(self) -> Any:
        """The type of one element."""
        return self

    @property
    def cache_key_part(self) -> str:
        """The type's part of a key."""
        return self.name

    def codegen_name(self) -> str:
        """Return the name in `triton.language`: ``float16`` for ``fp16``."""
        for short, long in (("fp", "float"), ("bf", "bfloat")):
            if self.name.startswith(short):
                return long + self.name[2:]
        return self.name

    def mangle(self) -> str:
        """Return the type's part of a function's name."""
        if self.is_int():
            return f"{'i' if self.is_int_signed() else 'u'}{self.int_bitwidth}"
        # the error of `is_void`, as Triton's
        return str(self) if self.is_floating() or not self.is_void() else "V"

    def with_element_ty(self, element_ty: DType) -> DType:
        """Return the scalar type itself."""
        return element_ty


def _named(name: str) -> Callable[[DType], bool]:
    return lambda self: self.name == name


for _name in (*_FLOATS, *_SIGNED, *_UNSIGNED):
    setattr(DType, f"is_{_name}", _named(_name))


@exported("triton.language.core", "pointer_type")
class PointerType(DType):
    """A pointer.

    Args:
        element_ty: the type that it points to.
        address_space: where.
        const: whether nothing is stored through it.

    Raises:
        TypeError: `element_ty` is no dtype.
    """

    def __init__(self, element_ty: Any, address_space: Any = "global", const: bool = False) -> None:
        element_ty = unwrap(element_ty)
        if not isinstance(element_ty, DType):
            raise TypeError(f"element_ty has type `{type(element_ty).__name__}`; expected `dtype`.")
        self.element_ty = element_ty
        self.address_space = address_space
        self.const = const
        self.name = f"{'const_' if const else ''}pointer<{element_ty}>"

    def __eq__(self, other: object) -> bool:
        other = unwrap(other)
        return isinstance(other, PointerType) and (self.element_ty, self.address_space, self.const) == (
            other.element_ty,
            other.address_space,
            other.const,
        )

    __hash__ = None  # type: ignore[assignment] # nor has Triton's

    def __repr__(self) -> str:
        return self.name

    def is_ptr(self) -> bool:  # type: ignore[override] # as Triton's
        """Say that this is a pointer."""
        return True

    def is_const(self) -> bool:  # type: ignore[override] # as Triton's
        """Say whether this is a pointer to constants."""
        return self.const

    def mangle(self) -> str:
        """Return the type's part of a function's name."""
        return f"P{self.element_ty.mangle()}"


@exported("triton.language.core", "get_int_dtype")
def get_int_dtype(bitwidth: int, signed: bool) -> DType:
    """Return an integer type.

    Raises:
        ValueError: Triton has no integer of this width.
    """
    name = "int1" if bitwidth == 1 else f"{'' if signed else 'u'}int{bitwidth}"
    if name not in (*_SIGNED, *_UNSIGNED):
        raise ValueError(f"Unsupported bitwidth {bitwidth} and signedness {signed}")
    return SCALARS[name]


SCALARS: Final = {made.codegen_name(): made for made in map(DType, (*_SIGNED, *_UNSIGNED, *_FLOATS, "void"))}
export("triton.language.core", **SCALARS, pi32_t=PointerType(SCALARS["int32"]), _DtypeClass=DType)
