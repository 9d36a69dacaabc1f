"""Trusted keys: the file that lists them, and Ed25519 public keys.

Read under the policy ``signed``, and by commands. Ed25519 comes from `cryptography`, the extra ``trust``.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import worded
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.errors import BundleTrustError
from nojit.runtime.trust.key_files import read_key_file
from nojit.runtime.trust.reasons import refuse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["TrustedKey", "TrustedKeys", "key_id", "read_public_key", "read_trusted_keys"]

_PEM: Final = re.compile(rb"\s*-----BEGIN PUBLIC KEY-----\s([A-Za-z0-9+/=\s]{1,4096})-----END PUBLIC KEY-----\s*")
# RFC 8410: SubjectPublicKeyInfo of an Ed25519 key, up to its 32 bytes
_DER_HEAD: Final = bytes.fromhex("302a300506032b6570032100")


class TrustedKey(Record):
    """A public key that may sign bundles."""

    name: str
    """Name for messages."""
    public: Ed25519PublicKey
    bundles: tuple[str, ...] | None
    """Normalized names of the bundles that it may sign; None for any."""


class TrustedKeys(Record):
    """The content of a file of trusted keys."""

    path: str
    """Its path, for messages."""
    keys: Mapping[str, TrustedKey]
    """Keys by id."""
    minimum: Mapping[str, int]
    """Lowest accepted build number, by normalized name of a bundle."""


def read_trusted_keys(path: str) -> TrustedKeys:
    """Read a file of trusted keys.

    Raises:
        BundleTrustError: the file cannot be read, is invalid, or another user could have written it.
    """
    import tomllib  # slow to import

    what = "a TOML file of trusted keys"
    raw = read_key_file(path, what)
    try:
        document = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        refuse("policy", f"expected {what}", got=worded(error), where=path)
    _only(document, ("schema", "key", "minimum"), path)
    if type(document.get("schema")) is not int or document["schema"] != 1:
        refuse("policy", "expected schema = 1", got=_given(document.get("schema")), where=path)
    listed = document.get("key", [])
    if not isinstance(listed, list) or not listed:
        refuse("policy", "expected at least one [[key]]", where=path)
    keys: dict[str, TrustedKey] = {}
    for number, entry in enumerate(listed):
        where = f"{path} $.key[{number}]"
        key = _trusted_key(entry, where)
        other = keys.setdefault(key_id(key.public), key)
        if other is not key:
            refuse("policy", "expected each key once", got=f"the key of {other.name!r} again", where=where)
    return TrustedKeys(path, keys, _minimum(document.get("minimum", {}), f"{path} $.minimum"))


def _trusted_key(entry: Any, where: str) -> TrustedKey:
    if not isinstance(entry, dict):
        refuse("policy", "expected a table", got=type(entry).__name__, where=where)
    _only(entry, ("name", "public", "bundles"), where)
    name, public, bundles = entry.get("name"), entry.get("public"), entry.get("bundles")
    if not isinstance(name, str) or not name or not _core.is_printable(name):
        refuse("policy", "expected a name", got=_given(name), where=f"{where}.name")
    if not isinstance(public, str):
        refuse(
            "policy",
            "expected a public key in PEM: nojit sign --new-key writes one",
            got=_given(public),
            where=f"{where}.public",
        )
    if bundles is not None and not (isinstance(bundles, list) and all(map(_is_name, bundles))):
        refuse("policy", "expected an array of names of bundles", got=repr(bundles), where=f"{where}.bundles")
    key = read_public_key(public.encode(), f"{where}.public")
    return TrustedKey(name, key, None if bundles is None else tuple(map(normalized, bundles)))


def _given(value: object) -> str:
    return "none" if value is None else repr(value)


def _minimum(table: Any, where: str) -> dict[str, int]:
    if not isinstance(table, dict):
        refuse("policy", "expected a table of build numbers", got=type(table).__name__, where=where)
    least: dict[str, int] = {}
    for name, number in table.items():
        if not _is_name(name) or type(number) is not int or number < 0:
            what = "expected the name of a bundle and a build number from 0"
            refuse("policy", what, got=f"{name} = {number!r}", where=where)
        if normalized(name) in least:
            refuse("policy", "expected each bundle once, however its name is spelled", got=f"{name} again", where=where)
        least[normalized(name)] = number
    return least


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _core.is_name(value)


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for field in table:
        if field not in known:
            got = f"{field!r}{did_you_mean(field, known)}"
            refuse("policy", f"expected the fields {', '.join(known)}", got=got, where=where)


def read_public_key(pem: bytes, where: str) -> Ed25519PublicKey:
    """Parse an Ed25519 public key in PEM (``-----BEGIN PUBLIC KEY-----``).

    Raises:
        BundleTrustError: the text is not such a key, or `cryptography` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # of an extra
    except ImportError as error:
        what = "expected cryptography to be installed, to check signatures: pip install 'nojit[trust]'"
        raise BundleTrustError(what, got=str(error), where=where, reason="policy") from None
    found = _PEM.fullmatch(pem)
    try:
        der = b64decode(b"".join(found[1].split()), validate=True) if found else b""
    except ValueError:
        der = b""
    if not der:
        got = "a private key" if b"PRIVATE KEY-----" in pem else "something else"
        refuse("policy", "expected a public key in PEM: nojit sign --new-key writes one", got=got, where=where)
    # importing cryptography's PEM reader takes longer than the rest of a load, and these keys have one form
    if len(der) != len(_DER_HEAD) + 32 or not der.startswith(_DER_HEAD):
        refuse("policy", "expected an Ed25519 key", got=f"another of {len(der)} bytes", where=where)
    return Ed25519PublicKey.from_public_bytes(der[len(_DER_HEAD) :])


def key_id(public: Ed25519PublicKey) -> str:
    """Return the id of a key: SHA-256 of its SubjectPublicKeyInfo in DER, in hex."""
    return hashlib.sha256(_DER_HEAD + public.public_bytes_raw()).hexdigest()
