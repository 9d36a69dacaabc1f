"""Credentials of registries, where docker, podman, skopeo and oras keep them. They are never part of a message.

The first of these that has credentials for a repository counts:

1. the variables ``ORAS_USER`` and ``ORAS_PASS``;
2. the file in ``REGISTRY_AUTH_FILE``;
3. ``config.json`` in ``DOCKER_CONFIG``, otherwise in ``~/.docker``;
4. ``containers/auth.json`` in ``XDG_RUNTIME_DIR``.

A file holds them itself (``auths``) or names a program that does (``credHelpers``, ``credsStore``).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nojit.aot.oci.address import Address
from nojit.aot.oci.error_reasons import refusal
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import RegistryError

__all__ = ["Credentials", "find_credentials"]

_HELPER: Final = re.compile(r"[A-Za-z0-9_-]+")
_HELPER_S: Final = 30.0
_HUB_KEY: Final = "https://index.docker.io/v1/"
# the user name that helpers give with an identity token
_HOLDER: Final = "<token>"


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password, or a token, for a registry."""

    user: str
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)
    """A token to get access tokens with, instead of user and password; may be empty."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no message may contain."""
        return tuple(text for text in (self.password, self.identity_token, self.basic) if text)

    @property
    def basic(self) -> str:
        """User and password for HTTP's basic authentication."""
        return base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def find_credentials(address: Address, environment: Mapping[str, str]) -> Credentials | None:
    """Return the credentials for a repository; None if there are none.

    Args:
        address: an address in the repository.
        environment: environment variables.

    Raises:
        RegistryError: a file or a helper cannot be used.
    """
    user, password = environment.get("ORAS_USER", ""), environment.get("ORAS_PASS", "")
    if user and password:
        return Credentials(user, password)
    for path in _files(environment):
        found = _of_file(path, address, environment)
        if found is not None:
            return found
    return None


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("REGISTRY_AUTH_FILE"):
        yield Path(environment["REGISTRY_AUTH_FILE"])
    home = environment.get("HOME", "")
    docker = environment.get("DOCKER_CONFIG") or (f"{home}/.docker" if home else "")
    if docker:
        yield Path(docker) / "config.json"
    if environment.get("XDG_RUNTIME_DIR"):
        yield Path(environment["XDG_RUNTIME_DIR"]) / "containers/auth.json"


def _of_file(path: Path, address: Address, environment: Mapping[str, str]) -> Credentials | None:
    try:
        said = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unusable(worded(error), path) from None
    except (ValueError, RecursionError):
        # the parser's message would quote the file
        raise _unusable("no JSON", path) from None
    keys = list(_keys(address))
    helpers, auths = _table(said, "credHelpers"), _table(said, "auths")
    helper = next((helpers[key] for key in keys if key in helpers), None)
    if helper is not None:
        return _of_helper(helper, address, environment, path)
    entry = next((auths[key] for key in keys if key in auths), None)
    # docker leaves an empty entry for a host whose credentials are in the store
    if isinstance(entry, dict) and (entry.get("auth") or entry.get("identitytoken")):
        return _of_entry(entry, path)
    store = said.get("credsStore") if isinstance(said, dict) else None
    return None if not store else _of_helper(store, address, environment, path)


def _table(said: object, name: str) -> dict[str, Any]:
    found = said.get(name) if isinstance(said, dict) else None
    return found if isinstance(found, dict) else {}


def _keys(address: Address) -> Iterator[str]:
    """Yield the keys under which files list a registry, the most specific first."""
    if address.is_hub:
        yield from (_HUB_KEY, "index.docker.io", "docker.io", "https://index.docker.io/v1", "registry-1.docker.io")
    parts = address.repository.split("/")
    for count in range(len(parts), -1, -1):
        yield "/".join([address.host, *parts[:count]])
    for scheme in ("https", "http"):
        yield from (f"{scheme}://{address.host}{tail}" for tail in ("", "/", "/v1/", "/v2/"))


def _of_entry(entry: Mapping[str, Any], path: Path) -> Credentials:
    token = entry.get("identitytoken") or ""
    try:
        text = base64.b64decode(entry.get("auth") or "", validate=True).decode()
    except (ValueError, binascii.Error, TypeError):
        raise _unusable("an entry `auth` that is no base64", path) from None
    user, colon, password = text.partition(":")
    if not token and not colon:
        raise _unusable("an entry `auth` without user and password", path)
    # old versions of docker pad the password with NUL
    return Credentials(user, password.rstrip("\0"), str(token))


def _of_helper(name: object, address: Address, environment: Mapping[str, str], path: Path) -> Credentials | None:
    """Return the credentials that a program has for a registry; None if it has none."""
    if not isinstance(name, str) or not _HELPER.fullmatch(name):
        raise _unusable("a helper whose name has other characters than letters, digits, _ and -", path)
    program = f"docker-credential-{name}"
    server = _HUB_KEY if address.is_hub else address.host
    try:
        done = subprocess.run(
            [program, "get"],
            input=server.encode(),
            capture_output=True,
            check=False,
            timeout=_HELPER_S,
            env=dict(environment),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        got = "no answer" if isinstance(error, subprocess.TimeoutExpired) else worded(error)
        raise refusal(
            "credentials", f"expected to run {program}, which the file names", got=got, where=str(path)
        ) from None
    if done.returncode:
        if b"not found" in done.stdout.lower():
            return None
        # its output may contain secrets
        what = f"expected credentials for {server} from {program}"
        raise refusal("credentials", what, got=f"exit code {done.returncode}", where=str(path))
    try:
        said = json.loads(done.stdout)
        user, secret = str(said["Username"]), str(said["Secret"])
    except (ValueError, LookupError, TypeError):
        what = f"expected JSON with Username and Secret from {program}"
        raise refusal("credentials", what, got="something else", where=str(path)) from None
    return Credentials("", "", secret) if user == _HOLDER else Credentials(user, secret)


def _unusable(got: str, path: Path) -> RegistryError:
    return refusal("credentials", "expected a file of credentials as docker login writes it", got=got, where=str(path))
