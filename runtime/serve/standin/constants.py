"""``triton.language.constexpr``: a value that is known when a kernel is compiled."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from nojit.runtime.serve.standin.registry import export, exported

__all__ = ["BaseType", "BaseValue", "Constexpr", "ConstexprType", "unwrap", "unwrap_shape"]

_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "mod": operator.mod,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "pow": operator.pow,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "rshift": operator.rshift,
    "lshift": operator.lshift,
}
# those that Triton also has with the constexpr at the right
_REFLECTED: Final = ("add", "sub", "mul", "truediv", "floordiv", "pow", "gt", "ge", "lt", "le")
_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "not": operator.not_,
}


@exported("triton.language.core", "base_value")
class BaseValue:
    """Base of the values of Triton's language."""


@exported("triton.language.core", "base_type")
class BaseType:
    """Base of the types of Triton's language."""

    def mangle(self) -> str:
        """Return the type's part of a function's name."""
        raise NotImplementedError(f"NYI: Type mangling for type {self.__class__}")


@exported("triton.language.core", "const")
class Const:
    """Annotates a pointer to constants."""


@exported("triton.language.core", "constexpr_type")
class ConstexprType(BaseType):
    """The type of one constexpr."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstexprType) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value}]"

    def mangle(self) -> str:
        """Return the value's part of a function's name."""
        return f"c{self.value.mangle() if hasattr(self.value, 'mangle') else repr(self.value)}"


@exported("triton.language.core", "constexpr")
class Constexpr(BaseValue):
    """A value that is known when a kernel is compiled; its operators give others."""

    value: Any

    def __init__(self, value: Any) -> None:
        while isinstance(value, Constexpr):
            value = value.value
        self.value = value
        self.type = ConstexprType(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash((self.value, self.type))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return self.value  # type: ignore[no-any-return] # Python checks it

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the value."""
        return self.value(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.value[unwrap(key)]

    def logical_and(self, other: Any) -> Constexpr:
        """Return ``self and other``."""
        return Constexpr(self.value and unwrap(other))

    def logical_or(self, other: Any) -> Constexpr:
        """Return ``self or other``."""
        return Constexpr(self.value or unwrap(other))


def _binary(name: str, apply: Callable[[Any, Any], Any]) -> None:
    def forward(self: Constexpr, other: Any) -> Constexpr:
        return Constexpr(apply(self.value, unwrap(other)))

    def reflected(self: Constexpr, other: Any) -> Constexpr:
        return Constexpr(apply(unwrap(other), self.value))

    setattr(Constexpr, f"__{name}__", forward)
    if name in _REFLECTED:
        setattr(Constexpr, f"__r{name}__", reflected)


def _unary(name: str, apply: Callable[[Any], Any]) -> None:
    setattr(Constexpr, f"__{name}__", lambda self: Constexpr(apply(self.value)))


for _name, _apply in _BINARY.items():
    _binary(_name, _apply)
for _name, _applied in _UNARY.items():
    _unary(_name, _applied)


def unwrap(value: Any) -> Any:
    """Return the value of a constexpr, also in lists and tuples; any other value as it is."""
    if isinstance(value, Constexpr):
        return value.value
    if isinstance(value, list):
        return [unwrap(each) for each in value]
    if isinstance(value, tuple):
        kept = [unwrap(each) for each in value]
        return type(value)(*kept) if hasattr(value, "_fields") else tuple(kept)
    return value


def unwrap_shape(shape: Any) -> Any:
    """Return the sizes of a shape, without constexprs; nested lists stay lists."""
    return [unwrap(each) for each in unwrap(shape)]


export("triton.language.core", _unwrap_if_constexpr=unwrap, _unwrap_shape=unwrap_shape, CONSTEXPR_0=Constexpr(0))
