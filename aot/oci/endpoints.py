"""Places that hold releases: what one can read from each, and write to it. `repository` and `layout` implement them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from nojit.aot.oci.documents import Descriptor, Document
from nojit.aot.oci.retries import Limits

__all__ = ["Content", "ReleaseSource", "ReleaseTarget"]


class Content(NamedTuple):
    """The bytes of a content, from a place on."""

    start: int
    """The place of the first byte: the one that was asked for, or 0 if the source can only start at the beginning."""
    chunks: Generator[bytes]


class ReleaseSource(Protocol):
    """A place to read releases from."""

    @property
    def limits(self) -> Limits:
        """Time limits and tries."""

    @property
    def url(self) -> str:
        """The place, for messages."""

    def read_document(self, reference: str) -> Document | None:
        """Return the manifest or index with a tag or digest; None if there is none. A digest is compared with the bytes.

        Raises:
            RegistryError: it cannot be read.
        """

    def read(self, blob: Descriptor, start: int) -> Content:
        """Return a content's bytes, which the caller compares with the digest.

        Args:
            blob: the content.
            start: the first byte to read, if the source can start there.

        Raises:
            RegistryError: it cannot be read; reading the chunks can raise as well.
        """

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """Return the manifests that refer to a manifest.

        Raises:
            RegistryError: they cannot be read.
        """


class ReleaseTarget(ReleaseSource, Protocol):
    """A place to write releases to. Each content is there as a whole or not at all."""

    def writing(self) -> AbstractContextManager[None]:
        """Keep other processes of this machine from writing to the place until the ``with`` block ends."""

    def write(self, blob: Descriptor, source: ReleaseSource) -> bool:
        """Write a content unless it is there; return whether it was written.

        Raises:
            RegistryError: it cannot be read or written.
        """

    def write_document(self, document: Document, tag: str = "") -> None:
        """Write a manifest or an index; what it lists must be there. One with a subject becomes a referrer of it.

        Args:
            document: the manifest or index.
            tag: the tag that it gets; empty for none.

        Raises:
            RegistryError: it cannot be written.
        """
