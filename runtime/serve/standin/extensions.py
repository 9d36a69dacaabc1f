"""Decorators with which programs extend Triton's language: the decorated functions run in kernels alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from nojit.runtime.serve.standin.registry import exported

__all__ = ["builtin", "extern", "must_use_result"]


@exported("triton.language.core")
def builtin(fn: Callable[..., Any]) -> Any:
    """Decorate a function of the language: host code cannot call it."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("_semantic") is None:
            raise ValueError(
                "Did you forget to add @triton.jit ? (`_semantic` argument must be provided outside of JIT functions.)"
            )
        return fn(*args, **kwargs)

    made: Any = wrapper
    made.__triton_builtin__ = True
    made.signature = inspect.signature(fn)
    return made


@exported("triton.language.core")
def extern(fn: Callable[..., Any]) -> Any:
    """Decorate a function of a device library."""
    return builtin(fn)


@exported("triton.language.core")
def is_builtin(fn: Any) -> bool:
    """Say whether a function is one of the language."""
    return bool(getattr(fn, "__triton_builtin__", False))


@exported("triton.language.core")
def must_use_result(x: Any, s: Any = True) -> Any:
    """Decorate a function, so that the compiler refuses calls whose result is dropped."""
    if isinstance(x, str):
        return lambda fn: must_use_result(fn, x)
    x._must_use_result = s  # noqa: SLF001 - Triton's mark
    return x


@exported("triton.language.core")
def _tensor_member_fn(fn: Any) -> Any:
    """Decorate a function that is a method of blocks, too."""
    return fn
