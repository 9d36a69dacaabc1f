"""Output of commands: tables or one JSON object on standard output, everything else on standard error."""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from nojit.aot.manifest.archs import check_arch, check_target, known_archs
from nojit.runtime.base.wording import counted
from nojit.runtime.errors import ManifestError

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

__all__ = [
    "GROUP_OPTIONS",
    "JOBS",
    "JSON_SCHEMA",
    "PLACE",
    "Arch",
    "Number",
    "Output",
    "clean",
    "colourful",
    "counted",
    "driver_version",
    "duration",
    "error_label",
    "given_option",
    "number_range",
    "output_options",
    "size",
]

# version of the JSON output; a version may gain fields, but never lose or change them
JSON_SCHEMA = 1

# width without a terminal: no line breaks
_UNBOUNDED = 10_000
# spaces between two cells, and the least width of a last column that wraps
_GAP = 2
_ROOM = 48
# stands for a space where `textwrap` must not break
_TIE = "\u00a0"

GROUP_OPTIONS: Final = "nojit.options"
"""Key in click's context for the counts of the output options that precede the command's name."""
_OPTIONS: Final = ("as_json", "quiet", "verbose")

P = ParamSpec("P")
R = TypeVar("R")


class _Place(click.Path):
    """Type of file and folder options. It does not check existence: an unreadable path is a failure, not wrong usage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path; refuse an empty one, which pathlib takes for the current folder."""
        if value == "":
            self.fail("expected a path, got ''", param, ctx)
        return super().convert(value, param, ctx)


PLACE: Final = _Place(path_type=Path, readable=False)


JOBS: Final = click.IntRange(1, 1024)
"""Type of options for a number of processes. Each has a thread and a folder: a larger number would fill the machine, not help."""


class Arch(click.ParamType):  # type: ignore[type-arg] # generic since click 8.2, and not before
    """Type of options for a GPU architecture. The toolchain checks whether it can build for the architecture.

    Args:
        families: whether the option takes the architecture of a family, too, such as ``sm_100f``.
    """

    name = "arch"

    def __init__(self, *, families: bool = False) -> None:
        self._check = check_target if families else check_arch

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if its spelling is valid."""
        try:
            return self._check(str(value), "")
        except ManifestError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the known architectures that start with `incomplete`."""
        return [CompletionItem(arch) for arch in known_archs() if arch.startswith(incomplete)]


class Number(click.FloatRange):
    """Type of options for a finite number in a range. click alone accepts ``nan``, because every comparison with it is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the value as a number in the range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"expected a number, got {value!r}", param, ctx)
        return number


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command: text or JSON, at a verbosity."""

    json: bool
    """One JSON object on standard output instead of text."""
    verbosity: int
    """Verbosity: -1 for quiet, 0 by default, 1 with ``-v``, 2 with ``-vv``."""

    @property
    def quiet(self) -> bool:
        """Whether to print only errors and warnings."""
        return self.verbosity < 0

    def emit(self, command: str, document: Mapping[str, Any]) -> None:
        """Write the command's result as one JSON object if --json was given.

        `document`: the JSON object.
        """
        if self.json:
            click.echo(json.dumps({"schema": JSON_SCHEMA, "command": command, **document}, indent=2))

    def line(self, text: str = "", style: str = "", margin: int = 4) -> None:
        """Write one line of text, except with --json or -q.

        On a narrow terminal the line breaks between words; further lines are indented by `margin` more columns.
        """
        if not self.json and not self.quiet:
            for part in _wrapped_line(clean(text), _width(sys.stdout), margin):
                click.echo(_styled(part, style, sys.stdout))

    def block(self, text: str) -> None:
        """Write text of several lines unchanged, except with --json or -q."""
        if not self.json and not self.quiet:
            click.echo(text.rstrip("\n"))

    def note(self, text: str) -> None:
        """Print a note on standard error, unless quiet."""
        if not self.quiet:
            click.echo(clean(text), err=True)

    def warn(self, text: str) -> None:
        """Print a warning on standard error, always."""
        click.echo(clean(text, keep="\n"), err=True)

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Write names and values in two columns, except with --json or -q.

        `pairs`: (name, value) of each line.
        """
        rows = list(pairs)
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            self.line(f"{name:{width}}  {value}", margin=width + _GAP)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[str]], *, indent: int = 0) -> None:
        """Write columns; a header that starts with ``>`` marks a column of numbers, aligned to the right.

        Without a terminal every row is one line. On a narrow terminal a last column of text moves below its row; on a still narrower one
        each row becomes a paragraph of names and values. No cell is truncated: the terminal breaks words that are too wide.
        """
        if self.json or self.quiet:
            return
        cells = [[clean(cell) for cell in row] for row in rows]
        console = rich_console(sys.stdout)
        widths = [max(len(row[i]) for row in [headers, *cells]) for i in range(len(headers))]
        width = console.width
        used = indent + sum(taken + _GAP for taken in widths[:-1])
        # a last column of text may wrap, down to a least width; one of numbers must not
        least = widths[-1] if headers[-1].startswith(">") else min(widths[-1], _ROOM)
        if used + least <= width:
            lines = _columns(console, headers, cells, indent)
        elif headers[-1].startswith(">") or used - _GAP > width:
            lines = [line for row in cells for line in _paragraph(headers, row, width, indent)]
        else:
            lines = []
            console.width = _UNBOUNDED
            narrow = _columns(console, headers[:-1], [row[:-1] for row in cells], indent)
            for line, last in zip(narrow, [headers[-1], *(row[-1] for row in cells)], strict=True):
                margin = " " * (indent + 4)
                lines += [line, *_wrapped(last, width, margin)]
        click.echo("\n".join(line.rstrip() for line in lines), color=console.color_system is not None)


def _width(stream: IO[str]) -> int:
    """Return the number of columns of a terminal; for other streams a number larger than any line needs."""
    bounded = stream.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if bounded else _UNBOUNDED


def _wrapped_line(text: str, width: int, margin: int) -> list[str]:
    """Return a line broken between words to fit a width; paths and digests stay whole for copying."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=" " * margin, break_long_words=False, break_on_hyphens=False)


def _paragraph(headers: Sequence[str], row: Sequence[str], width: int, indent: int) -> Iterator[str]:
    """Yield the lines of a row that is too wide for columns: its first cell, names and values, then a last column of text."""
    first = not headers[0].startswith(">")
    last = not headers[-1].startswith(">")
    # if the first column has numbers, the last column names the row
    title = row[0] if first else row[-1] if last else ""
    inner = range(int(first), len(headers) - int(last))
    facts = [f"{headers[i].lstrip('>')} {row[i]}" for i in inner if row[i] not in {"", "-"}]
    yield from _wrapped(title, width, " " * indent)
    # lines break after a fact, not within one
    joined = ", ".join(fact.replace(" ", _TIE) for fact in facts)
    yield from (line.replace(_TIE, " ") for line in _wrapped(joined, width, " " * (indent + 4)))
    if first and last:
        yield from _wrapped(row[-1], width, " " * (indent + 4))


def _wrapped(text: str, width: int, margin: str) -> list[str]:
    """Return a text as indented lines, broken between words; paths stay whole for copying.

    `margin`: indentation of all lines but the first.
    """
    return textwrap.wrap(
        text,
        width,
        initial_indent=margin,
        subsequent_indent=f"{margin}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _columns(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]], indent: int) -> list[str]:
    from rich.padding import Padding  # slow to import, and JSON needs none
    from rich.table import Table  # slow to import
    from rich.text import Text  # slow to import

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for number, header in enumerate(headers, 1):
        justify: JustifyMethod = "right" if header.startswith(">") else "left"
        wraps = number == len(headers) and justify == "left"
        table.add_column(header.lstrip(">"), justify=justify, no_wrap=not wraps, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    with console.capture() as captured:
        console.print(Padding(table, (0, 0, 0, indent), expand=False))
    return captured.get().splitlines()


def given_option(names: Iterable[str]) -> str | None:
    """Return the first option that the command line of the running command gives, of those with some params; None if it gives none.

    `names`: names of the params.
    """
    context = click.get_current_context()
    opts = {param.name: param.opts[-1] for param in context.command.params}
    return next(
        (opts[name] for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE), None
    )


def output_options(command: Callable[Concatenate[Output, P], R]) -> Callable[P, R]:
    """Add ``--json``, ``-q`` and ``-v`` to a command; pass an `Output` as its first argument."""

    @click.option("--json", "as_json", is_flag=True, default=False, help="Write one JSON object on standard output.")
    @click.option("-q", "--quiet", is_flag=True, default=False, help="Print only errors and warnings.")
    @click.option("-v", "--verbose", count=True, help="Print more; -vv adds tracebacks.")
    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        # options before the command's name count too
        before = click.get_current_context().meta.get(GROUP_OPTIONS, {})
        given: dict[str, Any] = {name: kwargs.pop(name) for name in _OPTIONS}
        as_json, quiet, verbose = (int(given[name]) + before.get(name, 0) for name in _OPTIONS)
        return command(Output(as_json > 0, -1 if quiet else verbose), *args, **kwargs)

    return wrapped


def rich_console(stream: IO[str]) -> Console:
    """Return a console on a stream: with colours on a terminal, without a width limit elsewhere."""
    from rich.console import Console  # slow to import, and JSON needs none

    bounded = stream.isatty() or "COLUMNS" in os.environ
    return Console(
        file=stream,
        width=None if bounded else _UNBOUNDED,
        color_system="auto" if colourful(stream) else None,
        no_color=not colourful(stream),
        markup=False,
        highlight=False,
    )


def colourful(stream: IO[str]) -> bool:
    """Return whether a stream takes colours: a terminal with colours, not disabled by the user."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def error_label() -> str:
    """Return the word that an error starts with."""
    return _styled("error:", "red", sys.stderr)


def _styled(text: str, style: str, stream: IO[str]) -> str:
    return click.style(text, fg=style) if style and colourful(stream) else text


def clean(text: str, keep: str = "") -> str:
    """Return a text with unprintable characters escaped, so that names in a bundle cannot control the terminal.

    `keep`: characters to leave unescaped.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def size(length_bytes: int) -> str:
    """Return a size as text: ``812 B``, ``24.1 KB``, ``1.93 MB`` (powers of 1000)."""
    if length_bytes < 1000:
        return f"{length_bytes} B"
    value, units = length_bytes / 1000, ["KB", "MB", "GB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {units[0]}"


def duration(seconds: float) -> str:
    """Return a duration as text: ``0.4 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 10 min``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def number_range(least: int, most: int) -> str:
    """Return a range as text: ``32``, ``32-255``."""
    return f"{least:,}" if least == most else f"{least:,}-{most:,}"


def driver_version(number: int) -> str:
    """Return the CUDA version of a number from ``cuDriverGetVersion`` as text: 13010 is ``13.1``."""
    return f"{number // 1000}.{number % 1000 // 10}"
