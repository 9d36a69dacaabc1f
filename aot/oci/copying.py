"""Copies of releases from one place to another: push, save and load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nojit.aot.oci.documents import Descriptor, Document
from nojit.aot.oci.endpoints import ReleaseSource, ReleaseTarget
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.release import Release

__all__ = ["Copied", "copy_release", "read_listed"]

# manifests that refer to one bundle: statements, and those of other tools
_REFERRERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a copy of a release."""

    sent_bytes: int
    """Size of the contents that the target lacked."""
    total_bytes: int
    """Size of all contents."""
    statements: int
    """Number of manifests that refer to the release or to its bundles."""


def copy_release(
    release: Release, source: ReleaseSource, target: ReleaseTarget, tag: str, tell: Callable[[str, int, bool], None]
) -> Copied:
    """Copy a release with everything that refers to it. The tag comes last, so that it never names half a release.

    Args:
        release: the release, from `source`.
        source: the place that holds it.
        target: the place to write it to.
        tag: its tag in `target`; empty for none.
        tell: called with the file name, the size and whether it was written, for each bundle.

    Raises:
        RegistryError: the release cannot be read or written. Contents that were written stay, and are not written again.
    """
    copying = _Copying(source, target)
    with target.writing():
        for offer in release.offers:
            document = read_listed(source, offer.manifest)
            before = copying.sent_bytes
            copying.copy(document)
            size_bytes = sum(layer.size_bytes for layer in document.layers)
            tell(offer.file_name, size_bytes, copying.sent_bytes > before)
            copying.copy_referrers(offer.manifest.digest)
        # manifests that another version of nojit lists as well
        for each in release.document.manifests:
            if each.digest not in copying.copied:
                copying.copy(read_listed(source, each))
        target.write_document(release.document, tag)
        copying.copy_referrers(release.digest)
    return Copied(copying.sent_bytes, copying.total_bytes, copying.statements)


def read_listed(source: ReleaseSource, listed: Descriptor) -> Document:
    """Return a manifest that a document lists.

    Raises:
        RegistryError: it cannot be read, is missing, or differs from its digest.
    """
    document = source.read_document(listed.digest)
    if document is None:
        what = "expected every manifest that the release lists"
        raise refusal("failed", what, got=f"none with digest {listed.digest}", where=source.url)
    return document


class _Copying:
    """Copies manifests with their contents, and counts."""

    def __init__(self, source: ReleaseSource, target: ReleaseTarget) -> None:
        self._source, self._target = source, target
        self.copied: set[str] = set()
        self.sent_bytes = self.total_bytes = self.statements = 0

    def copy(self, document: Document) -> None:
        """Copy a manifest after its contents."""
        if document.manifests:
            what = "expected manifests with contents in a release"
            raise refusal("not-ours", what, got="an index", where=f"{self._source.url} {document.descriptor.digest}")
        for blob in document.blobs:
            self.total_bytes += blob.size_bytes
            if self._target.write(blob, self._source):
                self.sent_bytes += blob.size_bytes
        self._target.write_document(document)
        self.copied.add(document.descriptor.digest)

    def copy_referrers(self, digest: str) -> None:
        """Copy the manifests that refer to a manifest; other tools' indexes are left out."""
        for each in list(self._source.referrers(digest))[:_REFERRERS_MAX]:
            # a registry may list a manifest that somebody has deleted
            document = self._source.read_document(each.digest)
            if document is not None and not document.manifests:
                self.copy(document)
                self.statements += 1
