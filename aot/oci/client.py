"""HTTP to one registry: tries, time limits, and errors. Needs the extra ``oci`` (requests).

Source: the OCI distribution specification 1.1.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urljoin, urlsplit

from nojit.aot.oci.address import Address
from nojit.aot.oci.answers import PASSING, Answer, origin_of
from nojit.aot.oci.authorization import Authorization
from nojit.aot.oci.credentials import Credentials
from nojit.aot.oci.documents import DOCUMENT_BYTES_MAX
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.retries import Limits, Retries
from nojit.aot.oci.slow_answers import SlowError, paced_adapter
from nojit.runtime.errors import RegistryError

if TYPE_CHECKING:
    import requests

__all__ = ["Body", "Client"]

_HUB: Final = "registry-1.docker.io"
# what a broken connection loses at most
_CHUNK_BYTES: Final = 1 << 16
_REDIRECTS_MAX: Final = 5
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
        host = _HUB if address.is_hub else address.host
        self._base = f"{'http' if self._plain else 'https'}://{host}/v2/{address.repository}/"
        self._authorization = Authorization(self._base, agent, credentials, self._ask)

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
            RegistryError: with one of `nojit.aot.oci.error_reasons.REASONS`.
        """
        url, where = urljoin(self._base, url), where or str(self.address)
        retries = Retries(self.limits)
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
                retries.failed(error, wait_s)

    def chunks(self, answer: Answer, where: str) -> Generator[bytes]:
        """Yield the content of a streamed answer.

        Raises:
            RegistryError: the connection broke (``unavailable``).
        """
        import requests  # of an extra

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
            ours = origin_of(url) == origin_of(self._base)
            if self._authorization.header and ours:
                said["Authorization"] = self._authorization.header
            answer = self._ask(method, url, said, data=body, stream=stream, redirects=method in {"GET", "HEAD"})
            # after a redirect, a challenge may be that of another host
            ours = ours and origin_of(answer.url) == origin_of(self._base)
            if answer.status != 401 or not ours or not again or not self._authorization.renew(answer, where):
                break
        return answer

    def _ask(
        self, method: str, url: str, headers: Mapping[str, str], *, stream: bool = False, redirects: bool, **rest: Any
    ) -> Answer:
        """Send one request without a second try; see `send`."""
        import requests  # of an extra

        if self._session is None:
            self._session = _new_session(self.limits, plain=self._plain)
        host = self.address.host
        if not self._plain and urlsplit(url).scheme != "https":
            what = f"expected {host} to stay with HTTPS"
            raise refusal("plain-http", what, got=f"the address {origin_of(url)}", where=str(self.address))
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
        what, got = f"expected {self.address.host} to {doing}", self._authorization.shown(answer)
        if answer.status in {401, 403}:
            known = "with the configured credentials" if self._credentials else "without credentials"
            raise refusal("denied", f"{what} {known}", got=got, where=where)
        if answer.status in PASSING:
            raise refusal("unavailable", what, got=got, where=where)
        reason = "not-found" if answer.status == 404 else "digest" if "DIGEST_INVALID" in got else "failed"
        raise refusal(reason, what, got=got, where=where)


def _new_session(limits: Limits, *, plain: bool) -> requests.Session:
    """Return a session that follows redirects with no credentials but its own.

    Args:
        limits: the slowest pace of answers.
        plain: whether HTTP without TLS is allowed.
    """
    from http.cookiejar import DefaultCookiePolicy  # slow to import

    import requests  # of an extra

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


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None


def _broken(error: BaseException) -> str:
    """Return how a connection broke, without the URL, which may hold a signature."""
    import requests  # of an extra

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
