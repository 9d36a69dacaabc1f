"""A release as OCI documents: an index of one manifest for each bundle, and a manifest for each statement about a bundle.

::

    index (tag)                          annotation RELEASE
    +-- manifest of a bundle             artifact type BUNDLE; its annotations describe the bundle
    |   +-- layer                        the bundle file
    |   ^ subject
    +   manifest of a statement          artifact type STATEMENT or SIGNED; its layer is the file beside the bundle

The same bundles give the same index, so that a digest names a release. Statements are not part of it: a release that is signed later
keeps its digest. The index has annotations instead of artifact types, which tools for OCI 1.0 would drop when they copy it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nojit.aot.manifest.archs import arch_order
from nojit.aot.oci.documents import (
    EMPTY,
    EMPTY_BYTES,
    INDEX,
    MANIFEST,
    TITLE,
    VERSION,
    Descriptor,
    Document,
    digest_of,
    encode,
)
from nojit.aot.oci.endpoints import Content, ReleaseSource
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.retries import Limits
from nojit.aot.provenance.statement import read_statement, statement_path
from nojit.aot.signing.shipped_bundles import VerifiedBundle
from nojit.runtime.base.wording import worded
from nojit.runtime.bundle.format import FORMAT_VERSION, SUFFIX
from nojit.runtime.errors import PackageError
from nojit.runtime.trust.envelope import PAYLOAD_TYPE, read_beside, signed_path

__all__ = [
    "BUNDLE",
    "RELEASE",
    "SIGNED",
    "STATEMENT",
    "LocalRelease",
    "Offer",
    "Release",
    "ShippedBundle",
    "read_release",
    "ship",
]

RELEASE: Final = "nojit.release"
"""Annotation of a release's index: the version of its form."""
BUNDLE: Final = f"application/vnd.nojit.bundle.v{FORMAT_VERSION}"
STATEMENT: Final = PAYLOAD_TYPE
"""An unsigned provenance statement."""
SIGNED: Final = "application/vnd.dsse.envelope.v1+json"
"""A signed one."""

_FORM: Final = "1"
_PREDICATE: Final = {"in-toto.io/predicate-type": "https://slsa.dev/provenance/v1"}
# names of annotations of a bundle's manifest, and of the index's descriptor of it
_NAME: Final = "nojit.name"
_ARCH: Final = "nojit.arch"
_IMAGE_ARCH: Final = "nojit.image-arch"
_MIN_DRIVER: Final = "nojit.min-driver"
_TOOLCHAIN: Final = "nojit.toolchain"
_DIGEST: Final = "nojit.digest"
# the only file names that are written to a folder
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]{0,250}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Offer:
    """A bundle of a release, as the release describes it."""

    manifest: Descriptor
    """The bundle's manifest."""
    name: str
    version: str
    arch: str
    """The arch that a build names: ``sm_90``, ``sm_100f``."""
    image_arch: str
    min_driver: int
    """Oldest CUDA version whose driver loads it, 13000 for 13.0."""
    toolchain: str
    """Names and versions of the tools: ``ptxas 13.0, triton 3.9.0``."""
    digest: str
    """Digest of the bundle: the SHA-256 of its index."""

    @property
    def file_name(self) -> str:
        """Name of the bundle's file."""
        return f"{self.name}-{self.version}-{self.arch}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Release:
    """A release in a registry or a layout folder."""

    document: Document
    offers: tuple[Offer, ...]

    @property
    def digest(self) -> str:
        """Digest of the release's index, which names the release forever."""
        return self.document.descriptor.digest


def read_release(source: ReleaseSource, reference: str, where: str) -> Release:
    """Return the release with a tag or digest.

    Args:
        source: the place that holds it.
        reference: the tag or digest.
        where: its address, for messages.

    Raises:
        RegistryError: there is none, or it is no release of nojit's.
    """
    document = source.read_document(reference)
    if document is None:
        kind = "digest" if reference.startswith("sha256:") else "tag"
        raise refusal("not-found", f"expected a release under this {kind}", got="none", where=where)
    return open_release(document, where)


def open_release(document: Document, where: str) -> Release:
    """Return the release that an index describes.

    `where`: its address, for messages.

    Raises:
        RegistryError: the document is no release of nojit's.
    """
    form = document.annotations.get(RELEASE, "")
    if not form or document.media_type != INDEX:
        what = "expected a release, as nojit push writes it"
        raise refusal("not-ours", what, got=document.kind, where=where)
    if form != _FORM:
        what = f"expected a release of form {_FORM}; update nojit"
        raise refusal("not-ours", what, got=f"one of form {form}", where=where)
    offers = tuple(_offer(each, where) for each in document.manifests if _ARCH in each.annotations)
    if not offers:
        raise refusal("not-ours", "expected a release with bundles", got="none that this nojit knows", where=where)
    named = {offer.file_name for offer in offers}
    if len(named) < len(offers):
        what = "expected a release with one bundle for each name, version and arch"
        raise refusal("not-ours", what, got=f"{len(offers)} bundles with {len(named)} names", where=where)
    return Release(document, offers)


def _offer(descriptor: Descriptor, where: str) -> Offer:
    said = descriptor.annotations
    missing = [name for name in (_NAME, VERSION, _ARCH, _IMAGE_ARCH, _MIN_DRIVER, _DIGEST) if name not in said]
    if missing:
        what = f"expected each bundle of a release to have the annotation {missing[0]}"
        raise refusal("not-ours", what, got="none", where=where)
    if not _NUMBER.fullmatch(said[_MIN_DRIVER]):
        what = f"expected a number in the annotation {_MIN_DRIVER}"
        raise refusal("not-ours", what, got=repr(said[_MIN_DRIVER]), where=where)
    offer = Offer(
        descriptor,
        name=said[_NAME],
        version=said[VERSION],
        arch=said[_ARCH],
        image_arch=said[_IMAGE_ARCH],
        min_driver=int(said[_MIN_DRIVER]),
        toolchain=said.get(_TOOLCHAIN, ""),
        digest=said[_DIGEST],
    )
    if not _FILE_NAME.fullmatch(offer.file_name):
        what = "expected a bundle whose name, version and arch make a file name"
        raise refusal("not-ours", what, got=repr(offer.file_name), where=where)
    return offer


@dataclass(frozen=True, slots=True)
class ShippedBundle:
    """A verified bundle on this machine, and what is shipped with it."""

    path: Path
    facts: Offer
    layer: Descriptor
    document: Document
    """The manifest of the bundle."""
    statements: tuple[tuple[Document, bytes], ...]
    """The manifest and the content of each statement."""

    @property
    def is_signed(self) -> bool:
        """Whether a signed statement is shipped with it."""
        return any(document.artifact_type == SIGNED for document, _ in self.statements)


def ship(bundle: VerifiedBundle) -> ShippedBundle:
    """Return a verified bundle as OCI documents, with the statements beside it.

    Raises:
        PackageError: the unsigned statement cannot be read, or is of another bundle.
    """
    title = {TITLE: bundle.file_name}
    layer = Descriptor(BUNDLE, f"sha256:{bundle.sha256}", bundle.size_bytes, annotations=title)
    index = bundle.index
    annotations = {
        _NAME: index.name,
        VERSION: index.version,
        _ARCH: bundle.arch,
        _IMAGE_ARCH: index.target.image_arch,
        _MIN_DRIVER: str(index.min_driver),
        _TOOLCHAIN: ", ".join(f"{tool} {version}" for tool, version in index.toolchain if not tool.endswith(".digest")),
        _DIGEST: bundle.digest,
    }
    document = encode(MANIFEST, BUNDLE, layers=[layer], annotations=annotations)
    facts = _offer(document.descriptor, str(bundle.path))
    statements = []
    unsigned = _unsigned_statement(bundle)
    if unsigned is not None:
        name = statement_path(Path(bundle.file_name)).name
        statements.append(_statement(STATEMENT, unsigned, name, document.descriptor))
    if bundle.statement is not None:
        statements.append(_statement(SIGNED, bundle.statement, signed_path(bundle.file_name), document.descriptor))
    return ShippedBundle(bundle.path, facts, layer, document, tuple(statements))


def _statement(kind: str, content: bytes, name: str, subject: Descriptor) -> tuple[Document, bytes]:
    layer = Descriptor(kind, digest_of(content), len(content), annotations={TITLE: name})
    return encode(MANIFEST, kind, layers=[layer], subject=subject, annotations=_PREDICATE), content


def _unsigned_statement(bundle: VerifiedBundle) -> bytes | None:
    """Return the unsigned statement beside a bundle; None without one."""
    path = statement_path(bundle.path)
    try:
        raw = read_beside(str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PackageError(
            "expected a readable statement beside the bundle", got=worded(error), where=str(path)
        ) from None
    if not read_statement(path).facts(bundle.digest, signed=False).describes:
        what = f"expected the statement of bundle {bundle.digest[:12]}: build it again, or delete the file"
        raise PackageError(what, got="that of another bundle", where=str(path))
    return raw


class LocalRelease:
    """Bundles on this machine as a release.

    Args:
        bundles: the bundles.

    Raises:
        PackageError: two bundles have the same name, version and arch.
    """

    def __init__(self, bundles: Sequence[ShippedBundle]) -> None:
        self.limits = Limits(tries=1)
        named: dict[str, ShippedBundle] = {}
        for bundle in bundles:
            other = named.setdefault(bundle.facts.file_name, bundle)
            if other is not bundle:
                what = "expected bundles of different names, versions or archs: leave one out"
                raise PackageError(what, got=f"{bundle.facts.file_name} of {other.path} and {bundle.path}")
        self.bundles = tuple(
            sorted(bundles, key=lambda each: (arch_order(each.facts.arch), each.facts.name, each.facts.version))
        )
        common = {
            TITLE: {each.facts.name for each in bundles},
            VERSION: {each.facts.version for each in bundles},
        }
        annotations = {name: values.pop() for name, values in common.items() if len(values) == 1}
        manifests = [replace(each.document.descriptor, artifact_type="") for each in self.bundles]
        self.document = encode(INDEX, manifests=manifests, annotations={RELEASE: _FORM, **annotations})
        self._files = {each.layer.digest: each.path for each in bundles}
        self._contents = {EMPTY.digest: EMPTY_BYTES}
        for each in bundles:
            self._contents |= {digest_of(content): content for _, content in each.statements}

    @property
    def url(self) -> str:
        """The name of the place."""
        return "this machine"

    def read_document(self, reference: str) -> Document | None:
        """Return a manifest or index; see `ReleaseSource`."""
        return {each.descriptor.digest: each for each in self._documents()}.get(reference)

    def _documents(self) -> Iterable[Document]:
        yield self.document
        for bundle in self.bundles:
            yield bundle.document
            yield from (document for document, _ in bundle.statements)

    def read(self, blob: Descriptor, start: int) -> Content:
        """Return a content's bytes; see `ReleaseSource`."""
        content = self._contents.get(blob.digest)
        if content is not None:
            return Content(start, (part for part in (content[start:],)))
        return Content(start, _read_file(self._files[blob.digest], start))

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """Return the manifests that refer to a manifest; see `ReleaseSource`."""
        return [
            document.descriptor
            for bundle in self.bundles
            if bundle.document.descriptor.digest == digest
            for document, _ in bundle.statements
        ]


def _read_file(path: Path, start: int) -> Generator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
