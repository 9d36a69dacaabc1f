"""Claims: small objects in a shared place by which builds divide the variants that none has compiled yet.

A build creates ``claims/<key>.<n>`` before it compiles a variant; of several builds, one succeeds. The claim holds the
build's name, and the build rewrites ``builds/<name>`` every few seconds. If that object is missing, or another build
sees the same content for too long by its own clock, the claims of the build are void, and another build creates the claim
with the next number. Claims only save work: a lost or forged one makes builds compile a variant twice, or wait in vain for
a limited time.
"""

from __future__ import annotations

import contextlib
import random
import re
import secrets
import threading
import time
from collections.abc import Collection
from typing import Final

from nojit.aot.cache.store import Store
from nojit.aot.cache.time_limits import WRITE, Guard, Limits

__all__ = ["Claims", "is_claim", "is_leftover"]

_CLAIMS: Final = "claims"
_BUILDS: Final = "builds"

_NAME: Final = re.compile(r"claims/([0-9a-f]{64})\.([0-9]{1,6})\Z")
_BUILD: Final = re.compile(rb"[0-9a-f]{16}\Z")
_HEARTBEAT: Final = re.compile(r"builds/[0-9a-f]{16}\Z")
_BYTES_MAX: Final = 256


def is_claim(name: str) -> bool:
    """Return whether an object of this name is a claim. The other objects below ``claims/`` are not the cache's."""
    return _NAME.match(name) is not None


def is_leftover(name: str) -> bool:
    """Return whether an object of this name is a claim or a heartbeat: a build that ends deletes its own."""
    return is_claim(name) or _HEARTBEAT.match(name) is not None


class Claims:
    """The claims of one build. Thread-safe.

    Args:
        store: the shared place.
        guard: runs the heartbeats.
        limits: the limits.
    """

    def __init__(self, store: Store, guard: Guard, limits: Limits) -> None:
        self.name = secrets.token_hex(8)
        """Name of this build: random, so that it tells nothing about machine and user."""
        self._store = store
        self._guard = guard
        self._limits = limits
        self._held: dict[str, int] = {}
        """Number of the claim of each key that this build holds."""
        self._next: dict[str, int] = {}
        """Number to claim next for each key whose holder is dead."""
        self._holders: dict[str, tuple[int, str]] = {}
        """Number and holder of the claim that this build last read, for each key."""
        self._seen: dict[str, tuple[bytes, float]] = {}
        """Last heartbeat of each other build, and when this build first saw it."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None

    def shuffled(self, keys: Collection[str]) -> list[str]:
        """Return keys in an order that differs between builds, so that few builds want the same claim."""
        return random.Random(self.name).sample(list(keys), len(keys))  # noqa: S311 - not a secret

    def take(self, key: str) -> bool:
        """Claim a key; return whether this build now holds it.

        Raises:
            Exception: the place fails.
        """
        self._begin()
        number = self._next.get(key, 0)
        if self._store.create(f"{_CLAIMS}/{key}.{number}", self.name.encode()):
            self._held[key] = number
            return True
        holder = self._read_holder(key, number)
        if holder == self.name:
            # a request that succeeded and lost its answer was repeated
            self._held[key] = number
            return True
        if holder:
            # starts to watch the holder
            self._is_dead(holder)
        return False

    def drop(self, key: str) -> None:
        """Give a claim back.

        Raises:
            Exception: the place fails.
        """
        number = self._held.pop(key, -1)
        # others may use the number again
        self._holders.pop(key, None)
        # first those of dead builds, or they would count again
        for each in range(number + 1):
            self._store.delete(f"{_CLAIMS}/{key}.{each}")

    def free(self, keys: Collection[str]) -> set[str]:
        """Return those of `keys` that no living build claims.

        Raises:
            Exception: the place fails.
        """
        numbers: dict[str, int] = {}
        for name, _, _ in self._store.list(_CLAIMS):
            if found := _NAME.match(name):
                numbers[found[1]] = max(int(found[2]), numbers.get(found[1], 0))
        free, signs = set(), dict[str, bool]()
        for key in keys:
            if key not in numbers:
                self._next.pop(key, None)
                self._holders.pop(key, None)
                free.add(key)
            elif self._is_void(key, numbers[key], signs):
                self._next[key] = numbers[key] + 1
                free.add(key)
        return free

    def close(self, timeout_s: float | None = None) -> None:
        """Make the claims of this build void, and end its heartbeats.

        `timeout_s`: longest time to wait for the last write, and for the deletion; None for the limit of an operation.
        """
        self._stop.set()
        if self._beating is not None:
            # a write that ended after the deletion would leave the object behind
            self._beating.join(self._limits.operation_s if timeout_s is None else timeout_s)
            deleted = self._guard.submit(WRITE, self._store.delete, f"{_BUILDS}/{self.name}")
            with contextlib.suppress(TimeoutError):
                deleted.exception(timeout_s)

    def _begin(self) -> None:
        """Write the first heartbeat, and go on in a thread."""
        with self._lock:
            if self._beating is None:
                self._beat(0)
                self._beating = threading.Thread(target=self._beat_on, name="nojit-claims", daemon=True)
                self._beating.start()

    def _beat(self, number: int) -> None:
        self._store.write(f"{_BUILDS}/{self.name}", str(number).encode())

    def _beat_on(self) -> None:
        number = 0
        while not self._stop.wait(self._limits.beat_s):
            number += 1
            self._guard.submit(WRITE, self._beat, number).exception()

    def _is_void(self, key: str, number: int, dead: dict[str, bool]) -> bool:
        """Return whether the holder of a claim is dead; False if the claim is gone.

        `dead`: whether each build is dead, as far as this look at the place found out.
        """
        known, holder = self._holders.get(key, (-1, ""))
        if known == number and not self._was_dead(holder, dead):
            return False
        # the known holder may have given the claim back, and a living build claimed the same number
        now = self._read_holder(key, number)
        return now is not None and (now == "" or self._was_dead(now, dead))

    def _was_dead(self, holder: str, dead: dict[str, bool]) -> bool:
        if holder not in dead:
            dead[holder] = holder != self.name and self._is_dead(holder)
        return dead[holder]

    def _read_holder(self, key: str, number: int) -> str | None:
        """Return the name of the build that holds a claim; None if the claim is gone, empty if it names no build."""
        try:
            held = self._store.read(f"{_CLAIMS}/{key}.{number}", _BYTES_MAX)
        except FileNotFoundError:
            return None
        if not _BUILD.match(held):
            return ""
        holder = held.decode()
        self._holders[key] = number, holder
        return holder

    def _is_dead(self, holder: str) -> bool:
        try:
            sign = self._store.read(f"{_BUILDS}/{holder}", _BYTES_MAX)
        except FileNotFoundError:
            return True
        now = time.monotonic()
        before = self._seen.get(holder)
        if before is None or before[0] != sign:
            self._seen[holder] = (sign, now)
            return False
        return now - before[1] > self._limits.expiry_s
