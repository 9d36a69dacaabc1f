"""The types of ``triton.language`` that are made of others: blocks and tuples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nojit.runtime.serve.standin.constants import BaseType, BaseValue, Constexpr, ConstexprType, unwrap
from nojit.runtime.serve.standin.dtypes import DType
from nojit.runtime.serve.standin.registry import exported
from nojit.runtime.serve.standin.type_names import validate_block_shape

__all__ = ["BlockType", "Tuple", "TupleType"]


@exported("triton.language.core", "block_type")
class BlockType(DType):
    """A block of values.

    Args:
        element_ty: the type of each.
        shape: its sizes.

    Raises:
        TypeError: there are no sizes.
        ValueError: a size is no power of 2, or the block is too large.
    """

    def __init__(self, element_ty: DType, shape: Any) -> None:
        self.element_ty = element_ty
        sizes = [unwrap(each) for each in shape]
        if not sizes:
            raise TypeError("0d block_type is forbidden")
        self.shape = Tuple(sizes)
        self.numel = validate_block_shape(sizes)
        self.name = f"<{self.shape}, {element_ty}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockType):
            return False
        return self.element_ty == other.element_ty and self.shape.values == other.shape.values

    __hash__ = None  # type: ignore[assignment] # nor has Triton's

    def __repr__(self) -> str:
        return self.name

    def is_block(self) -> bool:  # type: ignore[override] # as Triton's
        """Say that this is the type of a block."""
        return True

    def get_block_shapes(self) -> Tuple:
        """Return the sizes."""
        return self.shape

    def with_element_ty(self, scalar_ty: DType) -> BlockType:
        """Return the type of a block of this shape with other elements."""
        return BlockType(scalar_ty, self.shape)

    @property
    def scalar(self) -> DType:
        """The type of one element."""
        return self.element_ty

    @property
    def nbytes(self) -> int:
        """The bytes of a block."""
        return int(self.numel * (self.element_ty.primitive_bitwidth // 8))

    def mangle(self) -> str:
        """Return the type's part of a function's name."""
        return f"{self.element_ty.mangle()}S{'_'.join(map(str, self.shape))}S"


@exported("triton.language.core", "tuple_type")
class TupleType(BaseType):
    """The type of a tuple."""

    def __init__(self, types: Any, fields: Any = None) -> None:
        self.types = types
        self.fields = fields

    @property
    def name(self) -> str:
        """The types, with the names of fields."""
        names = [""] * len(self.types) if self.fields is None else [f"{field}:" for field in self.fields]
        return f"[{','.join(f'{name}{kind}' for name, kind in zip(names, self.types, strict=True))}]"

    def __str__(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[Any]:
        return iter(self.types)

    def __getitem__(self, index: int) -> Any:
        return self.types[index]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment] # nor has Triton's

    def mangle(self) -> str:
        """Return the type's part of a function's name."""
        return f"T{'_'.join(each.mangle() for each in self.types)}T"


@exported("triton.language.core", "tuple")
class Tuple(BaseValue):
    """A tuple of Triton's language."""

    def __init__(self, args: Any, type: Any = None) -> None:  # noqa: A002 - Triton's name
        self.values = [*args]
        if type is None:
            type = TupleType([_type_of(each) for each in self.values])  # noqa: A001 - as above
        self.type = type if isinstance(type, TupleType) else TupleType(type)

    def __getitem__(self, key: Any) -> Any:
        key = unwrap(key)
        return Tuple(self.values[key]) if isinstance(key, slice) else self.values[key]

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__["type"].fields if "type" in self.__dict__ else None
        if fields is None or name not in fields:
            raise AttributeError(f"'tuple' object has no attribute {name}")
        return self.values[fields.index(name)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> Any:
        given = other.values if isinstance(other, Tuple) else [*other] if isinstance(other, list | tuple) else other
        return Constexpr(self.values == given)

    def __hash__(self) -> int:
        return hash(tuple(self.values))

    def __str__(self) -> str:
        return str([str(each) for each in self.values])

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.values))})"


def _type_of(value: Any) -> Any:
    return ConstexprType(value) if isinstance(value, int | float | DType) else value.type
