"""A small OCI registry in a thread, which can lack features and fail in scripted ways."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

__all__ = ["FakeRegistry", "Fault", "serve"]

_INDEX: Final = "application/vnd.oci.image.index.v1+json"


@dataclass
class Fault:
    """A failure of the registry.

    Attributes:
        method: method of the requests that fail.
        path: pattern that is searched in their paths.
        kind: a status such as ``500``; ``stall``, ``drip`` (a byte at a time), ``drip content``, ``cut`` (a truncated answer),
            ``tamper`` (a changed byte) or ``hang up``.
        times: how many requests fail.
        headers: further headers of the answer.
    """

    method: str
    path: str
    kind: str
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeRegistry:
    """State and abilities of a registry."""

    referrers: bool = True
    ranges: bool = True
    user: str = ""
    """If set, a client needs a token, for which it needs ``user:password``."""
    basic: bool = False
    """Whether user and password go to the registry itself."""
    may_push: bool = True
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """Each request: method and path."""
    sent: list[str] = field(default_factory=list)
    """The header Authorization of each request that had one."""
    ranged: list[str] = field(default_factory=list)
    """The header Range of each request that had one."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Scope of each token."""
    host: str = ""
    release: threading.Event = field(default_factory=threading.Event)
    """Ends stalls."""
    lock: Any = field(default_factory=threading.RLock)

    def fail(self, method: str, path: str, kind: str, times: int = 1, **headers: str) -> None:
        """Make requests fail; see `Fault`."""
        self.faults.append(
            Fault(method, path, kind, times, {name.replace("_", "-"): headers[name] for name in headers})
        )

    def requests(self, method: str, path: str) -> list[str]:
        """Return the requests of a method whose path has a pattern."""
        return [each for each in self.log if each.startswith(f"{method} ") and re.search(path, each)]

    def put_manifest(self, repository: str, tag: str, media_type: str, raw: bytes) -> str:
        """Store a manifest as a client would; return its digest."""
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        for reference in (tag, digest):
            self.manifests[repository, reference] = media_type, raw
        return digest


class _Drip:
    """Writes a byte each hundredth of a second, until the test or the connection ends."""

    def __init__(self, file: Any, end: threading.Event) -> None:
        self._file = file
        self._end = end

    def write(self, data: bytes) -> None:
        for byte in data:
            self._file.write(bytes([byte]))
            self._file.flush()
            if self._end.wait(0.01):
                raise ConnectionAbortedError

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # an answer is one packet: otherwise each waits for the client's acknowledgement
    wbufsize = -1
    registry: FakeRegistry
    fault: Fault | None = None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class calls it
        pass

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if not any(name.lower() == "content-length" for name in (each.replace("_", "-") for each in headers)):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            drips = self.fault and self.fault.kind == "drip content"
            (_Drip(self.wfile, self.registry.release) if drips else self.wfile).write(content)
        self.wfile.flush()

    def refuse(self, status: int, code: str, **headers: str) -> None:
        said = json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()
        self.answer(status, said, Content_Type="application/json", **headers)

    def handle_one(self) -> None:
        registry = self.registry
        with registry.lock:
            registry.log.append(f"{self.command} {self.path}")
            said = self.headers.get("Authorization", "")
            if said:
                registry.sent.append(said)
            if self.headers.get("Range"):
                registry.ranged.append(self.headers["Range"])
            fault = next(
                (
                    each
                    for each in registry.faults
                    if each.times and each.method == self.command and re.search(each.path, self.path)
                ),
                None,
            )
            if fault:
                fault.times -= 1
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault and fault.kind.isdigit():
            self.refuse(
                int(fault.kind), "FAULT", **{name.replace("-", "_"): value for name, value in fault.headers.items()}
            )
        elif fault and fault.kind == "hang up":
            self.close_connection = True
        elif fault and fault.kind == "stall":
            registry.release.wait(20)
            self.close_connection = True
        else:
            self.fault = fault
            if fault and fault.kind == "drip":
                self.wfile = _Drip(self.wfile, registry.release)  # type: ignore[assignment] # what is used of a file
                self.close_connection = True
            self.route()

    do_GET = do_HEAD = do_PUT = do_POST = handle_one  # noqa: N815 - names of the base class

    def route(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/token":
            self.token(parse_qs(parts.query))
            return
        found = re.fullmatch(r"/v2/(.+?)/(manifests|blobs|referrers)/(.*)", parts.path)
        if not found:
            self.refuse(404, "NAME_UNKNOWN")
            return
        self.repository, kind, self.reference = found[1], found[2], found[3]
        if not self.allowed():
            return
        getattr(self, f"{kind}_{self.command.lower()}")()

    # authentication

    def allowed(self) -> bool:
        registry = self.registry
        action = "push" if self.command in {"PUT", "POST"} else "pull"
        said = self.headers.get("Authorization", "")
        if registry.user:
            if registry.basic:
                if said != f"Basic {base64.b64encode(registry.user.encode()).decode()}":
                    self.refuse(401, "UNAUTHORIZED", WWW_Authenticate='Basic realm="fake"')
                    return False
            else:
                scope = registry.tokens.get(said.removeprefix("Bearer "), "")
                if action not in scope:
                    wanted = f"repository:{self.repository}:{'pull,push' if action == 'push' else 'pull'}"
                    challenge = f'Bearer realm="http://{registry.host}/token",service="fake",scope="{wanted}"'
                    self.refuse(401, "UNAUTHORIZED", WWW_Authenticate=challenge)
                    return False
        if action == "push" and not registry.may_push:
            self.refuse(403, "DENIED")
            return False
        return True

    def token(self, asked: dict[str, list[str]]) -> None:
        form = parse_qs(self.body.decode())
        refresh = form.get("refresh_token", [""])[0]
        said = self.headers.get("Authorization", "")
        right = f"Basic {base64.b64encode(self.registry.user.encode()).decode()}"
        if said != right and refresh != self.registry.user:
            self.refuse(401, "UNAUTHORIZED")
            return
        token = secrets.token_hex(8)
        self.registry.tokens[token] = (asked.get("scope") or form["scope"])[0]
        self.answer(200, json.dumps({"token": token}).encode(), Content_Type="application/json")

    # manifests

    def manifests_get(self) -> None:
        found = self.registry.manifests.get((self.repository, self.reference))
        if found is None:
            self.refuse(404, "MANIFEST_UNKNOWN")
            return
        media_type, raw = found
        if self.fault and self.fault.kind == "tamper":
            raw = raw.replace(b"nojit", b"noJit", 1)
        digest = f"sha256:{hashlib.sha256(found[1]).hexdigest()}"
        self.answer(200, raw, Content_Type=media_type, Docker_Content_Digest=digest)

    manifests_head = manifests_get

    def manifests_put(self) -> None:
        said = json.loads(self.body)
        listed = [said.get("config"), *said.get("layers", [])]
        if any(each["digest"] not in self.registry.blobs for each in listed if each):
            self.refuse(400, "MANIFEST_BLOB_UNKNOWN")
            return
        digest = self.registry.put_manifest(self.repository, self.reference, self.headers["Content-Type"], self.body)
        more = {"OCI_Subject": said["subject"]["digest"]} if self.registry.referrers and "subject" in said else {}
        self.answer(201, Docker_Content_Digest=digest, **more)

    def referrers_get(self) -> None:
        if not self.registry.referrers:
            self.answer(404, b"404 page not found\n", Content_Type="text/plain")
            return
        found = {}
        for (repository, _), (media_type, raw) in list(self.registry.manifests.items()):
            said = json.loads(raw)
            if repository == self.repository and said.get("subject", {}).get("digest") == self.reference:
                digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
                found[digest] = {
                    "mediaType": media_type,
                    "digest": digest,
                    "size": len(raw),
                    "artifactType": said["artifactType"],
                }
        # two pages if there are several
        first, *rest = [*found.values()] or [None]
        page = parse_qs(urlsplit(self.path).query).get("page")
        shown = rest if page else [first] if first else []
        more = {"Link": f'<{self.path}?page=2>; rel="next"'} if rest and not page else {}
        said = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": shown}
        self.answer(200, json.dumps(said).encode(), Content_Type=_INDEX, **more)

    # blobs

    def blobs_head(self) -> None:
        found = self.registry.blobs.get(self.reference)
        if found is None:
            self.refuse(404, "BLOB_UNKNOWN")
        else:
            self.answer(200, found)

    def blobs_get(self) -> None:
        raw = self.registry.blobs.get(self.reference)
        if raw is None:
            self.refuse(404, "BLOB_UNKNOWN")
            return
        if self.fault and self.fault.kind == "tamper":
            raw = raw[:-1] + bytes([raw[-1] ^ 1])
        start, status, more = 0, 200, {}
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and self.registry.ranges:
            start, status = int(asked[1]), 206
            more = {"Content_Range": f"bytes {start}-{len(raw) - 1}/{len(raw)}"}
        part = raw[start:]
        if self.fault and self.fault.kind == "cut":
            self.close_connection = True
            self.answer(status, part[: len(part) // 2], Content_Length=str(len(part)), **more)
        else:
            self.answer(status, part, Content_Type="application/octet-stream", **more)

    def blobs_post(self) -> None:
        self.answer(202, Location=f"/v2/{self.repository}/blobs/uploads/{secrets.token_hex(4)}?state=x")

    def blobs_put(self) -> None:
        digest = parse_qs(urlsplit(self.path).query)["digest"][0]
        if f"sha256:{hashlib.sha256(self.body).hexdigest()}" != digest:
            self.refuse(400, "DIGEST_INVALID")
            return
        self.registry.blobs[digest] = self.body
        self.answer(201, Docker_Content_Digest=digest)


@contextmanager
def serve(**abilities: Any) -> Iterator[FakeRegistry]:
    """Run a registry on a free port until the block ends."""
    registry = FakeRegistry(**abilities)
    handler: Callable[..., BaseHTTPRequestHandler] = type("Handler", (_Handler,), {"registry": registry})

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            # a client that hangs up is part of the tests
            pass

    server = Server(("127.0.0.1", 0), handler)  # type: ignore[arg-type] # a class, made by `type`
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.release.set()
        with suppress(OSError):
            server.shutdown()
        server.server_close()
        thread.join()
