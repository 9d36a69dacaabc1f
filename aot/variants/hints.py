"""Hint sets of a kernel: combinations of hints (divisible by 16, equal to 1) on params and members of tuples. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.text import spell_key
from nojit.aot.manifest.types import NONE, is_hintable, plain
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ManifestError
from nojit.runtime.types.names import leaves

__all__ = ["HintSet", "WrittenHints", "hint_sets", "subsets"]

HintSet = tuple[tuple[str, int], ...]


class WrittenHints(NamedTuple):
    """One set of hints as the manifest lists it, before it is applied to a signature."""

    where: str
    """Place of the set in the manifest, for messages."""
    hints: HintSet
    """The hints of the set, not sorted."""


def subsets(hints: Mapping[str, int], missing: int, at_most: int, where: str) -> list[WrittenHints]:
    """Return a hint set and its nonempty subsets that lack at most `missing` hints, the largest first.

    Args:
        hints: the full set.
        missing: maximum number of hints of the full set that a subset lacks.
        at_most: maximum number of sets to return.
        where: the manifest table with these hints, for messages.

    Raises:
        ManifestError: there are more than `at_most` sets.
    """
    sizes = [len(hints) - left_out for left_out in range(missing + 1) if left_out < len(hints)]
    count = sum(comb(len(hints), size) for size in sizes)
    if count > at_most:
        what = f"expected at most {at_most} sets of hints"
        got = f"{count} from {len(hints)} hints with up to {missing} missing; lower `missing`, or raise `at_most`"
        raise ManifestError(what, got=got, where=where)
    return [WrittenHints(f"{where}.hints", chosen) for size in sizes for chosen in combinations(hints.items(), size)]


def hint_sets(written: Sequence[WrittenHints], implied: Mapping[str, int], types: Mapping[str, str]) -> list[HintSet]:
    """Return the distinct hint sets for one signature, each sorted.

    Args:
        written: the hint sets of the manifest. Hints on params that are None are dropped.
        implied: hints to add to every set.
        types: the type of each runtime param.

    Raises:
        ManifestError: a hint names no param, or the param's type cannot have it.
    """
    leaf_types = dict(leaf for name, kind in types.items() for leaf in leaves(plain(kind), name))
    sets: dict[HintSet, None] = {}
    mistakes = Mistakes()
    for where, raw in written:
        hints = {**implied, **dict(raw)}
        held = []
        for path, hint in hints.items():
            with mistakes.caught():
                if _is_present(path, hint, leaf_types, where + spell_key(path)):
                    held.append((path, hint))
        sets[tuple(sorted(held))] = None
    mistakes.raise_found()
    return list(sets)


def _is_present(path: str, hint: int, leaf_types: Mapping[str, str], where: str) -> bool:
    """Return whether the param or tuple member at `path` is not None; raise if its type cannot have the hint."""
    kind = leaf_types.get(path) or next((NONE for root in _roots(path) if leaf_types.get(root) == NONE), None)
    if kind == NONE:
        return False
    if kind is None:
        near = _members_of(path, leaf_types) or did_you_mean(path, tuple(leaf_types))
        raise ManifestError("expected a param with a type in [kernel.params]", got=f"{path!r}{near}", where=where)
    if not is_hintable(kind, hint):
        raise ManifestError(
            "expected an int, or a pointer with hint 16", got=f"{path}: {kind} with hint {hint}", where=where
        )
    return True


def _roots(path: str) -> Iterator[str]:
    """Yield the paths of the tuples that contain the member at `path`: ``x.1`` and ``x`` for ``x.1.0``."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _members_of(path: str, leaf_types: Mapping[str, str]) -> str:
    inside = [leaf for leaf in leaf_types if leaf.startswith(f"{path}.")]
    return f", which is a tuple of {', '.join(inside)}" if inside else ""
