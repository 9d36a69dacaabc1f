"""Bundles of a release into a folder: read, verified in a hidden folder, then renamed. Nothing unverified is ever beside them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nojit.aot.base.files import sync
from nojit.aot.inspect.contents import open_bundle
from nojit.aot.oci.copying import read_listed
from nojit.aot.oci.digest_checks import read_whole
from nojit.aot.oci.documents import Descriptor
from nojit.aot.oci.endpoints import ReleaseSource
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.release import BUNDLE, SIGNED, STATEMENT, Offer
from nojit.aot.oci.staging import Staging, disk_errors, locked
from nojit.aot.provenance.statement import read_statement, statement_path
from nojit.aot.signing.shipped_bundles import VerifiedBundle, read_bundle
from nojit.aot.signing.verify_signature import read_vouched, verify_signed
from nojit.runtime.errors import BundleError, NojitError, PackageError
from nojit.runtime.trust.claim import Claim, read_claim
from nojit.runtime.trust.envelope import signed_path, split_envelope
from nojit.runtime.trust.trusted_keys import TrustedKeys

__all__ = ["Received", "receive"]

_STATEMENT_BYTES_MAX: Final = 4 << 20
# statements of one bundle to look at: each new signature adds one
_STATEMENTS_MAX: Final = 100
_CHUNK_BYTES: Final = 1 << 20
# reasons of errors after which another run can go on
_GOES_ON: Final = frozenset({"denied", "disk", "unavailable"})


@dataclass(frozen=True, slots=True)
class Received:
    """A bundle of a release in a folder."""

    path: str
    name: str
    version: str
    arch: str
    """The arch that a build names: ``sm_90``, ``sm_100f``."""
    digest: str
    """Digest of the bundle."""
    sha256: str
    """SHA-256 of the file."""
    size_bytes: int
    up_to_date: bool
    """Whether the folder had this file already."""
    statement: str
    """File of the signed statement; empty if it has none."""
    signed_by: str
    """Name of the trusted key that signed it; empty if none was asked for."""
    build_number: int | None
    """Build number of the statement that this key signed."""
    expires: str
    """End of the signature's validity, in UTC; empty if none, or if no key was given to check the signature with."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """A verified bundle in the hidden folder, or in place."""

    files: tuple[Path, ...]
    """Files to move, the bundle last."""
    received: Received


def receive(
    source: ReleaseSource,
    offers: Sequence[Offer],
    folder: Path,
    trusted: TrustedKeys | None,
    tell: Callable[[Received], None],
    *,
    begin: Callable[[str, int], None] = lambda _name, _size_bytes: None,
) -> list[Received]:
    """Write bundles of a release and their statements into a folder, after verifying all of them.

    Args:
        source: the place that holds the release.
        offers: the bundles to take.
        folder: the folder.
        trusted: keys that may sign the bundles; None to accept unsigned bundles.
        tell: called for each bundle in the folder.
        begin: called with the file name of each bundle and the bytes to read, before they are read.

    Raises:
        RegistryError: a bundle cannot be read, or contradicts the release.
        BundleError: a bundle is damaged, or is not signed as required.
        PackageError: a signed statement is damaged or of another bundle.
    """
    with locked(folder), _tidied(Staging(folder)) as staging:
        layers = [(offer, _layer(source, offer)) for offer in offers]
        missing = {
            layer.digest: max(0, layer.size_bytes - staging.held_bytes(layer))
            for offer, layer in layers
            if not _is_there(folder / offer.file_name, layer)
        }
        staging.check_space(sum(missing.values()))
        staged = []
        for offer, layer in layers:
            if missing.get(layer.digest):
                begin(offer.file_name, missing[layer.digest])
            staged.append(_stage(source, offer, layer, staging, trusted))
        for each in staged:
            _install(each, folder)
            tell(each.received)
    return [each.received for each in staged]


@contextlib.contextmanager
def _tidied(staging: Staging) -> Iterator[Staging]:
    """Delete the hidden folder at the end, unless another run can go on with its files."""
    try:
        yield staging
    except NojitError as error:
        if getattr(error, "reason", "") not in _GOES_ON:
            staging.clear()
        raise
    staging.clear()


def _layer(source: ReleaseSource, offer: Offer) -> Descriptor:
    """Return the descriptor of a bundle's file."""
    layers = [each for each in read_listed(source, offer.manifest).layers if each.media_type == BUNDLE]
    if len(layers) != 1:
        what = "expected one bundle in each manifest of a release"
        raise refusal("not-ours", what, got=str(len(layers)), where=f"{source.url} {offer.manifest.digest}")
    return layers[0]


def _is_there(path: Path, layer: Descriptor) -> bool:
    """Return whether a folder has a bundle's file with the same content already."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != layer.size_bytes:
        return False
    hasher = hashlib.sha256()
    with disk_errors(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest() == layer.hex


def _stage(
    source: ReleaseSource, offer: Offer, layer: Descriptor, staging: Staging, trusted: TrustedKeys | None
) -> _Staged:
    """Return a verified bundle with its statements, in a folder of its own inside the hidden folder."""
    there = staging.folder / offer.file_name
    up_to_date = _is_there(there, layer)
    whole = None if up_to_date else staging.fetch(source, layer)
    own = staging.path / f"{layer.hex}.bundle"
    bundle = own / offer.file_name
    staging.prepare()
    with disk_errors(own):
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        try:
            # a link, not a move: an interrupted run has read the bundle for the next one
            bundle.hardlink_to(there if whole is None else whole)
        except OSError:
            # some file systems have no links
            shutil.copyfile(there if whole is None else whole, bundle)
    try:
        _compare(offer, read_bundle(bundle), source)
        unsigned, signed = _statements(source, offer)
        _keep_unsigned(unsigned, bundle, offer)
        claim = _keep_signed(signed, bundle, offer, trusted)
    except (NojitError, OSError) as error:
        _rename_in(error, own, f"{source.url} {offer.file_name}")
        raise
    beside = [path for path in (statement_path(bundle), Path(signed_path(str(bundle)))) if path.is_file()]
    is_signed = bool(signed)
    received = Received(
        path=str(there),
        name=offer.name,
        version=offer.version,
        arch=offer.arch,
        digest=offer.digest,
        sha256=layer.hex,
        size_bytes=layer.size_bytes,
        up_to_date=up_to_date,
        statement=signed_path(str(there)) if is_signed else "",
        signed_by=claim.key_name if claim and trusted else "",
        build_number=claim.build_number if claim and trusted else None,
        expires=claim.expires if claim and trusted else "",
    )
    return _Staged((*beside, bundle), received)


def _compare(offer: Offer, bundle: VerifiedBundle, source: ReleaseSource) -> None:
    """Compare a bundle with its description in the release."""
    index = bundle.index
    said = (offer.name, offer.version, offer.arch, offer.image_arch, offer.min_driver, offer.digest)
    found = (index.name, index.version, bundle.arch, index.target.image_arch, index.min_driver, bundle.digest)
    for one, other in zip(said, found, strict=True):
        if one != other:
            what = f"expected the bundle that the release describes, with {one}"
            raise refusal("digest", what, got=str(other), where=f"{source.url} {offer.file_name}")


def _statements(source: ReleaseSource, offer: Offer) -> tuple[list[bytes], list[bytes]]:
    """Return the unsigned and the signed statements that refer to a bundle."""
    found: dict[str, list[bytes]] = {STATEMENT: [], SIGNED: []}
    referrers = [each for each in source.referrers(offer.manifest.digest) if each.artifact_type in found]
    for each in referrers[:_STATEMENTS_MAX]:
        document = source.read_document(each.digest)
        # a registry lists everybody's, and may list one that somebody has deleted
        if document is not None and document.subject and document.subject.digest == offer.manifest.digest:
            layers = [layer for layer in document.layers if layer.media_type == each.artifact_type]
            # a manifest of ten thousand others would fill the memory
            if len(layers) == 1 and layers[0].size_bytes <= _STATEMENT_BYTES_MAX:
                found[each.artifact_type].append(read_whole(source, layers[0], _STATEMENT_BYTES_MAX))
    return found[STATEMENT], found[SIGNED]


def _keep_unsigned(contents: Sequence[bytes], bundle: Path, offer: Offer) -> None:
    """Write the unsigned statement with the highest build number beside a staged bundle; others describe other builds."""
    path = statement_path(bundle)
    ranked: list[tuple[int, str, bytes]] = []
    with disk_errors(path):
        for content in contents:
            path.write_bytes(content)
            try:
                facts = read_statement(path).facts(offer.digest, signed=False)
            except PackageError:
                continue
            if facts.describes:
                ranked.append((facts.build_number, facts.finished, content))
        path.unlink(missing_ok=True)
        if ranked:
            path.write_bytes(max(ranked)[2])


def _keep_signed(contents: Sequence[bytes], bundle: Path, offer: Offer, trusted: TrustedKeys | None) -> Claim | None:
    """Write the best signed statement beside a staged bundle, and return what it says; None without one.

    A registry may list several: of other keys, or with other times of expiry.
    """
    path = Path(signed_path(str(bundle)))
    with disk_errors(path):
        path.unlink(missing_ok=True)
    problem: Exception | None = None
    for content in _by_rank(contents, offer.file_name):
        with disk_errors(path):
            path.write_bytes(content)
        try:
            return _accept(bundle, trusted)
        except (BundleError, PackageError) as error:
            problem = problem or error
    if problem is not None:
        raise problem
    if trusted is not None:
        _accept(bundle, trusted)
    return None


def _accept(bundle: Path, trusted: TrustedKeys | None) -> Claim:
    """Return what the signed statement beside a bundle says, after checking it as far as the keys allow."""
    where = signed_path(str(bundle))
    with open_bundle(bundle) as opened:
        if trusted is not None:
            return verify_signed(opened, trusted).claim
        payload, signer, _ = split_envelope(read_vouched(opened) or b"", where)
        return read_claim(payload, signer, "", where)


def _by_rank(contents: Sequence[bytes], where: str) -> Iterator[bytes]:
    """Yield signed statements, those with the highest build number first, then those that are valid longest."""

    def rank(content: bytes) -> tuple[int, str]:
        try:
            payload, signer, _ = split_envelope(content, where)
            claim = read_claim(payload, signer, "", where)
        except BundleError:
            return -1, ""
        # without an end: after every time
        return claim.build_number, claim.expires or "~"

    yield from sorted(contents, key=rank, reverse=True)


def _install(staged: _Staged, folder: Path) -> None:
    """Rename verified files into the folder, and delete statements of the bundle that they replace."""
    bundle = folder / staged.files[-1].name
    brought = {path.name for path in staged.files}
    with disk_errors(folder):
        for path in (statement_path(bundle), Path(signed_path(str(bundle)))):
            if path.name not in brought and not staged.received.up_to_date:
                path.unlink(missing_ok=True)
        for path in staged.files:
            if not (path.name == bundle.name and staged.received.up_to_date):
                sync(path)
                path.replace(folder / path.name)
        sync(folder)


def _rename_in(error: Exception, folder: Path, name: str) -> None:
    """Replace the hidden folder's path in an error by the place of the bundle."""
    for words in ("got", "where"):
        said = getattr(error, words, "")
        if isinstance(said, str) and str(folder) in said:
            setattr(error, words, name if words == "where" else said.replace(f"{folder}{os.sep}", ""))
