"""A package ``triton`` for machines without Triton: modules with unmodified Triton code import, and nojit launches their kernels.

::

    from nojit.runtime.serve import standin

    standin.install()
    standin.set_callbacks(launch, choose, function_for_grid)
    import liger_kernel.ops.rms_norm  # its @triton.jit functions are launched by `launch`

The stand-in has every name of Triton that host code uses, and behaves as Triton does: decorators, autotuners, dtypes, constexprs,
tensor descriptors, layouts, knobs, the driver and `do_bench`. All other names exist, and raise `MissingError` with the full name when they
are used. Triton is never shadowed: the finder is the last of `sys.meta_path`.

The serving package sets three functions:

- ``launch(function, grid, args, kwargs, warmup)`` launches a ``@triton.jit`` function and returns its ``CompiledKernel``, or None.
  `function` is a `JITFunction`; `grid` is a tuple, or a function that takes the arguments by name; `args` and `kwargs` hold the
  caller's arguments, constexprs and compiler options as the caller gave them, after heuristics and the autotuner added theirs. With
  `warmup`, nothing is launched, and a torch dtype in place of a tensor is a ``MockTensor``.
- ``choose(autotuner, key, configs, nargs)`` returns the config that an autotuned function runs with. `key` is the autotuner's own:
  values of its ``key`` arguments, then dtypes. `configs` are those that pruning left, two or more; `nargs` holds all arguments by
  name. The autotuner keeps the answer for `key`. The config need not be one of `configs`, but equal to one: that one's ``pre_hook``
  is called.
- ``function_for_grid(function, grid)`` returns the callable for ``function[grid]``, so that a handle can be cached; None for one
  that calls `launch`. A function with ``pre_run_hooks``, or with a ``run`` of the program's own, is never asked for.

Before they are set, a launch is an error that says so. `run_autotuned` is the autotuners' ``run``: the serving package gives it to
Triton's own ``Autotuner`` where Triton is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Final

from nojit.runtime.base.caller_warning import warn_caller
from nojit.runtime.serve.standin.callbacks import (
    MissingAttributeError,
    MissingError,
    MissingModuleError,
    Recorded,
    recorded,
    set_callbacks,
    set_recorded,
)
from nojit.runtime.serve.standin.finder import Finder

__all__ = [
    "MissingAttributeError",
    "MissingError",
    "MissingModuleError",
    "Recorded",
    "install",
    "installed",
    "recorded",
    "run_autotuned",
    "set_callbacks",
    "set_recorded",
    "uninstall",
]

_FINDER: Final = Finder()
# torch remembers that Triton was missing
_TORCH_CACHES: Final = (
    "has_triton_package",
    "get_triton_version",
    "has_triton_experimental_host_tma",
    "has_triton_tensor_descriptor_host_tma",
    "has_triton_tma",
    "has_triton_tma_device",
    "has_datacenter_blackwell_tma_device",
    "has_triton_stable_tma_api",
    "has_triton",
    "triton_backend",
    "triton_hash_with_backend",
)


def install(facts: Recorded | None = None) -> bool:
    """Let ``import triton`` find the stand-in, if Triton is not installed.

    Args:
        facts: facts of the Triton that was recorded; None for those that are set.

    Returns:
        Whether the stand-in is installed: False if Triton is.
    """
    if facts is not None:
        set_recorded(facts)
    if installed():
        return True
    found = sys.modules.get("triton") or importlib.util.find_spec("triton")
    if found is not None and getattr(found, "origin", None) is None and getattr(found, "__file__", None) is None:
        # a folder of the name, which holds no package: Python would take it before it asked the last finder
        sys.meta_path.insert(0, _FINDER)
        sys.modules.pop("triton", None)
    elif found is not None:
        return False
    else:
        sys.meta_path.append(_FINDER)
    importlib.invalidate_caches()
    _tell_torch()
    return True


def installed() -> bool:
    """Say whether `install` installed the stand-in."""
    return _FINDER in sys.meta_path


def uninstall() -> None:
    """Take the stand-in away, with its modules: for tests."""
    if installed():
        sys.meta_path.remove(_FINDER)
        for name in [each for each in sys.modules if each == "triton" or each.startswith("triton.")]:
            del sys.modules[name]
        _tell_torch()


def _tell_torch() -> None:
    torch_module: Any = sys.modules.get("torch.utils._triton")
    for name in _TORCH_CACHES if torch_module is not None else ():
        clear = getattr(getattr(torch_module, name, None), "cache_clear", None)
        if clear is not None:
            clear()
    compat: Any = sys.modules.get("torch._inductor.runtime.triton_compat")
    if installed() and compat is not None and not compat.HAS_TRITON:
        warn_caller(
            "torch._inductor was imported before the stand-in for Triton was installed, and will not use it: "
            "call nojit.serve before torch.compile, or set NOJIT_SERVE",
            RuntimeWarning,
        )


def __getattr__(name: str) -> Any:
    """Return `run_autotuned`, whose module a process without autotuners never imports."""
    if name != "run_autotuned":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nojit.runtime.serve.standin.tuning import run_autotuned

    return run_autotuned
