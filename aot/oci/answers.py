"""Answers of registries: status, headers, content, and the errors in it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import requests

__all__ = ["PASSING", "Answer", "origin_of"]

PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""


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

    def told(self) -> str:
        """Return the status, and the errors that the content lists, as text."""
        # errors of OCI registries; others write pages
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            errors = json.loads(self.content)["errors"]
            text = ", ".join(
                " ".join(str(each[key]) for key in ("code", "message") if each.get(key)) for each in errors
            )
            return f"{self.words}: {text}" if text else self.words
        return self.words


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL; without the port if it is the scheme's own."""
    parts = urlsplit(url)
    usual = {"https": ":443", "http": ":80"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.removesuffix(usual) if usual else parts.netloc}"
