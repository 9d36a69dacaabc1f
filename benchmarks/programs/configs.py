"""Autotuners with few configs: a program with hundreds of them does not end within a check's time limit."""

from __future__ import annotations

from typing import Any

from triton.runtime.autotuner import Autotuner

__all__ = ["limit_configs"]


def limit_configs(count: int = 4) -> None:
    """Limit each autotuner that is made from now on to its first configs.

    Call it before you import the kernels, in recorded and served processes alike. It changes the class, because a package's own
    autotuners need not come from ``triton.autotune``.

    Args:
        count: configs of each autotuner.
    """
    own = Autotuner.__init__

    def limited(self: Any, fn: Any, arg_names: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        own(self, fn, arg_names, configs[:count], *args, **kwargs)

    Autotuner.__init__ = limited
