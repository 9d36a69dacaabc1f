"""Rules between the parts of a variant table.

Every name that it uses is one that it declares, and declares once; and what a row packs is what its signature says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from operator import lt

from nojit.runtime.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.strict import refuse
from nojit.runtime.table import COLUMNS, KEY_COLUMNS, KernelTable, Launch, Missing, Slot
from nojit.runtime.type_names import NONE, TENSOR_MAP, descriptor_parts, is_descriptor, is_type, leaves

__all__ = ["check_names", "check_pools", "check_row", "check_rows"]

_SCRATCH = {GLOBAL_SCRATCH, PROFILE_SCRATCH}
# the type of each part of a descriptor that has one alone; `.base` is a pointer to the element
_PARTS = {".map": TENSOR_MAP, ".base": "", ".pads_nan": "i1", ".rounds_tf32": "i1"}
_DIMS = ("0", "1", "2", "3", "4")


def check_names(table: KernelTable, where: str) -> None:
    """Check every name in a table, those of its launches apart.

    Raises:
        BundleFormatError: a name that is there twice (rule ``duplicate``), that the kernel does not have, or that is
            missing (rule ``param``), a type that is none (rule ``signature``).
    """
    _each_once([param.name for param in table.params], "param", where)
    _each_once([axis.name for axis in table.axes], "axis", where)
    for config in table.configs:
        _each_once([name for name, _ in config.options], "option of a config", where)
    hinted: set[str] = set()
    for hints in table.hint_sets:
        names = [name for name, _ in hints]
        _each_once(names, "hinted param", where)
        hinted.update(names)
    _check_constexprs(table, where)
    for name in set(chain.from_iterable(table.signatures)):
        if not is_type(name):
            raise refuse("signature", "expected a type in its one spelling", got=repr(name), where=where)
    params = {name.partition(".")[0] for name in hinted}
    if strangers := params.difference(table.runtime_params()):
        raise refuse("param", "expected hints of this kernel's params", got=sorted(strangers), where=where)


def check_pools(table: KernelTable, image_count: int, where: str) -> None:
    """Check that what points into a pool points at something, and that rows ascend.

    Raises:
        BundleFormatError: it does not (rules ``pool`` and ``order``), or a pool's entries have another length than they
            must (rule ``size``).
    """
    if set(map(len, table.signatures)) - {len(table.runtime_params())}:
        raise refuse("size", f"expected {len(table.runtime_params())} types in a signature", where=where)
    limits = [len(table.signatures), *[len(axis.values) for axis in table.axes]]
    for meaning in table.meanings:
        numbers = (meaning.signature, *meaning.values)
        if len(numbers) != len(limits) or not all(map(lt, numbers, limits)):
            raise refuse("pool", "expected a meaning within its signatures and axes", got=numbers, where=where)
    if set(map(len, table.derived_values)) - {len(table.derived)}:
        raise refuse("size", f"expected {len(table.derived)} derived values", where=where)
    _check_columns(table, image_count, where)


def _check_columns(table: KernelTable, image_count: int, where: str) -> None:
    pools = (table.meanings, table.configs, table.hint_sets, table.derived_values, table.launches)
    for column, size in zip(COLUMNS, [*map(len, pools), image_count], strict=False):
        if table.columns[column] and max(table.columns[column]) >= size:
            raise refuse("pool", f"expected column {column} below {size}", got=max(table.columns[column]), where=where)
    keys = list(zip(*[table.columns[column] for column in KEY_COLUMNS], strict=True))
    # mapped, not looped over: ten thousand rows are checked before a first launch
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise refuse("order", "expected rows sorted by meaning, config, hints and derived, each once", where=where)


def check_row(table: KernelTable, row: int, where: str) -> None:
    """Check what a row packs against its signature and its hints.

    Each leaf of the signature that is neither None nor hinted to be 1 has its slot, in order and of its type, or the
    slots of its descriptor; scratch pointers come last; each tensor map is described.

    Raises:
        BundleFormatError: they differ (rule ``layout``), or a hint is of a leaf that is none (rule ``param``).
    """
    meaning, _, hint_set, _ = table.key(row)
    signature = table.signatures[table.meanings[meaning].signature]
    types = dict(
        leaf for pair in zip(table.runtime_params(), signature, strict=True) for leaf in leaves(pair[1], pair[0])
    )
    hints = table.hint_sets[hint_set]
    if strangers := sorted({name for name, _ in hints} - types.keys()):
        raise refuse("param", "expected hints of leaves of the signature", got=strangers, where=f"{where} row {row}")
    ones = {name for name, hint in hints if hint == 1}
    expected = [(path, kind) for path, kind in types.items() if kind != NONE and path not in ones]
    launch = table.launches[table.columns["launch"][row]]
    if fault := _layout_fault(launch, expected):
        raise refuse("layout", f"expected {fault}", got=_spelled(launch.layout), where=f"{where} row {row}")


def check_rows(table: KernelTable, where: str) -> None:
    """Check every row of a table, those of equal signature, hints and launch once; as `check_row`."""
    columns = table.columns
    seen: set[tuple[int, int, int]] = set()
    for row, (meaning, hint_set, launch) in enumerate(
        zip(columns["meaning"], columns["hints"], columns["launch"], strict=True)
    ):
        facts = (table.meanings[meaning].signature, hint_set, launch)
        if facts not in seen:
            seen.add(facts)
            check_row(table, row, where)


def _layout_fault(launch: Launch, expected: list[tuple[str, str]]) -> str:
    """Say what a layout lacks to pack the leaves `expected`; empty if nothing."""
    slots = list(launch.layout)
    while slots and slots[-1].source in _SCRATCH and slots[-1].type.startswith("*"):
        slots.pop()
    slots.reverse()
    maps = []
    for path, kind in expected:
        if is_descriptor(kind):
            parts = list(_take_parts(slots, path))
            if not parts or not all(_is_part(part, kind) for part in parts):
                return f"parts of {path}, which is {kind}"
            maps += [(path, len(descriptor_parts(kind)[1])) for part in parts if part.type == TENSOR_MAP]
        elif not slots or slots.pop() != Slot(path, kind):
            return f"{path} as {kind}"
    if slots:
        return "no more than the leaves of the signature and scratch"
    if maps != [(tensor_map.source, len(tensor_map.block)) for tensor_map in launch.tensor_maps]:
        return f"tensor maps of {[path for path, _ in maps]}"
    return ""


def _take_parts(slots: list[Slot], path: str) -> Iterator[Slot]:
    while slots and slots[-1].source.startswith(f"{path}."):
        slot = slots.pop()
        yield Slot(slot.source[len(path) :], slot.type)


def _is_part(part: Slot, kind: str) -> bool:
    element, block = descriptor_parts(kind)
    if part.source in _PARTS:
        return part.type == (f"*{element}" if part.source == ".base" else _PARTS[part.source])
    field, _, dim = part.source[1:].partition(".")
    known = dim in _DIMS[: len(block)]
    return known and (field, part.type) in {("shape", "i32"), ("shape", "i64"), ("stride", "i64")}


def _spelled(layout: tuple[Slot, ...]) -> str:
    return ", ".join(f"{slot.source}: {slot.type}" for slot in layout)


def _check_constexprs(table: KernelTable, where: str) -> None:
    """Check that each constexpr gets one value, from the meaning, the config, an expression or its default."""
    known = {param.name for param in table.params if param.constexpr}
    defaulted = {param.name for param in table.params if not isinstance(param.default, Missing)}
    fixed = [axis.name for axis in table.axes if not axis.is_type] + [derived.name for derived in table.derived]
    for names in {tuple([name for name, _ in config.constexprs]) for config in table.configs} or {()}:
        valued = [*fixed, *names]
        _each_once(valued, "valued constexpr", where)
        if strangers := set(valued) - known:
            what = "expected axes, configs and derived values of this kernel's constexprs"
            raise refuse("param", what, got=sorted(strangers), where=where)
        if missing := known - defaulted - set(valued):
            raise refuse("param", "expected a value for each constexpr", got=f"none for {sorted(missing)}", where=where)


def _each_once(names: list[str], what: str, where: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refuse("duplicate", f"expected each {what} once", got=repr(twice), where=where)
