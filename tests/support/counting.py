"""Count what Python code does, for tests of what it costs: a time would be the machine's, and of whoever else is on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["count_bytecodes"]


def count_bytecodes(work: Callable[[], object]) -> int:
    """Return how many bytecodes `work` and what it calls execute; functions in C count as the one that calls them."""
    counted = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted
