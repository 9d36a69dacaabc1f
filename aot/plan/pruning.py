"""Rules that prune compiled configs of a tuning space that are not worth measuring. Pure."""

from __future__ import annotations

from nojit.aot.manifest.archs import shared_bytes_max
from nojit.aot.plan.left_out import Pruned
from nojit.aot.plan.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError

__all__ = ["PRUNING", "prune_compiled", "prune_failed"]

# raise it when the rules below change: tuning bundles of older rules are then out of date
PRUNING = 1

_THREADS_MAX = 1024
_REGISTERS_MAX = 65536
# hardware allocates registers of a thread in multiples of this
_REGISTER_UNIT = 8


def prune_compiled(variant: Variant, compiled: CompiledVariant, max_spill_bytes: int) -> Pruned | None:
    """Return why a compiled config is pruned; None if it shall be measured.

    Args:
        variant: the variant.
        compiled: its compiled form.
        max_spill_bytes: maximum spill per thread, in bytes.
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
        # the limit is None for an unknown GPU: then a launch fails instead
        if most is not None and found > most:
            return Pruned(variant.kernel, variant.label(), f"{what} over {most:,} {unit}", f"{found:,}")
    return None


def prune_failed(variant: Variant, error: CompileError) -> Pruned:
    """Return the pruned entry of a config that does not compile."""
    return Pruned(variant.kernel, variant.label(), "does not compile", f"{error.what}, got {error.got}")
