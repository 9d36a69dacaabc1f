"""Damage a bundle at random: its bytes, or one part with right hashes put around it."""

from __future__ import annotations

import copy
import functools
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.support.bundles import Parts, compress
from tests.support.jsonlies import NodePath, canonical, get, nodes, split_table

__all__ = ["NUMBERS", "SHAPES", "TEXTS", "WIDE", "Mutant", "Mutator", "change_node"]

# numbers at which a bound is off by one, a sign or a width
NUMBERS = (0, 1, 2, 3, 7, 8, 15, 16, 31, 64, 127, 255, 256, 4095, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)
WIDE = (2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, -(2**31), -(2**63), -(2**64), 10**40)
TEXTS = ("", "x", "../x", "/etc/passwd", "a\0b", "\n", "\x1b[2J", "é", "\ud800", "😀", "x" * 300, "none", "$x", "*fp16",
         "i32", "i64", "i3", "fp16", "u1", "=3", "=true", "=nan", "='a%2C'", "=function:m:f", "(=3,i32)", "=", "*", "i", "i" + "9" * 5000, "sm_90", "sm_90a", "sm_999a", "num_warps", "n",
         "x_ptr", "BLOCK", "1", "n + 1", "n // 0", "cdiv(n, 0)", "((((", "not not true", "-" * 100 + "1", "0x7fffffffffffffff",
         "1.5", "0x1.8p+0", "nan", "inf", "$global_scratch")  # fmt: skip
SHAPES: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": 0}, {"float": "0x1.8000000000000p+0"},
                           {"dtype": "fp16"}, {"function": "m:f"}, {"tuple": [1, {"tuple": []}]}, [0] * 70,
                           {"tuple": [{"tuple": [{"tuple": [{"tuple": [{"tuple": [1]}]}]}]}]})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A damaged bundle, and how it came about."""

    data: bytes
    how: str

    @property
    def sealed(self) -> bool:
        """Whether lengths and hashes were put right around the damage."""
        return self.how.startswith("sealed")


_Change: TypeAlias = Callable[[bytes], bytes]


class Mutator:
    """Makes mutants of one bundle, reproducibly.

    Attributes:
        golden: the bundle undamaged.

    Args:
        parts: the bundle.
        seed: equal seeds make equal mutants.
    """

    def __init__(self, parts: Parts, seed: int) -> None:
        self._parts = parts
        self.golden = parts.seal(frame=_frame)
        self._random = random.Random(seed)
        self._names: list[str] = []
        self._frames: list[str] = []
        parts.seal(edit=self._note, frame=self._note_frame)
        self._paths: dict[str, tuple[NodePath, ...]] = {}
        # structures break most: they come most
        self._ways: tuple[tuple[Callable[[], Mutant], int], ...] = (
            (self._bits, 3),
            (self._splice, 2),
            (self._sealed_bytes, 3),
            (self._sealed_frame, 2),
            (self._sealed_json, 6),
            (self._sealed_words, 3),
        )

    def mutant(self) -> Mutant:
        """Make the next one."""
        ways = [way for way, _ in self._ways]
        return self._random.choices(ways, [weight for _, weight in self._ways])[0]()

    def table_mutant(self) -> Mutant:
        """Make a mutant that lies in a table and nowhere else."""
        return self._random.choice((self._sealed_table, self._sealed_table, self._sealed_words_of_table))()

    def _sealed_table(self) -> Mutant:
        return self._lie_in_json(self._pick("table"))

    def _sealed_words_of_table(self) -> Mutant:
        return self._overwrite_words(self._pick("table"))

    def _note(self, part: str, raw: bytes) -> bytes:
        self._names.append(part)
        return raw

    def _seal(self, part: str, change: _Change) -> bytes:
        return self._parts.seal(edit=lambda name, raw: change(raw) if name == part else raw, frame=_frame)

    def _note_frame(self, part: str, raw: bytes) -> bytes:
        self._frames.append(part)
        return _frame(part, raw)

    def _pick(self, prefix: str = "") -> str:
        return self._random.choice([name for name in self._names if name.startswith(prefix)])

    # whole file, hashes left wrong

    def _bits(self) -> Mutant:
        data = bytearray(self.golden)
        for _ in range(self._random.choice((1, 1, 1, 2, 8))):
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return Mutant(bytes(data), "bits")

    def _splice(self) -> Mutant:
        return Mutant(self._spliced(self.golden), "splice")

    def _spliced(self, data: bytes) -> bytes:
        """Cut, repeat, move, insert or overwrite a stretch."""
        chance, size = self._random, len(data)
        start = chance.randrange(size + 1)
        end = min(size, start + chance.choice((0, 1, 2, 4, 8, 32, 44, 64, 500)))
        stretch = chance.choice(
            (b"", data[start:end] * 2, chance.randbytes(end - start), chance.randbytes(4), bytes(8))
        )
        if chance.random() < 0.1:
            return data[:start]
        return data[:start] + stretch + data[end:]

    # one part, sealed

    def _sealed_bytes(self) -> Mutant:
        part = self._pick()

        def change(raw: bytes) -> bytes:
            if not raw or self._random.random() < 0.4:
                return self._spliced(raw)
            at = self._random.randrange(len(raw))
            return raw[:at] + bytes([raw[at] ^ 1 << self._random.randrange(8)]) + raw[at + 1 :]

        return Mutant(self._seal(part, change), f"sealed bytes of {_kind(part)}")

    def _sealed_words(self) -> Mutant:
        """Overwrite numbers of four or eight bytes where numbers are."""
        return self._overwrite_words(
            self._random.choice(
                (self._pick("images"), self._pick("groups"), "header", self._pick("table"), self._pick("table"))
            )
        )

    def _overwrite_words(self, part: str) -> Mutant:
        def change(raw: bytes) -> bytes:
            data = bytearray(raw)
            for _ in range(self._random.choice((1, 1, 2))):
                at = self._random.randrange(0, max(1, len(data) - 7), 4)
                if part.startswith("table"):
                    at = max(0, len(data) - 4 * self._random.randrange(1, 8 * self._parts.tables[0][1] + 2))
                value = self._random.choice(NUMBERS)
                data[at : at + 4] = struct.pack("<I", value)
            return bytes(data)

        return Mutant(self._seal(part, change), f"sealed words of {_kind(part)}")

    def _sealed_frame(self) -> Mutant:
        part = self._random.choice(self._frames)

        def lie(name: str, raw: bytes) -> bytes:
            frame = _frame(name, raw)
            if name != part:
                return frame
            if self._random.random() < 0.5:
                return self._spliced(frame)
            at = self._random.randrange(min(len(frame), 16))
            return frame[:at] + bytes([self._random.randrange(256)]) + frame[at + 1 :]

        return Mutant(self._parts.seal(frame=lie), f"sealed frame of {_kind(part)}")

    def _sealed_json(self) -> Mutant:
        return self._lie_in_json(self._random.choice(("index", self._pick("table"))))

    def _lie_in_json(self, part: str) -> Mutant:
        def change(raw: bytes) -> bytes:
            if part == "index":
                return self._changed_json(raw, part)
            header, columns = split_table(raw)
            changed = self._changed_json(header, part)
            return struct.pack("<I", len(changed)) + changed + b" " * (-len(changed) % 4) + columns

        return Mutant(self._seal(part, change), f"sealed JSON of {_kind(part)}")

    def _changed_json(self, raw: bytes, part: str) -> bytes:
        document = json.loads(raw)
        # the index differs from run to run in digests only, never in shape
        if part not in self._paths:
            self._paths[part] = tuple(nodes(document))
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            change_node(self._random, document, self._random.choice(self._paths[part]))
        return canonical(document)


def change_node(chance: random.Random, document: Any, path: NodePath) -> None:
    """Leave out, repeat, reorder or replace one node of a document; nothing if it is no longer there."""
    try:
        parent, old = get(document, path[:-1]), get(document, path)
    except (KeyError, IndexError, TypeError):
        return  # an earlier change took it away
    if isinstance(parent, str):
        return
    way = chance.random()
    if way < 0.1:
        del parent[path[-1]]
    elif way < 0.2 and isinstance(parent, list):
        parent.insert(chance.randrange(len(parent) + 1), copy.deepcopy(old))
    elif way < 0.25 and isinstance(parent, list):
        parent.reverse()
    elif way < 0.3 and isinstance(parent, dict):
        parent[chance.choice(TEXTS)] = copy.deepcopy(old)
    else:
        # a copy: a later change must not reach into two places, or into the constants above
        parent[path[-1]] = copy.deepcopy(_junk(chance, old, document))


def _junk(chance: random.Random, old: Any, document: Any) -> Any:
    if isinstance(old, int) and chance.random() < 0.6:
        return chance.choice((old + 1, old - 1, old * 2, chance.choice(NUMBERS), chance.choice(WIDE)))
    if isinstance(old, str) and chance.random() < 0.6:
        at = chance.randrange(len(old) + 1)
        return chance.choice((chance.choice(TEXTS), old[:at], old[:at] + chance.choice(TEXTS) + old[at:]))
    if chance.random() < 0.2:
        return get(document, chance.choice(list(nodes(document))))
    return chance.choice((*NUMBERS[:4], *WIDE[:2], *TEXTS[:8], *SHAPES))


def _kind(part: str) -> str:
    """Leave out which table or group it is."""
    return part.rstrip(" 0123456789")


@functools.lru_cache(maxsize=256)
def _compressed(raw: bytes) -> bytes:
    return compress(raw, 1)


def _frame(_part: str, raw: bytes) -> bytes:
    return _compressed(raw)
