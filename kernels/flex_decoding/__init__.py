"""``flex_decoding``: attention of up to 127 queries to many keys and values, paged or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.flex_decoding.op import flex_decoding

__all__ = ["flex_decoding"]

__getattr__ = lazily(__name__, __all__)
