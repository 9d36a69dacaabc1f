"""``nojit record``: Run a program and record the Triton kernels that it launches."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from nojit.aot.cli.console import PLACE, Arch, Output, counted, output_options
from nojit.aot.manifest.archs import known_archs
from nojit.runtime.autostart import environment
from nojit.runtime.base.environment import RECORD, RECORD_FAKE
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.file import Recording, read_recording, write_recording
from nojit.runtime.recording.session import merge_parts, parts_beside

__all__ = ["command"]

_PASSED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# what a terminal sends to the program, too
_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGQUIT)


@click.command("record", context_settings={"allow_interspersed_args": False})
@click.option("-o", "--out", "path", type=PLACE, required=True, help="Recording to write, such as serve.nojitrec.")
@click.option(
    "--fake", "arch", type=Arch(), metavar="ARCH", help="Simulate GPUs of this architecture instead of using one."
)
@click.option("--merge", is_flag=True, help="Merge recordings instead: files, or folders of NOJIT_RECORD.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@output_options
def command(out: Output, path: Path, arch: str | None, merge: bool, words: tuple[str, ...]) -> int:
    """Run a program and record the Triton kernels that it and its child processes launch.

    The recording holds each kernel's source, and the types, hints, constexprs and options of its calls, autotuners' choices, and
    sample grids. The program's output, signals and exit code are its own; nojit writes its summary to standard error. The recording
    is also written if the program fails.

    With --fake the program needs no GPU: its own code runs on tensors without contents, and nothing is compiled. A request
    that needs values of a GPU raises an error in the program, and the summary names its line.

    With --merge, COMMAND is recordings to merge into one.
    """
    if merge and arch:
        raise click.UsageError("expected --fake without --merge, which runs no program")
    if arch and arch not in known_archs():
        out.warn(
            f"nojit: a build may refuse the recording: no known GPU is of {arch}{did_you_mean(arch, known_archs())}"
        )
    if merge:
        recording = read_recording(*map(Path, words))
        write_recording(recording, path)
        code = 0
    else:
        code, recording = _record(out, path, arch, words)
    document = _document(recording)
    out.emit("record", {"path": str(path), "exit_code": code, **document})
    # standard output is the program's
    with contextlib.redirect_stdout(sys.stderr):
        _show(out, path, recording, document)
    return code


def _record(out: Output, path: Path, arch: str | None, words: Sequence[str]) -> tuple[int, Recording]:
    """Run a program; return its exit code and the recording.

    Raises:
        RecordingError: the program cannot be recorded, or recorded nothing.
    """
    if os.environ.get("TRITON_INTERPRET", "0").lower() in {"1", "y", "on", "yes", "true"}:
        what = "expected a program that compiles its kernels: unset TRITON_INTERPRET"
        raise RecordingError(what, got="Triton's interpreter")
    path = path.absolute()
    parts = parts_beside(path)
    try:
        variables = {RECORD: str(parts), **({RECORD_FAKE: arch} if arch else {})}
        code = _run(words, environment(os.environ, **variables), quiet=out.json)
    except OSError as error:
        parts.rmdir()
        raise RecordingError("expected a program to run", got=worded(error), where=words[0]) from None
    try:
        merge_parts(parts, path)
    except RecordingError as error:
        if not code:
            raise
        # the program's own failure counts
        out.warn(f"nojit: {error}")
        return code, Recording()
    return code, read_recording(path)


def _run(words: Sequence[str], variables: dict[str, str], *, quiet: bool) -> int:
    """Run a program to its end, pass signals on to it, and return its exit code: 128 and the number if a signal ended it.

    `quiet`: whether standard output is for nojit alone.
    """
    with subprocess.Popen(words, env=variables, stdout=sys.stderr if quiet else None) as process:

        def pass_on(number: int, _frame: FrameType | None) -> None:
            if number not in _OF_TERMINALS or not _in_foreground():
                process.send_signal(number)

        with _handled(pass_on):
            code = process.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Handle signals until the block ends; those that the parent process ignores stay ignored."""
    before = {number: signal.getsignal(number) for number in (*_PASSED, *_OF_TERMINALS)}
    asked = [number for number, usual in before.items() if usual is not signal.SIG_IGN]
    for number in asked:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in asked:
            signal.signal(number, before[number])


def _in_foreground() -> bool:
    """Return whether this process and the program get the signals of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _document(recording: Recording) -> dict[str, Any]:
    """Return what a recording holds, by kernel."""
    kernels: dict[str, Counter[str]] = defaultdict(Counter)
    for digest, found in recording.specializations.items():
        counts = kernels[f"{found['module']}:{found['qualname']}"]
        counts["specializations"] += 1
        counts["launches"] += recording.launches(digest)
        counts["trials"] += digest in recording.trials
        counts["warmups"] += digest in recording.warmups
    for winner in recording.winners:
        kernels[f"{winner['module']}:{winner['qualname']}"]["winners"] += 1
    names = ("specializations", "launches", "trials", "warmups", "winners")
    return {
        "processes": len(recording.processes),
        "archs": sorted({str(each["arch"]) for each in recording.specializations.values()}),
        "kernels": [{"name": name, **{each: kernels[name][each] for each in names}} for name in sorted(kernels)],
        "distributions": [
            {name: str(found.get(name, "")) for name in ("name", "version", "license")}
            for _, found in sorted(recording.distributions.items())
        ],
        "problems": [
            {"where": where, "what": what} for what, where in sorted(recording.problems, key=lambda pair: pair[1])
        ],
    }


def _show(out: Output, path: Path, recording: Recording, document: dict[str, Any]) -> None:
    if not recording.processes:
        return
    kernels = document["kernels"]
    launches, processes = sum(each["launches"] for each in kernels), document["processes"]
    facts = [
        counted(len(kernels), "kernel"),
        counted(len(recording.specializations), "specialization"),
        "1 launch" if launches == 1 else f"{launches:,} launches",
        "1 process" if processes == 1 else f"{processes:,} processes",
    ]
    out.line(f"{path}: {', '.join([*facts, *document['archs']])}", style="cyan")
    if kernels:
        columns = ("specializations", "launches", "trials", "warmups", "winners")
        rows = [(each["name"], *(f"{each[name]:,}" if each[name] else "-" for name in columns)) for each in kernels]
        out.table(("kernel", ">specializations", ">launches", ">only tried", ">only warmed up", ">winners"), rows)
    for each in document["distributions"]:
        if each["version"]:
            out.line(f"source of {each['name']} {each['version']}, licence: {each['license'] or 'not stated'}")
        else:
            out.line(f"source of {each['name']}, which no installed distribution holds, licence: not known")
    for problem in document["problems"]:
        out.line(f"not recorded: {problem['where'] or 'the program'}: {problem['what']}")
