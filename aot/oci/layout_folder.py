"""A folder as a place for releases: an OCI image layout, to carry releases to where no registry can be reached.

Source: "OCI Image Layout Specification" of the OCI image specification 1.1. ``index.json`` lists releases by tag, and, without one,
the manifests that refer to others, as oras does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from nojit.aot.base.files import write_file
from nojit.aot.oci.digest_checks import checked, checked_document
from nojit.aot.oci.documents import DOCUMENT_BYTES_MAX, INDEX, Descriptor, Document, encode
from nojit.aot.oci.endpoints import Content, ReleaseSource
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.retries import Limits
from nojit.aot.oci.staging import Staging, disk_errors, locked
from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import PackageError, RegistryError

__all__ = ["LayoutFolder"]

_MARK: Final = "oci-layout"
_MARK_BYTES: Final = b'{"imageLayoutVersion":"1.0.0"}'
_INDEX: Final = "index.json"
_TAG: Final = "org.opencontainers.image.ref.name"
_CHUNK_BYTES: Final = 1 << 20


class LayoutFolder:
    """An OCI layout folder.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limits = Limits(tries=1)
        self._staging = Staging(path)

    @property
    def url(self) -> str:
        """The path."""
        return str(self.path)

    def tagged(self) -> list[tuple[str, Document]]:
        """Return the indexes that ``index.json`` lists, each with its tag, which may be empty.

        Raises:
            RegistryError: the folder is no layout, or one cannot be read.
        """
        found = []
        for each in self._listed():
            document = self.read_document(each.digest)
            if document is not None and document.media_type == INDEX:
                found.append((each.annotations.get(_TAG, ""), document))
        return found

    def read_document(self, reference: str) -> Document | None:
        """Return a manifest or index; see `ReleaseSource`."""
        digest = reference
        if not reference.startswith("sha256:"):
            named = [each for each in self._listed() if each.annotations.get(_TAG) == reference]
            if not named:
                return None
            digest = named[-1].digest
        path = self._path(digest)
        try:
            raw = _read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(error, path) from None
        return checked_document(raw, "", digest, str(path))

    def read(self, blob: Descriptor, start: int) -> Content:
        """Return a content's bytes; see `ReleaseSource`."""
        path = self._path(blob.digest)

        def chunks() -> Generator[bytes]:
            try:
                with path.open("rb") as file:
                    file.seek(start)
                    while chunk := file.read(_CHUNK_BYTES):
                        yield chunk
            except OSError as error:
                raise _unreadable(error, path) from None

        return Content(start, chunks())

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """Return the manifests that refer to a manifest; see `ReleaseSource`."""
        found = []
        for each in self._listed():
            document = self.read_document(each.digest)
            if document is not None and document.subject is not None and document.subject.digest == digest:
                found.append(document.descriptor)
        return found

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder, after creating the layout if the folder is empty or missing; see `ReleaseTarget`."""
        with locked(self.path):
            mark = self.path / _MARK
            if not mark.is_file():
                strange = sorted(each.name for each in self.path.iterdir() if not each.name.startswith("."))
                if strange:
                    what = "expected an OCI layout, or an empty folder"
                    raise refusal("layout", what, got=f"a folder with {strange[0]}", where=str(self.path))
                _write(self.path / _INDEX, encode(INDEX).raw)
                # last: a folder with it is whole
                _write(mark, _MARK_BYTES)
            self._check()
            yield
            self._staging.clear()

    def write(self, blob: Descriptor, source: ReleaseSource) -> bool:
        """Copy a content into the folder unless it is there; see `ReleaseTarget`."""
        path = self._path(blob.digest)
        if path.is_file():
            with contextlib.suppress(RegistryError):
                for _ in checked(self.read(blob, 0).chunks, blob, str(path)):
                    pass
                return False
            # damaged: written again
        self._staging.check_space(blob.size_bytes - self._staging.held_bytes(blob))
        whole = self._staging.fetch(source, blob)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            whole.replace(path)
        return True

    def write_document(self, document: Document, tag: str = "") -> None:
        """Write a manifest or an index, and list it if it has a tag or a subject; see `ReleaseTarget`."""
        descriptor = document.descriptor
        _write(self._path(descriptor.digest), document.raw)
        if not tag and document.subject is None and document.media_type != INDEX:
            return
        entry = replace(descriptor, annotations={_TAG: tag} if tag else {})
        kept = [
            each
            for each in self._listed()
            if (each.digest, each.annotations.get(_TAG, "")) != (entry.digest, tag)
            and not (tag and each.annotations.get(_TAG) == tag)
        ]
        _write(self.path / _INDEX, encode(INDEX, manifests=[*kept, entry]).raw)

    def _listed(self) -> tuple[Descriptor, ...]:
        self._check()
        path = self.path / _INDEX
        try:
            raw = _read(path)
        except OSError as error:
            raise _unreadable(error, path) from None
        return checked_document(raw, INDEX, "", str(path)).manifests

    def _check(self) -> None:
        """Check that the folder is a layout of a known version."""
        path = self.path / _MARK
        try:
            version = json.loads(_read(path))["imageLayoutVersion"]
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            what = "expected an OCI layout folder, as nojit save writes it"
            got = f"no {_MARK}" if isinstance(error, OSError) else f"a damaged {_MARK}"
            if not self.path.is_dir():
                got = file_kind(self.path.stat().st_mode) if self.path.exists() else "no such folder"
            raise refusal("layout", what, got=got, where=str(self.path)) from None
        if version != "1.0.0":
            what = "expected an OCI layout of version 1.0.0"
            raise refusal("layout", what, got=repr(version), where=str(path))

    def _path(self, digest: str) -> Path:
        return self.path / "blobs" / "sha256" / digest.partition(":")[2]


def _read(path: Path) -> bytes:
    """Return the content of a small file, at most one byte more than a document may have."""
    # a pipe of this name does not block
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
        return file.read(DOCUMENT_BYTES_MAX + 1)


def _write(path: Path, content: bytes) -> None:
    try:
        write_file(path, content)
    except PackageError as error:
        raise refusal("disk", error.what, got=error.got, where=error.where) from None


def _unreadable(error: OSError, path: Path) -> RegistryError:
    return refusal("layout", "expected a whole OCI layout", got=worded(error), where=str(path))
