"""Settings of Triton that only its backend for AMD reads, and parts of Triton's folder that its images do not need."""

from __future__ import annotations

from typing import Final

from nojit.aot.backends.settings import Setting, keyed, own, refused, without_effect

__all__ = ["KNOBS", "LEFT_OUT", "VARIABLES"]

_CODE: Final = "changes the code for AMD's GPUs"

# every knob of the group in Triton 3.6 to 3.9
KNOBS: Final[dict[str, Setting]] = {
    "amd.codegen_path": own("the toolchain's digest covers the library", "TRITON_AMD_CODEGEN_PATH"),
    "amd.lld_path": own("the toolchain's digest covers the program", "TRITON_HIP_LLD_PATH"),
    "amd.use_buffer_ops": keyed(_CODE, "AMDGCN_USE_BUFFER_OPS"),
    "amd.use_buffer_atomics": keyed(_CODE, "AMDGCN_USE_BUFFER_ATOMICS"),
    "amd.buffer_ops_analyze_small_tensor_range": keyed(_CODE, "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE"),
    "amd.dump_amdgcn": keyed("prints during compilation, which a cached variant skips", "AMDGCN_ENABLE_DUMP"),
    "amd.libhip_path": without_effect("used at launches only", "TRITON_LIBHIP_PATH"),
    "amd.use_block_pingpong": keyed(_CODE, "TRITON_HIP_USE_BLOCK_PINGPONG"),
    "amd.use_in_thread_transpose": keyed(_CODE, "TRITON_HIP_USE_IN_THREAD_TRANSPOSE"),
    "amd.use_async_copy": keyed(_CODE, "TRITON_HIP_USE_ASYNC_COPY"),
    "amd.use_coexec_scheduler": keyed(_CODE, "TRITON_HIP_USE_COEXEC_SCHEDULER"),
    "amd.use_expert_scheduling": keyed(_CODE, "TRITON_HIP_USE_EXPERT_SCHEDULING"),
    "amd.scalarize_packed_fops": keyed(_CODE, "AMDGCN_SCALARIZE_PACKED_FOPS"),
    "amd.global_prefetch": keyed(_CODE, "TRITON_HIP_GLOBAL_PREFETCH"),
    "amd.local_prefetch": keyed(_CODE, "TRITON_HIP_LOCAL_PREFETCH"),
    "amd.dump_mir": without_effect("sets the place of dumps", "TRITON_DUMP_MIR"),
    "amd.swap_mir": refused("it replaces kernels by files", "TRITON_SWAP_MIR"),
    "amd.swap_mir_enable_misched": refused("it replaces kernels by files", "TRITON_SWAP_MIR_ENABLE_MISCHED"),
    "amd.*": keyed(_CODE),
}

VARIABLES: Final[dict[str, Setting]] = {
    "HIP_PATH": without_effect("used at launches only"),
    "ROCM_PATH": without_effect("used at launches only"),
}

LEFT_OUT: Final[dict[str, str]] = {
    "backends/amd/codegen": "source of the code generator, which has its own digest",
    "backends/amd/include": "headers of the launchers that Triton compiles when it launches",
    "backends/amd/lib": "the code generator and the device libraries have their own digests, in toolchains for AMD's GPUs",
}
