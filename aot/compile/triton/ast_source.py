"""A variant as the source object that Triton compiles."""

from __future__ import annotations

from typing import Any

from nojit.aot.backends.interface import Backend
from nojit.aot.compile.triton.functions import find, to_triton
from nojit.aot.compile.triton.own_toolchain import backend_of
from nojit.aot.compile.triton.param_layout import Place, leaves_of, nested, place_in
from nojit.aot.manifest.types import NONE, layout_in, plain
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.variant import Variant
from nojit.runtime.types.constants import constant_of, is_constant
from nojit.runtime.types.names import descriptor_parts, dtype_name, is_descriptor
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.language.core import dtype

__all__ = ["ast_source"]


def ast_source(variant: Variant, place: SourcePlace) -> ASTSource:
    """Return a variant as the source object that Triton compiles: function, types, constants, hints.

    `place`: where the kernel's source is.
    """
    function = find(place)
    order = [param.name for param in function.params]
    types = dict(variant.signature)
    constants: dict[Place, Any] = {(order.index(name),): to_triton(value, place) for name, value in variant.constexprs}
    constants |= {place_in(path, order): None for path, kind in leaves_of(variant) if kind == NONE}
    constants |= {
        place_in(path, order): to_triton(constant_of(kind), place)
        for path, kind in leaves_of(variant)
        if is_constant(kind)
    }
    constants |= {place_in(path, order): 1 for path, hint in variant.hints if hint == 1}
    for number, param in enumerate(function.params):
        if param.is_constexpr:
            constants.setdefault((number,), param.default)
    spelled = {name: nested(types.get(name, ""), (number,), constants) for number, name in enumerate(order)}
    attrs = {place_in(path, order): [["tt.divisibility", 16]] for path, hint in variant.hints if hint == 16}
    if not function.is_gluon():
        return ASTSource(function, spelled, constants, attrs)
    spelled = {name: _with_layouts(kind, backend_of(variant.arch)) for name, kind in spelled.items()}
    return GluonASTSource(function, spelled, constants, attrs)


def _with_layouts(kind: Any, vendor: Backend) -> Any:
    """Return a type in which each descriptor has the shared-memory layout that Gluon requires."""
    if isinstance(kind, tuple):
        members = [_with_layouts(member, vendor) for member in kind]
        return type(kind)(*members) if hasattr(kind, "_fields") else tuple(members)
    if not is_descriptor(kind):
        return kind
    bare = plain(kind)
    element, block = descriptor_parts(bare)
    layout = vendor.shared_layout(block, dtype(dtype_name(element)), layout_in(kind))
    return f"{bare.removesuffix('>')},{layout!r}>"
