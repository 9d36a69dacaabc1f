"""Take Python's memory away at one allocation of a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

__all__ = ["needs_sound_python", "starve", "starved"]

_ALLOCATIONS_MAX = 20_000

_testcapi = pytest.importorskip("_testcapi", reason="this Python was built without its test modules")

needs_sound_python = pytest.mark.skipif(
    sys.version_info[:2] in {(3, 12), (3, 13)},
    reason="CPython 3.12 and 3.13 release code twice where they have no room for a function in Python, and crash later",
)


def starve(call: Callable[[], object], allocation: int) -> bool:
    """Let one allocation of `call` fail, counted from 0; return whether the call got as far as that."""
    _testcapi.set_nomemory(allocation, allocation + 1)
    try:
        call()
    except MemoryError:
        return True
    except RuntimeError as error:
        # what CPython raises where it has no room for a lock
        if "can't allocate" not in str(error):
            raise
        return True
    except SystemError as error:
        # CPython 3.11 forgets to raise when it has no room for the frame of a function in Python. What is written in C
        # would be named as the object that "returned NULL without setting an exception". It also goes on where it has no room
        # for an attribute of an object: of what a log line is made of, say, a class of the standard library's in Python.
        said = str(error)
        lost = said.startswith("<class 'logging.") and said.endswith(" returned a result with an exception set")
        if not lost and "<function " not in said and said != "error return without exception set":
            raise
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False


def starved(call: Callable[[], object]) -> Iterator[int]:
    """Starve `call` at one allocation after another; yield after each, until several in a row were never reached.

    No allocation is left out: one that CPython itself cannot do without is avoided by what `call` passes, or `starve` names it.

    Args:
        call: raises MemoryError where it is out of memory.
    """
    unreached = 0
    for allocation in range(_ALLOCATIONS_MAX):
        unreached = 0 if starve(call, allocation) else unreached + 1
        yield allocation
        # an allocation whose failure is made up for looks like one that was not reached
        if unreached > 20:
            return
    pytest.fail(f"a call of more than {_ALLOCATIONS_MAX} allocations")
