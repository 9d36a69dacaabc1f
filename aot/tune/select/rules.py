"""Tuning rules of a manifest, without the space: cases that share measurements, buckets, cost terms, configs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nojit.runtime.tuning.resolution import DEFAULT_BUCKET
from nojit.runtime.values import Value, identity, spell

__all__ = ["Class", "TuningRules", "class_of", "spell_class"]

Class: TypeAlias = tuple[tuple[str, tuple[Value, ...]], ...]
"""A class of cases that share measurements: each axis with its values, sorted by axis."""


@dataclass(frozen=True, slots=True)
class TuningRules:
    """The tuning rules of one kernel."""

    alike: Mapping[str, Sequence[Sequence[Value]]] = field(default_factory=dict)
    """By axis, groups of values that share measurements."""
    apart: Sequence[str] = ()
    """Axes with a separate portfolio for each value."""
    bucket: str = DEFAULT_BUCKET
    """The rule that rounds key values."""
    names: tuple[str, ...] = ()
    """Names of the key's values in `terms`."""
    terms: tuple[str, ...] = ()
    """Expressions of the cost model: a config's time is a constant plus each term times a factor."""
    configs: tuple[Mapping[str, Any], ...] = ()
    """The manifest's configs, in order of preference, with their rules."""

    def group(self, axis: str, value: Value) -> tuple[Value, ...]:
        """Return the values of an axis that share measurements with `value`, including it."""
        for group in self.alike.get(axis, ()):
            if identity(value) in {identity(one) for one in group}:
                return tuple(group)
        return (value,)


def class_of(rules: TuningRules, case: Mapping[str, Value]) -> Class:
    """Return the class of a case: for each axis, the values that share measurements with the case's value.

    `case` holds the case's value of each axis. Tuning selects one portfolio for each class.
    """
    return tuple((axis, rules.group(axis, case[axis])) for axis in sorted(case))


def spell_class(one: Class) -> str:
    """Return a class as text: ``CAUSAL=True dtype=bf16|fp16``."""
    return " ".join(f"{axis}={'|'.join(_plain(value) for value in values)}" for axis, values in one)


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else spell(value)
