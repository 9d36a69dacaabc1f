"""Reader of the git checkout that contains a build's sources: commit, changes, remote."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["Checkout", "read_checkout"]

# git prompts for nothing here; a hung network file system must not hang a build
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Checkout:
    """The state of a git checkout."""

    root: Path
    commit: str
    """Full hash of the commit that is checked out."""
    dirty: bool
    """True if a tracked file differs from the commit, or if there is an untracked file that git does not ignore."""
    uri: str
    """URI of the remote in SLSA's form, ``git+https://...``, without user or password; empty if it is not public."""


def read_checkout(folder: Path) -> Checkout | None:
    """Return the state of the git checkout that contains a folder; None outside a checkout or without git."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    # empty output means a clean checkout; None means git failed
    changes = _git(folder, "status", "--porcelain", "--untracked-files=normal")
    if not root or not commit or changes is None:
        return None
    return Checkout(Path(root), commit, bool(changes), _public(_git(folder, "remote", "get-url", "origin") or ""))


def _git(folder: Path, *words: str) -> str | None:
    """Return the output of a git command; None if git fails or is not installed."""
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
    """Return a remote's URL without user, password and query; empty for a local path, which others cannot use."""
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
