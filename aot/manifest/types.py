"""Types in manifests: Triton's names, plus an optional mark, matrix axes in braces, and names of members.

A *spelling* is a type as the manifest writes it. It stands for one or more *types*. Each type has one canonical
text without spaces: ``(*fp16?, i32)`` stands for ``(*fp16,i32)`` and ``(none,i32)``. A spelling may name the members of
a tuple, ``(ptr: *fp16, n: i32)``, for kernels that read them as ``x.ptr``. A descriptor may have a layout, for kernels
in Gluon. Only the compiler needs names and layouts; `plain` removes them.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from math import prod

from nojit.runtime import _core
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ManifestError
from nojit.runtime.types.constants import constant_of, constant_type
from nojit.runtime.types.names import NONE, dtype_name, element_name, members

__all__ = [
    "NONE",
    "axes_in",
    "count_types",
    "dims_in",
    "fill",
    "has_layout",
    "is_hintable",
    "is_open",
    "layout_in",
    "members_of",
    "plain",
    "types_of",
]

BOOLS, INTS, FLOATS = (
    tuple([name for name, kind, _, is_scalar in _core.dtypes() if is_scalar and kind == wanted])
    for wanted in ("bool", "int", "float")
)
_BYTES = {name: size_bytes for name, _, size_bytes, _ in _core.dtypes()}
ELEMENTS = tuple(_BYTES)

_BLOCK_MAX = 1 << 20
# a tensor map copies multiples of 16 bytes along the last dimension
_ROW_BYTES = 16

_AXIS = re.compile(r"\{([^{}]*)\}")
_BLOCK = re.compile(r"\[[^\[\]]*\]")
_DIM = r"(?:\d+|\{\w+\})"
_SPELLED_LAYOUT = r",\s*NVMMASharedLayout\(([^()]*)\)"
_DESCRIPTOR = re.compile(rf"tensordesc<\s*(\w+)\s*\[\s*({_DIM}(?:\s*,\s*{_DIM})*)\s*\]\s*(?:{_SPELLED_LAYOUT}\s*)?>\Z")
_LAYOUT = re.compile(_SPELLED_LAYOUT)
# settings of Triton's layout that the type does not determine, with their values
_LAYOUT_VALUES: dict[str, dict[str, int | bool]] = {
    "swizzle_byte_width": {"0": 0, "32": 32, "64": 64, "128": 128},
    "transposed": {"False": False, "True": True},
    "fp4_padded": {"False": False, "True": True},
}
_MEMBER_NAME = re.compile(r"([A-Za-z_]\w*)\s*:(?!:)\s*")
# only after ( or a comma: constants contain colons, too
_NAME_IN_TUPLE = re.compile(rf"(?<=[(,]){_MEMBER_NAME.pattern}")


# formats without a dtype in Triton, which kernels read as bytes
_PACKED = re.compile(r"e8m0|e2m1|e2m3|e3m2|(fp|float)[46](?!\d)|bits")


def axes_in(spelling: str) -> tuple[str, ...]:
    """Return the names in braces in a type that stand for types or parts of types: matrix axes.

    `spelling`: the type as a manifest spells it.
    """
    return tuple(_AXIS.findall(_BLOCK.sub("", spelling)))


def dims_in(spelling: str) -> tuple[str, ...]:
    """Return the names in braces in a type that stand for dimensions of a tensor descriptor's block.

    `spelling`: the type as a manifest spells it.
    """
    return tuple(axis for block in _BLOCK.findall(spelling) for axis in _AXIS.findall(block))


def fill(spelling: str, values: Mapping[str, str]) -> str:
    """Return a type with names in braces replaced by `values` of axes or a config; names without a value stay.

    `spelling`: the type as a manifest spells it.
    """
    return _AXIS.sub(lambda match: values.get(match[1], match[0]), spelling) if "{" in spelling else spelling


def is_open(kind: str) -> bool:
    """Return whether a type has a tensor descriptor whose block only a config will determine.

    `kind`: the type as text, such as ``*fp16``.
    """
    return "{" in kind


@lru_cache
def types_of(spelling: str, where: str, depth: int = 0) -> tuple[str, ...]:
    """Return the types that a type in a manifest stands for: several if a part is optional (``?``).

    Args:
        spelling: the type as the manifest writes it, with its axes replaced by values. Block dimensions may still be
            open.
        where: place of the param in the manifest, for messages.
        depth: number of tuples around this type.

    Raises:
        ManifestError: Triton has no such type; the message suggests the nearest one.
    """
    if spelling.endswith("?"):
        return (*types_of(spelling[:-1], where, depth), NONE)
    if spelling.startswith("(") and spelling.endswith(")"):
        return _tuples_of(spelling, where, depth)
    if spelling.startswith("tensordesc"):
        return (_descriptor(spelling, where),)
    if spelling.startswith("*"):
        return (_pointer(spelling, where),)
    if spelling.startswith("="):
        return (_constant(spelling, where),)
    if spelling in BOOLS + INTS + FLOATS or spelling == NONE:
        # Triton has two spellings of bool; bundles use one
        return ("i1" if spelling == "u1" else spelling,)
    if spelling in {"constexpr", "tl.constexpr"}:
        what = "expected constexprs in matrix, derived or configs, and the types of all other params here"
        raise ManifestError(what, got=repr(spelling), where=where)
    near = "" if spelling.startswith("(") else _instead(spelling, (*BOOLS, *INTS, *FLOATS))
    raise ManifestError(
        "expected a type in Triton's spelling, such as '*fp16' or 'i32'", got=f"{spelling!r}{near}", where=where
    )


def count_types(spelling: str) -> int:
    """Return the number of types that a type in a manifest stands for, without listing them; 1 if it is invalid.

    `spelling`: the type as a manifest spells it.
    """
    if spelling.endswith("?"):
        return count_types(spelling[:-1]) + 1
    if spelling.startswith("(") and spelling.endswith(")"):
        return prod(map(count_types, members_of(spelling)[1]))
    return 1


def _tuples_of(spelling: str, where: str, depth: int) -> tuple[str, ...]:
    if depth == _core.TYPE_DEPTH_MAX:
        raise ManifestError(f"expected tuples at most {_core.TYPE_DEPTH_MAX} deep", got=repr(spelling), where=where)
    names, kinds = members_of(spelling)
    if names and len(names) != len(kinds):
        raise ManifestError("expected names for all members of a tuple or for none", got=repr(spelling), where=where)
    if len(set(names)) != len(names) or any(keyword.iskeyword(name) or name.startswith("_") for name in names):
        what = "expected names of members that differ, are not Python keywords and do not start with '_'"
        raise ManifestError(what, got=repr(spelling), where=where)
    prefixes = [f"{name}:" for name in names] or [""] * len(kinds)
    choices = [
        [prefix + kind for kind in types_of(spelled, where, depth + 1)]
        for prefix, spelled in zip(prefixes, kinds, strict=True)
    ]
    return tuple(f"({','.join(chosen)})" for chosen in product(*choices))


def members_of(spelling: str) -> tuple[list[str], list[str]]:
    """Return the names (an empty list if unnamed) and the types of a tuple's direct members.

    `spelling`: the type as a manifest spells it.
    """
    names, kinds = [], []
    for member in filter(None, map(str.strip, members(spelling))):
        match = _MEMBER_NAME.match(member)
        names += [match[1]] if match else []
        kinds.append(member[match.end() :] if match else member)
    return names, kinds


def _pointer(spelling: str, where: str) -> str:
    # `*k` is a pointer to constants
    element = spelling[1:].removeprefix("k")
    if element in ELEMENTS:
        return f"{spelling[:-2]}i1" if element == "u1" else spelling
    near = _instead(element, ELEMENTS)
    raise ManifestError("expected a pointer to a Triton dtype, such as '*fp16'", got=f"{spelling!r}{near}", where=where)


def _constant(spelling: str, where: str) -> str:
    """Return the canonical text of a constant type.

    The manifest may write strings with either quotes, and dtypes by Triton's or a framework's name.

    `spelling`: the type as a manifest spells it.
    """
    body = spelling[1:].strip()
    if body == NONE:
        return NONE
    if body.startswith('"') and body.endswith('"'):
        body = f"'{body[1:-1]}'"
    if body.startswith("dtype:"):
        body = f"dtype:{dtype_name(body.removeprefix('dtype:')) or ''}"
    for text in (f"={body}", _number(body)):
        try:
            constant_of(text)
        except ValueError:
            continue
        if text not in ("=dtype:", "=function:"):
            return text
    what = "expected a constant, such as =3, =true, =1.5, ='silu', =dtype:fp16 or =function:kernel.py:relu, with other characters as %20"
    raise ManifestError(what, got=repr(spelling), where=where)


def _number(text: str) -> str:
    """Return the canonical constant type for a float in any of Python's notations; empty if `text` is not a float."""
    try:
        return "" if text.lstrip("+-").isdecimal() else constant_type(float(text))
    except ValueError:
        return ""


def _instead(element: str, known: tuple[str, ...]) -> str:
    """Return a suggestion for an invalid element type, for the end of a message."""
    if _PACKED.search(element):
        return "; Triton reads such values as bytes: write '*u8', and pass tensors viewed as torch.uint8"
    if element.removeprefix("torch.").startswith("complex"):
        return "; Triton has no complex numbers: write '*fp32', and pass torch.view_as_real(tensor)"
    named = element_name(element)
    return f"; did you mean {named!r}?" if named in known else did_you_mean(element, known)


def _descriptor(spelling: str, where: str) -> str:
    if spelling.startswith("tensordesc_im2col"):
        raise ManifestError(
            "expected a tiled tensor descriptor: im2col is not supported", got=repr(spelling), where=where
        )
    match = _DESCRIPTOR.match(spelling)
    elements = tuple(element for element in ELEMENTS if element not in BOOLS)
    if match is None or match[1] not in elements:
        near = _instead(match[1], elements) if match else ""
        what = "expected a tensor descriptor of a Triton dtype except bool, such as 'tensordesc<fp16[64,64]>'"
        raise ManifestError(what, got=f"{spelling!r}{near}", where=where)
    block = list(map(str.strip, match[2].split(",")))
    if not is_open(match[2]):
        _check_block(match[1], list(map(int, block)), spelling, where)
        block = [str(int(size)) for size in block]
    described = f"{match[1]}[{','.join(block)}]"
    if match[3] is None:
        return f"tensordesc<{described}>"
    layout = _layout(match[3], spelling, where)
    if not is_open(match[2]):
        _check_layout(layout, match[1], int(block[-1]), spelling, where)
    words = ",".join(f"{name}={value}" for name, value in layout.items())
    return f"tensordesc<{described},NVMMASharedLayout({words})>"


def _layout(words: str, spelling: str, where: str) -> dict[str, int | bool]:
    """Return the settings of a descriptor's layout by name, in Triton's order.

    `spelling`: the type as a manifest spells it.
    """
    given: dict[str, int | bool] = {}
    for word in filter(None, map(str.strip, words.split(","))):
        name, _, value = map(str.strip, word.partition("="))
        values = _LAYOUT_VALUES.get(name)
        if values is None or name in given:
            what = f"expected a layout to set {', '.join(_LAYOUT_VALUES)}, each once at most"
            raise ManifestError(what, got=f"{spelling!r}{did_you_mean(name, tuple(_LAYOUT_VALUES))}", where=where)
        if value not in values:
            raise ManifestError(f"expected {name} to be one of {', '.join(values)}", got=repr(spelling), where=where)
        given[name] = values[value]
    return {name: given[name] for name in _LAYOUT_VALUES if name in given}


def _check_layout(layout: Mapping[str, int | bool], element: str, width: int, spelling: str, where: str) -> None:
    element_bytes = _BYTES[element]
    swizzle = layout.get("swizzle_byte_width", 0)
    padded = layout.get("fp4_padded", False)
    if padded and (element_bytes > 1 or swizzle not in (0, 128)):
        what = "expected elements of one byte and a swizzle of 128 bytes for padded 4-bit values"
        raise ManifestError(what, got=repr(spelling), where=where)
    if swizzle > width * element_bytes * (2 if padded else 1):
        what = f"expected a block of at least {swizzle} bytes along its last dimension, the width of the swizzle"
        raise ManifestError(what, got=repr(spelling), where=where)


def _check_block(element: str, block: list[int], spelling: str, where: str) -> None:
    if len(block) > _core.RANK_MAX:
        raise ManifestError(f"expected a block of 1 to {_core.RANK_MAX} dimensions", got=repr(spelling), where=where)
    elements = 1
    for size in block:
        if size < 1 or size & (size - 1):
            raise ManifestError("expected a block whose dimensions are powers of two", got=repr(spelling), where=where)
        elements *= size
    if elements > _BLOCK_MAX:
        raise ManifestError(f"expected a block of at most {_BLOCK_MAX} elements", got=repr(spelling), where=where)
    if block[-1] * _BYTES[element] < _ROW_BYTES:
        what = f"expected a block of at least {_ROW_BYTES} bytes along its last dimension"
        raise ManifestError(what, got=repr(spelling), where=where)


@lru_cache
def plain(kind: str) -> str:
    """Return a type without member names and descriptor layouts, as bundles store it.

    `kind`: the type as text, such as ``*fp16``.
    """
    return _NAME_IN_TUPLE.sub("", _LAYOUT.sub("", kind))


def has_layout(kind: str) -> bool:
    """Return whether a type is, or contains, a tensor descriptor with a layout.

    `kind`: the type as text, such as ``*fp16``.
    """
    return _LAYOUT.search(kind) is not None


def layout_in(kind: str) -> dict[str, int | bool]:
    """Return the layout settings in a descriptor's type, by Triton's names; empty if the type has no layout.

    `kind`: the type as text, such as ``*fp16``.
    """
    match = _LAYOUT.search(kind)
    return {} if match is None else _layout(match[1], kind, "")


def is_hintable(kind: str, hint: int) -> bool:
    """Return whether Triton can specialize a param of this type on a hint.

    Pointers can have hint 16 (divisible by 16); ints can have hints 16 and 1 (equal to 1).

    `kind`: the type as text, such as ``*fp16``.
    """
    return kind in INTS or (kind.startswith("*") and hint == 16)
