"""Types as signatures name them: scalars, pointers, tuples, tensor descriptors, constants. Pure.

One type has one spelling, without spaces: ``i32``, ``*fp16``, ``(*fp16,(i32,none))``, ``tensordesc<fp16[128,64]>``, ``=3``. The
*leaves* of a type are what is left once its tuples are taken apart; ``x.1.0`` is the path of member 0 of member 1 of
param ``x``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nojit.runtime.constant_types import constant_of, is_constant

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

_DEPTH_MAX: Final = 8
_DESCRIPTOR: Final = "tensordesc<"
_BLOCK_MAX: Final = 1 << 20


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


def is_type(name: str, depth: int = 0) -> bool:
    """Say whether `name` is a type, in its one spelling.

    Args:
        name: any text.
        depth: in how many tuples it lies.
    """
    if name in SCALAR_BYTES or name == NONE:
        return True
    if name.startswith("*"):
        return name[1:].removeprefix("k") in ELEMENTS
    if is_constant(name):
        return _is_constant(name)
    if is_tuple(name):
        inner = members(name)
        whole = f"({','.join(inner)})" == name and name.count(",") < LEAVES_MAX
        return whole and depth < _DEPTH_MAX and all(is_type(member, depth + 1) for member in inner)
    return is_descriptor(name) and _is_descriptor(name)


def _is_constant(name: str) -> bool:
    try:
        constant_of(name)
    except ValueError:
        return False
    return True


def is_compiled_in(name: str) -> bool:
    """Say whether nothing is passed for a type: None, or a constant."""
    return name == NONE or is_constant(name)


def _is_descriptor(name: str) -> bool:
    element, _, rest = name[len(_DESCRIPTOR) :].partition("[")
    dims = rest.removesuffix("]>").split(",")
    plain = all(dim.isascii() and dim.isdigit() and len(dim) < 8 and 0 < int(dim) <= _BLOCK_MAX for dim in dims)
    spelled = plain and f"{_DESCRIPTOR}{element}[{','.join(str(int(dim)) for dim in dims)}]>" == name
    return spelled and element in ELEMENTS and len(dims) <= RANK_MAX


def members(name: str) -> list[str]:
    """Take a tuple's type apart, one level deep."""
    if name == "()":
        return []
    found, depth, start = [], 0, 1
    for place, char in enumerate(name):
        depth += (char in "(<[") - (char in ")>]")
        if depth == 1 and char == ",":
            found.append(name[start:place])
            start = place + 1
    return [*found, name[start:-1]]


@lru_cache(maxsize=512)
def leaves(name: str, path: str) -> tuple[tuple[str, str], ...]:
    """List the path and the type of each leaf of a type, in order.

    Args:
        name: a type.
        path: of what has that type: the param's name.
    """
    if not is_tuple(name):
        return ((path, name),)
    return tuple(leaf for number, member in enumerate(members(name)) for leaf in leaves(member, f"{path}.{number}"))


def descriptor_parts(name: str) -> tuple[str, tuple[int, ...]]:
    """Return what a descriptor's type says: the element and the block."""
    element, _, dims = name[len(_DESCRIPTOR) : -len("]>")].partition("[")
    return element, tuple(map(int, dims.split(",")))
