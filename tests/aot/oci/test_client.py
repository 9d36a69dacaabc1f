"""Requests to registries that another host, or HTTP without TLS, must not see."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import Result
from nojit.aot.oci.address import parse_address
from nojit.aot.oci.client import Client, _new_session
from nojit.aot.oci.credentials import Credentials
from nojit.runtime.errors import RegistryError

from tests.aot.oci.conftest import FAST

USER = Credentials("ci", "hunter2")


class Wire:
    """Stands for the network: keeps the requests, and answers each by a function of its URL."""

    def __init__(self, answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> None:
        self.sent: list[tuple[str, dict[str, str]]] = []
        self._answer = answer

    def request(self, _method: str, url: str, *, headers: dict[str, str], **_: Any) -> requests.Response:
        self.sent.append((url, headers))
        response = requests.Response()
        response.status_code, facts, content = self._answer(url)
        response.url, response.raw = facts.pop("redirected to", url), io.BytesIO(content)
        response.headers.update(facts)
        return response


def client(monkeypatch: pytest.MonkeyPatch, wire: Wire) -> Client:
    monkeypatch.setattr("nojit.aot.oci.client._new_session", lambda _, **__: wire)
    return Client(parse_address("oci://registry.example/acme:1"), USER, insecure=False, limits=FAST, agent="test")


def test_a_token_stays_with_its_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(url: str) -> tuple[int, dict[str, str], bytes]:
        if url.startswith("https://tokens.example"):
            return 200, {}, b'{"token": "t0ken"}'
        if url.startswith("https://storage.test") or wire.sent[-1][1].get("Authorization") == "Bearer t0ken":
            return 200, {}, b""
        return 401, {"WWW-Authenticate": "Bearer realm=https://tokens.example/t,service=registry"}, b""

    wire = Wire(answer)
    registry = client(monkeypatch, wire)
    for url in ("manifests/1", "https://registry.example:443/v2/upload", "https://storage.test/upload"):
        registry.send("PUT", url, want={200}, doing="answer")
    said = {url.split("/")[2]: headers.get("Authorization", "") for url, headers in wire.sent}
    assert said == {
        "registry.example": "Bearer t0ken",
        "registry.example:443": "Bearer t0ken",
        "tokens.example": f"Basic {USER.basic}",
        "storage.test": "",
    }


@pytest.mark.parametrize("place", ["upload", "token"])
def test_nothing_goes_on_without_tls(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    challenge = {"WWW-Authenticate": 'Bearer realm="http://tokens.example/t"'}
    wire = Wire(lambda _: (401, challenge, b"") if place == "token" else (200, {}, b""))
    url = "http://registry.example/v2/upload" if place == "upload" else "manifests/1"
    with pytest.raises(RegistryError, match=r"expected registry\.example to stay with HTTPS") as caught:
        client(monkeypatch, wire).send("PUT", url, want={200}, doing="answer")
    assert caught.value.reason == "plain-http"
    assert not any(url.startswith("http:") for url, _ in wire.sent)


def test_the_challenge_of_another_host_gets_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    challenge = {
        "WWW-Authenticate": 'Bearer realm="https://storage.test/token"',
        "redirected to": "https://storage.test/blob",
    }
    wire = Wire(lambda _: (401, dict(challenge), b""))
    with pytest.raises(RegistryError, match="401"):
        client(monkeypatch, wire).send("GET", "blobs/1", want={200}, doing="answer")
    assert [(url, headers.get("Authorization")) for url, headers in wire.sent] == [
        ("https://registry.example/v2/acme/blobs/1", None)
    ]


class Redirecting(requests.adapters.BaseAdapter):
    """Keeps the requests, and redirects those to the registry."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.sent: list[tuple[str, str | None]] = []
        self._place = place

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        self.sent.append((str(request.url), request.headers.get("Authorization")))
        response = requests.Response()
        response.status_code, response.request, response.raw = 200, request, io.BytesIO()
        response.url = str(request.url)
        if "registry.example" in response.url:
            response.status_code, response.headers["Location"] = 307, self._place
        return response

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_redirects_carry_no_credentials(scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc, place = tmp_path / "netrc", f"{scheme}://storage.test/blob"
    netrc.write_text("machine storage.test login me password hunter2\n", encoding="ascii")
    monkeypatch.setenv("NETRC", str(netrc))
    session, adapter = _new_session(FAST, plain=False), Redirecting(place)
    for mounted in ("https://", "http://"):
        session.mount(mounted, adapter)
    monkeypatch.setattr("nojit.aot.oci.client._new_session", lambda _, **__: session)
    registry = Client(parse_address("oci://registry.example/acme:1"), None, insecure=False, limits=FAST, agent="test")
    first = "https://registry.example/v2/acme/blobs/1", None
    if scheme == "https":
        registry.send("GET", "blobs/1", want={200}, doing="answer")
        assert adapter.sent == [first, (place, None)]
    else:
        with pytest.raises(RegistryError, match="to stay with HTTPS") as caught:
            registry.send("GET", "blobs/1", want={200}, doing="answer")
        assert caught.value.reason == "plain-http"
        assert adapter.sent == [first]


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    shown = run("pull", "oci://registry.example/acme:1", code=1).stderr
    assert "expected requests to be installed: pip install 'nojit[oci]'" in shown


def test_secrets_in_answers_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    echoed = b'{"errors": [{"code": "DENIED", "message": "no hunter2, no %b"}]}' % USER.basic.encode()
    wire = Wire(lambda _: (403, {}, echoed))
    with pytest.raises(RegistryError, match=r"DENIED no \*\*\*, no \*\*\*"):
        client(monkeypatch, wire).send("GET", "manifests/1", want={200}, doing="answer")
