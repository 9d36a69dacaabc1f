"""The state of the checkout that a build takes its sources from, as git tells it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["Checkout", "read_checkout"]

# git asks nobody anything here, and a hung network file system must not hang a build
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Checkout:
    """One checkout of a git repository."""

    root: Path
    commit: str
    """Full hash of what is checked out."""
    dirty: bool
    """Whether a file differs from that commit, or lies there without belonging to it; ignored files do not count."""
    uri: str
    """Where it was cloned from, as SLSA spells it: ``git+https://...``, without user or password; empty if nowhere."""


def read_checkout(folder: Path) -> Checkout | None:
    """Describe the checkout that a folder lies in; None if it lies in none, or there is no git to ask."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    # an answer of no lines is one: nothing differs
    changes = _git(folder, "status", "--porcelain", "--untracked-files=normal")
    if not root or not commit or changes is None:
        return None
    return Checkout(Path(root), commit, bool(changes), _public(_git(folder, "remote", "get-url", "origin") or ""))


def _git(folder: Path, *words: str) -> str | None:
    """Ask git; None if it has no answer."""
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        asked = subprocess.run(
            ["git", "-C", str(folder), *words],  # noqa: S607 - git is whichever one the PATH finds
            capture_output=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def _public(url: str) -> str:
    """Spell a remote without what is nobody's business: user, password, query; local ones say nothing elsewhere."""
    if "://" not in url:
        host, colon, path = url.rpartition("@")[2].partition(":")
        # git's short form of ssh: user@host:path
        return f"git+ssh://{host}/{path.lstrip('/')}" if colon and "/" not in host else ""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    if parts.scheme not in {"https", "http", "ssh", "git"} or not parts.hostname:
        return ""
    return f"git+{parts.scheme}://{parts.hostname}{port}{parts.path}"
