"""Triton's launch options, and what each is where a manifest does not set it: the build spells every one out."""

from __future__ import annotations

from typing import Final

__all__ = ["BUILT_WITH", "is_as_built"]

BUILT_WITH: Final[dict[str, int | bool | str | None]] = {
    "num_warps": 4,
    "num_stages": 3,
    "num_ctas": 1,
    "maxnreg": None,
    "enable_fp_fusion": True,
    "enable_reflect_ftz": True,
    "default_dot_input_precision": "tf32",
    "launch_pdl": False,
    "launch_cooperative_grid": False,
    "clc": False,
    "sched4reg": False,
    "min_shared_mem": None,
    "ptx_version": None,
    "ptx_options": None,
    "extern_libs": None,
    "sanitize_overflow": True,
    "debug": None,
}
"""What calls may pass to Triton's JIT beside arguments, and manifests may set. A default that the compiler fills in can change
under a bundle's feet (`enable_fp_fusion` flips in Triton 3.10)."""


def is_as_built(name: str, value: object) -> bool:
    """Say whether a call asks for what every variant was built with by an option that no config of the kernel sets."""
    built = BUILT_WITH[name]
    # to leave debugging out is not to ask for it
    return value == built or (name == "debug" and not value)
