"""Check signed bundles down to the last byte, by one key or by a file of them. Needs the extra ``trust``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nojit.aot.statement import Statement, open_signed, read_signed
from nojit.runtime.bundle import BundleFile
from nojit.runtime.errors import BundleTrustError
from nojit.runtime.key_files import read_key_file
from nojit.runtime.trust import (
    Claim,
    check_envelope,
    check_fresh,
    check_named,
    check_use,
    read_claim,
    read_envelope,
    signed_path,
    split_envelope,
)
from nojit.runtime.trusted_keys import TrustedKey, TrustedKeys, key_id, read_public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = [
    "Vouched",
    "check_file",
    "expiry_of",
    "only_key",
    "read_only_key",
    "read_vouched",
    "sha256_of",
    "verify_signed",
]


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a trusted key says of a bundle."""

    claim: Claim
    statement: Statement
    """All of what was signed."""


def only_key(public: Ed25519PublicKey, name: str) -> TrustedKeys:
    """Trust one key, for bundles of any name and number."""
    return TrustedKeys(name, {key_id(public): TrustedKey(name, public, None)}, {})


def read_only_key(path: Path) -> TrustedKeys:
    """Trust the public key in a PEM file, for bundles of any name and number.

    Raises:
        BundleTrustError: it is none, cannot be read, or others could have written it.
    """
    return only_key(read_public_key(read_key_file(str(path), "a public key"), str(path)), str(path))


def verify_signed(bundle: BundleFile, trusted: TrustedKeys, names: Sequence[str] = ()) -> Vouched:
    """Check that a trusted key vouches for a bundle, down to the last byte of the file.

    Args:
        bundle: its statement lies beside it.
        trusted: whose word counts.
        names: one of them is what it is asked for by; none is any.

    Raises:
        BundleTrustError: it does not.
    """
    where = signed_path(bundle.path)
    # read once: what is built again must be what the signature is of
    raw = read_envelope(bundle.path)
    claim = check_envelope(raw, bundle.digest, trusted, where)
    check_use(claim, bundle.index, trusted, bundle.path, names)
    check_file(bundle, claim)
    return Vouched(claim, open_signed(raw, Path(where)))


def read_vouched(bundle: BundleFile) -> bytes | None:
    """Read the signed statement beside a bundle, None if there is none, and refuse one that no loader would take, whose key it is.

    Raises:
        PackageError: it cannot be read, is damaged, or is of another bundle.
        BundleTrustError: it says something else than the bundle does.
    """
    path = Path(bundle.path)
    raw = read_signed(path, bundle.digest)
    if raw is not None:
        where = signed_path(bundle.path)
        payload, signer, _ = split_envelope(raw, where)
        claim = read_claim(payload, signer, "", where)
        check_named(claim, bundle.index, where)
        check_fresh(claim, where)
        check_file(bundle, claim)
    return raw


def expiry_of(bundle: BundleFile) -> str:
    """Return when the statement beside a bundle stops to count; empty if never. Nothing else of it is checked.

    Raises:
        BundleTrustError: there is none, or it is no statement.
    """
    where = signed_path(bundle.path)
    payload, signer, _ = split_envelope(read_envelope(bundle.path), where)
    return read_claim(payload, signer, "", where).expires


def check_file(bundle: BundleFile, claim: Claim) -> None:
    """Compare a whole file with what its statement says of it.

    Raises:
        BundleTrustError: it is another.
    """
    sha256 = sha256_of(bundle)
    if sha256 != claim.sha256:
        what = f"expected a file with SHA-256 {claim.sha256}"
        raise BundleTrustError(what, got=sha256, where=bundle.path, reason="other-bundle")


def sha256_of(bundle: BundleFile) -> str:
    """Return the SHA-256 of a whole file, in hex, as it is read now."""
    hasher = hashlib.sha256()
    for part in bundle.stream():
        hasher.update(part)
    return hasher.hexdigest()
