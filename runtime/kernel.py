"""The user's handle on a kernel. The C core launches; what it has not met before is decided here, once per kind of call.

`Kernel` knows which bundle serves which device, chooses the variant (`nojit.runtime.select`), loads its image
(`nojit.runtime.images`) and hands the core a plan.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nojit.runtime import _core, expr
from nojit.runtime.call import Argument, CallFacts, are_addresses, expression_value
from nojit.runtime.errors import ArgumentError, BundleError, NoMatchingVariantError, did_you_mean
from nojit.runtime.images import Images
from nojit.runtime.keys import UNKNOWN, Interner, constexpr_value, make_spec, row_names, row_programs
from nojit.runtime.record import Record
from nojit.runtime.select import Explanation, choose, explain
from nojit.runtime.slots import packing_of
from nojit.runtime.table import KernelTable, Missing
from nojit.runtime.target import ImageArch, arch_number, parse_image_arch
from nojit.runtime.values import Value

if TYPE_CHECKING:
    # most kernels are not tuned
    from nojit.runtime.tuning import Lookup
    from nojit.runtime.tuning_source import TuningSource

__all__ = ["Choices", "Kernel", "Source", "Warmed"]

Facts: TypeAlias = tuple[dict[str, tuple[str, str, Any]], dict[str, Any], dict[str, Any]]
"""What the core says of a call: (kind, dtype, value) of each argument, the constexprs and options given, by name."""

_PLAIN_KINDS: tuple[Literal["int", "float", "bool", "none"], ...] = ("int", "float", "bool", "none")


class Source(Record):
    """A bundle file that holds the kernel for one arch."""

    images: Images
    image_arch: ImageArch
    arch: int
    """What ``arch`` stands for in expressions: 90."""

    @staticmethod
    def of(images: Images) -> Source:
        """Describe a file by its target."""
        target = images.file.index.target
        return Source(images, parse_image_arch(target.image_arch), arch_number(target.arch))

    def table(self, kernel: str) -> KernelTable:
        """Read the variants of a kernel."""
        return self.images.file.table(kernel)

    def __str__(self) -> str:
        return f"{self.images.file.path} ({self.image_arch})"


class Warmed(Record):
    """What a call would run, loaded and ready."""

    variant: str
    """Its id, config, and the bundle that it came from."""
    device: int
    """The ordinal."""


class Choices(Record):
    """What could serve a call."""

    table: KernelTable
    rows: tuple[int, ...]
    """Of the table, the best first."""
    key: dict[str, int]
    """Each expression of the tuning key with its value; empty if there is no key."""


class _Label(Record):
    """Names a variant in errors: put into words when there is one."""

    table: KernelTable
    row: int
    bundle: str

    def __str__(self) -> str:
        return f"{self.table.variant_id(self.row)} ({self.table.label(self.row)}) of bundle {self.bundle}"


class _Typed:
    """Stands for a tensor of which only the dtype is known; aligned like one that was just allocated."""

    def __init__(self, dtype: object) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        """Return an address that every hint of divisibility holds for."""
        return 0


class Kernel(_core.Dispatcher):
    """One kernel of a bundle: call it, or give it a grid first as in Triton.

    ``kernel[grid](*arguments, **named)`` launches on the current stream of the arguments' framework, or on ``stream=``.
    Arguments come in the order of the kernel function, constexprs included, or by name; options such as ``num_warps``
    only by name. `grid` is a tuple of one to three ints, or a function of a mapping that holds the constexprs and
    options of the chosen variant and the arguments, by name. ``kernel(...)`` takes the grid from the bundle. Launches
    return None and do not wait.

    ``kernel.bind(grid, **fixed)`` fixes the grid and whatever is passed by name, constexprs, options, the stream or
    arguments; what it returns is called with the rest, and makes no Python object per launch. Without a grid, the
    bundle's is computed for each launch.

    Get one from `nojit.runtime.loader.Bundle.kernel`, which also reads what ``NOJIT_TUNING`` names. Safe to use from several threads.

    Raises:
        ArgumentError: on a call, for an argument that the kernel cannot take.
        NoMatchingVariantError: on a call, where nothing in the bundle serves it; says why, and what to build.
        BundleError: at a variant's first launch, where its image is not what was built.
        DriverError: where the CUDA driver refuses.
    """

    def __init__(
        self, name: str, sources: Sequence[Source], overrides: Mapping[Source, TuningSource] | None = None
    ) -> None:
        table = sources[0].table(name)
        self._sources = tuple(sources)
        self._overrides = dict(overrides or {})
        self._lookups: dict[tuple[ImageArch, int | None], Lookup] = {}
        self._params = table.params
        self._options = tuple(dict.fromkeys(key for config in table.configs for key, _ in config.options))
        self._interner = Interner()
        self._plans: dict[tuple[int, int], _core.Plan] = {}
        # a finalizer that launches may run while this thread holds it
        self._lock = threading.RLock()
        params = tuple(
            (param.name, param.constexpr)
            if param.constexpr or isinstance(param.default, Missing)
            else (param.name, param.constexpr, param.default)
            for param in table.params
        )
        super().__init__(name, params, self._options, self._interner.strings)

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {', '.join(str(source.image_arch) for source in self._sources)})"

    def explain(self, *args: Any, device: int | None = None, arch: str | None = None, **kwargs: Any) -> Explanation:
        """Say which variant a call would run, and why each other one would not. Launches and loads nothing.

        Args:
            args: as in a call; tensors may lie in host memory.
            device: instead of the tensors' own device.
            arch: ``sm_90``; instead of a device, so that no driver is needed. Of several devices that were tuned for,
                the first in the bundle stands for it.
            kwargs: as in a call.
        """
        there, facts = self._facts(*args, **kwargs)
        ordinal = there if device is None else device
        source = self._source_for(self._capability(arch, ordinal))
        lookup = self._lookup(source, ordinal if arch is None else None)
        return explain(self._table(source), self._call_facts(source, facts), lookup)

    def choices(self, *args: Any, device: int | None = None, arch: str | None = None, **kwargs: Any) -> Choices:
        """List every variant that could serve a call, the best first: what a tuner tries. Launches and loads nothing.

        Args:
            args: as in a call.
            device: as for `explain`.
            arch: likewise.
            kwargs: as in a call.

        Raises:
            ArgumentError: as a call.
            NoMatchingVariantError: as a call.
        """
        there, facts = self._facts(*args, **kwargs)
        source = self._source_for(self._capability(arch, there if device is None else device))
        table, call = self._table(source), self._call_facts(source, facts)
        return Choices(table, choose(table, call).considered, _key_of(table, call))

    def warmup(self, *args: Any, grid: object = None, **kwargs: Any) -> Warmed:  # noqa: ARG002 - Triton's spelling
        """Choose and load the variant for a call, so that launching like this loads and decides nothing. Launches nothing.

        Args:
            args: as in a call; a dtype (``torch.float16``) stands for a tensor that is aligned to 16 bytes.
            grid: not looked at; there so that calls of Triton's own ``warmup`` can stay.
            kwargs: as in a call.

        Raises:
            ArgumentError: as a call.
            NoMatchingVariantError: as a call.
            BundleError: as a call.
            DriverError: as a call.
        """
        names = [param.name for param in self._params if not param.constexpr]
        given = [
            _stand_in(arg) if place >= len(self._params) or not self._params[place].constexpr else arg
            for place, arg in enumerate(args)
        ]
        named = {name: _stand_in(arg) if name in names else arg for name, arg in kwargs.items()}
        plan = self._warm(*given, **named)
        source, row = plan.payload
        table = self._table(source)
        launch = table.launches[table.columns["launch"][row]]
        source.images.function(table.columns["image"][row], launch, plan.device).load(plan.device)
        return Warmed(str(plan.label), plan.device)

    def preload(self, device: int | None = None) -> int:
        """Load every image that fits a device now, so that no launch does.

        Args:
            device: the current one if None.

        Returns:
            How many images the kernel has there.
        """
        ordinal = _core.current_device() if device is None else device
        source = self._source_for(_core.device_capability(ordinal))
        table = self._table(source)
        used = dict.fromkeys(zip(table.columns["image"], table.columns["launch"], strict=True))
        for image, launch in used:
            source.images.function(image, table.launches[launch], ordinal).load(ordinal)
        return len({image for image, _ in used})

    def fits(self, device: int | None = None) -> bool:
        """Say whether some bundle of the kernel runs on a device; on the current one if None."""
        capability = _core.device_capability(_core.current_device() if device is None else device)
        return any(source.image_arch.runs_on(capability) for source in self._sources)

    # what the core asks for

    def _prepare(self, device: int) -> _core.Spec:
        """Make the spec of a device that has none."""
        source = self._source_for(_core.device_capability(device))
        table, lookup = self._table(source), self._lookup(source, device)
        tuning = None if lookup is None or lookup.table is None else lookup.tuning
        with self._lock:
            return make_spec(table, self._options, self._interner, source.arch, self._where(source), tuning=tuning)

    def _resolve(self, device: int, facts: Facts) -> _core.Plan:
        """Choose the variant for a call that has no plan."""
        source = self._source_for(_core.device_capability(device))
        table = self._table(source)
        row = choose(table, self._call_facts(source, facts), self._lookup(source, device)).row
        with self._lock:
            plan = self._plans.get((device, row))
            if plan is None:
                plan = self._plans[device, row] = self._plan(source, table, row, device)
        return plan

    def _constexpr_key(self, value: Any) -> tuple[int, int]:
        """Say what a constexpr of a type that C does not know stands for."""
        try:
            return self._interner.key(constexpr_value(value, "", self.name))
        except ArgumentError:
            # `_resolve` knows the constexpr's name and says so
            return UNKNOWN

    def _refuse_keyword(self, name: str) -> None:
        known = [param.name for param in self._params] + [*self._options, "stream"]
        what = f"unexpected argument {name!r}{did_you_mean(name, known)}"
        raise ArgumentError(what, where=f"kernel {self.name}", argument=name)

    def _refuse_grid(self, plan: _core.Plan, dimension: int, facts: Facts) -> None:
        source, row = plan.payload
        table = self._table(source)
        names: dict[str, Argument | Value] = {**row_names(table, row), **self._call_facts(source, facts).arguments}
        text = table.grid[dimension]
        try:
            value = expr.parse(text).evaluate(
                {name: expression_value(value) for name, value in names.items()} | {"arch": source.arch}
            )
        except expr.ExpressionError as error:
            got = error.message
        else:
            got = f"{type(value).__name__} {value!r}"
        raise ArgumentError(
            f"expected an int for grid[{dimension}], which is {text!r}", got=got, where=f"kernel {self.name}"
        )

    # the slow path

    def _source_for(self, capability: int) -> Source:
        fitting = [source for source in self._sources if source.image_arch.runs_on(capability)]
        if fitting:
            return min(fitting, key=lambda source: source.image_arch.closeness(capability))
        built = sorted(self._sources, key=lambda source: abs(source.image_arch.number - capability))
        raise NoMatchingVariantError(
            f"bundle has {', '.join(str(source.image_arch) for source in built)}; device is sm_{capability}",
            where=f"kernel {self.name}",
            reasons=tuple((str(source), f"does not run on sm_{capability}") for source in built),
        )

    def _capability(self, arch: str | None, device: int | None) -> int:
        if arch is not None:
            try:
                # an image's arch, sm_90a say, stands for its target
                return parse_image_arch(str(arch)).number
            except ValueError:
                what = "expected an arch such as sm_90"
                raise ArgumentError(what, got=repr(arch), where=f"kernel {self.name}", argument="arch") from None
        if device is None and len(self._sources) == 1:
            return self._sources[0].image_arch.number
        return _core.device_capability(_core.current_device() if device is None else device)

    def _table(self, source: Source) -> KernelTable:
        table = source.table(self.name)
        if table.params != self._params:
            raise BundleError(
                f"expected kernel {self.name} to have the same params in every bundle",
                got=f"others in {source}",
                where=str(self._sources[0]),
            )
        return table

    def _lookup(self, source: Source, device: int | None) -> Lookup | None:
        """Find the kernel's tuning on a device; without a device, that of the first that was measured."""
        known = self._lookups.get((source.image_arch, device))
        tuning = self._table(source).tuning
        if known is not None or (tuning is None and not self._overrides):
            return known
        from nojit.runtime.tuning import lookup_of  # noqa: PLC0415 - most kernels are not tuned

        origins: Sequence[str] = [source.images.file.path] * (len(tuning.tables) if tuning else 0)
        if override := self._overrides.get(source):
            tuning, origins = override.tuning, override.origins
        if tuning is None:
            return None
        facts = None if device is None else partial(_core.device_facts, device)
        return self._lookups.setdefault((source.image_arch, device), lookup_of(tuning, origins, facts))

    def _where(self, source: Source) -> str:
        return f"{source} kernel {self.name}"

    def _call_facts(self, source: Source, facts: Facts) -> CallFacts:
        arguments, constexprs, options = facts
        types = self._table(source).param_types()
        return CallFacts(
            arguments={name: self._argument(name, *fact, types[name]) for name, fact in arguments.items()},
            constexprs={name: constexpr_value(value, name, self.name) for name, value in constexprs.items()},
            options={name: constexpr_value(value, name, self.name) for name, value in options.items()},
            arch=source.arch,
        )

    def _argument(self, name: str, kind: str, dtype: str, value: Any, types: Sequence[str]) -> Argument:
        if kind == "int" and 0 <= value < 1 << 64 and are_addresses(types):
            return Argument("pointer", value)
        if kind == "pointer":
            return Argument("pointer", value, dtype)
        for known in _PLAIN_KINDS:
            if kind == known:
                return Argument(known, value)
        if kind == "tuple":
            items = tuple(
                self._argument(f"{name}.{place}", item[0], item[1], item[2], []) for place, item in enumerate(value)
            )
            return Argument("tuple", items=items)
        if kind == "descriptor":
            return Argument("descriptor", value, dtype)
        raise ArgumentError(
            f"expected {' or '.join(types) or 'a tensor, a number, None or a tuple of them'}",
            got=type(value).__name__,
            where=f"argument {name} of kernel {self.name}",
            argument=name,
        )

    def _plan(self, source: Source, table: KernelTable, row: int, device: int) -> _core.Plan:
        where = self._where(source)
        launch = table.launches[table.columns["launch"][row]]
        packing = packing_of(table, row, {param.name: place for place, param in enumerate(self._params)}, where)
        names = row_names(table, row)
        return _core.Plan(
            label=_Label(table, row, source.images.file.id),
            function=source.images.function(table.columns["image"][row], launch, device, packing.sizes),
            device=device,
            arguments=len(self._params) + len(self._options),
            slots=packing.slots,
            maps=packing.maps,
            grid=row_programs(table, names, self._interner, source.arch, where),
            meta=_without_types(table, names),
            payload=(source, row),
            block_threads=32 * launch.num_warps,
            num_ctas=launch.num_ctas,
            shared_bytes=launch.shared_bytes,
            cooperative=launch.cooperative,
            pdl=launch.pdl,
            global_scratch=(launch.global_scratch_bytes, launch.global_scratch_align),
            profile_scratch=(launch.profile_scratch_bytes, launch.profile_scratch_align),
        )


def _without_types(table: KernelTable, names: Mapping[str, Value]) -> dict[str, Value]:
    """Return what a callable grid sees of a row: its constexprs and options."""
    types = {axis.name for axis in table.axes if axis.is_type}
    return {name: value for name, value in names.items() if name not in types}


def _key_of(table: KernelTable, call: CallFacts) -> dict[str, int]:
    from nojit.runtime.tuning import key_values  # noqa: PLC0415 - only the tuner asks

    if table.tuning is None:
        return {}
    names = {name: expression_value(argument) for name, argument in call.arguments.items()}
    return dict(zip(table.tuning.key, key_values(tuple(map(expr.parse, table.tuning.key)), names), strict=True))


def _stand_in(argument: Any) -> Any:
    return _Typed(argument) if type(argument).__name__ == "dtype" or isinstance(argument, type) else argument
