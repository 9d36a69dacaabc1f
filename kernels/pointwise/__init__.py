"""Pointwise operators, and the generator that makes one of an expression: its kernels, their manifest, the operator.

``nojit.kernels.pointwise.op`` lists those that ship; `load_operators` and `define` make others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.pointwise.op import (
        add,
        add_gelu,
        add_relu,
        add_silu,
        addcmul,
        clamp,
        div,
        exp,
        geglu,
        gelu,
        lerp,
        mul,
        reglu,
        relu,
        sigmoid,
        silu,
        sub,
        swiglu,
        tanh,
        vector_add,
    )
    from nojit.kernels.pointwise.operator import define, load_operators
    from nojit.kernels.pointwise.spec import specify

_MAKERS = {"define": "operator", "load_operators": "operator", "specify": "spec"}

__all__ = [
    "add",
    "add_gelu",
    "add_relu",
    "add_silu",
    "addcmul",
    "clamp",
    "define",
    "div",
    "exp",
    "geglu",
    "gelu",
    "lerp",
    "load_operators",
    "mul",
    "reglu",
    "relu",
    "sigmoid",
    "silu",
    "specify",
    "sub",
    "swiglu",
    "tanh",
    "vector_add",
]


def __getattr__(name: str) -> object:
    """Import the operators, and torch with them, when the first one is asked for."""
    if name in __all__:
        from importlib import import_module  # noqa: PLC0415 - importing the package must stay cheap

        return getattr(import_module(f"nojit.kernels.pointwise.{_MAKERS.get(name, 'op')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
