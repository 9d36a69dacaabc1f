"""The compiler options that a manifest can set, with Triton's defaults spelled out.

A default that the compiler fills in can change under a bundle's feet (`enable_fp_fusion` flips in Triton 3.10), so
every option below is passed, never left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nojit.runtime.errors import ManifestError

__all__ = ["OPTIONS", "TUNABLE", "Option"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of `triton.compile`."""

    default: int | bool | str | None
    kind: type
    values: tuple[int, ...] = ()
    """The values it can take; empty if any of its kind goes."""
    optional: bool = False
    """Whether it can be unset; a manifest unsets it by leaving it out."""

    def check(self, value: Any, where: str) -> None:
        """Refuse a value that the option cannot take.

        Raises:
            ManifestError: the value has another type, or is not among `values`.
        """
        if type(value) is not self.kind:
            raise ManifestError(f"expected {self.kind.__name__}", got=repr(value), where=where)
        if self.values and value not in self.values:
            few = len(self.values) <= 8
            allowed = ", ".join(map(str, self.values)) if few else f"{self.values[0]} to {self.values[-1]}"
            raise ManifestError(f"expected one of {allowed}", got=repr(value), where=where)


OPTIONS: dict[str, Option] = {
    "num_warps": Option(4, int, (1, 2, 4, 8, 16, 32)),
    "num_stages": Option(3, int, tuple(range(1, 17))),
    "num_ctas": Option(1, int, (1, 2, 4, 8, 16)),
    "maxnreg": Option(None, int, tuple(range(8, 256)), optional=True),
    "enable_fp_fusion": Option(True, bool),
    "launch_pdl": Option(False, bool),
    "launch_cooperative_grid": Option(False, bool),
    "ptx_options": Option(None, str, optional=True),
    "sanitize_overflow": Option(True, bool),
    "debug": Option(False, bool),
}

# the options that tell configs apart at a call: `kernel[grid](..., num_warps=8)`
TUNABLE = ("num_warps", "num_stages", "num_ctas", "maxnreg")
