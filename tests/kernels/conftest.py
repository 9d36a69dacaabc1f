"""Fixtures of the kernel library's tests: operators run on CPU tensors through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from nojit.kernels import library

from tests.kernels.interpreter import Interpreter


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    """The process in which kernels are interpreted."""
    interpreter = Interpreter()
    yield interpreter
    interpreter.close()


@pytest.fixture
def interpreted(interpreter: Interpreter) -> Iterator[Interpreter]:
    """Have every operator take its kernels from the interpreter."""
    with library.override(interpreter):
        yield interpreter


@pytest.fixture
def one_by_one() -> Iterator[None]:
    """Let ``vmap`` take operators sample by sample, without torch's warning that it does."""
    warns = torch._C._debug_only_are_vmap_fallback_warnings_enabled()
    torch._C._debug_only_display_vmap_fallback_warnings(False)
    yield
    torch._C._debug_only_display_vmap_fallback_warnings(warns)


@pytest.fixture(autouse=True)
def seed() -> None:
    """Give every test the same random numbers, whatever ran before it."""
    torch.manual_seed(20)
