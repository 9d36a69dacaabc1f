"""URLs of executors."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["dask_address"]

_FORM: Final = re.compile(r"dask(\+tls)?://([^\s/@?#]+:\d{1,5})/?\Z")


def dask_address(url: str) -> str:
    """Return Dask's address of a scheduler from its URL: ``dask://host:8786``, or ``dask+tls://host:8786``.

    Raises:
        ValueError: the URL has another form.
    """
    found = _FORM.match(url)
    if found is None:
        raise ValueError(f"expected dask://HOST:PORT or dask+tls://HOST:PORT, got {url!r}")
    return f"{'tls' if found[1] else 'tcp'}://{found[2]}"
