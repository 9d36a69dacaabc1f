"""Rules that skip compiled configs of a tuning space that are not worth measuring. Pure."""

from __future__ import annotations

from nojit.aot.backends.registry import vendor_of
from nojit.aot.variants.left_out import Pruned
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError

__all__ = ["PRUNING", "prune_compiled", "prune_failed"]

# raise it when the rules below change: tuning bundles of older rules are then out of date
PRUNING = 1


def prune_compiled(variant: Variant, compiled: CompiledVariant, max_spill_bytes: int) -> Pruned | None:
    """Return the reason why a compiled config is skipped; None if it is to be measured.

    Args:
        variant: the variant.
        compiled: the variant's machine code and facts.
        max_spill_bytes: maximum spill per thread, in bytes.
    """
    vendor = vendor_of(variant.arch)
    block = vendor.limits(variant.arch)
    threads = vendor.target_of(variant.arch).warp_size * compiled.launch.num_warps
    registers = -(-compiled.registers // block.register_unit) * block.register_unit * threads
    limits = (
        ("shared memory", compiled.launch.shared_bytes, block.shared_bytes, "bytes"),
        ("spills", compiled.spill_bytes, max_spill_bytes, "bytes of a thread"),
        ("threads", threads, block.threads, "of a block"),
        ("registers", registers, block.registers, "of a block"),
    )
    for what, found, most, unit in limits:
        # the limit is None for an unknown GPU: then a launch fails instead
        if most is not None and found > most:
            return Pruned(variant.kernel, variant.label(), f"{what} over {most:,} {unit}", f"{found:,}")
    return None


def prune_failed(variant: Variant, error: CompileError) -> Pruned:
    """Return the record of a variant that is skipped because it does not compile."""
    return Pruned(variant.kernel, variant.label(), "does not compile", f"{error.what}, got {error.got}")
