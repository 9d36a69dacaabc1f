"""Verification of signed bundles, with one key or a file of keys. Needs the extra ``trust``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nojit.aot.provenance.statement import Statement, open_signed, read_signed
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleTrustError
from nojit.runtime.trust.claim import Claim, read_claim
from nojit.runtime.trust.envelope import read_envelope, signed_path, split_envelope
from nojit.runtime.trust.key_files import read_key_file
from nojit.runtime.trust.policy import check_envelope, check_fresh, check_named, check_use
from nojit.runtime.trust.trusted_keys import TrustedKey, TrustedKeys, key_id, read_public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = [
    "Vouched",
    "check_file",
    "only_key",
    "read_only_key",
    "read_vouched",
    "sha256_of",
    "verify_signed",
]


@dataclass(frozen=True, slots=True)
class Vouched:
    """A bundle's provenance statement whose signature a trusted key verifies."""

    claim: Claim
    statement: Statement
    """The signed statement."""


def only_key(public: Ed25519PublicKey, name: str) -> TrustedKeys:
    """Return a set of trusted keys with only `public`, valid for bundles of any name and build number."""
    return TrustedKeys(name, {key_id(public): TrustedKey(name, public, None)}, {})


def read_only_key(path: Path) -> TrustedKeys:
    """Return a set of trusted keys with only the public key in a PEM file, for bundles of any name and build number.

    Raises:
        BundleTrustError: the file cannot be read, is writable by others, or is not a public key.
    """
    return only_key(read_public_key(read_key_file(str(path), "a public key"), str(path)), str(path))


def verify_signed(bundle: BundleFile, trusted: TrustedKeys, names: Sequence[str] = ()) -> Vouched:
    """Check that a trusted key has signed a bundle, and that the whole file is the signed one.

    Args:
        bundle: the bundle, with a signed statement in its folder.
        trusted: the trusted keys.
        names: bundle names that the user may have asked for; empty for any.

    Raises:
        BundleTrustError: no trusted key has signed this file under one of these names.
    """
    where = signed_path(bundle.path)
    # read only once: the result must hold the statement that was checked
    raw = read_envelope(bundle.path)
    claim = check_envelope(raw, bundle.digest, trusted, where)
    check_use(claim, bundle.index, trusted, bundle.path, names)
    check_file(bundle, claim)
    return Vouched(claim, open_signed(raw, Path(where)))


def read_vouched(bundle: BundleFile) -> bytes | None:
    """Return the signed statement of a bundle after all checks but that of the signing key; None if there is none.

    Raises:
        PackageError: the statement cannot be read, is damaged, or is of another bundle.
        BundleTrustError: the statement contradicts the bundle.
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


def check_file(bundle: BundleFile, claim: Claim) -> None:
    """Check that the SHA-256 of the whole bundle file equals the one in its provenance statement.

    `claim`: the verified statement.

    Raises:
        BundleTrustError: the file has another SHA-256.
    """
    sha256 = sha256_of(bundle)
    if sha256 != claim.sha256:
        what = f"expected a file with SHA-256 {claim.sha256}"
        raise BundleTrustError(what, got=sha256, where=bundle.path, reason="other-bundle")


def sha256_of(bundle: BundleFile) -> str:
    """Return the SHA-256 of a bundle's whole file, in hex. Each call reads the file again."""
    hasher = hashlib.sha256()
    for part in bundle.stream():
        hasher.update(part)
    return hasher.hexdigest()
