"""Calls of a case through the C interface, by ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from nojit.aot.bench.case_setup import Stage, Unavailable
from nojit.runtime import _core

__all__ = ["Arg", "Call", "CallInC", "Keyword", "LaunchSetup", "Value", "library_path"]

# of nj_arg_kind and nj_dtype
_INT, _POINTER, _FP32 = 3, 6, 13


def library_path() -> Path:
    """Return the path of the libnojit that the extension links."""
    return Path(_core.__file__).with_name("libnojit.so.0")


class Value(ctypes.Union):
    """The union of ``nj_arg``."""

    _fields_ = (
        ("integer", ctypes.c_int64),
        ("unsigned_integer", ctypes.c_uint64),
        ("number", ctypes.c_double),
        ("pointer", ctypes.c_void_p),
        ("text", ctypes.c_char_p),
    )


class Arg(ctypes.Structure):
    """``nj_arg`` of nojit.h."""

    _anonymous_ = ("value",)
    _fields_ = (("kind", ctypes.c_uint32), ("dtype", ctypes.c_uint32), ("value", Value), ("count", ctypes.c_size_t))


class Keyword(ctypes.Structure):
    """``nj_keyword``."""

    _fields_ = (("name", ctypes.c_char_p), ("value", Arg))


class Call(ctypes.Structure):
    """``nj_call``."""

    _fields_ = (
        ("args", ctypes.POINTER(Arg)),
        ("arg_count", ctypes.c_size_t),
        ("keywords", ctypes.POINTER(Keyword)),
        ("keyword_count", ctypes.c_size_t),
    )


class LaunchSetup(ctypes.Structure):
    """``nj_launch_setup``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("grid", ctypes.POINTER(ctypes.c_uint32)),
        ("device", ctypes.c_int),
        ("reserved", ctypes.c_uint32),
    )


class CallInC:
    """The call of a case, as a program in C would make it.

    Attributes:
        library: libnojit.
        kernel: the handle of the kernel.
        call: its arguments.
        setup: device, stream and grid.

    Args:
        stage: the case.

    Raises:
        Unavailable: libnojit refuses the bundle or the kernel.
    """

    def __init__(self, stage: Stage) -> None:
        self.library = ctypes.CDLL(str(library_path()))
        for function in (self.library.nj_bundle_open, self.library.nj_bundle_kernel, self.library.nj_kernel_prepare):
            function.restype = ctypes.c_void_p
        (file,) = stage.bundle.files
        bundle = self.library.nj_bundle_open(file.path.encode(), None, None)
        found = bundle and self.library.nj_bundle_kernel(ctypes.c_void_p(bundle), stage.case.kernel.encode(), None)
        if not found:
            raise Unavailable(f"libnojit cannot open {file.path}: expected a plain policy and libzstd.so.1")
        self.kernel = ctypes.c_void_p(found)
        self._values = {**stage.addresses, **stage.case.numbers}
        args = [Arg(_POINTER, _FP32, Value(unsigned_integer=address)) for address in stage.addresses.values()]
        args += [Arg(_INT, 0, Value(integer=number)) for number in stage.case.numbers.values()]
        self.call = Call((Arg * len(args))(*args), len(args))
        self.setup = LaunchSetup(
            ctypes.sizeof(LaunchSetup), stage.stream or None, (ctypes.c_uint32 * 3)(1, 1, 1), stage.device
        )

    def plan(self) -> tuple[ctypes.c_void_p, Any]:
        """Return a plan, and pointers to its values."""
        device = ctypes.c_int(self.setup.device)
        found = self.library.nj_kernel_prepare(self.kernel, ctypes.byref(self.call), device, None)
        if not found:
            raise Unavailable("libnojit selects no variant for the call")
        # the low bytes of an int are that int in fewer bytes
        self._held = (ctypes.c_uint64 * len(self._values))(*self._values.values())
        start = ctypes.addressof(self._held)
        return ctypes.c_void_p(found), (ctypes.c_void_p * len(self._held))(
            *range(start, start + 8 * len(self._held), 8)
        )
