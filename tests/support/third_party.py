"""Imports every module of third-party packages that names Triton, over the stand-in.

    python -m tests.support.third_party FOLDER [--gpu]

FOLDER holds packages, as ``pip install --no-deps --target FOLDER`` lays them. Prints how many modules import, and each error. With
``--gpu``, torch reports an H100: packages that look for a GPU then import on a machine without one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__all__ = ["import_all", "modules"]

_NAMES_TRITON = re.compile(r"^\s*(import|from) triton\b|@triton\.", re.MULTILINE)
_SKIPPED = {"test", "tests", "testing", "benchmark", "benchmarks", "bin"}


def modules(folder: Path) -> list[str]:
    """List the modules of a folder that name Triton, without tests and benchmarks."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        fits = parts and all(part.isidentifier() for part in parts) and not _SKIPPED & {*parts}
        fits = fits and not any(part.startswith("test_") for part in parts)
        if fits and _NAMES_TRITON.search(path.read_text(encoding="utf-8", errors="ignore")):
            found.append(".".join(parts))
    return found


def import_all(folder: Path) -> dict[str, str]:
    """Import the modules of a folder; return the error of each, empty for none."""
    sys.path.insert(0, str(folder))
    return {name: error_of(name) for name in modules(folder)}


def error_of(name: str) -> str:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - a package may even exit
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} - at {place.filename}:{place.lineno}"
    return ""


def pretend_a_gpu() -> None:
    """Make torch report an H100."""
    import torch

    properties = {"name": "NVIDIA H100", "major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 80 << 30}
    properties |= {
        "warp_size": 32,
        "shared_memory_per_block_optin": 232448,
        "gcnArchName": "",
        "L2_cache_size": 50 << 20,
    }
    told: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: "NVIDIA H100",
        "get_device_properties": lambda device=None: SimpleNamespace(**properties),
        "is_bf16_supported": lambda *given, **named: True,
        "_lazy_init": lambda: None,
    }
    for name, function in told.items():
        setattr(torch.cuda, name, function)


def main() -> None:
    """Print what imports."""
    from nojit.runtime.serve import standin

    import tests.support.hidden_triton  # noqa: F401 - hides Triton

    standin.install()
    if "--gpu" in sys.argv:
        pretend_a_gpu()
    found = import_all(Path(sys.argv[1]))
    failed = {name: error for name, error in found.items() if error}
    sys.stdout.write("".join(f"{name}: {error}\n" for name, error in failed.items()))
    sys.stdout.write(f"{len(found) - len(failed)} of {len(found)} modules import\n")
    sys.stdout.write(json.dumps(failed) + "\n")


if __name__ == "__main__":
    main()
