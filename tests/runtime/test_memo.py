"""Remembered calls of kernels, on the fake driver and with tensors of its framework."""

from __future__ import annotations

from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime import _core
from nojit.runtime.errors import ArgumentError

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import target

STRIDES = (64, 1)


def memo_of(tensor: type[Any], operands: int, states: tuple[Any, ...] = ()) -> _core.Memo:
    plain = _core.Plain((tensor,), property(lambda _: False), lambda _: False, lambda: True, states)
    return _core.Memo(plain, (), operands, 8)


def test_a_remembered_launch_reads_each_operand_once(make: Make, faketorch: ModuleType, fakecuda: FakeCuda) -> None:
    add = make({"x": "*fp16", "y": "*fp16", "n": "i32"}, grid=["n"])
    first, second = (
        [faketorch.Tensor(address + step, "float16", (64, 64), strides=STRIDES) for address in (0x1000, 0x2000)]
        for step in (0, 0x8000)
    )
    memo = memo_of(faketorch.Tensor, 2)
    places = ((0, 0), (1, 1))
    memo.remember(_core.Recipe(2, ((add, (None, None, 7), (), places, False),), (1,)), *first, add)
    for operands in (first, second):
        before = faketorch.counts()
        assert memo(*operands, add) is operands[1]
        assert faketorch.counts()["exports"] - before["exports"] == 2
        assert list(fakecuda.last_launch().ints()[:2]) == [
            0x1000 + 0x8000 * (operands is second),
            0x2000 + 0x8000 * (operands is second),
        ]
        assert fakecuda.last_launch().grid[0] == 7
    assert memo(first[0], faketorch.Tensor(0x3008, "float16", (64, 64), strides=STRIDES), add) is None


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((None, None, 7, 5), ("y", "n", "m")),
        ((None, 5, None, 7), ("m", "y", "n")),
        ((None, 5, None, 7, 4), ("m", "y", "n", "num_warps")),
        ((None, None, 7), ("y", "n")),
    ],
    ids=["in order", "in any order", "with an option", "with a default"],
)
def test_a_remembered_launch_takes_arguments_by_name(
    make: Make, faketorch: ModuleType, fakecuda: FakeCuda, arguments: tuple[Any, ...], names: tuple[str, ...]
) -> None:
    add = make({"x": "*fp16", "y": "*fp16", "n": "i32", "m": "i32"}, defaults={"m": 5}, grid=["n"])
    operands = [faketorch.Tensor(address, "float16", (64, 64), strides=STRIDES) for address in (0x1000, 0x2000)]
    places = ((0, 0), (1 + names.index("y"), 1))
    recipe = _core.Recipe(2, ((add, arguments, names, places, False),), (1,))
    assert recipe(*operands) is operands[1]
    assert list(fakecuda.last_launch().ints()[:4]) == [0x1000, 0x2000, 7, 5]


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("n", "m", "n"), "expected one value.*argument n"),
        (("m", "x", "n"), "expected one value.*argument x"),
        (("n", "k"), "unexpected argument 'k'"),
        (("m",), "expected a value.*argument n"),
    ],
)
def test_a_recipe_refuses_the_names_that_a_launch_refuses(
    make: Make, faketorch: ModuleType, names: tuple[str, ...], what: str
) -> None:
    add = make({"x": "*fp16", "n": "i32", "m": "i32"}, grid=["n"])
    x = faketorch.Tensor(0x1000, "float16", (64, 64), strides=STRIDES)
    recipe = _core.Recipe(1, ((add, (None, *[7] * len(names)), names, ((0, 0),), False),), (0,))
    with pytest.raises(ArgumentError, match=what):
        recipe(x)


def test_a_described_tensor_is_what_a_descriptor_with_an_open_block_is(
    make: Make, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    copy = make({"x": "tensordesc<fp16[64,64]>"}, grid=["1"])
    base = faketorch.Tensor(0x1000, "float16", (5, 64), strides=STRIDES)
    described = _core.Described(base, STRIDES, (5, 64))
    assert (described.base, described.shape, described.strides, described.block_shape) == (base, (5, 64), STRIDES, None)
    copy(described)
    launched = fakecuda.launch_count()
    memo = memo_of(faketorch.Tensor, 1)
    steps = ((described.geometry, (None,), (), ((0, 0),), True), (copy, (None,), (), ((0, 1),), False))
    memo.remember(_core.Recipe(1, steps, (0,)), base, copy)
    assert memo(base, copy) is base
    assert fakecuda.launch_count() == launched + 1


@pytest.mark.parametrize(
    ("shape", "strides", "what"),
    [((0, 64), STRIDES, "positive sizes, got 0"), ((5, 64), (64, 2), "the last to be 1, got 2")],
)
def test_a_geometry_that_no_map_has_is_refused_by_the_launch(
    make: Make, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...], what: str
) -> None:
    copy = make({"x": "tensordesc<fp16[64,64]>"}, grid=["1"])
    with pytest.raises(ArgumentError, match=what):
        copy(_core.Described(tensor(0x1000), strides, shape))


def test_a_copy_takes_the_box_that_a_geometry_says(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make({"x": "tensordesc<fp16[64,64]>"}, grid=["1"])
    strides, shape = (640, 64, 1), (5, 10, 64)
    spread = make({"x": "tensordesc<fp16[1,64,64]>"}, grid=["1"])
    for box, steps in (((16, 4, 64), None), ((8, 8, 64), (1, 3, 1)), (None, (1, 4, 1)), ((16, 4, 64), (1, 1, 1))):
        spread(_core.Described(tensor(0x1000), strides, shape, box, steps))
        made = fakecuda.last_launch().tensor_map(0)
        sizes, apart = box or (1, 64, 64), steps or (1, 1, 1)
        assert made.box == tuple(size * step for size, step in zip(sizes[::-1], apart[::-1], strict=True))
        assert made.steps == apart[::-1]
    for box, what in (
        ((16, 8, 64), "as many elements as the kernel's block, got 8192"),
        ((32, 4, 32), "as wide as the kernel's block, got 32"),
    ):
        with pytest.raises(ArgumentError, match=what):
            spread(_core.Described(tensor(0x1000), strides, shape, box))
    with pytest.raises(ArgumentError, match="over at most 256 elements, got 320"):
        spread(_core.Described(tensor(0x1000), strides, shape, (1, 64, 64), (1, 5, 1)))
    copy(_core.Described(tensor(0x1000), STRIDES, (5, 64), (64, 64)))
    assert _core.Geometry(STRIDES, (5, 64), [64, 64]).box == (64, 64)
    assert _core.Geometry(STRIDES, (5, 64)).steps is None


@pytest.mark.parametrize(("box", "steps"), [((64, 64), None), (None, (2, 1))])
def test_a_device_without_maps_refuses_a_box(make: Make, tensor: Any, fakecuda: FakeCuda, box: Any, steps: Any) -> None:
    fakecuda.set_devices(80)
    copy = make({"x": "tensordesc<fp16[64,64]>"}, grid=["1"], on=target("sm_80"), file={"on": target("sm_80")})
    copy(_core.Described(tensor(0x1000), STRIDES, (5, 64)))
    with pytest.raises(ArgumentError, match="without a box of its own: the kernel uses no tensor maps"):
        copy(_core.Described(tensor(0x1000), STRIDES, (5, 64), box, steps))


@pytest.mark.parametrize(
    ("box", "steps", "what"),
    [
        ((64,), None, "of 2 dimensions"),
        ((64, 64), (1,), "of 2 dimensions"),
        ((0, 64), None, "box: expected sizes of 1 to 256, got 0"),
        ((257, 64), None, "got 257"),
        (None, (9, 1), "steps: expected 1 to 8"),
        (None, (1, 2), "1 in the last dimension, got 2"),
    ],
)
def test_a_box_that_no_map_has_is_refused(box: Any, steps: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        _core.Geometry(STRIDES, (5, 64), box, steps)


@pytest.mark.parametrize(("strides", "shape"), [((1,), (2, 2)), ((1,) * 6, (1,) * 6), ((), ()), ((2**70,), (1,))])
def test_a_geometry_has_as_many_strides_as_sizes(strides: tuple[int, ...], shape: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        _core.Geometry(strides, shape)


def test_what_a_kernel_raises_a_remembered_call_raises(make: Make, faketorch: ModuleType) -> None:
    add = make({"x": "*fp16", "n": "i32"}, grid=["n"])
    x = faketorch.Tensor(0x1000, "float16", (64,), strides=(1,))
    memo = memo_of(faketorch.Tensor, 1)
    memo.remember(_core.Recipe(1, ((add, (None, "many"), (), ((0, 0),), False),), (0,)), x, add)
    with pytest.raises(ArgumentError, match="at argument n"):
        memo(x, add)


def test_states_are_asked_at_each_call(faketorch: ModuleType) -> None:
    x = faketorch.Tensor(0x1000, "float16", (64,), strides=(1,))
    answers: list[Any] = [None, 0, None, ZeroDivisionError]

    def answer() -> Any:
        now = answers.pop(0)
        if now is ZeroDivisionError:
            raise now
        return now

    words = {"level": -1}
    memo = memo_of(faketorch.Tensor, 1, ((answer, None), (words, "level", -1)))
    memo.remember(_core.Recipe(1, (), (0,)), x, None)
    assert memo(x, None) is x
    assert memo(x, None) is None
    words["level"] = 0
    assert memo(x, None) is None
    with pytest.raises(ZeroDivisionError):
        memo(x, None)


def test_a_tensor_without_memory_is_not_plain(faketorch: ModuleType) -> None:
    plain = _core.Plain((faketorch.Tensor,), property(lambda _: False), lambda _: False, lambda: True, ())
    memo = _core.Memo(plain, (), 1, 8, True)
    for shape, is_plain in (((4,), False), ((), False), ((4, 0), True)):
        x = faketorch.Tensor(0, "float16", shape)
        assert plain({"cuda"}, x) is is_plain
        memo.remember(_core.Recipe(1, (), (0,)), x, None)
        assert memo(x, None) is (x if is_plain else None)


@pytest.mark.parametrize(
    ("address", "shape", "strides", "made"),
    [
        # x is 4 elements of 2 bytes, every other one, from 0x1000 to 0x100e
        (0x100E, (4,), (1,), True),
        (0x100C, (4,), (1,), False),
        (0x0FF8, (4,), (1,), True),
        (0x0FFA, (4,), (1,), False),
        # the places between are not looked at
        (0x1002, (4,), (2,), False),
        (0x1000, (4,), (1,), False),
        (0x1000, (0,), (1,), True),
        (0x0F00, (2, 0, 1000), (0, 0, 1), True),
        (0x1000, (4,), (2,), True),
    ],
)
def test_what_is_written_lies_apart_from_what_is_read(
    faketorch: ModuleType, address: int, shape: tuple[int, ...], strides: tuple[int, ...], made: bool
) -> None:
    plain = _core.Plain((faketorch.Tensor,), property(lambda _: False), lambda _: False, lambda: True, ())
    memo = _core.Memo(plain, (), 2, 8, True, 1)
    x = faketorch.Tensor(0x1000, "float16", (4,), strides=(2,))
    out = faketorch.Tensor(address, "float16", shape, strides=strides)
    memo.remember(_core.Recipe(2, (), (1,)), x, out, None)
    assert memo(x, out, None) is (out if made else None)
    memo.remember(_core.Recipe(2, (), (0,)), x, None, None)
    assert memo(x, None, None) is x
    # nothing may be computed in place
    strict = _core.Memo(plain, (), 2, 8, True)
    strict.remember(_core.Recipe(2, (), (1,)), x, x, None)
    assert strict(x, x, None) is None


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((HUGE,), (4,)),
        ((HUGE,), (1,)),
        ((HUGE, HUGE), (HUGE, HUGE)),
        ((2, 2), (HUGE, HUGE)),
        ((2, 2), (-HUGE, -HUGE)),
        ((3,), (-HUGE,)),
        ((-5,), (1,)),
        ((-HUGE, 2), (1, 1)),
        ((2**63 - 1,), (2**63 - 1,)),
    ],
)
def test_what_no_memory_can_hold_lies_apart_from_nothing(
    faketorch: ModuleType, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    plain = _core.Plain((faketorch.Tensor,), property(lambda _: False), lambda _: False, lambda: True, ())
    x = faketorch.Tensor(0x1000, "float16", (4,), strides=(1,))
    beyond = faketorch.Tensor(0x100000, "float16", shape, strides=strides)
    for operands in ((x, beyond), (beyond, x)):
        memo = _core.Memo(plain, (), 2, 8, True)
        memo.remember(_core.Recipe(2, (), (1,)), *operands, None)
        assert memo(*operands, None) is None


def test_a_tensor_that_is_broadcast_past_all_memory_lies_where_its_element_does(faketorch: ModuleType) -> None:
    plain = _core.Plain((faketorch.Tensor,), property(lambda _: False), lambda _: False, lambda: True, ())
    memo = _core.Memo(plain, (), 2, 8, True)
    x = faketorch.Tensor(0x1000, "float16", (HUGE, HUGE), strides=(0, 0))
    for address, apart in ((0x1000, False), (0x1002, True), (0x0FFE, True)):
        out = faketorch.Tensor(address, "float16", (1,), strides=(1,))
        memo.remember(_core.Recipe(2, (), (1,)), x, out, None)
        assert (memo(x, out, None) is out) is apart


@pytest.mark.parametrize(
    "make_one",
    [
        lambda: _core.Plain((int,), property(), len, len, ((1,),)),
        lambda: _core.Plain((int,), property(), len, len, (([], "a", 1),)),
        lambda: _core.Plain((int,), 3, len, len, ()),
        lambda: _core.Plain(int, property(), len, len, ()),
        lambda: _core.Plain((1,), property(), len, len, ()),
        lambda: _core.Memo(3, (), 1, 8),
        lambda: memo_of(int, 1).remember(3, 1, 2),
        lambda: memo_of(int, 1)(1),
        lambda: _core.Geometry((1,), (1,))(1, 2),
    ],
)
def test_wrong_types_are_refused(make_one: Any) -> None:
    with pytest.raises(TypeError):
        make_one()


@pytest.mark.parametrize("word", [(), (1,), [1], {}, int])
def test_what_is_no_word_is_refused_where_a_call_is_to_be_remembered(faketorch: ModuleType, word: Any) -> None:
    x = faketorch.Tensor(0x1000, "float16", (4,), strides=(1,))
    memo, recipe = memo_of(faketorch.Tensor, 1), _core.Recipe(1, (), (0,))
    with pytest.raises(TypeError, match="expected words that are None, numbers or str"):
        memo.remember(recipe, x, None, 1, word)
    assert memo(x, None, 1, word) is None
    assert len(memo) == 0


def test_words_of_other_classes_are_not_remembered(faketorch: ModuleType) -> None:
    """Whatever a caller may pass for a number, or for a str: what equals it is not known."""
    x = faketorch.Tensor(0x1000, "float16", (4,), strides=(1,))
    memo, recipe = memo_of(faketorch.Tensor, 1), _core.Recipe(1, (), (0,))
    for word in (Fraction(1, 2), type("Int", (int,), {})(1), type("Str", (str,), {})("a")):
        memo.remember(recipe, x, None, word)
        assert memo(x, None, word) is None
    assert len(memo) == 0


@pytest.mark.parametrize(("operands", "limit"), [(13, 8), (-1, 8), (1, 4), (1, 12), (1, 1 << 20)])
def test_a_memo_has_bounds(operands: int, limit: int) -> None:
    plain = _core.Plain((int,), property(), len, len, ())
    with pytest.raises(ValueError, match="power of two"):
        _core.Memo(plain, (), operands, limit)
