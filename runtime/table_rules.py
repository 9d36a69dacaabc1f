"""Rules between the parts of a table that only some calls use.

What a row packs is what its signature says; a program is what its expression says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nojit.runtime import _core
from nojit.runtime.expr_ops import ExpressionError
from nojit.runtime.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.launch_codec import Launches
from nojit.runtime.neighbours import is_cost
from nojit.runtime.postfix import postfix
from nojit.runtime.strict import refuse
from nojit.runtime.table import KernelTable, Launch, Slot
from nojit.runtime.type_names import TENSOR_MAP, descriptor_parts, is_compiled_in, is_descriptor, leaves

__all__ = ["check_costs", "check_programs", "check_row", "check_rows"]

_SCRATCH = [GLOBAL_SCRATCH, PROFILE_SCRATCH]
# the type of each part of a descriptor that has one alone; `.base` is a pointer to the element
_PARTS = {".map": TENSOR_MAP, ".base": "", ".pads_nan": "i1", ".rounds_tf32": "i1"}
_DIMS = ("0", "1", "2", "3", "4")
_TYPES_KEPT = 64


def check_row(table: KernelTable, row: int, where: str) -> None:
    """Check what a row packs against its signature and its hints.

    Each leaf of the signature that is neither None, a constant nor hinted to be 1 has its slot, in order and of its type, or the
    slots of its descriptor; scratch pointers come last; each tensor map is described.

    Raises:
        BundleFormatError: they differ (rule ``layout``), or a hint is of a leaf that is none (rule ``param``).
    """
    meaning, _, hint_set, _ = table.key(row)
    types = _types_of(table, table.meanings[meaning].signature)
    _check_packing(types, table.hint_sets[hint_set], table.launches[table.columns["launch"][row]], f"{where} row {row}")


def _types_of(table: KernelTable, signature: int) -> dict[str, str]:
    """Return the type of each leaf of a signature, by its path."""
    types: dict[str, str] = {}
    for param, kind in zip(table.runtime_params(), table.signatures[signature], strict=True):
        types.update(leaves(kind, param))
    return types


def _check_packing(types: dict[str, str], hint_set: Sequence[tuple[str, int]], launch: Launch, where: str) -> None:
    hints = dict(hint_set)
    if not hints.keys() <= types.keys():
        strangers = sorted(hints.keys() - types.keys())
        raise refuse("param", "expected hints of leaves of the signature", got=strangers, where=where)
    expected = [(path, kind) for path, kind in types.items() if not is_compiled_in(kind) and hints.get(path) != 1]
    if fault := _layout_fault(launch, expected):
        raise refuse("layout", f"expected {fault}", got=_spelled(launch.layout), where=where)


def check_programs(table: KernelTable, where: str) -> None:
    """Check every expression, and that its program is the same in postfix.

    Raises:
        BundleFormatError: one is no expression (rule ``expression``), or its program is another's (rule ``program``).
    """
    for text, program in zip(table.expressions(), table.programs, strict=True):
        try:
            right = postfix(text)
        except ExpressionError as error:
            raise refuse("expression", str(error), where=where) from None
        if program != right:
            raise refuse("program", f"expected {right!r} of {text!r}", got=repr(program), where=where)


def check_costs(table: KernelTable, where: str) -> None:
    """Check what the blocks of tuning tables say that configs take.

    Raises:
        BundleFormatError: something is no expression over the numbers of the key (rule ``program``).
    """
    if table.tuning is None:
        return
    for words in (words for tuned in table.tuning.tables for block in tuned.blocks for _, words in block.estimates()):
        if not is_cost(words, len(table.tuning.key)):
            what = "expected the cost of a config: a postfix program over the key's numbers"
            raise refuse("program", what, got=repr(words), where=where)


def check_rows(table: KernelTable, where: str) -> None:
    """Check every row of a table, those of equal signature, hints and launch once; as `check_row`."""
    columns = table.columns
    # of each launch, a row for each signature and set of hints that it is packed for
    packed: dict[int, dict[tuple[int, int], int]] = {}
    for row, (meaning, hint_set, launch) in enumerate(
        zip(columns["meaning"], columns["hints"], columns["launch"], strict=True)
    ):
        packed.setdefault(launch, {}).setdefault((table.meanings[meaning].signature, hint_set), row)
    types: dict[int, dict[str, str]] = {}
    for number, rows in packed.items():
        # nothing of a launch is kept for the next: all of them taken apart are many times as large as the table
        one = table.launches.fresh(number) if isinstance(table.launches, Launches) else table.launches[number]
        for (signature, hint_set), row in rows.items():
            if signature not in types:
                if len(types) == _TYPES_KEPT:
                    types.clear()
                types[signature] = _types_of(table, signature)
            _check_packing(types[signature], table.hint_sets[hint_set], one, f"{where} row {row}")


def _layout_fault(launch: Launch, expected: list[tuple[str, str]]) -> str:
    """Say what a layout lacks to pack the leaves `expected`; empty if nothing."""
    slots = list(launch.layout)
    ends = slots[-2:]
    has_scratch = [slot.source for slot in ends] == _SCRATCH and all(slot.type.startswith("*") for slot in ends)
    slots = slots[: -2 * has_scratch or None][::-1]
    maps: list[tuple[str, str]] = []
    for path, kind in expected:
        if is_descriptor(kind):
            parts = list(_take_parts(slots, path))
            if not parts or not all(_is_part(part, kind) for part in parts):
                return f"parts of {path}, which is {kind}"
            maps += [(path, kind) for part in parts if part.type == TENSOR_MAP]
        elif not slots or slots[-1].source != path or slots.pop().type != kind:
            return f"{path} as {kind}"
    if slots or not has_scratch:
        return f"no more than the leaves of the signature, then {' and '.join(_SCRATCH)} as pointers"
    if [path for path, _ in maps] != [tensor_map.source for tensor_map in launch.tensor_maps]:
        return f"tensor maps of {[path for path, _ in maps]}"
    faults = (
        f"{fault} in the tensor map of {path}, which is {kind}"
        for (path, kind), tensor_map in zip(maps, launch.tensor_maps, strict=True)
        if (fault := _core.map_fault(kind, tensor_map))
    )
    return next(faults, "")


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


def _spelled(layout: Iterable[Slot]) -> str:
    return ", ".join(f"{slot.source}: {slot.type}" for slot in layout)
