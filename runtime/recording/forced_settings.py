"""Settings of torch that serving, recording and simulations force, each for as long as one of them needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["SEEN", "force_settings"]

SEEN: Final = {"compile_threads": 1, "bundle_triton_into_fx_graph_cache": False}
"""Settings with which Inductor compiles every kernel in this process."""


def force_settings(config: Any, values: Mapping[str, Any]) -> Callable[[], None]:
    """Change settings of torch in every thread, over the settings of the program; return a function that ends it.

    A setting has its old value again once all who forced it have ended, in any order.

    Args:
        config: a module of settings, such as ``torch._inductor.config``.
        values: the settings by name. Two callers must not force different values of one at the same time.
    """
    user = object()

    def begin() -> None:
        with _lock:
            for name, value in values.items():
                key = config.__name__, name
                if key not in _held:
                    _held[key] = _Forced(config, name)
                    _held[key].force(value)
                _held[key].users.add(user)

    def end() -> None:
        with _lock:
            for name in values:
                held = _held.get((config.__name__, name))
                if held is None or user not in held.users:
                    continue
                held.users.remove(user)
                if not held.users:
                    del _held[config.__name__, name]
                    held.restore()

    try:
        begin()
    except (AttributeError, KeyError):
        # this torch lacks a setting
        end()
        raise
    return end


class _Forced:
    """A setting that somebody forces.

    Args:
        config: the module of settings.
        name: name of the setting.

    Attributes:
        users: who forces it.
    """

    def __init__(self, config: Any, name: str) -> None:
        self.users: set[object] = set()
        self._config = config
        self._name = name
        self._before = getattr(config, name)
        entry = config._config[name]  # noqa: SLF001 - no other name for it
        # from torch 2.13 on, what a program sets holds for one thread
        self._entry = entry if hasattr(entry, _FORCED) else None
        self._forced = getattr(entry, _FORCED, None)

    def force(self, value: Any) -> None:
        """Set it in every thread."""
        setattr(self._config, self._name, value)
        if self._entry is not None:
            setattr(self._entry, _FORCED, value)

    def restore(self) -> None:
        """Set it as it was before."""
        if self._entry is not None:
            setattr(self._entry, _FORCED, self._forced)
        setattr(self._config, self._name, self._before)


_FORCED: Final = "env_value_force"
_lock = threading.Lock()
# by module and name
_held: dict[tuple[str, str], _Forced] = {}
