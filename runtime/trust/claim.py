"""Claims: the facts that a signed statement gives about a bundle."""

from __future__ import annotations

import re
from typing import Final

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.strict_json import Json, parse_json
from nojit.runtime.errors import BundleError
from nojit.runtime.trust.reasons import refuse

__all__ = ["EXPIRES", "INDEX_DIGEST", "Claim", "read_claim"]

INDEX_DIGEST: Final = "nojitIndex"
"""Name of a bundle's digest in a subject: the SHA-256 of the index, which pins every other byte."""
EXPIRES: Final = "nojit_expiresOn"
"""Field of `runDetails.metadata` with the time at which the statement expires, beside SLSA's own times.

SLSA requires vendor names for additional fields; consumers ignore fields that they do not know.
"""
# UTC in a fixed width, so that times compare as text
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


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
        refuse("statement", "expected a statement in canonical JSON", got=error.finding(), where=where)
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
        refuse("statement", "expected an in-toto statement v1 with SLSA provenance v1", got=str(known), where=where)
    if len(texts) != len(words) or type(number) is not int:
        what = "expected one subject with both digests, and the bundle's name, version and build number"
        refuse("statement", what, where=where)
    name, version, digest, sha256 = texts
    return Claim(name, version, number, digest, sha256, signer, key_name, _expiry(value, where))


def _expiry(statement: Json, where: str) -> str:
    metadata = _at(statement, "predicate", "runDetails", "metadata")
    if not isinstance(metadata, dict) or EXPIRES not in metadata:
        return ""
    moment = metadata[EXPIRES]
    if not isinstance(moment, str) or not _is_moment(moment):
        what = f"expected a moment such as 2027-01-01T00:00:00Z for {EXPIRES}"
        refuse("statement", what, got=repr(moment), where=where)
    return moment


def _is_moment(text: str) -> bool:
    from datetime import datetime

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
