"""Signatures of entries of a shared cache: the same keys, envelopes and checks as those of bundles.

A signature covers a small in-toto statement, which names the key of the entry and the SHA-256 of its bytes. Its predicate type
is not that of a bundle's provenance, so that neither can stand for the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nojit.aot.cache.entry import EntryError
from nojit.aot.signing.sign import sign_payload
from nojit.aot.signing.verify_signature import read_only_key
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.errors import BundleTrustError
from nojit.runtime.trust.envelope import open_envelope
from nojit.runtime.trust.trusted_keys import TrustedKeys

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

__all__ = ["PREDICATE_TYPE", "EntrySigner", "EntryVerifier", "read_verifier"]

PREDICATE_TYPE: Final = "nojit:cache-entry/1"


class EntrySigner:
    """Signs entries with one key.

    Args:
        signer: the private key, from `nojit.aot.signing.sign.read_signer`.
    """

    def __init__(self, signer: CryptoSigner) -> None:
        self._signer = signer

    def sign(self, key: str, entry: bytes) -> bytes:
        """Return the envelope of a signature over an entry: one line, with its line end.

        Args:
            key: cache key of the entry.
            entry: the entry.
        """
        return sign_payload(_statement(key, entry), self._signer)


class EntryVerifier:
    """Takes only entries that a trusted key signed.

    Args:
        trusted: the trusted keys.
    """

    def __init__(self, trusted: TrustedKeys) -> None:
        self._trusted = trusted

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Ids of the trusted keys."""
        return tuple(sorted(self._trusted.keys))

    def check(self, key: str, entry: bytes, envelope: bytes) -> None:
        """Check the signature of an entry.

        Args:
            key: cache key of the entry.
            entry: the entry, without its signature.
            envelope: envelope of the signature; empty if there is none.

        Raises:
            EntryError: the entry is not signed, not by a trusted key, or the signature is of another entry.
        """
        if not envelope:
            raise EntryError(f"expected an entry signed by {self._trusted.path}, got one without a signature")
        try:
            payload, _ = open_envelope(envelope, self._trusted, "")
        except BundleTrustError as error:
            raise EntryError(error.finding()) from None
        if payload != _statement(key, entry):
            raise EntryError("expected a signature of this entry, got that of another statement")


def read_verifier(paths: Sequence[Path]) -> EntryVerifier:
    """Return a verifier that trusts the public keys in PEM files.

    Raises:
        BundleTrustError: a file cannot be read, is writable by others, or is not a public key.
    """
    each = [read_only_key(path) for path in paths]
    keys = {known: key for trusted in each for known, key in trusted.keys.items()}
    return EntryVerifier(TrustedKeys(", ".join(trusted.path for trusted in each), keys, {}))


def _statement(key: str, entry: bytes) -> bytes:
    statement: dict[str, Json] = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": key, "digest": {"sha256": hashlib.sha256(entry).hexdigest()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {},
    }
    return canonical_json(statement)
