"""What somebody tries who may change a wheel, and what `nojit verify` and `inspect` make of it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import random
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.trust.envelope import signed_path

from tests.aot.cli.conftest import Run
from tests.support.bundles import kernel, make_bundle
from tests.support.signing import Signer, envelope, make_statement

Document = Callable[..., dict[str, Any]]
NAME = "acme_kernels_sm90-1.0-py3-none-any.whl"
ABOUT = "acme_kernels_sm90-1.0.dist-info"
RECORD = f"{ABOUT}/RECORD"
PACKAGE = "acme_kernels_sm90"
SIGNER = Signer.of("release")
FILE = (stat.S_IFREG | 0o644) << 16


@dataclass(frozen=True)
class Entry:
    """One file of a zip archive, and what its two headers say of it, where they lie."""

    name: str
    data: bytes
    local_name: str = ""
    attributes: int = FILE
    deflated: bool = False
    flags: int = 0
    extra: bytes = b""
    size: int | None = None
    """What the headers say of its length, if something else."""
    local: tuple[int, int] | None = None
    """Checksum and length in the local header, if others."""
    behind: bytes = b""
    """Bytes behind it."""
    stuffed: bytes = b""
    """Bytes behind its deflated stream, within its length as packed."""
    comment: bytes = b""
    """Of the central directory."""

    @property
    def packed(self) -> bytes:
        return zlib.compress(self.data, 9, -15) + self.stuffed if self.deflated else self.data

    def _facts(self, crc: int, size: int) -> bytes:
        method = 8 if self.deflated else 0
        return struct.pack("<HHHHHLLL", 20, self.flags, method, 0, 33, crc, len(self.packed), size)

    def header(self) -> bytes:
        size = len(self.data) if self.size is None else self.size
        name = (self.local_name or self.name).encode()
        facts = self._facts(*(self.local or (zlib.crc32(self.data), size)))
        return b"PK\3\4" + facts + struct.pack("<HH", len(name), len(self.extra)) + name + self.extra

    def listing(self, start: int) -> bytes:
        size = len(self.data) if self.size is None else self.size
        name = self.name.encode()
        facts = b"PK\1\2" + struct.pack("<H", 3 << 8 | 20) + self._facts(zlib.crc32(self.data), size)
        comment = len(self.comment)
        lengths = struct.pack("<HHHHHLL", len(name), len(self.extra), comment, 0, 0, self.attributes, start)
        return facts + lengths + name + self.extra + self.comment


def pack(entries: Iterable[Entry], *, before: bytes = b"", middle: bytes = b"", after: bytes = b"") -> bytes:
    """Lay out a zip archive, with bytes that belong to nothing."""
    body, listing, count = before, b"", 0
    for entry in entries:
        listing += entry.listing(len(body))
        body += entry.header() + entry.packed + entry.behind
        count += 1
    body += middle
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(listing), len(body), 0)
    return body + listing + end + after


def recorded(entries: Iterable[Entry]) -> list[Entry]:
    """Put a right RECORD behind files."""
    files = [entry for entry in entries if entry.name != RECORD]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for entry in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=").decode()
        writer.writerow([entry.name, f"sha256={digest}", len(entry.data)])
    writer.writerow([RECORD, "", ""])
    return [*files, Entry(RECORD, lines.getvalue().encode())]


def edited(entries: list[Entry], edit: Callable[[str], str]) -> list[Entry]:
    """Change the text of RECORD."""
    return [
        replace(entry, data=edit(entry.data.decode()).encode()) if entry.name == RECORD else entry for entry in entries
    ]


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """The files of a wheel as `nojit wheel` makes it, of a signed bundle."""
    from click.testing import CliRunner
    from nojit.aot.cli.group import cli

    folder = tmp_path_factory.mktemp("wheel")
    bundle = make_bundle(folder / "a.nojit", kernel("add", {"n": "i32"}), name="acme-kernels")
    Path(signed_path(str(bundle))).write_bytes(envelope(make_statement(bundle, build_number=3), SIGNER))
    words = ["wheel", str(bundle), "--out", str(folder), "--license", "MIT"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    with zipfile.ZipFile(folder / NAME) as archive:
        return [Entry(info.filename, archive.read(info)) for info in archive.infolist()]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "release.pub"
    path.write_text(SIGNER.pem)
    path.chmod(0o644)
    return path


Attack = Callable[[list[Entry]], bytes]
Write = Callable[[Attack], Path]


@pytest.fixture
def wheel(tmp_path: Path, entries: list[Entry]) -> Write:
    """Write what somebody makes of the wheel."""

    def write(attack: Attack) -> Path:
        path = tmp_path / NAME
        path.write_bytes(attack(entries))
        return path

    return write


# -- honest ones -----------------------------------------------------------------------------------------------------


def test_a_wheel_is_vouched_for_file_by_file(
    entries: list[Entry], wheel: Write, key: Path, run: Run, document: Document
) -> None:
    path = wheel(pack)
    shown = run("verify", path, "--key", key)
    assert (shown.exit_code, shown.stderr) == (0, "")
    names = [entry.name for entry in entries]
    assert shown.stdout.splitlines()[-1] == (
        f"OK      {path}  RECORD lists its {len(names) - 1} files and no other; 2 files signed; "
        f"listed by RECORD only, which anybody can write: {len(names) - 3} files"
    )
    (one,) = document("verify", path, "--key", key)["wheels"]
    assert sorted(one["signed"] + one["recorded"] + one["unvouched"]) == sorted(names)
    assert [name.rpartition(".")[2] for name in one["signed"]] == ["nojit", "jsonl"]
    assert (one["unvouched"], one["unusual"]) == ([RECORD], [])
    (plain,) = document("verify", path)["wheels"]
    assert plain["signed"] == []
    assert "no signature checked" in run("verify", path).stdout


def described(entry: Entry, *, signature: bool) -> Entry:
    """An entry as a tool writes it that does not know lengths beforehand."""
    facts = struct.pack("<LLL", zlib.crc32(entry.data), len(entry.packed), len(entry.data))
    behind = (b"PK\7\x08" if signature else b"") + facts
    # the packed length is of the local header too
    return replace(entry, flags=8, local=(zlib.crc32(entry.data), len(entry.data)), behind=behind)


@pytest.mark.parametrize("how", ["deflated", "timed", "python", "described", "signed descriptor"])
def test_wheels_of_other_tools_are_read(entries: list[Entry], wheel: Write, key: Path, run: Run, how: str) -> None:
    packed = io.BytesIO()
    if how == "python":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry in entries:
                archive.writestr(entry.name, entry.data)
    else:
        change: dict[str, Callable[[Entry], Entry]] = {
            "deflated": lambda entry: replace(entry, deflated=True),
            "timed": lambda entry: replace(entry, extra=struct.pack("<HHBL", 0x5455, 5, 1, 0)),
            "described": lambda entry: described(entry, signature=False),
            "signed descriptor": lambda entry: described(replace(entry, deflated=True), signature=True),
        }
        packed.write(pack(map(change[how], entries)))
    result = run("verify", wheel(lambda _: packed.getvalue()), "--key", key)
    assert (result.exit_code, result.stderr) == (0, "")


def test_code_is_listed(entries: list[Entry], wheel: Write, key: Path, run: Run, document: Document) -> None:
    """Whoever can write a wheel writes its RECORD: what runs when something is imported is no bundle's."""
    more = [
        Entry(f"{PACKAGE}/evil.py", b"import os\n"),
        Entry(f"{PACKAGE}/native.so", b"\x7fELF"),
        Entry("torch/extra.py", b""),
        Entry(f"{ABOUT}/odd.txt", b""),
    ]
    changed = [
        replace(entry, data=entry.data + b"import os\n") if entry.name.endswith("__init__.py") else entry
        for entry in entries
    ]
    points = next(entry for entry in entries if entry.name.endswith("entry_points.txt"))
    changed = [entry for entry in changed if entry is not points]
    more.append(replace(points, data=points.data + b"[console_scripts]\npython = evil:main\n"))
    path = wheel(lambda _: pack(recorded([*changed, *more])))
    result = run("verify", path, "--key", key)
    assert result.exit_code == 0
    unusual = [f"{PACKAGE}/__init__.py", *(entry.name for entry in more[:4]), "entry points console_scripts"]
    assert document("verify", path, "--key", key)["wheels"][0]["unusual"] == unusual
    assert f"files that nojit wheel never writes and no signature covers: {', '.join(unusual)}" in result.stderr


# -- what RECORD says ------------------------------------------------------------------------------------------------


def adding(name: str, data: bytes = b"import os\n") -> Attack:
    return lambda entries: pack(recorded([*entries, Entry(name, data)]))


def without(name: str) -> Attack:
    return lambda entries: pack(entry for entry in entries if entry.name != name)


def record(edit: Callable[[str], str]) -> Attack:
    return lambda entries: pack(edited(entries, edit))


def renamed(old: str, new: str) -> Attack:
    return lambda entries: pack(recorded(replace(entry, name=entry.name.replace(old, new)) for entry in entries))


RECORDS: dict[str, tuple[Attack, str]] = {
    "a .pth file": (adding("acme.pth"), "runs at each start of Python, got acme.pth"),
    "a .pth file deeper": (adding(f"{PACKAGE}/acme.pth"), "runs at each start"),
    "sitecustomize": (adding("sitecustomize.py"), "runs at each start"),
    "a package usercustomize": (adding("usercustomize/__init__.py"), "runs at each start"),
    "sitecustomize, compiled": (adding("sitecustomize.cpython-311-x86_64-linux-gnu.so"), "runs at each start"),
    "scripts": (adding("acme_kernels_sm90-1.0.data/scripts/python"), r"installed elsewhere \(\*.data\)"),
    "purelib": (adding("x.data/purelib/os.py"), r"installed elsewhere \(\*.data\)"),
    "a file that is not listed": (
        lambda entries: pack([*entries, Entry("acme.pth", b"import os")]),
        "only files that RECORD lists, got also acme.pth",
    ),
    "a signature of RECORD": (
        lambda entries: pack([*entries, Entry(f"{RECORD}.jws", b"")]),
        "only files that RECORD lists",
    ),
    "a file that is not there": (without(f"{ABOUT}/METADATA"), "every file that RECORD lists, got no .*METADATA"),
    "another content": (
        lambda entries: pack(
            replace(one, data=b"x" * len(one.data)) if "METADATA" in one.name else one for one in entries
        ),
        "as RECORD says, got",
    ),
    "another length": (
        record(lambda text: re.sub(r",\d+\n", ",7\n", text, count=1)),
        "expected 7 bytes .* as RECORD says",
    ),
    "no length": (record(lambda text: re.sub(r",\d+\n", ",\n", text, count=1)), "as RECORD says"),
    "no digest": (record(lambda text: text.replace("sha256=", "", 1)), "expected a digest in RECORD"),
    "a weak digest": (record(lambda text: text.replace("sha256=", "md5=", 1)), "expected a digest in RECORD"),
    "a line twice": (record(lambda text: text + text.splitlines(keepends=True)[0]), "each file once, got .* again"),
    "a line of two": (record(lambda text: text + "a,b\n"), "lines of a path, a digest and a length, got a,b"),
    "no CSV": (record(lambda text: text + '"a'), "comma-separated"),
    "no text": (
        lambda entries: pack(replace(one, data=b"\xff") if one.name == RECORD else one for one in entries),
        "expected text in UTF-8",
    ),
    "no RECORD": (without(RECORD), "expected RECORD"),
    "no dist-info": (
        lambda entries: pack(one for one in entries if ".dist-info" not in one.name),
        "expected one folder",
    ),
    "two dist-infos": (adding("other-1.0.dist-info/METADATA"), "expected one folder"),
    "another version's dist-info": (renamed("-1.0.dist-info", "-2.0.dist-info"), "expected one folder"),
}


@pytest.mark.parametrize("attack", RECORDS)
def test_a_wheel_holds_what_its_record_lists(
    wheel: Write, key: Path, run: Run, document: Document, attack: str
) -> None:
    make, said = RECORDS[attack]
    path = wheel(make)
    result = run("verify", path, "--key", key)
    # the bundle in it is as it was
    assert result.stdout.startswith(f"OK      {path}/{PACKAGE}/acme-kernels-1.0-sm_90.nojit")
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"FAILED  {path}  expected ")
    assert re.search(said, result.stderr), result.stderr
    written = document("verify", path, code=3)
    assert [one["ok"] for one in written["bundles"]] == [True]
    assert [one["ok"] for one in written["wheels"]] == [False]
    assert not written["ok"]


# -- archives that readers read differently, and that lead elsewhere -------------------------------------------------


def bundle_of(entries: list[Entry]) -> Entry:
    return next(entry for entry in entries if entry.name.endswith(".nojit"))


def changed(**facts: Any) -> Attack:
    """Change what is said of the bundle."""
    return lambda entries: pack(
        replace(entry, **facts) if entry is bundle_of(entries) else entry for entry in recorded(entries)
    )


def extra(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def twice(entries: list[Entry], *, first: bool) -> bytes:
    """The bundle, and another content under its name."""
    good = bundle_of(entries)
    bad = replace(good, data=bytes(len(good.data)))
    return pack([good, bad, *entries[1:]] if first else [*entries, bad])


def shared(entries: list[Entry]) -> bytes:
    """Two names for one place in the archive."""
    content = pack(entries)
    good = bundle_of(entries)
    twin = replace(good, name="x/another.nojit", local_name=good.name)
    place = content.index(good.header())
    listing = content.rindex(b"PK\5\6")
    end = struct.unpack("<4s4H2LH", content[listing:])
    added = twin.listing(place)
    facts = (end[0], 0, 0, end[3] + 1, end[4] + 1, end[5] + len(added), end[6], 0)
    return content[:listing] + added + struct.pack("<4s4H2LH", *facts)


def second_end(entries: list[Entry]) -> bytes:
    """Another archive in the comment of this one, or the other way round."""
    other = pack([Entry("x.nojit", b"another")])
    content = pack(entries)
    return content[:-2] + struct.pack("<H", len(other)) + other


def another_directory(entries: list[Entry]) -> bytes:
    """The central directory that readers of 64 bits are led to, in the comment of one that says otherwise."""
    good = bundle_of(entries)
    count, right = len(entries), pack(entries)
    listing_bytes, start = struct.unpack_from("<LL", right, len(right) - 10)
    right, listing = right[:start], right[start:][:listing_bytes]
    wrong = [replace(entry, name="acme/b.nojit") if entry is good else entry for entry in entries]
    place = start + listing_bytes + len("acme/b.nojit") - len(good.name)
    whole = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(listing), place)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, place + len(listing), 1)
    comment = listing + whole + locator
    said = b""
    for number, entry in enumerate(wrong):
        at = right.index((good if entry.name == "acme/b.nojit" else entry).header())
        said += replace(entry, comment=comment if number == count - 1 else b"").listing(at)
    return right + said + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(said), start, 0)


SHAPES: dict[str, tuple[Attack, str]] = {
    "a name twice, the good one first": (lambda entries: twice(entries, first=True), "expected each file once"),
    "a name twice, the good one last": (
        lambda entries: twice(entries[::-1], first=False),
        "expected each file once",
    ),
    "names that differ in case": (adding(f"{PACKAGE}/ACME-kernels-1.0-sm_90.nojit"), "differ in more than case"),
    "another local name": (changed(local_name="acme/b.nojit"), "a local header with the name in the central directory"),
    "another local length": (changed(local=(0, 7)), "a local header that equals the central directory"),
    "another local length of a described one": (
        changed(local=(0, 7), flags=8),
        "a local header that equals the central directory",
    ),
    "nothing behind a described one": (changed(flags=8, local=None), "after the file|local header"),
    "a name behind the name": (changed(extra=extra(0x7075, b"\1abcdx")), "no extra field that could change a name"),
    "lengths of 64 bits": (changed(extra=extra(1, bytes(16))), "no extra field that could change a name"),
    "a cut field": (changed(extra=struct.pack("<HH", 0x5455, 9)), "no extra field|Corrupt extra field"),
    "a path that leads out": (adding("../outside.nojit"), "paths of files inside the wheel"),
    "a path that leads out, within": (adding("acme/../../outside.nojit"), "paths of files inside the wheel"),
    "an absolute path": (adding("/outside.nojit"), "paths of files inside the wheel"),
    "a path of another system": (adding("..\\outside.nojit"), "paths of files inside the wheel"),
    "an empty part": (adding("acme//x.nojit"), "paths of files inside the wheel"),
    "a folder": (adding("acme/", b""), "paths of files inside the wheel"),
    "a name that ends early": (adding("acme/x.nojit\0.txt"), "paths of files inside the wheel"),
    "a name that writes to the terminal": (adding("acme/\x1b[2J.nojit"), "paths of files inside the wheel"),
    "a link": (changed(attributes=(stat.S_IFLNK | 0o777) << 16), "expected regular files, got l"),
    "a device": (changed(attributes=(stat.S_IFCHR | 0o666) << 16), "expected regular files, got c"),
    "encrypted": (changed(flags=1), "not encrypted"),
    "bytes before": (lambda entries: pack(entries, before=b"MZ"), "where the previous one ends"),
    "bytes between": (changed(behind=b"hidden"), "where the previous one ends"),
    "bytes before the directory": (lambda entries: pack(entries, middle=b"hidden"), "where the last file ends"),
    "bytes behind the end": (lambda entries: pack(entries, after=b"hidden"), "does not end as a zip archive"),
    "another archive behind": (
        lambda entries: pack(entries) + pack([Entry("x.nojit", b"x")]),
        "right after the central directory",
    ),
    "another archive in the comment": (second_end, "right after the central directory|without a comment"),
    "another directory, for readers of 64 bits": (
        lambda entries: another_directory(recorded(entries)),
        "a 32-bit zip archive",
    ),
    "a comment": (changed(comment=b"hidden"), "without a comment"),
    "a name of no one encoding": (adding("acme/\u00e9.nojit"), "ASCII names, or names marked as UTF-8"),
    "two names for one place": (shared, "where the previous one ends|Overlapped"),
    "more files than it says": (
        lambda entries: pack(entries).replace(struct.pack("<HH", len(entries), len(entries)), struct.pack("<HH", 1, 1)),
        "as the end of the archive says|.",
    ),
}


@pytest.mark.parametrize("command", ["verify", "inspect"])
@pytest.mark.parametrize("attack", SHAPES)
def test_a_wheel_has_one_reading(
    wheel: Write, run: Run, monkeypatch: pytest.MonkeyPatch, attack: str, command: str
) -> None:
    """And it is refused before anything is unpacked: there is no place for that."""
    make, said = SHAPES[attack]
    path = wheel(make)
    monkeypatch.setattr(tempfile, "tempdir", str(path.parent / "nowhere"))
    result = run(command, path)
    assert re.search(said, result.stderr), result.stderr
    assert str(path) in result.stderr
    assert result.exit_code in {1, 3}
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["verify", "inspect"])
@pytest.mark.parametrize("stuffed", [b"hidden", pack([Entry("x.py", b"hidden")]), bytes(3 << 20)])
def test_nothing_lies_behind_a_deflated_stream(wheel: Write, run: Run, stuffed: bytes, command: str) -> None:
    """Readers that go from file to file take it for the next."""
    whole = wheel(changed(deflated=True))
    assert run(command, whole).exit_code == 0
    result = run(command, wheel(changed(deflated=True, stuffed=stuffed)))
    assert result.exit_code == 3
    assert re.search(r"a deflated stream of \d+ bytes, got a shorter one", result.stderr), result.stderr


def test_no_change_of_a_byte_passes_that_changes_a_file(entries: list[Entry], wheel: Write, run: Run) -> None:
    """Times, versions and the like say nothing; whatever else differs is refused, and without a traceback."""
    content, files = pack(entries), {entry.name: entry.data for entry in entries}
    chance, passed = random.Random(0), 0
    # the archive's own words, and not only the files', which are most of it
    words = [
        *range(len(content) - 900, len(content)),
        *(content.index(entry.header()) + n for entry in entries for n in range(60)),
    ]
    for place in chance.sample(words, 150) + [chance.randrange(len(content)) for _ in range(50)]:
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        path = wheel(lambda _, changed=changed: bytes(changed))  # type: ignore[misc] # of this round
        result = run("verify", path)
        assert result.exit_code in {0, 1, 3}, (place, result.stderr)
        if result.exit_code == 0:
            passed += 1
            with zipfile.ZipFile(path) as archive:
                assert {name: archive.read(name) for name in archive.namelist()} == files, place
    assert 0 < passed < 100


# -- what takes more room than it has --------------------------------------------------------------------------------

ZEROS = bytes(64 << 20)
BOMBS: dict[str, Attack] = {
    "one file": lambda entries: pack([*entries, Entry("acme/z.nojit", ZEROS, deflated=True)]),
    "several files": lambda entries: pack(
        [*entries, *(Entry(f"acme/{n}.nojit", ZEROS[: 1 << 20], deflated=True) for n in range(24))]
    ),
    "files that are no bundles": lambda entries: pack(
        recorded([*entries, *(Entry(f"acme/{n}.txt", ZEROS[: 1 << 20], deflated=True) for n in range(24))])
    ),
    "too many files": lambda entries: pack([Entry(f"{n}", b"") for n in range(10_001)]),
}


@pytest.mark.parametrize("command", ["verify", "inspect"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_wheel_fills_no_disk(
    wheel: Write, run: Run, monkeypatch: pytest.MonkeyPatch, bomb: str, command: str
) -> None:
    path = wheel(BOMBS[bomb])
    assert path.stat().st_size < 2 << 20
    monkeypatch.setattr(tempfile, "tempdir", str(path.parent / "nowhere"))
    result = run(command, path)
    assert result.exit_code == 3
    assert "unpacks to at most" in result.stderr or "expected at most 10000 files" in result.stderr


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_a_file_that_unpacks_to_more_than_it_says_is_cut_off(
    wheel: Write, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """However much its data would come to: what the headers say is all that is written."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = wheel(lambda entries: pack([Entry("acme/z.nojit", ZEROS, deflated=True, size=1000), *entries]))
    result = run(command, path)
    assert result.exit_code == 3
    assert "expected 1000 bytes, got more" in result.stderr
    assert sum(one.stat().st_size for one in tmp_path.rglob("*") if one.is_file()) < 2 << 20
