"""Events of the runtime, which are rare: nojit counts them, logs them, and passes them to listeners.

===== ========================================================================================== =======
open  a bundle file was opened                                                                   INFO
load  an image was loaded into the driver, at a first launch, a ``warmup`` or a ``preload``      INFO
plan  a variant was selected for a specialization and prepared on a device                       DEBUG
miss  a call without a matching variant; its error follows, or Triton's JIT runs it              WARNING
hint  a specialization just misses a set of hints, and runs a variant with fewer                 INFO
serve a function of Triton was found in a bundle, at its first call                             DEBUG
===== ========================================================================================== =======

Each event is one line of the logger ``nojit`` at the level shown; after a kernel's first ``hint``, its others have level DEBUG.
Skipped bundles are a line in the log, but no event. A launch with a cached plan is no event and costs nothing here. nojit does not
import `logging`: a program that has not imported it has no log.
"""

from __future__ import annotations

import sys
from _thread import RLock
from time import perf_counter_ns, time_ns

from nojit.runtime.base.frozen_record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable
    from typing import Any, Final, TypeAlias

__all__ = [
    "Counters",
    "Event",
    "HintMiss",
    "Listener",
    "Served",
    "add",
    "add_served",
    "counters",
    "emit",
    "log",
    "note_hint_miss",
    "remove",
]


class Event(Record):
    """One event."""

    kind: str
    """``open``, ``load``, ``plan``, ``miss``, ``hint`` or ``serve``."""
    bundle: str
    """Id of the bundle: the first twelve digits of its digest; empty if no bundle is for the device."""
    kernel: str
    """Name of the kernel; empty if the event concerns a whole bundle."""
    variant: str
    """Id of the variant, as ``nojit inspect --kernel`` shows it; empty if there is none."""
    device: int
    """Ordinal of the device; -1 if the event concerns no device."""
    detail: str
    """Path of an opened bundle, number of a loaded image, reason of a miss, the hints that are false, or the served function."""
    end_ns: int
    """End of the event, as `time.time_ns` counts."""
    duration_ns: int

    def __str__(self) -> str:
        names = (("bundle", self.bundle), ("kernel", self.kernel), ("variant", self.variant))
        words = [f"{name}={value}" for name, value in names if value]
        words += [f"device={self.device}"] if self.device >= 0 else []
        return _one_line(" ".join([self.kind, *words, f"us={self.duration_ns / 1000:.1f}", self.detail]).rstrip())


class HintMiss(Record):
    """Calls of a kernel that just miss a set of hints: they run a variant with fewer hints, which may be slower."""

    kernel: str
    bundle: str
    """Id of the bundle."""
    variant: str
    """Id of the variant that runs."""
    hints: tuple[tuple[str, int], ...]
    """The set of hints: for each param, the divisor of its value, or 1 for "equal to 1"."""
    failed: tuple[tuple[str, int, str], ...]
    """The hints that are false, each with the value of the first such call, as text."""
    kinds: int
    """Number of specializations; each is checked once."""

    def __str__(self) -> str:
        wanted = " ".join(f"{param}:{hint}" for param, hint in self.hints)
        failed = ", ".join(f"{param}:{hint} (got {value})" for param, hint, value in self.failed)
        return f"kernel {self.kernel} misses {failed} of the hints {wanted}"


class Served(Record):
    """Calls of a function of Triton while bundles served the process."""

    function: str
    """The function: ``module:name``."""
    kernel: str
    """Name of its kernel in the bundle; empty if no bundle serves the function."""
    bundle: str
    """Ids of the bundles with the kernel, separated by commas."""
    launches: int
    """Calls that were launched from the bundle."""
    misses: int
    """Calls that no variant served."""
    nearest_configs: int
    """Keys of its autotuner that were not recorded: the autotuner took the config of the nearest recorded key."""


class Counters(Record):
    """Number and total time of the events since the process began."""

    opened: int
    open_ns: int
    loaded: int
    """Images loaded into the driver."""
    load_ns: int
    planned: int
    """Variants prepared on a device; the time includes loading their images."""
    plan_ns: int
    missed: int
    """Calls without a matching variant."""
    miss_ns: int
    hint_missed: int
    """Specializations that just miss a set of hints."""
    hint_ns: int
    hint_misses: tuple[HintMiss, ...]
    """The hint misses by kernel, set and false params; the first 256."""
    served: tuple[Served, ...]
    """Calls of functions of Triton, by function, if `nojit.serve` or ``NOJIT_SERVE`` serves or served the process."""


Listener: TypeAlias = "Callable[[Event], object]"

_KINDS: Final = ("open", "load", "plan", "miss", "hint")
# counted by `Served`
_UNCOUNTED: Final = "serve"
# levels of `logging`: DEBUG, INFO, WARNING
_LEVELS: Final = {"open": 20, "load": 20, "plan": 10, "miss": 30, "hint": 20, "serve": 10}
_HINT_MISSES_MAX: Final = 256

# reentrant: a finalizer may load while this thread holds the lock
_lock = RLock()
_counts = dict.fromkeys(_KINDS, 0)
_times = dict.fromkeys(_KINDS, 0)
# by everything except values and count
_hint_misses: dict[tuple[object, ...], HintMiss] = {}
# kernels whose first hint miss was logged
_hint_kernels: set[tuple[str, str]] = set()
# one for each server of the process
_served: list[Callable[[], Iterable[Served]]] = []
# replaced, never changed: an event goes to the listeners that it found
_listeners: tuple[Listener, ...] = ()
_known_logger: logging.Logger | None = None


def counters() -> Counters:
    """Return how often each kind of event has happened in this process, and its total time."""
    with _lock:
        figures = [value for kind in _KINDS for value in (_counts[kind], _times[kind])]
        misses, servers = tuple(_hint_misses.values()), [*_served]
    # without the lock: a server has its own
    served = tuple([each for server in servers for each in server()])
    values: tuple[Any, ...] = (*figures, misses, served)
    return Counters(*values)


def add_served(served: Callable[[], Iterable[Served]]) -> None:
    """Let `counters` ask a function for the counts of a server, from now on and after the server has ended."""
    with _lock:
        _served.append(served)


def note_hint_miss(miss: HintMiss, began_ns: int, device: int) -> None:
    """Count a specialization that just misses a set of hints, and report it; the log shows a kernel's first one at INFO."""
    key = (miss.kernel, miss.bundle, miss.variant, miss.hints, tuple((param, hint) for param, hint, _ in miss.failed))
    with _lock:
        known = _hint_misses.get(key)
        if known is not None:
            _hint_misses[key] = HintMiss(
                known.kernel, known.bundle, known.variant, known.hints, known.failed, known.kinds + miss.kinds
            )
        elif len(_hint_misses) < _HINT_MISSES_MAX:
            _hint_misses[key] = miss
        first = (miss.bundle, miss.kernel) not in _hint_kernels
        _hint_kernels.add((miss.bundle, miss.kernel))
    emit(
        "hint",
        began_ns,
        bundle=miss.bundle,
        kernel=miss.kernel,
        variant=lambda: miss.variant,
        device=device,
        detail=str(miss),
        level=None if first else 10,
    )


def add(listener: Listener) -> Listener:
    """Call a function for every event from now on.

    The thread of the event calls it, while the call that caused the event waits. Its exceptions reach that call's caller.

    Returns:
        The function, for `remove`.
    """
    global _listeners  # noqa: PLW0603 - the list of listeners is the process's
    with _lock:
        _listeners = (*_listeners, listener)
    return listener


def remove(listener: Listener) -> None:
    """Stop calling a function for events; if it was added twice, it is still called once per event.

    Raises:
        ValueError: it was never added, or has been removed.
    """
    global _listeners  # noqa: PLW0603 - as above
    with _lock:
        left = list(_listeners)
        left.remove(listener)
        _listeners = tuple(left)


def emit(
    kind: str,
    began_ns: int,
    *,
    bundle: str = "",
    kernel: str = "",
    variant: Callable[[], str] | None = None,
    device: int = -1,
    detail: str = "",
    level: int | None = None,
) -> None:
    """Count a finished event, log it, and pass it to the listeners.

    Args:
        kind: as in `Event`.
        began_ns: start, as `time.perf_counter_ns` counts.
        bundle: as in `Event`.
        kernel: as in `Event`.
        variant: returns the variant's id; called only for a log line or a listener.
        device: as in `Event`.
        detail: as in `Event`.
        level: level of the log line, if not that of the kind.
    """
    # before `variant`, which may take its time
    duration_ns, end_ns = perf_counter_ns() - began_ns, time_ns()
    if kind != _UNCOUNTED:
        with _lock:
            _counts[kind] += 1
            _times[kind] += duration_ns
    level = _LEVELS[kind] if level is None else level
    logger = _logger(level)
    listeners = _listeners
    if logger is None and not listeners:
        return
    named = "" if variant is None else variant()
    event = Event(kind, bundle, kernel, named, device, detail, end_ns, duration_ns)
    if logger is not None:
        # formatters that write fields need the event itself
        logger.log(level, "%s", event, extra={"nojit": event})
    for listener in listeners:
        listener(event)


def log(level: int, text: str) -> None:
    """Write a log line without an event, if the program logs at that level."""
    logger = _logger(level)
    if logger is not None:
        logger.log(level, "%s", _one_line(text))


def _one_line(text: str) -> str:
    # a path must not look like a second line
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _logger(level: int) -> logging.Logger | None:
    """Return the logger, if the program logs and the logger is enabled for a level."""
    global _known_logger  # noqa: PLW0603 - there is one of the name in a process
    logger = _known_logger
    if logger is None:
        module = sys.modules.get("logging")
        # another thread may be importing `logging`
        if module is None or not hasattr(module, "getLogger"):
            return None
        logger = module.getLogger("nojit")
        if not logger.handlers:
            # without a handler, Python would write a library's warnings to standard error
            logger.addHandler(module.NullHandler())
        # `isEnabledFor` caches its answer: fill the cache when a bundle is opened, not at a first launch
        for seldom in _LEVELS.values():
            logger.isEnabledFor(seldom)
        _known_logger = logger
    return logger if logger.isEnabledFor(level) else None
