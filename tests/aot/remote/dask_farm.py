"""A Dask scheduler and workers in processes of their own, started in an empty folder, and builds that use them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["Build", "Cable", "Farm", "free_port"]

BUILD = """
import signal, sys
from functools import partial
from nojit.aot.cli import main
from nojit.aot.remote import build_facts
signal.signal(signal.SIGINT, signal.default_int_handler)
# where the command takes them from; a test says that they arrive
build_facts.Limits = partial(build_facts.Limits, **eval(sys.argv.pop(1)))
main()
"""


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Farm:
    """A scheduler; `start` starts workers."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.port = free_port()
        self.url = f"dask://127.0.0.1:{self.port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | environment
        self.scheduler = self._run("scheduler", "--host", "127.0.0.1", "--port", str(self.port))

    def start(self, count: int = 1, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start workers of one thread each; return the last one."""
        self._environment |= environment
        for _ in range(count):
            place = self.folder / f"worker-{len(self.workers)}"
            place.mkdir()
            more = ("--nthreads", "1", "--local-directory", str(place), *(words or ("--no-nanny",)))
            self.workers.append(self._run("worker", f"127.0.0.1:{self.port}", *more))
        return self.workers[-1]

    def restart_scheduler(self) -> None:
        self.scheduler = self._run("scheduler", "--host", "127.0.0.1", "--port", str(self.port))

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _run(self, kind: str, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{kind}-{len(self.workers)}.log").open("ab")
        command = [sys.executable, "-W", "ignore", "-m", "dask", kind, *words, "--no-dashboard"]
        with log:
            return subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=log, stderr=log)


class Build:
    """A build in a process of its own, whose progress a test can follow."""

    def __init__(self, command: list[str], **limits: float) -> None:
        code = ["-c", BUILD, repr({"look_s": 0.2, **limits})]
        words = [command[0], "-W", "ignore", *code, *command[3:], "--json"]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.told: list[str] = []

    def wait_for(self, part: str) -> None:
        """Read lines of the standard error until one has a part."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(line.rstrip())
            if part in line:
                return
        raise AssertionError(f"expected {part!r}, got {self.told}")

    def end(self) -> tuple[int, dict[str, Any]]:
        """Wait for the end; return the exit code and the document."""
        try:
            out, told = self.process.communicate(timeout=100)
        finally:
            self.process.kill()
            self.process.communicate()
        self.told += told.splitlines()
        return self.process.returncode, json.loads(out) if out else {}


class Cable:
    """A port that leads to a scheduler until it is cut."""

    def __init__(self, port: int) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"dask://127.0.0.1:{self.server.getsockname()[1]}"
        self._port = port
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._serve)

    def cut(self) -> None:
        """End all connections; new ones are possible."""
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            # closing alone would not wake the thread that accepts
            self.server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for each in (self.server, *self._ends):
            each.close()

    def _start(self, target: Any, *args: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.server.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [near, far]
                for ends in ((near, far), (far, near)):
                    self._start(self._carry, *ends)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def opened(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()
