"""Shared cache: entries in a place that many machines use, with a local copy of each entry that was taken from there."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Final, Protocol

from nojit.aot.cache.claims import Claims
from nojit.aot.cache.entry import ENTRY_BYTES_MAX, entry_name, split_signed, with_signature
from nojit.aot.cache.folder import PrivateFolder
from nojit.aot.cache.store import Store, UnfitError
from nojit.aot.cache.time_limits import READ, WRITE, FaultError, Guard, Limits

__all__ = ["MIRRORS", "SharedCache", "Signer", "Turn", "Verifier", "mirror_of"]

MIRRORS: Final = "shared"
"""Subfolder of the local cache with the copies of shared entries."""

# time to look up one variant of many
_LOOK_S: Final = 0.1
# how often a build looks at an entry that it refuses and that others seem to replace
_LOOKS: Final = 3
# entries that are written in the background at the same time
_WRITES: Final = 8
# an interrupted build waits no longer for its claims to be released
_HURRY_S: Final = 2.0


class Signer(Protocol):
    """Signer of entries."""

    def sign(self, key: str, entry: bytes) -> bytes:
        """Return the envelope of a signature over an entry: one line, with its line end."""


class Verifier(Protocol):
    """Verifier of signed entries."""

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Ids of the trusted keys."""

    def check(self, key: str, entry: bytes, envelope: bytes) -> None:
        """Check the signature of an entry.

        Raises:
            EntryError: the entry is not signed, or not by a trusted key.
        """


class Turn(enum.Enum):
    """Answer to a build that wants to compile a variant."""

    COMPILE = "compile it"
    HELD = "another build compiles it"


def mirror_of(folder: PrivateFolder, url: str) -> PrivateFolder:
    """Return the folder with the local copies of a shared cache's entries. Builds with another URL do not use them.

    Args:
        folder: the folder of the local cache.
        url: URL of the shared cache.
    """
    return PrivateFolder(folder.path / MIRRORS / hashlib.sha256(url.encode()).hexdigest()[:16])


class SharedCache:
    """A shared cache, as one build uses it.

    Args:
        store: the shared place.
        readonly: whether the build leaves the place as it is.
        signer: signs the entries that the build writes; None to write them unsigned.
        verifier: checks the entries that the build reads; None to take unsigned ones too. Without `signer` it makes the
            cache read-only: other builds that check signatures could not use the entries.
        limits: limits for the use of the place.
        tell: called with warnings about the place.
    """

    def __init__(
        self,
        store: Store,
        *,
        readonly: bool = False,
        signer: Signer | None = None,
        verifier: Verifier | None = None,
        limits: Limits | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.url = store.url
        self.readonly = readonly or (verifier is not None and signer is None)
        self.limits = limits or Limits()
        self.puts = 0
        """Number of entries that were written."""
        self._store = store
        self._tell = tell
        self._signer = signer
        self._verifier = verifier
        self._guard = Guard(store.url, self.limits, tell)
        self._claims = None if self.readonly else Claims(store, self._guard, self.limits)
        self._writing: set[Future[None]] = set()
        self._refused: dict[str, list[bytes]] = {}
        """Digests of the contents of each key's entry that could not be used."""
        self._held_since: dict[str, float] = {}
        self._blind = 0
        """Number of looks at the claims that failed in a row."""

    @property
    def faults(self) -> int:
        """Number of operations on the place that failed."""
        return self._guard.faults

    @property
    def trusted(self) -> tuple[str, ...]:
        """Ids of the keys that may sign entries; empty if the build takes unsigned entries."""
        return () if self._verifier is None else self._verifier.key_ids

    @property
    def divides(self) -> bool:
        """Whether builds divide the variants to compile among them."""
        sees = self._blind < self.limits.faults
        return self._claims is not None and sees and self._guard.is_usable(WRITE)

    def where(self, key: str) -> str:
        """Return the URL of a key's entry."""
        return f"{self.url}/{entry_name(key)}"

    def opened(self, key: str, stored: bytes) -> bytes:
        """Return a stored entry without its signature, after checking that if the build asks for signatures.

        Raises:
            EntryError: the signature is missing, invalid, or by another key.
        """
        envelope, entry = split_signed(stored)
        if self._verifier is not None:
            self._verifier.check(key, entry, envelope)
        return entry

    def fetch(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the stored entries of keys, as they arrive. Missing ones are left out."""
        if not (wanted := list(keys)):
            return
        try:
            self._store.open()
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            self._guard.fault(READ, error)
        for key, future in self._guard.each(READ, self._read, self._in_time(wanted)):
            with contextlib.suppress(FileNotFoundError, FaultError):
                yield key, future.result()

    def _in_time(self, keys: Sequence[str]) -> Iterator[str]:
        """Yield keys until their look-ups have taken too long."""
        started = time.monotonic()
        for number, key in enumerate(keys):
            seconds = time.monotonic() - started
            if seconds > self.limits.look_s + _LOOK_S * len(keys):
                words = f"{number:,} of {len(keys):,} variants looked up in {seconds:.0f} s"
                self._tell(f"the shared cache {self.url} is slow: {words}; the build goes on")
                return
            yield key

    def refuse(self, key: str, stored: bytes) -> None:
        """Note that the stored entry of a key cannot be used; this build does not look at it again."""
        self._refused.setdefault(key, []).append(hashlib.sha256(stored).digest())

    def order(self, keys: Collection[str]) -> list[str]:
        """Return the order in which this build compiles keys."""
        return list(keys) if self._claims is None else self._claims.shuffled(keys)

    def begin(self, key: str) -> Future[bytes | Turn]:
        """Ask for the turn to compile a variant.

        Returns:
            Future of the entry that another build has stored by now, or of the turn. It fails with `FaultError`.
        """
        waited = time.monotonic() - self._held_since.setdefault(key, time.monotonic())
        if not self.divides or waited > self.limits.wait_s or len(self._refused.get(key, ())) >= _LOOKS:
            future: Future[bytes | Turn] = Future()
            future.set_result(Turn.COMPILE)
            return future
        return self._guard.submit(READ, self._begin, key)

    def freed(self, keys: Collection[str], pause_s: float) -> Future[set[str]]:
        """Return the future of those of `keys` that no other living build has claimed, or that were waited for too long.

        Args:
            keys: claimed keys.
            pause_s: time to wait before looking.

        Returns:
            The future. It fails with `FaultError`.
        """
        return self._guard.submit(READ, self._free, tuple(keys), pause_s)

    def put(self, key: str, entry: bytes) -> None:
        """Store the entry of a key, in the background, and give the claim of the key back."""
        if self.readonly:
            return
        if self._signer is not None:
            entry = with_signature(entry, self._signer.sign(key, entry))
        if len(self._writing) >= _WRITES:
            self._reap(wait(self._writing, return_when=FIRST_COMPLETED)[0])
        self._writing.add(self._guard.submit(WRITE, self._put, key, entry))

    def abandon(self, key: str) -> None:
        """Give the claim of a key back, whose variant failed to compile."""
        if self.divides:
            self._guard.submit(WRITE, self._drop, key)

    def close(self, *, hurry: bool) -> None:
        """Wait for the entries that are being written, and give every claim back.

        `hurry`: do not wait for the entries.
        """
        self._reap(wait(self._writing, timeout=0 if hurry else None)[0])
        if self._claims is not None:
            self._claims.close(_HURRY_S if hurry else None)

    def _read(self, key: str) -> bytes:
        try:
            return self._store.read(entry_name(key), ENTRY_BYTES_MAX)
        except UnfitError:
            # the place works; the build refuses this as an entry
            return b""

    def _begin(self, key: str) -> bytes | Turn:
        stored = self._read_new(key)
        if stored is not None or self._claims is None:
            return Turn.COMPILE if stored is None else stored
        try:
            won = self._claims.take(key)
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            self._guard.fault(WRITE, error)
            return Turn.COMPILE
        if not won:
            return Turn.HELD
        # another build may have stored the entry, and given its claim back, in between
        stored = self._read_new(key)
        if stored is None:
            return Turn.COMPILE
        self._drop(key)
        return stored

    def _read_new(self, key: str) -> bytes | None:
        """Return the stored entry of a key; None if it is missing, or was refused before."""
        try:
            stored = self._read(key)
        except FileNotFoundError:
            return None
        return None if hashlib.sha256(stored).digest() in self._refused.get(key, ()) else stored

    def _free(self, keys: tuple[str, ...], pause_s: float) -> set[str]:
        time.sleep(pause_s)
        overdue = time.monotonic() - self.limits.wait_s
        late = {key for key in keys if self._held_since[key] < overdue}
        if self._claims is None:
            return set(keys)
        self._blind += 1
        free = self._claims.free(keys)
        self._blind = 0
        return late | free

    def _put(self, key: str, stored: bytes) -> None:
        self._store.write(entry_name(key), stored)
        self._drop(key)

    def _drop(self, key: str) -> None:
        if self._claims is not None:
            try:
                self._claims.drop(key)
            except Exception as error:  # noqa: BLE001 - each library has errors of its own
                self._guard.fault(WRITE, error)

    def _reap(self, done: Iterable[Future[None]]) -> None:
        for future in done:
            self._writing.discard(future)
            self.puts += future.exception() is None
