"""Compiler options that a manifest can set.

The build passes every option to Triton. `nojit.runtime.options` has the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nojit.runtime.errors import ManifestError
from nojit.runtime.options import BUILT_WITH
from nojit.runtime.values import Value

__all__ = ["FIXED", "OPTIONS", "TUNABLE", "Option", "option_value"]


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


def option_value(raw: Any) -> Value:
    """Return an option's checked value in the form that variants store: tables become sorted (key, value) pairs."""
    return tuple(sorted(raw.items())) if isinstance(raw, dict) else raw


OPTIONS: dict[str, Option] = {
    "num_warps": Option(BUILT_WITH["num_warps"], int, "Warps per block.", (1, 2, 4, 8, 16, 32)),
    "num_stages": Option(BUILT_WITH["num_stages"], int, "Stages of software pipelining.", tuple(range(1, 17))),
    "num_ctas": Option(BUILT_WITH["num_ctas"], int, "CTAs per cluster.", (1, 2, 4, 8, 16)),
    "maxnreg": Option(
        BUILT_WITH["maxnreg"], int, "Limit on registers per thread.", tuple(range(8, 256)), optional=True
    ),
    "enable_fp_fusion": Option(BUILT_WITH["enable_fp_fusion"], bool, "Fuse multiplications and additions."),
    "enable_reflect_ftz": Option(BUILT_WITH["enable_reflect_ftz"], bool, "Let libdevice flush denormals to zero."),
    "default_dot_input_precision": Option(
        BUILT_WITH["default_dot_input_precision"],
        str,
        "Precision of `tl.dot` on fp32 unless the kernel sets it.",
        ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
    ),
    "launch_pdl": Option(BUILT_WITH["launch_pdl"], bool, "Programmatic dependent launch."),
    "launch_cooperative_grid": Option(BUILT_WITH["launch_cooperative_grid"], bool, "Cooperative launch."),
    "clc": Option(BUILT_WITH["clc"], bool, "Cluster launch control; from `sm_100` up, Triton 3.9."),
    "sched4reg": Option(BUILT_WITH["sched4reg"], bool, "Schedule instructions for fewer registers; Triton 3.9."),
    "min_shared_mem": Option(
        BUILT_WITH["min_shared_mem"],
        int,
        "Minimum shared memory per block in bytes, to lower the occupancy; Triton 3.9.",
        optional=True,
    ),
    "ptx_version": Option(
        BUILT_WITH["ptx_version"],
        int,
        "Version of PTX: 85 for 8.5. Unset: the newest that ptxas accepts.",
        tuple(range(70, 100)),
        optional=True,
    ),
    "ptx_options": Option(BUILT_WITH["ptx_options"], str, "Additional options for ptxas.", optional=True),
    "extern_libs": Option(
        BUILT_WITH["extern_libs"],
        dict,
        "LLVM bitcode libraries to link, by name; paths are relative to the manifest. `libdevice` replaces Triton's.",
        optional=True,
    ),
    "sanitize_overflow": Option(BUILT_WITH["sanitize_overflow"], bool, "Check integer overflow if `debug` is on."),
    "debug": Option(
        BUILT_WITH["debug"],
        bool,
        "Compile device assertions in. Unset: as `@triton.jit(debug=...)`.",
        optional=True,
    ),
}

# options of Triton that a manifest cannot set, each with the reason
FIXED = {
    "arch": "follows from the architecture",
    "backend_name": "follows from the architecture",
    "warp_size": "follows from the architecture",
    "supported_fp8_dtypes": "follows from the architecture",
    "deprecated_fp8_dot_operand_dtypes": "follows from the architecture",
    "allowed_dot_input_precisions": "follows from the architecture",
    "max_num_imprecise_acc_default": "follows from the architecture: Triton overwrites what it is given",
    "ir_override": "would replace the kernel by a file",
    "instrumentation_mode": "would make kernels that only a running Triton can launch",
    "fpsan_homomorphic_casts": "would make kernels that only a running Triton can launch",
}

# options that a call can pass to select a config of any kernel: `kernel[grid](..., num_warps=8)`
TUNABLE = ("num_warps", "num_stages", "num_ctas", "maxnreg")
