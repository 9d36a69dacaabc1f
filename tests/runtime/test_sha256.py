"""The engine's SHA-256, with and without the processor's instructions, against hashlib's."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from nojit.runtime import _core

ROOT = Path(__file__).resolve().parents[2]


class _Span(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("size", ctypes.c_size_t))


@pytest.fixture(scope="module", params=["as built", "plain"])
def digest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], bytes]:
    """Return a function that hashes, as the processor does best or without its instructions."""
    if request.param == "as built":
        return _core.sha256
    path = tmp_path_factory.mktemp("plain") / "sha256.so"
    # coverage.sh counts its lines
    compiler = os.environ.get("NOJIT_COVERAGE_CC", "").split() or ["gcc", "-O2"]
    flags = ["-std=c11", "-shared", "-fPIC", "-DNJ_SHA256_PLAIN", "-Iruntime/engine"]
    subprocess.run([*compiler, *flags, "runtime/engine/base/sha256.c", "-o", str(path)], cwd=ROOT, check=True)
    library = ctypes.CDLL(str(path))

    def plain(data: bytes) -> bytes:
        out = ctypes.create_string_buffer(32)
        library.nj_sha256(_Span(data, len(data)), out)
        return out.raw

    return plain


def test_every_length_around_blocks_is_hashed(digest: Callable[[bytes], bytes]) -> None:
    data = random.Random(7).randbytes(400)
    for size in range(len(data)):
        assert digest(data[:size]) == hashlib.sha256(data[:size]).digest()


def test_long_data_is_hashed(digest: Callable[[bytes], bytes]) -> None:
    data = random.Random(8).randbytes((1 << 20) + 5)
    assert digest(data) == hashlib.sha256(data).digest()
