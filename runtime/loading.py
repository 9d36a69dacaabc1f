"""Which variants of a kernel to load ahead of their first launch: all, or those of a few meanings and configs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from nojit.runtime.errors import ArgumentError, did_you_mean, typed
from nojit.runtime.keys import constexpr_value, meant, row_names
from nojit.runtime.table import KernelTable
from nojit.runtime.values import identity

__all__ = ["Only", "check_only", "rows_to_load"]

Only: TypeAlias = Mapping[str, Any]
"""Values by the names of axes, constexprs and options; a list or a set stands for any of its values."""


def rows_to_load(table: KernelTable, only: Only | None = None) -> list[int]:
    """List rows that hold each image and launch of the variants to load, one row each, in the order of images.

    Args:
        table: variants of a kernel.
        only: what variants must have; names that the kernel does not have say nothing. None takes all.
    """
    rows: Iterable[int] = range(len(table))
    if only:
        wanted = {
            name: {identity(_as_built(value, table.built_values(name))) for value in _several(values)}
            for name, values in only.items()
        }
        rows = [row for row in rows if _has(row_names(table, row), wanted)]
    used: dict[tuple[int, int], int] = {}
    for row in rows:
        used.setdefault((table.columns["image"][row], table.columns["launch"][row]), row)
    # as they lie in groups, each of which is then decompressed once
    return [used[place] for place in sorted(used)]


def check_only(tables: Sequence[KernelTable], only: object, where: str) -> None:
    """Require that each name and value is some variant's.

    Raises:
        ArgumentError: one is not, or there is none of a name.
    """
    if not isinstance(only, Mapping):
        what = "only: expected a dict of values by name"
        raise ArgumentError(what, got=typed(only), where=where, argument="only")
    known: dict[str, dict[object, object]] = {}
    for table in tables:
        for row in range(len(table)):
            for name, value in row_names(table, row).items():
                known.setdefault(name, {})[identity(value)] = value
    for name, given in only.items():
        values = known.get(name)
        if values is None:
            near = did_you_mean(name, list(known))
            raise ArgumentError(
                f"only: expected {', '.join(known)}", got=f"{name!r}{near}", where=where, argument="only"
            )
        several = _several(given)
        if not several:
            what = f"only: expected a value of {name}, or several"
            raise ArgumentError(what, got=repr(given), where=where, argument="only")
        for value in several:
            if identity(_as_built(value, values.values())) not in values:
                what = f"only: expected {name} to be {', '.join(map(repr, values.values()))}"
                raise ArgumentError(what, got=repr(value), where=where, argument="only")


def _as_built(value: Any, known: Iterable[Any]) -> Any:
    """Return a value as a bundle stores it: ``torch.bfloat16`` and, where dtypes were built, ``bf16`` as a dtype."""
    try:
        return meant(constexpr_value(value, "", ""), known)
    except ArgumentError:
        return value


def _several(value: object) -> Collection[Any]:
    return value if isinstance(value, list | set | frozenset) else (value,)


def _has(names: Mapping[str, object], wanted: Mapping[str, set[tuple[Any, ...]]]) -> bool:
    return all(name not in names or identity(names[name]) in values for name, values in wanted.items())
