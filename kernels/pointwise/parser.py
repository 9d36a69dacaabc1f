"""Parser of pointwise expressions: a tokenizer and recursive descent. No text is ever evaluated as Python.

- comparison: ``sum ("<" | "<=" | ">" | ">=" | "==" | "!=") sum``, as the first argument of ``where``
- sum: ``product (("+" | "-") product)*``
- product: ``unary (("*" | "/") unary)*``
- unary: ``"-" unary | atom``
- atom: ``NUMBER | NAME | FUNCTION "(" argument ("," argument)* ")" | "(" sum ")"``
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from nojit.kernels.pointwise.program import COMPARISONS, FUNCTIONS, Builder, Number, Program
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.expr.operations import ExpressionError

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "RESERVED", "check_name", "parse", "parse_gradients"]

MAX_LENGTH: Final = 4096
"""The most characters of an expression."""
MAX_DEPTH: Final = 64
"""The deepest nesting of calls, parentheses and signs in an expression."""
MAX_INPUTS: Final = 8
RESERVED: Final = frozenset({"grad", "out", "true", "false", "none", *keyword.kwlist, *FUNCTIONS})
"""Names that no input may have: those that generated kernels, Python or functions of expressions use."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![0-9A-Za-z_.])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol><=|>=|==|!=|(?<![*/])[*/](?![*/])|[-+<>(),])"
    r"|(?P<end>\Z))",
    re.ASCII,
)
_SUMS: Final = {"+": "add", "-": "sub"}
_PRODUCTS: Final = {"*": "mul", "/": "div"}


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


def _shown(token: _Token) -> str:
    """Return a token as error messages show it."""
    return repr(token.text) if token.text else "the end"


def check_name(name: object, what: str, reserved: Collection[str] = RESERVED) -> None:
    """Require that `name` can be used in generated code; `what` says in the error what it names.

    Raises:
        ValueError: not a lower-case identifier of at most 31 characters, or a reserved name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"expected a name for {what}, of a-z, 0-9 and _ and at most 31 characters, got {name!r}")
    if name in reserved:
        raise ValueError(f"expected a name for {what} that is not reserved, got {name!r}")


def parse(text: object, inputs: Sequence[str], scalars: Sequence[str] = ()) -> Program:
    """Parse an expression into a program.

    Args:
        text: the expression.
        inputs: the names of its tensors; it must use all of them.
        scalars: the names of its numbers; it must use all of them.

    Raises:
        ExpressionError: `text` is not an expression over these names, or is too long, deep or large.
        ValueError: an invalid name.
    """
    for name in (*inputs, *scalars):
        check_name(name, "an input or scalar")
    if len({*inputs, *scalars}) < len(inputs) + len(scalars) or not 1 <= len(inputs) <= MAX_INPUTS:
        raise ValueError(f"expected 1 to {MAX_INPUTS} inputs and distinct names, got {(*inputs, *scalars)}")
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ExpressionError(f"expected text of at most {MAX_LENGTH} characters")
    reader = _Reader(text, dict.fromkeys(inputs, "input") | dict.fromkeys(scalars, "scalar"), Builder())
    result = reader.read()
    program = Program(tuple(inputs), tuple(scalars), tuple(reader.builder.steps), (result,)).pruned()
    for name in (*inputs, *scalars):
        if name not in {*program.inputs, *program.scalars}:
            raise ExpressionError(
                f"expected the expression to use {name!r}: use it, or remove it from inputs and scalars", text
            )
    # keep the declared order, not the order of first use
    return Program(tuple(inputs), tuple(scalars), program.steps, program.results)


def parse_gradients(texts: Sequence[str], inputs: Sequence[str], scalars: Sequence[str] = ()) -> Program:
    """Parse one expression for the gradient by each input, over ``grad``, inputs and scalars, into one program.

    Raises:
        ExpressionError: a text is not an expression over these names, or is too long, deep or large.
    """
    names = dict.fromkeys(("grad", *inputs), "input") | dict.fromkeys(scalars, "scalar")
    builder = Builder()
    results = tuple(_Reader(text, names, builder).read() for text in texts)
    return Program(("grad", *inputs), tuple(scalars), tuple(builder.steps), results).pruned()


class _Reader:
    """Parser of one text, with one token of look-ahead."""

    def __init__(self, text: str, names: dict[str, str], builder: Builder) -> None:
        self.text = text
        self.names = names
        self.builder = builder
        self.position = 0
        self.depth = 0
        self.token = self._next()

    def read(self) -> int:
        try:
            found = self._sum()
        except ExpressionError:
            raise
        except ValueError as error:
            raise self._error(f"expected fewer operations: {error}") from None
        if self.token.kind != "end":
            extra = ": a comparison stands in where(...) only" if self.token.text in COMPARISONS else ""
            raise self._error(f"expected an operator or the end, got {self.token.text!r}{extra}")
        return found

    def _error(self, message: str, column: int | None = None) -> ExpressionError:
        return ExpressionError(message, self.text, self.token.column if column is None else column)

    def _next(self) -> _Token:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            rest = self.text[self.position :].lstrip()
            raise self._error(f"unexpected {rest[:2]!r}", len(self.text) - len(rest))
        self.position = match.end()
        return _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))

    def _take(self) -> _Token:
        token, self.token = self.token, self._next()
        return token

    def _expect(self, symbol: str) -> None:
        if self.token.text != symbol or self.token.kind != "symbol":
            raise self._error(f"expected {symbol!r}, got {_shown(self.token)}")
        self._take()

    def _apply(self, column: int, op: str, *args: int) -> int:
        try:
            return self.builder.apply(op, *args)
        except ValueError as error:
            raise self._error(f"expected something that can be computed: {error}", column) from None

    def _sum(self) -> int:
        found = self._product()
        while self.token.kind == "symbol" and self.token.text in _SUMS:
            symbol = self._take()
            found = self._apply(symbol.column, _SUMS[symbol.text], found, self._product())
        return found

    def _product(self) -> int:
        found = self._unary()
        while self.token.kind == "symbol" and self.token.text in _PRODUCTS:
            symbol = self._take()
            found = self._apply(symbol.column, _PRODUCTS[symbol.text], found, self._unary())
        return found

    def _unary(self) -> int:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._error(f"expected at most {MAX_DEPTH} levels")
        found = self._signed() if self.token.text == "-" else self._atom()
        self.depth -= 1
        return found

    def _signed(self) -> int:
        column = self._take().column
        return self._apply(column, "neg", self._unary())

    def _atom(self) -> int:
        token = self._take()
        if token.kind == "number":
            return self.builder.number(self._number(token))
        if token.kind == "name":
            return self._call(token) if self.token.text == "(" else self._operand(token)
        if token.text != "(" or token.kind != "symbol":
            raise self._error(f"expected an operand, got {_shown(token)}", token.column)
        found = self._sum()
        self._expect(")")
        return found

    def _number(self, token: _Token) -> Number:
        value: Number = int(token.text) if token.text.isdigit() else float(token.text)
        if abs(value) >= (1 << 63 if isinstance(value, int) else 3e38):
            raise self._error(f"expected a number that fp32 or 64 bits hold, got {token.text}", token.column)
        return value

    def _operand(self, token: _Token) -> int:
        kind = self.names.get(token.text)
        if kind is None:
            where = ": a function, which takes arguments" if token.text in FUNCTIONS else ""
            near = where or did_you_mean(token.text, tuple(self.names))
            raise self._error(f"expected one of {', '.join(self.names)}, got {token.text!r}{near}", token.column)
        return self.builder.add(kind, value=token.text)

    def _call(self, token: _Token) -> int:
        function = FUNCTIONS.get(token.text)
        if function is None:
            near = did_you_mean(token.text, tuple(FUNCTIONS))
            raise self._error(f"expected a function, got {token.text!r}{near}", token.column)
        self._expect("(")
        args = [self._comparison() if token.text == "where" else self._sum()]
        while self.token.text == ",":
            self._take()
            args.append(self._sum())
        self._expect(")")
        if len(args) != function.arity:
            raise self._error(f"expected {function.arity} arguments of {token.text}, got {len(args)}", token.column)
        if token.text == "clamp":
            return self._clamp(token, *args)
        return self._apply(token.column, token.text, *args)

    def _clamp(self, token: _Token, value: int, low: int, high: int) -> int:
        """Build clamp(value, low, high) from comparisons, so that a value on a bound keeps its gradient, as in torch."""
        if self.builder.number_at(value) is not None:
            raise self._error("expected an operand to clamp, got a number", token.column)
        raised = self.builder.add("where", self.builder.add("lt", value, low), low, value)
        return self.builder.add("where", self.builder.add("gt", raised, high), high, raised)

    def _comparison(self) -> int:
        left = self._sum()
        if self.token.text not in COMPARISONS:
            raise self._error(f"expected a comparison first in where, got {_shown(self.token)}")
        symbol = self._take()
        right = self._sum()
        if self.builder.number_at(left) is not None and self.builder.number_at(right) is not None:
            raise self._error("expected an operand in the comparison, got numbers alone", symbol.column)
        return self.builder.add(COMPARISONS[symbol.text], left, right)
