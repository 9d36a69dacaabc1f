"""Serve this process: ``nojit.serve``, and the variables ``NOJIT_SERVE``, ``NOJIT_MISS`` and ``NOJIT_SERVE_PRELOAD``."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Self

from nojit.runtime.autostart import when_imported
from nojit.runtime.observe.events import add_served
from nojit.runtime.recording.origins import Origins
from nojit.runtime.serve.hosts import StandinHost
from nojit.runtime.serve.inductor import Generated
from nojit.runtime.serve.server import Server, innermost
from nojit.runtime.serve.settings import Settings, settings_of

__all__ = ["Serving", "serve", "start", "unserve"]

_INDUCTOR: Final = "torch._inductor.runtime.triton_heuristics"
_lock = threading.RLock()
_current: Serving | None = None


class Serving:
    """Bundles that serve this process; a context manager that ends with `close`.

    Args:
        settings: what to serve, and how.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._server = Server(settings)
        self._ends: list[Callable[[], object]] = []
        self._closed = False

    def preload(self, device: int | None = None) -> int:
        """Load every recorded variant for a device, by default the current one; return the number of images.

        Raises:
            DriverError: the driver rejects an image, or there is no device.
        """
        return self._server.preload(device)

    def close(self) -> None:
        """Give Triton back as it was, and close the bundles. Loaded variants stay loaded."""
        global _current  # noqa: PLW0603 - a process is served once
        with _lock:
            if self._closed:
                return
            self._closed = True
            for end in reversed(self._ends):
                end()
            self._server.close()
            if _current is self:
                _current = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Serving({', '.join(self.settings.paths)}, miss={self.settings.miss!r})"

    def begin(self) -> Self:
        """Serve from now on: at once if Triton is imported, else when it is."""
        global _current  # noqa: PLW0603 - as above
        with _lock:
            if _current is not None:
                _current.close()
            _current = self
            add_served(self._server.served)
            try:
                if is_installed("triton"):
                    self._when("triton", self._install)
                else:
                    self._install_standin()
            except BaseException:
                self.close()
                raise
        return self

    def _when(self, name: str, install: Callable[[], None]) -> None:
        leave = when_imported(name, install)
        self._ends.append(lambda: bool(leave()))

    def _install(self) -> None:
        # it needs Triton
        from nojit.runtime.serve.patches import Patches

        with _lock:
            if self._closed:
                return
            patches = Patches(self._server)
            self._ends.append(patches.remove)
            patches.install()
            self._when(_INDUCTOR, lambda: self._install_inductor(patches.host))

    def _install_inductor(self, host: Any) -> None:
        from nojit.runtime.serve.inductor import install  # it needs torch

        self._ends.append(install(_Generating(self._server, host)))

    def _install_standin(self) -> None:
        from nojit.runtime.serve import standin  # where Triton is installed, nobody needs it

        server, host = self._server, StandinHost()
        recorded = server.recorded
        standin.install(_facts(recorded) if recorded and recorded.triton else None)

        def launch(function: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], warmup: bool) -> Any:
            return server.find(function, host).launch(grid, args, kwargs, warmup=warmup)

        def choose(autotuner: Any, key: tuple[Any, ...], configs: list[Any], _named: dict[str, Any]) -> Any:
            return server.choose(server.find(innermost(autotuner), host), key, configs) or configs[0]

        standin.set_callbacks(launch, choose, lambda function, grid: server.find(function, host)[grid])
        self._ends.append(lambda: standin.set_callbacks(None))
        self._when(_INDUCTOR, lambda: self._install_inductor(host))


def _facts(recorded: Origins) -> Any:
    """Return what the stand-in tells of the recorded Triton; nothing that two of its builds disagree on."""
    from nojit.runtime.serve import standin  # where Triton is installed, nobody needs it

    keys = {each.triton_key for each in recorded.inductor}
    known = [each for each in recorded.inductor if len(keys) == 1]
    return standin.Recorded(
        version=recorded.triton,
        key=next(iter(keys)) if known else None,
        backend_hashes={each.arch: each.backend_hash for each in known},
    )


class _Generating:
    """Serves kernels of torch.compile."""

    def __init__(self, server: Server, host: Any) -> None:
        self._server = server
        self._host = host

    def generated(self, function: Any, key: str) -> Generated | None:
        return self._server.generated(function, key, self._host)


def is_installed(name: str) -> bool:
    """Return whether a module is imported, or can be."""
    if name in sys.modules:
        return True
    spec = find_spec(name)
    # a folder of the name is no package
    return spec is not None and spec.loader is not None and spec.origin is not None


def serve(bundles: Any, *, miss: str | None = None, preload: bool | None = None) -> Serving:
    """Serve every ``@triton.jit`` function of this process from bundles that were built from recordings.

    The result is a context manager; ``close()`` or the end of the ``with`` block ends the serving. A later call replaces an earlier one.

    Args:
        bundles: a bundle file, a folder with bundles, or a name, as ``nojit.runtime.load`` takes; or a list of these, the most
            important first.
        miss: for calls that no bundle serves: ``error`` raises `NoMatchingVariantError`, and makes compiling impossible; ``warn``
            lets Triton compile, with a warning; ``jit`` lets it compile. None reads ``NOJIT_MISS``, which is ``error`` if unset.
        preload: whether to load every variant for the current device now, and for each other device before its first launch. Else
            a variant is loaded at its first launch. None reads ``NOJIT_SERVE_PRELOAD``.

    Returns:
        The serving, with ``preload()`` and ``close()``.

    Raises:
        ArgumentError: an argument has a wrong type or value.
        FileNotFoundError: a path does not exist, or holds no bundle.
        BundleError: a bundle is damaged, or was not built from a recording.
        DriverError: `preload` is true, and there is no device.
    """
    serving = Serving(Settings.of(bundles, miss, preload, where="nojit.serve")).begin()
    if serving.settings.preload:
        serving.preload()
    return serving


def start() -> Serving | None:
    """Serve this process if ``NOJIT_SERVE`` asks for it, and it is not served yet.

    Raises:
        SettingError: a variable has an invalid value.
        FileNotFoundError: as `serve`.
        BundleError: as `serve`.
    """
    settings = settings_of(os.environ)
    with _lock:
        if settings is None or _current is not None:
            return None
        return Serving(settings).begin()


def unserve() -> None:
    """End what `serve` or ``NOJIT_SERVE`` began; do nothing if the process is not served."""
    with _lock:
        if _current is not None:
            _current.close()
