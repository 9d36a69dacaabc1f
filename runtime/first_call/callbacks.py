"""Answers of a kernel to the binding, most of them at the first call of a specialization.

The engine selects and launches. Python makes specs and plans (`nojit.runtime.first_call.plans`), words errors
(`nojit.runtime.explain`), and hands calls that no variant serves to `nojit.runtime.fallback`.
"""

from __future__ import annotations

from _thread import RLock
from time import perf_counter_ns

from nojit.runtime import _core
from nojit.runtime.call.constexprs import UNKNOWN, UNKNOWN_CONSTANT, constexpr_value
from nojit.runtime.errors import ArgumentError, BundleError, NoMatchingVariantError
from nojit.runtime.first_call.plans import grid_error, make_plan, read_row
from nojit.runtime.observe.events import emit
from nojit.runtime.values import DType, FunctionRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from nojit.runtime.call.bound_call import Facts
    from nojit.runtime.call.call_facts import CallFacts
    from nojit.runtime.called_by_c import KernelCallbacks

    # imported on demand: calls without a variant are rare
    from nojit.runtime.fallback.jit_call import JitFallback
    from nojit.runtime.first_call.arch_bundle import ArchBundle
    from nojit.runtime.first_call.kernel_bundles import KernelBundles
    from nojit.runtime.table.parts import Param
    from nojit.runtime.table.table import KernelTable
    from nojit.runtime.values import Value

    T = TypeVar("T")

__all__ = ["FirstCalls"]

# a row takes some 10 KB
_ROWS_KEPT_MAX = 8


class FirstCalls(_core.Dispatcher):
    """The methods of a kernel that the binding calls by name; `nojit.runtime.called_by_c.KernelCallbacks` says when.

    They are methods of the kernel, not of a member, because the binding passes the kernel to every function that reads a call: a
    member would be one more load in each launch.
    """

    def __init__(self, bundles: KernelBundles) -> None:
        table = bundles.first_table
        self._bundles = bundles
        params, self._options = table.signature()
        self._arguments = len(params) + len(self._options)
        self._ids = _core.Ids()
        self._plans: dict[tuple[int, int], _core.Plan] = {}
        # what a preload read of rows, for the plans to come, by device and row
        self._rows: dict[tuple[int, int], _core.Row] = {}
        self._fallback: JitFallback | None = None
        # reentrant: a finalizer may launch while this thread holds the lock
        self._lock = RLock()
        try:
            super().__init__(bundles.kernel, params, self._options, self._ids)
        except ValueError as error:
            raise BundleError(str(error), where=bundles.bundles[0].where(bundles.kernel)) from None

    @property
    def _params(self) -> tuple[Param, ...]:
        return self._bundles.first_table.params

    def _prepare(self, device: int) -> _core.Spec:
        """Make the spec of a device that has none yet."""
        bundle, table = self._or_miss(device, self._bundles.of, device)
        ordering = self._bundles.ordering(bundle, table, device)
        with self._lock:
            return _core.Spec(
                table.handle(), len(self._options), self._ids, bundle.arch, ordering, bundle.where(self.name)
            )

    def _refuse(self, device: int, facts: Facts) -> None:
        """Say why no variant serves a call, or why the kernel can never take it."""
        # no closure: where CPython 3.11 has no room for a cell, it keeps the arguments of its function
        self._or_miss(device, self._best, device, facts)

    def _best(self, device: int, facts: Facts) -> int:
        from nojit.runtime.explain.explanation import best

        bundle, table = self._bundles.of(device)
        call = self._call_facts(bundle, facts)
        # the reasons were given when the JIT ran the first call of this specialization
        explained = self._fallback is None or not self._fallback.knows(call)
        return best(table, call, self._bundles.lookup(bundle, table, device), explained=explained)

    def _or_miss(self, device: int, choose: Callable[..., T], *arguments: Any) -> T:
        """Run a selection; if no variant matches, count the call as a miss."""
        began_ns = perf_counter_ns()
        try:
            return choose(*arguments)
        except NoMatchingVariantError as error:
            asked = [bundle.images.file.id for bundle in self._bundles.running_on(_core.device_capability(device))]
            emit("miss", began_ns, bundle=",".join(asked), kernel=self.name, device=device, detail=error.what)
            raise

    def _missed(
        self, error: NoMatchingVariantError, device: int, facts: Facts, given: Mapping[str, Any], grid: Any
    ) -> bool:
        """Run a missed call through Triton's JIT if ``NOJIT_MISS`` allows it; return False to raise the error."""
        from nojit.runtime.fallback.policy import policy

        if policy() == "error":
            return False
        from functools import partial  # slow to import; a closure would leak, as in `_refuse`

        from nojit.runtime.fallback.jit_call import JitFallback, MissedCall

        with self._lock:
            fallback = self._fallback = self._fallback or JitFallback()
        fallback.take(error, MissedCall(device, given, grid), partial(self._described, device, facts))
        return True

    def _described(self, device: int, facts: Facts) -> tuple[str, KernelTable, CallFacts]:
        """Return the bundle, the variants and the facts that describe a missed call."""
        bundle = self._bundles.nearest(_core.device_capability(device))
        return bundle.images.file.index.name, self._bundles.table(bundle), self._call_facts(bundle, facts)

    def _plan_of(self, device: int, row: int) -> _core.Plan:
        """Return the plan of a row of a device's table; make it at the first call."""
        bundle, table = self._bundles.of(device)
        began_ns, known = perf_counter_ns(), True
        with self._lock:
            plan = self._plans.get((device, row))
            if plan is None:
                known = False
                plan = self._plans[device, row] = self._plan(bundle, table, row, device)
        if not known:
            id_of, bundle_id = lambda: table.variant_id(row), bundle.images.file.id
            emit("plan", began_ns, bundle=bundle_id, kernel=self.name, variant=id_of, device=device)
        return plan

    def _note_hints(self, plan: _core.Plan, hint_set: int, facts: Facts) -> None:
        """Note the hints that a specialization misses, where a variant of its config has more than the one that serves it."""
        from nojit.runtime.explain.hint_misses import note

        bundle, row = plan.payload
        call = self._call_facts(bundle, facts)
        note(self._bundles.table(bundle), row, hint_set, call, bundle=bundle.images.file.id, device=plan.device)

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
        from nojit.runtime.base.launch_options import BUILT_WITH, is_as_built
        from nojit.runtime.explain.refusals import not_as_built, unexpected

        if name not in BUILT_WITH:
            what = unexpected(name, (*(param.name for param in self._params), *self._options, "stream", *BUILT_WITH))
        elif is_as_built(name, value):
            return
        else:
            what = not_as_built(name, value)
        raise ArgumentError(what, where=f"kernel {self.name}", argument=name)

    def _refuse_grid(self, plan: _core.Plan, dimension: int, facts: Facts) -> None:
        bundle, row = plan.payload
        raise grid_error(self._bundles.table(bundle), row, dimension, self._call_facts(bundle, facts))

    def _call_facts(self, bundle: ArchBundle, facts: Facts) -> CallFacts:
        from nojit.runtime.call.bound_call import call_facts

        return call_facts(facts, self._bundles.table(bundle), bundle.arch)

    def _plan(self, bundle: ArchBundle, table: KernelTable, row: int, device: int) -> _core.Plan:
        read = self._rows.pop((device, row), None) or self._read(bundle, table, row)
        return make_plan(bundle, table, row, device, read)

    def _preload(self, bundle: ArchBundle, table: KernelTable, row: int, device: int) -> int:
        """Put a row's image on a device; return the image's number. Few rows are kept for the plans to come, so that none is read twice."""
        read = self._read(bundle, table, row)
        bundle.images.load(table, row, device, read)
        if (device, row) not in self._plans and len(self._rows) < _ROWS_KEPT_MAX:
            self._rows[device, row] = read
        return read.image

    def _read(self, bundle: ArchBundle, table: KernelTable, row: int) -> _core.Row:
        return read_row(bundle, table, row, arguments=self._arguments, ids=self._ids)


if TYPE_CHECKING:
    # what C calls by name has the types that C expects
    _CALLBACKS: type[KernelCallbacks] = FirstCalls
