"""Variant tables that are made by hand, as the engine holds them."""

from __future__ import annotations

from nojit.aot.pack.sections import encode_table
from nojit.runtime.table.reading import decode_table
from nojit.runtime.table.table import KernelTable

__all__ = ["held"]


def held(table: KernelTable) -> KernelTable:
    """Have the engine read a table, which has to keep its rules."""
    images = max(table.columns["image"], default=-1) + 1
    return decode_table(encode_table(table), table.kernel, len(table), images, f"kernel {table.kernel}")
