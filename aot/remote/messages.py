"""Messages between a build and its remote workers: jobs, their results, and what a worker has. Pure.

Every message is one zstd frame. A *job* holds a document: several variants of one kernel and arch, their keys, the source closures that
they need, by digest, and the toolchain to use. No message holds code of nojit or pickled objects. `docs/scale.md` has the fields.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import zstandard
from nojit.aot.cache.entry import ENTRY_BYTES_MAX, EntryError, open_entry
from nojit.aot.compile.job_runner import Sealed
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.variants.variant import CompiledVariant, Variant, decode_compiled
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.errors import BundleFormatError, CompileError
from nojit.runtime.table.parts import Config, config_json
from nojit.runtime.values import Value, decode_value, encode_value

__all__ = [
    "FORMAT",
    "Description",
    "Job",
    "MessageError",
    "Other",
    "Outcome",
    "Received",
    "Refused",
    "Setup",
    "Tools",
    "decode_description",
    "decode_job",
    "decode_results",
    "decode_setup",
    "encode_description",
    "encode_job",
    "encode_refusal",
    "encode_results",
    "encode_setup",
]

FORMAT: Final = 1
"""Version of the messages; a worker with another one is refused."""
# a job of many variants with long closures
_JOB_BYTES_MAX: Final = 256 << 20
# jobs take half the time of level 3, and a fourteenth more bytes
_LEVEL: Final = 1
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
# words of an error that travel
_ERROR: Final = ("what", "got", "where", "log")
# errors while a document of another form is read
_BAD: Final = (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)

Tools: TypeAlias = "tuple[tuple[str, str], ...]"
"""A toolchain as `nojit.aot.compile.triton.compiler.toolchain` returns it."""


class MessageError(ValueError):
    """Error: a message has another form. It says what was expected."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Facts that all jobs of one build share, apart from their arch."""

    nojit: str
    """Version and digest of the nojit that computed the keys."""
    min_driver: int | None
    """Oldest CUDA version whose driver must load the images; None for any."""
    timeout_s: float
    """Time limit of a variant and of a source, in seconds."""


@dataclass(frozen=True, slots=True)
class Job:
    """Variants of one kernel and one arch to compile, with everything that this takes."""

    setup: Setup
    arch: str
    tools: Tools
    """The toolchain that compiles for the arch on the machine of the build."""
    where: str
    """The kernel's entry in its manifest, for messages."""
    captured: Captured
    variants: tuple[tuple[str, Variant], ...]
    """Cache key and variant."""


@dataclass(frozen=True, slots=True)
class Description:
    """The software of one worker."""

    nojit: str
    host: str
    tools: Mapping[str, Tools]
    """The toolchain for each arch that it was asked for."""
    problem: str = ""
    """Why it can compile nothing; empty if it can."""


@dataclass(frozen=True, slots=True)
class Other:
    """Result of a variant that the worker did not compile, because its source closure gives another key there."""

    why: str


Outcome: TypeAlias = "CompiledVariant | CompileError | Other"
Received: TypeAlias = "Sealed | CompileError | Other"
"""An outcome as the build gets it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer to a job by a worker that has another toolchain than the job asks for."""

    has: Description


# -- jobs ------------------------------------------------------------------------------------------------------------


def encode_job(job: Job) -> bytes:
    """Return a job as a message."""
    captured = job.captured
    document: dict[str, Any] = {
        "format": FORMAT,
        **_setup_json(job.setup),
        "arch": job.arch,
        "toolchain": [list(pair) for pair in job.tools],
        "where": job.where,
        "kernel": captured.kernel,
        "functions": dict(captured.functions),
        "variants": [{"key": key, **_variant_json(variant)} for key, variant in job.variants],
    }
    head = _written(document)
    # the closures are JSON already
    closures = b",".join(b'"%b":%b' % (digest.encode(), text) for digest, text in captured.closures)
    return _packed(b'{"closures":{%b},%b' % (closures, head[1:]))


def decode_job(message: bytes) -> Job:
    """Return the job of a message.

    Raises:
        MessageError: the message has another form, or another format than `FORMAT`.
    """
    given = _document(message)
    try:
        closures = {digest: canonical_json(closure) for digest, closure in given["closures"].items()}
        return Job(
            _setup_of(given),
            given["arch"],
            _pairs(given["toolchain"]),
            given["where"],
            Captured(
                given["kernel"],
                tuple(sorted(given["functions"].items())),
                tuple(sorted(closures.items())),
                (),
            ),
            tuple((each["key"], _variant_of(each, given["arch"], given["where"])) for each in given["variants"]),
        )
    except _BAD as error:
        raise MessageError(f"expected a job of format {FORMAT}, got {type(error).__name__}: {error}") from None


def _variant_json(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.kernel,
        "axes": _values_json(variant.axes),
        "signature": variant.signature,
        "constexprs": _values_json(variant.constexprs),
        "hints": variant.hints,
        "options": _values_json(variant.options),
        "config": config_json(variant.config),
        "config_number": variant.config_number,
        "derived": _values_json(variant.derived),
    }


def _variant_of(given: Mapping[str, Any], arch: str, where: str) -> Variant:
    config = given["config"]
    return Variant(
        kernel=given["name"],
        arch=arch,
        axes=_values(given["axes"], where),
        signature=_pairs(given["signature"]),
        constexprs=_values(given["constexprs"], where),
        hints=tuple((param, hint) for param, hint in given["hints"]),
        options=_values(given["options"], where),
        config=Config(
            _values(config["constexprs"], where),
            _values(config["options"], where),
            config["requires"],
        ),
        config_number=given["config_number"],
        derived=_values(given["derived"], where),
    )


def _values_json(pairs: Iterable[tuple[str, Value]]) -> list[Json]:
    return [[name, encode_value(value)] for name, value in pairs]


def _values(given: Sequence[Sequence[Any]], where: str) -> tuple[tuple[str, Value], ...]:
    return tuple((name, decode_value(value, where)) for name, value in given)


def _pairs(given: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((first, second) for first, second in given)


# -- results ---------------------------------------------------------------------------------------------------------


def encode_results(outcomes: Sequence[tuple[str, Outcome]], arch: str) -> bytes:
    """Return the results of a job as a message.

    Args:
        outcomes: key and result of each variant.
        arch: arch of the variants.
    """
    entries: list[bytes] = []
    results: list[Json] = []
    for key, outcome in outcomes:
        if isinstance(outcome, CompileError):
            facts = {name: str(getattr(outcome, name)) for name in _ERROR}
            results.append({"key": key, "failed": {**facts}})
        elif isinstance(outcome, Other):
            results.append({"key": key, "other": outcome.why})
        else:
            entries.append(Sealed.of(key, outcome, arch).entry)
            results.append({"key": key, "bytes": len(entries[-1])})
    head = _written({"format": FORMAT, "results": results})
    return _packed(b"".join((head, b"\n", *entries)))


def encode_refusal(has: Description) -> bytes:
    """Return the answer of a worker that has another toolchain than a job.

    `has`: what the worker has.
    """
    return _packed(_written({"format": FORMAT, "refused": _description_json(has)}))


def decode_results(message: bytes, arch: str) -> Refused | dict[str, Received]:
    """Return the answer to a job: a refusal, or the result of each variant by key.

    Entries are verified as those of a cache: format, key, SHA-256 and launch facts; the caller compares them with the image.

    Raises:
        MessageError: the message is damaged or has another form.
    """
    head, _, entries = _unpacked(message).partition(b"\n")
    try:
        given = _of_format(head)
        if "refused" in given:
            return Refused(_description_of(given["refused"]))
        found: dict[str, Received] = {}
        at = 0
        for each in given["results"]:
            key = each["key"]
            if "failed" in each:
                failed = each["failed"]
                what, got, where, log = (str(failed[name]) for name in _ERROR)
                found[key] = CompileError(what, got=got, where=where, log=log)
            elif "other" in each:
                found[key] = Other(str(each["other"]))
            else:
                size = each["bytes"]
                if type(size) is not int or not 0 <= size <= ENTRY_BYTES_MAX:
                    raise TypeError(f"expected an entry of at most {ENTRY_BYTES_MAX} bytes, got {size!r:.100}")
                entry = entries[at : at + size]
                found[key] = Sealed(decode_compiled(open_entry(key, entry), arch), entry)
                at += size
        if at != len(entries):
            raise MessageError(f"expected {at} bytes of entries, got {len(entries)}")
    except (*_BAD, EntryError, BundleFormatError) as error:
        raise MessageError(f"expected results of format {FORMAT}, got {type(error).__name__}: {error}") from None
    return found


# -- what workers have -----------------------------------------------------------------------------------------------


def encode_setup(setup: Setup, archs: Iterable[str]) -> bytes:
    """Return the question what a worker has, as a message.

    Args:
        setup: the build's.
        archs: the archs to report a toolchain for.
    """
    return _packed(_written({"format": FORMAT, **_setup_json(setup), "archs": list(archs)}))


def decode_setup(message: bytes) -> tuple[Setup, tuple[str, ...]]:
    """Return the question of `encode_setup`.

    Raises:
        MessageError: the message has another form.
    """
    given = _document(message)
    try:
        return _setup_of(given), tuple(given["archs"])
    except _BAD as error:
        raise MessageError(f"expected a question of format {FORMAT}, got {type(error).__name__}: {error}") from None


def encode_description(has: Description) -> bytes:
    """Return what a worker has as a message."""
    return _packed(_written({"format": FORMAT, **_description_json(has)}))


def decode_description(message: bytes) -> Description:
    """Return what a worker has from its message.

    Raises:
        MessageError: the message has another form.
    """
    given = _document(message)
    try:
        return _description_of(given)
    except _BAD as error:
        raise MessageError(f"expected a description of format {FORMAT}, got {error}") from None


def _setup_json(setup: Setup) -> dict[str, Json]:
    return {"nojit": setup.nojit, "min_driver": setup.min_driver, "timeout_ms": round(setup.timeout_s * 1000)}


def _setup_of(given: Mapping[str, Any]) -> Setup:
    return Setup(given["nojit"], given["min_driver"], given["timeout_ms"] / 1000)


def _description_json(has: Description) -> dict[str, Json]:
    tools: dict[str, Json] = {arch: [list(pair) for pair in tools] for arch, tools in has.tools.items()}
    return {"nojit": has.nojit, "host": has.host, "toolchains": tools, "problem": has.problem}


def _description_of(given: Mapping[str, Any]) -> Description:
    tools = {arch: _pairs(tools) for arch, tools in given["toolchains"].items()}
    return Description(str(given["nojit"]), str(given["host"]), tools, str(given["problem"]))


# -- frames ----------------------------------------------------------------------------------------------------------


class _Contexts(threading.local):
    """Those of one thread: to make one takes longer than a message."""

    def __init__(self) -> None:
        self.pack = zstandard.ZstdCompressor(level=_LEVEL).compress
        self.unpack = zstandard.ZstdDecompressor().decompress


_CONTEXTS = _Contexts()


def _packed(data: bytes) -> bytes:
    return _CONTEXTS.pack(data)


def _unpacked(message: bytes) -> bytes:
    try:
        if zstandard.frame_content_size(message) > _JOB_BYTES_MAX:
            raise MessageError(f"expected a message of at most {_JOB_BYTES_MAX} bytes")
        return _CONTEXTS.unpack(message, max_output_size=_JOB_BYTES_MAX)
    except zstandard.ZstdError as error:
        raise MessageError(f"expected a zstd frame, got {error}") from None


def _written(document: Json) -> bytes:
    """Return JSON in a seventh of the time of `canonical_json`."""
    try:
        return _ENCODER.encode(document)
    except UnicodeEncodeError:
        # half a surrogate pair, which UTF-8 has no bytes for
        return canonical_json(document)


def _document(message: bytes) -> dict[str, Any]:
    try:
        return _of_format(_unpacked(message))
    except (ValueError, RecursionError) as error:
        raise MessageError(str(error)) from None


def _of_format(raw: bytes) -> dict[str, Any]:
    given = json.loads(raw)
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        got = given.get("format") if isinstance(given, dict) else type(given).__name__
        raise MessageError(f"expected a message of format {FORMAT}, got {got!r}: install the same nojit everywhere")
    return given
