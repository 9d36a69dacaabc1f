"""Cache of compiled variants: a local folder, which any number of builds of a user share, and on request a shared cache.

A build looks into the folder, then at the local copies of shared entries, then into the shared cache. Every entry passes the
same checks. If an entry is damaged, or was stored under another key, the cache records it and treats the lookup as a miss.
Builds remove no entries; a user may delete entries while builds run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nojit.aot.cache.entry import ENTRY_BYTES_MAX, EntryError, entry_name, open_entry, seal
from nojit.aot.cache.folder import PrivateFolder
from nojit.aot.cache.shared import SharedCache, Turn, mirror_of
from nojit.aot.cache.store import Folder
from nojit.aot.cache.time_limits import FaultError
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import PackageError

__all__ = ["Cache", "CacheUse", "Misfit", "Turn"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A cache entry that could not be used."""

    path: str
    """Path of the entry, or its URL in a shared cache."""
    reason: str


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Use of the cache by a build. Variants with the same key count once."""

    url: str = ""
    """URL of the shared cache; empty if there is none."""
    local_hits: int = 0
    """Entries from the local folder, including its copies of shared entries."""
    shared_hits: int = 0
    """Entries from the shared cache."""
    misses: int = 0
    """Variants that no tier had."""
    puts: int = 0
    """Entries written to the shared cache."""
    refused: int = 0
    """Entries that could not be used, of either tier."""
    faults: int = 0
    """Operations on the shared cache that failed or took too long."""


class Cache:
    """Cache of compiled variants, as one build uses it.

    Args:
        folder: local folder, created with mode 0700 if it does not exist.
        shared: the shared cache; None to use the folder only.

    Raises:
        PackageError: the folder cannot be created or used, is a symbolic link, belongs to another user, or is writable
            by others.
    """

    def __init__(self, folder: Path, shared: SharedCache | None = None) -> None:
        self.folder = folder
        self._local = PrivateFolder(folder)
        self._shared = shared
        self._mirror = None if shared is None else mirror_of(self._local, shared.url)
        self._misfits: dict[str, str] = {}
        self._local_hits = self._shared_hits = self._misses = 0

    @property
    def divides(self) -> bool:
        """Whether the build divides the variants to compile with other builds."""
        return self._shared is not None and self._shared.divides

    @property
    def trusted(self) -> tuple[str, ...]:
        """Ids of the keys that may sign shared entries; empty if the build takes unsigned entries."""
        return () if self._shared is None else self._shared.trusted

    @property
    def poll_s(self) -> float:
        """Longest time between two looks at variants that other builds compile."""
        return self._shared.limits.poll_s if self._shared is not None else 0.0

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """The entries that could not be used since this cache was opened."""
        return tuple(Misfit(path, reason) for path, reason in self._misfits.items())

    @property
    def use(self) -> CacheUse:
        """The use of the cache since it was opened."""
        shared = self._shared
        return CacheUse(
            url=shared.url if shared else "",
            local_hits=self._local_hits,
            shared_hits=self._shared_hits,
            misses=self._misses,
            puts=shared.puts if shared else 0,
            refused=len(self._misfits),
            faults=shared.faults if shared else 0,
        )

    def get(self, key: str) -> bytes | None:
        """Return the data that the local folder stores under `key`; None if there is no intact entry."""
        return self._look(self._local, key, lambda _key, entry: entry, lambda _key, data: data)

    def find(
        self, keys: Collection[str], read: Callable[[str, bytes], T], own: Collection[str] = ()
    ) -> Iterator[tuple[str, T]]:
        """Yield the keys with a usable entry, each with the value of the entry.

        Args:
            keys: the keys to look up.
            read: returns the value of a key's data. It raises `EntryError` if the data cannot be used.
            own: keys to look up in the local folder only.
        """
        missing = []
        local = _may_have(self._local)
        mirrored = _may_have(self._mirror)
        for key in keys:
            found = self._look(self._local, key, lambda _key, entry: entry, read) if local(key) else None
            if (
                found is None
                and self._shared is not None
                and self._mirror is not None
                and key not in own
                and mirrored(key)
            ):
                found = self._look(self._mirror, key, self._shared.opened, read)
            if found is None:
                missing.append(key)
            else:
                self._local_hits += 1
                yield key, found
        if self._shared is not None:
            for key, stored in self._shared.fetch(key for key in missing if key not in own):
                if (found := self._take(key, stored, read)) is not None:
                    yield key, found

    def order(self, keys: Collection[str]) -> list[str]:
        """Return the order in which to compile keys."""
        return list(keys) if self._shared is None else self._shared.order(keys)

    def begin(self, key: str, own: Collection[str] = ()) -> Future[bytes | Turn] | None:
        """Ask for the turn to compile the variant of a key; `begun` reads the answer. None if the turn needs no asking.

        `own`: keys that concern the local folder only.
        """
        if self._shared is None or key in own:
            self._misses += 1
            return None
        return self._shared.begin(key)

    def begun(self, key: str, future: Future[bytes | Turn], read: Callable[[str, bytes], T]) -> T | Turn:
        """Return the answer to `begin`: the value of an entry that another build has stored, or the turn.

        `read`: as for `find`.
        """
        try:
            answer = future.result()
        except FaultError:
            answer = Turn.COMPILE
        if isinstance(answer, bytes):
            found = self._take(key, answer, read)
            # to replace an entry that cannot be used, the build must claim the variant first
            return Turn.HELD if found is None else found
        self._misses += answer is Turn.COMPILE
        return answer

    def freed(self, keys: Collection[str], pause_s: float) -> Future[set[str]]:
        """Return the future of those of `keys` that no other living build compiles; `begin` asks for them again.

        Args:
            keys: keys whose turn other builds have.
            pause_s: time to wait before looking.
        """
        if self._shared is None:
            raise ValueError("expected a shared cache")
        return self._shared.freed(keys, pause_s)

    def put(self, key: str, data: bytes, own: Collection[str] = ()) -> None:
        """Store `data` under `key`; see `put_entry`."""
        self.put_entry(key, seal(key, data), own)

    def put_entry(self, key: str, entry: bytes, own: Collection[str] = ()) -> None:
        """Store the entry of a key. The last of several writers wins; readers see a whole entry.

        If a folder or other non-file is at the entry's path, nothing is stored there, and the cache records the entry as
        unusable.

        Args:
            key: the key.
            entry: the entry, as `nojit.aot.cache.entry.seal` returns it.
            own: keys to store in the local folder only.

        Raises:
            PackageError: the local folder cannot be written, for example because the disk is full.
        """
        name = entry_name(key)
        try:
            self._local.write(name, entry)
        except (IsADirectoryError, NotADirectoryError) as error:
            self._refuse(str(self._local.path_of(name)), f"cannot be replaced: {worded(error)}")
        except OSError as error:
            raise self._local.failed(error, name) from None
        if self._shared is not None and key not in own:
            self._shared.put(key, entry)

    def abandon(self, key: str) -> None:
        """Let other builds compile the variant of a key, which failed to compile."""
        if self._shared is not None:
            self._shared.abandon(key)

    def close(self, *, hurry: bool = False) -> None:
        """End the use of the shared cache, after the entries are written.

        `hurry`: do not wait for the entries.
        """
        if self._shared is not None:
            self._shared.close(hurry=hurry)

    def _look(
        self, folder: Folder, key: str, opened: Callable[[str, bytes], bytes], read: Callable[[str, bytes], T]
    ) -> T | None:
        """Return the value of a key's entry in a folder; None if there is no usable entry.

        Args:
            folder: the folder.
            key: the key.
            opened: returns an entry without its signature.
            read: returns the value of the entry's data.
        """
        name = entry_name(key)
        try:
            stored = folder.read(name, ENTRY_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse(str(folder.path_of(name)), worded(error))
            return None
        return self._read(str(folder.path_of(name)), key, stored, opened, read)

    def _take(self, key: str, stored: bytes, read: Callable[[str, bytes], T]) -> T | None:
        """Return the value of an entry of the shared cache, after copying it to the local folder; None if it is unusable."""
        if self._shared is None or self._mirror is None:
            raise ValueError("expected a shared cache")
        found = self._read(self._shared.where(key), key, stored, self._shared.opened, read)
        if found is None:
            self._shared.refuse(key, stored)
            return None
        # the copy only saves time
        with contextlib.suppress(OSError, PackageError):
            self._mirror.write(entry_name(key), stored)
        self._shared_hits += 1
        return found

    def _read(
        self,
        where: str,
        key: str,
        stored: bytes,
        opened: Callable[[str, bytes], bytes],
        read: Callable[[str, bytes], T],
    ) -> T | None:
        try:
            return read(key, open_entry(key, opened(key, stored)))
        except EntryError as error:
            self._refuse(where, str(error))
            return None

    def _refuse(self, where: str, reason: str) -> None:
        self._misfits[where] = reason


def _may_have(folder: Folder | None) -> Callable[[str], bool]:
    """Return a function that tells whether a folder may have a key's entry; without a folder, none has.

    All workers of a farm wait until a build has looked up its variants: with an empty cache, one listing takes the place of all looks.
    """
    try:
        parts = folder.parts() if folder is not None else ()
    except OSError:
        # each look says why
        return lambda _key: True
    if not parts:
        return lambda _key: False
    return lambda key: entry_name(key).partition("/")[0] in parts
