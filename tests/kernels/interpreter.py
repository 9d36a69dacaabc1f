"""Kernels that run in Triton's interpreter, in a process of their own.

The interpreter replaces parts of the triton package for the whole process that switches it on, so it lives in a child:
nothing of it can leak into tests that compile. `Interpreter` is a provider for `nojit.kernels.library.override`; a call
sends the storages behind its tensors to the child and brings back what the kernel wrote, padding between and around the
tensors' elements included.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nojit.kernels.manifest_kernels import by_position

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class TensorArgument:
    """A tensor of a call, as it travels to the child."""

    storage: int
    """The address of its storage, by which the call's storages are named."""
    dtype: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    address: int
    """The address of its first element here, which alignment is judged by."""


class Interpreter:
    """The child process, and the calls to it."""

    def __init__(self, manifests: Path = ROOT / "manifests", *, warnings: str = "") -> None:
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": warnings}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.kernels.interpreter_worker", str(manifests)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __call__(self, name: str) -> InterpretedKernel:
        """Give a kernel, as a provider does; the manifest is looked up at the call."""
        return InterpretedKernel(self, name)

    def close(self) -> None:
        """End the child."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        self._child.wait(timeout=600)

    def launch(self, name: str, args: tuple[Any, ...], constexprs: dict[str, Any], grid: tuple[int, ...] | None) -> str:
        """Run a kernel over the tensors' memory; return the config that was chosen, in words."""
        storages: dict[int, torch.UntypedStorage] = {}
        sent = tuple(_pack(arg, storages) for arg in args)
        contents = {key: read_storage(storage) for key, storage in storages.items()}
        answer = self._ask((name, sent, constexprs, grid, contents))
        if isinstance(answer, BaseException):
            raise answer
        config, written = answer
        for key, content in written.items():
            ctypes.memmove(storages[key].data_ptr(), content, len(content))
        return str(config)

    def _ask(self, question: object) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump(question, self._child.stdin)
        self._child.stdin.flush()
        return pickle.load(self._child.stdout)


@dataclass(frozen=True)
class InterpretedKernel:
    """One kernel of the manifests."""

    interpreter: Interpreter
    name: str

    def __call__(self, *args: Any, **named: Any) -> str:
        return self.interpreter.launch(self.name, *by_position(self.name, args, named), None)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., str]:
        return lambda *args, **named: self.interpreter.launch(self.name, *by_position(self.name, args, named), grid)


def _pack(arg: Any, storages: dict[int, torch.UntypedStorage]) -> Any:
    if not isinstance(arg, torch.Tensor):
        return arg
    storage = arg.untyped_storage()
    storages[storage.data_ptr()] = storage
    return TensorArgument(
        storage.data_ptr(),
        str(arg.dtype).removeprefix("torch."),
        arg.storage_offset(),
        tuple(arg.shape),
        tuple(arg.stride()),
        arg.data_ptr(),
    )


def read_storage(storage: torch.UntypedStorage) -> bytes:
    """Copy the bytes of a storage."""
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""
