"""Trust in bundles: the policy, the trusted keys, and signed provenance statements.

The statement of a bundle is one line in a file beside it: a DSSE envelope around an in-toto statement that pins the bundle's
digest. An envelope has exactly one valid spelling, and nojit parses the statement only after it has checked the signature.
Nothing here is imported under the policy ``any``. Ed25519 comes from `cryptography`, which only the policy ``signed`` needs.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final, NoReturn

from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.discovery.twins import is_called
from nojit.runtime.errors import BundleError, BundleTrustError, worded
from nojit.runtime.frozen_record import Record
from nojit.runtime.strict_json import Json, parse_json
from nojit.runtime.trust.trusted_keys import TrustedKeys, read_trusted_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nojit.runtime.bundle.file import Accept, Allow
    from nojit.runtime.bundle.format import BundleIndex
    from nojit.runtime.trust.trusted_keys import TrustedKey

__all__ = [
    "EXPIRES",
    "INDEX_DIGEST",
    "PAYLOAD_TYPE",
    "REASONS",
    "Claim",
    "accept_of",
    "check_envelope",
    "check_fresh",
    "check_named",
    "check_signed",
    "check_use",
    "encode_envelope",
    "now",
    "pre_authentication",
    "read_beside",
    "read_claim",
    "read_envelope",
    "signed_path",
    "split_envelope",
]

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
INDEX_DIGEST: Final = "nojitIndex"
"""Name of a bundle's digest in a subject: the SHA-256 of the index, which pins every other byte."""
EXPIRES: Final = "nojit_expiresOn"
"""Field of `runDetails.metadata` with the time at which the statement expires, beside SLSA's own times.

SLSA requires vendor names for additional fields; consumers ignore fields that they do not know.
"""

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

# as builds and wheels name bundle files
_FILE_NAME: Final = re.compile(r"(.+)-([0-9][A-Za-z0-9_.+!]*)-(sm_[0-9]+[a-z]?|gfx[0-9]+)" + re.escape(SUFFIX))
# UTC in a fixed width, so that times compare as text
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_STATEMENT_BYTES_MAX: Final = 4 << 20
_BASE64: Final = rb"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_ENVELOPE: Final = re.compile(
    rb'\{"payload":"(%b)","payloadType":"%b","signatures":\[\{"keyid":"([0-9a-f]{64})","sig":"([A-Za-z0-9+/]{86}==)"\}\]\}\n'
    % (_BASE64, re.escape(PAYLOAD_TYPE.encode()))
)


class Claim(Record):
    """The facts of a signed statement about a bundle."""

    name: str
    version: str
    build_number: int
    digest: str
    """Digest of the index."""
    sha256: str
    """SHA-256 of the whole file."""
    key_id: str
    key_name: str
    expires: str
    """End of validity, ``2027-01-01T00:00:00Z``; empty if it has none."""


def accept_of(policy: str, keys_path: str | None) -> Accept | None:
    """Return the check that refuses bundles that a policy does not allow; None if it allows all.

    Args:
        policy: ``any`` or ``signed``.
        keys_path: the file of trusted keys, for ``signed``.

    Raises:
        BundleTrustError: the policy is unknown, or lacks its file of keys.
    """
    if policy == "any":
        return None
    if policy != "signed":
        # an empty value too: a variable that is set must select a policy
        _refuse("policy", "expected any or signed", got=repr(policy), where="NOJIT_TRUST")
    if not keys_path:
        what = "expected the file of trusted keys, which NOJIT_TRUST=signed needs"
        _refuse("policy", what, got="none" if keys_path is None else "''", where="NOJIT_TRUSTED_KEYS")
    trusted = read_trusted_keys(keys_path)
    return lambda path, digest: _accept(path, digest, trusted)


def _accept(path: str, digest: str, trusted: TrustedKeys) -> Allow:
    claim = check_signed(path, digest, trusted)
    return lambda index, names: check_use(claim, index, trusted, path, names)


def signed_path(bundle: str) -> str:
    """Return the path of the signed statement beside a bundle."""
    return f"{bundle.removesuffix(SUFFIX)}.intoto.jsonl"


def check_signed(path: str, digest: str, trusted: TrustedKeys) -> Claim:
    """Check that a trusted key signed a bundle.

    Args:
        path: path of the bundle; its statement is beside it.
        digest: digest of the bundle, computed from its bytes.
        trusted: the trusted keys.

    Returns:
        What the statement says. The caller compares the SHA-256 of the whole file; `digest` pins every byte that is used.

    Raises:
        BundleTrustError: with one of `REASONS`.
    """
    return check_envelope(read_envelope(path), digest, trusted, signed_path(path))


def check_envelope(raw: bytes, digest: str, trusted: TrustedKeys, where: str) -> Claim:
    """Check the bytes of a signed statement as `check_signed` does.

    Raises:
        BundleTrustError: with one of `REASONS`.
    """
    payload, signer = open_envelope(raw, trusted, where)
    key = trusted.keys[signer]
    claim = read_claim(payload, signer, key.name, where)
    if claim.digest != digest:
        what = f"expected a statement of bundle {digest[:12]}"
        _refuse("other-bundle", what, got=f"one of {claim.digest[:12]}", where=where)
    _check_name(claim, key, claim.name, trusted, where)
    check_fresh(claim, where)
    return claim


def check_fresh(claim: Claim, where: str) -> None:
    """Require that a statement has not expired, by the machine's real-time clock.

    Raises:
        BundleTrustError: it has expired.
    """
    moment = now()
    if claim.expires and moment >= claim.expires:
        what = f"expected a statement that is valid at {moment}, as this machine's clock says; sign the bundle again"
        _refuse("expired", what, got=f"one that was until {claim.expires}", where=where)


def now() -> str:
    """Return the current time as statements spell it: UTC, to the second, from the system's real-time clock."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _check_name(claim: Claim, key: TrustedKey, name: str, trusted: TrustedKeys, where: str) -> None:
    """Require that a key may sign bundles of a name, and that the build number is at least the trusted minimum."""
    if key.bundles is not None and normalized(name) not in key.bundles:
        what = f"expected key {key.name!r} to sign only {', '.join(key.bundles) or 'nothing'}"
        _refuse("key-scope", what, got=name, where=where)
    least = trusted.minimum.get(normalized(name), 0)
    if claim.build_number < least:
        what = f"expected build {least} of {name} or a later one, as {trusted.path} says"
        _refuse("rolled-back", what, got=f"build {claim.build_number}", where=where)


def check_use(claim: Claim, index: BundleIndex, trusted: TrustedKeys, path: str, names: Sequence[str] = ()) -> None:
    """Require that a bundle may be used at its path and under one of some names.

    A bundle may be used under its own name, and its twin in its place. Under another name it may be used only if the list of names of
    its key contains both. Otherwise an attacker who can write files could put one signed bundle in place of another.

    Args:
        claim: the statement, as `check_signed` returns it.
        index: the bundle's index.
        trusted: the trusted keys.
        path: the bundle's path. A file named ``<name>-<version>-<arch>.nojit`` must contain that bundle.
        names: names under which a program or an operator asks for it; empty for any.

    Raises:
        BundleTrustError: the bundle may not be used so.
    """
    where = signed_path(path)
    check_named(claim, index, where)
    _check_file_name(index, path)
    refused: BundleTrustError | None = None
    for name in names:
        try:
            _check_asked(claim, name, trusted, where)
        except BundleTrustError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def _check_file_name(index: BundleIndex, path: str) -> None:
    said = _FILE_NAME.fullmatch(os.path.basename(path))  # noqa: PTH119 - pathlib is slow to import
    # a build names the bundle of a family after the family, not after its chip
    of_family = index.target.image_arch.endswith("f")
    facts = index.name, index.version, index.target.image_arch if of_family else index.target.arch
    if said is not None and (normalized(said[1]), said[2], said[3]) != (normalized(index.name), *facts[1:]):
        what = "expected the bundle that the file is named after; call the file " + "-".join(facts) + SUFFIX
        _refuse("other-name", what, got=f"{index.name} {index.version} for {facts[2]}", where=path)


def _check_asked(claim: Claim, name: str, trusted: TrustedKeys, where: str) -> None:
    key, names = trusted.keys[claim.key_id], {normalized(claim.name), normalized(name)}
    if not is_called(claim.name, name) and not names <= {*(key.bundles or ())}:
        what = f"expected bundle {name}, or a key whose `bundles` in {trusted.path} list both {name} and {claim.name}"
        _refuse("other-name", what, got=f"{claim.name}, signed by key {key.name!r}", where=where)
    _check_name(claim, key, name, trusted, where)


def check_named(claim: Claim, index: BundleIndex, where: str) -> None:
    """Require that a statement names its bundle as its index does, because keys and minimum build numbers apply to names.

    Raises:
        BundleTrustError: the names differ.
    """
    if (claim.name, claim.version) != (index.name, index.version):
        what = f"expected a statement of {index.name} {index.version}, as the bundle calls itself"
        _refuse("other-bundle", what, got=f"one of {claim.name} {claim.version}", where=where)


def encode_envelope(payload: bytes, signer: str, signature: bytes) -> bytes:
    """Encode a signed statement in its only valid spelling.

    Args:
        payload: the statement.
        signer: id of the key.
        signature: 64 bytes, over `pre_authentication` of the payload.
    """
    return b'{"payload":"%b","payloadType":"%b","signatures":[{"keyid":"%b","sig":"%b"}]}\n' % (
        b64encode(payload),
        PAYLOAD_TYPE.encode(),
        signer.encode(),
        b64encode(signature),
    )


def pre_authentication(payload: bytes) -> bytes:
    """Return the bytes to sign: DSSE's encoding of a payload and its type.

    Source: DSSE v1, "Signature Definition".
    """
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def read_envelope(bundle: str) -> bytes:
    """Read the signed statement beside a bundle without checking it.

    Raises:
        BundleTrustError: the file is missing or cannot be read.
    """
    path = signed_path(bundle)
    try:
        return read_beside(path)
    except FileNotFoundError:
        _refuse("unsigned", "expected a signed statement beside the bundle", got=f"no {path}", where=bundle)
    except OSError as error:
        _refuse("unsigned", "expected a signed statement that can be read", got=worded(error), where=path)


def read_beside(path: str) -> bytes:
    """Read a statement; at most one byte more than a valid statement can have.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    # a pipe must not make the caller wait for its writer
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"no regular file but {stat.filemode(mode)}", path)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_STATEMENT_BYTES_MAX + 1)
    finally:
        os.close(descriptor)


def split_envelope(raw: bytes, where: str) -> tuple[bytes, str, bytes]:
    """Return the payload of an envelope, the id of its claimed key, and the signature; only the spelling is checked.

    Raises:
        BundleTrustError: the spelling differs from `encode_envelope`'s.
    """
    if len(raw) > _STATEMENT_BYTES_MAX:
        _refuse("envelope", f"expected at most {_STATEMENT_BYTES_MAX} bytes", got="more", where=where)
    found = _ENVELOPE.fullmatch(raw)
    payload, signature = (b64decode(found[1]), b64decode(found[3])) if found else (b"", b"")
    signer = found[2].decode() if found else ""
    # several base64 texts can decode to the same bytes
    if encode_envelope(payload, signer, signature) != raw:
        _refuse("envelope", "expected one DSSE envelope with one signature, in canonical JSON and base64", where=where)
    return payload, signer, signature


def open_envelope(raw: bytes, trusted: TrustedKeys, where: str) -> tuple[bytes, str]:
    """Return the payload of an envelope that a trusted key signed, and the id of that key."""
    payload, signer, signature = split_envelope(raw, where)
    key = trusted.keys.get(signer)
    if key is None:
        names = ", ".join(f"{key.name} ({known[:12]})" for known, key in trusted.keys.items())
        what = f"expected a signature by a key in {trusted.path}: {names or 'none'}"
        _refuse("unknown-key", what, got=signer[:12], where=where)
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - reading the keys has shown that it is there

    try:
        key.public.verify(signature, pre_authentication(payload))
    except InvalidSignature:
        _refuse("signature", f"expected a signature of key {key.name!r} over the statement", where=where)
    return payload, signer


def read_claim(payload: bytes, signer: str, key_name: str, where: str) -> Claim:
    """Parse a signed statement about a bundle.

    Args:
        payload: the statement.
        signer: id of the key.
        key_name: name of the key, if known.
        where: place of the statement, for messages.

    Raises:
        BundleTrustError: the payload is not a provenance statement of a bundle.
    """
    try:
        value = parse_json(payload, where)
    except BundleError as error:
        _refuse("statement", "expected a statement in canonical JSON", got=error.finding(), where=where)
    subjects = _at(value, "subject")
    subject = subjects[0] if isinstance(subjects, list) and len(subjects) == 1 else None
    bundle = _at(value, "predicate", "buildDefinition", "externalParameters", "bundle")
    number = _at(value, "predicate", "buildDefinition", "internalParameters", "buildNumber")
    words = (
        _at(bundle, "name"),
        _at(bundle, "version"),
        _at(subject, "digest", INDEX_DIGEST),
        _at(subject, "digest", "sha256"),
    )
    texts = [word for word in words if isinstance(word, str)]
    known = _at(value, "_type"), _at(value, "predicateType")
    if known != ("https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"):
        _refuse("statement", "expected an in-toto statement v1 with SLSA provenance v1", got=str(known), where=where)
    if len(texts) != len(words) or type(number) is not int:
        what = "expected one subject with both digests, and the bundle's name, version and build number"
        _refuse("statement", what, where=where)
    name, version, digest, sha256 = texts
    return Claim(name, version, number, digest, sha256, signer, key_name, _expiry(value, where))


def _expiry(statement: Json, where: str) -> str:
    metadata = _at(statement, "predicate", "runDetails", "metadata")
    if not isinstance(metadata, dict) or EXPIRES not in metadata:
        return ""
    moment = metadata[EXPIRES]
    if not isinstance(moment, str) or not _is_moment(moment):
        what = f"expected a moment such as 2027-01-01T00:00:00Z for {EXPIRES}"
        _refuse("statement", what, got=repr(moment), where=where)
    return moment


def _is_moment(text: str) -> bool:
    from datetime import datetime  # noqa: PLC0415 - few statements expire

    try:
        # this also accepts other spellings, which the pattern refuses
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _MOMENT.fullmatch(text) is not None


def _at(value: Json, *path: str) -> Json:
    """Follow fields down from a value; return None if a field is missing."""
    for field in path:
        value = value.get(field) if isinstance(value, dict) else None
    return value


def _refuse(reason: str, what: str, *, got: str = "", where: str) -> NoReturn:
    raise BundleTrustError(what, got=got, where=where, reason=reason)
