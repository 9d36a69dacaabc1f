"""Serve functions of Triton from bundles: keep what serves each function, choose for its autotuner, count its calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any

from nojit.runtime import _core
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.observe.events import Served, emit
from nojit.runtime.recording.generated_kernels import MODULE
from nojit.runtime.recording.origins import Origins
from nojit.runtime.recording.triton_functions import place_of
from nojit.runtime.serve.function import ADVICE, Function, Host, Unserved
from nojit.runtime.serve.hosts import ATTRIBUTE
from nojit.runtime.serve.inductor import Generated
from nojit.runtime.serve.kernel import ServedKernel, warn_of_capture
from nojit.runtime.serve.kernel_lookup import KernelLookup, RecordedKernel
from nojit.runtime.serve.settings import Settings
from nojit.runtime.serve.winner_choice import choose

__all__ = ["Server", "innermost"]


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
        self._lookup = KernelLookup(settings.paths)
        self.recorded: Origins | None = self._lookup.recorded
        # reentrant: a finalizer may launch while this thread holds the lock
        self._lock = threading.RLock()
        self._kernels: dict[tuple[int, str], ServedKernel] = {}
        self._functions: list[Function | Unserved] = []
        # by the id of a function, which its value keeps
        self._own: dict[int, Function | Unserved] = {}
        self._marked: list[weakref.ref[Any]] = []
        self._prepared: set[int] = set()

    def close(self) -> None:
        """Close the bundles, and forget the functions. Loaded variants stay loaded."""
        with self._lock:
            for marked in self._marked:
                function = marked()
                if function is not None:
                    vars(function).pop(ATTRIBUTE, None)
            self._marked.clear()
            self._lookup.close()

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
            found = self._serve(function, host, [module or own], qualname)
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
                others = self._lookup.modules_of(qualname)
                found = self._serve(function, host, [*dict.fromkeys((own, *others))], qualname)
                self._functions.append(found)
                self._own[id(function)] = found
            return found

    def _serve(self, function: Any, host: Host, modules: Sequence[str], qualname: str) -> Function | Unserved:
        """Return what serves a function; see `KernelLookup.find`."""
        began_ns, miss = perf_counter_ns(), self.settings.miss
        found = self._lookup.find(function, modules, qualname, host.version)
        if isinstance(found, NoMatchingVariantError):
            return Unserved(function, host, miss, f"{modules[0]}:{qualname}", found.advise(ADVICE))
        kernel = self._kernel(found)
        spelled = f"{found.origin.module}:{qualname}"
        emit("serve", began_ns, bundle=kernel.bundle, kernel=kernel.name, detail=spelled)
        return Function(function, host, miss, kernel, found.origin)

    def _kernel(self, known: RecordedKernel) -> ServedKernel:
        key = (id(known.bundle), known.origin.kernel)
        kernel = self._kernels.get(key)
        if kernel is None:
            bundles = known.bundle.arch_bundles(known.origin.kernel)
            made = ServedKernel(known.origin.kernel, bundles, known.origin, self._prepare)
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
        for bundle in self._lookup.bundles:
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
            key: see `nojit.runtime.recording.generated_kernels.key_of`.
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
