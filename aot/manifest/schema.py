"""JSON schema of manifests, for editors. It combines the types and the other checks of the manifest reader. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from nojit.aot.manifest.archs import family_of, known_archs
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN, Option
from nojit.aot.manifest.spec import struct_schema
from nojit.aot.manifest.types import BOOLS, ELEMENTS, FLOATS, INTS, NONE
from nojit.runtime import _core
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.target import by_arch

__all__ = ["json_schema"]

_Schema: TypeAlias = dict[str, Any]

_EXPRESSION: Final[_Schema] = {"type": "string", "minLength": 1}
_ARCH: Final[_Schema] = {"enum": [*known_archs(), *sorted({*map(family_of, known_archs())} - {""}, key=by_arch)]}
_VALUE: Final[_Schema] = {"$ref": "#/$defs/Value"}
_KINDS: Final = {int: "integer", bool: "boolean", str: "string", dict: "object"}


def json_schema() -> _Schema:
    """Return the JSON schema of a manifest, in draft 2020-12."""
    schema: _Schema = _without_null(struct_schema())
    defs: dict[str, _Schema] = schema["$defs"]
    defs["Value"] = _value()
    defs["Type"] = _type()
    defs["BundleSpec"]["properties"]["archs"]["items"] = _ARCH
    kernel = defs["KernelSpec"]["properties"]
    kernel["params"]["additionalProperties"] = {"$ref": "#/$defs/Type"}
    kernel["matrix"]["additionalProperties"] = _list(_VALUE)
    kernel["derived"]["additionalProperties"]["anyOf"][0] = _EXPRESSION
    kernel["configs"]["items"] = _config()
    kernel["options"] |= {"properties": _options(OPTIONS), "additionalProperties": False}
    point = defs["PointSpec"]["properties"]
    point["values"]["additionalProperties"] = _VALUE
    point["types"]["additionalProperties"] = {"$ref": "#/$defs/Type"}
    point["config"] |= {"properties": _options(OPTIONS), "additionalProperties": _VALUE}
    point["archs"]["items"] = _ARCH
    tuning = defs["TuningSpec"]["properties"]
    tuning["alike"]["additionalProperties"]["items"]["items"] = _VALUE
    tuning["space"]["items"] = _space()
    return schema


def _without_null(schema: Any) -> Any:
    """Return a JSON schema without the type null, which TOML does not have.

    If one alternative of an ``anyOf`` remains, it replaces the ``anyOf``, so that editors describe it better.
    """
    if isinstance(schema, list):
        return [_without_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _without_null(each) for key, each in schema.items() if key != "default" or each is not None}
    kinds = [each for each in found.get("anyOf", []) if each != {"type": "null"}]
    return found if len(kinds) != 1 else {key: each for key, each in found.items() if key != "anyOf"} | kinds[0]


def _value() -> _Schema:
    """Return the JSON schema of a constexpr's value."""
    tagged = {
        "dtype": {"enum": _dtypes(), "description": "A dtype."},
        "function": {
            "type": "string",
            "pattern": "^[^:]+:",
            "description": "A `@triton.jit` function, as in `source`.",
        },
        "none": {"const": True, "description": "None."},
    }
    return {
        "description": "A constexpr: an int, float, bool, string or array of such, a dtype, a function or None.",
        "anyOf": [
            {"type": ["integer", "number", "boolean", "string"]},
            {"type": "array", "items": _VALUE},
            *(
                {"type": "object", "properties": {tag: facts}, "required": [tag], "additionalProperties": False}
                for tag, facts in tagged.items()
            ),
        ],
    }


def _dtypes() -> list[str]:
    words = dict.fromkeys(_core.dtype_words())
    return [f"{prefix}{word}" for prefix in ("", "tl.", "torch.") for word in words]


def _type() -> _Schema:
    """Return the JSON schema of a param's type. It lists most types by name, so that editors can complete them."""
    scalars = [*BOOLS, *INTS, *FLOATS]
    pointers = [f"*{element}" for element in ELEMENTS]
    listed = "|".join(map(re.escape, [*scalars, *pointers, *(f"*k{element}" for element in ELEMENTS)]))
    return {
        "description": "A type in Triton's spelling; `{axis}` takes a value of the matrix, a `?` at the end also None.",
        "type": "string",
        "anyOf": [
            {"enum": [*pointers, *scalars, NONE]},
            {"pattern": rf"^({listed})\??$"},
            {"pattern": r"^[^{}]*(\{\w+\}[^{}]*)+$", "description": "Spelled by axes of the matrix."},
            {"pattern": r"^\(.*\)\??$", "description": "A tuple."},
            {"pattern": r"^tensordesc<.+\[.+\].*>\??$", "description": "A tensor descriptor."},
        ],
    }


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _option(option: Option) -> _Schema:
    facts: _Schema = {"description": option.about}
    if option.default is not None:
        facts["default"] = option.default
    if len(option.values) > 8:
        return facts | {"type": "integer", "minimum": option.values[0], "maximum": option.values[-1]}
    if option.values:
        return facts | {"enum": [*option.values]}
    return (
        facts
        | {"type": _KINDS[option.kind]}
        | ({"additionalProperties": {"type": "string"}} if option.kind is dict else {})
    )


def _options(options: dict[str, Option]) -> _Schema:
    return {name: _option(option) for name, option in options.items()}


def _rules() -> _Schema:
    """Return the JSON schemas of a config's rules, by key."""
    return {
        "archs": _list(_ARCH) | {"description": "Only for these architectures."},
        "when": _EXPRESSION | {"description": "Only where this holds: a rule at build time."},
        "requires": {"type": "string", "description": "Runs only where this holds: a rule at each call."},
    }


def _config() -> _Schema:
    return {
        "type": "object",
        "properties": _rules() | _options(OPTIONS),
        "propertyNames": {"pattern": r"^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": _VALUE,
    }


def _space() -> _Schema:
    """Return the JSON schema of a tuning space: a config with lists of values and only the tunable options."""
    named = (*TUNABLE, TOOLCHAIN)
    tunable = {name: {"anyOf": [_option(OPTIONS[name]), _list(_option(OPTIONS[name]))]} for name in named}
    others = {name: False for name in OPTIONS if name not in named}
    return {
        "type": "object",
        "properties": _rules() | tunable | others,
        "propertyNames": {"pattern": r"^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"anyOf": [_list(_VALUE), _VALUE]},
    }
