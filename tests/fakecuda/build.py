"""Compile the fake driver and the fake framework with the machine's C compiler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

__all__ = ["build_driver", "build_faketorch", "build_hip", "load_extension"]

HERE = Path(__file__).parent
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-shared", "-fPIC", "-fvisibility=hidden")
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_DRIVER_SOURCES = (
    "arguments",
    "cubin",
    "device",
    "entry",
    "hsaco",
    "launch",
    "library",
    "memory",
    "script",
    "state",
    "tensormap",
)


def build_driver(folder: Path, *flags: str) -> Path:
    """Build ``libcuda.so.1`` into `folder`, with extra compiler `flags`.

    ``-DFAKECUDA_OLD_DRIVER`` leaves out what the drivers of CUDA 12.0 did not have.
    """
    out = folder / "libcuda.so.1"
    _compile(out, [HERE / f"{name}.c" for name in _DRIVER_SOURCES], "-pthread", "-Wl,-soname,libcuda.so.1", *flags)
    return out


def build_hip(folder: Path, *flags: str) -> Path:
    """Build ``libamdhip64.so`` into `folder`: the same fake under HIP's names, with extra compiler `flags`."""
    out = folder / "libamdhip64.so"
    sources = [HERE / f"{name}.c" for name in (*_DRIVER_SOURCES, "hip")]
    _compile(out, sources, "-pthread", "-Wl,-soname,libamdhip64.so", *flags)
    return out


def build_faketorch(folder: Path, *flags: str) -> Path:
    """Build the extension module ``faketorch`` into `folder`."""
    out = folder / f"faketorch{sysconfig.get_config_var('EXT_SUFFIX')}"
    _compile(out, [HERE / "faketorch.c"], f"-I{sysconfig.get_path('include')}", *flags)
    return out


def load_extension(path: Path) -> ModuleType:
    """Import an extension module from its file."""
    name = path.name.split(".")[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(out: Path, sources: list[Path], *flags: str) -> None:
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("the fake driver needs a C compiler: none of $CC, gcc, cc is there")
    # sanitize.sh names its sanitizers here
    more = os.environ.get("FAKECUDA_CFLAGS", "").split()
    # the compiler itself must not run under them
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [*compiler.split(), *_FLAGS, *_WARNINGS, *map(str, sources), "-o", str(out), *flags, *more]
    subprocess.run(command, check=True, env=environment)
