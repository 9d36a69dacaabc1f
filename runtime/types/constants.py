"""Types of constants, which are compiled in: ``=3``, ``=true``, ``=1.5``, ``='silu'``, ``=dtype:fp16``, ``=function:m:f``. Pure.

Triton takes a ``tl.constexpr`` or a ``@triton.jit`` function as an argument, or in a tuple of one, for a constant. A
constant has one spelling. Text stands in it with everything but ASCII letters, digits and ``_.:/-`` as UTF-8 in ``%XX``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nojit.runtime.values import DType, FunctionRef, Value

__all__ = ["constant_of", "constant_type", "is_constant"]

_MARK: Final = "="
_DTYPE, _FUNCTION = "dtype:", "function:"


def is_constant(name: str) -> bool:
    """Say whether a type is that of one value."""
    return name.startswith(_MARK)


def constant_type(value: Value) -> str:
    """Return the type of one value.

    Raises:
        ValueError: None, which has a type of its own, or a tuple, whose members have types.
    """
    if isinstance(value, bool):
        return f"{_MARK}{str(value).lower()}"
    if isinstance(value, int | float):
        return f"{_MARK}{value!r}"
    if isinstance(value, str):
        return f"{_MARK}'{_escaped(value)}'"
    if isinstance(value, DType):
        return f"{_MARK}{_DTYPE}{_escaped(value.name)}"
    if isinstance(value, FunctionRef):
        return f"{_MARK}{_FUNCTION}{_escaped(value.name)}"
    raise ValueError(f"expected an int, float, bool, string, dtype or function, got {type(value).__name__}")


@lru_cache(maxsize=1024)
def constant_of(name: str) -> Value:
    """Return the value of a type that `constant_type` makes.

    Raises:
        ValueError: another text, or another spelling of a value.
    """
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.constant_of(name)


def _escaped(text: str) -> str:
    from nojit.runtime import _core  # which imports tables, and tables this

    return _core.escaped(text)
