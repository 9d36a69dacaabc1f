"""Frozen, slotted records, made without generating code.

A class that is a dataclass costs half a millisecond to define, since its methods are written as text and compiled. The
runtime has dozens of them, and a process that serves has to import them all before its first launch. A `Record` is
declared and used alike, and costs a few microseconds to define; the methods of all records are the same few functions.
Functions for dataclasses (``dataclasses.replace``, ``asdict``, ``fields``) take records too.
"""

from __future__ import annotations

# `operator` is a module of Python around it
from _operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType
    from typing import Any, ClassVar, NoReturn, TypeAlias, dataclass_transform
else:

    def dataclass_transform(**_):  # noqa: ANN003, ANN202 - for type checkers it is that of `typing`
        return lambda base: base

    # importing `types` and `typing` takes longer than a first launch
    FunctionType = type(dataclass_transform)

__all__ = ["Record"]

_Setter: TypeAlias = "Callable[[Record, Any], None]"


class _DataclassFields:
    """Describes a record's fields to ``dataclasses``, when it is asked."""

    def __init__(self) -> None:
        self._known: dict[type[Record], dict[str, Any]] = {}

    def __get__(self, instance: object, owner: type[Record]) -> dict[str, Any]:
        known = self._known.get(owner)
        if known is None:
            import dataclasses

            alike = dataclasses.make_dataclass(owner.__name__, owner.__match_args__)
            known = self._known[owner] = {field.name: field for field in dataclasses.fields(alike)}
        return known


def _one(set_0: _Setter) -> Callable[..., None]:
    def init(self: Record, a: Any) -> None:
        set_0(self, a)

    return init


def _two(set_0: _Setter, set_1: _Setter) -> Callable[..., None]:
    def init(self: Record, a: Any, b: Any) -> None:
        set_0(self, a)
        set_1(self, b)

    return init


def _three(set_0: _Setter, set_1: _Setter, set_2: _Setter) -> Callable[..., None]:
    def init(self: Record, a: Any, b: Any, c: Any) -> None:
        set_0(self, a)
        set_1(self, b)
        set_2(self, c)

    return init


def _four(set_0: _Setter, set_1: _Setter, set_2: _Setter, set_3: _Setter) -> Callable[..., None]:
    def init(self: Record, a: Any, b: Any, c: Any, d: Any) -> None:
        set_0(self, a)
        set_1(self, b)
        set_2(self, c)
        set_3(self, d)

    return init


# records of few fields are made by the hundred before a first launch
_QUICK: dict[int, Callable[..., Callable[..., None]]] = {1: _one, 2: _two, 3: _three, 4: _four}


def _quick_init(kind: str, names: tuple[str, ...], defaults: dict[str, Any], setters: tuple[_Setter, ...]) -> Any:
    """Make a constructor whose parameters have the names and the defaults of the fields."""
    init = _QUICK[len(names)](*setters)
    code = init.__code__.replace(co_varnames=("self", *names), co_name="__init__", co_qualname=f"{kind}.__init__")
    given = tuple([defaults[name] for name in names if name in defaults])
    return FunctionType(code, init.__globals__, "__init__", given, init.__closure__)


class _RecordType(type):
    """Turns the annotated names of a class body into slots."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _RecordType:
        names = tuple(body.get("__annotations__", ())) if bases else ()
        defaults = {field: body.pop(field) for field in names if field in body}
        slots = (*names, *body.get("__slots__", ()))
        made = super().__new__(cls, name, bases, {"__match_args__": names, **body, "__slots__": slots})
        # a slot's own setter, since `__setattr__` refuses
        setters = tuple([made.__dict__[field].__set__ for field in names])
        made._defaults, made._setters = defaults, setters  # type: ignore[attr-defined] # of `Record`
        if names:
            made._fields = attrgetter(*names)  # type: ignore[attr-defined] # as above
        if "__init__" not in body and len(names) in _QUICK:
            type.__setattr__(made, "__init__", _quick_init(name, names, defaults, setters))
        return made


@dataclass_transform(frozen_default=True)
class Record(metaclass=_RecordType):
    """A base for classes whose annotated names, with or without a default, are their fields.

    Two records are equal if they are of one class and their fields are equal; a record is hashable if its fields are. No
    field can be set once it is made, and a record has no other attributes but those in ``__slots__``, which are no fields.
    """

    if TYPE_CHECKING:
        __match_args__: ClassVar[tuple[str, ...]]
        __dataclass_fields__: ClassVar[dict[str, Any]]
        _defaults: ClassVar[dict[str, Any]]
        _setters: ClassVar[tuple[_Setter, ...]]
        _fields: ClassVar[attrgetter[Any]]
    else:
        __dataclass_fields__ = _DataclassFields()

    def __init__(self, *args: Any, **named: Any) -> None:
        setters = self._setters
        if named or len(args) != len(setters):
            args = self._arguments(args, named)
        for set_field, value in zip(setters, args, strict=True):
            set_field(self, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        fields = self._fields
        return bool(fields(self) == fields(other))

    def __hash__(self) -> int:
        return hash(self._fields(self))

    def __repr__(self) -> str:
        fields = zip(self.__match_args__, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot set {name}: a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {name}: a {type(self).__name__} does not change")

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__match_args__])

    def _arguments(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Put arguments that are named or left out in the order of the fields."""
        names = self.__match_args__
        values = {**self._defaults, **dict(zip(names, args, strict=False)), **named}
        twice = not named.keys().isdisjoint(names[: len(args)])
        if twice or len(args) > len(names) or values.keys() != set(names):
            got = f"{len(args)} in order, by name {', '.join(named) or 'none'}"
            raise TypeError(f"expected {type(self).__name__}({', '.join(names)}), got {got}")
        return tuple([values[name] for name in names])
