"""Launches under faults use the kernels and tensors of the runtime's tests."""

from __future__ import annotations

from tests.runtime.conftest import make, tensor

__all__ = ["make", "tensor"]
