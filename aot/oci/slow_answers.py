"""Connections that give up an answer which trickles: a byte each second would never exceed the time limit of a read."""

from __future__ import annotations

import io
import time
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from nojit.aot.oci.retries import Limits

if TYPE_CHECKING:
    from requests.adapters import HTTPAdapter

__all__ = ["SlowError", "paced_adapter"]


class SlowError(TimeoutError):
    """Error: an answer came too slowly. The message says how much of it came, and in which time."""


class _PacedReader(io.RawIOBase):
    """The bytes of one answer; reading them raises `SlowError` if they come too slowly.

    Args:
        raw: the bytes of the connection.
        limits: the time without which the pace is not judged, and the slowest pace.
    """

    def __init__(self, raw: io.RawIOBase, limits: Limits) -> None:
        super().__init__()
        self._raw = raw
        self._limits = limits
        self._begun = False
        self._waited_s = 0.0
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        started = time.monotonic()
        count = self._raw.readinto(buffer)
        # a registry may think before it answers; the time limit of a read ends that
        if self._begun:
            self._count += count or 0
            self._waited_s += time.monotonic() - started
        self._begun = True
        if count and self._waited_s >= self._limits.read_s:
            if self._count < self._limits.bytes_s_min * self._waited_s:
                raise SlowError(f"{self._count} bytes in {self._waited_s:.3g} s")
            self._waited_s, self._count = 0.0, 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def paced_adapter(limits: Limits) -> HTTPAdapter:
    """Return an adapter for a session of requests whose answers raise `SlowError`, headers included, if they trickle.

    `limits`: the slowest pace, and the time over which it is measured.
    """
    from requests.adapters import HTTPAdapter  # of an extra
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.poolmanager import ProxyManager

    class Response(HTTPResponse):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.fp = io.BufferedReader(_PacedReader(self.fp.detach(), limits))

    class Plain(HTTPConnection):
        response_class = Response

    class Secure(HTTPSConnection):
        response_class = Response

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **more: Any) -> None:
            super().init_poolmanager(*args, **more)
            self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}

        def proxy_manager_for(self, *args: Any, **more: Any) -> Any:
            manager = super().proxy_manager_for(*args, **more)
            # that of a SOCKS proxy has pools of its own, which know how to reach it
            if isinstance(manager, ProxyManager):
                manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
            return manager

    return Adapter()
