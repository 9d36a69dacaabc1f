"""Writer of provenance statements, which record the sources, the builder and the tools of each bundle.

A statement is an in-toto statement v1 with SLSA provenance v1. Commit, builder and time differ between builds, so the
statement holds them and the bundle does not: the bundle's bytes depend only on its inputs.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from nojit.aot.base.defaults import LOCAL_BUILDER
from nojit.aot.base.files import write_file
from nojit.aot.compile.toolchain.digests import settings_of, split_tools
from nojit.aot.provenance.checkout import Checkout, read_checkout
from nojit.aot.provenance.distributions import Installed
from nojit.aot.provenance.statement import read_signed_statement, read_statement, statement_path
from nojit.runtime.base.strict_json import Json
from nojit.runtime.errors import PackageError
from nojit.runtime.target import spell_cuda
from nojit.runtime.trust.claim import INDEX_DIGEST

if TYPE_CHECKING:
    # signing and verification read statements without msgspec
    from nojit.aot.pipeline.report import BundleReport
    from nojit.aot.plan.plan import Plan

__all__ = [
    "BUILD_TYPE",
    "LOCAL_BUILDER",
    "Invocation",
    "Statements",
    "attest",
    "is_attested",
    "make_statement",
    "signed_problems",
]

BUILD_TYPE: Final = "nojit:build/1"

# name of the digest of a tool that consists of several files; others have `sha256`
_DIGESTS: Final = {"triton": "nojitTree"}


@dataclass(frozen=True, slots=True)
class Invocation:
    """Facts of one build for its provenance: options, builder and start time."""

    tuned: bool
    """True if the build uses the tuned tables of the manifests' folders."""
    keep_going: bool
    min_driver: int | None
    """CUDA version of the oldest driver that must load the bundle, 12040 for 12.4; None for any."""
    build_number: int | None
    """Build number, which increases with each release. None keeps the existing statement's number, or else is 0."""
    builder: str | None
    """URI of the builder that is responsible for the build; None means `LOCAL_BUILDER`."""
    started: datetime
    finished: datetime


class Statements:
    """Writes provenance statements of one build, and reads each checkout once."""

    def __init__(self) -> None:
        self._checkouts: dict[Path, Checkout | None] = {}

    def render(self, plan: Plan, report: BundleReport, bundle: Path, sha256: str, invocation: Invocation) -> bytes:
        """Return the bytes of the provenance statement of a bundle.

        Args:
            plan: plan of the bundle.
            report: report of the bundle.
            bundle: path of the bundle; an existing statement beside it keeps its build number.
            sha256: SHA-256 of the bundle file.
            invocation: options of the build.
        """
        if invocation.build_number is None:
            invocation = replace(invocation, build_number=_Existing.read(statement_path(bundle)).build_number)
        origin = plan.manifests[0].resolve().parent
        if origin not in self._checkouts:
            self._checkouts[origin] = read_checkout(origin)
        statement = make_statement(plan, report, sha256, invocation, self._checkouts[origin])
        return json.dumps(statement, indent=1).encode() + b"\n"


def attest(plans: Sequence[Plan], reports: Sequence[BundleReport], folder: Path, invocation: Invocation) -> list[Path]:
    """Write the provenance statement of each bundle that has none that is up to date.

    A statement is up to date if it has the bundle's digest, and the requested build number and builder.

    Args:
        plans: plans of the bundles.
        reports: report of each bundle, in the order of `plans`.
        folder: folder of the bundles.
        invocation: options of the build.

    Returns:
        Paths of the written statements.

    Raises:
        PackageError: a statement cannot be written.
    """
    statements = Statements()
    written = []
    for plan, report in zip(plans, reports, strict=True):
        bundle = folder / report.path
        if report.digest and not (report.up_to_date and is_attested(bundle, report.digest, invocation)):
            place = statement_path(bundle)
            write_file(place, statements.render(plan, report, bundle, _sha256(bundle), invocation))
            written.append(place)
    return written


def is_attested(bundle: Path, digest: str, invocation: Invocation) -> bool:
    """Return whether a bundle's existing provenance statement agrees with its digest and with this build."""
    return _Existing.read(statement_path(bundle)).fits(digest, invocation)


def signed_problems(reports: Sequence[BundleReport], folder: Path) -> tuple[str, ...]:
    """Return warnings about signed statements that belong to another bundle or another build.

    Args:
        reports: report of each bundle.
        folder: folder of the bundles.
    """
    problems = []
    for report in reports:
        path, digest = folder / report.path, report.digest
        try:
            signed = read_signed_statement(path, digest) if digest else None
            if signed is not None:
                was = signed.facts(digest, signed=True).build_number
                now = read_statement(statement_path(path)).facts(digest, signed=False).build_number
                if was != now:
                    problems.append(
                        f"expected a signed statement of build {now}, got one of build {was}: sign it again - at {path}"
                    )
        except PackageError as error:
            problems.append(str(error))
    return tuple(problems)


@dataclass(frozen=True, slots=True)
class _Existing:
    """Contents of the existing provenance statement of a bundle."""

    digest: str = ""
    """Digest of the bundle in the statement; empty if the statement is missing or damaged, so that it is rewritten."""
    build_number: int = 0
    builder: str = ""

    @classmethod
    def read(cls, place: Path) -> _Existing:
        try:
            statement = json.loads(place.read_bytes())
            (subject,) = statement["subject"]
            predicate = statement["predicate"]
            number = predicate["buildDefinition"]["internalParameters"]["buildNumber"]
            found = cls(subject["digest"][INDEX_DIGEST], number, predicate["runDetails"]["builder"]["id"])
        except (OSError, ValueError, LookupError, TypeError):
            return cls()
        return found if type(number) is int and number >= 0 else cls()

    def fits(self, digest: str, asked: Invocation) -> bool:
        """Return whether the statement is up to date. It is then kept, so that its signature remains valid.

        `asked`: this build, as the statement would describe it.
        """
        numbers, builders = (None, self.build_number), (None, self.builder)
        return self.digest == digest and asked.build_number in numbers and asked.builder in builders


def make_statement(
    plan: Plan, report: BundleReport, sha256: str, invocation: Invocation, checkout: Checkout | None
) -> dict[str, Json]:
    """Return the provenance statement of a bundle.

    Args:
        plan: plan of the bundle.
        report: report of the bundle.
        sha256: SHA-256 of the bundle file.
        invocation: options of the build.
        checkout: checkout of the manifests; None if unknown.
    """
    root = checkout.root if checkout else Path.cwd()
    asked: dict[str, Json] = {
        "bundle": {"name": plan.bundle.name, "version": plan.bundle.version},
        "arch": plan.arch,
        "manifests": [_name(path, root) for path in plan.manifests],
        "profile": plan.profile,
        "kernels": list(plan.only),
        "tuning": plan.tuning,
        "tuned": invocation.tuned,
        "keepGoing": invocation.keep_going,
        "minDriver": None if invocation.min_driver is None else spell_cuda(invocation.min_driver),
        "lineInfo": bool(plan.twin_of),
        **({"retune": True} if plan.retune else {}),
        **({"toolchains": list(plan.toolchains)} if plan.toolchains else {}),
    }
    inside: dict[str, Json] = {"buildNumber": invocation.build_number or 0, "failures": len(report.failures)}
    if settings := settings_of(report.toolchain):
        inside["settings"] = settings
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": report.path, "digest": {"sha256": sha256, INDEX_DIGEST: report.digest}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": asked,
                "internalParameters": inside,
                "resolvedDependencies": list(_dependencies(plan, report, root, checkout)),
            },
            "runDetails": {
                "builder": {
                    "id": invocation.builder or LOCAL_BUILDER,
                    "version": {"nojit": version("nojit"), "python": platform.python_version()},
                },
                "metadata": {"startedOn": _time(invocation.started), "finishedOn": _time(invocation.finished)},
            },
        },
    }


def _dependencies(plan: Plan, report: BundleReport, root: Path, checkout: Checkout | None) -> Iterator[dict[str, Json]]:
    if checkout is not None:
        state: dict[str, Json] = {"name": "source", "digest": {"gitCommit": checkout.commit}}
        if checkout.uri:
            state["uri"] = checkout.uri
        yield state | {"annotations": {"dirty": checkout.dirty}}
    tables = [Path(table.path) for kernel in plan.kernels for table in kernel.tuned]
    for path in dict.fromkeys([*plan.manifests, *tables]):
        yield {"name": _name(path, root), "digest": {"sha256": _sha256(path)}}
    for kernel in plan.kernels:
        # covers the function and all that it reaches, not the rest of the file
        digest: dict[str, Json] = {"nojitSource": kernel.source.digest}
        yield {"name": kernel.spec.name, "digest": digest, "annotations": {"source": kernel.spec.source}}
    split = split_tools(report.toolchain)
    every = {tool for tools in split.values() for tool in tools}
    yield from (each for each in _imported(plan, root) if each["name"] not in every)
    for toolchain, tools in split.items():
        for tool, number in tools.items():
            if tool != "settings" and not tool.endswith(".digest"):
                kind = "pypi" if tool in {"triton", "zstandard"} else "generic"
                named: dict[str, Json] = {"name": tool, "uri": f"pkg:{kind}/{tool}@{number}"}
                if toolchain:
                    named["annotations"] = {"toolchain": toolchain}
                # the digest reveals an edited tool, which its version does not
                content = tools.get(f"{tool}.digest")
                yield named | ({"digest": {_DIGESTS.get(tool, "sha256"): content}} if content else {})


def _imported(plan: Plan, root: Path) -> Iterator[dict[str, Json]]:
    """Yield the dependencies that kernel sources import: distributions with versions, and other files with digests.

    `root`: the checkout.
    """
    modules = sorted(frozenset().union(*(kernel.reached for kernel in plan.kernels)))
    origins, files = Installed().origins_of(modules) if modules else ((), ())
    for origin in origins:
        uri = f"pkg:pypi/{origin.name}@{quote(origin.version, safe='')}"
        yield {"name": origin.name, "uri": uri, "annotations": {"imported": True, "editable": origin.editable}}
    for path in files:
        # a verifier cannot find a file outside the checkout, so it gets another kind of digest
        inside = path.is_relative_to(root.resolve())
        digest: dict[str, Json] = {"sha256" if inside else "nojitFile": _sha256(path)}
        yield {"name": _name(path, root), "digest": digest, "annotations": {"imported": True}}


def _name(path: Path, root: Path) -> str:
    """Return a file's path relative to the checkout's root.

    For a file outside the checkout, returns only its name, to hide the folders of this machine.
    """
    whole = path.resolve()
    return whole.relative_to(root.resolve()).as_posix() if whole.is_relative_to(root.resolve()) else whole.name


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
