"""Select the variants of a kernel to preload: all, or those of some cases and configs. Pure."""

from __future__ import annotations

# `collections.abc`, which is this module, is in a package that is slow to import
from _collections_abc import Mapping

from nojit.runtime.base.wording import typed
from nojit.runtime.call.constexprs import constexpr_value, resolved, row_names
from nojit.runtime.errors import ArgumentError
from nojit.runtime.values import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import Any, TypeAlias

    from nojit.runtime.table.table import KernelTable

__all__ = ["Only", "check_only", "rows_to_load"]

Only: TypeAlias = "Mapping[str, Any]"
"""Values by the names of axes, constexprs and options; a list or a set allows any of its values."""


def rows_to_load(table: KernelTable, only: Only | None = None) -> list[int]:
    """Return one row for each image and launch of the variants to load, in the order of images.

    Args:
        table: variants of a kernel.
        only: properties that a variant must have; names that the kernel lacks are ignored. None for all variants.
    """
    rows: list[int] | None = None
    if only:
        wanted = {
            name: {identity(_as_built(value, table.built_values(name))) for value in _several(values)}
            for name, values in only.items()
        }
        rows = [row for row in range(len(table)) if _has(row_names(table, row), wanted)]
    # in the order of groups, so that each group is decompressed once
    return table.handle().rows_to_load(rows)


def check_only(tables: Sequence[KernelTable], only: object, where: str) -> None:
    """Require that some variant has each name and value.

    Raises:
        ArgumentError: no variant has one of them.
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
            from nojit.runtime.base.suggestions import did_you_mean

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
    """Return a value in a bundle's form: a dtype for ``torch.bfloat16`` and, if dtypes were built, for ``"bf16"``."""
    try:
        return resolved(constexpr_value(value, "", ""), known)
    except ArgumentError:
        return value


def _several(value: object) -> Collection[Any]:
    return value if isinstance(value, list | set | frozenset) else (value,)


def _has(names: Mapping[str, object], wanted: Mapping[str, set[tuple[Any, ...]]]) -> bool:
    return all(name not in names or identity(names[name]) in values for name, values in wanted.items())
