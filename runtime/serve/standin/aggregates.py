"""``triton.language.core._aggregate``: classes of several values that kernels pass around."""

from __future__ import annotations

import inspect
import typing
from typing import Any

from nojit.runtime.serve.standin.constants import BaseValue, Constexpr
from nojit.runtime.serve.standin.registry import export

__all__ = ["aggregate", "aggregate_replace"]


def aggregate(cls: type) -> type:
    """Decorate a class of fields: its values have these fields, set once.

    Raises:
        TypeError: a base is no aggregate.
    """
    fields, defaults = _fields(cls)
    own = cls.__dict__.get("__init__")

    class AggregateValue(BaseValue):
        __triton_builtin__ = True
        __triton_aggregate__ = True
        __annotations__ = fields

        def __new__(kind, *args: Any, _semantic: Any = None, _generator: Any = None, **kwargs: Any) -> Any:
            made = object.__new__(kind)
            if own is None:
                _fill(made, cls.__name__, fields, defaults, args, kwargs)
            else:
                given = {"_semantic": _semantic, "_generator": _generator}
                wanted = inspect.signature(own).parameters
                own(made, *args, **{name: value for name, value in given.items() if name in wanted}, **kwargs)
            missing = next((name for name in fields if name not in vars(made)), None)
            if missing is not None:
                raise AttributeError(f"constructor for {cls.__name__} did not initialize attribute '{missing}'")
            object.__setattr__(made, "_aggregate_init_complete", True)
            return made

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in fields:
                raise AttributeError(f"{cls.__name__} has no attribute '{name}'")
            if not isinstance(value, fields[name]):
                raise TypeError(f"Expected {fields[name]} for attribute '{name}', got {type(value)}")
            if getattr(self, "_aggregate_init_complete", False):
                raise AttributeError(
                    f"cannot assign to field '{name}' on immutable aggregate {cls.__name__}; "
                    "use aggregate_replace() to construct a modified copy"
                )
            object.__setattr__(self, name, value)

    return _finish(cls, AggregateValue, fields, defaults)


def _finish(cls: type, made: Any, fields: dict[str, Any], defaults: dict[str, Any]) -> type:
    """Give the class of values the methods and the name of the program's class."""
    skipped = {"__init__", "__annotate__", *vars(made)}
    for name, member in inspect.getmembers(cls):
        if (
            name not in skipped
            and (inspect.isroutine(member) or hasattr(member, "cache_key"))
            and name in _defined(cls)
        ):
            setattr(made, name, member)
    for name in ("__name__", "__module__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(cls, name))
    made.__aggregate_fields__ = tuple(fields)
    made.__aggregate_defaults__ = defaults
    made.hash_attrs = [each for each in vars(cls).values() if inspect.isfunction(each) or hasattr(each, "cache_key")]
    return made  # type: ignore[no-any-return] # a class


def _defined(cls: type) -> set[str]:
    return {name for base in cls.__mro__ if base not in (object, BaseValue) for name in vars(base)}


def _fields(cls: type) -> tuple[dict[str, Any], dict[str, Any]]:
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        if base in (object, BaseValue):
            continue
        if not getattr(base, "__triton_aggregate__", False):
            raise TypeError(f"Aggregates can only inherit from other aggregates, but got non-aggregate base: {base}")
        fields |= inspect.get_annotations(base)
        defaults |= getattr(base, "__aggregate_defaults__", {})
    hints = typing.get_type_hints(cls)
    for name in inspect.get_annotations(cls):
        fields[name] = hints[name]
        value = cls.__dict__.get(name, fields)
        if value is not fields and (not callable(value) or isinstance(value, BaseValue)):
            defaults[name] = value
    return fields, defaults


def _fill(
    made: Any,
    title: str,
    fields: dict[str, Any],
    defaults: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    if len(args) > len(fields):
        raise TypeError(
            f"{title}.__init__() takes {len(fields) + 1} positional arguments but {len(args) + 1} were given"
        )
    given = dict(zip(fields, args, strict=False))
    twice = next((name for name in kwargs if name in given), None)
    if twice is not None:
        raise TypeError(f"{title}.__init__() got multiple values for argument '{twice}'")
    given = {**defaults, **given, **kwargs}
    for name in fields:
        if name not in given:
            raise TypeError(f"{title}.__init__() missing required argument: '{name}'")
        setattr(made, name, _wrapped(given.pop(name)))
    if given:
        raise TypeError(f"{title}.__init__() got an unexpected keyword argument '{next(iter(given))}'")


def _wrapped(value: Any) -> Any:
    return value if isinstance(value, BaseValue) else Constexpr(value)


def aggregate_replace(instance: Any, **changes: Any) -> Any:
    """Return a copy of an aggregate with other values for some of its fields.

    Raises:
        TypeError: this is no aggregate, or it has no such field.
    """
    kind: Any = type(instance)
    if not getattr(kind, "__triton_aggregate__", False):
        raise TypeError(f"aggregate_replace() expects an aggregate instance, got {kind}")
    unknown = next((name for name in changes if name not in kind.__aggregate_fields__), None)
    if unknown is not None:
        raise TypeError(f"{kind.__name__} has no field '{unknown}'")
    return kind(**{name: getattr(instance, name) for name in kind.__aggregate_fields__} | changes)


export("triton.language.core", _aggregate=aggregate, aggregate_replace=aggregate_replace)
