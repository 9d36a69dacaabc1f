"""A shared cache that fails never fails a build: the build goes on, says so once, and ends with the right results."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from nojit.aot.cache.store import Folder
from nojit.aot.cache.time_limits import Limits

from tests.aot.cache.conftest import skip_without
from tests.aot.cache.jobs import Machine, jobs

LIMITS = Limits(operation_s=0.5, faults=4, poll_s=0.1, expiry_s=1.0)
ERROR = b"<?xml version='1.0'?><Error><Code>%b</Code><Message>%b</Message></Error>"


class Faulty(ThreadingHTTPServer):
    """A server that answers every request in the same bad way."""

    daemon_threads = True

    def __init__(self, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault = fault
        self.over = threading.Event()
        self.requests = 0

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: Faulty

    def do_GET(self) -> None:
        self.server.requests += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.server.fault:
            case "500s":
                self._answer(500, ERROR % (b"InternalError", b"We encountered an internal error"))
            case "slow down":
                self._answer(503, ERROR % (b"SlowDown", b"Please reduce your request rate"))
            case "denied":
                self._answer(403, ERROR % (b"AccessDenied", b"Access Denied"))
            case "no answer":
                self.server.over.wait()
            case "drops":
                self._answer(200, b"nojit-cache 2\n", length=5000, pause_s=0.2)
            case "truncated":
                self._answer(200, b"nojit-cache 2\n", length=5000)
            case "garbage":
                self._answer(200, bytes(5000))
            case "hangs up":
                self.close_connection = True

    do_PUT = do_DELETE = do_HEAD = do_POST = do_GET  # noqa: N815 - names of the base class

    def _answer(self, status: int, body: bytes, length: int | None = None, pause_s: float = 0.0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        for start in range(len(body)) if pause_s else ():
            self.wfile.write(body[start : start + 1])
            self.wfile.flush()
            self.server.over.wait(pause_s)
        if not pause_s:
            self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def faulty(s3_environment: Callable[[str], None]) -> Iterator[Callable[[str], Faulty]]:
    """Start a faulty server and make this process use it."""
    skip_without("s3")
    with contextlib.ExitStack() as stack:

        def start(fault: str) -> Faulty:
            server = stack.enter_context(Faulty(fault))
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            stack.callback(server.shutdown)
            stack.callback(server.over.set)
            s3_environment(f"http://127.0.0.1:{server.server_port}")
            return server

        yield start


@pytest.fixture
def right(tmp_path: Path) -> list[object]:
    """Images that a build without a shared cache makes."""
    return images(Machine(tmp_path / "alone"), None)


def images(machine: Machine, place: str | None, limits: Limits = LIMITS, **facts: object) -> list[object]:
    events = machine.build(jobs(40), place, limits=limits, **facts)
    return sorted((event.job.key, event.compiled and event.compiled.image) for event in events)


@pytest.mark.parametrize(
    ("fault", "readonly"),
    [
        ("500s", False),
        ("500s", True),
        ("slow down", False),
        ("denied", False),
        ("no answer", False),
        ("no answer", True),
        ("drops", False),
        ("truncated", False),
        ("hangs up", False),
    ],
)
def test_a_place_that_fails_is_told_once_and_done_without(
    tmp_path: Path, faulty: Callable[[str], Faulty], right: list[object], fault: str, readonly: bool
) -> None:
    server = faulty(fault)
    machine = Machine(tmp_path / "machine")
    assert images(machine, "s3://bucket/x", readonly=readonly) == right
    (line,) = machine.told
    assert line.startswith("the shared cache s3://bucket/x cannot be read: ")
    assert line.endswith("; the build goes on")
    assert 1 <= machine.use["faults"] <= LIMITS.faults
    assert machine.use["misses"] == 40
    # s3fs and botocore try some operations six times, but not those of all variants
    assert server.requests < 40 * 6


def test_an_unreachable_place_is_done_without(
    tmp_path: Path, s3_environment: Callable[[str], None], right: list[object]
) -> None:
    skip_without("s3")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    s3_environment(f"http://127.0.0.1:{port}")
    machine = Machine(tmp_path / "machine")
    assert images(machine, "s3://bucket/x") == right
    assert len(machine.told) == 1
    assert machine.use["faults"]


def test_garbage_from_a_server_is_refused_and_no_fault(
    tmp_path: Path, faulty: Callable[[str], Faulty], right: list[object]
) -> None:
    faulty("garbage")
    machine = Machine(tmp_path / "machine")
    assert images(machine, "s3://bucket/x", Limits(), readonly=True) == right
    assert machine.told == []
    assert machine.use == {"misses": 40, "refused": 40}


def test_a_missing_bucket_is_told(tmp_path: Path, new_url: Callable[[str], str], right: list[object]) -> None:
    new_url("s3")
    machine = Machine(tmp_path / "machine")
    assert images(machine, "s3://no-such-bucket/x", Limits()) == right
    (line,) = machine.told
    assert "bucket does not exist" in line


def test_a_slow_place_is_looked_into_for_a_limited_time(tmp_path: Path, right: list[object]) -> None:
    place = tmp_path / "place"
    Machine(tmp_path / "first").build(jobs(40), Folder(place))
    never = threading.Event()

    class Slow(Folder):
        def read(self, name: str, most: int) -> bytes:
            never.wait(0.2)
            return super().read(name, most)

    machine = Machine(tmp_path / "machine")
    limits = Limits(look_s=-4.0 + 0.1, parallel=1)
    events = machine.build(jobs(40), Slow(place), limits=limits, readonly=True)
    assert sorted((event.job.key, event.compiled and event.compiled.image) for event in events) == right
    # the first look takes longer than the limit for all
    assert machine.use == {"shared_hits": 1, "misses": 39}
    (line,) = machine.told
    assert "place is slow: " in line
    assert "1 of 40 variants looked up in 0 s; the build goes on" in line


class Denied(Folder):
    """A place that can only be read."""

    def write(self, name: str, data: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    def create(self, name: str, data: bytes) -> bool:
        raise PermissionError(13, "Permission denied")


def test_a_place_that_refuses_writes_is_read(tmp_path: Path) -> None:
    place = tmp_path / "place"
    Machine(tmp_path / "first").build(jobs(10), Folder(place))
    machine = Machine(tmp_path / "second")
    events = machine.build(jobs(30), Denied(place), limits=LIMITS)
    assert len([event for event in events if event.compiled]) == 30
    assert machine.told == [f"the shared cache {place} cannot be written: Permission denied; the build goes on"]
    assert (machine.use["shared_hits"], machine.use["misses"]) == (10, 20)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), FileNotFoundError("no such bucket")])
def test_a_place_that_breaks_while_builders_wait_for_each_other_stops_nobody(tmp_path: Path, error: OSError) -> None:
    place = Folder(tmp_path / "place")
    broken = threading.Event()

    class Breaking(Folder):
        def list(self, under: str = "") -> Iterator[object]:  # type: ignore[override]
            broken.set()
            raise error

        def read(self, name: str, most: int) -> bytes:
            if broken.is_set():
                raise error
            return super().read(name, most)

    for each in jobs(3):
        place.write(f"claims/{each.key}.0", b"a" * 16)
    place.write(f"builds/{'a' * 16}", b"0")
    machine = Machine(tmp_path / "machine")
    events = machine.build(jobs(3), Breaking(place.path), limits=replace(LIMITS, wait_s=3.0))
    assert [event.error for event in events] == [None] * 3
    assert machine.use["misses"] == 3
    # it does not look again and again until it has waited too long
    assert machine.use["faults"] <= LIMITS.faults


def test_a_holder_that_lives_and_never_finishes_is_waited_for_only_so_long(tmp_path: Path) -> None:
    place = Folder(tmp_path / "place")
    beats = iter(range(10**6))

    class Alive(Folder):
        def read(self, name: str, most: int) -> bytes:
            if name == f"builds/{'a' * 16}":
                return str(next(beats)).encode()
            return super().read(name, most)

    place.write(f"claims/{jobs(1)[0].key}.0", b"a" * 16)
    machine = Machine(tmp_path / "machine")
    events = machine.build(jobs(1), Alive(place.path), limits=Limits(poll_s=0.1, wait_s=0.5))
    assert [event.error for event in events] == [None]
