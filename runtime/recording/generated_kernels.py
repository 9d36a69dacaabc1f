"""Kernels that torch.compile generates: what identifies them, and how Inductor compiled them.

Inductor writes a module for each kernel and compiles it itself, not through `JITFunction.run`. A generated kernel is recorded as any
other: a source closure and a specialization, under the module `MODULE`, not that of the file. The config that Inductor selected
is a winner whose key is `key_of`: it depends on the kernel's types, constants, hints and size hints, not on paths or device numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.errors import ArgumentError
from nojit.runtime.recording.closure import Closure, capture
from nojit.runtime.recording.specialization import Specialization
from nojit.runtime.types.constants import constant_type
from nojit.runtime.types.names import NONE
from nojit.runtime.values import encode_value

__all__ = ["MODULE", "capture_generated", "facts_of_triton", "key_of", "read_generated"]

MODULE: Final = "torch._inductor"
"""Recorded module of every generated kernel."""
_DIVISIBLE = "tt.divisibility"


def capture_generated(function: Any) -> Closure:
    """Return the source closure of a generated kernel, independent of the file that Inductor wrote.

    Args:
        function: the ``@triton.jit`` function of an Inductor autotuner.

    Raises:
        OSError: the source of a function that it reaches cannot be read.
    """
    closure = capture(function)
    closure["definitions"][0]["module"] = MODULE
    return closure


def key_of(autotuner: Any) -> str:
    """Return the digest, in hex, of the case that an Inductor autotuner selects a config for.

    Args:
        autotuner: a ``CachingAutotuner``.
    """
    meta = autotuner.triton_meta
    facts: dict[str, Json] = {
        "signature": {str(name): str(kind) for name, kind in meta["signature"].items()},
        "constants": [[str(name), repr(value)] for name, value in sorted(meta.get("constants", {}).items(), key=str)],
        "hints": [*sorted(repr(pair) for pair in _hints_in(meta).items())],
        "size_hints": repr(autotuner.size_hints),
    }
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def facts_of_triton() -> dict[str, Json]:
    """Return what Inductor's caches know this Triton by: its ``triton_key``, and the ``backend_hash`` for the current GPU."""
    from torch._inductor.runtime.triton_compat import triton_key  # only programs that compile have it
    from torch.utils._triton import triton_backend

    return {"triton_key": str(triton_key()), "backend_hash": str(triton_backend().hash())}


def _hints_in(meta: Mapping[str, Any]) -> Mapping[Any, Any]:
    configs = meta.get("configs") or [{}]
    # before Triton 3.3, Inductor had a class of its own for hints
    return configs[0] if isinstance(configs[0], Mapping) else {}


def read_generated(
    function: Any, source: Any, options: Mapping[str, Any], *, arch: str, closure: str
) -> Specialization:
    """Return the specialization that Inductor compiled.

    Args:
        function: the ``@triton.jit`` function.
        source: the ``ASTSource`` that Inductor gave to Triton.
        options: the compiler options of that compile.
        arch: arch of the device, such as ``sm_90``.
        closure: digest of the function's closure.

    Raises:
        ArgumentError: a constant that no bundle can hold.
    """
    names = [param.name for param in function.params]
    constants = {_path(place, names): value for place, value in source.constants.items()}
    types: list[Json] = []
    constexprs: list[Json] = []
    hints: list[Json] = []
    for param in function.params:
        name = param.name
        if param.is_constexpr:
            value = constants[name] if name in constants else getattr(param.default, "value", param.default)
            constexprs.append([name, encode_value(constexpr_value(value, name, function.__name__))])
        elif name in constants:
            kind, hint = _constant_type(constants[name], name, function.__name__)
            types.append([name, kind])
            hints += [[name, 1]] if hint else []
        else:
            types.append([name, "i1" if source.signature[name] == "u1" else str(source.signature[name])])
    hinted = [_path(place, names) for place, attributes in source.attrs.items() if _is_divisible(attributes)]
    hints += [[name, 16] for name in hinted if name not in constants]
    return {
        "module": MODULE,
        "qualname": function.__name__,
        "closure": closure,
        "params": list(names),
        "types": types,
        "hints": sorted(hints, key=canonical_json),
        "constexprs": constexprs,
        "options": [[name, encode_value(constexpr_value(value, name, ""))] for name, value in sorted(options.items())],
        "functions": [],
        "arch": arch,
    }


def _path(place: Any, names: list[str]) -> str:
    if isinstance(place, str):
        return place
    first, *rest = place
    return ".".join([names[first], *map(str, rest)])


def _is_divisible(attributes: Any) -> bool:
    return any(list(each) == [_DIVISIBLE, 16] for each in attributes)


def _constant_type(value: Any, name: str, kernel: str) -> tuple[str, bool]:
    """Return the type of a param that Inductor compiled as a constant, and whether the constant is a hint for 1."""
    if value is None:
        return NONE, False
    if type(value) is int and value == 1:
        return "i32", True
    try:
        return constant_type(constexpr_value(value, name, kernel)), False
    except ValueError as error:
        raise ArgumentError(str(error), where=f"{name} of kernel {kernel}", argument=name) from None
