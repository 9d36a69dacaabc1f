"""Comparison of contents with their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from nojit.aot.oci.documents import DOCUMENT_BYTES_MAX, Descriptor, Document, parse_document
from nojit.aot.oci.endpoints import ReleaseSource
from nojit.aot.oci.error_reasons import refusal

__all__ = ["checked", "checked_document", "other_digest", "read_whole"]


def checked(chunks: Iterator[bytes], blob: Descriptor, where: str) -> Iterator[bytes]:
    """Yield a content; raise at its end if it differs from its digest or its size.

    Raises:
        RegistryError: it differs.
    """
    hasher, count = hashlib.sha256(), 0
    for chunk in chunks:
        count += len(chunk)
        if count > blob.size_bytes:
            raise other_digest(blob, f"more than {blob.size_bytes} bytes", where)
        hasher.update(chunk)
        yield chunk
    if count < blob.size_bytes:
        raise other_digest(blob, f"{count} of {blob.size_bytes} bytes", where)
    if hasher.hexdigest() != blob.hex:
        raise other_digest(blob, f"sha256:{hasher.hexdigest()}", where)


def other_digest(blob: Descriptor, got: str, where: str) -> Exception:
    """Return the error for a content that differs from its digest.

    Args:
        blob: the content.
        got: what was found instead.
        where: place of the content.
    """
    return refusal("digest", f"expected content with digest {blob.digest}", got=got, where=where)


def checked_document(raw: bytes, media_type: str, digest: str, where: str) -> Document:
    """Return a manifest or index after comparing it with its digest.

    Args:
        raw: the bytes.
        media_type: its type, if it does not say it itself.
        digest: its digest; empty for any.
        where: place of the document, for messages.

    Raises:
        RegistryError: it differs, is too long, or is no manifest or index.
    """
    if len(raw) > DOCUMENT_BYTES_MAX:
        what = f"expected a manifest of at most {DOCUMENT_BYTES_MAX} bytes"
        raise refusal("failed", what, got="a longer one", where=where)
    document = parse_document(raw, media_type, where)
    found = document.descriptor
    if digest and found.digest != digest:
        raise other_digest(Descriptor(media_type, digest, len(raw)), found.digest, where)
    return document


def read_whole(source: ReleaseSource, blob: Descriptor, most: int) -> bytes:
    """Return a small content.

    Args:
        source: the place that holds it.
        blob: the content.
        most: maximum size in bytes.

    Raises:
        RegistryError: it is longer, cannot be read, or differs from its digest.
    """
    if blob.size_bytes > most:
        what = f"expected content of at most {most} bytes"
        raise refusal("failed", what, got=f"{blob.size_bytes} bytes", where=f"{source.url} {blob.digest}")
    return b"".join(checked(source.read(blob, 0).chunks, blob, source.url))
