"""Types as signatures name them: scalars, pointers, tuples, tensor descriptors, constants. Pure.

One type has one spelling, without spaces: ``i32``, ``*fp16``, ``(*fp16,(i32,none))``, ``tensordesc<fp16[128,64]>``, ``=3``. The
*leaves* of a type are what is left once its tuples are taken apart; ``x.1.0`` is the path of member 0 of member 1 of
param ``x``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nojit.runtime.constant_types import is_constant

__all__ = [
    "ELEMENTS",
    "LEAVES_MAX",
    "NONE",
    "RANK_MAX",
    "SCALAR_BYTES",
    "TENSOR_MAP",
    "TENSOR_MAP_BYTES",
    "descriptor_parts",
    "dtype_name",
    "dtype_spellings",
    "element_name",
    "is_compiled_in",
    "is_descriptor",
    "is_tuple",
    "is_type",
    "leaves",
    "members",
]

NONE: Final = "none"
"""The type of a param, or of a member of a tuple, for which None was compiled in."""
SCALAR_BYTES: Final = {"i1": 1, "u1": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8} | {
    f"{sign}{8 * size}": size for sign in "iu" for size in (1, 2, 4, 8)
}
"""The scalars that can be passed, and what they take."""
ELEMENTS: Final = frozenset(SCALAR_BYTES) | {"fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16"}
"""What a pointer can point to, and a descriptor describe."""
TENSOR_MAP: Final = "tensormap"
"""The type of a slot that takes a CUtensorMap by value."""
TENSOR_MAP_BYTES: Final = 128
LEAVES_MAX: Final = 256
"""What a tuple holds at most, and all tuples of a call together: the core lays out no more."""
RANK_MAX: Final = 5
"""Dimensions of a tensor that a descriptor describes."""

# what frameworks, and Triton's own dtypes, call elements
_OTHER_NAMES: Final = {
    "bool": "i1", "int1": "i1", "uint1": "i1", "u1": "i1", "int": "i32", "half": "fp16", "float16": "fp16", "bfloat16": "bf16",
    "float": "fp32", "float32": "fp32", "double": "fp64", "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv", "float8e4nv": "fp8e4nv", "float8_e5m2": "fp8e5", "float8e5": "fp8e5",
    "float8e4b15": "fp8e4b15", "float8_e4m3fnuz": "fp8e4b8", "float8e4b8": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16", "float8e5b16": "fp8e5b16",
} | {f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}  # fmt: skip

_DESCRIPTOR: Final = "tensordesc<"


def element_name(name: str) -> str | None:
    """Return an element in the spelling of types: ``fp16`` of ``fp16``, ``float16`` and ``torch.float16``; None of anything else."""
    bare = name.removeprefix("torch.").removeprefix("tl.")
    found = _OTHER_NAMES.get(bare, bare)
    return found if found in ELEMENTS else None


def dtype_name(name: str) -> str | None:
    """Return the name of Triton's dtype, ``int32`` or ``fp16``, for an element in any spelling that `element_name` knows."""
    element = element_name(name)
    if element is None or element[0] not in "iu":
        return element
    return f"{'u' * (element[0] == 'u')}int{element[1:]}"


@lru_cache(maxsize=64)
def dtype_spellings(name: str) -> tuple[str, ...]:
    """List the spellings of one of Triton's dtypes: ``bfloat16``, ``bf16`` and ``torch.bfloat16`` of ``bf16``."""
    bare = [spelled for spelled in (*_OTHER_NAMES, *sorted(ELEMENTS)) if dtype_name(spelled) == name]
    return (*bare, *(f"torch.{spelled}" for spelled in bare))


def is_tuple(name: str) -> bool:
    """Say whether a type is a tuple's."""
    return name.startswith("(")


def is_descriptor(name: str) -> bool:
    """Say whether a type is a tensor descriptor's."""
    return name.startswith(_DESCRIPTOR)


def is_type(name: str) -> bool:
    """Say whether `name` is a type, in its one spelling."""
    from nojit.runtime import _core  # noqa: PLC0415 - which imports tables, and tables this

    return _core.is_type(name)


def is_compiled_in(name: str) -> bool:
    """Say whether nothing is passed for a type: None, or a constant."""
    return name == NONE or is_constant(name)


def members(name: str) -> list[str]:
    """Take a tuple's type apart, one level deep."""
    from nojit.runtime import _core  # noqa: PLC0415 - which imports tables, and tables this

    return _core.members(name)


@lru_cache(maxsize=512)
def leaves(name: str, path: str) -> tuple[tuple[str, str], ...]:
    """List the path and the type of each leaf of a type, in order.

    Args:
        name: a type.
        path: of what has that type: the param's name.
    """
    from nojit.runtime import _core  # noqa: PLC0415 - which imports tables, and tables this

    return _core.leaves(name, path)


def descriptor_parts(name: str) -> tuple[str, tuple[int, ...]]:
    """Return what a descriptor's type says: the element and the block."""
    from nojit.runtime import _core  # noqa: PLC0415 - which imports tables, and tables this

    return _core.descriptor_parts(name)
