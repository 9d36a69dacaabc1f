"""Which compiled configs of a tuning space are not worth measuring, and why. Pure."""

from __future__ import annotations

from nojit.aot.report import Pruned
from nojit.aot.target import shared_bytes_max
from nojit.aot.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError

__all__ = ["PRUNING", "prune_compiled", "prune_failed"]

# raise it when the rules below change: bundles made by others are out of date
PRUNING = 1

_THREADS_MAX = 1024
_REGISTERS_MAX = 65536
# registers are given out in eights
_REGISTER_UNIT = 8


def prune_compiled(variant: Variant, compiled: CompiledVariant, max_spill_bytes: int) -> Pruned | None:
    """Say why a compiled config is not to be measured; None if it is.

    Args:
        variant: what was compiled.
        compiled: what came of it.
        max_spill_bytes: the most that a thread may spill.
    """
    shared_bytes, shared_max = compiled.launch.shared_bytes, shared_bytes_max(variant.arch)
    threads = 32 * compiled.launch.num_warps
    registers = -(-compiled.registers // _REGISTER_UNIT) * _REGISTER_UNIT * threads
    limits = (
        ("shared memory", shared_bytes, shared_max, "bytes"),
        ("spills", compiled.spill_bytes, max_spill_bytes, "bytes of a thread"),
        ("threads", threads, _THREADS_MAX, "of a block"),
        ("registers", registers, _REGISTERS_MAX, "of a block"),
    )
    for what, found, most, unit in limits:
        # of a GPU that is not known yet, a launch says it
        if most is not None and found > most:
            return Pruned(variant.kernel, variant.label(), f"{what} over {most:,} {unit}", f"{found:,}")
    return None


def prune_failed(variant: Variant, error: CompileError) -> Pruned:
    """List a config that does not compile."""
    return Pruned(variant.kernel, variant.label(), "does not compile", f"{error.what}, got {error.got}")
