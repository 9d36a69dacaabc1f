"""Types as signatures name them: scalars, pointers, tuples, tensor descriptors, constants. Pure.

One type has one spelling, without spaces: ``i32``, ``*fp16``, ``(*fp16,(i32,none))``, ``tensordesc<fp16[128,64]>``, ``=3``. The
*leaves* of a type are what is left once its tuples are taken apart; ``x.1.0`` is the path of member 0 of member 1 of
param ``x``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nojit.runtime.types.constants import is_constant

__all__ = [
    "NONE",
    "TENSOR_MAP",
    "descriptor_parts",
    "dtype_name",
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
TENSOR_MAP: Final = "tensormap"
"""The type of a slot that takes a CUtensorMap by value."""

_DESCRIPTOR: Final = "tensordesc<"


def element_name(name: str) -> str | None:
    """Return an element in the spelling of types: ``fp16`` of ``fp16``, ``float16`` and ``torch.float16``; None of anything else."""
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.element_name(name)


def dtype_name(name: str) -> str | None:
    """Return the name of Triton's dtype, ``int32`` or ``fp16``, for an element in any spelling that `element_name` knows."""
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.dtype_name(name)


def is_tuple(name: str) -> bool:
    """Say whether a type is a tuple's."""
    return name.startswith("(")


def is_descriptor(name: str) -> bool:
    """Say whether a type is a tensor descriptor's."""
    return name.startswith(_DESCRIPTOR)


def is_type(name: str) -> bool:
    """Say whether `name` is a type, in its one spelling."""
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.is_type(name)


def is_compiled_in(name: str) -> bool:
    """Say whether nothing is passed for a type: None, or a constant."""
    return name == NONE or is_constant(name)


def members(name: str) -> list[str]:
    """Take a tuple's type apart, one level deep."""
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.members(name)


@lru_cache(maxsize=512)
def leaves(name: str, path: str) -> tuple[tuple[str, str], ...]:
    """List the path and the type of each leaf of a type, in order.

    Args:
        name: a type.
        path: the param's name, or the path of a member that has that type.
    """
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.leaves(name, path)


def descriptor_parts(name: str) -> tuple[str, tuple[int, ...]]:
    """Return what a descriptor's type says: the element and the block."""
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.descriptor_parts(name)
