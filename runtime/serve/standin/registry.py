"""The names of ``triton.*`` that the stand-in implements, and nojit's modules that implement them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["PACKAGE", "export", "exported", "implementation", "implemented"]

PACKAGE: Final = "nojit.runtime.serve.standin"
# for each module of Triton's, those of this package that implement names of it
_PROVIDERS: Final[dict[str, tuple[str, ...]]] = {
    "triton": ("constexpr_functions",),
    "triton._utils": ("type_names",),
    "triton.backends": ("targets", "driver"),
    "triton.backends.compiler": ("targets",),
    "triton.backends.driver": ("driver",),
    "triton.backends.nvidia.compiler": ("targets",),
    "triton.backends.nvidia.driver": ("driver",),
    "triton.compiler.compiler": ("targets",),
    "triton.compiler.errors": ("failures",),
    "triton.errors": ("failures",),
    "triton.experimental.gluon._runtime": ("functions",),
    "triton.experimental.gluon.language._layouts": ("register_layouts", "shared_layouts"),
    "triton.experimental.gluon.nvidia.hopper": ("descriptors",),
    "triton.knobs": ("knobs",),
    "triton.language.core": ("constants", "dtypes", "composite_types", "aggregates", "extensions"),
    "triton.language.target_info": ("driver",),
    "triton.runtime._allocation": ("allocation",),
    "triton.runtime._async_compile": ("allocation",),
    "triton.runtime.autotuner": ("tuning",),
    "triton.runtime.cache": ("targets",),
    "triton.runtime.driver": ("driver",),
    "triton.runtime.errors": ("failures",),
    "triton.runtime.interpreter": ("functions",),
    "triton.runtime.jit": ("callables", "functions", "constexpr_functions", "tensors"),
    "triton.testing": ("testing",),
    "triton.tools.tensor_descriptor": ("descriptors",),
}
_FOUND: Final[dict[str, dict[str, Any]]] = {}
_T = TypeVar("_T")


def export(module: str, **values: Any) -> None:
    """Let names of a module of Triton's be these values."""
    _FOUND.setdefault(module, {}).update(values)


def exported(module: str, name: str = "") -> Callable[[_T], _T]:
    """Decorate the implementation of a name: it gets the module and the name of Triton's own.

    Programs, pickles and nojit's own engine know Triton's objects by these.

    Args:
        module: Triton's module.
        name: the name in it; empty for the name of the decorated object.
    """

    def decorate(value: _T) -> _T:
        made: Any = value
        made.__module__ = module
        if name:
            made.__name__ = made.__qualname__ = name
        export(module, **{made.__name__: made})
        return value

    return decorate


def implemented(module: str) -> dict[str, Any]:
    """Return the implemented names of a module of Triton's."""
    for provider in _PROVIDERS.get(module, ()):
        importlib.import_module(f"{PACKAGE}.{provider}")
    return _FOUND.get(module, {})


def implementation() -> dict[str, dict[str, Any]]:
    """Return every implemented name, by module."""
    return {module: implemented(module) for module in _PROVIDERS}
