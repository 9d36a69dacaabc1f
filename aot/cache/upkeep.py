"""Upkeep of caches: counts, deletion of old entries, verification of all entries. For a local folder and a shared cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from nojit.aot.cache.claims import is_claim, is_leftover
from nojit.aot.cache.entry import ENTRY_BYTES_MAX, EntryError, entry_key, open_entry, split_signed
from nojit.aot.cache.folder import check_cache_folder, default_cache_folder
from nojit.aot.cache.shared import MIRRORS, Verifier
from nojit.aot.cache.store import Folder, Store, Stored, UnfitError
from nojit.aot.cache.store_urls import open_store
from nojit.aot.cache.time_limits import READ, WRITE, FaultError, Guard, Limits
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import PackageError

__all__ = ["CacheFacts", "Keeper", "OldEntries", "RefusedEntry", "open_places"]

T = TypeVar("T")

# a list of a large cache takes minutes
_LIMITS = Limits(operation_s=300.0, faults=1)
# claims and heartbeats of builds that were killed
_STALE_S = 24 * 3600.0
_ADVICE = "check that the place exists, and the permissions: for a bucket, those to list, get and delete objects"


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """A place with cache entries: the local folder, its copies of a shared cache, or a shared cache."""

    path: str
    """Path of the folder, or URL."""
    entries: int
    size_bytes: int
    oldest: str
    """Time of the oldest write, in UTC; empty without entries."""
    newest: str
    """Time of the newest write, in UTC; empty without entries."""
    claims: int
    """Variants that builds have claimed, including claims that killed builds left."""


@dataclass(frozen=True, slots=True)
class OldEntries:
    """Entries of a place to delete."""

    path: str
    """Path of the folder, or URL."""
    names: tuple[str, ...]
    """Names of the entries, oldest first."""
    size_bytes: int
    kept: int
    """Number of the other entries."""
    leftovers: tuple[str, ...]
    """Claims and heartbeats that killed builds left."""


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that no build would use."""

    path: str
    """Path or URL of the entry."""
    reason: str


def open_places(folder: Path | None, url: str | None) -> list[Keeper]:
    """Return the keepers of a shared cache, or of a local cache folder and its copies of shared caches.

    Args:
        folder: the local cache folder; None for the default one, which may not exist yet.
        url: URL of a shared cache; None for the local folder.

    Raises:
        PackageError: a folder that the caller named does not exist, the folder cannot be used, or a library for the URL is
            not installed.
    """
    if url is not None:
        store = open_store(url, _LIMITS.operation_s)
        if isinstance(store, Folder):
            _expect_folder(store.path, store.url)
        return [Keeper(store)]
    place = folder or default_cache_folder()
    if folder is not None:
        _expect_folder(place, str(place))
    try:
        check_cache_folder(place)
    except FileNotFoundError:
        return [Keeper(Folder(place))]
    mirrors = sorted((place / MIRRORS).glob("*"))
    return [Keeper(Folder(each)) for each in (place, *mirrors)]


def _expect_folder(path: Path, where: str) -> None:
    try:
        path.stat()
    except OSError as error:
        got = "nothing there" if isinstance(error, FileNotFoundError) else worded(error)
        raise PackageError("expected the folder of a cache", got=got, where=where) from None


class Keeper:
    """Keeps one place with cache entries in order.

    Args:
        store: the place.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = Guard(store.url, _LIMITS, lambda _: None)

    def facts(self) -> CacheFacts:
        """Return counts of the place.

        Raises:
            PackageError: the place cannot be read.
        """
        stored = self._list()
        entries = [each for each in stored if entry_key(each.name)]
        times = [each.written_s for each in entries]
        return CacheFacts(
            path=self._store.url,
            entries=len(entries),
            size_bytes=sum(each.size_bytes for each in entries),
            oldest=_spelled(min(times)) if times else "",
            newest=_spelled(max(times)) if times else "",
            claims=sum(is_claim(each.name) for each in stored),
        )

    def choose(self, older_than_s: float | None, most_bytes: int | None) -> OldEntries:
        """Return the entries to delete: those of a certain age, and the oldest of the others until the rest is small enough.

        Args:
            older_than_s: age in seconds, by the time of the last write; None to keep entries of any age.
            most_bytes: size that the entries may have together; None for any.

        Raises:
            PackageError: the place cannot be read.
        """
        stored, now = self._list(), time.time()
        entries = sorted((each for each in stored if entry_key(each.name)), key=lambda each: -each.written_s)
        sizes = accumulate(each.size_bytes for each in entries)
        gone = [
            entry
            for entry, size_bytes in zip(entries, sizes, strict=True)
            if (older_than_s is not None and now - entry.written_s > older_than_s)
            or (most_bytes is not None and size_bytes > most_bytes)
        ][::-1]
        leftovers = [each.name for each in stored if is_leftover(each.name) and now - each.written_s > _STALE_S]
        return OldEntries(
            path=self._store.url,
            names=tuple(entry.name for entry in gone),
            size_bytes=sum(entry.size_bytes for entry in gone),
            kept=len(entries) - len(gone),
            leftovers=tuple(leftovers),
        )

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects by name.

        Raises:
            PackageError: an object cannot be deleted.
        """
        for name, future in self._guard.each(WRITE, self._store.delete, names):
            self._answer(future, "expected to delete a cache entry", name)

    def refused(self, check: Callable[[bytes], None], verifier: Verifier | None) -> Iterator[RefusedEntry | None]:
        """Yield for every entry None, or why builds do not use it.

        Args:
            check: raises `EntryError` if the data of an entry cannot be used.
            verifier: checks signatures; None to accept unsigned entries.

        Raises:
            PackageError: the place cannot be read.
        """
        names = [each.name for each in self._list() if entry_key(each.name)]
        for name, future in self._guard.each(READ, self._read, names):
            try:
                envelope, entry = split_signed(self._stored(future, name))
                key = entry_key(name) or ""
                if verifier is not None:
                    verifier.check(key, entry, envelope)
                check(open_entry(key, entry))
            except FileNotFoundError:
                # deleted meanwhile
                continue
            except EntryError as error:
                yield RefusedEntry(f"{self._store.url}/{name}", str(error))
            else:
                yield None

    def _list(self) -> list[Stored]:
        return self._answer(self._guard.submit(READ, self._opened), "expected a cache that can be listed", "")

    def _opened(self) -> list[Stored]:
        self._store.open()
        return list(self._store.list())

    def _read(self, name: str) -> bytes | UnfitError:
        try:
            return self._store.read(name, ENTRY_BYTES_MAX)
        except UnfitError as error:
            # the place works
            return error

    def _stored(self, future: Future[bytes | UnfitError], name: str) -> bytes:
        """Return the result of `_read`.

        Raises:
            EntryError: the object cannot be an entry.
            FileNotFoundError: there is no such object.
            PackageError: the place fails.
        """
        stored = self._answer(future, "expected to read a cache entry", name)
        if isinstance(stored, UnfitError):
            raise EntryError(f"expected an entry, got {worded(stored)}")
        return stored

    def _answer(self, future: Future[T], what: str, name: str) -> T:
        """Return the result of an operation.

        Args:
            future: the operation.
            what: the error's text if the place fails.
            name: name of the object; empty for the place.

        Raises:
            FileNotFoundError: there is no such object.
            PackageError: the place fails.
        """
        try:
            return future.result()
        except FaultError as error:
            where = f"{self._store.url}/{name}" if name else self._store.url
            raise PackageError(what, got=str(error), where=where).advise(_ADVICE) from None


def _spelled(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
