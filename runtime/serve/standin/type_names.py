"""Names of types: Triton's, torch's and Python's, and the one that Triton's signatures hold."""

from __future__ import annotations

from typing import Any, Final

from nojit.runtime import _core
from nojit.runtime.serve.standin.registry import export, exported

__all__ = ["BITS", "CANONICAL", "MAX_NUMEL", "canonicalize_dtype", "validate_block_shape"]

MAX_NUMEL: Final = 1 << 20


def _canonical() -> dict[str, str]:
    """Return what signatures hold by every name of a dtype: a bool is ``u1`` there."""
    named = {word: str(_core.element_name(word)) for word in _core.dtype_words()}
    return {word: "u1" if name == "i1" else name for word, name in named.items()} | {"void": "void"}


def _bits() -> dict[str, int]:
    bits = {name: 1 if kind == "bool" else 8 * size_bytes for name, kind, size_bytes, _ in _core.dtypes()}
    return {word: bits.get(name, 0) for word, name in CANONICAL.items()}


CANONICAL: Final = _canonical()
BITS: Final = _bits()


@exported("triton._utils")
def canonicalize_dtype(dtype: Any) -> str:
    """Return the name that signatures hold for a dtype of torch's or Triton's.

    Raises:
        KeyError: Triton has no such dtype.
    """
    return CANONICAL[str(dtype).rpartition(".")[2]]


@exported("triton._utils")
def canonicalize_ptr_dtype(dtype: Any, is_const: bool) -> str:
    """Return the name that signatures hold for a pointer to a dtype."""
    return ("*k" if is_const else "*") + canonicalize_dtype(dtype)


@exported("triton._utils")
def get_primitive_bitwidth(dtype: str) -> int:
    """Return the bits of a dtype with this name."""
    return BITS[dtype]


@exported("triton._utils")
def is_power_of_two(x: int) -> bool:
    """Say whether a number is 1, 2, 4, …."""
    return x > 0 and x & (x - 1) == 0


@exported("triton._utils")
def validate_block_shape(shape: list[int]) -> int:
    """Return the number of elements of a block.

    Raises:
        TypeError: a size is no int.
        ValueError: a size is no power of 2, or the block is larger than Triton allows.
    """
    numel = 1
    for place, size in enumerate(shape):
        if not isinstance(size, int):
            raise TypeError(f"Shape element {place} must have type `constexpr[int]`, got `constexpr[{type(size)}]")
        if not is_power_of_two(size):
            raise ValueError(f"Shape element {place} must be a power of 2")
        numel *= size
    if numel > MAX_NUMEL:
        raise ValueError(f"numel ({numel}) exceeds triton maximum tensor numel ({MAX_NUMEL})")
    return numel


@exported("triton._utils")
def is_namedtuple(val: Any) -> bool:
    """Say whether a class is a named tuple's."""
    return isinstance(val, type) and issubclass(val, tuple) and hasattr(val, "_fields")


export("triton._utils", type_canonicalisation_dict=CANONICAL, BITWIDTH_DICT=BITS, TRITON_MAX_TENSOR_NUMEL=MAX_NUMEL)
