"""Make the installed Triton launch from bundles: replaces ``JITFunction.run``, the autotuners' choice, and the driver."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

from nojit.runtime import _core
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.serve.driver import Driver
from nojit.runtime.serve.forbid_compile import Guards
from nojit.runtime.serve.hosts import ATTRIBUTE, TritonHost
from nojit.runtime.serve.server import Server, innermost
from nojit.runtime.serve.standin import run_autotuned

__all__ = ["Patches"]

_ABSENT: Final = object()
# attribute of an autotuner with the cache that it had before
_TIMED: Final = "_nojit_timed"


class Patches:
    """The changes of one server to the process's Triton, which `remove` takes back.

    Args:
        server: answers every launch.

    Attributes:
        host: Triton as it was; set by `install`.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._replaced: list[tuple[Any, str, Any]] = []
        self._guards = Guards()
        self._tuners: list[weakref.ref[Any]] = []
        self._drivers: tuple[Any, Any] | None = None
        self.host: TritonHost

    def install(self) -> None:
        """Change the imported Triton."""
        import triton
        from triton import knobs
        from triton.runtime import autotuner, jit

        server, host = self._server, TritonHost(jit.JITFunction.run, knobs, str(triton.__version__))
        self.host = host

        def find(function: Any) -> Any:
            return server.find(function, host)

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            return find(function).launch(grid, args, kwargs, warmup=warmup)

        self._replace(jit.JITFunction, "__getitem__", _core.Subscript(ATTRIBUTE, find))
        self._replace(jit.JITFunction, "run", run)
        self._install_autotuner(autotuner.Autotuner, find)
        if server.settings.miss == "error":
            self._guards.install()
        self._install_driver()

    def _install_autotuner(self, kind: Any, find: Callable[[Any], Any]) -> None:
        server, tune = self._server, kind.run

        def choose(tuner: Any, key: tuple[Any, ...], configs: list[Any], _named: dict[str, Any]) -> Any:
            config = server.choose(find(innermost(tuner)), key, configs)
            if config is None:
                raise _NotRecorded
            return config

        def run_chosen(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if _TIMED not in vars(tuner):
                vars(tuner)[_TIMED], tuner.cache = tuner.cache, {}
                self._tuners.append(weakref.ref(tuner))
            try:
                return run_autotuned(tuner, choose, args, kwargs)
            except _NotRecorded:
                return tune(tuner, *args, **kwargs)

        def warm_recorded(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            warmed, missed = _warm_each(tuner, args, kwargs)
            tuner.nargs = None
            if not warmed and missed is not None:
                raise missed
            return warmed

        self._replace(kind, "run", run_chosen)
        if server.settings.miss == "error":
            self._replace(kind, "warmup", warm_recorded)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._replaced.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def _install_driver(self) -> None:
        from triton.runtime.driver import driver

        active, default = driver._active, driver._default  # noqa: SLF001 - reading `active` would make one
        self._drivers = active, default

        def make() -> Any:
            from triton.runtime.driver import _create_driver

            return active or default or _create_driver()

        ours = Driver(make)
        driver.set_active(ours)
        driver._default = ours  # noqa: SLF001 - what `reset_active` makes active

    def remove(self) -> None:
        """Give Triton back as it was."""
        from triton.runtime.driver import driver

        self._guards.remove()
        for owner, name, value in reversed(self._replaced):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self._replaced.clear()
        for each in self._tuners:
            tuner = each()
            if tuner is not None:
                tuner.cache = vars(tuner).pop(_TIMED)
        self._tuners.clear()
        if self._drivers is not None:
            driver._active, driver._default = self._drivers  # noqa: SLF001 - as they were


class _NotRecorded(Exception):  # noqa: N818 - no error: the autotuner times
    """The policy lets an autotuner time a key."""


def _warm_each(
    tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], NoMatchingVariantError | None]:
    """Warm the configs up that were recorded; return them, and the error of one that was not."""
    warmed, missed = [], None
    for config in tuner.prune_configs(kwargs):
        try:
            warmed.append(tuner.fn.warmup(*args, **kwargs, **config.all_kwargs()))
        except NoMatchingVariantError as error:
            missed = error
    return warmed, missed
