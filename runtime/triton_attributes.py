"""Attributes of a kernel for code that was written for Triton's functions and autotuners."""

from __future__ import annotations

from typing import cast

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.launch_options import BUILT_WITH, CONFIG_OPTIONS, TUNABLE
from nojit.runtime.table.parts import Config, Missing
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import Value, spell

__all__ = ["KernelParam", "LaunchConfig", "config_of", "params_of"]


class KernelParam(Record):
    """A param of the kernel function, as in Triton's ``JITFunction.params``."""

    name: str
    num: int
    """Index of the param in the function."""
    is_constexpr: bool
    has_default: bool
    default: Value
    """Default value; None if it has none."""
    is_rest: bool
    """Whether it is the function's `*args`."""
    is_given: bool
    """Whether callers pass it: every param except constexprs that the call or the config determines."""
    types: tuple[str, ...]
    """Types that were built; empty for a constexpr."""
    values: tuple[Value, ...]
    """Values of a constexpr of the matrix or of configs that were built, and its default."""


class LaunchConfig(Record):
    """A config in the form of Triton's ``Autotuner.best_config``; its settings can be passed to the kernel by name."""

    kwargs: dict[str, Value]
    """Constexprs of the config."""
    options: dict[str, Value]
    """Options such as ``num_warps``, and others that the manifest sets."""

    @property
    def num_warps(self) -> int:
        """Warps of a block."""
        return self._int("num_warps")

    @property
    def num_stages(self) -> int:
        """Stages of software pipelining."""
        return self._int("num_stages")

    @property
    def num_ctas(self) -> int:
        """Blocks of a cluster."""
        return self._int("num_ctas")

    @property
    def maxnreg(self) -> int | None:
        """Limit of registers per thread; None if ptxas chose."""
        value = self.options.get("maxnreg")
        return value if isinstance(value, int) and value else None

    @property
    def pre_hook(self) -> None:
        """None: configs of a bundle have no hooks."""

    def all_kwargs(self) -> dict[str, Value]:
        """Return constexprs and options by name, without unset options."""
        return self.kwargs | {name: value for name, value in self.options.items() if value is not None}

    def __str__(self) -> str:
        settings = dict.fromkeys(name for name in CONFIG_OPTIONS if name in TUNABLE) | self.options
        return ", ".join(f"{name}: {spell(value)}" for name, value in (self.kwargs | settings).items())

    def _int(self, name: str) -> int:
        value = self.options.get(name)
        return cast("int", value if isinstance(value, int) else BUILT_WITH[name])


def config_of(config: Config) -> LaunchConfig:
    """Return a table's config in Triton's form."""
    return LaunchConfig(dict(config.constexprs), dict(config.options))


def params_of(table: KernelTable) -> tuple[KernelParam, ...]:
    """Return the params of a kernel."""
    types, axes = table.param_types(), {axis.name for axis in table.axes if not axis.is_type}
    params = []
    for num, param in enumerate(table.params):
        has_default = not isinstance(param.default, Missing)
        params.append(
            KernelParam(
                name=param.name,
                num=num,
                is_constexpr=param.constexpr,
                has_default=has_default,
                default=None if isinstance(param.default, Missing) else param.default,
                is_rest=param.is_rest,
                is_given=not param.constexpr or param.name in axes,
                types=types.get(param.name, ()),
                values=table.built_values(param.name) if param.constexpr else (),
            )
        )
    return tuple(params)
