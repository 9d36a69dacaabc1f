"""Run a part of a benchmark in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nojit.runtime.errors import NojitError

__all__ = ["call", "run"]

_STANDARD_ERROR = 2


def run(words: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> None:
    """Run this Python with `words`; what it prints goes to standard error.

    Raises:
        NojitError: it failed; `what` says what it was to do.
    """
    command = [sys.executable, *words]
    ended = subprocess.run(command, check=False, stdout=_STANDARD_ERROR, env={**os.environ, **(environment or {})})
    if ended.returncode:
        raise NojitError(f"expected {what} to succeed", got=f"exit code {ended.returncode}", where=" ".join(words))


def call(module: str, request: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Have a module answer a request in a process of its own; both are JSON.

    Raises:
        NojitError: the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="nojit-bench-") as name:
        asked, answer = Path(name, "request.json"), Path(name, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        run(["-m", module, str(asked), str(answer)], what)
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return result
