"""Compiler options that a manifest can set.

The build passes every option to Triton. `nojit.runtime.base.launch_options` has the defaults.
"""

from __future__ import annotations

from typing import Any

from nojit.aot.backends.options import Option
from nojit.aot.backends.registry import vendors
from nojit.runtime.base.launch_options import BUILT_WITH, TOOLCHAIN
from nojit.runtime.values import Value

__all__ = ["FIXED", "OPTIONS", "TOOLCHAIN", "Option", "option_value"]


def option_value(raw: Any) -> Value:
    """Return an option's checked value in the form that variants store: tables become sorted (key, value) pairs.

    `raw`: the value as TOML gives it.
    """
    return tuple(sorted(raw.items())) if isinstance(raw, dict) else raw


_COMMON: dict[str, Option] = {
    "num_warps": Option(BUILT_WITH["num_warps"], int, "Warps per block.", (1, 2, 4, 8, 16, 32)),
    "num_stages": Option(BUILT_WITH["num_stages"], int, "Stages of software pipelining.", tuple(range(1, 17))),
    "num_ctas": Option(BUILT_WITH["num_ctas"], int, "CTAs per cluster.", (1, 2, 4, 8, 16)),
    "enable_fp_fusion": Option(BUILT_WITH["enable_fp_fusion"], bool, "Fuse multiplications and additions."),
    "default_dot_input_precision": Option(
        BUILT_WITH["default_dot_input_precision"],
        str,
        "Precision of `tl.dot` on fp32 unless the kernel sets it.",
        ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
    ),
    "launch_cooperative_grid": Option(BUILT_WITH["launch_cooperative_grid"], bool, "Cooperative launch."),
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

_VENDORS = {name: option for vendor in vendors() for name, option in vendor.OPTIONS.items()}

# the runtime's order, in which variants list options
OPTIONS: dict[str, Option] = {name: _COMMON.get(name) or _VENDORS[name] for name in BUILT_WITH}
# not an option of Triton: it selects the Triton
OPTIONS[TOOLCHAIN] = Option(
    None, str, "Toolchain that compiles the config. Unset: the bundle's default one.", optional=True
)
"""Options of every vendor's backend. A build for a vendor that lacks one refuses any other value than the default."""

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
    "schedule_hint": "experimental, and without effect",
    "llvm_fn_attrs": "experimental: Triton may change it without notice",
    "wgp_cu_mode": "no arch of AMD's is tuned yet",
    "fpsan_homomorphic_casts": "would make kernels that only a running Triton can launch",
}
