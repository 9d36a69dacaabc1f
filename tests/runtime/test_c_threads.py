"""The C interface from many threads, under ThreadSanitizer; and what a launch that was made before takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import VECTOR_ADD
from tests.support.bundles import kernel, make_bundle

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "runtime/engine"
# gcc says of each fence that ThreadSanitizer does not see it
FLAGS = ["-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-Wno-tsan", f"-I{ENGINE}", f"-I{ENGINE}/include"]
WRAPPED = ["malloc", "calloc", "realloc", "pthread_mutex_lock"]


def test_threads_share_a_bundle(tmp_path: Path, fakecuda: FakeCuda) -> None:
    program = tmp_path / "launches"
    sources = [str(HERE / "launches.c"), *map(str, sorted(ENGINE.rglob("*.c")))]
    wrap = [f"-Wl,--wrap={name}" for name in WRAPPED]
    subprocess.run(["gcc", *FLAGS, *sources, *wrap, "-ldl", "-lm", "-lpthread", "-o", str(program)], check=True)
    tile = kernel("tile", {"tile": "tensordesc<fp16[64,64]>", "n": "i32"}, grid=["n"])
    bundle = make_bundle(tmp_path / "a.nojit", kernel("add", **VECTOR_ADD), kernel("sub", **VECTOR_ADD), tile)
    environment = fakecuda.environment(90, 90) | {"TSAN_OPTIONS": "halt_on_error=1"}
    ran = subprocess.run([program, bundle], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "first: some allocations, some locks\nagain: 0 allocations, 0 locks\n"
