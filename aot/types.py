"""Types as manifests spell them: Triton's own names, an optional mark, a matrix axis in braces."""

from __future__ import annotations

import re

from nojit.runtime.errors import ManifestError, did_you_mean

__all__ = ["NONE", "axes_in", "check_type", "fill", "is_hintable", "is_optional"]

NONE = "none"
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
BOOLS = ("i1", "u1")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
ELEMENTS = (*BOOLS, *INTS, *FLOATS, "fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16")

_AXIS = re.compile(r"\{([^{}]*)\}")
_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[\s*\d+(?:\s*,\s*\d+)*\s*\]>\Z")


def axes_in(spelling: str) -> tuple[str, ...]:
    """List the matrix axes that a type names in braces."""
    return tuple(_AXIS.findall(spelling))


def fill(spelling: str, axes: dict[str, str]) -> str:
    """Put the values of matrix axes in place of their names."""
    return _AXIS.sub(lambda match: axes[match[1]], spelling)


def is_optional(spelling: str) -> bool:
    """Say whether a type is built for None too."""
    return spelling.endswith("?")


def check_type(spelling: str, where: str) -> str:
    """Return a type whose axes are filled in and whose optional mark is gone, if Triton has it.

    Raises:
        ManifestError: it has not; the message names the nearest that it has.
    """
    if spelling in BOOLS + INTS + FLOATS or spelling == NONE:
        return spelling
    if spelling.startswith("*"):
        if spelling[1:] in ELEMENTS:
            return spelling
        near = did_you_mean(spelling[1:], ELEMENTS)
        raise ManifestError(
            "expected a pointer to a Triton dtype, such as '*fp16'", got=f"{spelling!r}{near}", where=where
        )
    if spelling.startswith("(") and spelling.endswith(")"):
        for member in split_tuple(spelling):
            check_type(member, where)
        return spelling
    descriptor = _DESCRIPTOR.match(spelling)
    if descriptor and descriptor[1] in ELEMENTS:
        return spelling
    near = did_you_mean(spelling, (*BOOLS, *INTS, *FLOATS))
    raise ManifestError(
        "expected a type in Triton's spelling, such as '*fp16' or 'i32'", got=f"{spelling!r}{near}", where=where
    )


def split_tuple(spelling: str) -> list[str]:
    """Take the members of ``(*fp16,i32)`` apart; members may be tuples."""
    members, depth, start = [], 0, 1
    for place, char in enumerate(spelling):
        depth += (char in "(<[") - (char in ")>]")
        if (char == "," and depth == 1) or (depth == 0 and place == len(spelling) - 1):
            members.append(spelling[start:place].strip())
            start = place + 1
    return [member for member in members if member]


def is_hintable(spelling: str, hint: int) -> bool:
    """Say whether Triton can specialize a param of this type: pointers by 16, ints by 16 and 1."""
    return spelling in INTS or (spelling.startswith("*") and hint == 16)
