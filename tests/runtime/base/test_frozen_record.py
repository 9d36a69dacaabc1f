"""Records behave as frozen dataclasses with slots do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.table.parts import MISSING, Param


class Point(Record):
    x: int
    y: int = 2


class Other(Record):
    x: int
    y: int = 2


def test_fields_are_given_in_order_or_by_name() -> None:
    for point in (Point(1), Point(1, 2), Point(x=1), Point(1, y=2), Point(y=2, x=1)):
        assert (point.x, point.y) == (1, 2)


@pytest.mark.parametrize(
    ("args", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1})]
)
def test_other_arguments_are_refused(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(*args, **named)


class Many(Record):
    a: int
    b: int
    c: int
    d: int = 4
    e: int = 5


def test_records_of_many_fields_are_made_alike() -> None:
    assert Many(1, 2, c=3) == Many(1, 2, 3, 4, 5) == Many(e=5, d=4, c=3, b=2, a=1)
    for args, named in (((1, 2), {}), ((1, 2, 3, 4, 5, 6), {}), ((1, 2, 3), {"a": 1}), ((1, 2, 3), {"z": 1})):
        with pytest.raises(TypeError, match=r"expected Many\(a, b, c, d, e\), got"):
            Many(*args, **named)


def test_equal_are_those_of_one_class_with_equal_fields() -> None:
    assert Point(1) == Point(1, 2)
    assert hash(Point(1)) == hash(Point(1, 2))
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 2)


def test_a_record_does_not_change() -> None:
    point = Point(1)
    for change in (lambda: setattr(point, "x", 3), lambda: setattr(point, "z", 3), lambda: delattr(point, "x")):
        with pytest.raises(AttributeError, match="a Point does not change"):
            change()
    assert not hasattr(point, "__dict__")


def test_it_shows_its_fields() -> None:
    assert repr(Point(1)) == "Point(x=1, y=2)"


def test_it_is_taken_apart_by_position() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)


def test_what_takes_dataclasses_takes_it() -> None:
    assert dataclasses.is_dataclass(Point(1))
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2}
    assert [[field.name for field in dataclasses.fields(kind)] for kind in (Point, Many)] == [["x", "y"], [*"abcde"]]
    # what describes a class is made once
    assert dataclasses.fields(Point) == dataclasses.fields(Point(1))


def test_it_pickles_and_copies() -> None:
    param = Param("x", constexpr=False)
    for again in (pickle.loads(pickle.dumps(param)), copy.deepcopy(param), copy.copy(param)):
        assert again == param
        assert again.default is MISSING
