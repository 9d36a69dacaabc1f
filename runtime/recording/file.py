"""Recordings on disk: what a program launched, as lines of JSON that processes append.

A recording is one file, or a folder with one file for each process. Each line is an object whose ``record`` names its kind:

================== ===================================================================================================
``process``        first line of a process: ``format``, ``process`` (an id), versions of nojit, Python, Triton and torch,
                   ``arch``, ``device`` (name), its ``multiprocessors`` and ``memory_bytes``, ``fake`` (no GPU)
``closure``        ``digest`` and ``closure``: a source closure (`nojit.runtime.recording.closure`)
``specialization`` ``digest`` and ``specialization``; ``trial`` if an autotuner only timed it; ``warmup`` if nothing was launched
``sample``         ``specialization`` (digest), ``grid`` and ``values`` of int arguments of one launch
``launches``       ``process``, ``specialization`` and ``count``: launches so far
``winner``         choice of an autotuner: ``module``, ``qualname``, ``closure``, ``key``, ``config``, ``time_ns``
``inductor``       what the caches of torch.compile know Triton by: ``arch``, ``triton_key``, ``backend_hash``
``problem``        something that the recording lacks: ``what`` and ``where``
``distribution``   a package with recorded source: ``name``, ``version``, ``license``; both are empty if it is not installed
================== ===================================================================================================

A process writes whole lines with one system call each, so a killed process loses nothing that it wrote; readers ignore an unfinished
last line. Reading merges all files and keeps each digest once. Paths of the machine are not recorded.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from nojit.runtime.base.file_kinds import check_regular, files_in
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording import closure as closures
from nojit.runtime.recording import specialization as specializations

__all__ = [
    "FORMAT",
    "KINDS",
    "PART_SUFFIX",
    "SUFFIX",
    "Recording",
    "Writer",
    "files_of",
    "process_files",
    "read_recording",
    "write_recording",
]

FORMAT: Final = 1
SUFFIX: Final = ".nojitrec"
PART_SUFFIX: Final = ".jsonl"
"""Suffix of a process's file in a folder."""
_STATEMENT_SUFFIX: Final = ".intoto.jsonl"
KINDS: Final = (
    "process",
    "distribution",
    "closure",
    "specialization",
    "winner",
    "inductor",
    "sample",
    "launches",
    "problem",
)
"""Kinds of lines, in the order in which `write_recording` writes them."""
_BYTES_MAX: Final = 1 << 30


class Writer:
    """Appends lines to this process's file of a recording. Safe to use from several threads; a forked child opens its own file.

    Args:
        folder: the recording's folder; it is created with the first line.
        facts: what the first line says of this process, beside its id and the format.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Json]) -> None:
        self._folder = folder
        self._facts = dict(facts)
        self._lock = threading.Lock()
        self._file = -1
        self._owner = 0
        self._process = ""

    @property
    def process(self) -> str:
        """Id of this process; a forked child has another."""
        number = str(os.getpid())
        if self._process.partition("-")[0] != number:
            self._process = f"{number}-{secrets.token_hex(6)}"
        return self._process

    def add(self, kind: str, **fields: Json) -> None:
        """Append one line.

        Args:
            kind: one of `KINDS`.
            fields: the line's fields.

        Raises:
            RecordingError: the folder or file cannot be written.
        """
        line = canonical_json({"record": kind, **fields}) + b"\n"
        with self._lock:
            try:
                if self._owner != os.getpid():
                    self._open()
                self._write(line)
            except OSError as error:
                what = "expected to write to the recording: choose a writable folder with free space"
                raise RecordingError(what, got=worded(error), where=str(self._folder)) from None

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self.process}{PART_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._owner = os.getpid()
        first: dict[str, Json] = {"record": "process", "format": FORMAT, "process": self.process, **self._facts}
        self._write(canonical_json(first) + b"\n")

    def _write(self, line: bytes) -> None:
        written = os.write(self._file, line)
        while written < len(line):
            written += os.write(self._file, line[written:])


class Recording:
    """A recording in memory, merged from its files.

    Attributes:
        processes: the first line of each process, by id.
        closures: source closures by digest.
        specializations: specializations by digest.
        trials: digests of specializations that only an autotuner's trials launched.
        warmups: digests of specializations that were only warmed up, never launched.
        samples: grids and int arguments of some launches, by the specialization's digest.
        winners: choices of autotuners.
        inductor: what the caches of torch.compile knew Triton by, for each arch.
        problems: what the recording lacks, as (what, where).
        distributions: packages with recorded source, by name.
    """

    def __init__(self) -> None:
        self.processes: dict[str, dict[str, Any]] = {}
        self.closures: dict[str, closures.Closure] = {}
        self.specializations: dict[str, specializations.Specialization] = {}
        self.trials: set[str] = set()
        self.warmups: set[str] = set()
        self.samples: dict[str, list[dict[str, Any]]] = {}
        self.winners: list[dict[str, Any]] = []
        self.inductor: list[dict[str, str]] = []
        self.problems: list[tuple[str, str]] = []
        self.distributions: dict[str, dict[str, Any]] = {}
        self._launches: dict[tuple[str, str], int] = {}

    def launches(self, digest: str) -> int:
        """Return how many launches of a specialization were counted in all processes."""
        return sum(count for (_, known), count in self._launches.items() if known == digest)

    def to_build(self) -> list[str]:
        """Return the digests of the specializations that a build compiles, sorted: all but an autotuner's mere trials."""
        return sorted(digest for digest in self.specializations if digest not in self.trials)

    def add(self, line: Mapping[str, Any]) -> None:
        """Add one line.

        Raises:
            ValueError: the line has an unknown kind or another form, or a digest is not that of its content.
        """
        kind, fields = line.get("record"), {name: value for name, value in line.items() if name != "record"}
        if kind not in KINDS:
            raise ValueError(f"expected a line of kind {', '.join(KINDS)}, got {kind!r}: a newer nojit may read it")
        getattr(self, f"_add_{kind}")(fields)

    def lines(self) -> list[dict[str, Json]]:
        """Return the lines that hold this recording, in a fixed order."""
        described = [
            *[("process", each) for _, each in sorted(self.processes.items())],
            *[("distribution", each) for _, each in sorted(self.distributions.items())],
            *[("closure", {"digest": digest, "closure": each}) for digest, each in sorted(self.closures.items())],
            *[("specialization", self._specialization(digest)) for digest in sorted(self.specializations)],
            *[("winner", each) for each in sorted(self.winners, key=canonical_json)],
            *[("inductor", each) for each in sorted(self.inductor, key=lambda each: sorted(each.items()))],
            *[("sample", each) for each in self._samples()],
            *[
                ("launches", {"process": process, "specialization": digest, "count": count})
                for (process, digest), count in sorted(self._launches.items())
            ],
            *[("problem", {"what": what, "where": where}) for what, where in sorted(self.problems)],
        ]
        return [{"record": kind, **fields} for kind, fields in described]

    def _specialization(self, digest: str) -> dict[str, Any]:
        flags = {"trial": digest in self.trials, "warmup": digest in self.warmups}
        return {"digest": digest, "specialization": self.specializations[digest], **flags}

    def _samples(self) -> Iterator[dict[str, Any]]:
        for digest, samples in sorted(self.samples.items()):
            for sample in sorted(samples, key=canonical_json):
                yield {"specialization": digest, **sample}

    def _add_process(self, line: dict[str, Any]) -> None:
        if line.get("format") != FORMAT:
            raise ValueError(
                f"expected a recording of format {FORMAT}, got {line.get('format')!r}: record again, or update nojit"
            )
        self.processes[_text(line, "process")] = line

    def _add_closure(self, line: dict[str, Any]) -> None:
        closure, digest = line.get("closure"), _text(line, "digest")
        if not isinstance(closure, dict) or not isinstance(closure.get("definitions"), list):
            closure = {"definitions": []}
        if closures.digest_of(closure) != digest:
            raise ValueError(f"expected a closure with the digest {digest[:12]}, got another one")
        self.closures.setdefault(digest, closure)

    def _add_specialization(self, line: dict[str, Any]) -> None:
        found, digest = line.get("specialization"), _text(line, "digest")
        if not isinstance(found, dict) or specializations.digest_of(found) != digest:
            raise ValueError(f"expected a specialization with the digest {digest[:12]}, got another one")
        known = digest in self.specializations
        self.specializations.setdefault(digest, found)
        # one launch outside of trials and warm-ups is enough
        for flag, among in (("trial", self.trials), ("warmup", self.warmups)):
            if not line.get(flag):
                among.discard(digest)
            elif not known:
                among.add(digest)

    def _add_sample(self, line: dict[str, Any]) -> None:
        digest = _text(line, "specialization")
        sample = {name: value for name, value in line.items() if name != "specialization"}
        _append_new(self.samples.setdefault(digest, []), sample)

    def _add_winner(self, line: dict[str, Any]) -> None:
        _append_new(self.winners, line)

    def _add_inductor(self, line: dict[str, Any]) -> None:
        _append_new(self.inductor, {name: _text(line, name) for name in ("arch", "triton_key", "backend_hash")})

    def _add_problem(self, line: dict[str, Any]) -> None:
        _append_new(self.problems, (_text(line, "what"), _text(line, "where")))

    def _add_distribution(self, line: dict[str, Any]) -> None:
        known = self.distributions.setdefault(_text(line, "name"), line)
        # another process found the package where it is not installed
        if not known.get("version"):
            self.distributions[_text(line, "name")] = line

    def _add_launches(self, line: dict[str, Any]) -> None:
        key = _text(line, "process"), _text(line, "specialization")
        count = line.get("count")
        if type(count) is not int:
            raise ValueError(f"expected a count of launches, got {count!r}")
        self._launches[key] = max(count, self._launches.get(key, 0))


def _append_new(items: list[Any], item: Any) -> None:
    if item not in items:
        items.append(item)


def _text(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise ValueError(f"expected a text in {name!r}, got {type(value).__name__}")  # noqa: TRY004 - a broken line
    return value


def read_recording(*paths: Path) -> Recording:
    """Read recordings and merge them.

    Args:
        paths: files, or folders with one file for each process.

    Raises:
        RecordingError: a path holds no recording, or a line is damaged.
    """
    recording = Recording()
    for path in paths:
        for file in files_of(path):
            _read_file(file, recording)
    return recording


def files_of(path: Path) -> list[Path]:
    """Return the files of a recording: itself, or one for each process.

    Args:
        path: the recording, a file or folder.

    Raises:
        RecordingError: a folder without files of processes.
        OSError: a folder that cannot be read.
    """
    if path.is_dir():
        files = process_files(path)
        if not files:
            what = f"expected a recording: a {SUFFIX} file, or a folder with {PART_SUFFIX} files"
            raise RecordingError(what, got="a folder without them; did the program launch a kernel?", where=str(path))
        return files
    return [path]


def process_files(folder: Path) -> list[Path]:
    """Return the files of recorded processes in a folder, sorted. Signed statements of bundles, which end alike, are none."""
    return [path for path in files_in(folder, PART_SUFFIX) if not path.name.endswith(_STATEMENT_SUFFIX)]


def _read_file(path: Path, recording: Recording) -> None:
    try:
        check_regular(path)
        if path.stat().st_size > _BYTES_MAX:
            raise RecordingError(f"expected a recording of at most {_BYTES_MAX} bytes", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise RecordingError("expected a recording that can be read", got=worded(error), where=str(path)) from None
    # a process that was killed may have left an unfinished last line
    whole = data[: data.rfind(b"\n") + 1]
    if whole and not _describes_process(whole.partition(b"\n")[0]):
        raise RecordingError("expected a recording: nojit record writes one", got="another file", where=str(path))
    for number, raw in enumerate(whole.splitlines(), 1):
        _read_line(raw, recording, f"{path}:{number}")
    if not whole:
        raise RecordingError("expected a recording", got="no complete line", where=str(path))


def _read_line(raw: bytes, recording: Recording, where: str) -> None:
    try:
        line = json.loads(raw)
        if isinstance(line, dict):
            recording.add(line)
            return
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RecordingError("expected a line of JSON", got=worded(error), where=where) from None
    except ValueError as error:
        raise RecordingError(str(error), where=where) from None
    except RecursionError:
        raise RecordingError("expected a line of JSON", got="too many levels", where=where) from None
    raise RecordingError("expected a JSON object", got=type(line).__name__, where=where)


def _describes_process(raw: bytes) -> bool:
    """Return whether a line is the first of a recording."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(line, dict) and line.get("record") == "process"


def write_recording(recording: Recording, path: Path) -> None:
    """Write a merged recording to one file, atomically; equal content gives equal bytes.

    Args:
        recording: the recording.
        path: the file, which is replaced.

    Raises:
        RecordingError: the file cannot be written.
    """
    data = b"".join(canonical_json(line) + b"\n" for line in recording.lines())
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}")
    try:
        check_regular(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise RecordingError("expected to write a recording", got=worded(error), where=str(path)) from None
