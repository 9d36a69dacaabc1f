"""The variant table of one kernel: pools of distinct facts, and columns of small integers that point into them.

A table begins its kernel's section of a bundle (`nojit.runtime.bundle.format`). Ten thousand variants as plain JSON take a quarter of a
second to parse; here the JSON holds only what differs (a few signatures, cases, configs, hint sets), and one
variant is one row of unsigned 32-bit integers, read in place. `nojit.runtime.table.reading` has the engine read one.
"""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence
    from typing import Any

    from nojit.runtime.base.strict_json import Json

    # imported on demand: a first call asks for no part of a table
    from nojit.runtime.table.parts import Axis, Case, Config, Derived, Launch, Param
    from nojit.runtime.table.tuning import Tuning
    from nojit.runtime.values import Value

__all__ = ["KernelTable"]


class KernelTable(Record):
    """All variants of one kernel for one target.

    Of a table that was read from a bundle (`of`), each field is made when it is asked for.
    """

    kernel: str
    params: tuple[Param, ...]
    grid: tuple[str, ...]
    """One expression per dimension; empty if every call gives its own grid."""
    tuning: Tuning | None
    """None if nothing says what the best config depends on."""
    axes: tuple[Axis, ...]
    derived: tuple[Derived, ...]
    signatures: tuple[tuple[str, ...], ...]
    """For each runtime param in order, its type; ``none`` where None was compiled in."""
    cases: tuple[Case, ...]
    configs: tuple[Config, ...]
    """In order of preference."""
    hint_sets: tuple[tuple[tuple[str, int], ...], ...]
    """Each a set of (param, 16 or 1): divisible by 16, equal to 1."""
    derived_values: tuple[tuple[Value, ...], ...]
    """For each derived constexpr in order, its value."""
    launches: Sequence[Launch]
    """A tuple, or as read from a bundle: each is decoded, and its rules are checked, when it is asked for."""
    programs: tuple[str, ...]
    """Each of `expressions` in postfix (`nojit.runtime.expr.postfix`), so that none is parsed at a launch."""
    columns: dict[str, array[int]]
    """Rows sorted by the key columns; each `COLUMNS` name has one integer per row."""
    batch: tuple[str, ...] = ()
    """Int params that grow with the batch, such as the number of rows, and not with the size of a row."""

    __slots__ = ("_by_expression", "_handle", "_param_types")

    @staticmethod
    def of(kernel: str, handle: _core.Table, launches: Sequence[Launch]) -> KernelTable:
        """Make a table of one that the engine has read."""
        table = KernelTable.__new__(KernelTable)
        for name, value in (("kernel", kernel), ("launches", launches), ("_handle", handle)):
            object.__setattr__(table, name, value)
        return table

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Make a field that nobody asked for before. All threads get the same object."""
            if name not in _MADE_LATER:
                raise AttributeError(name)
            made = self._handle.part(name)
            object.__setattr__(self, name, made)
            return made

    def handle(self) -> _core.Table:
        """Return the table as the engine holds it.

        Raises:
            ValueError: the table was made by hand. `nojit.runtime.table.reading.decode_table` returns one that the engine holds.
        """
        known: _core.Table | None = getattr(self, "_handle", None)
        if known is None:
            raise ValueError(
                f"expected a table that the engine has read, got one made by hand - at kernel {self.kernel}"
            )
        return known

    def check_row(self, row: int, where: str) -> None:
        """Check what a row packs against its signature and its hints.

        Each leaf of the signature that is neither None, a constant nor hinted to be 1 has its slot, in order and of its type, or the
        slots of its descriptor; scratch pointers come last; each tensor map is described.

        Raises:
            BundleFormatError: they differ (rule ``layout``), or a hint is of a leaf that is none (rule ``param``).
        """
        self.handle().check_row(row, where)

    def __len__(self) -> int:
        return len(self.columns["image"])

    def expressions(self) -> tuple[str, ...]:
        """Return every expression: of the grid, the derived constexprs, the tuning key, and the configs that have one."""
        return (
            *self.grid,
            *[derived.expression for derived in self.derived],
            *(self.tuning.key if self.tuning else ()),
            *[config.requires for config in self.configs if config.requires],
        )

    def programs_by_expression(self) -> dict[str, str]:
        """Return the program of each expression; none of a table that has none."""
        known: dict[str, str] | None = getattr(self, "_by_expression", None)
        if known is None:
            known = dict(zip(self.expressions(), self.programs, strict=True)) if self.programs else {}
            object.__setattr__(self, "_by_expression", known)
        return known

    def signature(self) -> tuple[tuple[tuple[Any, ...], ...], tuple[str, ...]]:
        """Return the params and the names of all options of any config, as the binding's `Dispatcher` takes them."""
        known: _core.Table | None = getattr(self, "_handle", None)
        if known is not None:
            return known.signature()
        from nojit.runtime.table.parts import MISSING

        params = [
            (param.name, param.constexpr)
            if param.constexpr or param.default is MISSING
            else (param.name, param.constexpr, param.default)
            for param in self.params
        ]
        return tuple(params), tuple(dict.fromkeys(name for config in self.configs for name, _ in config.options))

    def runtime_params(self) -> tuple[str, ...]:
        """Return the params that signatures type, in order."""
        return tuple([param.name for param in self.params if not param.constexpr])

    def param_types(self) -> dict[str, tuple[str, ...]]:
        """Return the distinct types of each param that signatures type, in the order of the signatures."""
        known: dict[str, tuple[str, ...]] | None = getattr(self, "_param_types", None)
        if known is None:
            names = self.runtime_params()
            by_param = zip(*self.signatures, strict=True) if self.signatures else [()] * len(names)
            known = dict(zip(names, map(tuple, map(dict.fromkeys, by_param)), strict=True))
            self.know_param_types(known)
        return known

    def know_param_types(self, types: dict[str, tuple[str, ...]]) -> None:
        """Keep what `param_types` is to return, where it is known."""
        object.__setattr__(self, "_param_types", types)

    def key(self, row: int) -> tuple[int, ...]:
        """Return what tells a row from every other: its case, config, hints and derived constexprs."""
        columns = self.columns
        return columns["case"][row], columns["config"][row], columns["hints"][row], columns["derived"][row]

    def constexprs(self, row: int) -> dict[str, Value]:
        """Return every constexpr that a row was compiled with, by name."""
        case, config, _, derived = self.key(row)
        values = {
            axis.name: axis.values[index]
            for axis, index in zip(self.axes, self.cases[case].values, strict=True)
            if not axis.is_type
        }
        values.update(self.configs[config].constexprs)
        values.update(zip((d.name for d in self.derived), self.derived_values[derived], strict=True))
        return values

    def settings(self, row: int) -> dict[str, Value]:
        """Return the constexprs and options of a row's config, by name."""
        config = self.configs[self.columns["config"][row]]
        return dict(config.constexprs + config.options)

    def axis_values(self, case: int) -> dict[str, Value]:
        """Return the value of each axis for a case, by name."""
        places = self.cases[case].values
        return {axis.name: axis.values[place] for axis, place in zip(self.axes, places, strict=True)}

    def built_values(self, name: str) -> tuple[Value, ...]:
        """Return the values that a constexpr of the matrix or of configs was built with, and the function's default."""
        axes = [value for axis in self.axes if axis.name == name and not axis.is_type for value in axis.values]
        configs = [value for config in self.configs for key, value in config.constexprs if key == name]
        from nojit.runtime.table.parts import Missing

        defaults = [p.default for p in self.params if p.name == name and not isinstance(p.default, Missing)]
        return (*axes, *configs, *defaults)

    def label(self, row: int) -> str:
        """Describe a row for people: case, config, what is None, hints."""
        # logs and messages ask for labels
        from nojit.runtime.types.constants import constant_of, is_constant
        from nojit.runtime.types.names import NONE, leaves
        from nojit.runtime.values import spell

        case, config, hints, derived = self.key(row)
        words = [
            f"{axis.name}={spell(axis.values[index])}"
            for axis, index in zip(self.axes, self.cases[case].values, strict=True)
        ]
        chosen = self.configs[config]
        words += [f"{key}={spell(value)}" for key, value in chosen.constexprs + chosen.options if value is not None]
        words += [f"{d.name}={spell(v)}" for d, v in zip(self.derived, self.derived_values[derived], strict=True)]
        types = zip(self.runtime_params(), self.signatures[self.cases[case].signature], strict=True)
        compiled_in = [(path, leaf) for param, kind in types for path, leaf in leaves(kind, param)]
        words += [f"{path}=none" for path, leaf in compiled_in if leaf == NONE]
        words += [f"{path}={spell(constant_of(leaf))}" for path, leaf in compiled_in if is_constant(leaf)]
        words += [f"{param}:{hint}" for param, hint in self.hint_sets[hints]]
        return " ".join(words)

    def variant_id(self, row: int) -> str:
        """Name a row for logs and files: stable over rebuilds that keep its case, config and hints."""
        # logs ask for names of rows
        from nojit.runtime.base.strict_json import canonical_json
        from nojit.runtime.table.parts import config_json
        from nojit.runtime.values import encode_value

        case, config, hints, derived = self.key(row)
        facts: Json = [
            self.kernel,
            list(self.signatures[self.cases[case].signature]),
            [
                [axis.name, encode_value(axis.values[i])]
                for axis, i in zip(self.axes, self.cases[case].values, strict=True)
            ],
            config_json(self.configs[config]),
            [encode_value(value) for value in self.derived_values[derived]],
            [list(hint) for hint in self.hint_sets[hints]],
        ]
        # hashlib would load OpenSSL
        return f"{self.kernel}-{_core.sha256(canonical_json(facts)).hex()[:12]}"


# `__getattr__` makes those of a table that was read
_MADE_LATER = frozenset(KernelTable.__match_args__) - {"kernel", "launches"}
