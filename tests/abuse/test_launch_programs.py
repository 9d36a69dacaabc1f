"""What programs hand to launches beside arguments: tuples, bound arguments, scratch allocators and hooks, all of them wrong."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.errors import ArgumentError, DriverError, NojitError
from nojit.runtime.kernel import Kernel
from nojit.runtime.observe import hooks

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.tensors import PointerTensor

# tuples

TUPLE = {"n": "i32", "group": "(*fp16,(i32,none),fp32)"}

TUPLES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "short": (lambda x: (x, (5, None)), "3 members"),
    "long": (lambda x: (x, (5, None), 1.0, 2), "3 members"),
    "empty": (lambda _: (), "3 members"),
    "flat": (lambda x: (x, 5, 1.0), "member 1"),
    "deep": (lambda x: (x, (((((5,),),),), None), 1.0), "member 1"),
    "value for none": (lambda x: (x, (5, 7), 1.0), "expected none, got int 7"),
    "none for a value": (lambda x: (x, (None, None), 1.0), "expected i32, got None"),
    "too wide": (lambda x: (x, (2**31, None), 1.0), "expected i32, got int 2147483648"),
    "beyond 64 bits": (lambda x: (x, (2**70, None), 1.0), "group"),
    "bool": (lambda x: (x, (True, None), 1.0), "expected i32, got bool True"),
    "int for a float": (lambda x: (x, (5, None), 1), "expected fp32, got int 1"),
    "list": (lambda x: [x, (5, None), 1.0], "got list"),
    "no tuple": (lambda _: 5, "got int 5"),
    "host memory": (lambda _: (PointerTensor(16, device="cpu"), (5, None), 1.0), "in host memory"),
    "another dtype": (lambda _: (PointerTensor(16, "fp32"), (5, None), 1.0), r"\*fp32"),
    "object": (lambda x: (x, (object(), None), 1.0), "group"),
}


@pytest.mark.parametrize("case", TUPLES)
def test_a_wrong_tuple_is_refused_and_says_which_member(make: Make, tensor: Any, fakecuda: FakeCuda, case: str) -> None:
    make_value, words = TUPLES[case]
    add, x = make(TUPLE), tensor(0x1000)
    for _ in range(2):
        with pytest.raises(NojitError, match=words) as caught:
            add[(1,)](1, make_value(x))
        assert "group" in str(caught.value)
        add[(1,)](1, (x, (5, None), 1.0))
    assert fakecuda.launch_count() == 2


def test_members_lie_on_the_device_of_the_rest(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"y": "*fp16", "group": "(*fp16,i32)"})
    with pytest.raises(ArgumentError, match="expected cuda:0, where y lies, got cuda:1"):
        add[(1,)](tensor(0x1000), (tensor(0x2000, device=1), 5))
    add[(1,)](tensor(0x1000, device=1), (tensor(0x2000, device=1), 5))
    assert fakecuda.last_launch().device == 1


def test_hints_of_members_are_used_only_where_they_hold(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    pair = namedtuple("pair", ["x", "n"])  # noqa: PYI024 - as programs have them
    add = make({"group": "(*fp16,i32)"}, hints=[{"group.0": 16, "group.1": 16}])
    kernels = []
    for address, n in ((0x1000, 16), (0x1008, 16), (0x1000, 17), (0x1000, -16)):
        for group in ((tensor(address), n), pair(tensor(address), n)):
            add[(1,)](group)
            kernels.append(fakecuda.last_launch().kernel)
            assert fakecuda.last_launch().ints()[:2] == (address, n % 2**32)
    hinted, plain = kernels[0], kernels[2]
    assert hinted != plain
    assert kernels == [hinted, hinted, plain, plain, plain, plain, hinted, hinted]


# bound arguments

BINDINGS: dict[str, tuple[Callable[[Kernel, Any], Any], str]] = {
    "by position": (lambda k, _: k.bind((1,), 5), "arguments are bound by name"),
    "unknown": (lambda k, _: k.bind((1,), m=5), "unexpected argument 'm'"),
    "given again by position": (lambda k, x: k.bind((1,), n=5)(x, 6), "bound already|one value"),
    "given again by name": (lambda k, x: k.bind((1,), n=5)(x, n=6), "one value"),
    "missing": (lambda k, _: k.bind((1,), n=5)(), "expected a value, got nothing"),
    "of a wrong type": (lambda k, x: k.bind((1,), n=5.0)(x), "expected i32, got float"),
    "too wide": (lambda k, x: k.bind((1,), n=2**31)(x), "expected i32"),
    "grid": (lambda k, _: k.bind((1, 2, 3, 4)), "a grid of 1 to 3 ints"),
    "negative grid": (lambda k, x: k.bind((-1,))(x, 5), r"grid\[0\]"),
    "no grid": (lambda k, x: k.bind()(x, 5), "no grid"),
    "stream": (lambda k, x: k.bind((1,), stream="x")(x, 5), "expected a stream"),
}


@pytest.mark.parametrize("case", BINDINGS)
def test_a_wrong_binding_is_refused(make: Make, tensor: Any, fakecuda: FakeCuda, case: str) -> None:
    call, words = BINDINGS[case]
    add = make({"x": "*fp16", "n": "i32"})
    for _ in range(2):
        with pytest.raises(NojitError, match=words):
            call(add, tensor(0x1000))
    add.bind((2,), n=5)(tensor(0x1000))
    assert fakecuda.launch_count() == 1
    assert (fakecuda.last_launch().grid, fakecuda.last_launch().ints()[:2]) == ((2, 1, 1), (0x1000, 5))


def test_a_bound_kernel_still_sees_what_its_tensors_are(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    bound = make({"x": "*{dtype}", "n": "i32"}, matrix={"dtype": ["fp16", "fp32"]}, hints=[{"x": 16}]).bind((1,), n=5)
    calls = [(0x1000, "float16", 0), (0x1008, "float16", 0), (0x1000, "float32", 0), (0x1000, "float16", 1)]
    for address, dtype, device in calls:
        bound(tensor(address, dtype, device=device))
        assert fakecuda.last_launch().ints()[0] == address
        assert fakecuda.last_launch().device == device
    assert len({(launch.kernel, launch.device) for launch in fakecuda.launches()}) == 4


# scratch allocators


@pytest.fixture(autouse=True)
def no_allocator_stays() -> Iterator[None]:
    yield
    runtime.set_allocator(None)


def raising(*_: Any) -> Any:
    raise LookupError("no memory today")


ALLOCATORS = [
    pytest.param((lambda *_: 0, ArgumentError, "memory of cuda:0 aligned to 256 bytes"), id="null"),
    pytest.param((lambda *_: 0x7000_0010, ArgumentError, "aligned to 256 bytes, got 0x70000010"), id="unaligned"),
    pytest.param((lambda *_: None, ArgumentError, "a tensor or an address, got NoneType"), id="None"),
    pytest.param((lambda *_: "x", ArgumentError, "a tensor or an address, got str"), id="str"),
    pytest.param(
        (lambda *_: PointerTensor(0x1000, device="cuda:1"), ArgumentError, "memory of cuda:0"), id="elsewhere"
    ),
    pytest.param((lambda *_: PointerTensor(0x1000, device="cpu"), ArgumentError, "memory of cuda:0"), id="host"),
    pytest.param((raising, LookupError, "no memory today"), id="raises"),
    pytest.param((lambda: 0, TypeError, "positional arguments"), id="takes nothing"),
    pytest.param((lambda *_: 2**70, ArgumentError, "address"), id="large"),
    pytest.param((lambda *_: -256, ArgumentError, "address"), id="negative"),
    pytest.param((lambda *_: True, ArgumentError, "a tensor or an address, got bool"), id="bool"),
]


@pytest.mark.parametrize("case", ALLOCATORS)
def test_an_allocator_that_gives_no_memory_is_told_so(make: Make, tensor: Any, fakecuda: FakeCuda, case: Any) -> None:
    allocator, error, words = case
    add = make({"x": "*fp16"}, launch={"global_scratch_bytes": 64, "global_scratch_align": 256})
    runtime.set_allocator(allocator)
    with pytest.raises(error, match=words):
        add[(2,)](tensor(0x1000))
    assert fakecuda.launch_count() == 0
    runtime.set_allocator(None)
    add[(2,)](tensor(0x1000))
    assert fakecuda.launch_count() == 1


class Memory(PointerTensor):
    """Scratch that notes when it is dropped."""

    def __init__(self, address: int, log: list[str], driver: FakeCuda) -> None:
        super().__init__(address)
        self.log, self.driver = log, driver

    def __del__(self) -> None:
        self.log.append(f"dropped after {self.driver.launch_count()} launches")


def test_an_allocators_memory_lives_until_the_launch_is_enqueued(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    facts = {"global_scratch_bytes": 64, "global_scratch_align": 256, "profile_scratch_bytes": 8}
    add, log, asked = make({"x": "*fp16"}, launch=facts), list[str](), list[tuple[int, int, int]]()
    stream = fakecuda.stream()

    def allocate(size: int, alignment: int, on: int) -> Memory:
        asked.append((size, alignment, on))
        return Memory(0x7000_0000 + 0x1000 * len(asked), log, fakecuda)

    runtime.set_allocator(allocate)
    add[(2, 3)](tensor(0x1000), stream=stream)
    assert fakecuda.last_launch().ints() == (0x1000, 0x7000_1000, 0x7000_2000)
    assert asked == [(6 * 64, 256, stream), (6 * 8, 1, stream)]
    assert log == ["dropped after 1 launches"] * 2
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(DriverError):
        add[(2, 3)](tensor(0x1000), stream=stream)
    assert log == ["dropped after 1 launches"] * 4


@pytest.mark.parametrize("value", [5, "x", (1, 2)])
def test_what_cannot_be_called_is_no_allocator(fakecuda: FakeCuda, value: Any) -> None:
    with pytest.raises(TypeError, match="expected an allocator that can be called"):
        runtime.set_allocator(value)


# hooks


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What hooks say; all that are added are removed again."""
    before = hooks._handles
    yield []
    for handle in hooks._handles:
        if handle not in before:
            hooks.remove(handle)


def test_a_hook_that_raises_before_keeps_the_launch_from_happening(
    make: Make, fakecuda: FakeCuda, said: list[str]
) -> None:
    add = make({"n": "i32"})
    hooks.add(lambda _: said.append("in"), lambda _: said.append("out"))
    bad = hooks.add(raising)
    with pytest.raises(LookupError, match="no memory today"):
        add[(1,)](1)
    assert fakecuda.launch_count() == 0
    assert said == ["in", "out"]
    hooks.remove(bad)
    add[(1,)](1)
    assert said == ["in", "out"] * 2
    assert fakecuda.launch_count() == 1


def test_hooks_are_left_though_the_launch_or_another_hook_fails(
    make: Make, fakecuda: FakeCuda, said: list[str]
) -> None:
    add = make({"n": "i32"})
    hooks.add(lambda _: said.append("in"), lambda _: said.append("out"))
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(DriverError, match="cuLaunchKernel failed"):
        add[(1,)](1)
    assert said == ["in", "out"]
    hooks.add(None, raising)
    with pytest.raises(LookupError):
        add[(1,)](1)
    assert said == ["in", "out"] * 2
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(DriverError, match="cuLaunchKernel failed"):
        add[(1,)](1)
    assert said == ["in", "out"] * 3


def test_a_hook_may_launch_and_take_itself_away(make: Make, fakecuda: FakeCuda, said: list[str]) -> None:
    add, other = make({"n": "i32"}), make({"n": "i32"}, name="other")

    def enter(info: hooks.LaunchInfo) -> None:
        said.append(info.kernel)
        if info.kernel == "add":
            other[(1,)](2)
            hooks.remove(handle)

    handle = hooks.add(enter, lambda _: said.append("out"))
    add[(1,)](1)
    add[(1,)](3)
    assert said[:2] == ["add", "other"]
    assert said.count("out") == 2
    assert [launch.ints()[0] for launch in fakecuda.launches()] == [2, 1, 3]


def test_a_zero_grid_and_a_refused_call_reach_no_hook(make: Make, fakecuda: FakeCuda, said: list[str]) -> None:
    add = make({"n": "i32"})
    hooks.add(lambda info: said.append(info.kernel))
    add[(0,)](1)
    with pytest.raises(ArgumentError):
        add[(1,)](1.0)
    assert said == []


def test_hooks_that_are_not_there_cannot_be_removed(said: list[str]) -> None:
    handle = hooks.add(lambda _: None)
    hooks.remove(handle)
    with pytest.raises(ValueError, match="expected the handle of installed hooks"):
        hooks.remove(handle)
