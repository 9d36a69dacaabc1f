"""C programs that are built with the engine under sanitizers: many threads; memory that runs out; a system that fails to read."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
from pathlib import Path

import pytest

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import VECTOR_ADD
from tests.support.bundles import kernel, make_bundle
from tests.support.engine import FLAGS, compile_engine, sanitizing_compiler

HERE = Path(__file__).parent
NOTES = (("notes.txt", b"notes"),)
ALLOCATIONS = ("malloc", "calloc", "realloc")


def build(name: str, folder: Path, compiler: list[str], engine: list[Path], *wrapped: str) -> Path:
    """Link a program of this folder with the engine, whose calls of some functions of libc go through the program."""
    wrap = [f"-Wl,--wrap={one}" for one in wrapped]
    sources = map(str, (HERE / f"{name}.c", *engine))
    command = [*compiler, "-std=gnu11", *FLAGS, *sources, *wrap, "-ldl", "-lm", "-lpthread", "-o", str(folder / name)]
    subprocess.run(command, check=True)
    return folder / name


def test_threads_share_a_bundle(tmp_path: Path, fakecuda: FakeCuda) -> None:
    # gcc says of each fence that ThreadSanitizer does not see it
    compiler = os.environ.get("NOJIT_COVERAGE_CC", "").split() or ["gcc", "-O1", "-fsanitize=thread", "-Wno-tsan"]
    (tmp_path / "engine").mkdir()
    engine = compile_engine(tmp_path / "engine", *compiler)
    program = build("launches", tmp_path, compiler, engine, *ALLOCATIONS, "pthread_mutex_lock")
    tile = kernel("tile", {"tile": "tensordesc<fp16[64,64]>", "n": "i32"}, grid=["n"])
    bundle = make_bundle(
        tmp_path / "a.nojit", kernel("add", **VECTOR_ADD), kernel("sub", **VECTOR_ADD), tile, attachments=NOTES
    )
    environment = fakecuda.environment(90, 90) | {"TSAN_OPTIONS": "halt_on_error=1"}
    ran = subprocess.run([program, bundle], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "first: some allocations, some locks\nagain: 0 allocations, 0 locks\n"


def test_each_allocation_can_fail(tmp_path: Path, fakecuda: FakeCuda, sanitized_engine: list[Path]) -> None:
    program = build("nomemory", tmp_path, sanitizing_compiler(), sanitized_engine, *ALLOCATIONS)
    tile = kernel("tile", {"both": "(tensordesc<fp16[64,64]>,i32,='sum')"}, grid=["1"])
    bundle = make_bundle(tmp_path / "a.nojit", kernel("add", **VECTOR_ADD), tile, attachments=NOTES)
    ran = subprocess.run([program, bundle], env=fakecuda.environment(90), capture_output=True, text=True, check=False)
    # each image once, whatever failed behind its load
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "many failed, 9 images loaded\n")


@pytest.mark.skipif(ctypes.util.find_library("zstd") is None, reason="the engine decompresses with libzstd")
def test_reads_may_be_interrupted_and_short_and_each_can_fail(
    tmp_path: Path, fakecuda: FakeCuda, sanitized_engine: list[Path]
) -> None:
    program = build("reads", tmp_path, sanitizing_compiler(), sanitized_engine, "pread", "fstat", "dlopen")
    bundle = make_bundle(tmp_path / "a.nojit", kernel("add", **VECTOR_ADD), attachments=NOTES)
    ran = subprocess.run([program, bundle], env=fakecuda.environment(90), capture_output=True, text=True, check=False)
    # header, index, attachment, section, and the groups of two images
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "6 parts read, 0 wrong\n")
