"""The vendors whose GPUs the build supports, and the choice of one for an arch.

To add a vendor, write a package beside `cuda` whose module `vendor` implements `nojit.aot.backends.interface.Vendor`, and
list it here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nojit.aot.backends.cuda import vendor as cuda
from nojit.aot.backends.hip import vendor as hip

if TYPE_CHECKING:
    from nojit.aot.backends.interface import Vendor
    from nojit.runtime.bundle.format import TargetInfo

__all__ = ["arch_of", "expected", "parse_driver", "pin", "register", "vendor_named", "vendor_of", "vendors"]

_VENDORS: Final[list[Vendor]] = [cuda, hip]


def vendors() -> Collection[Vendor]:
    """Return the modules of all vendors."""
    return tuple(_VENDORS)


@contextlib.contextmanager
def register(vendor: Vendor) -> Iterator[None]:
    """Add a vendor until the ``with`` block ends."""
    _VENDORS.append(vendor)
    try:
        yield
    finally:
        _VENDORS.remove(vendor)


def vendor_of(arch: str) -> Vendor:
    """Return the module of the vendor whose GPUs have the given arch.

    Raises:
        ValueError: no vendor has the arch.
    """
    for vendor in _VENDORS:
        if vendor.is_arch(arch):
            return vendor
    raise ValueError(f"expected {expected()}, got {arch!r}")


def vendor_named(name: str) -> Vendor:
    """Return the module of the vendor whose backend has a name, which a bundle's target gives."""
    return next(vendor for vendor in _VENDORS if name == vendor.NAME)


def arch_of(target: TargetInfo) -> str:
    """Return the arch that a build names to make bundles of a target: the inverse of `Vendor.target_of`."""
    usual = vendor_named(target.backend).target_of(target.arch)
    return target.arch if target == usual else target.image_arch


def expected() -> str:
    """Return the description of a valid arch, for messages."""
    return ", or ".join(vendor.EXPECTED for vendor in _VENDORS)


def parse_driver(text: str) -> int:
    """Return a driver version as a number, by the rules of the first vendor.

    Raises:
        ValueError: the text has another form.
    """
    return _VENDORS[0].parse_driver(text)


@contextlib.contextmanager
def pin(min_driver: int | None, assemblers: Mapping[str, Path]) -> Iterator[None]:
    """Make this process and its children use certain assemblers until the ``with`` block ends.

    Args:
        min_driver: the oldest driver version that must load the images; None for any.
        assemblers: the programs to use, by `Vendor.ASSEMBLER`; of the others, each vendor chooses one of Triton's.

    Raises:
        CompileError: no assembler makes images for drivers that old.
    """
    with contextlib.ExitStack() as stack:
        for vendor in _VENDORS:
            stack.enter_context(vendor.pin(min_driver, assemblers.get(vendor.ASSEMBLER)))
        yield
