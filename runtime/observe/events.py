"""What the runtime does seldom, and an operator wants to see: counted, logged, and told to whoever listens.

==== ========================================================================================== =======
open a bundle file was opened                                                                   INFO
load an image was loaded into the driver, at a first launch, a ``warmup`` or a ``preload``      INFO
plan a variant was chosen for a kind of call and made ready on a device                         DEBUG
miss a call that no variant serves; its error follows, or Triton's JIT makes it                 WARNING
hint a kind of call just misses a set of hints, and a variant with fewer serves it              INFO
==== ========================================================================================== =======

Each is one line of the logger ``nojit`` at that level, but after a kernel's first ``hint`` its others are at DEBUG; bundles that are passed over are a line and no event. A launch whose plan is known is none of these: it costs nothing
here. `logging` is not imported for it: a program that has not done so has nowhere to log to.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nojit.runtime.record import Record

if TYPE_CHECKING:
    import logging

__all__ = ["Counters", "Event", "HintMiss", "Listener", "add", "counters", "emit", "log", "note_hint_miss", "remove"]


class Event(Record):
    """One thing that was done, or could not be."""

    kind: str
    """``open``, ``load``, ``plan``, ``miss`` or ``hint``."""
    bundle: str
    """The id: the first twelve digits of its digest; empty if no bundle is for the device."""
    kernel: str
    """Empty if it is of a whole bundle."""
    variant: str
    """The id, as ``nojit inspect --kernel`` shows it; empty if there is none."""
    device: int
    """The ordinal; -1 if none has to do with it."""
    detail: str
    """The path of what was opened, the image that was loaded, why nothing serves, the hints that do not hold."""
    end_ns: int
    """When it was done, as `time.time_ns` counts."""
    duration_ns: int

    def __str__(self) -> str:
        names = (("bundle", self.bundle), ("kernel", self.kernel), ("variant", self.variant))
        words = [f"{name}={value}" for name, value in names if value]
        words += [f"device={self.device}"] if self.device >= 0 else []
        return _one_line(" ".join([self.kind, *words, f"us={self.duration_ns / 1000:.1f}", self.detail]).rstrip())


class HintMiss(Record):
    """Calls of a kernel that just miss a set of hints: a variant with fewer serves them, more slowly perhaps."""

    kernel: str
    bundle: str
    """The id."""
    variant: str
    """The id of what runs."""
    hints: tuple[tuple[str, int], ...]
    """The set: of each param, what its values were to be divisible by, or 1 for equal to 1."""
    failed: tuple[tuple[str, int, str], ...]
    """Those that do not hold, each with the value of the first such call, in words."""
    kinds: int
    """How many kinds of call: each is looked at once."""

    def __str__(self) -> str:
        wanted = " ".join(f"{param}:{hint}" for param, hint in self.hints)
        failed = ", ".join(f"{param}:{hint} (got {value})" for param, hint, value in self.failed)
        return f"kernel {self.kernel} misses {failed} of the hints {wanted}"


class Counters(Record):
    """How often since the process began, and how long altogether."""

    opened: int
    open_ns: int
    loaded: int
    """Images in the driver."""
    load_ns: int
    planned: int
    """Variants ready on a device; the time includes that of loading their images."""
    plan_ns: int
    missed: int
    """Calls that nothing serves."""
    miss_ns: int
    hint_missed: int
    """Kinds of call that just miss a set of hints."""
    hint_ns: int
    hint_misses: tuple[HintMiss, ...]
    """Which, by kernel, set and failing params; of the first 256."""


Listener: TypeAlias = Callable[[Event], object]

_KINDS: Final = ("open", "load", "plan", "miss", "hint")
# those of `logging`: DEBUG, INFO, WARNING
_LEVELS: Final = {"open": 20, "load": 20, "plan": 10, "miss": 30, "hint": 20}
_HINT_MISSES_MAX: Final = 256

# a finalizer that loads may run while this thread holds it
_lock = threading.RLock()
_counts = dict.fromkeys(_KINDS, 0)
_times = dict.fromkeys(_KINDS, 0)
# by all but the values and the count
_hint_misses: dict[tuple[object, ...], HintMiss] = {}
# those whose first was logged
_hint_kernels: set[tuple[str, str]] = set()
# replaced, never changed: an event goes to the ones that it found
_listeners: tuple[Listener, ...] = ()
_known_logger: logging.Logger | None = None


def counters() -> Counters:
    """Return how often each kind of event has happened in this process, and how long it took altogether."""
    with _lock:
        figures = [value for kind in _KINDS for value in (_counts[kind], _times[kind])]
        values: tuple[Any, ...] = (*figures, tuple(_hint_misses.values()))
    return Counters(*values)


def note_hint_miss(miss: HintMiss, began_ns: int, device: int) -> None:
    """Count a kind of call that just misses a set of hints, and tell of it; in the log, of a kernel's first one above all."""
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
    """Tell a function of every event from now on.

    It is called by the thread in which the event happened, while the call that caused it waits; what it raises reaches the
    caller.

    Returns:
        The function, which is what `remove` takes.
    """
    global _listeners  # noqa: PLW0603 - the list of listeners is the process's
    with _lock:
        _listeners = (*_listeners, listener)
    return listener


def remove(listener: Listener) -> None:
    """Tell a function no more; one that was added twice is told once from then on.

    Raises:
        ValueError: it was never added, or has been removed.
    """
    global _listeners  # noqa: PLW0603 - likewise
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
    """Count an event that is done, and tell of it.

    Args:
        kind: as of `Event`.
        began_ns: when, as `time.perf_counter_ns` counts.
        bundle: as of `Event`.
        kernel: likewise.
        variant: names it; called only if somebody is told.
        device: likewise.
        detail: likewise.
        level: that of the line, if not the kind's.
    """
    duration_ns = perf_counter_ns() - began_ns
    with _lock:
        _counts[kind] += 1
        _times[kind] += duration_ns
    level = _LEVELS[kind] if level is None else level
    logger = _logger(level)
    listeners = _listeners
    if logger is None and not listeners:
        return
    named = "" if variant is None else variant()
    event = Event(kind, bundle, kernel, named, device, detail, time_ns(), duration_ns)
    if logger is not None:
        # the event itself goes along, for formatters that write fields and not lines
        logger.log(level, "%s", event, extra={"nojit": event})
    for listener in listeners:
        listener(event)


def log(level: int, text: str) -> None:
    """Write a line that is no event, if the program logs at that level: nothing is counted, and no listener is told."""
    logger = _logger(level)
    if logger is not None:
        logger.log(level, "%s", _one_line(text))


def _one_line(text: str) -> str:
    # a path is not to look like the next line
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _logger(level: int) -> logging.Logger | None:
    """Return the logger, if the program logs and it is enabled for a level."""
    global _known_logger  # noqa: PLW0603 - there is one of the name in a process
    logger = _known_logger
    if logger is None:
        module = sys.modules.get("logging")
        # another thread may be importing it
        if module is None or not hasattr(module, "getLogger"):
            return None
        logger = module.getLogger("nojit")
        if not logger.handlers:
            # or Python writes warnings of libraries to standard error where nobody asked for logs
            logger.addHandler(module.NullHandler())
        # it remembers what it is asked: when a bundle is opened, and not at a first launch
        for seldom in _LEVELS.values():
            logger.isEnabledFor(seldom)
        _known_logger = logger
    return logger if logger.isEnabledFor(level) else None
