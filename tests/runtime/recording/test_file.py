"""Recordings on disk: lines of processes that may be killed, merged without duplicates."""

import json
import os
from pathlib import Path

import pytest
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording import specialization
from nojit.runtime.recording.file import Writer, read_recording, write_recording

FACTS = {"triton": "3.9.0", "arch": "sm_90", "fake": True}


def a_specialization(block=64):
    return {
        "module": "m",
        "qualname": "k",
        "closure": "c",
        "params": ["x", "BLOCK"],
        "types": [["x", "*fp16"]],
        "hints": [["x", 16]],
        "constexprs": [["BLOCK", block]],
        "options": [],
        "functions": [],
        "arch": "sm_90",
    }


def add(writer, block=64, *, trial=False, warmup=False):
    found = a_specialization(block)
    digest = specialization.digest_of(found)
    writer.add("specialization", digest=digest, specialization=found, trial=trial, warmup=warmup)
    return digest


def test_what_is_written_is_read(tmp_path: Path):
    writer = Writer(tmp_path / "r", FACTS)
    digest = add(writer)
    writer.add("launches", process=writer.process, specialization=digest, count=3)
    writer.add("launches", process=writer.process, specialization=digest, count=5)
    recording = read_recording(tmp_path / "r")
    assert recording.specializations == {digest: a_specialization()}
    assert recording.launches(digest) == 5
    assert [each["arch"] for each in recording.processes.values()] == ["sm_90"]


def test_a_fifo_is_not_replaced_by_a_recording(tmp_path: Path):
    add(Writer(tmp_path / "r", FACTS))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RecordingError, match="expected to write a recording, got a FIFO - at "):
        write_recording(read_recording(tmp_path / "r"), tmp_path / "fifo")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "r"]


def test_nothing_is_written_before_the_first_line(tmp_path: Path):
    Writer(tmp_path / "r", FACTS)
    assert not (tmp_path / "r").exists()


def test_merging_twice_counts_no_launch_twice(tmp_path: Path):
    writer = Writer(tmp_path / "r", FACTS)
    digest = add(writer)
    writer.add("launches", process=writer.process, specialization=digest, count=3)
    write_recording(read_recording(tmp_path / "r"), tmp_path / "one.nojitrec")
    both = read_recording(tmp_path / "one.nojitrec", tmp_path / "r")
    assert both.launches(digest) == 3
    assert len(both.specializations) == 1
    write_recording(both, tmp_path / "two.nojitrec")
    assert (tmp_path / "two.nojitrec").read_bytes() == (tmp_path / "one.nojitrec").read_bytes()


def test_a_package_that_one_process_found_installed_keeps_its_version(tmp_path: Path):
    for versions in (("", "2.1"), ("2.1", "")):
        folder = tmp_path / f"r{versions[0]}"
        for version in versions:
            Writer(folder, FACTS).add("distribution", name="acme", version=version, license="")
        assert read_recording(folder).distributions["acme"]["version"] == "2.1"


@pytest.mark.parametrize("first", [True, False])
def test_a_launch_outside_of_trials_is_built_whatever_comes_first(tmp_path: Path, first):
    writer = Writer(tmp_path / "r", FACTS)
    digest = add(writer, trial=first)
    assert read_recording(tmp_path / "r").to_build() == ([] if first else [digest])
    add(writer, trial=not first)
    assert read_recording(tmp_path / "r").to_build() == [digest]


def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path):
    writer = Writer(tmp_path / "r", FACTS)
    add(writer, 64)
    child = os.fork()
    if not child:
        add(writer, 128)
        os._exit(0)
    os.waitpid(child, 0)
    assert len([*(tmp_path / "r").iterdir()]) == 2
    assert len(read_recording(tmp_path / "r").specializations) == 2


def test_an_unfinished_last_line_is_ignored(tmp_path: Path):
    writer = Writer(tmp_path / "r", FACTS)
    add(writer)
    (file,) = (tmp_path / "r").iterdir()
    with file.open("ab") as more:
        more.write(b'{"record":"specia')
    assert len(read_recording(tmp_path / "r").specializations) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "expected a JSON object, got list"),
        ("nonsense", "expected a line of JSON, got Expecting value"),
        ('{"record":"song"}', "a newer nojit may read it"),
        (
            '{"record":"closure","digest":"00","closure":{"definitions":[]}}',
            "expected a closure with the digest 00, got another",
        ),
        (
            '{"record":"specialization","digest":"00","specialization":{}}',
            "specialization with the digest 00, got another",
        ),
        (
            '{"record":"launches","process":"1","specialization":"00","count":"many"}',
            "expected a count of launches, got 'many'",
        ),
        ('{"record":"problem","what":1}', "expected a text in 'what', got int"),
        ("[" * 100_000, "got too many levels"),
    ],
)
def test_a_damaged_line_is_named_by_file_and_number(tmp_path: Path, line, message):
    writer = Writer(tmp_path / "r", FACTS)
    add(writer)
    (file,) = (tmp_path / "r").iterdir()
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(RecordingError, match=message) as caught:
        read_recording(tmp_path / "r")
    assert str(caught.value).count("expected") == 1
    assert caught.value.where == f"{file}:3"


def test_another_format_is_refused(tmp_path: Path):
    (tmp_path / "a.nojitrec").write_text(json.dumps({"record": "process", "format": 2, "process": "1"}) + "\n")
    with pytest.raises(RecordingError, match="expected a recording of format 1, got 2"):
        read_recording(tmp_path / "a.nojitrec")


@pytest.mark.parametrize("text", ["# A page\n", "[]\n", '{"record":"launches"}\n', "[" * 100_000 + "\n"])
def test_another_file_is_told_from_a_damaged_recording(tmp_path: Path, text):
    (tmp_path / "a.nojitrec").write_text(text)
    with pytest.raises(RecordingError) as caught:
        read_recording(tmp_path / "a.nojitrec")
    assert (caught.value.got, caught.value.where) == ("another file", str(tmp_path / "a.nojitrec"))


@pytest.mark.parametrize("name", ["absent", "empty", "folder"])
def test_no_recording_is_an_error_that_names_the_path(tmp_path: Path, name):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RecordingError, match=name):
        read_recording(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RecordingError, match="writable folder"):
        add(Writer(tmp_path / "file" / "r", FACTS))
