"""Triton's launch options, with the defaults that a build uses if a manifest does not set them."""

from __future__ import annotations

from typing import Final

__all__ = ["BUILT_WITH", "CONFIG_OPTIONS", "TOOLCHAIN", "TUNABLE", "is_as_built"]

TOOLCHAIN: Final = "toolchain"
"""Name of the option that says which of a bundle's toolchains compiled a config. Triton has no such option."""

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
    "waves_per_eu": 0,
    "matrix_instr_nonkdim": 0,
    "kpack": 1,
    "allow_flush_denorm": False,
    "extern_libs": None,
    "sanitize_overflow": True,
    "debug": None,
}
"""Options that calls may pass to Triton's JIT beside arguments, and manifests may set, with the value that a build uses. The build
passes each one, because a default of the compiler may change (`enable_fp_fusion` does in Triton 3.10).
"""

TUNABLE: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options that a call can pass to select a config of any kernel: ``kernel[grid](..., num_warps=8)``."""

CONFIG_OPTIONS: Final = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
"""Options of a ``triton.Config`` beside its constexprs, in its order: those in `TUNABLE`, and one that bundles lack."""


def is_as_built(name: str, value: object) -> bool:
    """Return whether a call passes an option that no config sets with the value that every variant was built with."""
    built = BUILT_WITH[name]
    # `debug=False` does not request debugging
    return value == built or (name == "debug" and not value)
