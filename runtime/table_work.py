"""Limits of what calls and checks go through for a table, however well it compresses: time in proportion to the file."""

from __future__ import annotations

from collections.abc import Iterator

from nojit.runtime.strict import refuse
from nojit.runtime.table import KernelTable

__all__ = [
    "CHOOSING_WORK_MAX",
    "EXPRESSION_CHARS_MAX",
    "EXPRESSION_SHARE",
    "NAMING_WORK_MAX",
    "TYPED_WORK_MAX",
    "check_work",
]

EXPRESSION_CHARS_MAX = 65_536
"""Characters of all expressions of a table together."""
EXPRESSION_SHARE = 4
"""All tables of a bundle together may have as many characters more than one as this part of the file's bytes."""
TYPED_WORK_MAX = 1 << 22
"""Rows times the characters of the longest signature."""
CHOOSING_WORK_MAX = 1 << 18
"""Characters of the expressions that choose a variant, counted for each config and each point of the type axes that they name."""
NAMING_WORK_MAX = 1 << 22
"""Rows times the characters of those that name a type axis."""


def check_work(table: KernelTable, where: str) -> None:
    """Check that what is gone through for each row, config and meaning stays within its limits.

    Raises:
        BundleFormatError: it does not (rule ``size``).
    """
    expressions = sum(map(len, table.expressions()))
    typed = max([sum(map(len, signature)) for signature in table.signatures], default=0)
    for number, most, what in (
        (expressions, EXPRESSION_CHARS_MAX, "characters of expressions"),
        (len(table) * typed, TYPED_WORK_MAX, "rows times characters of the longest signature"),
    ):
        _hold(number, most, what, where)
    choosing = naming = 0
    for text, configs, points in _evaluated(table):
        choosing += len(text) * configs * points
        naming += len(text) if points > 1 else 0
        _hold(choosing, CHOOSING_WORK_MAX, "characters of expressions over all configs and points", where)
    _hold(len(table) * naming, NAMING_WORK_MAX, "rows times characters of expressions that name a type axis", where)


def _hold(number: int, most: int, what: str, where: str) -> None:
    if number > most:
        raise refuse("size", f"expected at most {most} {what}", got=number, where=where)


def _evaluated(table: KernelTable) -> Iterator[tuple[str, int, int]]:
    """Yield each expression that chooses a variant: of how many configs, and at how many points of the type axes it names."""
    axes = [(place, axis.name) for place, axis in enumerate(table.axes) if axis.is_type]
    known: dict[tuple[int, ...], int] = {(): 1}
    texts = [(derived.expression, len(table.configs)) for derived in table.derived]
    texts += [(config.requires, 1) for config in table.configs if config.requires]
    for text, configs in texts:
        # a name within another word is taken for the name: that only counts more
        places = tuple([place for place, name in axes if name in text])
        if places not in known:
            points = {tuple([meaning.values[place] for place in places]) for meaning in table.meanings}
            known[places] = max(1, len(points))
        yield text, configs, known[places]
