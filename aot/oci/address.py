"""Addresses of releases in registries: ``oci://registry/repository:tag`` or ``oci://registry/repository@sha256:...``. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

__all__ = ["SCHEME", "TAG", "Address", "parse_address"]

SCHEME: Final = "oci://"
_FORMS: Final = "oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST"
_HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
# "Pulling manifests" in the OCI distribution specification 1.1
_REPOSITORY: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME_MAX: Final = 255
# the names of Docker Hub
_HUB: Final = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a release in a registry."""

    host: str
    """The registry: host, and port if given."""
    repository: str
    tag: str
    """Empty if the address has a digest."""
    digest: str
    """``sha256:...``; empty if the address has a tag."""

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}/{self.repository}" + (f":{self.tag}" if self.tag else f"@{self.digest}")

    @property
    def reference(self) -> str:
        """The tag or the digest."""
        return self.tag or self.digest

    @property
    def is_hub(self) -> bool:
        """Whether the registry is Docker Hub."""
        return self.host in _HUB

    @property
    def is_local(self) -> bool:
        """Whether the registry is on this machine."""
        name = self.host.rpartition(":")[0] if re.search(r":[0-9]+\Z", self.host) else self.host
        if name == "localhost":
            return True
        try:
            return ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return False

    def by_digest(self, digest: str) -> Address:
        """Return the address of another content of the repository, by its digest."""
        return replace(self, tag="", digest=digest)


def parse_address(text: str) -> Address:
    """Return the address that a text spells.

    Raises:
        ValueError: the text has another form. The message does not show a user or password.
    """
    rest = text.removeprefix(SCHEME)
    host, _, path = rest.partition("/")
    if "@" in host:
        raise ValueError(f"expected {_FORMS}, without user and password: log in with docker login")
    path, at, digest = path.partition("@")
    repository, colon, tag = path.partition(":")
    problem = ""
    if rest == text:
        problem = f"one that does not start with {SCHEME}"
    elif not _is_host(host):
        problem = f"a registry {host!r}"
    elif not _REPOSITORY.fullmatch(repository) or len(repository) > _NAME_MAX:
        problem = f"a repository {repository!r}: it has lower-case letters, digits, and single . _ - / between them"
    elif at and colon:
        problem = "both a tag and a digest"
    elif at and not _DIGEST.fullmatch(digest):
        problem = f"a digest {digest!r}"
    elif colon and not TAG.fullmatch(tag):
        problem = f"a tag {tag!r}"
    elif not at and not colon:
        problem = "neither a tag nor a digest"
    if problem:
        raise ValueError(f"expected {_FORMS}, got {problem}")
    return Address(host.lower(), repository, tag, digest)


def _is_host(text: str) -> bool:
    """Return whether a text is a host, with or without a port."""
    try:
        # of the host's IPv6 address and port, the pattern knows only the characters
        return _HOST.fullmatch(text) is not None and urlsplit(f"//{text}").port != 0
    except ValueError:
        return False
