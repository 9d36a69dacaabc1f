"""Child processes that run parts of a benchmark."""

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
    """Run this Python interpreter with the arguments `words`; its output goes to standard error.

    Args:
        words: arguments of the interpreter.
        what: the task, for the error message.
        environment: variables added to this process's environment.

    Raises:
        NojitError: the process failed.
    """
    command = [sys.executable, *words]
    ended = subprocess.run(command, check=False, stdout=_STANDARD_ERROR, env={**os.environ, **(environment or {})})
    if ended.returncode:
        raise NojitError(f"expected {what} to succeed", got=f"exit code {ended.returncode}", where=" ".join(words))


def call(module: str, request: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Run a module on a request in a child process; return its answer. Both are JSON.

    Raises:
        NojitError: the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="nojit-bench-") as name:
        asked, answer = Path(name, "request.json"), Path(name, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        run(["-m", module, str(asked), str(answer)], what)
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return result
