"""``triton.set_allocator`` and ``triton.AsyncCompileMode``, which change nothing here: nojit's engine allocates scratch memory."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Self

from nojit.runtime.serve.standin.registry import export, exported

__all__ = ["AsyncCompileMode", "NullAllocator", "set_allocator"]


@exported("triton.runtime._allocation")
class NullAllocator:
    """The allocator of a program that sets none."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        """Raise an error."""
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. "
            "Use triton.set_allocator to specify an allocator."
        )


_NULL: Final = NullAllocator()
_allocator: ContextVar[Any] = ContextVar("_allocator", default=_NULL)


class _ProfileAllocator:
    def __init__(self) -> None:
        self._allocator: Any = _NULL

    def get(self) -> Any:
        """Return the allocator."""
        return self._allocator

    def set(self, allocator: Any) -> None:
        """Set the allocator."""
        self._allocator = allocator

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        return self._allocator(size, alignment, stream)


_profile_allocator: Final = _ProfileAllocator()


@exported("triton.runtime._allocation")
def set_allocator(allocator: Any) -> None:
    """Keep an allocator of a program's: the serving package decides whether it is asked."""
    _allocator.set(allocator)


@exported("triton.runtime._allocation")
def set_profile_allocator(allocator: Any) -> None:
    """Keep an allocator of a profiler's."""
    _profile_allocator.set(_NULL if allocator is None else allocator)


@exported("triton.runtime._allocation")
def has_profile_allocator() -> bool:
    """Say whether a profiler set an allocator."""
    return not isinstance(_profile_allocator.get(), NullAllocator)


export(
    "triton.runtime._allocation", _allocator=_allocator, _profile_allocator=_profile_allocator, _NULL_ALLOCATOR=_NULL
)


@exported("triton.runtime._async_compile")
class AsyncCompileMode:
    """A block whose warmups another process would compile: here, bundles hold the kernels."""

    def __init__(self, executor: Any, *, ignore_errors: bool = False) -> None:
        self.executor = executor
        self.ignore_errors = ignore_errors

    def __enter__(self) -> Self:
        if _mode.get() is not None:
            raise RuntimeError("Another AsyncCompileMode is already active")
        _mode.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _mode.set(None)


_mode: ContextVar[AsyncCompileMode | None] = ContextVar("async_compile_active_mode", default=None)
export("triton.runtime._async_compile", active_mode=_mode)
