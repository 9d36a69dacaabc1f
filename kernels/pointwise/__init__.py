"""Pointwise operators, and the generator that turns an expression into kernels, their manifest and a torch operator.

``nojit.kernels.pointwise.op`` has the operators that nojit ships; `load_operators` and `define` register further ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

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
    from nojit.kernels.pointwise.op_from_spec import define, load_operators
    from nojit.kernels.pointwise.spec import specify

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

__getattr__ = lazily(__name__, __all__, {"define": "op_from_spec", "load_operators": "op_from_spec", "specify": "spec"})
