"""Flex decoding: ``flex_decoding``, attention of up to 127 queries to long keys and values, in pages or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.flex_decoding.op import flex_decoding

__all__ = ["flex_decoding"]


def __getattr__(name: str) -> object:
    """Import the operator, and torch with it, when it is asked for."""
    if name == "flex_decoding":
        from nojit.kernels.flex_decoding.op import flex_decoding  # noqa: PLC0415 - importing the package must stay cheap

        return flex_decoding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
