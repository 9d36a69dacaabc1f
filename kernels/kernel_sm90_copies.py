"""Copies and additions between global and shared memory with TMA, under the names that every supported Triton has."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import tma


@builtin
def _add_out(tensor_desc, coord, src, _semantic=None):
    """Add a tile in shared memory to a tile in global memory, as newer versions of Triton's async_atomic_add do."""
    from triton._C.libtriton.ir import DESCRIPTOR_REDUCE_KIND  # for an older Triton only

    coord = _semantic._convert_to_ir_values(coord, require_i64=False)  # noqa: SLF001 - as Triton's own do
    _semantic.builder.create_async_tma_reduce(DESCRIPTOR_REDUCE_KIND.ADD, tensor_desc.handle, coord, src.handle)


# Triton renamed these after 3.7
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
add_out = tma.async_atomic_add if hasattr(tma, "async_atomic_add") else _add_out


@gluon.jit
def wait_until_written():
    """Wait until this warp's copies and additions from shared memory are visible in global memory; call it in one warp.

    `tma.store_wait` only waits until shared memory was read; Triton 3.6 has no other wait.
    """
    gl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; bar.warp.sync -1; mov.u32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def wait_for_count(pointer, count):
    """Wait until an int32 in global memory is at least `count`.

    Then this program may read all that other programs wrote before they counted up with release semantics. TMA may add
    to it as well: a proxy fence orders TMA's accesses.
    """
    while _load_acquired(pointer) < count:
        pass
    gl.inline_asm_elementwise("fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1)


@gluon.jit
def _load_acquired(pointer):
    """Load an int32 with acquire semantics, which Triton's loads lack."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l", [pointer.to(gl.int64)], gl.int32, is_pure=False, pack=1
    )
