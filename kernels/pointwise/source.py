"""Generator of the Triton source of pointwise kernels: readable, one statement per step.

An operator has a flat kernel and a rectangle kernel, and if requested the same two for its gradients; all of them use
`kernel_parts`. Generated code contains only validated names and formatted numbers. The expression itself appears only
in the docstring of its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nojit.kernels.pointwise.program import FUNCTIONS, Program, Step
from nojit.kernels.pointwise.spec import OperatorSpec

__all__ = ["Part", "parts", "write_source"]

_HEADER: Final = '''"""Pointwise kernels. Generated from {origin} by `python -m nojit.kernels.pointwise`: edit that instead.

Each operator has a flat kernel over `n` elements that all operands store in the same order, with `TILES` tiles of `BLOCK` per
program, and a rectangle kernel with tiles of `BY` x `BX`. `nojit.kernels.pointwise.kernel_parts` describes both.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)
# ruff: noqa: ARG001, F841, PLR0917 - a launch passes its facts by position, many of them, some for the grid alone

import triton
import triton.language as tl
from nojit.kernels.pointwise import kernel_parts as parts
'''
_ROUNDED: Final = ("floor_divide", "trunc_divide")
_OPERATIONS: Final[Mapping[str, str]] = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "neg": "-{}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "square": "{0} * {0}",
    "where": "tl.where({}, {}, {})",
    "relu_grad": "tl.where({} <= 0, 0, {})",
    "div": "parts.divide({}, {}, EXACT)",
    "div number": "parts.divide_number({}, {}, EXACT)",
    "div by number": "parts.divide_by_number({}, {}, EXACT)",
    **{name: f"tl.{name}({{}})" for name in ("abs", "cos", "erf", "log", "rsqrt", "sin")},
    **{name: f"parts.{name}({{}}, EXACT)" for name in ("exp", "gelu", "gelu_tanh", "sigmoid", "silu", "sqrt", "tanh")},
    **{name: f"parts.{name}({{}}, {{}})" for name in _ROUNDED},
    **{f"{name} number": f"parts.{name}(tl.full({{1}}.shape, {{0}}, {{1}}.dtype), {{1}})" for name in _ROUNDED},
    **{f"{name} by number": f"parts.{name}({{0}}, tl.full({{0}}.shape, {{1}}, {{0}}.dtype))" for name in _ROUNDED},
    "relu": "parts.relu({})",
    **{name: f"parts.{name}({{}}, {{}})" for name in ("maximum", "minimum")},
}


@dataclass(frozen=True, slots=True)
class Part:
    """The kernels of one computation: an operator, or its gradients."""

    kernel: str
    """Name of the flat kernel in manifests."""
    function: str
    """Start of the names of the kernels' functions."""
    inputs: tuple[str, ...]
    scalars: tuple[str, ...]
    outputs: tuple[str, ...]
    programs: Mapping[str, Program]
    choice: str
    summary: str
    """Description of the results, for the docstrings of the kernels."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors, inputs then outputs, in the order of the kernels' params."""
        return (*self.inputs, *self.outputs)

    @property
    def word(self) -> str:
        """Name of the constexpr that selects a program; empty if there is one program."""
        return self.choice.upper()


def parts(spec: OperatorSpec) -> tuple[Part, ...]:
    """Return the parts that are built for an operator: itself and, if requested, its gradients.

    `spec`: the operator in `operators.toml`.
    """
    texts = [" ".join(text.split()) for text in spec.texts.values()]
    forward = Part(
        spec.name, f"{spec.name}_fwd", spec.inputs, spec.scalars, ("out",), spec.programs, spec.choice,
        " or ".join(f"``{text}``" for text in texts),
    )  # fmt: skip
    if not spec.gradient:
        return (forward,)
    slope = next(iter(spec.derivatives.values()))
    outputs = tuple(f"grad_{name}" for name in spec.inputs)
    summary = f"the gradients of {forward.summary}, from the gradient of the result"
    kernel = f"{spec.name}_bwd"
    backward = Part(
        kernel, kernel, slope.inputs, slope.scalars, outputs, spec.derivatives, spec.choice, summary
    )  # fmt: skip
    return forward, backward


def write_source(specs: Sequence[OperatorSpec], origin: str) -> str:
    """Return the text of a module with the kernels of these operators; its docstring names `origin`, the file of specs."""
    functions = [text for spec in specs for part in parts(spec) for text in (_flat(part), _rectangles(part))]
    return "\n\n".join([_HEADER.format(origin=origin), *functions])


def _flat(part: Part) -> str:
    params = [*(f"{name}_ptr" for name in part.tensors), "n", *(f"{name}_value" for name in part.scalars)]
    loads = [f"in_{name} = parts.load_tile({name}_ptr, tile, STREAM)" for name in part.inputs]
    stores = [f"parts.store_tile({name}_ptr, tile, result_{place}, STREAM)" for place, name in enumerate(part.outputs)]
    body = [*loads, *_computation(part), *stores]
    return "\n".join([
        *_head(part, f"{part.function}_kernel", params, ("BLOCK", "TILES", "STREAM")),
        "    for number in tl.static_range(TILES):",
        "        tile = parts.place_tile(number, n, BLOCK, TILES)",
        *(f"        {line}" for line in body),
        "",
    ])  # fmt: skip


def _rectangles(part: Part) -> str:
    pointers = [f"{name}_ptr" for name in part.tensors]
    strides = [f"{name}_s{way}" for name in part.tensors for way in "10yx"]
    params = [*pointers, "nx", "ny", "n0", "n1", *strides, *(f"{name}_value" for name in part.scalars)]
    where = {name: ", ".join([f"{name}_ptr", *(f"{name}_s{way}" for way in "10yx"), "place"]) for name in part.tensors}
    loads = [
        line
        for place, name in enumerate(part.inputs)
        for line in _call(f"in_{name} = parts.load_rectangle", [where[name], f"KINDS, {place}"])
    ]
    stores = [
        line
        for place, name in enumerate(part.outputs)
        for line in _call("parts.store_rectangle", [where[name], f"result_{place}", "KINDS"])
    ]
    return "\n".join([
        *_head(part, f"{part.function}_rectangles_kernel", params, ("KINDS", "BY", "BX")),
        "    place = parts.place_rectangle(nx, ny, n0, BY, BX)",
        *(f"    {line}" for line in [*loads, *_computation(part), *stores]),
        "",
    ])  # fmt: skip


def _call(function: str, args: Sequence[str]) -> list[str]:
    """Return the lines of a function call, broken as the formatter would if it is too long for one line."""
    line = f"{function}({', '.join(args)})"
    return [line] if len(line) <= 116 else [f"{function}(", f"    {', '.join(args)}", ")"]


def _head(part: Part, name: str, params: Sequence[str], constexprs: Sequence[str]) -> list[str]:
    words = [part.word] if part.choice else []
    return [
        "@triton.jit",
        f"def {name}(",
        *(f"    {param}," for param in params),
        *(f"    {constexpr}: tl.constexpr," for constexpr in (*words, *constexprs)),
        "):",
        f'    """Write {part.summary}."""',
        f"    EXACT: tl.constexpr = {part.outputs[0]}_ptr.dtype.element_ty == tl.float32",
    ]


def _computation(part: Part) -> list[str]:
    if not part.choice:
        return _steps(next(iter(part.programs.values())), part.inputs)
    lines: list[str] = []
    for word, program in part.programs.items():
        lines.append(f'{"elif" if lines else "if"} {part.word} == "{word}":')
        lines += [f"    {line}" for line in _steps(program, part.inputs)]
    return lines


def _steps(program: Program, inputs: Sequence[str]) -> list[str]:
    """Return the statements that compute a program's steps; its results get the names of the outputs."""
    values: list[str] = []
    lines = []
    results = {place: f"result_{number}" for number, place in reversed(list(enumerate(program.results)))}
    for place, step in enumerate(program.steps):
        if step.op in {"input", "scalar", "number"}:
            values.append(_leaf(step, floats=program.floats))
            continue
        values.append(results.get(place, f"t{place}"))
        operation = _OPERATIONS[_operation(step, program)]
        lines.append(f"{values[-1]} = {operation.format(*(values[arg] for arg in step.args))}")
    for number, place in enumerate(program.results):
        if values[place] != f"result_{number}":
            # broadcast a number to the tile's shape
            plain = program.steps[place].op in {"number", "scalar"}
            lines.append(f"result_{number} = {f'in_{inputs[0]} * 0 + ' if plain else ''}{values[place]}")
    return lines


def _operation(step: Step, program: Program) -> str:
    """Return the name of the function for a step's operation.

    Divisions by or of a number have names of their own, since Triton's correctly rounded ones take tensors only.
    """
    if step.op not in {"div", *_ROUNDED}:
        return step.op
    above, below = (program.steps[arg].op == "number" for arg in step.args)
    return f"{step.op} number" if above else f"{step.op} by number" if below else step.op


def _leaf(step: Step, *, floats: bool) -> str:
    if step.op == "input":
        return f"in_{step.value}"
    if step.op == "scalar":
        return f"{step.value}_value"
    value = float(step.value or 0) if floats else step.value
    return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)


if missing := FUNCTIONS.keys() - _OPERATIONS.keys() - {"clamp"}:
    raise AssertionError(f"functions without code: {missing}")
