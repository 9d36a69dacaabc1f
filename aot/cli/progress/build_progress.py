"""Progress of a build: a bar on a terminal, occasional lines elsewhere, nothing with -q."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from nojit.aot.cli.console import Output, clean, duration, rich_console
from nojit.aot.compile.job_runner import Finished

if TYPE_CHECKING:
    from nojit.aot.plan.plan import Planned
    from rich.progress import Progress

__all__ = ["Counts", "Lines", "View", "follow_build"]

# without a terminal, a line appears after this share of the work or after this many seconds
_SHARE = 0.1
_SECONDS = 15.0


@dataclass(slots=True)
class Counts:
    """Counts of a build's progress. Variants with the same machine code are compiled once and count once."""

    expected: int = 0
    """Number of variants to compile; it is known before the first compilation ends, and falls if another builder compiles some."""
    compiled: int = 0
    """Number of successful compilations."""
    failed: int = 0
    hits: int = 0
    """Number of variants that came from the cache."""
    current: str = ""
    """Name of the kernel of the last event."""
    _keys: set[str] = field(default_factory=set)

    @property
    def ended(self) -> int:
        """Number of compilations that ended, with or without success."""
        return self.compiled + self.failed

    def add(self, finished: Finished) -> None:
        """Add the result of one variant to the counts."""
        self.current = finished.job.variant.kernel
        if finished.job.key in self._keys:
            return
        if finished.error is not None:
            self.failed += 1
        elif not finished.cached:
            self.compiled += 1
        else:
            self.hits += 1
            return
        self._keys.add(finished.job.key)

    def summary(self) -> str:
        """Return the counts as text."""
        words = [f"{self.ended:,} of {self.expected:,} compiled"]
        if self.hits:
            words.append(f"{self.hits:,} cached")
        if self.failed:
            words.append(f"{self.failed:,} failed")
        return ", ".join(words)


class _Pace:
    """Estimate of the time that compilation still takes.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: Counts | None = None
        self.wait()

    def wait(self) -> None:
        """Start again: nothing compiles yet, or any longer."""
        self._began_s = self._clock()
        self._first: tuple[float, int] | None = None

    def left(self, counts: Counts) -> str:
        """Return the estimate as text; empty while too little is compiled for a sound one, and at the end.

        The first compilation waits until the processes have started, so the estimate counts from its end, and
        only after as much time as passed before it.
        """
        if self._counts is not None and counts is not self._counts:
            # another build
            self.wait()
        self._counts = counts
        if counts.ended in {0, counts.expected}:
            self.wait()
            return ""
        now = self._clock()
        if self._first is None:
            self._first = now, counts.ended
        first_s, before = self._first
        fresh = counts.ended - before
        if not fresh or now - first_s < first_s - self._began_s:
            return ""
        return f"about {duration((now - first_s) / fresh * (counts.expected - counts.ended))} left"


class View(Protocol):
    """Display of a build's progress."""

    def planned(self, event: Planned) -> None:
        """Show the progress of planning."""

    def changed(self, counts: Counts) -> None:
        """Show the progress of compilation.

        `counts`: numbers of requested, finished and cached compilations.
        """

    def failure(self, text: str) -> None:
        """Show a failed variant at once."""

    def warn(self, text: str) -> None:
        """Show a warning on its own line, even with -q."""

    def note(self, text: str) -> None:
        """Show a note on its own line, except with -q."""


class _Silent:
    def __init__(self, out: Output) -> None:
        self._out = out

    def planned(self, event: Planned) -> None:
        """Show nothing."""

    def changed(self, counts: Counts) -> None:
        """Show nothing."""

    def failure(self, text: str) -> None:
        """Show nothing: the summary at the end has every failure."""

    def warn(self, text: str) -> None:
        """Write the warning."""
        self._out.warn(text)

    def note(self, text: str) -> None:
        """Show nothing."""


class Lines:
    """Lines of progress: one after every tenth of the work, or every 15 seconds.

    Args:
        write: called with each line.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._last = clock()
        self._pace = _Pace(clock)
        self._counts: Counts | None = None
        self._shown = self._variants = 0

    def planned(self, event: Planned) -> None:
        """Count the planned variants; write a line if the last one is 15 seconds old."""
        self._variants += event.variants
        self._pace.wait()
        now = self._clock()
        if now - self._last >= _SECONDS:
            self._last = now
            self._write(f"{_plan_words(event, self._variants)}: {event.kernel} {event.arch}")

    def changed(self, counts: Counts) -> None:
        """Write a line if one is due.

        `counts`: numbers of requested, finished and cached compilations.
        """
        now = self._clock()
        left = self._pace.left(counts)
        if counts is not self._counts:
            # another build: of debug twins
            self._counts, self._shown = counts, 0
        fresh = counts.ended - self._shown
        due = fresh >= counts.expected * _SHARE or now - self._last >= _SECONDS
        if fresh and (due or counts.ended == counts.expected):
            self._shown, self._last = counts.ended, now
            self._write(f"{', '.join(filter(None, (counts.summary(), left)))}: {counts.current}")

    def failure(self, text: str) -> None:
        """Write the failure."""
        self._write(text)

    warn = note = failure


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("planning", total=None, counts="")
        self._pace = _Pace(time.monotonic)
        self._variants = 0

    def planned(self, event: Planned) -> None:
        """Move the bar."""
        self._variants += event.variants
        self._pace.wait()
        # the next kernel has another total
        over = event.done == event.total
        self._progress.update(
            self._task,
            total=None if over else event.total,
            completed=0 if over else event.done,
            description="preparing" if over else clean(event.kernel),
            counts=_plan_words(event, self._variants),
        )

    def changed(self, counts: Counts) -> None:
        """Move the bar."""
        packing = counts.expected and counts.ended == counts.expected
        self._progress.update(
            self._task,
            total=counts.expected or None,
            completed=counts.ended,
            description="packing" if packing else clean(counts.current),
            # a narrow terminal cuts the end off
            counts=", ".join(filter(None, (self._pace.left(counts), counts.summary()))),
        )

    def failure(self, text: str) -> None:
        """Write the failure above the bar."""
        self._progress.console.print(clean(text), style="red")

    def warn(self, text: str) -> None:
        """Write the warning above the bar: direct writes to standard error could end up on the bar's line."""
        self._progress.console.print(clean(text))

    note = warn


def _plan_words(event: Planned, variants: int) -> str:
    return f"{event.done:,} of {event.total:,} kernels planned, {variants:,} variants"


@contextlib.contextmanager
def follow_build(out: Output) -> Iterator[View]:
    """Yield the view that fits standard error and the verbosity."""
    if out.quiet:
        yield _Silent(out)
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _open_bar() as progress:
            yield _Bar(progress)
    else:
        yield Lines(out.note)


def _open_bar() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn  # slow to import

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[counts]}", markup=False),
        console=rich_console(sys.stderr),
        transient=True,
    )
