"""The user's handle on a kernel: launch, explain, list choices, warm up, preload; and the attributes of Triton's functions.

`nojit.runtime.first_call.callbacks` has what the engine asks at a first call, `nojit.runtime.first_call.kernel_bundles` which bundle serves a
device.
"""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.first_call.arch_bundle import ArchBundle
from nojit.runtime.first_call.callbacks import FirstCalls
from nojit.runtime.first_call.kernel_bundles import KernelBundles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from nojit.runtime.call.call_facts import CallFacts

    # imported on demand: programs seldom ask for reasons, and NOJIT_TUNING is seldom set
    from nojit.runtime.explain.explanation import Explanation
    from nojit.runtime.first_call.rows_to_load import Only
    from nojit.runtime.table.table import KernelTable
    from nojit.runtime.triton_attributes import KernelParam, LaunchConfig
    from nojit.runtime.tuning.overrides import TuningSource

__all__ = ["Choices", "Kernel", "Warmed"]


class Warmed(Record):
    """The result of `Kernel.warmup`: the loaded variant that a call would run."""

    plan: _core.Plan
    """The plan that the engine launches."""

    @property
    def variant(self) -> str:
        """Label of the variant: its id, config and bundle."""
        return str(self.plan.label)

    @property
    def device(self) -> int:
        """Ordinal of the device."""
        return self.plan.device

    def __repr__(self) -> str:
        return f"Warmed(variant={self.variant!r}, device={self.device})"


class Choices(Record):
    """The variants that can serve a call."""

    table: KernelTable
    rows: tuple[int, ...]
    """Rows of the table, best first."""
    key: dict[str, int]
    """The value of each expression of the tuning key; empty without a key."""


class Kernel(FirstCalls):
    """One kernel of a bundle: call it directly, or index it with a grid first, as in Triton.

    ``kernel[grid](*arguments, **named)`` launches on the current stream of the arguments' framework, or on ``stream=``.
    Pass arguments in the order of the kernel function, constexprs included, or by name; pass options such as ``num_warps``
    by name. `grid` is a tuple of one to three ints, or a function of a mapping with the constexprs and options of the selected
    variant and the arguments, by name. ``kernel(...)`` takes the grid from the bundle. Launches return None and do not wait.

    ``kernel.bind(grid, **fixed)`` fixes the grid and everything that is passed by name: constexprs, options, the stream,
    arguments. Its result takes the remaining arguments and creates no Python object per launch. Without a grid, each launch
    computes the bundle's grid.

    Get one from `nojit.runtime.loader.Bundle.kernel`, which also applies ``NOJIT_TUNING``. Safe to use from several threads.

    Raises:
        ArgumentError: on a call, if the kernel cannot take an argument.
        NoMatchingVariantError: on a call, if no variant matches; the error says why, and what to build. With ``NOJIT_MISS``,
            Triton's JIT runs the call instead, if it can (`nojit.runtime.fallback`).
        BundleError: at a variant's first launch, if its image differs from the one that was built.
        DriverError: the GPU's driver reports an error.
    """

    def __init__(
        self,
        name: str,
        bundles: Sequence[ArchBundle],
        overrides: Mapping[ArchBundle, TuningSource] | None = None,
        *,
        batch_invariant: bool = False,
    ) -> None:
        super().__init__(KernelBundles(name, bundles, overrides, batch_invariant=batch_invariant))

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {', '.join(str(bundle.image_arch) for bundle in self._bundles.bundles)})"

    def explain(self, /, *args: Any, device: int | None = None, arch: str | None = None, **kwargs: Any) -> Explanation:
        """Explain which variant a call would run, and why each other one does not match. Launches and loads nothing.

        Args:
            args: the arguments of a call; tensors may be in host memory.
            device: use this device instead of the tensors' own.
            arch: use this arch, ``sm_90`` or ``sm_90a``, instead of a device; then no driver is needed. If the bundle has tuning tables of
                several devices, the first one counts.
            kwargs: the named arguments of a call.
        """
        from nojit.runtime.explain.explanation import explain

        there, facts = self._facts(*args, **kwargs)
        ordinal = there if device is None else device
        bundle = self._bundles.bundle_for(self._bundles.capability(arch, ordinal))
        table = self._bundles.table(bundle)
        lookup = self._bundles.lookup(bundle, table, ordinal if arch is None else None)
        return explain(table, self._call_facts(bundle, facts), lookup)

    def choices(self, /, *args: Any, device: int | None = None, arch: str | None = None, **kwargs: Any) -> Choices:
        """Return every variant that can serve a call, best first, for a tuner to try. Launches and loads nothing.

        Args:
            args: the arguments of a call.
            device: as for `explain`.
            arch: as for `explain`.
            kwargs: the named arguments of a call.

        Raises:
            ArgumentError: the kernel cannot take an argument.
            NoMatchingVariantError: no variant matches.
        """
        from nojit.runtime.explain.explanation import choose

        there, facts = self._facts(*args, **kwargs)
        bundle = self._bundles.bundle_for(self._bundles.capability(arch, there if device is None else device))
        table, call = self._bundles.table(bundle), self._call_facts(bundle, facts)
        return Choices(table, choose(table, call).considered, _key_of(table, call))

    def warmup(self, /, *args: Any, grid: object = None, **kwargs: Any) -> Warmed:  # noqa: ARG002 - Triton's spelling
        """Select and load the variant for a call, so that an equal call only launches. Launches nothing.

        Tensor maps of descriptors are encoded too, for their current addresses.

        Args:
            args: the arguments of a call; a dtype (``torch.float16``) replaces a tensor that is aligned to 16 bytes.
            grid: ignored; accepted so that calls of Triton's ``warmup`` need no change.
            kwargs: the named arguments of a call.

        Raises:
            ArgumentError: the kernel cannot take an argument.
            NoMatchingVariantError: no variant matches.
            BundleError: the image differs from the one that was built.
            DriverError: the GPU's driver reports an error.
        """
        from nojit.runtime.call.bound_call import is_dtype, placeholder

        if any(map(is_dtype, args)) or any(map(is_dtype, kwargs.values())):
            runtime = {param.name: not param.constexpr for param in self._params}
            by_place = [*runtime.values(), *[True] * len(args)]
            args = tuple(placeholder(arg) if by_place[place] else arg for place, arg in enumerate(args))
            kwargs = {name: placeholder(arg) if runtime.get(name) else arg for name, arg in kwargs.items()}
        plan = self._warm(*args, **kwargs)
        plan.load()
        return Warmed(plan)

    def preload(self, device: int | None = None, *, only: Only | None = None) -> int:
        """Load every image that fits a device now, so that no launch loads one.

        Args:
            device: ordinal of the device; None for the current one.
            only: as for `nojit.runtime.loader.Bundle.preload`.

        Returns:
            The number of images of these variants.

        Raises:
            ArgumentError: no variant has a name or value of `only`.
        """
        if only is not None:
            from nojit.runtime.first_call.rows_to_load import check_only

            check_only([self.variants(device)], only, f"kernel {self.name}")
        return self.load_variants(device, only)

    def load_variants(self, device: int | None, only: Only | None) -> int:
        """Load variants as `preload` does, but ignore names and values of `only` that no variant has."""
        ordinal = self._bundles.ordinal(device)
        bundle, table = self._bundles.of(ordinal)
        return len({self._preload(bundle, table, row, ordinal) for row in _rows_to_load(table, only)})

    def variants(self, device: int | None = None) -> KernelTable:
        """Return the variant table for a device, by default the current one.

        Raises:
            NoMatchingVariantError: the kernel has no variants for the device.
        """
        ordinal = self._bundles.ordinal(device)
        return self._bundles.of(ordinal)[1]

    def fits(self, device: int | None = None) -> bool:
        """Return whether a bundle with this kernel runs on a device, by default the current one."""
        return bool(self._bundles.running_on(_core.device_capability(self._bundles.ordinal(device))))

    # attributes of Triton's functions and autotuners, for code written for them

    @property
    def fn(self) -> Kernel:
        """The kernel itself: Triton's autotuners have the function here, and callers pass it a config by name."""
        return self

    @property
    def __name__(self) -> str:
        """Name of the kernel."""
        return self.name

    @property
    def arg_names(self) -> list[str]:
        """Names of the function's params in its order, constexprs included."""
        return [param.name for param in self._params]

    @property
    def params(self) -> tuple[KernelParam, ...]:
        """The function's params in its order."""
        from nojit.runtime.triton_attributes import params_of

        return params_of(self._bundles.first_table)

    @property
    def configs(self) -> tuple[LaunchConfig, ...]:
        """The manifest's configs, of the first available architecture."""
        from nojit.runtime.triton_attributes import config_of

        return tuple(map(config_of, self._bundles.first_table.configs))

    @property
    def best_config(self) -> LaunchConfig:
        """The config of this kernel's last launch, on any device and thread.

        Raises:
            AttributeError: the kernel was not launched yet, or Triton's JIT ran every call.
        """
        from nojit.runtime.triton_attributes import config_of

        if self._last is None:
            raise AttributeError(f"kernel {self.name} has no best_config: expected a launch before, got none")
        bundle, row = self._last.payload
        table = self._bundles.table(bundle)
        return config_of(table.configs[table.columns["config"][row]])

    def run(
        self, /, *args: Any, grid: Any = None, warmup: bool = False, stream: Any = None, **kwargs: Any
    ) -> Warmed | None:
        """Launch as ``kernel[grid](*args, **kwargs)`` does, or prepare the call as `warmup` does.

        Args:
            args: the arguments of a call.
            grid: a tuple, or a function of constexprs and arguments; None for the bundle's grid.
            warmup: prepare the call instead of launching.
            stream: the stream of a call.
            kwargs: the named arguments of a call.
        """
        if stream is not None:
            kwargs["stream"] = stream
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        launch = self if grid is None else self[grid]
        launch(*args, **kwargs)
        return None


def _rows_to_load(table: KernelTable, only: Only | None) -> list[int]:
    if only is None:
        return table.handle().rows_to_load(None)
    from nojit.runtime.first_call.rows_to_load import rows_to_load

    return rows_to_load(table, only)


def _key_of(table: KernelTable, call: CallFacts) -> dict[str, int]:
    if table.tuning is None:
        return {}
    from nojit.runtime.explain.selection import Selection
    from nojit.runtime.tuning.lookup import Lookup

    numbers = Selection(table, call, Lookup(table.tuning, None, "")).engine.numbers
    return dict(zip(table.tuning.key, numbers, strict=True))
