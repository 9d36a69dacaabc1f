"""How many variants a job holds. Pure.

A scheduler spends about a millisecond on any task, so a job should take seconds. But it should be short against what is left,
or the last jobs end late: jobs shrink towards the end of a build.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["JOB_S", "ROUNDS", "VARIANTS_MAX", "Batches"]

G = TypeVar("G", bound=Hashable)
C = TypeVar("C")

JOB_S: Final = 5.0
"""Time that a job should take, in seconds; `docs/scale.md` compares it with twice as much."""
# of a variant about which nothing is known
_GUESS_S: Final = 1.0
VARIANTS_MAX: Final = 64
"""Most variants of a job: a lost one repeats no more compilations."""
ROUNDS: Final = 2.5
"""Jobs of a whole length that wait for each slot; when fewer wait, at the end of a build, the jobs get shorter."""
# with so many workers, the shortest jobs take as long as the others: a scheduler bears 800 jobs a second
_SLOTS_FULL: Final = 4_000
# for each slot: with fewer left, the shortest jobs shrink to single variants, since all other workers wait for the last long job
_VARIANTS_LAST: Final = 0.6
# the least weight of the newest result in an estimate, which is a plain mean until then: a few short variants must not make a long job
_NEWEST_LEAST: Final = 0.03


class _Mean:
    """A mean that forgets old values slowly."""

    __slots__ = ("count", "value")

    def __init__(self, value: float = 0.0) -> None:
        self.value = value
        self.count = 0

    def add(self, new: float) -> None:
        """Count a value."""
        self.count += 1
        self.value += max(1 / self.count, _NEWEST_LEAST) * (new - self.value)


class Batches(Generic[G, C]):
    """Variants that wait for a job, in groups of the same kernel and arch, and estimates of their compile times.

    Args:
        job_s: time that a job should take, in seconds.
    """

    def __init__(self, job_s: float = JOB_S) -> None:
        self._job_s = job_s
        self._waiting: defaultdict[G, deque[C]] = defaultdict(deque)
        self._again: deque[tuple[G, list[C]]] = deque()
        self._seconds: dict[G, _Mean] = {}
        self._any_s = _Mean(_GUESS_S)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, group: G, call: C) -> None:
        """Add a variant to its group."""
        self._waiting[group].append(call)
        self._count += 1

    def put_again(self, group: G, calls: list[C]) -> None:
        """Add the variants of a job that failed; they become a job of their own, before all others."""
        if calls:
            self._again.append((group, calls))
            self._count += len(calls)

    def take(self, slots: int, following: int = 0) -> tuple[G, list[C]]:
        """Return the variants of the next job, all of one group.

        Args:
            slots: number of compilations that run at once.
            following: number of variants that will be put here later.
        """
        if self._again:
            group, calls = self._again.popleft()
        else:
            group, queue = next(iter(self._waiting.items()))
            calls = [queue.popleft() for _ in range(min(len(queue), self._size(group, slots, following)))]
            if not queue:
                del self._waiting[group]
        self._count -= len(calls)
        return group, calls

    def took(self, group: G, seconds: float) -> None:
        """Note the compile time of one variant of a group."""
        if group not in self._seconds:
            self._seconds[group] = _Mean()
        self._seconds[group].add(seconds)
        self._any_s.add(seconds)

    @property
    def mean_s(self) -> float:
        """Compile time of a variant of any group, in seconds."""
        return self._any_s.value

    def expected_s(self, group: G, count: int) -> float:
        """Return the time that `count` variants of a group should take, in seconds."""
        return self._seconds.get(group, self._any_s).value * count

    def _size(self, group: G, slots: int, following: int) -> int:
        fitting = self._job_s / max(self.expected_s(group, 1), 1e-3)
        left = (self._count + following) / max(slots, 1)
        least = min(fitting * min(1.0, slots / _SLOTS_FULL), left / _VARIANTS_LAST)
        return max(1, min(int(fitting), int(max(left / ROUNDS, least)), VARIANTS_MAX))
