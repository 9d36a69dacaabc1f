"""A bundle that lost, changed or gained a single bit is refused, and by an error of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError

from tests.support.hostile import golden_parts, read_everything


@pytest.fixture(scope="module")
def golden() -> bytes:
    return golden_parts().seal()


@pytest.fixture
def damaged(tmp_path: Path, golden: bytes) -> Path:
    path = tmp_path / "damaged.nojit"
    path.write_bytes(golden)
    return path


def refused(path: Path) -> bool:
    try:
        read_everything(path)
    except BundleError:
        return True
    return False


def test_the_golden_bundle_is_accepted(damaged: Path) -> None:
    assert read_everything(damaged) == 21


def test_every_truncation_is_refused(damaged: Path, golden: bytes) -> None:
    with damaged.open("r+b") as file:
        accepted = []
        for length in range(len(golden) - 1, -1, -1):
            file.truncate(length)
            if not refused(damaged):
                accepted.append(length)
    assert not accepted


@pytest.mark.slow
def test_every_flipped_bit_is_refused(damaged: Path, golden: bytes) -> None:
    with damaged.open("r+b", buffering=0) as file:
        accepted = []
        for place, byte in enumerate(golden):
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), place)
                if not refused(damaged):
                    accepted.append((place, bit))
            os.pwrite(file.fileno(), bytes([byte]), place)
    assert not accepted


@pytest.mark.parametrize("extra", [b"\0", b"more", bytes(4096)], ids=["a zero", "a word", "a page"])
def test_appended_bytes_are_refused(damaged: Path, golden: bytes, extra: bytes) -> None:
    damaged.write_bytes(golden + extra)
    assert refused(damaged)


def test_a_bundle_in_front_of_another_is_refused(damaged: Path, golden: bytes) -> None:
    damaged.write_bytes(golden + golden)
    assert refused(damaged)


@pytest.mark.parametrize("content", [b"", b"nojit", bytes(64), b"\x7fELF" + bytes(200), b"PK\3\4" + bytes(200)])
def test_other_files_are_refused(damaged: Path, content: bytes) -> None:
    damaged.write_bytes(content)
    assert refused(damaged)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.nojit"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(BundleError, match="expected a regular file"):
            BundleFile(path)


def test_parts_of_two_bundles_make_none(damaged: Path, golden: bytes) -> None:
    # other values of the same length in a table and in the index: only the hashes tell
    others = (
        golden_parts().seal(
            edit=lambda _part, raw, digit=b"%d" % number: (
                raw.replace(b"n % BLOCK == 0", b"n % BLOCK == " + digit)
                .replace(b"n BLOCK % 0 ==", b"n BLOCK % " + digit + b" ==")
                .replace(b'"inputs":"0', b'"inputs":"' + digit)
            )
        )
        for number in range(1, 10)
    )
    other = next(other for other in others if len(other) == len(golden))
    damaged.write_bytes(other)
    assert read_everything(damaged) == 21
    differing = [place for place, (a, b) in enumerate(zip(golden, other, strict=True)) if a != b]
    for place in range(differing[0] + 1, differing[-1], 16):
        damaged.write_bytes(golden[:place] + other[place:])
        assert refused(damaged)
