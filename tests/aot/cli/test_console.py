"""How numbers are spelled, what is escaped, and how tables fit a terminal."""

from __future__ import annotations

import io
import sys

import pytest
from nojit.aot.cli.console import (
    Output,
    clean,
    colourful,
    counted,
    driver_version,
    duration,
    number_range,
    rich_console,
    size,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 KB"),
        (9994, "9.99 KB"),
        (9996, "10.0 KB"),
        (99_949, "99.9 KB"),
        (99_960, "100 KB"),
        (999_400, "999 KB"),
        (999_600, "1.00 MB"),
        (1_930_000, "1.93 MB"),
        (5_000_000_000, "5.00 GB"),
        (5_000_000_000_000, "5000 GB"),
    ],
)
def test_size(length: int, expected: str) -> None:
    assert size(length) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (245, "4 min 05 s"), (7800, "2 h 10 min")],
)
def test_duration(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_small_spellings() -> None:
    assert (counted(1, "variant"), counted(1204, "variant")) == ("1 variant", "1,204 variants")
    assert (number_range(32, 32), number_range(24, 255)) == ("32", "24-255")
    assert (driver_version(13000), driver_version(12090)) == ("13.0", "12.9")


def test_clean() -> None:
    assert clean("plain é 中") == "plain é 中"
    assert clean("a\x1b[31mb\x07\u202e\udc80") == "a\\x1b[31mb\\x07\\u202e\\udc80"
    assert clean("a\nb\tc", keep="\n") == "a\nb\\tc"


def test_colour_needs_a_terminal_that_was_not_told_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colourful(Terminal())
    assert not colourful(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colourful(Terminal())
    assert rich_console(Terminal()).no_color
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not colourful(Terminal())


def _table(monkeypatch: pytest.MonkeyPatch, columns: int, label: str) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    Output(json=False, verbosity=0).table((">regs", "image", "variant"), [("32", "abcdef", label)])
    return stream.getvalue().splitlines()


def test_long_last_column_goes_below_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    label = " ".join(f"word{number:03}" for number in range(12))
    assert _table(monkeypatch, 160, label) == ["regs  image   variant", f"  32  abcdef  {label}"]
    narrow = _table(monkeypatch, 50, label)
    assert narrow[2] == "  32  abcdef"
    assert " ".join(line.strip() for line in narrow[3:]) == label
    assert max(map(len, narrow)) <= 50


def test_short_last_column_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _table(monkeypatch, 50, "short")[1] == "  32  abcdef  short"


@pytest.mark.parametrize("columns", [1, 12, 20, 30, 40, 47, 60])
def test_no_cell_is_dropped_or_cut(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    headers = ("kernel", ">variants", ">registers", ">shared B")
    row = ("flash_attention_fwd", "1,204", "104-255", "232,448")
    path = "/a/path/that-is/longer/than-most-of-these/are"
    tables = [(headers[:width], row[:width]) for width in (2, 3, 4)]
    tables += [(("kernel", ">raw", "path"), (*row[:2], path)), ((">regs", ">raw", "variant"), ("32", "1,204", path))]
    for names, cells in tables:
        monkeypatch.setattr(sys, "stdout", stream := Terminal())
        Output(json=False, verbosity=0).table(names, [cells])
        words = [word.rstrip(",") for word in stream.getvalue().split()]
        assert {*cells} | {name.lstrip(">").split()[0] for name in names[1:-1]} <= {*words}
        # no line is longer than it must be
        assert all(len(line) <= columns or ", " not in line for line in stream.getvalue().splitlines())


def test_a_row_without_room_is_a_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    headers = ("kernel", ">variants", ">configs", ">registers", ">spilling", ">shared B")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    rows = [("add", "4", "1", "22-32", "-", "0"), ("mul", "8", "2", "9", "1", "16")]
    Output(json=False, verbosity=0).table(headers, rows)
    assert stream.getvalue().splitlines() == [
        "add",
        "    variants 4, configs 1,",
        "      registers 22-32, shared B 0",
        "mul",
        "    variants 8, configs 2, registers 9,",
        "      spilling 1, shared B 16",
    ]


def test_a_line_breaks_between_words_and_goes_on_further_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    out = Output(json=False, verbosity=0)
    path = "a/path/that/cannot/be/broken/at/all.nojit"
    out.facts([("file", f"{path}, 5.51 KB"), ("variants", "4 with 4 distinct images")])
    out.line("OK      a.nojit  068183410d3a, 4 variants")
    assert stream.getvalue().splitlines() == [
        "file",
        f"          {path},",
        "          5.51 KB",
        "variants  4 with 4 distinct",
        "          images",
        "OK      a.nojit  068183410d3a,",
        "    4 variants",
    ]
