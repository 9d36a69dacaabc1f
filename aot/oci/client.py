"""HTTP to one registry: authentication, tries, time limits, and errors. Needs the extra ``oci`` (requests).

Sources: the OCI distribution specification 1.1, and "Token Authentication" of the CNCF's Distribution.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urljoin, urlsplit

from nojit.aot.oci.address import Address
from nojit.aot.oci.credentials import Credentials
from nojit.aot.oci.documents import DOCUMENT_BYTES_MAX
from nojit.aot.oci.pace import SlowError, paced_adapter
from nojit.aot.oci.reasons import refusal
from nojit.aot.oci.tries import Limits, Tries
from nojit.runtime.errors import RegistryError

if TYPE_CHECKING:
    import requests

__all__ = ["Answer", "Body", "Client"]

_HUB: Final = "registry-1.docker.io"
# statuses after which the same request may succeed
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
# what a broken connection loses at most
_CHUNK_BYTES: Final = 1 << 16
_REDIRECTS_MAX: Final = 5
_SHOWN: Final = 300
_CHALLENGE: Final = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s",]+))')
# words of OpenSSL about an answer that is no TLS
_NO_TLS: Final = ("wrong_version_number", "wrong version number", "record layer failure", "http request")


@dataclass(frozen=True, slots=True)
class Body:
    """The content of a request, of known length."""

    size_bytes: int
    chunks: Callable[[], Iterator[bytes]]
    """Returns the content from its start; called once for each try."""

    def __len__(self) -> int:
        return self.size_bytes

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks()


@dataclass(frozen=True, slots=True)
class Answer:
    """A registry's answer."""

    status: int
    words: str
    """The status as text: ``404 Not Found``."""
    headers: Mapping[str, str]
    """By name; the case of names does not count."""
    url: str
    content: bytes
    """The content, at most a little more than a document may have; empty if it is streamed."""
    stream: requests.Response | None = None
    """The open connection of a streamed content."""


class Client:
    """Sends requests to one registry.

    Args:
        address: an address in the repository.
        credentials: the user's credentials; None for none.
        insecure: whether to use HTTP without TLS. A registry on this machine needs no such permission.
        limits: time limits and tries.
        agent: name and version of this program.
    """

    def __init__(
        self, address: Address, credentials: Credentials | None, *, insecure: bool, limits: Limits, agent: str
    ) -> None:
        self.address = address
        self.limits = limits
        self._credentials = credentials
        self._plain = insecure or address.is_local
        self._agent = agent
        self._session: requests.Session | None = None
        self._authorization = ""
        self._secrets = list(credentials.secrets) if credentials else []
        host = _HUB if address.is_hub else address.host
        self._base = f"{'http' if self._plain else 'https'}://{host}/v2/{address.repository}/"

    def send(
        self,
        method: str,
        url: str,
        *,
        want: Collection[int],
        doing: str,
        where: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | Body | None = None,
        stream: bool = False,
        once: bool = False,
    ) -> Answer:
        """Send a request, again if it fails for a reason that may pass; return the answer.

        Args:
            method: method of HTTP.
            url: URL, absolute or relative to the repository's.
            want: the statuses to return; others are errors.
            doing: what the registry is to do, for messages: ``accept a bundle``.
            where: address for messages; empty for that of the repository.
            headers: further headers.
            body: content to send.
            stream: whether the caller reads the content of the answer.
            once: whether the caller repeats failed requests itself.

        Raises:
            RegistryError: with one of `nojit.aot.oci.reasons.REASONS`.
        """
        url, where = urljoin(self._base, url), where or str(self.address)
        tries = Tries(self.limits)
        while True:
            wait_s = None
            try:
                answer = self._authorized(method, url, headers or {}, body, stream=stream, where=where)
                if answer.status in want:
                    return answer
                wait_s = _seconds(answer.headers.get("Retry-After", ""))
                self._refuse(answer, doing, where)
            except RegistryError as error:
                if once:
                    raise
                tries.failed(error, wait_s)

    def chunks(self, answer: Answer, where: str) -> Generator[bytes]:
        """Yield the content of a streamed answer.

        Raises:
            RegistryError: the connection broke (``unavailable``).
        """
        import requests  # noqa: PLC0415 - of an extra

        if answer.stream is None:
            yield answer.content
            return
        try:
            with contextlib.closing(answer.stream):
                yield from answer.stream.iter_content(_CHUNK_BYTES)
        except (requests.RequestException, OSError) as error:
            what = f"expected {self.address.host} to send a whole content"
            raise refusal("unavailable", what, got=_broken(error), where=where) from None

    def _authorized(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | Body | None, *, stream: bool, where: str
    ) -> Answer:
        """Send a request; if the registry asks for it, get a token and send the request again."""
        answer = Answer(401, "", {}, url, b"")
        # a token may be missing, have expired, or be for pulls only
        for again in (True, False):
            said = {"User-Agent": self._agent, "Accept-Encoding": "identity", **headers}
            # registries send uploads and downloads to other hosts, which must not see the token
            ours = _origin(url) == _origin(self._base)
            if self._authorization and ours:
                said["Authorization"] = self._authorization
            answer = self._ask(method, url, said, data=body, stream=stream, redirects=method in {"GET", "HEAD"})
            # after a redirect, a challenge may be that of another host
            ours = ours and _origin(answer.url) == _origin(self._base)
            if answer.status != 401 or not ours or not again or not self._authorize(answer, where):
                break
        return answer

    def _ask(
        self, method: str, url: str, headers: Mapping[str, str], *, stream: bool = False, redirects: bool, **rest: Any
    ) -> Answer:
        """Send one request without a second try; see `send`."""
        import requests  # noqa: PLC0415 - of an extra

        if self._session is None:
            self._session = _new_session(self.limits, plain=self._plain)
        host = self.address.host
        if not self._plain and urlsplit(url).scheme != "https":
            what = f"expected {host} to stay with HTTPS"
            raise refusal("plain-http", what, got=f"the address {_origin(url)}", where=str(self.address))
        try:
            response = self._session.request(
                method,
                url,
                headers=dict(headers),
                stream=True,
                timeout=(self.limits.connect_s, self.limits.read_s),
                allow_redirects=redirects,
                # a proxy cannot reach this machine's own address
                proxies={"no_proxy": "localhost,127.0.0.1,::1"} if self.address.is_local else None,
                # otherwise requests would take credentials from ~/.netrc
                auth=_unchanged,
                **rest,
            )
            streams = stream and response.status_code in {200, 206}
            content = b"" if streams else _read(response, DOCUMENT_BYTES_MAX)
        except requests.exceptions.SSLError as error:
            self._refuse_tls(error)
        except requests.exceptions.InvalidSchema:
            reason, scheme = ("failed", "HTTP or HTTPS") if self._plain else ("plain-http", "HTTPS")
            what = f"expected {host} to stay with {scheme}"
            raise refusal(reason, what, got="a redirect to another scheme", where=str(self.address)) from None
        except requests.exceptions.TooManyRedirects:
            what = f"expected at most {_REDIRECTS_MAX} redirects from {host}"
            raise refusal("failed", what, got="more", where=str(self.address)) from None
        except (requests.RequestException, OSError) as error:
            what = f"expected to reach {host}"
            raise refusal("unavailable", what, got=_broken(error), where=str(self.address)) from None
        words = f"{response.status_code} {response.reason or ''}".strip()
        kept = response if streams else None
        return Answer(response.status_code, words, response.headers, response.url, content, kept)

    def _refuse_tls(self, error: Exception) -> NoReturn:
        host, words, where = self.address.host, str(error), str(self.address)
        if any(text in words.lower() for text in _NO_TLS):
            raise refusal(
                "plain-http", f"expected {host} to speak HTTPS", got="an answer without TLS", where=where
            ) from None
        found = re.search(r"certificate verify failed: ([\w '.,:-]+)", words)
        raise refusal(
            "tls",
            f"expected a TLS connection to {host}, with a certificate that this machine trusts",
            got=found[1].strip() if found else "a failed handshake",
            where=where,
        ) from None

    def _refuse(self, answer: Answer, doing: str, where: str) -> NoReturn:
        """Raise the error for an answer with an unwanted status."""
        what, got = f"expected {self.address.host} to {doing}", self._told(answer)
        if answer.status in {401, 403}:
            known = "with the configured credentials" if self._credentials else "without credentials"
            raise refusal("denied", f"{what} {known}", got=got, where=where)
        if answer.status in _PASSING:
            raise refusal("unavailable", what, got=got, where=where)
        reason = "not-found" if answer.status == 404 else "digest" if "DIGEST_INVALID" in got else "failed"
        raise refusal(reason, what, got=got, where=where)

    def _told(self, answer: Answer) -> str:
        """Return what an answer says about an error, without secrets."""
        text = ""
        # errors of OCI registries; others write pages
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            errors = json.loads(answer.content)["errors"]
            text = ", ".join(
                " ".join(str(each[key]) for key in ("code", "message") if each.get(key)) for each in errors
            )
        text = f"{answer.words}: {text}" if text else answer.words
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:_SHOWN]

    def _authorize(self, answer: Answer, where: str) -> bool:
        """Answer a registry's challenge with a new token, or with user and password; return whether that was possible."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        scheme = challenge.partition(" ")[0].lower()
        facts = {name: quoted or bare for name, quoted, bare in _CHALLENGE.findall(challenge)}
        if scheme == "basic" and self._credentials and self._credentials.user:
            self._authorization = f"Basic {self._credentials.basic}"
        elif scheme == "bearer" and facts.get("realm"):
            self._authorization = f"Bearer {self._token(facts, where)}"
        else:
            return False
        return True

    def _token(self, facts: Mapping[str, str], where: str) -> str:
        realm = urljoin(self._base, facts["realm"])
        asked = {name: facts[name] for name in ("service", "scope") if facts.get(name)}
        known, agent = self._credentials, {"User-Agent": self._agent}
        if known and known.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": known.identity_token, "client_id": "nojit", **asked}
            answer = self._ask("POST", realm, agent, redirects=False, data=form)
        else:
            said = {"Authorization": f"Basic {known.basic}"} if known else {}
            answer = self._ask("GET", realm, agent | said, redirects=False, params=asked)
        what = f"expected a token from {_origin(realm)}"
        if answer.status in _PASSING:
            raise refusal("unavailable", what, got=self._told(answer), where=where)
        token = None
        if answer.status == 200:
            with contextlib.suppress(ValueError, AttributeError, RecursionError):
                body = json.loads(answer.content)
                token = body.get("token") or body.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise refusal("denied", what, got=self._told(answer), where=where)
        self._secrets.append(token)
        return token


def _new_session(limits: Limits, *, plain: bool) -> requests.Session:
    """Return a session that follows redirects with no credentials but its own.

    Args:
        limits: the slowest pace of answers.
        plain: whether HTTP without TLS is allowed.
    """
    from http.cookiejar import DefaultCookiePolicy  # noqa: PLC0415 - slow to import

    import requests  # noqa: PLC0415 - of an extra

    class Session(requests.Session):
        def rebuild_auth(self, prepared_request: Any, response: Any) -> None:
            # unlike its base, it takes none from ~/.netrc
            if self.should_strip_auth(response.request.url, prepared_request.url):
                prepared_request.headers.pop("Authorization", None)
            if not plain and urlsplit(prepared_request.url).scheme != "https":
                raise requests.exceptions.InvalidSchema("expected HTTPS")

    session = Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, paced_adapter(limits))
    session.max_redirects = _REDIRECTS_MAX
    # some registries take a client with cookies for a browser
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def _unchanged(request: Any) -> Any:
    return request


def _read(response: requests.Response, most: int) -> bytes:
    """Read an answer's content, at most one chunk more than `most` bytes."""
    content = b""
    with contextlib.closing(response):
        for chunk in response.iter_content(1 << 16):
            content += chunk
            if len(content) > most:
                break
    return content


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL; without the port if it is the scheme's own."""
    parts = urlsplit(url)
    usual = {"https": ":443", "http": ":80"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.removesuffix(usual) if usual else parts.netloc}"


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None


def _broken(error: BaseException) -> str:
    """Return how a connection broke, without the URL, which may hold a signature."""
    import requests  # noqa: PLC0415 - of an extra

    seen: list[BaseException] = [error]
    # the list grows while it is read
    for each in seen:
        inner = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args)
        seen += [one for one in inner if isinstance(one, BaseException) and one not in seen]
        if isinstance(each, SlowError):
            return f"an answer that trickles, {each}"
    if isinstance(error, requests.Timeout) or "timed out" in str(error).lower():
        return "no answer in time"
    for each in seen:
        if isinstance(each, socket.gaierror):
            return "no host of this name"
        if isinstance(each, OSError) and each.strerror and not isinstance(each, requests.RequestException):
            return each.strerror[:1].lower() + each.strerror[1:]
        if type(each).__name__ in {"IncompleteRead", "RemoteDisconnected", "InvalidChunkLength"}:
            return "a connection that ended early"
    return type(error).__name__
