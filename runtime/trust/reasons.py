"""The reasons to refuse a bundle, as `BundleTrustError.reason` gives them."""

from __future__ import annotations

from typing import Final, NoReturn

from nojit.runtime.errors import BundleTrustError

__all__ = ["REASONS", "refuse"]

REASONS: Final = {
    "policy": "`NOJIT_TRUST` or the file of trusted keys is invalid, or `cryptography` is not installed",
    "unsigned": "there is no signed statement beside the bundle",
    "envelope": "the signed statement is not a well-formed envelope",
    "unknown-key": "the signing key is not trusted",
    "signature": "the signature does not match the statement: one of the two was changed",
    "statement": "the signed text is not a provenance statement of a bundle",
    "other-bundle": "the statement's hash or name is not the bundle's: one was changed, or the statement belongs to another bundle",
    "key-scope": "the key may not sign bundles of this name",
    "other-name": "the file's name, the program or an operator asks for another bundle",
    "rolled-back": "the build number is below the trusted minimum",
    "expired": "the statement has expired, by this machine's clock",
}


def refuse(reason: str, what: str, *, got: str = "", where: str) -> NoReturn:
    """Raise `BundleTrustError` with one of `REASONS`."""
    raise BundleTrustError(what, got=got, where=where, reason=reason)
