"""Shared places for tests: in memory, a folder, and a server of S3's API in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest
from nojit.aot.cache.store import Store
from nojit.aot.cache.store_urls import check_url, open_store

NEEDED = {"memory": ("fsspec",), "file": (), "s3": ("s3fs", "moto", "flask", "flask_cors")}
_NUMBERS = count()


def skip_without(scheme: str) -> None:
    for name in NEEDED[scheme]:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install 'nojit[test]'")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of a server of S3's API."""
    skip_without("s3")
    script = "import os, sys; from moto.moto_server.threaded_moto_server import ThreadedMotoServer as S; s = S('127.0.0.1', 0, verbose=False)"
    script += "; s.start(); print(s.get_host_and_port()[1], flush=True); sys.stdin.read(); os._exit(0)"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        yield f"http://127.0.0.1:{port}"
        server.stdin.close()


@pytest.fixture
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make this process and its children use the S3 server at a URL."""

    def use(endpoint: str) -> None:
        for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    return use


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Return the URL of an empty place, by its scheme."""

    def make(scheme: str) -> str:
        skip_without(scheme)
        if scheme == "file":
            return f"file://{tmp_path}/place{next(_NUMBERS)}"
        if scheme == "memory":
            return f"memory://place{next(_NUMBERS)}"
        server = request.getfixturevalue("s3_server")
        request.getfixturevalue("s3_environment")(server)
        bucket = f"bucket{os.getpid()}-{next(_NUMBERS)}"
        with urlopen(_put(f"{server}/{bucket}")):
            return f"s3://{bucket}/prefix"

    return make


def _put(url: str) -> object:
    from urllib.request import Request

    return Request(url, method="PUT")


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> Store:
    """An empty place."""
    return open_store(check_url(new_url(request.param)), 20.0)
