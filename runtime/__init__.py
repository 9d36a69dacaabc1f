"""Load a bundle of ahead-of-time compiled Triton kernels and launch them: no Triton, no compiler, no writable cache.

::

    from nojit import runtime

    bundle = runtime.load("artifacts/")
    add = bundle.kernel("vector_add")
    add[(cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nojit.runtime._core import device_capability, healthy, set_allocator
    from nojit.runtime.descriptor import TensorDescriptor
    from nojit.runtime.errors import (
        ArgumentError,
        BundleError,
        BundleFormatError,
        BundleIntegrityError,
        BundleTrustError,
        DriverError,
        FakeValueError,
        KernelNotFoundError,
        NojitError,
        NoMatchingVariantError,
        RecordingError,
        SettingError,
        StreamWarning,
        TuningError,
    )
    from nojit.runtime.explain.explanation import Explanation
    from nojit.runtime.fallback.jit_functions import register_source
    from nojit.runtime.fallback.policy import MissWarning
    from nojit.runtime.kernel import Kernel, Warmed
    from nojit.runtime.loader import Bundle, load
    from nojit.runtime.observe import events, hooks, telemetry
    from nojit.runtime.observe.events import Counters, counters

__all__ = [
    "ArgumentError",
    "Bundle",
    "BundleError",
    "BundleFormatError",
    "BundleIntegrityError",
    "BundleTrustError",
    "Counters",
    "DriverError",
    "Explanation",
    "FakeValueError",
    "Kernel",
    "KernelNotFoundError",
    "MissWarning",
    "NoMatchingVariantError",
    "NojitError",
    "RecordingError",
    "SettingError",
    "StreamWarning",
    "TensorDescriptor",
    "TuningError",
    "Warmed",
    "counters",
    "device_capability",
    "events",
    "healthy",
    "hooks",
    "load",
    "register_source",
    "set_allocator",
    "telemetry",
]

_MODULE_OF = {
    "Bundle": "loader",
    "Counters": "observe.events",
    "Explanation": "explain.explanation",
    "Kernel": "kernel",
    "MissWarning": "fallback.policy",
    "TensorDescriptor": "descriptor",
    "Warmed": "kernel",
    "counters": "observe.events",
    "device_capability": "_core",
    "healthy": "_core",
    "load": "loader",
    "register_source": "fallback.jit_functions",
    "set_allocator": "_core",
}
_MODULES = ("events", "hooks", "telemetry")


def __getattr__(name: str) -> Any:
    # importing the package imports no module: each name imports its module at first use
    if name in _MODULES:
        return _module(f"observe.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_module(_MODULE_OF.get(name, "errors")), name)
    return value


def _module(name: str) -> Any:
    # without `importlib`, which a process may not have imported
    path = f"{__name__}.{name}"
    __import__(path)
    return sys.modules[path]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
