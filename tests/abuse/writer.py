"""Write hostile bundles whose lengths, counts and hashes are right, so that a reader goes as deep as it can. By their number.

Sixteen inputs in a row start from one right bundle, which `tests.support.random_kernels` makes or a built one gives; each lies in one
to three of the ways of `tests.support.lies`.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.drafts import Draft
from tests.support.lies import WAYS
from tests.support.random_kernels import random_draft

__all__ = ["Hostile", "HostileWriter"]

INPUTS_OF_A_BASE = 16
_UNABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)


@dataclass(frozen=True, slots=True)
class Hostile:
    """One input."""

    data: bytes
    statement: bytes | None
    """What is to be signed of it and lie beside it, if anything, as `make_statement` would be told."""
    how: tuple[str, ...]
    """The ways in which it lies."""


class HostileWriter:
    """Writes input by input; equal seeds and numbers make equal inputs.

    Args:
        seed: of all inputs.
        built: drafts of real bundles; every fourth base is one of them.
    """

    def __init__(self, seed: int, built: Sequence[Draft] = ()) -> None:
        self._seed = seed
        self._built = built
        self._base: tuple[int, Draft] = (-1, Draft({}, []))
        self._names = [*WAYS]
        self._weights = [weight for _, weight in WAYS.values()]

    def write(self, number: int) -> tuple[Draft, tuple[str, ...]]:
        """Make the draft of an input, and name the ways in which it lies."""
        chance = self.chance(number)
        draft = self._base_of(number // INPUTS_OF_A_BASE).copied()
        how = []
        for name in chance.choices(self._names, self._weights, k=chance.choice((1, 1, 1, 2, 3))):
            how.append(name)
            try:
                WAYS[name][0](chance, draft)
            except _UNABLE:
                # an earlier way left it too odd: it lies as far as this one came
                how[-1] += ", in part"
        return draft, tuple(how)

    def chance(self, number: int, what: str = "write") -> random.Random:
        """Return the random numbers of an input."""
        return random.Random(f"{self._seed} {number} {what}")

    def _base_of(self, base: int) -> Draft:
        known, draft = self._base
        if known != base:
            chance = random.Random(f"{self._seed} {base} base")
            draft = chance.choice(self._built) if self._built and base % 4 == 3 else random_draft(chance)
            self._base = (base, draft)
        return draft
