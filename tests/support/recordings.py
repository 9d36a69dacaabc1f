"""Write recordings by hand: what a live recorder writes of calls, without a GPU. Needs Triton."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from nojit.runtime.recording import closure as closures
from nojit.runtime.recording.file import Writer
from nojit.runtime.recording.specialization import Specialization, digest_of, functions_among, read_specialization
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

__all__ = ["Recorder", "Tensor"]

_DTYPES = {"fp16": tl.float16, "fp32": tl.float32, "bf16": tl.bfloat16, "i32": tl.int32}


class Tensor:
    """A tensor as Triton's binder asks: an address and a dtype."""

    def __init__(self, dtype: str = "fp32", address: int = 4096) -> None:
        self.address, self.dtype = address, _DTYPES[dtype]
        self.shape = (256, 256)

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, int]:
        return 256, 1


class Recorder:
    """Writes calls to the recording in a folder."""

    def __init__(self, folder: Path, *, arch: str = "sm_90", **facts: Any) -> None:
        self.writer = Writer(folder, {"triton": triton.__version__, "torch": "", "arch": arch, "fake": True, **facts})
        self._arch = arch
        self._counts: dict[str, int] = {}

    def call(
        self,
        function: Any,
        *args: Any,
        grid: tuple[int, ...] = (1,),
        trial: bool = False,
        launches: int = 1,
        values: dict[str, int] | None = None,
        change: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> str:
        """Record launches of one call and return the digest of its specialization; `change` lies about its fields."""
        digests = {"": self.write_closure(function)}
        arch = int(self._arch.removeprefix("sm_"))
        backend = make_backend(GPUTarget("cuda", arch, 32))
        bound, found, options = create_function_from_signature(function.signature, function.params, backend)(
            *args, **kwargs
        )
        for name, each in functions_among(bound).items():
            digests[name] = self.write_closure(each)
        return self.add(
            {
                **read_specialization(function, bound, found, options, arch=self._arch, closures=digests),
                **(change or {}),
            },
            grid=grid,
            trial=trial,
            launches=launches,
            values=values if values is not None else {name: v for name, v in bound.items() if type(v) is int},
        )

    def add(
        self,
        specialization: Specialization,
        *,
        grid: tuple[int, ...] = (1,),
        trial: bool = False,
        launches: int = 1,
        values: dict[str, int] | None = None,
    ) -> str:
        """Record launches of one specialization and return its digest."""
        digest = digest_of(specialization)
        self.writer.add("specialization", digest=digest, specialization=specialization, trial=trial, warmup=False)
        self._counts[digest] = self._counts.get(digest, 0) + launches
        self.writer.add("launches", process=self.writer.process, specialization=digest, count=self._counts[digest])
        self.writer.add(
            "sample",
            specialization=digest,
            grid=list(grid),
            values=[[name, value] for name, value in (values or {}).items()],
        )
        return digest

    def write_closure(self, function: Any) -> str:
        """Write the source closure of a function and return its digest."""
        closure = closures.capture(function)
        digest = closures.digest_of(closure)
        self.writer.add("closure", digest=digest, closure=closure)
        return digest
