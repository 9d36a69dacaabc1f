"""The generated parts of docs/manifest.md: the language's grammar, and every key, option and type."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from nojit.aot.backends.cuda import vendor as cuda
from nojit.aot.backends.hip import vendor as hip
from nojit.aot.manifest import types
from nojit.aot.manifest.options import OPTIONS, Option
from nojit.aot.manifest.spec import struct_schema
from nojit.runtime import _core
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.expr import expression as expr
from nojit.runtime.target import FAMILIES

__all__ = ["render_grammar", "render_reference"]

# where each table of the schema stands in a manifest
_PLACES = {
    "Manifest": "Top level",
    "BundleSpec": "`[bundle]`",
    "KernelSpec": "`[[kernel]]`",
    "DerivedSpec": "An entry of `[kernel.derived]` that lists its values",
    "ExcludeSpec": "`[[kernel.exclude]]`",
    "PartialHintsSpec": "`[[kernel.partial_hints]]`",
    "PointSpec": "`[[kernel.point]]`",
    "TuningSpec": "`[kernel.tuning]`",
}
_WORDS = {"array": "array", "integer": "int", "object": "table", "string": "string"}


def render_grammar() -> str:
    """Quote the grammar from the module that implements it."""
    documentation = textwrap.dedent(expr.__doc__ or "")
    grammar = documentation.partition("::\n\n")[2].partition("\n\nINT is")[0]
    return f"\n```text\n{textwrap.dedent(grammar)}\n```\n\n"


def render_reference() -> str:
    """Write a table for each table of a manifest, then options, types and architectures."""
    schema = struct_schema()
    parts = [_table(name, schema["$defs"][name]) for name in _PLACES]
    return "\n" + "\n".join([*parts, _options(), _types(), _archs()])


def _table(name: str, struct: dict[str, Any]) -> str:
    lines = [
        f"### {_PLACES[name]}",
        "",
        struct["description"],
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for key, facts in struct["properties"].items():
        default = "required" if key in struct["required"] else _default(facts)
        lines.append(f"| `{key}` | {_type(facts)} | {default} | {facts.get('description', '')} |")
    return "\n".join(lines) + "\n"


def _default(facts: dict[str, Any]) -> str:
    value = facts.get("default")
    return f"`{value}`" if value not in ({}, [], "", None) else ""


def _type(facts: dict[str, Any]) -> str:
    if "enum" in facts:
        return " or ".join(f"`{value}`" for value in facts["enum"])
    if "anyOf" in facts:
        return " or ".join(_type(one) for one in facts["anyOf"] if one != {"type": "null"})
    word = _WORDS["object" if "$ref" in facts else facts["type"]]
    items = facts.get("items" if word == "array" else "additionalProperties")
    most = f", at most {facts['maxItems']}" if "maxItems" in facts else ""
    return f"{word} of {_plural(_type(items))}{most}" if items else word


def _plural(kind: str) -> str:
    if kind.startswith("`"):
        return kind
    return " or ".join(re.sub(r"^\w+", lambda word: f"{word[0]}s", one) for one in kind.split(" or ", 1))


def _options() -> str:
    lines = [
        "### Options",
        "",
        f"In a config or in `[kernel.options]`. {_listed(TUNABLE)} tell configs apart at a call, and so does",
        "any other that the kernel's entry sets, such as `launch_pdl=True`; `extern_libs` does not.",
        "",
        "| option | values | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, option in OPTIONS.items():
        default = "unset" if option.default is None else f"`{str(option.default).lower()}`"
        lines.append(f"| `{name}` | {_values(option)} | {default} | {option.about} |")
    return "\n".join(lines) + "\n"


def _values(option: Option) -> str:
    if not option.values:
        return {bool: "bool", str: "string", int: "int", dict: "table of strings"}[option.kind]
    if len(option.values) > 8:
        return f"{option.values[0]} to {option.values[-1]}"
    return ", ".join(map(str, option.values))


def _types() -> str:
    return (
        "### Types\n\n"
        "| type | spelling |\n|---|---|\n"
        f"| scalar | {_listed((*types.BOOLS, *types.INTS, *types.FLOATS))}; `{types.NONE}` for a param that is always None |\n"
        f"| pointer | `*`, or `*k` for constants, before one of {_listed(types.ELEMENTS)} |\n"
        "| tuple | types in parentheses, with commas; each may have a `name:` |\n"
        f"| tensor descriptor | `tensordesc<fp16[64,64]>`, with any pointer element except `i1` and `u1`, and a block of 1 to "
        f"{_core.RANK_MAX} powers of two; for Gluon a layout may follow |\n"
        "| constant | `=` before an int, `true`, `false`, a float, quoted text, `dtype:NAME` or `function:SOURCE` |\n"
    )


def _archs() -> str:
    families = "".join(
        f"| `sm_{number}f` | {_listed(tuple(f'sm_{chip}' for chip in sorted(members)))} |\n"
        for number, members in sorted(FAMILIES.items())
        if len(members) > 1
    )
    return (
        f"### Architectures\n\n{_listed(cuda.ARCHS)}, and any other that the ptxas of your Triton supports. The build asks ptxas; an "
        "error for an unsupported architecture lists the supported ones.\n\n"
        f"For AMD's GPUs, with Triton 3.9: {_listed(hip.ARCHS)}. Such bundles were [never run on hardware](amd.md).\n\n"
        "`bundle.archs` and `nojit build --arch` also take the architecture of a family, whose bundle runs on each of its chips. In `archs` of configs, "
        "spaces and points, a family stands for each of its chips:\n\n"
        f"| family | chips |\n|---|---|\n{families}\n"
        "The code is that of the chip with the family's number: configs and tuned tables of `sm_100` apply to `sm_100f`. The build "
        "assembles each variant for the chip, too, and refuses one whose instructions differ. A device prefers an image of its own chip.\n"
    )


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words[:-1]) + f" and `{words[-1]}`"
