"""Load every variant of kernels from C, with a call of the fake framework's behind each at which callgrind writes down its count.

python -m tests.support.loads_child BUNDLE FAKETORCH KERNEL...
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fakecuda.build import load_extension
from tests.support.capi import CApi


def main(path: str, faketorch: str, *kernels: str) -> None:
    """Load each kernel, and mark its end."""
    mark = load_extension(Path(faketorch)).counts
    bundle = CApi().open(Path(path))
    for name in kernels:
        bundle.kernel(name).load(0)
        mark()


if __name__ == "__main__":
    main(*sys.argv[1:])
