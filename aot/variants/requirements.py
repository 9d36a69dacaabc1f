"""Rules of a manifest as expressions, and what `requires` decides at build time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nojit.aot.manifest import expression_tree
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr import expression as expr

__all__ = ["always_holds", "implied_hints", "never_holds", "parse_rule", "required"]


def parse_rule(text: str, where: str) -> expression_tree.Expression:
    """Return the parsed expression of a rule in a manifest.

    Raises:
        ManifestError: the text is not an expression.
    """
    try:
        return expression_tree.parse(text)
    except expr.ExpressionError as error:
        raise ManifestError(str(error), where=where) from None


def implied_hints(requires: str, where: str) -> tuple[tuple[str, int], ...]:
    """Return the hints that the expression `requires` guarantees, sorted; none if it is empty.

    Raises:
        ManifestError: `requires` is not an expression.
    """
    if not requires:
        return ()
    hints = map(expression_tree.implied_hint, parse_rule(requires, where).conjuncts())
    return tuple(hint for hint in hints if hint)


def required(requires: str, where: str) -> tuple[expression_tree.Expression, ...]:
    """Return the conditions that `requires` joins with `and`.

    Raises:
        ManifestError: `requires` is not an expression.
    """
    return parse_rule(requires or "true", where).conjuncts()


def always_holds(requires: str, names: Mapping[str, Any], where: str) -> bool:
    """Return whether `requires` holds for every call for which the build knows the values in `names`."""
    return _settled(requires, names, where) is True


def never_holds(requires: str, names: Mapping[str, Any], where: str) -> bool:
    """Return whether `requires` holds for no call for which the build knows the values in `names`."""
    return _settled(requires, names, where) is False


def _settled(requires: str, names: Mapping[str, Any], where: str) -> Any:
    return expression_tree.settled(expression_tree.substitute(parse_rule(requires or "true", where), names))
