"""Envelopes: signed statements in files beside bundles.

The statement of a bundle is one line in a file beside it: a DSSE envelope around an in-toto statement that pins the bundle's
digest. An envelope has exactly one valid spelling, and nojit parses the statement only after it has checked the signature.
Ed25519 comes from `cryptography`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

from nojit.runtime import _core
from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.base.wording import worded
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.trust.reasons import refuse

if TYPE_CHECKING:
    from nojit.runtime.trust.trusted_keys import TrustedKeys

__all__ = [
    "PAYLOAD_TYPE",
    "encode_envelope",
    "open_envelope",
    "pre_authentication",
    "read_beside",
    "read_envelope",
    "signed_path",
    "split_envelope",
]

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_BASE64: Final = rb"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_ENVELOPE: Final = re.compile(
    rb'\{"payload":"(%b)","payloadType":"%b","signatures":\[\{"keyid":"([0-9a-f]{64})","sig":"([A-Za-z0-9+/]{86}==)"\}\]\}\n'
    % (_BASE64, re.escape(PAYLOAD_TYPE.encode()))
)


def signed_path(bundle: str) -> str:
    """Return the path of the signed statement beside a bundle."""
    return f"{bundle.removesuffix(SUFFIX)}{_core.STATEMENT_SUFFIX}"


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
        refuse("unsigned", "expected a signed statement beside the bundle", got=f"no {path}", where=bundle)
    except OSError as error:
        refuse("unsigned", "expected a signed statement that can be read", got=worded(error), where=path)


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
            raise OSError(errno.EINVAL, f"{file_kind(mode)}, not a regular file", path)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_core.STATEMENT_BYTES_MAX + 1)
    finally:
        os.close(descriptor)


def split_envelope(raw: bytes, where: str) -> tuple[bytes, str, bytes]:
    """Return the payload of an envelope, the id of its claimed key, and the signature; only the spelling is checked.

    Raises:
        BundleTrustError: the spelling differs from `encode_envelope`'s.
    """
    if len(raw) > _core.STATEMENT_BYTES_MAX:
        refuse("envelope", f"expected at most {_core.STATEMENT_BYTES_MAX} bytes", got="more", where=where)
    found = _ENVELOPE.fullmatch(raw)
    payload, signature = (b64decode(found[1]), b64decode(found[3])) if found else (b"", b"")
    signer = found[2].decode() if found else ""
    # several base64 texts can decode to the same bytes
    if encode_envelope(payload, signer, signature) != raw:
        refuse("envelope", "expected one DSSE envelope with one signature, in canonical JSON and base64", where=where)
    return payload, signer, signature


def open_envelope(raw: bytes, trusted: TrustedKeys, where: str) -> tuple[bytes, str]:
    """Return the payload of an envelope that a trusted key signed, and the id of that key."""
    payload, signer, signature = split_envelope(raw, where)
    key = trusted.keys.get(signer)
    if key is None:
        names = ", ".join(f"{key.name} ({known[:12]})" for known, key in trusted.keys.items())
        what = f"expected a signature by a key in {trusted.path}: {names or 'none'}"
        refuse("unknown-key", what, got=signer[:12], where=where)
    from cryptography.exceptions import InvalidSignature  # reading the keys has shown that it is there

    try:
        key.public.verify(signature, pre_authentication(payload))
    except InvalidSignature:
        refuse("signature", f"expected a signature of key {key.name!r} over the statement", where=where)
    return payload, signer
