"""Expressions in postfix, as tables carry them beside the text; the engine computes them without parsing.

Words with one space between them, operands before their operation: ``cdiv(n, BLOCK * 2)`` is ``n BLOCK 2 * cdiv()``. A
word is a decimal int, ``true``, ``false``, ``none``, a string in its quotes, a name, an operator, ``and`` and ``or`` included,
or a function with ``()`` behind it, as are ``neg()`` and ``not()``; each takes two operands, or one as the language has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import shown
from nojit.runtime.expr.operations import (
    INT64_MAX,
    INT64_MIN,
    MISSING,
    OPERATIONS,
    UNSEEN,
    ExpressionError,
    Op,
    Pointer,
    Tag,
    Value,
    describe,
    identity,
)

__all__ = [
    "BINDINGS",
    "FUNCTIONS",
    "UNARY",
    "WORDS",
    "conjuncts",
    "evaluate",
    "infix",
    "names_of",
    "postfix",
    "words_of",
]

WORDS: Final = {Op(row.number): row.word for row in OPERATIONS.values() if row.word and row.word not in ("and", "or")}
"""The word of each operation but ``and`` and ``or``."""
UNARY: Final = frozenset({Op(row.number) for row in OPERATIONS.values() if row.operands == 1})
FUNCTIONS: Final = tuple(row.word.removesuffix("()") for row in OPERATIONS.values() if row.binding == _core.BINDS_CALL)
"""The functions of the language."""
BINDINGS: Final = {row.word: row.binding for row in OPERATIONS.values() if row.word and not row.word.endswith("()")}
"""How tightly each operator of two operands binds."""
_NOT, _COMPARE, _NEG, _ATOM = _core.BINDS_NOT, _core.BINDS_COMPARISON, _core.BINDS_SIGN, _core.BINDS_CALL
_LITERAL: Final = "literal"
_OPERATIONS: Final = frozenset([*WORDS.values(), "and", "or"])
_UNARY_WORDS: Final = frozenset([WORDS[op] for op in UNARY])
_NO_NAMES: Final = _OPERATIONS | {"true", "false", "none"}

_Pair: TypeAlias = tuple[int, int]


def postfix(text: str) -> str:
    """Write an expression in postfix.

    Raises:
        ExpressionError: `text` is no expression.
    """
    try:
        found = _core.postfix(text)
    except UnicodeEncodeError as error:
        found = ("unexpected", error.start)
    if isinstance(found, str):
        return found
    what, column = found
    if what == "unexpected":
        what += f" {text[column]!r}"
    elif what == "unknown function":
        name = text[column:].partition("(")[0].rstrip()
        what += f" {name!r}{did_you_mean(name, FUNCTIONS)}"
    raise ExpressionError(what, text, column)


def words_of(words: str) -> list[str]:
    """Take an expression in postfix apart."""
    if "'" not in words and '"' not in words:
        return words.split(" ")
    found, at = [], 0
    while at < len(words):
        # a string may hold spaces
        quoted = words.find(words[at], at + 1) if words[at] in "'\"" else at
        end = words.find(" ", quoted)
        found.append(words[at : len(words) if end < 0 else end])
        at = len(words) if end < 0 else end + 1
    return found


@lru_cache(maxsize=4096)
def names_of(words: str) -> frozenset[str]:
    """Return the names in an expression in postfix; a bundle may hold anything else, with empty words too."""
    return frozenset([word for word in words_of(words) if word not in _NO_NAMES and word[:1] not in "-0123456789'\""])


def conjuncts(words: str) -> list[str]:
    """Split an expression in postfix at its outermost ``and``."""
    listed = words_of(words)
    # of each operand where it starts, and where the parts do that `and` joins to it
    starts: list[tuple[int, list[int]]] = []
    for place, word in enumerate(listed):
        if word == "and":
            right, _ = starts.pop()
            left, parts = starts[-1]
            starts[-1] = (left, [*(parts or [left]), right])
        elif word in _OPERATIONS:
            if word not in _UNARY_WORDS:
                starts.pop()
            starts[-1] = (starts[-1][0], [])
        else:
            starts.append((place, []))
    ((_, parts),) = starts
    if not parts:
        return [words]
    # behind every part but the first stands its own `and`
    ends = [*parts[1:], len(listed)]
    return [" ".join(listed[start : end - (start > 0)]) for start, end in zip(parts, ends, strict=True)]


def infix(words: str) -> str:
    """Write an expression in postfix as manifests do, with one space around operators and no needless parentheses."""
    made: list[_Part] = []
    for word in words_of(words):
        if word in _UNARY_WORDS:
            made[-1] = _Part(*_written_unary(word, made[-1]), word)
        elif word in _OPERATIONS:
            right = made.pop()
            made[-1] = _Part(*_written_binary(word, made[-1], right), word)
        else:
            negative = word[0] == "-"
            made.append(_Part(word, _NEG if negative else _ATOM, "" if word in names_of(word) else _LITERAL))
    return made[0].text


class _Part(Record):
    """A part of an expression as it is written."""

    text: str
    binding: int
    word: str
    """Its origin: an operation's word, `_LITERAL`, or nothing for a name."""

    def within(self, binding: int) -> str:
        return self.text if self.binding >= binding else f"({self.text})"


def _written_unary(word: str, operand: _Part) -> tuple[str, int]:
    if word == "not()":
        return f"not {operand.within(_NOT)}", _NOT
    if word == "neg()":
        # `-(5)` is the negation of 5, `-5` a constant
        return f"-({operand.text})" if operand.word == _LITERAL else f"-{operand.within(_NEG)}", _NEG
    return f"{word[:-1]}{operand.text})", _ATOM


def _written_binary(word: str, left: _Part, right: _Part) -> tuple[str, int]:
    # what the same word joins is one chain
    chained = left.word == word
    if word.endswith("()"):
        first = left.text[:-1] if chained and word in ("min()", "max()") else f"{word[:-1]}{left.text}"
        return f"{first}, {right.text})", _ATOM
    binding = BINDINGS[word]
    # comparisons do not chain; the others group to the left
    first = left.within(binding + (binding == _COMPARE or (word in ("and", "or") and not chained)))
    return f"{first} {word} {right.within(binding + 1)}", binding


def evaluate(words: str, values: Mapping[str, Value]) -> Value:
    """Compute an expression in postfix for `values`, from name to value.

    Raises:
        ExpressionError: a name without a value, a type or a number that an operation cannot take, a result that is a
            pointer, or more operations than a program holds.
    """
    call = _Call(words, values)
    program = _core.assemble(words, call.constants, call.slots, call.constant)
    if not program:
        raise ExpressionError(_core.PROGRAM_RULE)
    found = _core.run_program(program, tuple(call.pairs))
    if len(found) == 2:
        return call.value(*found)
    raise ExpressionError(call.reason(*found))


class _Call:
    """The names of an expression: constants of its program, or slots for values that the machine has to see itself."""

    def __init__(self, words: str, values: Mapping[str, Value]) -> None:
        self.constants: dict[str, Value] = {}
        self.slots: dict[str, int] = {}
        self.pairs: list[_Pair] = []
        self._values = values
        self._opaques: dict[object, int] = {}
        self._interned: list[Value] = []
        for name in names_of(words):
            value = values.get(name, MISSING)
            pair = self._slot_of(value)
            if pair is None:
                self.constants[name] = value
            else:
                self.slots[name] = len(self.pairs)
                self.pairs.append(pair)

    def _slot_of(self, value: Value) -> _Pair | None:
        """Return what a slot holds for a value; None if it is a constant."""
        if isinstance(value, Pointer):
            address = value.address
            return Tag.POINTER, address - (1 << 64) if address > INT64_MAX else address
        if value is MISSING:
            return Tag.MISSING, 0
        if value is UNSEEN:
            return Tag.TUPLE, 0
        # the bits say which slot it is, for messages
        return (Tag.UINT, len(self.pairs)) if type(value) is int and not INT64_MIN <= value <= INT64_MAX else None

    def constant(self, value: Value) -> _Pair:
        """Return the instruction that pushes a string or float."""
        number = self._opaques.setdefault(identity(value), len(self._interned))
        if number == len(self._interned):
            self._interned.append(value)
        return Op.CONST_OPAQUE, number

    def value(self, tag: int, bits: int) -> Value:
        """Return the value that the machine has as a tag and 64 bits."""
        if tag == Tag.INT:
            return bits
        if tag == Tag.BOOL:
            return bool(bits)
        if tag == Tag.OPAQUE:
            return self._interned[bits]
        if tag == Tag.POINTER:
            return Pointer(bits)
        return UNSEEN if tag == Tag.TUPLE else None

    def reason(self, op: int, left: _Pair, right: _Pair) -> str:
        """Say why an operation failed."""
        if op == Op.LOAD:
            return self._absence(self._name_of(right[1]))
        for tag, bits in (left, right):
            if tag == Tag.UINT:
                name = self._name_of(bits)
                return f"{name} = {shown(self._values[name])} does not fit in 64 bits signed"
        if op in (Op.JUMP_IF_FALSE_KEEP, Op.JUMP_IF_TRUE_KEEP, Op.CHECK_BOOL):
            word = "or" if op == Op.JUMP_IF_TRUE_KEEP or (op == Op.CHECK_BOOL and right[1]) else "and"
            return f"{word} takes bools, got {describe(self.value(*left))}"
        if op == 0:
            seen = left[0] == Tag.POINTER
            what = "a pointer; use has(...) or aligned(..., bytes)" if seen else "a tuple or a descriptor; use has(...)"
            return f"the value is {what}"
        return _fault(Op(op), self.value(*left), self.value(*right))

    def _name_of(self, slot: int) -> str:
        return next(name for name, place in self.slots.items() if place == slot)

    def _absence(self, name: str) -> str:
        known = name in self._values
        return f"{name} has no value" if known else f"unknown name {name!r}{did_you_mean(name, list(self._values))}"


def _fault(op: Op, left: Value, right: Value) -> str:
    """Say why an operation fails for its operands; `right` is None where it takes one."""
    if op in (Op.EQ, Op.NE):
        if isinstance(left, Pointer) or isinstance(right, Pointer):
            return "a pointer does not compare; use has(...) or aligned(..., bytes)"
        return "a tuple, a descriptor or an int of more than 63 bits does not compare; use has(...)"
    if op is Op.NOT:
        return f"not takes a bool, got {describe(left)}"
    if op is Op.ALIGNED:
        if type(right) is int and right > 0:
            return f"aligned takes a pointer or an int, got {describe(left)}"
        return f"aligned needs a positive number of bytes, got {describe(right)}"
    return _number_fault(op, (left,) if op in (Op.NEG, Op.NEXT_POW2) else (left, right))


def _number_fault(op: Op, operands: Sequence[Value]) -> str:
    symbol = "-" if op is Op.NEG else WORDS[op].removesuffix("()")
    for operand in operands:
        if type(operand) is not int:
            return f"{symbol} takes ints, got {describe(operand)}"
    if op is Op.CDIV:
        return f"cdiv needs a positive divisor, got {operands[1]}"
    if op in (Op.FLOORDIV, Op.MOD) and operands[1] == 0:
        return f"division by zero: {operands[0]} {symbol} 0"
    return f"{symbol} of {', '.join(map(str, operands))} does not fit in 64 bits"
