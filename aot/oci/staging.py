"""Contents on their way to a folder: each lies in a hidden folder there until it is whole, and a broken read continues."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from nojit.aot.base.files import check_folder
from nojit.aot.oci.digest_checks import other_digest
from nojit.aot.oci.documents import Descriptor
from nojit.aot.oci.endpoints import ReleaseSource
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.retries import Retries
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import PackageError, RegistryError

__all__ = ["PARTIAL", "Staging", "disk_errors", "locked"]

PARTIAL: Final = ".nojit-partial"
"""Name of the hidden folder."""
_CHUNK_BYTES: Final = 1 << 20


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a folder, and keep other processes that lock it waiting until the ``with`` block ends.

    Raises:
        RegistryError: the folder cannot be written to.
    """
    try:
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except PackageError as error:
        raise refusal("disk", error.what, got=error.got, where=error.where, advice="") from None
    except OSError as error:
        raise refusal("disk", "expected a folder to write to", got=worded(error), where=str(folder)) from None
    with disk_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # some network file systems have no locks
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """Turn errors of the system while a place is written to into `RegistryError`.

    Args:
        place: the file or folder that is written to, for messages.
    """
    try:
        yield
    except OSError as error:
        raise refusal("disk", "expected to write a file", got=worded(error), where=str(place)) from None


class Staging:
    """The hidden folder of a folder that contents go to. The caller has locked the folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / PARTIAL

    def prepare(self) -> None:
        """Create the hidden folder.

        Raises:
            RegistryError: it cannot be created, or is a link to another folder.
        """
        with disk_errors(self.path):
            self.path.mkdir(exist_ok=True)
        if self.path.is_symlink():
            what = f"expected a folder {PARTIAL}: delete the link"
            raise refusal("disk", what, got="a symbolic link", where=str(self.path), advice="")

    def check_space(self, needed_bytes: int) -> None:
        """Check that the disk has room for contents that are still missing.

        Raises:
            RegistryError: it has not.
        """
        free = shutil.disk_usage(self.folder).free
        if free < needed_bytes:
            what = f"expected {needed_bytes:,} bytes of free disk space"
            raise refusal("disk", what, got=f"{free:,}", where=str(self.folder))

    def held_bytes(self, blob: Descriptor) -> int:
        """Return how many bytes of a content an earlier run has left here."""
        sizes = [path.stat().st_size for path in (self._whole(blob), self._part(blob)) if path.is_file()]
        return max(sizes, default=0)

    def fetch(self, source: ReleaseSource, blob: Descriptor) -> Path:
        """Return the path of a content in the hidden folder, after reading what is missing and comparing the digest.

        Args:
            source: the place to read it from.
            blob: the content.

        Raises:
            RegistryError: the content cannot be read, differs from its digest, or cannot be written. The bytes read so far stay for
                the next run, unless they differ.
        """
        whole, part = self._whole(blob), self._part(blob)
        self.prepare()
        with disk_errors(self.folder):
            if whole.is_file():
                # verified by an earlier run, and read again by what comes next
                whole.replace(part)
            # a file without links: nothing else may write to it
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "r+b") as file:
                fetching = _Fetching(source, blob, file, self.folder)
                old = fetching.read_old()
                found = fetching.run()
                if found != blob.hex and old:
                    # what an earlier run left may be damaged
                    fetching.restart()
                    found = fetching.run()
                os.fsync(file.fileno())
            if found != blob.hex:
                part.unlink()
                raise other_digest(blob, f"sha256:{found}", f"{source.url} {blob.digest}")
            part.replace(whole)
        return whole

    def clear(self) -> None:
        """Delete the hidden folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _whole(self, blob: Descriptor) -> Path:
        return self.path / blob.hex

    def _part(self, blob: Descriptor) -> Path:
        return self.path / f"{blob.hex}.part"


class _Fetching:
    """Reads one content, and appends it to a file."""

    def __init__(self, source: ReleaseSource, blob: Descriptor, file: IO[bytes], folder: Path) -> None:
        self._source, self._blob, self._file, self._folder = source, blob, file, folder
        self._hasher = hashlib.sha256()
        self._position = 0

    def read_old(self) -> int:
        """Return how many bytes of the content the file has, after reading them."""
        while chunk := self._file.read(_CHUNK_BYTES):
            self._hasher.update(chunk)
            self._position += len(chunk)
        if self._position > self._blob.size_bytes:
            self.restart()
        return self._position

    def restart(self) -> None:
        """Empty the file."""
        self._file.seek(0)
        self._file.truncate()
        self._hasher, self._position = hashlib.sha256(), 0

    def run(self) -> str:
        """Read what is missing; return the SHA-256 of the whole in hex."""
        retries, furthest = Retries(self._source.limits), self._position
        while self._position < self._blob.size_bytes:
            try:
                self._read_on()
            except RegistryError as error:
                if self._position > furthest:
                    furthest = self._position
                    retries.start_again()
                retries.failed(error)
        return self._hasher.hexdigest()

    def _read_on(self) -> None:
        start, chunks = self._source.read(self._blob, self._position)
        if start != self._position:
            self.restart()
        with contextlib.closing(chunks):
            for chunk in chunks:
                if self._position + len(chunk) > self._blob.size_bytes:
                    got = f"more than {self._blob.size_bytes} bytes"
                    raise other_digest(self._blob, got, f"{self._source.url} {self._blob.digest}")
                with disk_errors(self._folder):
                    self._file.write(chunk)
                    # for the next run, if this process is killed
                    self._file.flush()
                self._hasher.update(chunk)
                self._position += len(chunk)
        if self._position < self._blob.size_bytes:
            what = f"expected {self._blob.size_bytes} bytes"
            raise refusal("unavailable", what, got=str(self._position), where=f"{self._source.url} {self._blob.digest}")
