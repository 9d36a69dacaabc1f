"""Recorded specializations: the types, hints, constexprs and options of a launch, as Triton's binder found them.

A specialization is JSON with these fields; its digest identifies it:

============ =================================================================================================
``module``   module of the kernel function; ``qualname`` its qualified name
``closure``  digest of its source closure
``params``   names of all params, in order
``types``    ``[param, type]`` of each runtime param, in a manifest's spelling: members of tuples may have names
``hints``    ``[param or member, 16 or 1]``
``constexprs`` ``[param, value]`` of each constexpr
``options``  ``[name, value]`` of each option that the call passed
``functions`` ``[module:name, digest of its closure]`` of each function among the constexprs
``arch``     arch of the device
============ =================================================================================================
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.errors import ArgumentError
from nojit.runtime.recording.triton_functions import kind_of, place_of
from nojit.runtime.types.constants import constant_type
from nojit.runtime.types.names import NONE
from nojit.runtime.values import FunctionRef, Value, encode_value

__all__ = ["Specialization", "digest_of", "functions_among", "read_specialization"]

Specialization: TypeAlias = "dict[str, Any]"

# `JITFunction.run` adds these to the options of every call
_ADDED = {"debug": (None, False), "instrumentation_mode": ("",), "fpsan_homomorphic_casts": (None, False, "")}
# settings of a Gluon layout that a descriptor's type does not determine
_LAYOUT = re.compile(r"\b(swizzle_byte_width|transposed|fp4_padded)=(\w+)")


def digest_of(specialization: Specialization) -> str:
    """Return the SHA-256, in hex, that identifies a specialization."""
    return hashlib.sha256(canonical_json(specialization)).hexdigest()


def functions_among(bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return the functions of Triton among a call's arguments and in their tuples, by ``module:name``."""
    return {_spelled(each): each for value in bound.values() for each in _functions_in(value)}


def read_specialization(
    function: Any,
    bound: Mapping[str, Any],
    found: Sequence[tuple[Any, Any]],
    options: Mapping[str, Any],
    *,
    arch: str,
    closures: Mapping[str, str],
) -> Specialization:
    """Return the specialization of a call.

    Args:
        function: the ``@triton.jit`` function.
        bound: every param's value by name, defaults included, as Triton's binder returns it.
        found: for each param, the type and the hint that Triton's binder found.
        options: the options of the call.
        arch: arch of the device, such as ``sm_90``.
        closures: digest of the closure of each function: under ``""`` the kernel's, else under ``module:name``.

    Raises:
        ArgumentError: a value that no bundle can hold, such as an object of the program's own class as a constexpr.
    """
    types: list[Json] = []
    hints: list[Json] = []
    constexprs: list[Json] = []
    where = function.__name__
    for param, (kind, hint) in zip(function.params, found, strict=True):
        value = bound[param.name]
        if param.is_constexpr:
            constexprs.append([param.name, encode_value(_constant(value, param.name, where))])
            continue
        types.append([param.name, _type_of(kind, hint, value, param.name, where)])
        hints += [list(pair) for pair in _hints_of(kind, hint, value, param.name)]
    given = {name: value for name, value in options.items() if value not in _ADDED.get(name, ())}
    module, qualname = place_of(function)
    return {
        "module": module,
        "qualname": qualname,
        "closure": closures[""],
        "params": [param.name for param in function.params],
        "types": types,
        "hints": hints,
        "constexprs": constexprs,
        "options": [[name, encode_value(_option(value, name, where))] for name, value in sorted(given.items())],
        "functions": [[name, digest] for name, digest in sorted(closures.items()) if name],
        "arch": arch,
    }


def _type_of(kind: Any, hint: Any, value: Any, path: str, where: str) -> str:
    """Return a param's type in a manifest's spelling from the type that Triton's binder found."""
    if isinstance(kind, tuple):
        names = getattr(kind, "_fields", ())
        members = [
            _type_of(inner, hint[place], value[place], f"{path}.{place}", where) for place, inner in enumerate(kind)
        ]
        named = [f"{name}: {member}" for name, member in zip(names, members, strict=True)] if names else members
        return f"({', '.join(named)})"
    if kind == "constexpr":
        return _constant_type(value, path, where)
    if kind.startswith("tensordesc"):
        return _descriptor(kind, path, where)
    return "i1" if kind == "u1" else str(kind)


def _constant_type(value: Any, path: str, where: str) -> str:
    # Triton compiles the int 1 in; bundles have a hint for it
    if type(value) is int:
        return "i32"
    constant = _constant(value, path, where)
    if constant is None:
        return NONE
    try:
        return constant_type(constant)
    except ValueError as error:
        raise ArgumentError(str(error), where=f"{path} of kernel {where}", argument=path) from None


def _descriptor(kind: str, path: str, where: str) -> str:
    if kind.startswith("tensordesc_im2col"):
        what = "expected a tiled tensor descriptor: bundles hold none for im2col"
        raise ArgumentError(what, got=kind, where=f"{path} of kernel {where}", argument=path)
    described, _, layout = kind.removeprefix("tensordesc<").removesuffix(">").partition("]")
    bare = described.replace(" ", "") + "]"
    if "NVMMASharedLayout" not in layout:
        return f"tensordesc<{bare}>"
    settings = ",".join(f"{name}={setting}" for name, setting in _LAYOUT.findall(layout))
    return f"tensordesc<{bare},NVMMASharedLayout({settings})>"


def _hints_of(kind: Any, hint: Any, value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(kind, tuple):
        for place, inner in enumerate(kind):
            yield from _hints_of(inner, hint[place], value[place], f"{path}.{place}")
    elif kind == "constexpr":
        if type(value) is int and value == 1:
            yield path, 1
    elif isinstance(hint, str) and "D" in hint:
        yield path, 16


def _constant(value: Any, name: str, where: str) -> Value:
    return constexpr_value(value, name, where)


def _option(value: Any, name: str, where: str) -> Value:
    if isinstance(value, Mapping):
        value = tuple(sorted((str(key), item) for key, item in value.items()))
    return constexpr_value(value, name, where)


def _functions_in(value: Any) -> Iterator[Any]:
    if kind_of(value) and not isinstance(value, type):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _functions_in(item)
    elif type(value).__name__ == "constexpr" and hasattr(value, "value"):
        yield from _functions_in(value.value)


def _spelled(function: Any) -> str:
    spelled = constexpr_value(function, "", "")
    return spelled.name if isinstance(spelled, FunctionRef) else "{}:{}".format(*place_of(function))
