"""Reasons why a registry or a layout folder cannot be used. `RegistryError.reason` is one of them."""

from __future__ import annotations

from typing import Final

from nojit.runtime.errors import RegistryError

__all__ = ["ADVICE", "REASONS", "refusal"]

REASONS: Final = {
    "arch": "the release has no bundle for the arch, or for the devices of this machine",
    "credentials": "a file of credentials or a credential helper cannot be used",
    "denied": "the registry wants credentials (401), or these may not do this (403)",
    "digest": "the content differs from its digest, or a bundle from its description in the release",
    "disk": "the disk is full, or a file cannot be written",
    "failed": "the registry answered with another error, or with something that the OCI specification does not allow",
    "layout": "the folder is no OCI layout, or holds no release or several",
    "not-found": "there is no such tag, digest or repository",
    "not-ours": "the tag or digest is that of something else, such as a container image",
    "plain-http": "the registry speaks HTTP without TLS, which needs `--insecure`",
    "tls": "no TLS connection, for example because this machine does not trust the registry's certificate",
    "unavailable": "the registry did not answer in time, sent too slowly, could not be reached, broke the connection, or answered 429 or 5xx, at each try",
}

ADVICE: Final = {
    "credentials": "log in again, for example with docker login",
    "denied": "log in with docker login, skopeo login or oras login, or ask for access to the repository",
    "digest": "push the release again, and report the registry if the error stays",
    "disk": "free space and run the command again: it continues where it stopped",
    "not-found": "compare it with the address that nojit push printed",
    "plain-http": "if nobody can listen on this network, add --insecure",
    "tls": "name the file of its certificate authority in REQUESTS_CA_BUNDLE",
    "unavailable": "check the address and the network, and run the command again: it continues where it stopped",
}


def refusal(reason: str, what: str, *, got: str = "", where: str = "", advice: str | None = None) -> RegistryError:
    """Return the error for a reason.

    Args:
        reason: one of `REASONS`.
        what: what was expected.
        got: what was found instead.
        where: the address, folder or file.
        advice: what to do next; None for the reason's own.
    """
    error = RegistryError(what, got=got, where=where, reason=reason)
    return error.advise(ADVICE.get(reason, "") if advice is None else advice)
