"""Launches under faults use the kernels and tensors of the runtime's tests."""

from __future__ import annotations

import threading

import pytest

from tests.runtime.conftest import make, tensor

__all__ = ["locks_that_may_stay_held", "make", "tensor"]


@pytest.fixture
def locks_that_may_stay_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 packs a tuple to leave a lock's ``with`` block by an exception: without memory it stays held."""
    monkeypatch.setattr(threading, "Lock", threading.RLock)
