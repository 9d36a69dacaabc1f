"""Names without an implementation: functions, classes and values of Triton's that raise an error with their name when they are used."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from typing import Any, Final

from nojit.runtime.serve.standin.callbacks import MissingAttributeError, MissingError

__all__ = ["complete", "function", "make", "value"]

_KINDS: Final = {"f": "function", "b": "builtin", "j": "jit", "k": "constexpr"}


def make(module: str, name: str, spec: Any, find: Callable[[str], Any]) -> Any:
    """Make a name of Triton's from its description in the table.

    Args:
        module: the module that defines the name.
        name: the name.
        spec: the description, as ``names.json`` has it.
        find: returns the value of a full name, ``module:name``: a base class.
    """
    if isinstance(spec, dict):
        if "value" in spec:
            return spec["value"]
        if "enum" in spec:
            return _enum(module, name, spec["enum"])
        bases = tuple(base for base in map(find, spec["class"]) if isinstance(base, type))
        return _class(module, name, bases, spec["has"])
    kind, _, _ = spec.partition("(")
    if kind == "o":
        return value(f"{module}.{name}")
    if kind == "j":
        from nojit.runtime.serve.standin.functions import NamedFunction

        return NamedFunction(function(module, name, spec))
    return function(module, name, spec)


def function(module: str, name: str, spec: str = "f()") -> Any:
    """Make a function that raises an error with its full name.

    Args:
        module: where it is defined.
        name: its name.
        spec: kind and params: ``b(x, y=, *, z=)`` is a builtin of Triton's language.
    """
    full = f"{module}.{name}"
    of_language = spec[0] in "bj"
    what = (
        "only code of a @triton.jit function can call it: did you forget the decorator?"
        if of_language
        else "nojit's stand-in has no more than its name"
    )

    def stand_in(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - takes all that Triton's takes
        raise MissingError(full, what)

    made: Any = stand_in
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    made.__doc__ = f"Triton's {full}: it cannot be called without Triton."
    made.__signature__ = _signature(spec)
    if spec[0] == "b":
        made.__triton_builtin__ = True
    return made


def _signature(spec: str) -> inspect.Signature:
    text = spec.partition("(")[2].removesuffix(")")
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    params = []
    for each in filter(None, text.split(", ")):
        if each == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif each.startswith("**"):
            params.append(inspect.Parameter(each[2:], inspect.Parameter.VAR_KEYWORD))
        elif each.startswith("*"):
            params.append(inspect.Parameter(each[1:], inspect.Parameter.VAR_POSITIONAL))
            kind = inspect.Parameter.KEYWORD_ONLY
        else:
            default = None if each.endswith("=") else inspect.Parameter.empty
            params.append(inspect.Parameter(each.removesuffix("="), kind, default=default))
    return inspect.Signature(params)


def _enum(module: str, name: str, members: dict[str, Any]) -> Any:
    return enum.Enum(name, members, module=module)


def _class(module: str, name: str, bases: tuple[Any, ...], has: list[str]) -> Any:
    """Make a class: programs may inherit from it and ask for its instances; only exceptions can be made."""
    full = f"{module}.{name}"
    body: dict[str, Any] = {"__module__": module, "__doc__": f"Triton's {full}: it has no instances without Triton."}
    if not any(issubclass(base, BaseException | dict | tuple) for base in bases):

        def refuse(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001 - takes all that Triton's takes
            raise MissingError(full)

        body["__init__"] = refuse
    body |= {member: function(full, member) for member in has if not member.startswith("_")}
    return type(name, bases, body)


def complete(made: Any, spec: Any) -> Any:
    """Give an implemented class the methods of Triton's that it lacks: each raises an error with its name."""
    if isinstance(made, type) and isinstance(spec, dict) and "has" in spec:
        for member in spec["has"]:
            if not hasattr(made, member) and not member.startswith("__"):
                setattr(made, member, function(f"{made.__module__}.{made.__qualname__}", member))
    return made


class _Value:
    """A value of Triton's that every use of raises an error with its name."""

    def __init__(self, full: str) -> None:
        self.__dict__["_full"] = full

    def __getattr__(self, name: str) -> Any:
        raise MissingAttributeError(f"{self._full}.{name}")

    def __setattr__(self, name: str, given: Any) -> None:
        raise MissingAttributeError(f"{self._full}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise MissingError(self._full)

    def __getitem__(self, key: Any) -> Any:
        raise MissingError(self._full)

    def __repr__(self) -> str:
        return f"<stand-in for {self._full}>"


def value(full: str) -> Any:
    """Make a value with a name and nothing else."""
    return _Value(full)
