"""The user's handle on a kernel. The engine selects variants and launches; Python makes plans and words errors.

`Kernel` finds the bundle for a device, has the engine select a variant for the facts about a call (`nojit.runtime.launch.bound_call`), and
gives it a plan to launch (`nojit.runtime.launch.plans`). If none serves, `nojit.runtime.explain.explanation` says why.
"""

from __future__ import annotations

from _thread import RLock
from time import perf_counter_ns

from nojit.runtime import _core
from nojit.runtime.errors import ArgumentError, BundleError, NoMatchingVariantError
from nojit.runtime.frozen_record import Record
from nojit.runtime.launch.constexprs import UNKNOWN, UNKNOWN_CONSTANT, constexpr_value
from nojit.runtime.launch.holders import Holder, best_holder, closest_holder
from nojit.runtime.launch.plans import grid_error, make_plan, read_row
from nojit.runtime.observe.events import emit, log
from nojit.runtime.table.table import MISSING
from nojit.runtime.target import parse_image_arch, spell_arch
from nojit.runtime.values import DType, FunctionRef
from nojit.runtime.wording import typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    # imported on demand: calls without a variant are rare, and NOJIT_TUNING is seldom set
    from nojit.runtime.explain.explanation import Explanation
    from nojit.runtime.fallback.jit_call import JitFallback
    from nojit.runtime.launch.bound_call import Facts
    from nojit.runtime.launch.call_facts import CallFacts
    from nojit.runtime.launch.rows_to_load import Only
    from nojit.runtime.table.table import KernelTable
    from nojit.runtime.target import ImageArch
    from nojit.runtime.triton_attributes import KernelParam, LaunchConfig
    from nojit.runtime.tuning.lookup import Lookup, Ordering
    from nojit.runtime.tuning.overrides import TuningSource
    from nojit.runtime.values import Value

    T = TypeVar("T")

__all__ = ["Choices", "Holder", "Kernel", "Warmed"]


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


class Kernel(_core.Dispatcher):
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
        DriverError: the CUDA driver reports an error.
    """

    def __init__(
        self,
        name: str,
        holders: Sequence[Holder],
        overrides: Mapping[Holder, TuningSource] | None = None,
        *,
        batch_invariant: bool = False,
    ) -> None:
        at_hand = holders[0] if len(holders) == 1 else _at_hand(holders)
        table = at_hand.table(name)
        self._holders = tuple(holders)
        self._at_hand = (at_hand, table)
        self._overrides = dict(overrides or {})
        self._batch_invariant = batch_invariant
        self._homes: dict[int, tuple[Holder, KernelTable]] = {}
        self._lookups: dict[int | ImageArch, Lookup] = {}
        self._params = table.params
        self._options = _option_names(table)
        self._ids = _core.Ids()
        self._plans: dict[tuple[int, int], _core.Plan] = {}
        self._fallback: JitFallback | None = None
        # reentrant: a finalizer may launch while this thread holds the lock
        self._lock = RLock()
        params = [
            (param.name, param.constexpr)
            if param.constexpr or param.default is MISSING
            else (param.name, param.constexpr, param.default)
            for param in table.params
        ]
        try:
            super().__init__(name, tuple(params), self._options, self._ids)
        except ValueError as error:
            raise BundleError(str(error), where=self._holders[0].where(name)) from None

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {', '.join(str(holder.image_arch) for holder in self._holders)})"

    def explain(self, /, *args: Any, device: int | None = None, arch: str | None = None, **kwargs: Any) -> Explanation:
        """Explain which variant a call would run, and why each other one does not match. Launches and loads nothing.

        Args:
            args: the arguments of a call; tensors may be in host memory.
            device: use this device instead of the tensors' own.
            arch: use this arch, ``sm_90`` or ``sm_90a``, instead of a device; then no driver is needed. If the bundle has tuning tables of
                several devices, the first one counts.
            kwargs: the named arguments of a call.
        """
        from nojit.runtime.explain.explanation import explain  # noqa: PLC0415 - launches ask for no reasons

        there, facts = self._facts(*args, **kwargs)
        ordinal = there if device is None else device
        holder = self._holder_for(self._capability(arch, ordinal))
        table = self._table(holder)
        lookup = self._lookup(holder, table, ordinal if arch is None else None)
        return explain(table, self._call_facts(holder, facts), lookup)

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
        from nojit.runtime.explain.explanation import choose  # noqa: PLC0415 - tuners ask

        there, facts = self._facts(*args, **kwargs)
        holder = self._holder_for(self._capability(arch, there if device is None else device))
        table, call = self._table(holder), self._call_facts(holder, facts)
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
            DriverError: the CUDA driver reports an error.
        """
        from nojit.runtime.launch.bound_call import is_dtype, placeholder  # noqa: PLC0415 - launches take tensors

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
            from nojit.runtime.launch.rows_to_load import check_only  # noqa: PLC0415 - most preloads load all

            check_only([self.variants(device)], only, f"kernel {self.name}")
        return self.load_variants(device, only)

    def load_variants(self, device: int | None, only: Only | None) -> int:
        """Load variants as `preload` does, but ignore names and values of `only` that no variant has."""
        ordinal = self._ordinal(device)
        holder, table = self._home(ordinal)
        images = set()
        for row in _rows_to_load(table, only):
            read = self._read(holder, table, row)
            holder.images.load(table, row, ordinal, read)
            images.add(read.image)
        return len(images)

    def variants(self, device: int | None = None) -> KernelTable:
        """Return the variant table for a device, by default the current one.

        Raises:
            NoMatchingVariantError: the kernel has no variants for the device.
        """
        ordinal = self._ordinal(device)
        return self._home(ordinal)[1]

    def fits(self, device: int | None = None) -> bool:
        """Return whether a bundle with this kernel runs on a device, by default the current one."""
        capability = _core.device_capability(self._ordinal(device))
        return any(holder.image_arch.runs_on(capability) for holder in self._holders)

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
        from nojit.runtime.triton_attributes import params_of  # noqa: PLC0415 - launches ask for none

        return params_of(self._at_hand[1])

    @property
    def configs(self) -> tuple[LaunchConfig, ...]:
        """The manifest's configs, of the first available architecture."""
        from nojit.runtime.triton_attributes import config_of  # noqa: PLC0415 - as above

        return tuple(map(config_of, self._at_hand[1].configs))

    @property
    def best_config(self) -> LaunchConfig:
        """The config of this kernel's last launch, on any device and thread.

        Raises:
            AttributeError: the kernel was not launched yet, or Triton's JIT ran every call.
        """
        from nojit.runtime.triton_attributes import config_of  # noqa: PLC0415 - as above

        if self._last is None:
            raise AttributeError(f"kernel {self.name} has no best_config: expected a launch before, got none")
        holder, row = self._last.payload
        table = self._table(holder)
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

    # called by the binding

    def _prepare(self, device: int) -> _core.Spec:
        """Make the spec of a device that has none yet."""
        holder, table = self._or_miss(device, lambda: self._home(device))
        ordering: Ordering | int | None = device
        if self._overrides or self._batch_invariant:
            lookup = self._lookup(holder, table, device)
            ordering = None if lookup is None or lookup.table is None else lookup.ordering(table)
        with self._lock:
            return _core.Spec(
                table.handle(), len(self._options), self._ids, holder.arch, ordering, holder.where(self.name)
            )

    def _refuse(self, device: int, facts: Facts) -> None:
        """Say why no variant serves a call, or why the kernel can never take it."""
        self._or_miss(device, lambda: self._best(device, facts))

    def _best(self, device: int, facts: Facts) -> int:
        from nojit.runtime.explain.explanation import best  # noqa: PLC0415 - the engine chooses

        holder, table = self._home(device)
        call = self._call_facts(holder, facts)
        # the reasons were given when the JIT ran the first call of this specialization
        explained = self._fallback is None or not self._fallback.knows(call)
        return best(table, call, self._lookup(holder, table, device), explained=explained)

    def _or_miss(self, device: int, choose: Callable[[], T]) -> T:
        """Run a selection; if no variant matches, count the call as a miss."""
        began_ns = perf_counter_ns()
        try:
            return choose()
        except NoMatchingVariantError as error:
            capability = _core.device_capability(device)
            asked = [holder.images.file.id for holder in self._holders if holder.image_arch.runs_on(capability)]
            emit("miss", began_ns, bundle=",".join(asked), kernel=self.name, device=device, detail=error.what)
            raise

    def _missed(
        self, error: NoMatchingVariantError, device: int, facts: Facts, given: Mapping[str, Any], grid: Any
    ) -> bool:
        """Run a missed call through Triton's JIT if ``NOJIT_MISS`` allows it; return False to raise the error."""
        from nojit.runtime.fallback.policy import policy  # noqa: PLC0415 - most calls are served

        if policy() == "error":
            return False
        from nojit.runtime.fallback.jit_call import JitFallback, MissedCall  # noqa: PLC0415 - as above

        with self._lock:
            fallback = self._fallback = self._fallback or JitFallback()
        fallback.take(error, MissedCall(device, given, grid), lambda: self._described(device, facts))
        return True

    def _described(self, device: int, facts: Facts) -> tuple[str, KernelTable, CallFacts]:
        """Return the bundle, the variants and the facts that describe a missed call."""
        capability = _core.device_capability(device)
        if any(holder.image_arch.runs_on(capability) for holder in self._holders):
            holder = self._holder_for(capability)
        else:
            holder = min(self._holders, key=lambda other: abs(other.image_arch.number - capability))
        return holder.images.file.index.name, self._table(holder), self._call_facts(holder, facts)

    def _plan_of(self, device: int, row: int) -> _core.Plan:
        """Return the plan of a row of a device's table; make it at the first call."""
        holder, table = self._home(device)
        began_ns, known = perf_counter_ns(), True
        with self._lock:
            plan = self._plans.get((device, row))
            if plan is None:
                known = False
                plan = self._plans[device, row] = self._plan(holder, table, row, device)
        if not known:
            id_of, bundle = lambda: table.variant_id(row), holder.images.file.id
            emit("plan", began_ns, bundle=bundle, kernel=self.name, variant=id_of, device=device)
        return plan

    def _note_hints(self, plan: _core.Plan, hint_set: int, facts: Facts) -> None:
        """Note the hints that a specialization misses, where a variant of its config has more than the one that serves it."""
        from nojit.runtime.explain.hint_misses import note  # noqa: PLC0415 - most calls have the variant with most hints

        holder, row = plan.payload
        call = self._call_facts(holder, facts)
        note(self._table(holder), row, hint_set, call, bundle=holder.images.file.id, device=plan.device)

    def _constexpr_value(self, value: Any, name: str) -> Value:
        """Return what a bundle stores for a constexpr of a type that C does not know."""
        return constexpr_value(value, name, self.name)

    def _constexpr_key(self, value: Any) -> tuple[int, int]:
        """Return the key of a constexpr whose type C does not know."""
        try:
            read = constexpr_value(value, "", self.name)
        except ArgumentError:
            # `_refuse` knows the constexpr's name and says so
            return UNKNOWN
        key = self._ids.find(read)
        return UNKNOWN_CONSTANT if key == UNKNOWN and isinstance(read, str | DType | FunctionRef) else key

    def _check_option(self, name: str, value: object) -> None:
        """Refuse a keyword that the kernel does not have, unless it is an option of Triton with the built value."""
        from nojit.runtime.explain.refusals import not_as_built, unexpected  # noqa: PLC0415 - as above
        from nojit.runtime.launch_options import BUILT_WITH, is_as_built  # noqa: PLC0415 - most calls name what there is

        if name not in BUILT_WITH:
            what = unexpected(name, (*self.arg_names, *self._options, "stream", *BUILT_WITH))
        elif is_as_built(name, value):
            return
        else:
            what = not_as_built(name, value)
        raise ArgumentError(what, where=f"kernel {self.name}", argument=name)

    def _refuse_grid(self, plan: _core.Plan, dimension: int, facts: Facts) -> None:
        holder, row = plan.payload
        raise grid_error(self._table(holder), row, dimension, self._call_facts(holder, facts))

    # selection, outside of the fast path

    def _home(self, device: int) -> tuple[Holder, KernelTable]:
        """Return the bundle for a device and its variants; found once."""
        # checked every time: after a fork it raises, and a lock that was held in the parent is never released
        capability = _core.device_capability(device)
        home = self._homes.get(device)
        if home is None:
            holder = self._holder_for(capability)
            home = self._homes[device] = (holder, self._table(holder))
            for other in self._holders:
                if other is not holder:
                    fits = other.image_arch.runs_on(capability)
                    reason = f"{holder} fits better" if fits else f"the device is {spell_arch(capability)}"
                    log(10, f"passed over {other} kernel={self.name} device={device}: {reason}")
        return home

    def _ordinal(self, device: int | None) -> int:
        """Return a device's ordinal; for None, the current device's.

        Raises:
            ArgumentError: `device` is not an ordinal.
        """
        if device is None:
            return _core.current_device()
        # the driver refuses all other invalid ordinals
        if type(device) is not int or not -(1 << 31) <= device < 1 << 31:
            what = "expected the ordinal of a device, or None for the current one"
            raise ArgumentError(what, got=typed(device), where=f"kernel {self.name}", argument="device")
        return device

    def _holder_for(self, capability: int) -> Holder:
        return closest_holder(self._holders, capability, self.name)

    def _capability(self, arch: str | None, device: int | None) -> int:
        if arch is not None:
            try:
                # an image's arch, such as sm_90a, stands for its target
                return parse_image_arch(str(arch)).number
            except ValueError:
                what = "expected an arch such as sm_90 or gfx942"
                raise ArgumentError(what, got=repr(arch), where=f"kernel {self.name}", argument="arch") from None
        if device is None and len(self._holders) == 1:
            return self._holders[0].image_arch.number
        return _core.device_capability(self._ordinal(device))

    def _table(self, holder: Holder) -> KernelTable:
        at_hand, table = self._at_hand
        if holder is at_hand:
            return table
        table = holder.table(self.name)
        if table.params != self._params:
            raise BundleError(
                f"expected kernel {self.name} to have the same params in every bundle; rebuild the bundles",
                got=f"others in {holder}",
                where=str(self._holders[0]),
            )
        return table

    def _lookup(self, holder: Holder, table: KernelTable, device: int | None) -> Lookup | None:
        """Return the kernel's tuning for a device; without a device, for the first measured one."""
        place = holder.image_arch if device is None else device
        known, tuning = self._lookups.get(place), table.tuning
        if known is not None or (tuning is None and not self._overrides and not self._batch_invariant):
            return known
        origins: Sequence[str] = [holder.images.file.path] * (len(tuning.tables) if tuning else 0)
        if self._overrides and (override := self._overrides.get(holder)):
            tuning, origins = override.tuning, override.origins
        if self._batch_invariant:
            from nojit.runtime.tuning.invariance import settled  # noqa: PLC0415 - seldom asked for

            tuning = settled(tuning, table, spell_arch(holder.arch))
            origins = origins or [holder.images.file.path]
        if tuning is None:
            return None
        from nojit.runtime.tuning.lookup import lookup_of  # noqa: PLC0415 - the engine reads a bundle's own tables

        return self._lookups.setdefault(place, lookup_of(tuning, table, origins, device))

    def _call_facts(self, holder: Holder, facts: Facts) -> CallFacts:
        from nojit.runtime.launch.bound_call import call_facts  # noqa: PLC0415 - the engine chooses

        return call_facts(facts, self._table(holder), holder.arch)

    def _plan(self, holder: Holder, table: KernelTable, row: int, device: int) -> _core.Plan:
        return make_plan(holder, table, row, device, self._read(holder, table, row))

    def _read(self, holder: Holder, table: KernelTable, row: int) -> _core.Row:
        return read_row(holder, table, row, arguments=len(self._params) + len(self._options), ids=self._ids)


def _at_hand(holders: Sequence[Holder]) -> Holder:
    """Return the holder that a first launch will probably read, so that only one is read; all have the same params."""
    capability = _core.running_capability()
    if not capability:
        return holders[0]
    return best_holder(holders, capability) or holders[0]


def _rows_to_load(table: KernelTable, only: Only | None) -> list[int]:
    if only is None:
        return table.handle().rows_to_load(None)
    from nojit.runtime.launch.rows_to_load import rows_to_load  # noqa: PLC0415 - most preloads load all

    return rows_to_load(table, only)


def _option_names(table: KernelTable) -> tuple[str, ...]:
    """Return the names of all options of any config, in order of appearance."""
    names: dict[str, object] = {}
    for config in table.configs:
        names.update(config.options)
    return tuple(names)


def _key_of(table: KernelTable, call: CallFacts) -> dict[str, int]:
    if table.tuning is None:
        return {}
    from nojit.runtime.explain.selection import Selection  # noqa: PLC0415 - tuners ask
    from nojit.runtime.tuning.lookup import Lookup  # noqa: PLC0415 - as above

    numbers = Selection(table, call, Lookup(table.tuning, None, "")).engine.numbers
    return dict(zip(table.tuning.key, numbers, strict=True))
