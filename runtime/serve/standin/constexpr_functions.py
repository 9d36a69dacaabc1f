"""Functions of constexprs, which the compiler calls; so can host code."""

from __future__ import annotations

from typing import Any

from nojit.runtime.serve.standin.callables import JITCallable
from nojit.runtime.serve.standin.constants import Constexpr, unwrap
from nojit.runtime.serve.standin.registry import export, exported

__all__ = ["ConstexprFunction", "cdiv", "constexpr_function", "next_power_of_2"]


@exported("triton.runtime.jit")
class BoundConstexprFunction(JITCallable):
    """A function of constexprs that is a method."""

    def __init__(self, instance: Any, fn: ConstexprFunction) -> None:
        self.__self__ = instance
        self.__func__ = fn

    @property
    def cache_key(self) -> str:
        """The function's."""
        return self.__func__.cache_key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)


@exported("triton.runtime.jit")
class ConstexprFunction(JITCallable):
    """A Python function that the compiler calls; so can host code."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundConstexprFunction(instance, self)

    def __call__(self, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        """Call the function, without constexprs around its arguments."""
        result = self.fn(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})
        return result if _semantic is None else Constexpr(result)


@exported("triton.runtime.jit")
def constexpr_function(fn: Any) -> ConstexprFunction:
    """Decorate a Python function, so that the compiler may call it with constexprs."""
    return ConstexprFunction(fn)


@exported("triton")
def cdiv(x: int, y: int) -> int:
    """Divide, and round up."""
    return (x + y - 1) // y


@exported("triton")
def next_power_of_2(n: int) -> int:
    """Return the least power of 2 that is not below `n`; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


export("triton", cdiv=constexpr_function(cdiv), next_power_of_2=constexpr_function(next_power_of_2))
