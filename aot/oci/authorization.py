"""Authorization at one registry: the answer to its challenge, and texts that no message may contain.

Source: "Token Authentication" of the CNCF's Distribution.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urljoin

from nojit.aot.oci.answers import PASSING, Answer, origin_of
from nojit.aot.oci.credentials import Credentials
from nojit.aot.oci.error_reasons import refusal

__all__ = ["Authorization"]

_CHALLENGE: Final = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s",]+))')
_SHOWN: Final = 300


class Authorization:
    """The authorization of requests to one registry.

    Attributes:
        header: value of the header ``Authorization``; empty until the registry has asked for it.

    Args:
        base: URL of the repository.
        agent: name and version of this program.
        credentials: the user's credentials; None for none.
        ask: sends one request: method, URL, headers, and keywords of requests.
    """

    def __init__(self, base: str, agent: str, credentials: Credentials | None, ask: Callable[..., Answer]) -> None:
        self.header = ""
        self._base = base
        self._agent = agent
        self._credentials = credentials
        self._ask = ask
        self._secrets = list(credentials.secrets) if credentials else []

    def shown(self, answer: Answer) -> str:
        """Return an answer as text for a message, without secrets."""
        text = answer.told()
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:_SHOWN]

    def renew(self, answer: Answer, where: str) -> bool:
        """Answer a registry's challenge with a new token, or with user and password; return whether that was possible.

        Args:
            answer: the challenge.
            where: address for messages.

        Raises:
            RegistryError: the registry gives no token (``denied``, ``unavailable``).
        """
        challenge = answer.headers.get("WWW-Authenticate", "")
        scheme = challenge.partition(" ")[0].lower()
        facts = {name: quoted or bare for name, quoted, bare in _CHALLENGE.findall(challenge)}
        if scheme == "basic" and self._credentials and self._credentials.user:
            self.header = f"Basic {self._credentials.basic}"
        elif scheme == "bearer" and facts.get("realm"):
            self.header = f"Bearer {self._token(facts, where)}"
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
        what = f"expected a token from {origin_of(realm)}"
        if answer.status in PASSING:
            raise refusal("unavailable", what, got=self.shown(answer), where=where)
        token = None
        if answer.status == 200:
            with contextlib.suppress(ValueError, AttributeError, RecursionError):
                body = json.loads(answer.content)
                token = body.get("token") or body.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise refusal("denied", what, got=self.shown(answer), where=where)
        self._secrets.append(token)
        return token
