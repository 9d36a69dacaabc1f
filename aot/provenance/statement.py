"""Reader of provenance statements, which list the inputs of a bundle, to rebuild the bundle or to show them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from nojit.runtime.base.strict_json import Json, canonical_json, parse_json
from nojit.runtime.base.wording import worded
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import BundleFormatError, BundleTrustError, PackageError
from nojit.runtime.trust.claim import EXPIRES, INDEX_DIGEST, read_claim
from nojit.runtime.trust.envelope import read_beside, read_envelope, signed_path, split_envelope

T = TypeVar("T")

__all__ = [
    "ProvenanceFacts",
    "Recipe",
    "Statement",
    "expiry_of",
    "open_signed",
    "read_signed",
    "read_signed_statement",
    "read_statement",
    "statement_path",
]

_EXPECTED = "expected a statement that nojit build wrote: build the bundle again"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The inputs that are needed to rebuild a bundle."""

    name: str
    digest: str
    """Digest of the bundle that the rebuild must produce."""
    arch: str
    manifests: tuple[str, ...]
    """Paths of the manifests, relative to the root of the checkout."""
    profile: str
    kernels: tuple[str, ...]
    """Names of the kernels to build; empty for all."""
    toolchains: tuple[str, ...]
    """Names of the toolchains that compiled it, the default one first; empty for one that nothing names."""
    tuning: bool
    retune: bool
    """True for a tuning bundle that has only the configs of the manifests and of tuned tables."""
    tuned: bool
    keep_going: bool
    line_info: bool
    """True if the bundle is a twin: a copy with line info."""
    failures: int
    """Number of variants that failed to compile and are not in the bundle."""
    files: Mapping[str, str]
    """SHA-256 of manifests and tuned tables, by path."""
    kernel_sources: Mapping[str, str]
    """Digest of each kernel's source, by name."""


@dataclass(frozen=True, slots=True)
class ProvenanceFacts:
    """Origin of a bundle, from the statement beside it. Without a signature, anybody can have written it."""

    describes: bool
    """Whether the statement belongs to this bundle, by its digest."""
    commit: str
    """Full hash of the commit; empty if unknown."""
    dirty: bool
    """Whether the checkout had uncommitted changes."""
    uri: str
    """URI of the repository; empty if unknown."""
    builder: str
    build_number: int
    finished: str
    """End of the build, in UTC."""
    expires: str
    """End of the signature's validity, in UTC; empty if none."""
    signed: bool
    """Whether a signed statement of this bundle exists too; `nojit verify` checks the signature."""
    distributions: tuple[str, ...] = ()
    """Distributions that kernel sources import, with versions, sorted."""
    signed_problem: str = ""
    """Why the existing signed statement cannot be used; empty if it can, or there is none."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed provenance statement. Its contents are checked when they are read."""

    path: Path
    document: Json

    def canonical(self) -> bytes:
        """Return the statement as canonical JSON, which signatures cover."""
        return canonical_json(self.document)

    def until(self, moment: str) -> Statement:
        """Return a copy of the statement that expires at `moment` (UTC, ISO 8601).

        Raises:
            PackageError: `nojit build` did not write the statement.
        """
        document = self._read(lambda said: json.loads(canonical_json(said)))
        place: Any = document
        for field in ("predicate", "runDetails", "metadata"):
            place = place.setdefault(field, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            got = "one whose predicate.runDetails.metadata is no object"
            raise PackageError(_EXPECTED, got=got, where=str(self.path))
        place[EXPIRES] = moment
        return replace(self, document=document)

    def recipe(self) -> Recipe:
        """Return the inputs that are needed to rebuild the bundle.

        Raises:
            PackageError: the statement does not list these inputs.
        """
        return self._read(_recipe)

    def facts(self, digest: str, *, signed: bool, problem: str = "") -> ProvenanceFacts:
        """Return the facts about a bundle's origin that the statement contains.

        Args:
            digest: digest of the bundle.
            signed: whether the bundle has a signed statement.
            problem: problem with the signed statement; empty if none.

        Raises:
            PackageError: the statement does not contain the origin.
        """
        return replace(self._read(lambda document: _facts(document, digest)), signed=signed, signed_problem=problem)

    def is_dirty(self) -> bool:
        """Return whether the checkout had uncommitted changes; False if the statement names no commit."""
        try:
            return self.facts("", signed=False).dirty
        except PackageError:
            return False

    def _read(self, read: Callable[[Any], T]) -> T:
        try:
            return read(self.document)
        except LookupError as error:
            raise PackageError(_EXPECTED, got=f"one without {error}", where=str(self.path)) from None
        except (TypeError, ValueError, AttributeError) as error:
            raise PackageError(_EXPECTED, got=f"one with a wrong value: {error}", where=str(self.path)) from None


def statement_path(bundle: Path) -> Path:
    """Return the path of a bundle's unsigned statement."""
    return bundle.with_name(f"{bundle.name.removesuffix(SUFFIX)}.provenance.json")


def read_statement(path: Path) -> Statement:
    """Return the unsigned provenance statement in a file.

    Raises:
        PackageError: the file is missing, or is not JSON without floats.
    """
    try:
        raw = read_beside(str(path))
    except OSError as error:
        what = "expected the bundle's provenance statement, which nojit build writes"
        raise PackageError(what, got=worded(error), where=str(path)) from None
    return _parsed(raw, path)


def open_signed(envelope: bytes, path: Path) -> Statement:
    """Return the provenance statement in a signed envelope. The signature is not checked.

    Args:
        envelope: content of the file.
        path: path of the file, for messages.

    Raises:
        BundleTrustError: the content is not an envelope.
        PackageError: the envelope does not hold JSON without floats.
    """
    return _parsed(split_envelope(envelope, str(path))[0], path)


def _parsed(raw: bytes, path: Path) -> Statement:
    try:
        # a statement is indented for readers: the engine checks the rest of its spelling
        spelled = canonical_json(json.loads(raw.decode("ascii")))
        return Statement(path, parse_json(spelled, str(path)))
    except BundleFormatError as error:
        # not a BundleError: the bundle itself may be intact
        raise PackageError(error.what, got=error.got, where=error.where) from None
    except (ValueError, RecursionError) as error:
        raise PackageError(
            "expected ASCII JSON without floats: copy the statement again, or build the bundle again",
            got=str(error),
            where=str(path),
        ) from None


def read_signed(bundle: Path, digest: str) -> bytes | None:
    """Return the envelope of a bundle's signed statement. The signature is not checked.

    Args:
        bundle: path of the bundle.
        digest: digest of the bundle.

    Returns:
        The envelope; None without a signed statement.

    Raises:
        PackageError: the statement cannot be read, is damaged, or is of another bundle.
    """
    file = Path(signed_path(str(bundle)))
    try:
        raw = read_beside(str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        got = worded(error)
        raise PackageError(
            "expected a readable signed statement; sign the bundle again with nojit sign", got=got, where=str(file)
        ) from None
    try:
        document: Any = open_signed(raw, file).document
        (subject,) = document["subject"]
        of = subject["digest"][INDEX_DIGEST]
    except (BundleTrustError, PackageError, ValueError, LookupError, TypeError):
        raise PackageError(
            "expected a signed statement of nojit sign; sign the bundle again", where=str(file)
        ) from None
    if of != digest:
        what = f"expected a signed statement of bundle {digest[:12]}; sign it again with nojit sign, or delete the file"
        raise PackageError(what, got=f"one of {of!s:.12}", where=str(file))
    return raw


def read_signed_statement(bundle: Path, digest: str) -> Statement | None:
    """Return the signed statement of a bundle; None without one.

    Raises:
        PackageError: the statement cannot be read, is damaged, or is of another bundle.
    """
    raw = read_signed(bundle, digest)
    if raw is None:
        return None
    return open_signed(raw, Path(signed_path(str(bundle))))


def expiry_of(bundle: BundleFile) -> str:
    """Return the end of validity in a bundle's signed statement, in UTC; empty if none. No signature is checked.

    Raises:
        BundleTrustError: the statement is missing or damaged.
    """
    where = signed_path(bundle.path)
    payload, signer, _ = split_envelope(read_envelope(bundle.path), where)
    return read_claim(payload, signer, "", where).expires


def _recipe(document: Any) -> Recipe:
    (subject,) = document["subject"]
    definition = document["predicate"]["buildDefinition"]
    asked = definition["externalParameters"]
    digests = [(_text(each["name"]), each.get("digest", {})) for each in definition["resolvedDependencies"]]
    return Recipe(
        name=_text(asked["bundle"]["name"]),
        digest=_text(subject["digest"][INDEX_DIGEST]),
        arch=_text(asked["arch"]),
        manifests=_texts(asked["manifests"]),
        profile=_text(asked["profile"]),
        kernels=_texts(asked["kernels"]),
        toolchains=_texts(asked.get("toolchains", [])),
        tuning=asked["tuning"] is True,
        retune=asked.get("retune") is True,
        tuned=asked["tuned"] is True,
        keep_going=asked["keepGoing"] is True,
        line_info=asked["lineInfo"] is True,
        failures=int(definition["internalParameters"]["failures"]),
        files={name: _text(digest["sha256"]) for name, digest in digests if "sha256" in digest},
        kernel_sources={name: _text(digest["nojitSource"]) for name, digest in digests if "nojitSource" in digest},
    )


def _facts(document: Any, digest: str) -> ProvenanceFacts:
    (subject,) = document["subject"]
    predicate = document["predicate"]
    definition, run = predicate["buildDefinition"], predicate["runDetails"]
    listed = definition["resolvedDependencies"]
    sources = [each for each in listed if each["name"] == "source" and "gitCommit" in each.get("digest", {})]
    source: dict[str, Any] = sources[0] if sources else {"digest": {"gitCommit": ""}, "annotations": {"dirty": False}}
    return ProvenanceFacts(
        describes=subject["digest"][INDEX_DIGEST] == digest,
        commit=_text(source["digest"]["gitCommit"]),
        dirty=source["annotations"]["dirty"] is True,
        uri=_text(source.get("uri", "")),
        builder=_text(run["builder"]["id"]),
        build_number=int(definition["internalParameters"]["buildNumber"]),
        finished=_text(run["metadata"]["finishedOn"]),
        expires=_text(run["metadata"].get(EXPIRES, "")),
        distributions=tuple(_distributions(listed)),
        signed=False,
    )


def _distributions(listed: Any) -> Iterator[str]:
    for each in listed:
        annotations = each.get("annotations", {})
        if annotations.get("imported") is True and "uri" in each:
            version = unquote(_text(each["uri"]).rpartition("@")[2])
            yield f"{_text(each['name'])} {version}{' (editable)' if annotations.get('editable') is True else ''}"


def _texts(value: object) -> tuple[str, ...]:
    # a string would pass as a sequence of characters
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {value!r}")
    return tuple(map(_text, value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value
