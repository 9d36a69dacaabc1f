"""Functions and classes of Triton, known by the names of their classes: the kind and the place of each."""

from __future__ import annotations

from typing import Any

from nojit.runtime.values import module_of

__all__ = ["kind_of", "place_of"]

_KINDS = {"JITFunction": "jit", "GluonJITFunction": "gluon", "ConstexprFunction": "constexpr_function"}


def kind_of(value: object) -> str:
    """Return the kind of definition that a function or class of Triton is; empty for any other object."""
    if isinstance(value, type):
        return "aggregate" if getattr(value, "__triton_aggregate__", False) else ""
    for kind in type(value).__mro__:
        # Triton's own, the stand-in's, and subclasses of either
        if kind.__module__.partition(".")[0] == "triton" and kind.__name__ in _KINDS:
            return _KINDS[kind.__name__]
    return ""


def place_of(function: Any) -> tuple[str, str]:
    """Return the module and the qualified name of a function or class of Triton."""
    inner = getattr(function, "fn", function)
    return module_of(inner), str(inner.__qualname__)
