"""Checks of images against their launch facts, for any vendor. Pure."""

from __future__ import annotations

from nojit.aot.backends.registry import vendor_of
from nojit.aot.cache.entry import EntryError
from nojit.aot.variants.variant import CompiledVariant, Variant, decode_compiled, facts_of
from nojit.runtime.errors import BundleError, CompileError, NojitError
from nojit.runtime.table.parts import Launch

__all__ = ["check_compiled", "check_entry", "checked_registers"]


def check_compiled(variant: Variant, compiled: CompiledVariant) -> None:
    """Check that the facts of a cached compiled variant agree with its image.

    Raises:
        CompileError: the variant's facts differ from those in the image.
    """
    _check_facts(compiled, variant.arch)


def check_entry(data: bytes) -> None:
    """Check the data of a cache entry as far as that is possible without its variant.

    Raises:
        EntryError: no build would use the entry.
    """
    try:
        arch = facts_of(data.partition(b"\n")[0]).arch
        _check_facts(decode_compiled(data, arch), arch)
    except (BundleError, CompileError, ValueError) as error:
        raise EntryError(error.finding() if isinstance(error, NojitError) else str(error)) from None


def _check_facts(compiled: CompiledVariant, arch: str) -> None:
    registers = checked_registers(compiled.image, compiled.launch, arch, "")
    if registers != compiled.registers:
        raise CompileError(f"expected an image that takes {compiled.registers} registers", got=str(registers))


def checked_registers(image: bytes, launch: Launch, arch: str, where: str) -> int:
    """Return an image's registers per thread, after checking that the image agrees with its launch facts.

    Raises:
        CompileError: the image and the launch facts differ.
    """
    vendor = vendor_of(arch)
    try:
        return vendor.check_image(image, launch, vendor.target_of(arch).image_arch, where)
    except BundleError as error:
        raise CompileError(
            "expected an image that agrees with its launch facts", got=error.finding(), where=where
        ) from error
