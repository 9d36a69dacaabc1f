"""The recorder of a process: writes each new specialization, closure, winner and problem once, and counts launches in memory.

`nojit.runtime.recording.triton_hooks` calls it from Triton's launch path. No method raises: a failure becomes a problem in the recording, and
a recording that cannot be written ends with one line on standard error. The program must behave as it does without a recorder.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from nojit.runtime.base.strict_json import Json
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import NojitError, RecordingError
from nojit.runtime.recording import generated_kernels
from nojit.runtime.recording.closure import Closure, capture
from nojit.runtime.recording.closure import digest_of as closure_digest
from nojit.runtime.recording.distributions import Distributions
from nojit.runtime.recording.file import Writer
from nojit.runtime.recording.known_specialization import Known
from nojit.runtime.recording.specialization import digest_of as specialization_digest
from nojit.runtime.recording.specialization import functions_among, read_specialization
from nojit.runtime.recording.triton_functions import place_of
from nojit.runtime.recording.winner_spelling import encoded_config, encoded_key

__all__ = ["Call", "Recorder", "say"]

P = ParamSpec("P")
R = TypeVar("R")


def say(text: str) -> None:
    """Write one line to standard error. The program may have closed it, and may turn warnings into errors."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"nojit: {text}\n")


class Call:
    """A call as Triton's binder found it.

    Attributes:
        function: the ``@triton.jit`` function.
        bound: every param's value by name.
        found: for each param, the type and the hint.
        options: the options of the call.
        target: Triton's description of the device.
        device: ordinal of the device.
    """

    __slots__ = ("bound", "device", "found", "function", "options", "target")

    def __init__(
        self,
        function: Any,
        bound: Mapping[str, Any],
        found: Sequence[Any],
        options: Mapping[str, Any],
        *,
        target: Any,
        device: Any,
    ) -> None:
        self.function = function
        self.bound = bound
        self.found = found
        self.options = options
        self.target = target
        self.device = device

    @property
    def arch(self) -> str:
        """Arch of the device in nojit's spelling, ``sm_90``; another vendor's as Triton spells it."""
        arch = self.target.arch
        return f"sm_{arch}" if isinstance(arch, int) else str(arch)


def _safe(method: Callable[Concatenate[Recorder, P], R]) -> Callable[Concatenate[Recorder, P], R | None]:
    """Keep a method's failures from the program, and let one thread at a time into it; once recording has stopped, do nothing."""

    def guarded(self: Recorder, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        with self.lock:
            if self.stopped:
                return None
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the program goes on
                self.fail(error, _place(args[0]) if args else "")
            return None

    functools.update_wrapper(guarded, method)
    return guarded


def _place(subject: Any) -> str:
    """Return ``module:qualname`` of the kernel that a method is about."""
    if isinstance(subject, Known):
        described = subject.specialization or {}
        return f"{described.get('module', '')}:{described.get('qualname', '')}"
    with contextlib.suppress(Exception):
        return "{}:{}".format(*place_of(subject.function if isinstance(subject, Call) else subject))
    return ""


class Recorder:
    """Records one process. Safe to use from several threads.

    Args:
        folder: the recording's folder.
        facts: returns the first line's facts for the arch and the ordinal of the first call's device; for ``""`` and None if
            there was no call.

    Attributes:
        lock: held by the thread that writes.
        stopped: whether recording has ended, by choice or because of a failure.
    """

    def __init__(self, folder: Path, facts: Callable[[str, Any], Mapping[str, Json]]) -> None:
        self.lock = threading.RLock()
        self.stopped = False
        self._folder = folder
        self._facts = facts
        self._writer: Writer | None = None
        self._device: tuple[str, Any] = ("", None)
        self._known: dict[str, Known] = {}
        self._closures: dict[int, tuple[weakref.ref[Any], str, str]] = {}
        self._written: set[str] = set()
        self._problems: set[tuple[str, str]] = set()
        self._inductors: set[str] = set()
        self._distributions = Distributions()

    @_safe
    def meet(self, call: Call) -> Known:
        """Return what is known of a call's specialization."""
        self._device = self._device if self._device[0] else (call.arch, call.device)
        closures = {"": self._closure(call.function)}
        for name, function in functions_among(call.bound).items():
            closures[name] = self._closure(function)
        found = read_specialization(
            call.function, call.bound, call.found, call.options, arch=call.arch, closures=closures
        )
        places = [(param.num, param.name) for param in call.function.params if not param.is_constexpr]
        known = Known(found, places)
        return self._known.setdefault(known.digest, known)

    @_safe
    def warmed(self, known: Known) -> None:
        """Write a specialization that the program warmed up."""
        if known.digest and known.flag("warmup") and not known.flagged("launched"):
            self._write_specialization(known, trial=False, warmup=True)

    @_safe
    def tried(self, known: Known) -> None:
        """Write a specialization that an autotuner times."""
        if known.digest and known.flag("trial") and not known.flagged("launched"):
            self._write_specialization(known, trial=True, warmup=False)

    @_safe
    def launched(self, known: Known, number: int, grid: Any, args: Sequence[Any]) -> None:
        """Write the first, second, fourth, eighth, ... launch of a specialization.

        Args:
            known: the specialization.
            number: item of its `launches`.
            grid: the grid, evaluated.
            args: arguments for all params, in order.
        """
        count = known.count(number)
        if count < known.due or not known.digest:
            return
        known.due = 2 * count
        if known.flag("launched"):
            self._write_specialization(known, trial=False, warmup=False)
        self._write_count(known, count)
        sample: dict[str, Json] = {"grid": [index(each) for each in grid], "values": known.values(args)}
        self._add("sample", specialization=known.digest, **sample)

    @_safe
    def won(self, function: Any, key: Sequence[tuple[str, Any]], config: Any, time_ms: float | None) -> None:
        """Write the choice of an autotuner.

        Args:
            function: the ``@triton.jit`` function below it.
            key: names and values of the key.
            config: Triton's config.
            time_ms: its median time; None if nothing was timed.
        """
        module, qualname = place_of(function)
        self._add(
            "winner",
            module=module,
            qualname=qualname,
            closure=self._closure(function),
            key=[[name, encoded_key(value)] for name, value in key],
            config=encoded_config(config, qualname),
            time_ns=None if time_ms is None else round(time_ms * 1e6),
        )

    @_safe
    def won_by_inductor(
        self, tuner: Any, source: Any, options: Mapping[str, Any], config: Any, names: Sequence[str]
    ) -> Known:
        """Write a kernel that torch.compile generated, and the config that Inductor chose; return its specialization.

        Args:
            tuner: Inductor's ``CachingAutotuner``.
            source: the ``ASTSource`` of the chosen config.
            options: options of that compile.
            config: the config.
            names: names of the arguments that its launches pass, in order.
        """
        closure = generated_kernels.capture_generated(tuner.fn)
        digest = self._write_closure(closure)
        properties = tuner.device_props
        arch = f"sm_{properties.cc}" if isinstance(properties.cc, int) else str(properties.cc)
        self._device = self._device if self._device[0] else (arch, properties.index)
        found = generated_kernels.read_generated(tuner.fn, source, options, arch=arch, closure=digest)
        typed = {name for name, _ in found["types"]}
        places = [(place, name) for place, name in enumerate(names) if name in typed]
        known = self._known.setdefault(specialization_digest(found), Known(found, places))
        if known.flag("launched"):
            self._write_specialization(known, trial=False, warmup=False)
        if arch not in self._inductors:
            self._inductors.add(arch)
            self._add("inductor", arch=arch, **generated_kernels.facts_of_triton())
        winner = {
            "key": generated_kernels.key_of(tuner),
            "config": encoded_config(config, found["qualname"]),
            "time_ns": None,
        }
        self._add("winner", module=found["module"], qualname=found["qualname"], closure=digest, **winner)
        return known

    @_safe
    def lack(self, function: Any, what: str, where: str = "") -> None:
        """Write a problem, once.

        Args:
            function: the ``@triton.jit`` function that the problem is about; None for another place.
            what: what the recording lacks and why.
            where: that place; empty for the whole program.
        """
        self._write_problem(what, where or _place(function))

    @_safe
    def flush(self) -> None:
        """Write how often each specialization was launched so far."""
        for known in self._known.values():
            if known.flagged("launched") and (count := known.read()):
                self._write_count(known, count)

    def fail(self, error: Exception, where: str) -> None:
        """Make a failure a problem of the recording; stop if the recording cannot be written.

        `where`: ``module:qualname`` of the kernel.
        """
        with self.lock:
            if self.stopped:
                return
            failure: Exception | None = error if isinstance(error, RecordingError) else None
            try:
                if failure is None:
                    self._write_problem(_described(error), where)
            except Exception as another:  # noqa: BLE001 - the program goes on
                failure = another
            if failure is not None:
                self.stopped = True
                say(f"recording stopped: {failure}")

    def follow_fork(self) -> None:
        """Go on in a forked child, with a file of its own and no launches."""
        # another thread of the parent may have held the lock
        self.lock = threading.RLock()
        self._writer = None
        for known in self._known.values():
            known.reset()
        # a parent that has ended has merged and deleted the folder
        self.stopped = self.stopped or (bool(self._known) and not self._folder.is_dir())

    def _closure(self, function: Any) -> str:
        """Return the digest of a function's closure, and write the closure if it is new."""
        text = str(getattr(function, "src", ""))
        reference, read, digest = self._closures.get(id(function), (None, "", ""))
        # an id may be another function's by now, and a program may replace a text
        if reference is not None and reference() is function and read == text:
            return digest
        digest = self._write_closure(capture(function))
        self._closures[id(function)] = weakref.ref(function), text, digest
        return digest

    def _write_closure(self, closure: Closure) -> str:
        """Return the digest of a closure, and write the closure if it is new."""
        digest = closure_digest(closure)
        if digest not in self._written:
            self._add("closure", digest=digest, closure=closure)
            self._written.add(digest)
            self._write_distributions(closure)
        return digest

    def _write_distributions(self, closure: Closure) -> None:
        for module in sorted({each["module"] for each in closure["definitions"]}):
            found = self._distributions.new_of(module)
            if found is not None:
                self._add("distribution", **found)

    def _write_specialization(self, known: Known, *, trial: bool, warmup: bool) -> None:
        self._add(
            "specialization", digest=known.digest, specialization=known.specialization, trial=trial, warmup=warmup
        )

    def _write_count(self, known: Known, count: int) -> None:
        self._add("launches", process=self._open().process, specialization=known.digest, count=count)

    def _write_problem(self, what: str, where: str) -> None:
        if (what, where) not in self._problems:
            self._problems.add((what, where))
            self._add("problem", what=what, where=where)

    def _add(self, kind: str, **fields: Json) -> None:
        self._open().add(kind, **fields)

    def _open(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self._folder, self._facts(*self._device))
        return self._writer


def _described(error: Exception) -> str:
    """Return an error as a problem, without paths of the machine."""
    if isinstance(error, OSError):
        return f"expected a kernel whose source can be read, got: {worded(error)}"
    return str(error) if isinstance(error, NojitError) else f"{type(error).__name__}: {error}"
