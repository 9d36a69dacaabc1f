"""Progress of a tuning run: a bar on a terminal, lines elsewhere, nothing with -q."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nojit.aot.cli.console import Output, clean, counted, duration, rich_console
from nojit.aot.tune.measure.events import Event, Fault, Listed, Lost
from nojit.aot.tune.measure.request import ProblemRun, View
from nojit.aot.tune.store.records import Device

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Lines", "follow_tuning"]

_SECONDS = 15.0
_SHARE = 0.1


class _Silent:
    def begin(self, device: Device, todo: int, known: int) -> None:
        """Show nothing."""

    def problem(self, listed: Listed) -> None:
        """Show nothing."""

    def event(self, listed: Listed, event: Event) -> None:
        """Show nothing: the final summary counts wrong and failed configs."""

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        """Show nothing."""


class _Counting:
    """Base of views that count problems and pairs."""

    def __init__(self, write: Callable[[str], None], *, detailed: bool = False) -> None:
        self.write = write
        self.detailed = detailed
        self.todo = self.done = self.pairs = 0

    def begin(self, device: Device, todo: int, known: int) -> None:
        """Write the device and the number of problems.

        `todo`: problems to measure; `known`: problems already measured.
        """
        self.todo = todo
        before = f", {known:,} measured before" if known else ""
        self.write(f"{device.name} ({device.arch}): {counted(todo, 'problem')}{before}")

    def event(self, listed: Listed, event: Event) -> None:
        """Write each death of the measuring process and, if `detailed`, each wrong or failed config.

        `listed`: the problem.
        """
        place = f"{listed.kernel}, {listed.name}"
        if isinstance(event, Fault) and self.detailed:
            self.write(f"{place}: {event.status}: {event.detail}")
        elif isinstance(event, Lost):
            self.write(f"{place}: {event.reason}; starting another")

    def count(self, summary: ProblemRun) -> None:
        """Count a finished problem."""
        self.done += 1
        self.pairs += summary.configs

    def summary(self) -> str:
        """Return the counts as text."""
        return f"{self.done:,} of {self.todo:,} problems, {self.pairs:,} pairs"


class Lines(_Counting):
    """Lines of progress: one after every tenth of the problems, or every 15 seconds.

    Args:
        write: called with each line.
        detailed: also write each wrong or failed config with the reason.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self, write: Callable[[str], None], *, detailed: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(write, detailed=detailed)
        self._clock = clock
        self._last = clock()
        self._shown = 0

    def problem(self, listed: Listed) -> None:
        """Show nothing until the problem ends."""

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        """Write a line if one is due.

        `left_s`: estimated seconds until the end.
        """
        self.count(summary)
        now = self._clock()
        due = self.done - self._shown >= self.todo * _SHARE or now - self._last >= _SECONDS
        if due or self.done == self.todo:
            self._shown, self._last = self.done, now
            left = f", about {duration(left_s)} left" if self.done < self.todo else ""
            self.write(f"{self.summary()}{left}: {summary.kernel}")


class _Bar(_Counting):
    def __init__(self, progress: Progress, *, detailed: bool) -> None:
        super().__init__(lambda text: progress.console.print(clean(text)), detailed=detailed)
        self._progress = progress
        self._task = progress.add_task("preparing", total=None, counts="", left="")

    def problem(self, listed: Listed) -> None:
        """Show the problem beside the bar.

        `listed`: the problem.
        """
        self._progress.update(self._task, total=self.todo, description=clean(f"{listed.kernel}: {listed.name}"))

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        """Move the bar."""
        self.count(summary)
        left = f"about {duration(left_s)} left"
        self._progress.update(self._task, completed=self.done, counts=self.summary(), left=left)


@contextlib.contextmanager
def follow_tuning(out: Output) -> Iterator[View]:
    """Yield a bar if standard error is a terminal, lines if it is not, or a silent view with -q."""
    detailed = out.verbosity > 0
    if out.quiet:
        yield _Silent()
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _open_bar() as progress:
            yield _Bar(progress, detailed=detailed)
    else:
        yield Lines(out.note, detailed=detailed)


def _open_bar() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn  # slow to import

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[counts]} {task.fields[left]}", markup=False),
        console=rich_console(sys.stderr),
        transient=True,
    )
