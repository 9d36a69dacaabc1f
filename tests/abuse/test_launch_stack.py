"""Little stack: threads that have next to none, and objects nested deeper than any stack, which end all the same."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime import _core

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import kernel, make_bundle

DEEP = 300_000
LIBC = ctypes.CDLL(None)
LIBC.pthread_self.restype = ctypes.c_size_t


def in_thread_of(stack_bytes: int, work: Any) -> list[Any]:
    """Return what `work` returned or raised in a thread with so much stack.

    The C library hands a new thread the stack of one that ended, which can be four times as large: threads that get one keep it.
    """
    results: list[Any] = []
    threads: list[threading.Thread] = []
    turn, done = threading.Semaphore(0), threading.Event()

    def run() -> None:
        if own_stack_bytes() > stack_bytes + 4096:
            turn.release()
            done.wait()
            return
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - told to the test's thread
            results.append(error)
        done.set()
        turn.release()

    before = threading.stack_size(stack_bytes)
    try:
        while not done.is_set():
            threads.append(threading.Thread(target=run))
            threads[-1].start()
            turn.acquire()
    finally:
        threading.stack_size(before)
    for thread in threads:
        thread.join()
    return results


def own_stack_bytes() -> int:
    """Return how large the stack of this thread is."""
    attributes, size = ctypes.create_string_buffer(64), ctypes.c_size_t()
    assert LIBC.pthread_getattr_np(ctypes.c_void_p(LIBC.pthread_self()), attributes) == 0
    assert LIBC.pthread_attr_getstacksize(attributes, ctypes.byref(size)) == 0
    LIBC.pthread_attr_destroy(attributes)
    return size.value


@pytest.mark.parametrize("stack_bytes", [32 << 10, 48 << 10, 64 << 10, 96 << 10, 128 << 10])
@pytest.mark.parametrize("warm", [False, True], ids=["first launch", "later launch"])
def test_a_thread_with_too_little_stack_is_told_so(
    make: Make, tensor: Any, fakecuda: FakeCuda, stack_bytes: int, *, warm: bool
) -> None:
    add, x = make({"x": "*fp16"}), tensor(0x1000)
    if warm:
        add[(1,)](x)
    for work in (lambda: add[(1,)](x), lambda: add(x), lambda: add.warmup(x), lambda: add.explain(x, arch="sm_90")):
        (error,) = in_thread_of(stack_bytes, work)
        assert isinstance(error, RecursionError)
        assert "threading.stack_size" in str(error)
    assert fakecuda.launch_count() == warm


def test_a_thread_with_a_small_stack_launches(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add, x = make({"x": "*fp16"}), tensor(0x1000)
    assert in_thread_of(512 << 10, lambda: add[(1,)](x)) == [None]
    assert fakecuda.launch_count() == 1


# how each is put around the one before
NESTED = {
    "arguments of bound kernels": "one = add.bind((1,), n=one)",
    "grids of bound kernels": "one = add.bind(one)",
    "grids by subscript": "one = add[one]",
    "descriptors": "one = _core.Described(one, (8, 1), (4, 8))",
    "recipes": "one = _core.Recipe(0, ((one, (), (), (), True),), (0,))",
    "states": "one = _core.Plain((), int.real, one, one, ())",
    "memos": "one = remembered(one)",
    "defaults": "one = _core.Dispatcher('add', (('n', False, one),), (), _core.Ids())",
}
START = f"""
import sys
from nojit import runtime
from nojit.runtime import _core

add = runtime.load(sys.argv[1]).kernel("add")
plain = _core.Plain((), int.real, print, print, ())
recipe = _core.Recipe(0, (), ())


def remembered(owner):
    memo = _core.Memo(plain, (), 0, 8)
    memo.remember(recipe, owner)
    return memo


one = add[(1,)]
for _ in range({DEEP}):
    %s
del one
print("freed")
"""


def nested_recipe(levels: int) -> _core.Recipe:
    one = _core.Recipe(0, (), ())
    for _ in range(levels - 1):
        one = _core.Recipe(0, ((one, (), (), (), True),), (0,))
    return one


def test_recipes_nested_deep_end_in_an_error() -> None:
    assert nested_recipe(64)() == ()
    for levels in (65, 9_000, DEEP):
        with pytest.raises(RecursionError, match="expected recipes nested at most 64 deep"):
            nested_recipe(levels)()


@pytest.mark.parametrize("nested", NESTED)
def test_what_is_nested_deep_is_freed(tmp_path: Path, fakecuda: FakeCuda, nested: str) -> None:
    path = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}))
    code = textwrap.dedent(START % NESTED[nested])
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr[-2000:]
