"""Encode and decode what a table says of launches. Each launch is read, and its rules are checked, when it is asked for.

A call needs one launch of a table that can have thousands: the JSON is kept as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import Any, TypeVar, overload

from nojit.runtime import _core
from nojit.runtime.strict import POOL_MAX, Json, count, fields, flag, items, line, parse_json, refuse, text
from nojit.runtime.table import Launch, Slot, TensorMap
from nojit.runtime.type_names import RANK_MAX

__all__ = ["LAUNCH_NUMBERS", "Launches", "Layout", "encode_launches", "param_sizes"]

_Item = TypeVar("_Item")

SLOTS_MAX = 1024
# the enums of cuda.h have fewer values; a driver that does not know one says so
_ENUM_MAX = 31
_BOX_MAX = 256
# as many slots, each a name and a type
_LAYOUT_CHARS_MAX = 1 << 18
# the least and the greatest of each
LAUNCH_NUMBERS = (
    ("num_warps", 1, 32),
    ("num_ctas", 1, 16),
    ("shared_bytes", 0, 1 << 20),
    ("global_scratch_bytes", 0, 1 << 30),
    ("global_scratch_align", 1, 1 << 20),
    ("profile_scratch_bytes", 0, 1 << 30),
    ("profile_scratch_align", 1, 1 << 20),
)
_NUMBERS = tuple([field for field, _, _ in LAUNCH_NUMBERS])
_LAUNCH_FIELDS = ("symbol", "layout", "cooperative", "pdl", "tensor_maps", *_NUMBERS)
_TENSOR_MAP_FIELDS = ("source", "swizzle", "element_bytes", "element_type", "block", "fp4_padded")


class _Later(Sequence[_Item]):
    """What is taken apart when it is asked for; equal to a tuple of the same."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | _Later) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Layout(_Later[Slot]):
    """The params of a compiled kernel, in order. To ask for one raises `BundleFormatError` if they are spelled wrong.

    Attributes:
        text: as a table spells them.

    Args:
        text: likewise.
        where: the bundle and kernel, for errors.
    """

    __slots__ = ("_sizes", "_slots", "_where", "text")

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self._where = where
        self._slots: tuple[Slot, ...] | None = None
        self._sizes: tuple[int, ...] | None = None

    def sizes(self) -> tuple[int, ...]:
        """Return what `param_sizes` is to return, worked out once."""
        if self._sizes is None:
            self._sizes = tuple([slot.size_bytes for slot in self._all()])
        return self._sizes

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Slot: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Slot, ...]: ...
    def __getitem__(self, index: int | slice) -> Slot | tuple[Slot, ...]:
        return self._all()[index]

    def _all(self) -> tuple[Slot, ...]:
        if self._slots is None:
            self._slots = _slots(self.text, self._where)
        return self._slots


def param_sizes(layout: Sequence[Slot]) -> tuple[int, ...]:
    """Return the bytes that each param of a layout takes.

    Raises:
        BundleFormatError: the layout is spelled wrong.
        ValueError: a type that is passed in no single param.
    """
    return layout.sizes() if isinstance(layout, Layout) else tuple([slot.size_bytes for slot in layout])


class Launches(_Later[Launch]):
    """The launches of a table, decoded one by one when they are asked for; equal to a tuple of them.

    To ask for one raises `BundleFormatError` if it breaks a rule. Safe to use from several threads.

    Args:
        launches: the JSON of each, as bytes where the core has read it.
        layouts: the JSON of the layouts that they point into.
        where: the bundle and kernel, for errors.
    """

    __slots__ = ("_decoded", "_known", "_launches", "_layouts", "_where")

    def __init__(self, launches: Sequence[bytes | Json], layouts: Sequence[Json], where: str) -> None:
        self._launches = launches
        self._layouts = layouts
        self._where = where
        self._decoded: dict[int, Launch] = {}
        self._known: dict[int, Layout] = {}

    def __len__(self) -> int:
        return len(self._launches)

    @overload
    def __getitem__(self, index: int) -> Launch: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Launch, ...]: ...
    def __getitem__(self, index: int | slice) -> Launch | tuple[Launch, ...]:
        if isinstance(index, slice):
            return tuple([self[place] for place in range(*index.indices(len(self)))])
        launch = self._decoded.get(index)
        if launch is None:
            # another thread may have been first: all get the same object
            launch = self._decoded.setdefault(index, self._decode(self._launches[index], self._layout))
        return launch

    def fresh(self, number: int) -> Launch:
        """Decode a launch, and keep nothing of it."""
        return self._decode(self._launches[number], self._fresh_layout)

    def check(self) -> None:
        """Decode everything.

        Raises:
            BundleFormatError: a broken rule.
        """
        # layouts are not kept: taken apart, all of them are many times as large as their text
        for number in range(len(self._layouts)):
            _slots(self._spelled(number), self._where)
        for number in range(len(self)):
            self.fresh(number)

    def _decode(self, value: bytes | Json, layout_of: Callable[[int], Layout]) -> Launch:
        if not isinstance(value, bytes):
            return self._read(value, layout_of)
        launch: Launch | None = _core.read_launch(value, layout_of)
        return self._read(parse_json(value, self._where), layout_of) if launch is None else launch

    def _read(self, value: Json, layout_of: Callable[[int], Layout]) -> Launch:
        where = self._where
        symbol, layout, cooperative, pdl, tensor_maps, *numbers = fields(value, _LAUNCH_FIELDS, where)
        warps, ctas, shared, scratch, scratch_align, profile, profile_align = _launch_numbers(numbers, where)
        return Launch(
            line(symbol, where),
            layout_of(count(layout, POOL_MAX, where)),
            warps,
            ctas,
            shared,
            scratch,
            scratch_align,
            profile,
            profile_align,
            flag(cooperative, where),
            flag(pdl, where),
            tuple([_tensor_map(item, where) for item in items(tensor_maps, SLOTS_MAX, where)]),
        )

    def _layout(self, number: int) -> Layout:
        layout = self._known.get(number)
        if layout is None:
            layout = self._known.setdefault(number, self._fresh_layout(number))
        return layout

    def _fresh_layout(self, number: int) -> Layout:
        if number >= len(self._layouts):
            raise refuse(
                "pool", f"expected the number of a layout, below {len(self._layouts)}", got=number, where=self._where
            )
        return Layout(self._spelled(number), self._where)

    def _spelled(self, number: int) -> str:
        return text(self._layouts[number], self._where, most=_LAYOUT_CHARS_MAX)


def _slots(words: str, where: str) -> tuple[Slot, ...]:
    pairs = [word.split(":") for word in words.split(" ")] if words else []
    if not words.isprintable() or len(pairs) > SLOTS_MAX or set(map(len, pairs)) - {2}:
        raise refuse(
            "layout",
            f"expected a layout of at most {SLOTS_MAX} params, each source:type",
            got=ascii(words[:80]),
            where=where,
        )
    return tuple(starmap(Slot, pairs))


def _launch_numbers(values: list[Json], where: str) -> list[int]:
    numbers = [
        count(value, most, f"{where} {field}", least)
        for (field, least, most), value in zip(LAUNCH_NUMBERS, values, strict=True)
    ]
    for field, number in zip(_NUMBERS, numbers, strict=True):
        if field.endswith("_align") and number & (number - 1):
            what = "expected an alignment that is a power of two"
            raise refuse("size", what, got=number, where=f"{where} {field}")
    return numbers


def _tensor_map(value: Json, where: str) -> TensorMap:
    source, swizzle, element_bytes, element_type, block, fp4_padded = fields(value, _TENSOR_MAP_FIELDS, where)
    sizes = [count(size, _BOX_MAX, f"{where} block", 1) for size in items(block, RANK_MAX, where)]
    if not sizes:
        raise refuse("size", "expected a block of 1 to 5 dimensions", got=0, where=f"{where} block")
    return TensorMap(
        line(source, where),
        count(swizzle, _ENUM_MAX, f"{where} swizzle"),
        count(element_bytes, 8, f"{where} element_bytes", 1),
        count(element_type, _ENUM_MAX, f"{where} element_type"),
        tuple(sizes),
        flag(fp4_padded, where),
    )


def encode_launches(launches: Iterable[Launch]) -> tuple[list[Json], list[Json]]:
    """Lay out launches: the JSON of each, and of the layouts that they point into."""
    launches = list(launches)
    layouts = sorted({_spelled(launch.layout) for launch in launches})
    places = {layout: place for place, layout in enumerate(layouts)}
    encoded: list[Json] = []
    for launch in launches:
        numbers: dict[str, Json] = {field: getattr(launch, field) for field in _NUMBERS}
        place = places[_spelled(launch.layout)]
        maps: list[Json] = [_tensor_map_json(tensor_map) for tensor_map in launch.tensor_maps]
        encoded.append(
            numbers
            | {"symbol": launch.symbol, "layout": place, "cooperative": launch.cooperative, "pdl": launch.pdl}
            | {"tensor_maps": maps}
        )
    return encoded, [*layouts]


def _spelled(layout: Iterable[Slot]) -> str:
    return " ".join([f"{slot.source}:{slot.type}" for slot in layout])


def _tensor_map_json(tensor_map: TensorMap) -> Json:
    facts: dict[str, Any] = {field: getattr(tensor_map, field) for field in _TENSOR_MAP_FIELDS}
    return facts | {"block": list(tensor_map.block)}
