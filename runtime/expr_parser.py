"""Reads expressions: a tokenizer and a precedence climber for the grammar in `nojit.runtime.expr`."""

from __future__ import annotations

import re
from typing import Final

from nojit.runtime.errors import did_you_mean
from nojit.runtime.expr_ops import INT64_MAX, INT64_MIN, ExpressionError, Op, Value
from nojit.runtime.expr_tree import BINARY, FUNCTIONS, MAX_HEIGHT, Literal, Logic, Name, Node, Operation

__all__ = ["MAX_LENGTH", "parse_tree"]

MAX_LENGTH: Final = 4096
"""Characters in an expression: text can come from a bundle that nobody trusts yet."""


def parse_tree(text: str) -> Node:
    """Read an expression.

    Raises:
        ExpressionError: `text` is no expression, is longer than `MAX_LENGTH`, or nests deeper than `MAX_HEIGHT`.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"more than {MAX_LENGTH} characters", text, MAX_LENGTH)
    return _Parser(text).parse()


_TOKEN: Final = re.compile(
    r"\s*(?:(?P<int>0[xX][0-9A-Fa-f]+|0|[1-9][0-9]*)(?![0-9A-Za-z_.])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<string>'[^'\x00-\x1f]*'|\"[^\"\x00-\x1f]*\")"
    r"|(?P<symbol>//|==|!=|<=|>=|[-+*%<>(),])"
    r"|(?P<end>\Z))",
    re.ASCII,
)
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "none": None}
_WORDS: Final = frozenset({"and", "or", "not", *_CONSTANTS})
_SYMBOLS: Final = {symbol: (op, binding) for op, (symbol, binding) in BINARY.items()}
_INSTEAD: Final = {
    "True": "true",
    "False": "false",
    "None": "none",
    "&&": "and",
    "||": "or",
    "!": "not",
    "/": "//",
    "=": "==",
}
_SPACES: Final = " \t\n\r\f\v"
# an operation in parentheses takes two steps down and adds one level to the tree
_MAX_DEPTH: Final = 2 * MAX_HEIGHT
_LOWEST, _COMPARISON, _UNARY = 1, 4, 7


class _Token:
    """A word of an expression: ``int``, ``name``, ``string``, ``symbol`` (words like ``and`` too) or ``end``."""

    __slots__ = ("column", "kind", "text")

    def __init__(self, kind: str, text: str, column: int) -> None:
        self.kind = kind
        self.text = text
        self.column = column


class _Parser:
    """One reading of one text: a precedence climber that looks one token ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0
        self.token = self._read()

    def parse(self) -> Node:
        try:
            node = self._expression(_LOWEST)
        except ExpressionError as error:
            # a tree that grows too high does not know where it stands
            column = self.token.column if error.column is None else error.column
            raise ExpressionError(error.message, self.text, column) from None
        if self.token.kind != "end":
            raise self._error("expected an operator or the end")
        return node

    def _error(self, message: str, column: int | None = None) -> ExpressionError:
        return ExpressionError(message, self.text, self.token.column if column is None else column)

    def _read(self) -> _Token:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            raise self._unreadable()
        self.position = match.end()
        kind, found = match.lastgroup, match[match.lastgroup]
        if found in _INSTEAD:
            raise self._unreadable(match.start(kind))
        return _Token("symbol" if found in _WORDS else kind, found, match.start(kind))

    def _unreadable(self, start: int | None = None) -> ExpressionError:
        rest = self.text[self.position if start is None else start :].lstrip(_SPACES)
        column = len(self.text) - len(rest) if start is None else start
        for wrong, right in _INSTEAD.items():
            if rest.startswith(wrong):
                return self._error(f"{wrong!r} is spelled {right!r}", column)
        if rest[0] in "'\"":
            return self._error("expected the string to end", column)
        if rest[0].isdigit():
            return self._error("expected an integer", column)
        return self._error(f"unexpected {rest[0]!r}", column)

    def _advance(self) -> _Token:
        token, self.token = self.token, self._read()
        return token

    def _accept(self, symbol: str) -> bool:
        if self.token.kind != "symbol" or self.token.text != symbol:
            return False
        self._advance()
        return True

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise self._error(f"expected {symbol!r}")

    def _expression(self, lowest: int) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self._error(f"more than {MAX_HEIGHT} levels of nesting")
        left = self._prefix(lowest)
        while self.token.kind == "symbol":
            if self.token.text in ("and", "or"):
                stop = self.token.text == "or"
                binding = 1 if stop else 2
                if binding < lowest:
                    break
                left = self._logic(left, stop, binding)
                continue
            if self.token.text not in _SYMBOLS:
                break
            op, binding = _SYMBOLS[self.token.text]
            if binding < lowest:
                break
            left = self._binary(left, op, binding)
        self.depth -= 1
        return left

    def _binary(self, left: Node, op: Op, binding: int) -> Node:
        self._advance()
        node = Operation(op, (left, self._expression(binding + 1)))
        if binding == _COMPARISON and self.token.text in _SYMBOLS and _SYMBOLS[self.token.text][1] == _COMPARISON:
            raise self._error("comparisons do not chain; join two of them with 'and'")
        return node

    def _logic(self, left: Node, stop: bool, binding: int) -> Node:
        operands = [left]
        while self._accept("or" if stop else "and"):
            operands.append(self._expression(binding + 1))
        flat: list[Node] = []
        for operand in operands:
            flat += operand.operands if isinstance(operand, Logic) and operand.stop is stop else (operand,)
        return Logic(stop, tuple(flat))

    def _prefix(self, lowest: int) -> Node:
        if self.token.text == "not" and self.token.kind == "symbol":
            if lowest > _COMPARISON - 1:
                raise self._error("expected a value; put parentheses around 'not'")
            self._advance()
            return Operation(Op.NOT, (self._expression(_COMPARISON - 1),))
        if self._accept("-"):
            if self.token.kind == "int":
                return self._integer(-1)
            return Operation(Op.NEG, (self._expression(_UNARY),))
        return self._atom()

    def _integer(self, sign: int) -> Node:
        token = self.token
        if len(token.text) > 20:
            raise self._error("the integer does not fit in 64 bits")
        value = sign * int(token.text, 16 if token.text[:2] in ("0x", "0X") else 10)
        if not INT64_MIN <= value <= INT64_MAX:
            raise self._error("the integer does not fit in 64 bits")
        self._advance()
        return Literal(value)

    def _atom(self) -> Node:
        if self.token.kind == "int":
            return self._integer(1)
        if self._accept("("):
            node = self._expression(_LOWEST)
            self._expect(")")
            return node
        if self.token.kind == "string":
            return Literal(self._advance().text[1:-1])
        if self.token.text in _CONSTANTS:
            return Literal(_CONSTANTS[self._advance().text])
        if self.token.kind != "name":
            raise self._error("expected a value")
        name = self._advance()
        return self._call(name) if self._accept("(") else Name(name.text)

    def _call(self, name: _Token) -> Node:
        function = FUNCTIONS.get(name.text)
        if function is None:
            raise self._error(f"unknown function {name.text!r}{did_you_mean(name.text, list(FUNCTIONS))}", name.column)
        operands = [self._expression(_LOWEST)]
        while self._accept(","):
            operands.append(self._expression(_LOWEST))
        self._expect(")")
        if len(operands) < function.min_args or len(operands) > (function.max_args or len(operands)):
            least = "" if function.max_args else "at least "
            message = f"{name.text} takes {least}{function.min_args} arguments, got {len(operands)}"
            raise self._error(message, name.column)
        return Operation(function.op, tuple(operands))
