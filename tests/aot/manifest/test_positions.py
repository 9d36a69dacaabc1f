"""Every key of a TOML document is found where it stands, however the document is written."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit.aot.manifest.positions import KeyPath, positions

from tests.aot.conftest import ROOT

DOCUMENTS = [
    ROOT / "pyproject.toml",
    *sorted((ROOT / "manifests").rglob("*.toml")),
    *(ROOT / "examples").rglob("*.toml"),
]

BARE = "abcXYZ019_-"
KEYS = st.one_of(
    st.text(BARE, min_size=1, max_size=4),
    st.sampled_from(["", "a b", "x.0", '"', "'", "\\", "é", "#", "[k]", "=", "a\tb", "\u2028"]),
)
STRINGS = st.one_of(
    st.text("ab \"'\\#,[]{}=\n", max_size=8),
    st.sampled_from(["", '"""', "'''", "# no comment", "x = 1", "\u2028", '""']),
)
SCALARS = st.one_of(
    st.booleans().map(lambda value: "true" if value else "false"),
    st.integers(-(1 << 40), 1 << 40).map(str),
    st.sampled_from(
        ["1.5e-3", "inf", "-nan", "0xff", "1_000", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00", "07:32:00"]
    ),
)


def paths(value: Any, path: KeyPath = ()) -> dict[KeyPath, Any]:
    found = {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found |= paths(item, (*path, key))
    return found


class Writer:
    """Writes a document as TOML allows it, one way or another, and notes where everything stands."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.text = ""
        self.offsets: dict[KeyPath, int] = {(): 0}

    def pick(self, *choices: str) -> str:
        return str(self.draw(st.sampled_from(choices)))

    def put(self, text: str) -> None:
        self.text += text

    def gap(self, *, lines: bool) -> None:
        self.put(self.pick("", "", " ", "\t", *((" # not = a [key]\n", "\n", "\r\n") if lines else ())))

    def string(self, value: str) -> str:
        escaped = "".join(
            f"\\{char}" if char in '"\\' else f"\\u{ord(char):04x}" if ord(char) < 32 else char for char in value
        )
        ways = [f'"{escaped}"', f'"""{escaped}"""', f'"""\n{escaped}\\\n   """']
        if "'" not in value and not any(ord(char) < 32 for char in value):
            ways.append(f"'{value}'")
        if "'''" not in value and not value.startswith("'") and "\t" not in value:
            # up to two quotes may end such a string
            ways.append(f"'''\n{value}'''")
        return self.pick(*[way for way in ways if _reads(way)])

    def key(self, key: str) -> None:
        bare = bool(key) and not set(key) - set(BARE)
        ways = [
            f'"{"".join(f"{chr(92)}{c}" if c in chr(34) + chr(92) else f"{chr(92)}u{ord(c):04x}" if ord(c) < 32 else c for c in key)}"'
        ]
        ways += [key] if bare else []
        ways += [f"'{key}'"] if "'" not in key and "\t" not in key else []
        self.put(self.pick(*ways))

    def keys(self, path: KeyPath, keys: list[str], *, last: bool) -> None:
        """Write a dotted key; its last part is at home elsewhere unless `last`."""
        for number, key in enumerate(keys):
            if number:
                self.gap(lines=False)
                self.put(".")
                self.gap(lines=False)
            path = (*path, key)
            if number < len(keys) - 1 or last:
                self.offsets.setdefault(path, len(self.text))
            self.key(key)

    def value(self, path: KeyPath, depth: int) -> None:
        kind = self.pick("scalar", "string", *(("array", "table") if depth else ()))
        if kind == "scalar":
            self.put(self.draw(SCALARS))
        elif kind == "string":
            self.put(self.string(self.draw(STRINGS)))
        elif kind == "array":
            self.array(path, depth)
        else:
            self.inline(path, depth)

    def array(self, path: KeyPath, depth: int) -> None:
        self.put("[")
        count = self.draw(st.integers(0, 3))
        for number in range(count):
            self.gap(lines=True)
            self.offsets[*path, number] = len(self.text)
            self.value((*path, number), depth - 1)
            self.gap(lines=True)
            if number < count - 1 or self.draw(st.booleans()):
                self.put(",")
        self.gap(lines=True)
        self.put("]")

    def inline(self, path: KeyPath, depth: int) -> None:
        self.put("{")
        for number, key in enumerate(self.draw(st.lists(KEYS, max_size=3, unique=True))):
            self.put(",") if number else None
            self.gap(lines=False)
            self.pair(path, key, depth - 1)
            self.gap(lines=False)
        self.put("}")

    def pair(self, path: KeyPath, key: str, depth: int) -> None:
        # the parts of a dotted key make tables of their own
        keys = [key, *self.draw(st.lists(KEYS, max_size=2))] if depth else [key]
        self.keys(path, keys, last=True)
        self.gap(lines=False)
        self.put("=")
        self.gap(lines=False)
        self.value((*path, *keys), depth)

    def pairs(self, path: KeyPath, taken: set[str]) -> None:
        for key in self.draw(st.lists(KEYS.filter(lambda key: key not in taken), max_size=3, unique=True)):
            self.gap(lines=True)
            self.pair(path, key, 2)
            self.put(self.pick("\n", " # comment\n", "\r\n", "\n\n"))

    def document(self) -> None:
        names = self.draw(st.lists(KEYS, min_size=1, max_size=4, unique=True))
        self.pairs((), set(names))
        for name in names:
            entries = self.draw(st.integers(0, 3))
            for entry in range(entries):
                # an array of tables
                self.put(self.pick("", "  "))
                start = len(self.text)
                self.put("[[")
                self.gap(lines=False)
                self.offsets.setdefault((name,), len(self.text))
                self.key(name)
                self.gap(lines=False)
                self.put("]]\n")
                self.offsets[name, entry] = start
                self.table((name, entry), [name])
            if not entries:
                self.put("[")
                self.gap(lines=False)
                self.offsets[name,] = len(self.text)
                self.key(name)
                self.put("] # a table\n")
                self.table((name,), [name])

    def table(self, path: KeyPath, header: list[str]) -> None:
        inner = self.draw(st.lists(KEYS, max_size=2, unique=True))
        self.pairs(path, set(inner))
        for key in inner:
            # a table below: the ones between it and this need no header of their own
            below = [key, *self.draw(st.lists(KEYS, max_size=2))]
            self.put("[")
            self.keys((), header, last=False)
            at = path
            for part in below:
                self.put(".")
                at = (*at, part)
                self.offsets.setdefault(at, len(self.text))
                self.key(part)
            self.put("]\n")
            self.pairs(at, set())


def _reads(text: str) -> bool:
    try:
        tomllib.loads(f"key = {text}")
    except tomllib.TOMLDecodeError:
        return False
    return True


@st.composite
def documents(draw: Any) -> tuple[str, dict[KeyPath, int]]:
    writer = Writer(draw)
    writer.document()
    return writer.text, writer.offsets


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(documents())
def test_every_key_is_found_where_it_stands(document: tuple[str, dict[KeyPath, int]]) -> None:
    text, offsets = document
    assert paths(tomllib.loads(text)).keys() == offsets.keys()
    assert positions(text) == offsets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_of_the_project(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert positions(text).keys() == paths(tomllib.loads(text)).keys()
