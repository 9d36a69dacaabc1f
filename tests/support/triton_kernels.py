"""Real cubins for the tests marked ``triton``: compiled without a GPU, imported without Triton."""

from __future__ import annotations

__all__ = ["compile_scale_kernel"]


def compile_scale_kernel(arch: int, **options: object) -> bytes:
    """Compile ``scale_kernel(x_ptr: *fp16, out_ptr: *fp16, n: i32, scale: fp32)`` for an arch such as 90."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tests.support.triton_source import scale_kernel

    signature = {"x_ptr": "*fp16", "out_ptr": "*fp16", "n": "i32", "scale": "fp32", "BLOCK": "constexpr"}
    source = ASTSource(scale_kernel, signature=signature, constexprs={(4,): 256}, attrs={})
    # spelled out: its default is announced to flip, with a warning
    facts = {"enable_fp_fusion": True} | options
    image: bytes = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=facts).asm["cubin"]
    return image
