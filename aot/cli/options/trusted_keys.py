"""Keys that a command line trusts."""

from __future__ import annotations

from pathlib import Path

import click
from nojit.aot.signing.verify_signature import read_only_key
from nojit.runtime.trust.trusted_keys import TrustedKeys, read_trusted_keys

__all__ = ["given_keys"]


def given_keys(key: Path | None, keys: Path | None, option: str) -> TrustedKeys | None:
    """Return the keys that may sign a bundle; None if none is given.

    Args:
        key: file of one public key, in PEM.
        keys: value of ``--trusted-keys``: a file of trusted keys.
        option: the option that gives `key`.

    Raises:
        UsageError: both are given.
        BundleTrustError: a file cannot be used.
    """
    if key is not None and keys is not None:
        raise click.UsageError(f"expected only one of {option} and --trusted-keys, got both")
    if key is not None:
        return read_only_key(key)
    return None if keys is None else read_trusted_keys(str(keys))
