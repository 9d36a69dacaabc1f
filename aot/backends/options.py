"""A compiler option that a manifest can set: its type, values and default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nojit.runtime.errors import ManifestError

__all__ = ["Option"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of `triton.compile`."""

    default: int | bool | str | None
    kind: type
    about: str
    """Effect of the option, for the documentation."""
    values: tuple[int | str, ...] = ()
    """Values that the option allows; empty if it allows any value of its type."""
    optional: bool = False
    """Whether the option can have no value; a manifest expresses that by omitting it."""

    def check(self, value: Any, where: str) -> None:
        """Check that the option allows `value`.

        Raises:
            ManifestError: the value has another type, or is not among `values`.
        """
        paths = type(value) is dict and all(isinstance(path, str) for path in value.values())
        if type(value) is not self.kind or (self.kind is dict and not paths):
            what = "a table of file names" if self.kind is dict else self.kind.__name__
            raise ManifestError(f"expected {what}", got=repr(value), where=where)
        if self.values and value not in self.values:
            few = len(self.values) <= 8
            allowed = ", ".join(map(str, self.values)) if few else f"{self.values[0]} to {self.values[-1]}"
            raise ManifestError(f"expected one of {allowed}", got=repr(value), where=where)
