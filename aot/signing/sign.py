"""Signing of provenance statements with Ed25519, as DSSE envelopes, and creation of keys.

Needs the extra ``sign`` (securesystemslib and cryptography). An envelope has one signature. It is a file in the bundle's
folder: one line of in-toto's attestation format, the same as ``dsseEnvelope`` in a Sigstore bundle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from nojit.aot.base.files import create_file, write_file
from nojit.aot.inspect.contents import open_bundle
from nojit.aot.inspect.verification import verify_bundle
from nojit.aot.provenance.statement import read_statement, statement_path
from nojit.aot.signing.verify_signature import check_file, only_key
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import BundleTrustError, PackageError
from nojit.runtime.trust.envelope import PAYLOAD_TYPE, encode_envelope, signed_path
from nojit.runtime.trust.key_files import read_key_file
from nojit.runtime.trust.policy import check_envelope, check_named, check_use
from nojit.runtime.trust.trusted_keys import key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from securesystemslib.signer import CryptoSigner

__all__ = ["NewKey", "SignedBundle", "make_key", "moment_of", "read_signer", "sign_bundle", "sign_payload"]


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key pair."""

    private: str
    """File of the private key, in PEM, readable only by its owner."""
    public: str
    """File of the public key, in PEM."""
    key_id: str
    """SHA-256 of the public key in DER."""


@dataclass(frozen=True, slots=True)
class SignedBundle:
    """A signed bundle."""

    path: str
    statement: str
    """File of the signed statement."""
    digest: str
    """Digest of the bundle."""
    build_number: int
    key_id: str
    expires: str
    """End of the signature's validity, in UTC; empty if none."""


def make_key(path: Path, password: bytes | None = None) -> NewKey:
    """Create an Ed25519 key pair: the private key at `path`, the public key at the same path with the suffix ``.pub``.

    Args:
        path: path of the private key. Neither file may exist.
        password: encrypts the private key, if given.

    Raises:
        PackageError: a file exists already, or cannot be written.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # of the extra
    from cryptography.hazmat.primitives.serialization import (  # of the extra
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    if not path.name:
        raise PackageError("expected a file name for the new key", got=repr(str(path)))
    key = Ed25519PrivateKey.generate()
    secrecy = BestAvailableEncryption(password) if password else NoEncryption()
    public = path.with_name(f"{path.name}.pub")
    try:
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secrecy)
    except ValueError as error:
        # the library's message does not contain the password
        raise PackageError("expected a valid password for keys in NOJIT_KEY_PASSWORD", got=str(error)) from None
    _create(path, private, 0o600)
    try:
        _create(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644)
    except BaseException:
        # half a key pair would make the next try fail
        path.unlink()
        raise
    return NewKey(str(path), str(public), key_id(key.public_key()))


def _create(path: Path, content: bytes, mode: int) -> None:
    """Create a file with the given content and mode. If writing fails, no file remains."""
    try:
        create_file(path, content, mode)
    except OSError as error:
        raise PackageError(
            "expected to write a new key; name a new file in a folder that you can write",
            got=worded(error),
            where=str(path),
        ) from None


def read_signer(path: Path, password: bytes | None = None) -> CryptoSigner:
    """Return a signer that uses the private key in a file.

    Args:
        path: file of the key, in PEM.
        password: password of an encrypted key.

    Raises:
        PackageError: the file cannot be read, is writable by others, or is not an Ed25519 key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # of the extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # of the extra
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # of the extra
    from securesystemslib.signer import CryptoSigner, SSlibKey  # of the extra

    try:
        pem = read_key_file(str(path), "a private key", pipes=True)
    except BundleTrustError as error:
        raise PackageError(error.what, got=error.got, where=error.where) from None
    try:
        key = load_pem_private_key(pem, password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # the library's error tells whether the password is wrong, missing or superfluous. The exception is the one
        # wrong password in 256 that gives valid padding
        got = (str(error).splitlines() or [""])[0] if b"-----BEGIN" in pem else "something else"
        what = "expected an Ed25519 private key in PEM"
        if b"ENCRYPTED" in pem or "assword" in got:
            what += ", and NOJIT_KEY_PASSWORD to be its password if it is encrypted"
        raise PackageError(what, got=got, where=str(path)) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise PackageError(
            "expected an Ed25519 private key: create one with nojit sign --new-key",
            got=type(key).__name__,
            where=str(path),
        )
    return CryptoSigner(key, SSlibKey.from_crypto(key.public_key(), keyid=key_id(key.public_key())))


def sign_bundle(path: Path, signer: CryptoSigner, expires: str = "") -> SignedBundle:
    """Check a bundle, sign its provenance statement, and write the signed statement to the bundle's folder.

    Args:
        path: path of the bundle.
        signer: signer with the private key, from `read_signer`.
        expires: end of the signature's validity, from `moment_of`; empty for none.

    Raises:
        BundleError: the bundle is damaged, or its statement is missing or belongs to another bundle.
        PackageError: the signed statement cannot be written.
    """
    with open_bundle(path) as bundle:
        verify_bundle(bundle)
        statement = read_statement(statement_path(path))
        payload = (statement.until(expires) if expires else statement).canonical()
        raw = sign_payload(payload, signer)
        # check the envelope as a loader would before it is written: a failure here is a fault of the statement
        trusted = only_key(_public_key(signer), "the key that signs")
        try:
            claim = check_envelope(raw, bundle.digest, trusted, str(statement.path))
            check_named(claim, bundle.index, str(statement.path))
            check_use(claim, bundle.index, trusted, bundle.path)
            check_file(bundle, claim)
        except BundleTrustError as error:
            # the error would advise to sign
            raise error.advise("copy the bundle and its statement again, or rebuild the bundle") from None
        digest = bundle.digest
    place = signed_path(str(path))
    write_file(Path(place), raw)
    return SignedBundle(str(path), place, digest, claim.build_number, claim.key_id, claim.expires)


def sign_payload(payload: bytes, signer: CryptoSigner) -> bytes:
    """Return the envelope of a signed statement: one line, with its line end.

    Args:
        payload: the statement, as canonical JSON.
        signer: signer with the private key, from `read_signer`.
    """
    from securesystemslib.dsse import Envelope  # of the extra

    signature = Envelope(payload, PAYLOAD_TYPE, {}).sign(signer).signature
    return encode_envelope(payload, signer.public_key.keyid, bytes.fromhex(signature))


def moment_of(expires: str, valid_for: str) -> str:
    """Return the end of a new signature's validity as a UTC time in the statement's format; empty if unlimited.

    Args:
        expires: a UTC time, ``2027-01-01T12:00:00Z``, or a day, at whose start the validity ends, ``2027-01-01``; may
            be empty.
        valid_for: duration from now, ``90d``, ``12h`` or ``8w``; may be empty.

    Raises:
        ValueError: the value has another form, or is in the past.
    """
    if not expires and not valid_for:
        return ""
    present = datetime.now(UTC)
    try:
        if expires:
            moment = datetime.fromisoformat(expires if "T" in expires else f"{expires}T00:00:00Z")
        else:
            count, unit = re.fullmatch(r"([0-9]+)([hdw])", valid_for).groups()  # type: ignore[union-attr] # None has no groups
            moment = present + timedelta(**{{"h": "hours", "d": "days", "w": "weeks"}[unit]: int(count)})
        spelled = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment.tzinfo else ""
    except (ValueError, AttributeError, OverflowError):
        spelled = ""
    if not re.fullmatch(r"[0-9]{4}-.*", spelled):
        example = "a day or a moment in UTC such as 2027-01-01 or 2027-01-01T12:00:00Z" if expires else "90d, 12h or 8w"
        raise ValueError(f"expected {example}, got {expires or valid_for!r}")
    if moment <= present:
        raise ValueError(f"expected a moment in the future, got {spelled}")
    return spelled


def _public_key(signer: CryptoSigner) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # of the extra

    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer.public_key.keyval["public"]))
