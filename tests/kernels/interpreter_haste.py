"""Spare Triton's interpreter work that comes to nothing: of the tests of kernels, most of the time is its bookkeeping.

What kernels compute, what they are refused, and what they raise stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, interpreter_builder, interpreter_semantic

__all__ = ["hasten"]


def hasten() -> None:
    """Replace parts of the interpreter of this process by what is faster."""
    _patch_once_a_launch()
    _pass_semantics_quickly()
    _leave_out_what_is_asserted_in_debug_mode()
    _find_numpy_types_in_a_table()
    _make_types_once()


def _patch_once_a_launch() -> None:
    """Spare the interpreter its patching of triton at each call of a helper: one a launch and module is enough."""
    plain_run, patch_lang = InterpretedFunction.run, interpreter._patch_lang
    patched: set[str] = set()

    def run(self: InterpretedFunction, *args: Any, **kwargs: Any) -> None:
        patched.clear()
        plain_run(self, *args, **kwargs)

    def call(self: InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
        if self.fn.__module__ not in patched:
            patch_lang(self.fn)
            patched.add(self.fn.__module__)
        return self.rewrite()(*args, **kwargs)

    InterpretedFunction.run, InterpretedFunction.__call__ = run, call


def _pass_semantics_quickly() -> None:
    """Spare each call of a builtin a copy of its named arguments."""

    def patch(obj: Any, name: str, member: Callable[..., Any], _builder: Any, scope: Any) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = interpreter_semantic
            return member(*args, **kwargs)

        scope.set_attr(obj, name, call)

    interpreter._patch_attr = patch


def _leave_out_what_is_asserted_in_debug_mode() -> None:
    """Compute no sum and no product twice: that it does not overflow is asserted in debug mode alone, which this is not."""
    assert not interpreter_builder.options.debug
    interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)


def _find_numpy_types_in_a_table() -> None:
    """Spare the interpreter the making of a table each time that it looks into it."""
    plain = interpreter._get_np_dtype
    known: dict[str, np.dtype[Any]] = {}

    def find(of: Any) -> np.dtype[Any]:
        element = of.element_ty if isinstance(of, tl.block_type) else of
        if isinstance(element, tl.pointer_type):
            return plain(element)  # type: ignore[no-any-return]
        if element.name not in known:
            known[element.name] = plain(element)
        return known[element.name]

    interpreter._get_np_dtype = find


def _make_types_once() -> None:
    """Keep the types of blocks, and what tensors of a type have alike: their shape, and the number and type of elements."""
    plain_block, plain_tensor = tl.block_type.__init__, tl.tensor.__init__
    known: dict[tuple[Any, ...], tl.block_type] = {}

    def make(cls: type[tl.block_type], *args: Any) -> tl.block_type:
        return known.get(_key(cls, *args)) or object.__new__(cls)

    def fill(self: tl.block_type, element_ty: tl.dtype, shape: Any) -> None:
        if "name" not in self.__dict__:
            plain_block(self, element_ty, shape)
            known[_key(type(self), element_ty, self.shape)] = self

    def describe(self: tl.tensor, handle: Any, of: tl.dtype) -> None:
        alike = of.__dict__.get("_alike")
        if alike is None:
            plain_tensor(self, handle, of)
            of._alike = self.shape, self.numel, self.dtype
            return
        self.handle, self.type = handle, of
        self.shape, self.numel, self.dtype = alike

    tl.block_type.__new__, tl.block_type.__init__, tl.tensor.__init__ = make, fill, describe


def _key(kind: type, element: Any, shape: Any) -> tuple[Any, ...]:
    """Say by what a type of blocks is known; one whose sizes are no plain ints is not."""
    return kind, type(element), element.name, getattr(element, "address_space", ""), *shape, *map(type, shape)
