"""Tables that the engine has read, and their launches. The engine reads each launch, and checks its rules, when it is asked for.

A call needs one launch of a table that can have thousands.
"""

from __future__ import annotations

import sys

from nojit.runtime import _core
from nojit.runtime.table.table import KernelTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, TypeVar, overload

    from nojit.runtime.table.parts import Launch, Slot

    _Item = TypeVar("_Item")

    class _Items(Sequence[_Item]):
        """The methods of a sequence."""

else:

    class _Items:
        """No class of `collections.abc`: to define a subclass of those takes as long as to import two modules."""

        __slots__ = ()

        def __class_getitem__(cls, _: object) -> type:
            return cls


__all__ = ["Launches", "Layout", "check_table", "decode_table", "param_sizes"]


class _Later(_Items["_Item"]):
    """A sequence that is decoded when it is asked for; equal to a tuple of the same items."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | _Later) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __iter__(self) -> Iterator[_Item]:
        return map(self.__getitem__, range(len(self)))

    def index(self, value: object, start: int = 0, stop: int = sys.maxsize) -> int:
        """Return the place of the first equal item."""
        return tuple(self).index(value, start, stop)

    def count(self, value: object) -> int:
        """Return how many items are equal."""
        return tuple(self).count(value)


class Layout(_Later["Slot"]):
    """The params of a compiled kernel, in order. To ask for one raises `BundleFormatError` if they are spelled wrong.

    Attributes:
        text: as a table spells them.

    Args:
        text: the slots, as a table spells them.
        where: the bundle and kernel, for errors.
    """

    __slots__ = ("_sizes", "_slots", "_where", "text")

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self._where = where
        self._slots: tuple[Slot, ...] | None = None
        self._sizes: tuple[int, ...] | None = None

    def sizes(self) -> tuple[int, ...]:
        """Return the result of `param_sizes`, computed once."""
        if self._sizes is None:
            self._sizes = tuple([slot.size_bytes for slot in self._all()])
        return self._sizes

    def __len__(self) -> int:
        return len(self._all())

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, index: int) -> Slot: ...
        @overload
        def __getitem__(self, index: slice) -> tuple[Slot, ...]: ...

    def __getitem__(self, index: int | slice) -> Slot | tuple[Slot, ...]:
        return self._all()[index]

    def _all(self) -> tuple[Slot, ...]:
        if self._slots is None:
            self._slots = _core.read_layout(self.text, self._where)
        return self._slots


def param_sizes(layout: Sequence[Slot]) -> tuple[int, ...]:
    """Return the bytes that each param of a layout takes.

    Raises:
        BundleFormatError: the layout is spelled wrong.
        ValueError: a type that is passed in no single param.
    """
    return layout.sizes() if isinstance(layout, Layout) else tuple([slot.size_bytes for slot in layout])


class Launches(_Later["Launch"]):
    """The launches of a table, decoded one by one when they are asked for; equal to a tuple of them.

    To ask for one raises `BundleFormatError` if it breaks a rule. Safe to use from several threads.

    Args:
        table: as the engine holds it.
        where: the bundle and kernel, for errors.
    """

    __slots__ = ("_count", "_decoded", "_known", "_table", "_where")

    def __init__(self, table: _core.Table, where: str) -> None:
        self._table = table
        self._where = where
        self._count = table.launch_count()
        self._decoded: dict[int, Launch] = {}
        self._known: dict[int, Layout] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)

    def __len__(self) -> int:
        return self._count

    if TYPE_CHECKING:

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
            launch = self._decoded.setdefault(index, self._table.launch(index, self._layout, self._where))
        return launch

    def fresh(self, number: int) -> Launch:
        """Decode a launch, and keep nothing of it."""
        return self._table.launch(number, self._fresh_layout, self._where)

    def _layout(self, number: int) -> Layout:
        layout = self._known.get(number)
        if layout is None:
            layout = self._known.setdefault(number, self._fresh_layout(number))
        return layout

    def _fresh_layout(self, number: int) -> Layout:
        return Layout(self._table.layout(number), self._where)


def decode_table(raw: bytes, kernel: str, rows: int, image_count: int, where: str) -> KernelTable:
    """Read a variant table and check its rules; those of a launch when it is asked for.

    Args:
        raw: the table, without what stands behind it in its section.
        kernel: the name that the index gives it.
        rows: how many variants the index promises.
        image_count: how many images the index promises.
        where: the bundle and kernel, for errors.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    handle = _core.read_table(raw, rows, image_count, where)
    return KernelTable.of(kernel, handle, Launches(handle, where))


def check_table(table: KernelTable, where: str) -> None:
    """Check what `decode_table` leaves for later: every launch, every row.

    Raises:
        BundleFormatError: a broken rule.
    """
    table.handle().check(where)
