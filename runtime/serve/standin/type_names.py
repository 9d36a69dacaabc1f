"""Names of types: Triton's, torch's and Python's, and the one that Triton's signatures hold."""

from __future__ import annotations

from typing import Any, Final

from nojit.runtime.serve.standin.registry import export, exported

__all__ = ["BITS", "CANONICAL", "MAX_NUMEL", "canonicalize_dtype", "validate_block_shape"]

MAX_NUMEL: Final = 1 << 20
# name in a signature: its bits, and its other names
_TYPES: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "u1": (1, ("bool", "int1", "uint1", "i1")),
    "i8": (8, ("int8",)),
    "i16": (16, ("int16",)),
    "i32": (32, ("int32", "int")),
    "i64": (64, ("int64",)),
    "u8": (8, ("uint8",)),
    "u16": (16, ("uint16",)),
    "u32": (32, ("uint32",)),
    "u64": (64, ("uint64",)),
    "fp8e4nv": (8, ("float8e4nv", "float8_e4m3fn")),
    "fp8e4b8": (8, ("float8e4b8", "float8_e4m3fnuz")),
    "fp8e4b15": (8, ("float8e4b15",)),
    "fp8e5": (8, ("float8e5", "float8_e5m2")),
    "fp8e5b16": (8, ("float8e5b16", "float8_e5m2fnuz")),
    "fp16": (16, ("float16", "half")),
    "bf16": (16, ("bfloat16",)),
    "fp32": (32, ("float32", "float")),
    "fp64": (64, ("float64", "double")),
    "void": (0, ()),
}
CANONICAL: Final = {name: canonical for canonical, (_, others) in _TYPES.items() for name in (canonical, *others)}
BITS: Final = {name: _TYPES[canonical][0] for name, canonical in CANONICAL.items()}


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
