"""How recordings and bundles spell what an autotuner chose: keys and configs, of Triton's autotuners and of Inductor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nojit.runtime.base.launch_options import CONFIG_OPTIONS
from nojit.runtime.base.strict_json import Json
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.errors import ArgumentError
from nojit.runtime.values import encode_value

__all__ = ["config_by_name", "encoded_config", "encoded_key"]


def encoded_key(value: Any) -> Json:
    """Return a value of an autotuner's key as a recording holds it: encoded, or as text if no bundle can hold it."""
    try:
        return encode_value(constexpr_value(value, "", ""))
    except ArgumentError:
        return repr(value)


def config_by_name(config: Any) -> dict[str, Json]:
    """Return the constexprs and options of a config by name, as a bundle holds them.

    Args:
        config: a ``triton.Config``, or Inductor's kind of it.
    """
    return {name: encoded_key(value) for name, value in config.all_kwargs().items()}


def encoded_config(config: Any, kernel: str) -> dict[str, Json]:
    """Return a config as a recording holds it: ``kwargs`` and ``options``, pairs of name and value.

    Args:
        config: a ``triton.Config``, or Inductor's kind of it.
        kernel: name of the kernel, for the error.

    Raises:
        ArgumentError: no bundle can hold a value.
    """
    every = config.all_kwargs()
    options = {name: value for name, value in every.items() if name in CONFIG_OPTIONS and name not in config.kwargs}
    return {"kwargs": _encoded(config.kwargs, kernel), "options": _encoded(options, kernel)}


def _encoded(values: Mapping[str, Any], kernel: str) -> list[Json]:
    return [[name, encode_value(constexpr_value(value, name, kernel))] for name, value in sorted(values.items())]
