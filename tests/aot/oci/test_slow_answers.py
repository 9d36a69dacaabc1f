"""Sessions that measure how fast registries answer."""

from __future__ import annotations

from typing import Any

import pytest

requests = pytest.importorskip("requests")

from nojit.aot.oci.retries import Limits  # noqa: E402
from nojit.aot.oci.slow_answers import paced_adapter  # noqa: E402
from urllib3 import PoolManager  # noqa: E402


def test_proxies_are_paced_but_socks_keeps_pools_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Socks(PoolManager):
        """Stands for the manager of the package that SOCKS needs."""

        def __init__(self, _url: str, **more: Any) -> None:
            more.pop("username", None), more.pop("password", None)
            super().__init__(**more)

    monkeypatch.setattr("requests.adapters.SOCKSProxyManager", Socks)
    adapter = paced_adapter(Limits())
    own = adapter.poolmanager.pool_classes_by_scheme
    assert own != PoolManager().pool_classes_by_scheme
    paced = adapter.proxy_manager_for("http://proxy.example:3128").pool_classes_by_scheme
    assert [paced[scheme].ConnectionCls.response_class for scheme in ("http", "https")] == [
        own[scheme].ConnectionCls.response_class for scheme in ("http", "https")
    ]
    socks = adapter.proxy_manager_for("socks5://proxy.example:1080")
    assert socks.pool_classes_by_scheme == PoolManager().pool_classes_by_scheme
