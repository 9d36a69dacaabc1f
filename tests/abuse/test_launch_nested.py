"""Python code that a launch calls can launch again: as deep as the stack allows, and no deeper."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.bundle import file as bundle
from nojit.runtime.bundle import zstd
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.kernel import Kernel
from nojit.runtime.observe import hooks

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make

WORDS = "at most 32 nested calls"


class Again:
    """A tensor that makes a call when it is asked where it lies."""

    dtype, device = "fp16", "cuda:0"

    def __init__(self, call: Callable[[Any], object]) -> None:
        self.call = call

    def data_ptr(self) -> int:
        self.call(self)
        return 0x1000


def by_grid(add: Kernel, _: Any) -> None:
    def grid(_: object) -> tuple[int]:
        add[grid](0x1000)
        return (1,)

    add[grid](0x1000)


def by_hook(add: Kernel, _: Any) -> None:
    handle = hooks.add(lambda _: add[(1,)](0x1000, stream=0))
    try:
        add[(1,)](0x1000, stream=0)
    finally:
        hooks.remove(handle)


def by_allocator(add: Kernel, tensor: Any) -> None:
    def allocate(_size: int, _align: int, _stream: int | None) -> int:
        add[(1,)](tensor(0x1000))
        return 0x10000

    runtime.set_allocator(allocate)
    try:
        add[(1,)](tensor(0x1000))
    finally:
        runtime.set_allocator(None)


def by_tensor(add: Kernel, _: Any) -> None:
    add[(1,)](Again(add[(1,)]))


def by_explaining(add: Kernel, _: Any) -> None:
    add.explain(Again(add.explain))


def by_warming(add: Kernel, _: Any) -> None:
    add.warmup(Again(add.warmup))


WAYS = [by_grid, by_hook, by_allocator, by_tensor, by_explaining, by_warming]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in a thread"])
def test_launches_without_end_are_an_error_and_the_next_one_works(
    make: Make, tensor: Any, fakecuda: FakeCuda, way: Callable[[Kernel, Any], None], elsewhere: bool
) -> None:
    add = make({"x": "*fp16"}, launch={"global_scratch_bytes": 8} if way is by_allocator else {})

    def run() -> None:
        for _ in range(2):
            with pytest.raises(Exception, match=WORDS):
                way(add, tensor)

    if elsewhere:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    before = fakecuda.launch_count()
    add[(1,)](tensor(0x1000))
    assert fakecuda.launch_count() == before + 1


@pytest.mark.parametrize("stack_bytes", [1 << 18, 1 << 19])
def test_a_small_stack_ends_launches_sooner(make: Make, tensor: Any, fakecuda: FakeCuda, stack_bytes: int) -> None:
    add = make({"x": "*fp16"})
    ended: list[str] = []

    def run() -> None:
        for _ in range(2):
            with pytest.raises(RecursionError) as caught:
                by_grid(add, tensor)
            ended.append(str(caught.value))

    before = threading.stack_size(stack_bytes)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    words = r"expected room on the thread's stack for a call of a kernel nested in \d+ others"
    assert [bool(re.fullmatch(words, message)) for message in ended] == [True, True]
    add[(1,)](tensor(0x1000))
    assert fakecuda.launch_count() == 1


def test_a_hook_can_launch(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32"})
    depth = 0

    def enter(_: hooks.LaunchInfo) -> None:
        nonlocal depth
        depth += 1
        if depth < 10:
            add[(1,)](depth)

    handle = hooks.add(enter)
    try:
        add[(1,)](0)
    finally:
        hooks.remove(handle)
    assert [launch.ints()[0] for launch in fakecuda.launches()] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def finishes(run: Callable[[], None]) -> bool:
    """Run in a thread of its own, which may hang."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


def test_a_finalizer_may_launch_while_an_image_is_loaded(
    make: Make, tensor: Any, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, load = make(), BundleFile.load
    left = ["float32", "float16"]

    def load_late(*args: Any) -> Any:
        if left:
            dtype = left.pop()
            add[(1,)](tensor(0x1000, dtype), tensor(0x2000, dtype), 7)
        return load(*args)

    monkeypatch.setattr(BundleFile, "load", load_late)
    assert finishes(lambda: add[(1,)](tensor(0x1000), tensor(0x2000), 5))
    assert [launch.ints()[2] for launch in fakecuda.launches()] == [7, 7, 5]


def test_a_finalizer_may_launch_while_an_image_is_decompressed(
    make: Make, tensor: Any, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    decompress, left = zstd._with_python(), []

    def decompress_late(*args: Any) -> Any:
        if left:
            dtype = left.pop()
            add[(1,)](tensor(0x1000, dtype), tensor(0x2000, dtype), 7)
        return decompress(*args)

    monkeypatch.setattr(bundle, "decompress", decompress_late)
    add = make()
    left += ["float32", "float16"]
    assert finishes(lambda: add[(1,)](tensor(0x1000), tensor(0x2000), 5))
    assert [launch.ints()[2] for launch in fakecuda.launches()] == [7, 7, 5]


def test_a_finalizer_may_change_hooks_while_others_are_changed(
    make: Make, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, seen = make({"n": "i32"}), []
    first, second = hooks.add(lambda _: seen.append(1)), hooks.add(lambda _: seen.append(2))
    others = [first]

    def late(_one: hooks.Handle, _other: object) -> bool:
        # called by `remove` in the midst of its change
        if others:
            hooks.remove(others.pop())
        return False

    monkeypatch.setattr(hooks.Handle, "__eq__", late)
    assert finishes(lambda: hooks.remove(second))
    add[(1,)](1)
    assert seen == []
    assert fakecuda.launch_count() == 1
