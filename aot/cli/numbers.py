"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["Number"]


class Number(click.FloatRange):
    """A number of a range, which neither ``nan`` nor ``inf`` is: no comparison finds the first outside."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"expected a number, got {value!r}", param, ctx)
        return number
