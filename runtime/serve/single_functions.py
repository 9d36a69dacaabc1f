"""Serve single functions of Triton and nothing else of the process: for packages that hold bundles of their own kernels."""

from __future__ import annotations

import threading
from typing import Any, Final

from nojit.runtime.base.wording import typed
from nojit.runtime.errors import ArgumentError
from nojit.runtime.observe.events import add_served
from nojit.runtime.recording.triton_functions import kind_of
from nojit.runtime.serve import standin
from nojit.runtime.serve.function import Function, Host
from nojit.runtime.serve.hosts import StandinHost, TritonHost
from nojit.runtime.serve.server import Server
from nojit.runtime.serve.settings import Settings

__all__ = ["serve_function"]

_NAME: Final = "nojit.serve_function"
_lock = threading.Lock()
_servers: dict[tuple[object, ...], Server] = {}


def serve_function(function: Any, bundles: Any, *, miss: str = "jit", preload: bool = False) -> Any:
    """Return a launcher of one ``@triton.jit`` function from bundles: ``launcher[grid](...)``. Nothing else in the process changes.

    A package launches its own functions with it. Calls have the meaning that they have for Triton. A call that no variant fits, a device without a
    bundle and a source that differs from the recorded one are misses.

    Args:
        function: the function, without an autotuner or heuristics around it.
        bundles: as for `nojit.serve`.
        miss: for misses: ``error`` raises `NoMatchingVariantError`; ``jit`` lets Triton compile; ``warn`` also warns.
        preload: whether to load every variant of the bundles for a device before the first launch there. Else a variant is loaded at
            its first launch, which may be while a CUDA graph is captured.

    Raises:
        ArgumentError: an argument has a wrong type or value.
        FileNotFoundError: a path does not exist, or holds no bundle.
        BundleError: a bundle is damaged, or was not built from a recording.
    """
    if kind_of(function) not in ("jit", "gluon"):
        what = "expected a @triton.jit function, without decorators around it"
        raise ArgumentError(what, got=typed(function), where=_NAME, argument="function")
    settings = Settings.of(bundles, miss, preload, where=_NAME)
    key = settings.paths, settings.miss, settings.preload
    with _lock:
        server = _servers.get(key)
        if server is None:
            server = _servers[key] = Server(settings)
            add_served(server.served)
    found = server.find_own(function, _host())
    return found.handle if isinstance(found, Function) else found


def _host() -> Host:
    if standin.installed():
        return StandinHost()
    # the function needs it
    import triton
    from triton import knobs

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        # `nojit.serve` may have replaced the method
        return function.run(*args, **kwargs)

    return TritonHost(run, knobs, str(triton.__version__))
