"""The policy of a process: which signed bundles it may use, and under which names.

Nothing of this package is imported under the policy ``any``.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Final

from nojit.runtime.base.environment import TRUST, TRUSTED_KEYS
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.debug_twins import is_called
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.errors import BundleTrustError
from nojit.runtime.target import is_image_arch
from nojit.runtime.trust.claim import read_claim
from nojit.runtime.trust.envelope import open_envelope, read_envelope, signed_path
from nojit.runtime.trust.reasons import refuse
from nojit.runtime.trust.trusted_keys import TrustedKeys, read_trusted_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nojit.runtime.bundle.file import Accept, Allow
    from nojit.runtime.bundle.format import BundleIndex
    from nojit.runtime.trust.claim import Claim
    from nojit.runtime.trust.trusted_keys import TrustedKey

__all__ = ["accept_of", "check_envelope", "check_fresh", "check_named", "check_signed", "check_use", "now"]

# as builds and wheels name bundle files
_FILE_NAME: Final = re.compile(r"(.+)-([0-9][A-Za-z0-9_.+!]*)-([a-z0-9_]+)" + re.escape(SUFFIX))


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
        refuse("policy", "expected any or signed", got=repr(policy), where=TRUST)
    if not keys_path:
        what = "expected the file of trusted keys, which NOJIT_TRUST=signed needs"
        refuse("policy", what, got="none" if keys_path is None else "''", where=TRUSTED_KEYS)
    trusted = read_trusted_keys(keys_path)
    return lambda path, digest: _accept(path, digest, trusted)


def _accept(path: str, digest: str, trusted: TrustedKeys) -> Allow:
    claim = check_signed(path, digest, trusted)
    return lambda index, names: check_use(claim, index, trusted, path, names)


def check_signed(path: str, digest: str, trusted: TrustedKeys) -> Claim:
    """Check that a trusted key signed a bundle.

    Args:
        path: path of the bundle; its statement is beside it.
        digest: digest of the bundle, computed from its bytes.
        trusted: the trusted keys.

    Returns:
        What the statement says. The caller compares the SHA-256 of the whole file; `digest` pins every byte that is used.

    Raises:
        BundleTrustError: with one of `nojit.runtime.trust.reasons.REASONS`.
    """
    return check_envelope(read_envelope(path), digest, trusted, signed_path(path))


def check_envelope(raw: bytes, digest: str, trusted: TrustedKeys, where: str) -> Claim:
    """Check the bytes of a signed statement as `check_signed` does.

    Raises:
        BundleTrustError: with one of `nojit.runtime.trust.reasons.REASONS`.
    """
    payload, signer = open_envelope(raw, trusted, where)
    key = trusted.keys[signer]
    claim = read_claim(payload, signer, key.name, where)
    if claim.digest != digest:
        what = f"expected a statement of bundle {digest[:12]}"
        refuse("other-bundle", what, got=f"one of {claim.digest[:12]}", where=where)
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
        refuse("expired", what, got=f"one that was until {claim.expires}", where=where)


def now() -> str:
    """Return the current time as statements spell it: UTC, to the second, from the system's real-time clock."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _check_name(claim: Claim, key: TrustedKey, name: str, trusted: TrustedKeys, where: str) -> None:
    """Require that a key may sign bundles of a name, and that the build number is at least the trusted minimum."""
    if key.bundles is not None and normalized(name) not in key.bundles:
        what = f"expected key {key.name!r} to sign only {', '.join(key.bundles) or 'nothing'}"
        refuse("key-scope", what, got=name, where=where)
    least = trusted.minimum.get(normalized(name), 0)
    if claim.build_number < least:
        what = f"expected build {least} of {name} or a later one, as {trusted.path} says"
        refuse("rolled-back", what, got=f"build {claim.build_number}", where=where)


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
    if (
        said is not None
        and is_image_arch(said[3])
        and (normalized(said[1]), said[2], said[3]) != (normalized(index.name), *facts[1:])
    ):
        what = "expected the bundle that the file is named after; call the file " + "-".join(facts) + SUFFIX
        refuse("other-name", what, got=f"{index.name} {index.version} for {facts[2]}", where=path)


def _check_asked(claim: Claim, name: str, trusted: TrustedKeys, where: str) -> None:
    key, names = trusted.keys[claim.key_id], {normalized(claim.name), normalized(name)}
    if not is_called(claim.name, name) and not names <= {*(key.bundles or ())}:
        what = f"expected bundle {name}, or a key whose `bundles` in {trusted.path} list both {name} and {claim.name}"
        refuse("other-name", what, got=f"{claim.name}, signed by key {key.name!r}", where=where)
    _check_name(claim, key, name, trusted, where)


def check_named(claim: Claim, index: BundleIndex, where: str) -> None:
    """Require that a statement names its bundle as its index does, because keys and minimum build numbers apply to names.

    Raises:
        BundleTrustError: the names differ.
    """
    if (claim.name, claim.version) != (index.name, index.version):
        what = f"expected a statement of {index.name} {index.version}, as the bundle calls itself"
        refuse("other-bundle", what, got=f"one of {claim.name} {claim.version}", where=where)
