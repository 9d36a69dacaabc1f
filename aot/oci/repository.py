"""A repository of a registry as a place for releases.

Sources: the OCI distribution specification 1.1, chapters "Pull", "Push" and "Listing Referrers", with its fallback for registries
that lack referrers: an index under the tag ``sha256-<digest>``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urljoin, urlsplit

from nojit.aot.oci.answers import Answer
from nojit.aot.oci.client import Body, Client
from nojit.aot.oci.digest_checks import checked, checked_document
from nojit.aot.oci.documents import (
    INDEX,
    MANIFEST,
    Descriptor,
    Document,
    encode,
    parse_document,
)
from nojit.aot.oci.endpoints import Content, ReleaseSource
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.retries import Limits, Retries
from nojit.runtime.errors import RegistryError

__all__ = ["Repository"]

# what else a tag may be, so that the message can name it
_FOREIGN: Final = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ACCEPT: Final = ", ".join((INDEX, MANIFEST, *_FOREIGN))
_NEXT: Final = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
# statuses of registries that do not know referrers
_NO_REFERRERS: Final = frozenset({400, 404, 405, 501})
_PAGES_MAX: Final = 100


class Repository:
    """A repository of a registry.

    Args:
        client: a client of the registry, for this repository.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._where = str(client.address)
        self._written: set[str] = set()

    @property
    def limits(self) -> Limits:
        """Time limits and tries."""
        return self._client.limits

    @property
    def url(self) -> str:
        """The address."""
        return self._where

    def read_document(self, reference: str) -> Document | None:
        """Return a manifest or index; see `ReleaseSource`."""
        answer = self._ask_manifest("GET", reference, "send a manifest")
        if answer.status == 404:
            return None
        # with a tag, the header protects against a broken proxy only: who answers chooses both
        digest = reference if reference.startswith("sha256:") else answer.headers.get("Docker-Content-Digest", "")
        digest = digest if digest.startswith("sha256:") else ""
        media_type = answer.headers.get("Content-Type", "").partition(";")[0]
        return checked_document(answer.content, media_type, digest, f"{self._where} {reference}")

    def read(self, blob: Descriptor, start: int) -> Content:
        """Return a content's bytes; see `ReleaseSource`."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        where = f"{self._where} {blob.digest}"
        answer = self._client.send(
            "GET",
            f"blobs/{blob.digest}",
            want={200, 206, 416},
            doing="send a content",
            where=where,
            headers=headers,
            stream=True,
            once=True,
        )
        if answer.status == 206 and re.match(rf"bytes {start}-", answer.headers.get("Content-Range", "")):
            return Content(start, self._client.chunks(answer, where))
        if answer.status == 200:
            return Content(0, self._client.chunks(answer, where))
        # another range than the one that was asked for
        if answer.stream is not None:
            answer.stream.close()
        if start:
            return self.read(blob, 0)
        raise refusal("failed", "expected a whole content", got=answer.words, where=where)

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """Return the manifests that refer to a manifest; see `ReleaseSource`."""
        found: dict[str, Descriptor] = {}
        url = f"referrers/{digest}"
        for _ in range(_PAGES_MAX):
            answer = self._client.send(
                "GET",
                url,
                want={200, *_NO_REFERRERS},
                doing="list statements",
                where=self._where,
                headers={"Accept": INDEX},
            )
            # a registry without referrers may answer with a page of its own
            if answer.status != 200 or "json" not in answer.headers.get("Content-Type", ""):
                break
            listed = parse_document(answer.content, INDEX, self._where)
            found |= {each.digest: each for each in listed.manifests}
            url = _next_page(answer)
            if not url:
                break
        # also with the API: the registry may have got it after the statements
        found |= {each.digest: each for each in self._fallback(digest)}
        return tuple(found.values())

    def _fallback(self, digest: str) -> tuple[Descriptor, ...]:
        """Return the referrers that the index of the fallback tag lists."""
        document = self.read_document(_fallback_tag(digest))
        return document.manifests if document is not None else ()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Do nothing: a registry stores contents whole."""
        yield

    def write(self, blob: Descriptor, source: ReleaseSource) -> bool:
        """Upload a content unless it is there; see `ReleaseTarget`."""
        if blob.digest in self._written or self._has(blob):
            self._written.add(blob.digest)
            return False
        retries = Retries(self.limits)
        while True:
            try:
                self._upload(blob, source)
            except RegistryError as error:
                retries.failed(error)
                # the answer to a complete upload may be what was lost
                if self._has(blob):
                    break
            else:
                break
        self._written.add(blob.digest)
        return True

    def _has(self, blob: Descriptor) -> bool:
        answer = self._client.send(
            "HEAD", f"blobs/{blob.digest}", want={200, 404}, doing="say whether it has a content", where=self._where
        )
        return answer.status == 200

    def _upload(self, blob: Descriptor, source: ReleaseSource) -> None:
        begun = self._client.send("POST", "blobs/uploads/", want={202}, doing="accept an upload", where=self._where)
        place = begun.headers.get("Location", "")
        if not place:
            what = "expected a Location with the answer to an upload"
            raise refusal("failed", what, got=begun.words, where=self._where)
        url = urljoin(begun.url, place)
        url += f"{'&' if urlsplit(url).query else '?'}digest={blob.digest}"
        body = Body(blob.size_bytes, lambda: checked(source.read(blob, 0).chunks, blob, f"{source.url} {blob.digest}"))
        self._client.send(
            "PUT",
            url,
            want={201, 204},
            doing="store a content",
            where=f"{self._where} {blob.digest}",
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(blob.size_bytes)},
            body=body,
            once=True,
        )

    def write_document(self, document: Document, tag: str = "") -> None:
        """Upload a manifest or an index unless it is there; see `ReleaseTarget`."""
        digest, subject = document.descriptor.digest, document.subject
        # some registries refuse to replace a tag, even by the same manifest
        if self._holds(tag or digest, digest) and (subject is None or self._lists(subject.digest, digest)):
            return
        answer = self._put(document, tag or digest)
        if subject is not None and not answer.headers.get("OCI-Subject"):
            self._list_by_tag(subject.digest, document.descriptor)

    def _holds(self, reference: str, digest: str) -> bool:
        """Return whether a tag or digest is that of a manifest."""
        answer = self._ask_manifest("HEAD", reference, "say whether it has a manifest")
        return answer.status == 200 and answer.headers.get("Docker-Content-Digest") == digest

    def _ask_manifest(self, method: str, reference: str, doing: str) -> Answer:
        """Ask for a manifest by tag or digest; the answer's status is 200 or 404."""
        return self._client.send(
            method,
            f"manifests/{reference}",
            want={200, 404},
            doing=doing,
            where=self._where,
            headers={"Accept": _ACCEPT},
        )

    def _lists(self, subject: str, referrer: str) -> bool:
        return any(each.digest == referrer for each in self.referrers(subject))

    def _put(self, document: Document, reference: str) -> Answer:
        answer = self._client.send(
            "PUT",
            f"manifests/{reference}",
            want={201},
            doing="store a manifest",
            where=self._where,
            headers={"Content-Type": document.media_type},
            body=document.raw,
        )
        digest, found = document.descriptor.digest, answer.headers.get("Docker-Content-Digest", "")
        if found.startswith("sha256:") and found != digest:
            raise refusal("digest", f"expected the registry to store {digest}", got=found, where=self._where)
        return answer

    def _list_by_tag(self, subject: str, referrer: Descriptor) -> None:
        """Add a referrer to the index of the fallback tag, which others may write to at the same time."""
        tag, retries = _fallback_tag(subject), Retries(self.limits)
        while True:
            listed = self._fallback(subject)
            if any(each.digest == referrer.digest for each in listed):
                return
            self._put(encode(INDEX, manifests=[*listed, referrer]), tag)
            if any(each.digest == referrer.digest for each in self._fallback(subject)):
                return
            what = f"expected the index {tag} to list a statement"
            retries.failed(refusal("unavailable", what, got="one that another program has replaced", where=self._where))


def _fallback_tag(digest: str) -> str:
    return digest.replace(":", "-", 1)


def _next_page(answer: Answer) -> str:
    """Return the URL of the next page of a list; empty if there is none, or if it is on another host."""
    found = _NEXT.search(answer.headers.get("Link", ""))
    url = urljoin(answer.url, found[1]) if found else ""
    return url if urlsplit(url)[:2] == urlsplit(answer.url)[:2] else ""
