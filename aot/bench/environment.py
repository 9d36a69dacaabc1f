"""What was measured on: told with every result."""

from __future__ import annotations

import ctypes
import os
import platform

from nojit.aot.doctor import probe_driver, versions

__all__ = ["describe"]


def describe() -> dict[str, str]:
    """Name GPU, driver, host and the versions of what can be measured. Imports none of them."""
    driver = probe_driver()
    found = {name: number or "not installed" for name, number in versions().items()}
    cuda = "none" if driver.version is None else f"CUDA {driver.version // 1000}.{driver.version % 1000 // 10}"
    gpu = f"{_name()}, sm_{driver.devices[0]}" if driver.devices else "none"
    return {"gpu": gpu, "driver": cuda, "host": f"{platform.system()} {platform.machine()}", **found}


def _name() -> str:
    library = ctypes.CDLL(os.environ.get("NOJIT_LIBCUDA", "libcuda.so.1"))
    name = ctypes.create_string_buffer(128)
    code = library.cuInit(0) or library.cuDeviceGetName(name, len(name), 0)
    return "unnamed" if code else name.value.decode(errors="replace")
