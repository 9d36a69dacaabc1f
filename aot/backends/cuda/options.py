"""Compiler options that only Triton's backend for NVIDIA takes."""

from __future__ import annotations

from typing import Final

from nojit.aot.backends.options import Option
from nojit.runtime.base.launch_options import BUILT_WITH

__all__ = ["OPTIONS"]

OPTIONS: Final[dict[str, Option]] = {
    "enable_reflect_ftz": Option(BUILT_WITH["enable_reflect_ftz"], bool, "Let libdevice flush denormals to zero."),
    "launch_pdl": Option(BUILT_WITH["launch_pdl"], bool, "Programmatic dependent launch."),
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
    "maxnreg": Option(
        BUILT_WITH["maxnreg"], int, "Limit on registers per thread.", tuple(range(8, 256)), optional=True
    ),
}
