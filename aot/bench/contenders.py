"""Contenders of the launch benchmark: nojit's forms of a call, and the floor, a loop in C."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.bench.c_calls import CallInC
from nojit.aot.bench.case_setup import Stage, Timer, Unavailable, timed
from nojit.runtime.base.environment import LIBCUDA

__all__ = ["FLOOR", "OURS", "Contender", "c_launch", "c_loop", "c_plan", "compile_loops", "nojit"]

_SOURCE = Path(__file__).with_name("c_loop.c")
_INT_TYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to launch a kernel that a launch benchmark compares, with the function that prepares its timer."""

    name: str
    what: str
    """The contender in a few words."""
    prepare: Callable[[Stage], Timer]
    """Function that prepares the launcher for a case; raises if the launcher cannot run here."""


def c_loop(stage: Stage) -> Timer:
    """Return a timer of a C loop around ``cuLaunchKernel`` that launches nojit's image.

    `stage`: the case's bundle, tensors and device.
    """
    image = stage.image()
    loop = compile_loops(stage.folder).launch_loop
    driver = ctypes.CDLL(os.environ.get(LIBCUDA, "libcuda.so.1"))
    kernel = _load(driver, image.code, image.launch.symbol)
    values = [_INT_TYPES.get(kind, ctypes.c_uint64)(value) for kind, value in stage.params(image.launch)]
    params = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    stream = ctypes.c_void_p(stage.stream)

    def run(launches: int) -> float:
        # keeps `values` alive: the array holds only their addresses
        _ = values
        spent_ns = loop(
            driver.cuLaunchKernel, kernel, 1, image.threads, image.launch.shared_bytes, stream, params, launches
        )
        if spent_ns < 0:
            raise Unavailable(f"cuLaunchKernel returned error {-spent_ns}")
        return float(spent_ns) / 1e3 / launches

    return run


def compile_loops(folder: Path) -> ctypes.CDLL:
    """Compile the loops in C, once for each folder.

    Raises:
        Unavailable: there is no C compiler.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler: found none of $CC, cc, gcc")
    library = folder / "c_loop.so"
    if not library.exists():
        command = [*compiler.split(), "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    loops = ctypes.CDLL(str(library))
    for name in ("launch_loop", "plan_loop", "call_loop"):
        getattr(loops, name).restype = ctypes.c_int64
    return loops


def _load(driver: ctypes.CDLL, code: bytes, symbol: str) -> ctypes.c_void_p:
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    loaded = driver.cuLibraryLoadData(ctypes.byref(library), code, None, None, 0, None, None, 0)
    found = loaded or driver.cuLibraryGetKernel(ctypes.byref(kernel), library, symbol.encode())
    if found:
        raise Unavailable(f"the driver cannot load {symbol}: error {found}")
    return kernel


def c_plan(stage: Stage) -> Timer:
    """Return a timer of a C loop around ``nj_plan_launch``, which selects nothing."""
    call, loop = CallInC(stage), compile_loops(stage.folder).plan_loop
    plan, values = call.plan()
    return _timer(
        lambda launches: loop(call.library.nj_plan_launch, plan, values, ctypes.c_void_p(stage.stream), launches)
    )


def c_launch(stage: Stage) -> Timer:
    """Return a timer of a C loop around ``nj_kernel_launch``, which finds the plan of a call by its arguments."""
    call, loop = CallInC(stage), compile_loops(stage.folder).call_loop
    given, setup = ctypes.byref(call.call), ctypes.byref(call.setup)
    return _timer(lambda launches: loop(call.library.nj_kernel_launch, call.kernel, given, setup, launches))


def _timer(loop: Callable[[int], int]) -> Timer:
    def run(launches: int) -> float:
        spent_ns = loop(launches)
        if spent_ns < 0:
            raise Unavailable(f"libnojit gave error {-spent_ns}")
        return spent_ns / 1e3 / launches

    return run


def nojit(call: str) -> Callable[[Stage], Timer]:
    """Return the preparation of one form of a nojit call.

    Args:
        call: the statement, with a field ``{positional}`` or ``{triton}`` for the arguments.
    """

    def prepare(stage: Stage) -> Timer:
        return timed(call.format(positional=stage.case.positional(), triton=stage.case.as_triton()), stage.names)

    return prepare


def _bound(stage: Stage) -> Timer:
    names = stage.names
    bind = getattr(names["kernel"], "bind", None)
    if bind is None:
        raise Unavailable("this nojit has no kernel.bind")
    names["bound"] = bind(names["grid"])
    return timed(f"bound({stage.case.positional()})", names)


FLOOR = Contender("c-loop", "C loop around cuLaunchKernel", c_loop)
OURS = (
    Contender("c-plan", "C loop around nj_plan_launch", c_plan),
    Contender("c-launch", "C loop around nj_kernel_launch", c_launch),
    Contender("nojit", "kernel[grid](...), called as Triton is", nojit("kernel[grid]({triton})")),
    Contender("nojit-own-grid", "kernel(...), the bundle's grid", nojit("kernel({positional})")),
    Contender("nojit-bound", "bound = kernel.bind(grid); bound(...)", _bound),
)
