"""Settings of Triton that only its backend for NVIDIA reads, and parts of Triton's folder that its images do not need."""

from __future__ import annotations

from typing import Final

from nojit.aot.backends.settings import Setting, hashed, keyed, own, without_effect

__all__ = ["KNOBS", "LEFT_OUT", "VARIABLES"]

# every knob of the group in Triton 3.6 to 3.9
KNOBS: Final[dict[str, Setting]] = {
    "nvidia.cuobjdump": without_effect("only inspects code", "TRITON_CUOBJDUMP_PATH"),
    "nvidia.nvdisasm": without_effect("only inspects code", "TRITON_NVDISASM_PATH"),
    "nvidia.ptxas": own("the toolchain's digest covers the program", "TRITON_PTXAS_PATH"),
    "nvidia.ptxas_blackwell": own("the toolchain's digest covers the program", "TRITON_PTXAS_BLACKWELL_PATH"),
    "nvidia.dump_nvptx": keyed("prints during compilation, which a cached variant skips", "NVPTX_ENABLE_DUMP"),
    "nvidia.disable_ptxas_opt": keyed("disables optimizations", "DISABLE_PTXAS_OPT"),
    "nvidia.ptxas_options": keyed("is passed to ptxas", "PTXAS_OPTIONS"),
    "nvidia.mock_ptx_version": keyed("replaces the version of ptxas", "TRITON_MOCK_PTX_VERSION"),
    "nvidia.dump_ptxas_log": own("the build reads spills from it", "TRITON_DUMP_PTXAS_LOG"),
    "nvidia.libdevice_path": hashed("is linked into kernels", "TRITON_LIBDEVICE_PATH"),
    "nvidia.libcuda_path": without_effect("used at launches only", "TRITON_LIBCUDA_PATH"),
}

VARIABLES: Final[dict[str, Setting]] = {
    "ALLOW_LHS_TMEM_LAYOUT_CONVERSION": keyed("chooses layouts"),
    "DISABLE_MMA_V3": keyed("chooses instructions"),
    "DISABLE_MMA_V5": keyed("chooses instructions"),
    "TRITON_PREFER_TMEM_16x256_LAYOUT": keyed("chooses layouts"),
}

LEFT_OUT: Final[dict[str, str]] = {
    "backends/nvidia/bin": "ptxas has its own digest; cuobjdump and nvdisasm only inspect",
    "backends/nvidia/include": "headers of the launchers that Triton compiles when it launches",
    "backends/nvidia/lib/cupti": "the profiler",
    "backends/nvidia/lib/cupti-blackwell": "the profiler",
}
