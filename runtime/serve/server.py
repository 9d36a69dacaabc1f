"""Serve functions of Triton from bundles: find each function's kernel, check that its source is the recorded one, count its calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any

from nojit.runtime import _core, loader
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, NoMatchingVariantError, few
from nojit.runtime.frozen_record import Record
from nojit.runtime.loader import Bundle
from nojit.runtime.observe.events import Served, emit
from nojit.runtime.recording.closure import drift_of, place_of
from nojit.runtime.recording.generated import MODULE
from nojit.runtime.recording.origins import ATTACHMENT, Origin, Origins, read_origins
from nojit.runtime.serve.function import ADVICE, Function, Host, Unserved
from nojit.runtime.serve.hosts import ATTRIBUTE
from nojit.runtime.serve.inductor import Generated
from nojit.runtime.serve.kernel import ServedKernel, warn_of_capture
from nojit.runtime.serve.settings import Settings
from nojit.runtime.serve.winners import choose

__all__ = ["Server", "innermost"]


class _Known(Record):
    """A kernel of a bundle."""

    bundle: Bundle
    origin: Origin
    triton: str
    """The Triton version of its recording."""


class Server:
    """Bundles whose kernels stand for functions of Triton. Safe to use from several threads.

    Args:
        settings: what to serve, and how.

    Attributes:
        recorded: origins of the first bundle, whose versions the stand-in tells.

    Raises:
        FileNotFoundError: a path does not exist, or holds no bundle.
        BundleError: a bundle is damaged, or was not built from a recording.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.recorded: Origins | None = None
        # reentrant: a finalizer may launch while this thread holds the lock
        self._lock = threading.RLock()
        self._bundles: list[Bundle] = []
        # the most important bundle comes first
        self._known: dict[tuple[str, str], list[_Known]] = {}
        self._unbuilt: set[tuple[str, str]] = set()
        self._kernels: dict[tuple[int, str], ServedKernel] = {}
        self._functions: list[Function | Unserved] = []
        # by the id of a function, which its value keeps
        self._own: dict[int, Function | Unserved] = {}
        self._marked: list[weakref.ref[Any]] = []
        self._prepared: set[int] = set()
        try:
            for path in settings.paths:
                self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: str) -> None:
        bundle = loader.load(path)
        self._bundles.append(bundle)
        seen: set[tuple[str, str]] = set()
        for file in bundle.files:
            origins = _origins_of(file)
            self.recorded = self.recorded or origins
            for origin in origins.kernels:
                # `nojit build --keep-going` leaves out a kernel whose variants all failed to compile
                if origin.kernel not in file.kernels:
                    self._unbuilt.add((origin.module, origin.qualname))
                # files of several archs describe the same kernels
                elif (origin.kernel, origin.closure) not in seen:
                    seen.add((origin.kernel, origin.closure))
                    known = self._known.setdefault((origin.module, origin.qualname), [])
                    known.append(_Known(bundle, origin, origins.triton))

    def close(self) -> None:
        """Close the bundles, and forget the functions. Loaded variants stay loaded."""
        with self._lock:
            for marked in self._marked:
                function = marked()
                if function is not None:
                    vars(function).pop(ATTRIBUTE, None)
            self._marked.clear()
            for bundle in self._bundles:
                bundle.close()

    def find(self, function: Any, host: Host, module: str = "") -> Function | Unserved:
        """Return what serves a function; look for it at the first call.

        Args:
            function: the ``@triton.jit`` function.
            host: whose function it is.
            module: its recorded module, if not its own.
        """
        with self._lock:
            known: Any = vars(function).get(ATTRIBUTE)
            if known is not None:
                served: Function | Unserved = getattr(known, "owner", known)
                return served
            own, qualname = place_of(function)
            found = self._find(function, host, [module or own], qualname)
            self._functions.append(found)
            self._marked.append(weakref.ref(function))
            vars(function)[ATTRIBUTE] = found.handle if isinstance(found, Function) else found
            return found

    def find_own(self, function: Any, host: Host) -> Function | Unserved:
        """Return what serves a function, without a mark on it; look for it at the first call.

        Its module may have another name than in the recording.

        Args:
            function: the ``@triton.jit`` function.
            host: whose function it is.
        """
        with self._lock:
            found = self._own.get(id(function))
            if found is None:
                own, qualname = place_of(function)
                # a loader may name modules by the version of their package
                others = [module for module, name in (*self._known, *self._unbuilt) if name == qualname]
                found = self._find(function, host, [*dict.fromkeys((own, *others))], qualname)
                self._functions.append(found)
                self._own[id(function)] = found
            return found

    def _find(self, function: Any, host: Host, modules: Sequence[str], qualname: str) -> Function | Unserved:
        """Return what serves a function: the kernel of the first module in which its source is the recorded one."""
        began_ns, miss = perf_counter_ns(), self.settings.miss
        findings: list[tuple[str, tuple[tuple[str, str], ...]]] = []
        for module in modules:
            place, spelled = (module, qualname), f"{module}:{qualname}"
            drifts: list[tuple[str, str]] = []
            for known in self._known.get(place, ()):
                drift = _drift_of(function, known, host.version)
                if not drift:
                    kernel = self._kernel(known)
                    emit("serve", began_ns, bundle=kernel.bundle, kernel=kernel.name, detail=spelled)
                    return Function(function, host, miss, kernel, known.origin)
                drifts.append((known.origin.kernel, drift))
            if drifts:
                findings.append((f"{spelled} is not the function that was recorded", tuple(drifts)))
            elif place in self._unbuilt:
                what = f"{spelled} was recorded, but the build left it out: expected a build without failures"
                findings.append((what, ()))
        own = f"{modules[0]}:{qualname}"
        what, reasons = findings[0] if findings else (f"no bundle has a kernel of {own}", ())
        error = NoMatchingVariantError(what, where=few([*self.settings.paths], 4), reasons=reasons)
        return Unserved(function, host, miss, own, error.advise(ADVICE))

    def _kernel(self, known: _Known) -> ServedKernel:
        key = (id(known.bundle), known.origin.kernel)
        kernel = self._kernels.get(key)
        if kernel is None:
            sources = known.bundle.sources(known.origin.kernel)
            made = ServedKernel(known.origin.kernel, sources, known.origin, self._prepare)
            kernel = self._kernels[key] = made
        return kernel

    def _prepare(self, device: int) -> None:
        """Load everything for a device before the first launch there, if that was asked for."""
        if not self.settings.preload or device in self._prepared:
            return
        with self._lock:
            if device not in self._prepared:
                warn_of_capture("all kernels are")
                self.preload(device)

    def preload(self, device: int | None = None) -> int:
        """Load every recorded variant for a device, by default the current one; return the number of images.

        Raises:
            DriverError: the driver rejects an image.
        """
        ordinal = _core.current_device() if device is None else device
        loaded = 0
        for bundle in self._bundles:
            for kernel in map(bundle.kernel, bundle.kernels):
                loaded += kernel.load_variants(ordinal, None) if kernel.fits(ordinal) else 0
        self._prepared.add(ordinal)
        return loaded

    def choose(self, function: Function | Unserved, key: tuple[Any, ...], configs: list[Any]) -> Any:
        """Return the recorded config for an autotuner's key, exact or nearest; None if the policy allows to time.

        Args:
            function: what serves the autotuner's function.
            key: the autotuner's key of a call.
            configs: the autotuner's configs.

        Raises:
            NoMatchingVariantError: no recorded winner is near, and the policy is ``error``.
        """
        if isinstance(function, Unserved):
            if self.settings.miss == "error":
                function.miss()
                raise function.error
            return None
        choice = choose(function.origin.winners, key, configs)
        if choice is not None:
            function.nearest_configs += not choice.exact
            return choice.config
        function.misses += 1
        spelled = f"{function.origin.module}:{function.origin.qualname}"
        error = function.kernel.missed(f"no recorded choice of {spelled}'s autotuner is near", got=f"the key {key}")
        if self.settings.miss == "error":
            raise error.advise(ADVICE)
        return None

    def generated(self, function: Any, key: str, host: Host) -> Generated | None:
        """Return the recorded kernel for a function that torch.compile generated, and the key of its autotuner.

        Args:
            function: the ``@triton.jit`` function.
            key: see `nojit.runtime.recording.generated.key_of`.
            host: whose function it is.

        Returns:
            None if the policy lets Inductor compile it.

        Raises:
            NoMatchingVariantError: nothing was recorded for it, and the policy is ``error``.
        """
        found = self.find(function, host, MODULE)
        if isinstance(found, Function):
            winner = next((each for each in found.origin.winners if each.key == (key,)), None)
            if winner is not None:
                return Generated(found, winner.config, found.kernel.options_of(winner.config))
        if isinstance(found, Unserved):
            found.miss()
            if self.settings.miss == "error":
                raise found.error
            return None
        found.misses += 1
        if self.settings.miss != "error":
            return None
        what = f"torch.compile's kernel {found.kernel.name} was not recorded with these types and sizes"
        raise found.kernel.missed(what).advise(ADVICE)

    def served(self) -> Iterator[Served]:
        """Yield the counts of each function that was called."""
        with self._lock:
            functions = [*self._functions]
        for each in functions:
            spelled = "{}:{}".format(*place_of(each.function))
            if isinstance(each, Function):
                kernel = each.kernel
                yield Served(spelled, kernel.name, kernel.bundle, each.launches, each.misses, each.nearest_configs)
            else:
                yield Served(spelled, "", "", 0, each.misses, 0)


def innermost(function: Any) -> Any:
    """Return the ``@triton.jit`` function in autotuners, heuristics and other decorators."""
    while not hasattr(function, "pre_run_hooks"):
        function = function.fn
    return function


def _origins_of(file: BundleFile) -> Origins:
    if ATTACHMENT not in file.attachments:
        what = "expected a bundle that was built from a recording: nojit build RECORDING"
        raise BundleError(what, got="a bundle without origins", where=file.path)
    return read_origins(file.attachment(ATTACHMENT), file.path)


def _drift_of(function: Any, known: _Known, triton: str) -> str:
    """Say how a live function differs from the recorded one; empty if it does not. A stand-in for Triton has no version."""
    # what follows a plus sign names a build of the same release
    if triton and triton.partition("+")[0] != known.triton.partition("+")[0]:
        return f"recorded with Triton {known.triton}, and this process has {triton}"
    drift = drift_of(function, known.origin.fingerprint)
    return f"{drift} (recorded closure {known.origin.closure[:12]})" if drift else ""
