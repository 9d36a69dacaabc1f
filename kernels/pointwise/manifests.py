"""Generator of the manifest of pointwise operators: types, cases, hints and configs of their kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nojit.kernels.pointwise.source import Part, parts
from nojit.kernels.pointwise.spec import OperatorSpec, SpecFile

__all__ = ["kinds_of", "write_manifest"]

_SPACE = """\
[[kernel.tuning.space]]
BLOCK = [256, 512, 1024, 2048, 4096, 8192]
TILES = [1, 2, 4]
STREAM = [false, true]
num_warps = [1, 2, 4, 8]
when = "BLOCK >= 128 * num_warps and BLOCK * TILES <= 1024 * num_warps"
"""
_NARROW = 64
_FEW_TENSORS = 4


def write_manifest(file: SpecFile, source: str, origin: str) -> str:
    """Return the manifest for a file of specs, as TOML.

    Args:
        file: the specs.
        source: where the kernels are defined: a module, or a file relative to the manifest.
        origin: the file of specs, to name in the first line.
    """
    head = f"# Generated from {origin} by `python -m nojit.kernels.pointwise`: change that instead.\nschema = 1\n"
    bundle = "\n".join(["[bundle]", *(f"{_key(key)} = {_toml(value)}" for key, value in file.bundle.items()), ""])
    kernels = [
        text
        for spec in file.operators
        for part in parts(spec)
        for text in (_flat(spec, part, source), _rectangles(spec, part, source))
    ]
    return "\n".join([head, bundle, *kernels])


def kinds_of(spec: OperatorSpec, part: Part) -> tuple[str, ...]:
    """Return the kinds of rectangles that a part is built for, the most general one last.

    A kind has a letter for each tensor, as in `kernel_parts.rectangle_pointers`; its last letter is that of all
    results.

    `spec`: the operator in `operators.toml`.
    """
    count = len(part.inputs)
    more = spec.kinds if part.outputs == ("out",) else ()
    return ("r" * (count + 1), *(f"{kinds}r" for kinds in more), "s" * (count + 1))


def _flat(spec: OperatorSpec, part: Part, source: str) -> str:
    """Return the manifest entry of a part's flat kernel.

    `spec`: the operator in `operators.toml`.
    """
    forward = part.outputs == ("out",)
    axis = len(spec.index) > 1 and forward
    pointers = [f"{name}_ptr" for name in part.tensors]
    params = dict.fromkeys(pointers, "*{dtype}") | {"n": "{index}" if axis else spec.index[-1]}
    matrix: dict[str, Any] = {"dtype": spec.dtypes} | ({"index": spec.index} if axis else {})
    lines = [
        *_head(part.kernel, f"{source}:{part.function}_kernel", ["cdiv(n, BLOCK * TILES)"]),
        f"core = {_toml(spec.core if forward else 'false')}",
        *_table("kernel.params", params | {f"{name}_value": "fp32" for name in part.scalars}),
        *_table("kernel.matrix", matrix | _choice(spec, part)),
        *_table("[kernel.hints]", dict.fromkeys([*pointers, "n"], 16)),
        *_table("[kernel.configs]", {"BLOCK": 1024, "TILES": 1, "STREAM": False, "num_warps": 4}),
        *(_tuning(spec, axis=axis) if spec.tuned and forward else ()),
    ]
    return "\n".join([*lines, ""])


def _tuning(spec: OperatorSpec, *, axis: bool) -> Iterator[str]:
    """Yield the lines of the tuning space: fp16 reuses the measurements of bf16, and 64-bit sizes those of 32-bit ones.

    `spec`: the operator in `operators.toml`; `axis`: whether the type of `n` is an axis, i32 and i64.
    """
    alike, rules = [], []
    if {"fp16", "bf16"} <= set(spec.dtypes):
        alike.append('dtype = [["fp16", "bf16"]]')
        rules.append("dtype != 'fp16'")
    if axis:
        alike.append(f"index = [{_toml(spec.index)}]")
        rules.insert(0, "index == 'i32'")
    yield from ("", "[kernel.tuning]", 'key = ["n"]')
    if rules:
        yield from (f"when = {_toml(' and '.join(rules))}", f"alike = {{ {', '.join(alike)} }}")
    yield f"\n{_SPACE}".rstrip()


def _rectangles(spec: OperatorSpec, part: Part, source: str) -> str:
    """Return the manifest entry of a part's rectangle kernel.

    The kind of contiguous rows has configs for aligned and for unaligned operands, the most general kind has one for
    unaligned operands, and every other kind has one for aligned operands.

    `spec`: the operator in `operators.toml`.
    """
    pointers = {f"{name}_ptr": "*{dtype}" for name in part.tensors}
    sizes = dict.fromkeys(
        ["nx", "ny", "n0", "n1", *(f"{name}_s{way}" for name in part.tensors for way in "10yx")], "i64"
    )
    core = spec.core_tiles if part.outputs == ("out",) else "false"
    lines = [
        *_head(
            f"{part.kernel}_rectangles",
            f"{source}:{part.function}_rectangles_kernel",
            ["cdiv(nx, BX) * cdiv(ny, BY) * n0 * n1"],
        ),
        f"core = {_toml(core)}",
        'aligned_only = "operators pass operands without alignment as kinds that are built without"',
        *_table("kernel.params", pointers | sizes | {f"{name}_value": "fp32" for name in part.scalars}),
        *_table("kernel.matrix", {"dtype": spec.dtypes} | _choice(spec, part) | {"KINDS": kinds_of(spec, part)}),
        *(line for config in _configs(spec, part) for line in _table("[kernel.configs]", config)),
    ]
    return "\n".join([*lines, ""])


def _configs(spec: OperatorSpec, part: Part) -> Iterator[dict[str, Any]]:
    rows, *others, mixed = kinds_of(spec, part)
    aligned = _aligned(part, rows)
    narrow = f"nx <= {_NARROW} and {aligned}"
    # with many tensors a thread takes half as many elements, since otherwise its registers would spill
    warps = 8 if len(part.tensors) > _FEW_TENSORS else 4
    yield {"BY": 32, "BX": _NARROW, "num_warps": warps, "when": f"KINDS == '{rows}'", "requires": narrow}
    # 8 elements of each of several operands keep enough reads in flight, and small calls get more programs
    height = 2 if warps == 4 and len(part.inputs) > 1 else 4
    yield {"BY": height, "BX": 512, "num_warps": warps, "when": f"KINDS == '{rows}'", "requires": aligned}
    for kinds in others:
        across = "t" in kinds
        shape = {"BY": 64 if across else 4, "BX": 64 if across else 512, "num_warps": 8 if across else 4}
        yield shape | {"when": f"KINDS == '{kinds}'", "requires": _aligned(part, kinds)}
    yield {"BY": 8, "BX": 128, "num_warps": 4, "when": f"KINDS == '{rows}' or KINDS == '{mixed}'"}


def _aligned(part: Part, kinds: str) -> str:
    """Return the condition, as an expression, under which all operands allow vector loads.

    Vectors go along x for contiguous rows, and along y for contiguous columns.
    """
    letters = dict(zip(part.inputs, kinds, strict=False)) | dict.fromkeys(part.outputs, kinds[-1])
    facts = ["nx % 16 == 0"] + (["ny % 16 == 0"] if "t" in kinds else [])
    for name, letter in letters.items():
        if letter != "c":
            ways = "10y" if letter == "r" else "10x"
            facts += [f"aligned({name}_ptr, 16)", *(f"{name}_s{way} % 16 == 0" for way in ways)]
    return " and ".join(facts)


def _choice(spec: OperatorSpec, part: Part) -> dict[str, Any]:
    return {part.word: spec.words} if spec.choice else {}


def _head(name: str, source: str, grid: Sequence[str]) -> list[str]:
    return ["[[kernel]]", f"name = {_toml(name)}", f"source = {_toml(source)}", f"grid = {_toml(grid)}"]


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]


def _key(key: str) -> str:
    return key if key.isidentifier() else json.dumps(key)


def _toml(value: Any) -> str:
    """Return a value as TOML; its basic strings include all JSON strings."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
