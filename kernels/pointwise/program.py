"""Programs: an expression as a list of distinct steps, where a step uses only earlier ones.

The parser (`nojit.kernels.pointwise.parser`) turns an expression into a `Program`.
`nojit.kernels.pointwise.derivatives` differentiates it, `nojit.kernels.pointwise.source` writes it as a kernel, and
`nojit.kernels.pointwise.evaluation` evaluates it with torch. This module needs only the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["COMPARISONS", "FUNCTIONS", "MAX_STEPS", "Builder", "Function", "Number", "Program", "Step"]

Number = int | float
MAX_STEPS: Final = 512
"""The most steps of a program: more would need more registers than a thread has."""
COMPARISONS: Final[Mapping[str, str]] = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


@dataclass(frozen=True, slots=True)
class Function:
    """A function that expressions may call."""

    arity: int
    floats: bool = True
    """True if the result for ints is a float."""
    of_numbers: Callable[..., Number] | None = None
    """Python function that evaluates it for numbers at parse time; None if an argument must be an operand."""


FUNCTIONS: Final[Mapping[str, Function]] = {
    "abs": Function(1, floats=False, of_numbers=abs),
    "clamp": Function(3, floats=False),
    "cos": Function(1, of_numbers=math.cos),
    "erf": Function(1, of_numbers=math.erf),
    "exp": Function(1, of_numbers=math.exp),
    "floor_divide": Function(2, of_numbers=lambda x, y: float(x // y)),
    "gelu": Function(1),
    "gelu_tanh": Function(1),
    "log": Function(1, of_numbers=math.log),
    "maximum": Function(2, floats=False, of_numbers=max),
    "minimum": Function(2, floats=False, of_numbers=min),
    "relu": Function(1, floats=False),
    "rsqrt": Function(1, of_numbers=lambda x: 1 / math.sqrt(x)),
    "sigmoid": Function(1),
    "silu": Function(1),
    "sin": Function(1, of_numbers=math.sin),
    "sqrt": Function(1, of_numbers=math.sqrt),
    "square": Function(1, floats=False, of_numbers=lambda x: x * x),
    "tanh": Function(1, of_numbers=math.tanh),
    "trunc_divide": Function(2, of_numbers=lambda x, y: float(math.trunc(x / y))),
    "where": Function(3, floats=False),
}
"""The functions that expressions may call. ``where`` takes a comparison first; ``clamp`` is parsed as two."""

_ARITHMETIC: Final[Mapping[str, Callable[..., Number]]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on the results of earlier steps."""

    op: str
    """Name of the operation: ``input``, ``scalar``, ``number``, an arithmetic operation, a comparison or a function."""
    args: tuple[int, ...] = ()
    """Indices of the steps whose results are its arguments."""
    value: str | Number | None = None
    """For ``input`` and ``scalar`` the name, for ``number`` the number; otherwise None."""


@dataclass(frozen=True, slots=True)
class Program:
    """The steps that compute one or more results from the same inputs."""

    inputs: tuple[str, ...]
    scalars: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    @property
    def floats(self) -> bool:
        """True if the results are floats for all inputs, as those of a division are."""
        return any(_floats(step) for step in self.steps)

    @property
    def floats_of_ints(self) -> bool:
        """True if the results are floats even if all inputs and scalars are ints."""
        return any(_floats(step) for step in self.steps if step.op != "scalar")

    def pruned(self) -> Program:
        """Return the program without steps, inputs and scalars that no result needs."""
        needed = set(self.results)
        for place in range(len(self.steps) - 1, -1, -1):
            if place in needed:
                needed.update(self.steps[place].args)
        places = {old: new for new, old in enumerate(sorted(needed))}
        steps = tuple(
            Step(step.op, tuple(places[arg] for arg in step.args), step.value)
            for old, step in enumerate(self.steps)
            if old in needed
        )
        read = {step.value for step in steps if step.op in {"input", "scalar"}}
        return Program(
            tuple(name for name in self.inputs if name in read),
            tuple(name for name in self.scalars if name in read),
            steps,
            tuple(places[result] for result in self.results),
        )


def _floats(step: Step) -> bool:
    if step.op == "number":
        return isinstance(step.value, float)
    if step.op in FUNCTIONS:
        return FUNCTIONS[step.op].floats
    return step.op in {"div", "scalar"}


@dataclass(slots=True)
class Builder:
    """Builder of a program: equal operations become one step, and operations on numbers are evaluated immediately."""

    steps: list[Step] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def add(self, op: str, *args: int, value: str | Number | None = None) -> int:
        """Add a step, unless an equal one exists; return its index.

        Raises:
            ValueError: the program has too many steps.
        """
        # repr distinguishes 1 from 1.0, and 0.0 from -0.0, which compare equal
        key = (op, args, repr(value))
        if key not in self._known:
            if len(self.steps) >= MAX_STEPS:
                raise ValueError(
                    f"expected at most {MAX_STEPS} steps, got more: split the expression into several operators"
                )
            self._known[key] = len(self.steps)
            self.steps.append(Step(op, args, value))
        return self._known[key]

    def number(self, value: Number) -> int:
        """Add a number, unless an equal one exists; return the index of its step."""
        return self.add("number", value=value)

    def number_at(self, place: int) -> Number | None:
        """Return the value of step `place` if it is a number; otherwise None."""
        step = self.steps[place]
        return step.value if step.op == "number" and not isinstance(step.value, str) else None

    def apply(self, op: str, *args: int) -> int:
        """Add an operation on earlier steps, or evaluate it if all of them are numbers; return the index of the result.

        Raises:
            ValueError: the operation is undefined for these numbers, or takes no numbers.
        """
        numbers = [self.number_at(arg) for arg in args]
        given = [number for number in numbers if number is not None]
        if len(given) < len(args):
            return self.add(op, *args)
        function = _ARITHMETIC.get(op) or (FUNCTIONS[op].of_numbers if op in FUNCTIONS else None)
        if function is None:
            raise ValueError(f"expected an input or scalar as an argument of {op}, got numbers alone")
        try:
            found = function(*given)
            finite = math.isfinite(found)
        except (ArithmeticError, ValueError) as error:
            raise ValueError(f"{op} of {', '.join(map(str, given))} has no value") from error
        if not finite or (isinstance(found, int) and abs(found) >= 1 << 63):
            raise ValueError(f"{op} of {', '.join(map(str, given))} is out of range")
        return self.number(found)

    def product(self, *factors: int) -> int:
        """Add the product of some steps, leaving out factors of one; a factor of zero makes it zero. Return its index."""
        numbers = [self.number_at(factor) for factor in factors]
        if 0 in numbers:
            return self.number(0)
        left = [factor for factor, number in zip(factors, numbers, strict=True) if number != 1]
        found = left[0] if left else self.number(1)
        for factor in left[1:]:
            found = self.apply("mul", found, factor)
        return found

    def total(self, *terms: int) -> int:
        """Add the sum of some steps, leaving out terms of zero; return its index."""
        left = [term for term in terms if self.number_at(term) != 0]
        found = left[0] if left else self.number(0)
        for term in left[1:]:
            found = self.apply("add", found, term)
        return found
