"""What the commands of ``nojit tune`` that read measurements have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from nojit.aot.tune.database import open_database
from nojit.aot.tune.evidence import Evidence, collect
from nojit.aot.tune.rules import TuningRules
from nojit.runtime.errors import TuningError

__all__ = ["TUNED", "database_argument", "evidence_of", "kernel_option", "manifests_option", "rules_of"]

F = TypeVar("F", bound=Callable[..., Any])
_MANIFESTS = Path("manifests")
TUNED = _MANIFESTS / "tuned"


def database_argument(function: F) -> F:
    """Give a command the file of measurements."""
    return click.argument("database", metavar="DB", type=click.Path(path_type=Path))(function)


def kernel_option(function: F) -> F:
    """Give a command kernels to look at."""
    return click.option("--kernel", "kernels", multiple=True, help="Only this one; repeatable.")(function)


def manifests_option(function: F) -> F:
    """Give a command the manifests that say which measurements stand for one another."""
    words = "Folder of manifests, for `alike` and `bucket`; default manifests/ if it is there."
    return click.option("--manifests", type=click.Path(path_type=Path), help=words)(function)


def evidence_of(database: Path, use: str, kernels: Sequence[str]) -> tuple[Evidence, ...]:
    """Read the measurements of problems of one use.

    Raises:
        TuningError: there are none.
        OSError: there is no such file.
        NojitError: it is no database of measurements.
    """
    with open_database(database) as opened:
        found = collect(opened, use, kernels)
    if not found:
        what = f"expected measurements of problems for {use!r}" + (f" of {', '.join(kernels)}" if kernels else "")
        raise TuningError(what, got="none", where=str(database))
    return found


def rules_of(manifests: Path | None, found: Sequence[Evidence]) -> Mapping[str, TuningRules]:
    """Return the rules of every kernel that was measured; of one without a manifest, as the database has them.

    Raises:
        ManifestError: a manifest is wrong, or `manifests` is no folder of them.
    """
    known: Mapping[str, TuningRules] = {}
    if manifests is not None or _MANIFESTS.is_dir():
        from nojit.aot.tune.manifest_rules import read_rules  # noqa: PLC0415 - needs the extra `build`

        known = read_rules(manifests or _MANIFESTS)
    return {
        evidence.kernel.name: known.get(evidence.kernel.name, TuningRules(evidence.kernel.alike)) for evidence in found
    }
