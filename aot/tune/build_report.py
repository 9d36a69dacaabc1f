"""Reads what a build said of a tuning bundle: which configs of the space are not in it, and why."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from nojit.runtime.format import SUFFIX

__all__ = ["read_pruned"]


def read_pruned(bundle: Path, digest: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return label and reason of each config that was left out, by kernel.

    The report lies beside the bundle; where it does not, or is of another build, nothing is known.
    """
    path = bundle.with_name(f"{bundle.name.removesuffix(SUFFIX)}.report.json")
    found: dict[str, list[tuple[str, str]]] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["digest"] == digest:
            for one in report["pruned"]:
                found.setdefault(str(one["kernel"]), []).append((str(one["label"]), str(one["reason"])))
    return {kernel: tuple(pairs) for kernel, pairs in found.items()}
