"""Addresses of tensors without memory, and how messages describe such tensors."""

from __future__ import annotations

import threading
from typing import Any, Final

import torch

__all__ = ["ADDRESSES", "address_of", "described"]

# alignment of the blocks of torch's caching allocator, in bytes
_ALIGNMENT: Final = 512
# highest part of the addresses that the driver gives to devices on Linux; each device has 2^40 bytes
_BASE: Final = 0x7E00_0000_0000
_ADDRESS: Final = "_nojit_address"


def described(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype, shape and device, ``float32[2, 3] on cuda:0``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} on {tensor.device}"


class _Addresses:
    """Gives each storage an address, as torch's caching allocator does: aligned to 512 bytes, and used once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, int] = {}

    @staticmethod
    def given_to(storage: Any) -> int | None:
        """Return the address that a storage has got; None if it has none yet."""
        address: int | None = getattr(storage, _ADDRESS, None)
        return address

    def of_storage(self, storage: Any, device: int) -> int:
        """Return the address of a storage of a device, always the same."""
        address = self.given_to(storage)
        if address is None:
            with self._lock:
                address = self._free.get(device, _BASE + (device << 40))
                blocks = -(-max(storage.nbytes(), 1) // _ALIGNMENT)
                self._free[device] = address + blocks * _ALIGNMENT
            # the storage keeps it, for all tensors that share the storage
            setattr(storage, _ADDRESS, address)
        return address


ADDRESSES: Final = _Addresses()
"""The addresses of this process."""


def address_of(tensor: torch.Tensor) -> int:
    """Return the address of a CUDA tensor without memory, in bytes; 0 if it has no elements, as torch does."""
    if not tensor.numel():
        return 0
    offset: int = tensor.storage_offset() * tensor.itemsize
    return ADDRESSES.of_storage(tensor.untyped_storage(), tensor.device.index) + offset
