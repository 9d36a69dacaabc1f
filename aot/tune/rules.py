"""What a manifest says of tuning beyond the space: which meanings stand for one another, buckets, the usual config. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nojit.runtime.tuning import DEFAULT_BUCKET
from nojit.runtime.values import Value, identity, spell

__all__ = ["Class", "TuningRules", "class_of", "spell_class"]

Class: TypeAlias = tuple[tuple[str, tuple[Value, ...]], ...]
"""Meanings that are tuned alike: by axis, the values that it may have. Sorted by axis."""


@dataclass(frozen=True, slots=True)
class TuningRules:
    """What the manifest says of one kernel."""

    alike: Mapping[str, Sequence[Sequence[Value]]] = field(default_factory=dict)
    """By axis, groups of values whose measurements stand for one another."""
    apart: Sequence[str] = ()
    """Axes whose values have portfolios of their own."""
    bucket: str = DEFAULT_BUCKET
    """How key values are rounded."""
    names: tuple[str, ...] = ()
    """What `terms` call the key's numbers."""
    terms: tuple[str, ...] = ()
    """What the time of a config is a sum of, beside a constant."""
    configs: tuple[Mapping[str, Any], ...] = ()
    """The manifest's own configs, in order of preference, with their rules."""

    def group(self, axis: str, value: Value) -> tuple[Value, ...]:
        """Return the values that `value` is measured together with, itself among them."""
        for group in self.alike.get(axis, ()):
            if identity(value) in {identity(one) for one in group}:
                return tuple(group)
        return (value,)


def class_of(rules: TuningRules, meaning: Mapping[str, Value]) -> Class:
    """Return the class of a meaning."""
    return tuple((axis, rules.group(axis, meaning[axis])) for axis in sorted(meaning))


def spell_class(one: Class) -> str:
    """Write a class for people: ``CAUSAL=True dtype=bf16|fp16``."""
    return " ".join(f"{axis}={'|'.join(_plain(value) for value in values)}" for axis, values in one)


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else spell(value)
