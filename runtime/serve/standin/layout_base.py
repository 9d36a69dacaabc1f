"""The base of Gluon's layouts: plain values, hashed by their fields, which never draw themselves."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nojit.runtime.serve.standin.callbacks import MissingError
from nojit.runtime.serve.standin.constants import ConstexprType, unwrap

__all__ = ["HOME", "Layout", "expect", "joined", "joined_bases"]

HOME = "triton.experimental.gluon.language._layouts"


def expect(condition: object, what: str = "") -> None:
    """Raise an error unless a condition holds.

    Raises:
        AssertionError: it does not; programs that run with Triton expect this class.
    """
    if not condition:
        raise AssertionError(what)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def joined(values: Any) -> str:
    """Return values as a part of a function's name; empty for None."""
    return "" if values is None else "_".join(map(str, values))


def joined_bases(values: Any) -> str:
    """Return bases of a linear layout as a part of a function's name."""
    return "_".join("~".join(map(str, each)) for each in values or ())


class Layout:
    """The base of layouts: fields without constexprs, and a hash of lists."""

    def _unwrap(self, *names: str) -> None:
        each: Any = self
        for name in names or [one.name for one in fields(each)]:
            object.__setattr__(self, name, unwrap(getattr(self, name)))

    def __hash__(self) -> int:
        each: Any = self
        return hash(tuple(_frozen(getattr(self, one.name)) for one in fields(each)))

    @property
    def type(self) -> ConstexprType:
        """The type of the layout as a constexpr."""
        return ConstexprType(self)

    def format_tensor_view(self, shape: Any) -> str:
        """Raise an error: Triton's compiler draws layouts."""
        raise MissingError(f"{type(self).__module__}.{type(self).__name__}.format_tensor_view")

    def format_hardware_view(self, shape: Any) -> str:
        """Raise an error: Triton's compiler draws layouts."""
        raise MissingError(f"{type(self).__module__}.{type(self).__name__}.format_hardware_view")
