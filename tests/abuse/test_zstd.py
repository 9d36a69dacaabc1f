"""Frames that a careful reader must not follow, each sealed with right hashes into a bundle."""

from __future__ import annotations

import ctypes.util
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime import _core
from nojit.runtime.bundle import file as bundle
from nojit.runtime.bundle import zstd
from nojit.runtime.errors import BundleError, BundleFormatError

from tests.support.bundles import compress
from tests.support.hostile import golden_parts, read_everything

RAW = b"what the frame holds, " * 8
PARTS = ("index", "section 0", "section 1", "group 0", "group 1", "group 2")
MAGIC, SKIPPABLE = b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"
MIB = 1 << 20


def frame(
    raw: bytes,
    *,
    declared: int | None = None,
    size_bytes: int = 4,
    window: int | None = None,
    dictionary: bytes = b"",
    checksum: bytes | None = None,
    reserved: bool = False,
) -> bytes:
    """Lay out a frame of raw blocks by hand, right unless told otherwise.

    Args:
        raw: the content.
        declared: its size as the frame declares it.
        size_bytes: the width of that field; 0 leaves it out.
        window: the window descriptor; None for a single segment.
        dictionary: the dictionary's id.
        checksum: empty leaves it out.
        reserved: whether the reserved bit is set.
    """
    descriptor = {0: 0, 1: 0, 2: 1, 4: 2, 8: 3}[size_bytes] << 6 | {0: 0, 1: 1, 2: 2, 4: 3}[len(dictionary)]
    descriptor |= (window is None) << 5 | reserved << 3 | (checksum is None or checksum != b"") << 2
    size = (len(raw) if declared is None else declared) - (256 if size_bytes == 2 else 0)
    head = MAGIC + bytes([descriptor]) + (b"" if window is None else bytes([window])) + dictionary
    chunks = [raw[at : at + 65536] for at in range(0, len(raw), 65536)] or [b""]
    blocks = b"".join(
        (len(chunk) << 3 | (i == len(chunks) - 1)).to_bytes(3, "little") + chunk for i, chunk in enumerate(chunks)
    )
    # zstd itself knows the hash of the content
    tail = compress(raw)[-4:] if checksum is None else checksum
    return head + (size.to_bytes(size_bytes, "little") if size_bytes else b"") + blocks + tail


def skippable(content: bytes) -> bytes:
    return SKIPPABLE + len(content).to_bytes(4, "little") + content


RIGHT: dict[str, Callable[[bytes], bytes]] = {
    "by zstd": compress,
    "hardest": lambda raw: compress(raw, 19),
    "by hand": frame,
    "with a window": lambda raw: frame(raw, window=0x38),
    "with a long size": lambda raw: frame(raw, size_bytes=8),
}
WRONG: dict[str, Callable[[bytes], bytes]] = {
    "no checksum": lambda raw: frame(raw, checksum=b""),
    "wrong checksum": lambda raw: frame(raw, checksum=b"\0\0\0\0"),
    "no size": lambda raw: frame(raw, size_bytes=0, window=0x38),
    "one byte less": lambda raw: frame(raw, declared=len(raw) - 1),
    "one byte more": lambda raw: frame(raw, declared=len(raw) + 1),
    "a huge size": lambda raw: frame(raw, declared=1 << 62, size_bytes=8),
    "unknown size": lambda raw: frame(raw, declared=(1 << 64) - 1, size_bytes=8),
    "a window of 1 GiB": lambda raw: frame(raw, window=20 << 3),
    "the largest window": lambda raw: frame(raw, window=0xFF),
    "a dictionary": lambda raw: frame(raw, dictionary=b"\1\0\0\0"),
    "a dictionary numbered 0": lambda raw: frame(raw, dictionary=b"\0"),
    "the reserved bit": lambda raw: frame(raw, reserved=True),
    "a second frame": lambda raw: compress(raw) + compress(raw),
    "an empty second frame": lambda raw: compress(raw) + compress(b""),
    "in two frames": lambda raw: compress(raw[:7]) + compress(raw[7:]),
    "a skippable frame after it": lambda raw: compress(raw) + skippable(b"hidden"),
    "a skippable frame before it": lambda raw: skippable(b"hidden") + compress(raw),
    "only a skippable frame": skippable,
    "a byte after it": lambda raw: compress(raw) + b"\0",
    "a byte less": lambda raw: compress(raw)[:-1],
    "no blocks": lambda raw: compress(raw)[:9],
    "the magic alone": lambda raw: MAGIC,
    "nothing": lambda raw: b"",
    "the content itself": lambda raw: raw,
    "an older magic": lambda raw: b"\x27" + compress(raw)[1:],
    "a block past its size": lambda raw: frame(raw + b"more", declared=len(raw)),
    "a block short of its size": lambda raw: frame(raw[:-4], declared=len(raw)),
}


# on Python 3.14 the runtime takes the standard library's; before that there is only the package
READERS = ["zstandard"]
if sys.version_info >= (3, 14):
    READERS.append("standard library")
# what programs without Python take
if ctypes.util.find_library("zstd") is not None:
    READERS.append("libzstd")
MAKERS: dict[str, Callable[[], Any]] = {
    "zstandard": zstd._with_zstandard,
    "standard library": zstd._with_stdlib,
    "libzstd": lambda: None,
}


@pytest.fixture(autouse=True, params=READERS)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read frames with each implementation that this Python has."""
    monkeypatch.setattr(bundle, "decompress", MAKERS[request.param]())
    monkeypatch.setitem(MAKERS, "current", MAKERS[request.param])


def decompress(frame: bytes, raw_bytes: int, where: str) -> bytes:
    return _core.read_frame(frame, raw_bytes, MAKERS["current"](), where)


def sealed_with(part: str, lie: Callable[[bytes], bytes]) -> bytes:
    return golden_parts().seal(frame=lambda name, raw: lie(raw) if name == part else compress(raw))


@pytest.mark.parametrize("form", RIGHT)
def test_every_right_frame_is_read(form: str) -> None:
    for raw in (RAW, b"1", bytes(300_000)):
        assert decompress(RIGHT[form](raw), len(raw), "here") == raw


def test_the_empty_frame_is_read() -> None:
    assert decompress(compress(b""), 0, "here") == b""


@pytest.mark.parametrize("form", WRONG)
@pytest.mark.parametrize("raw", [RAW, bytes(300_000), b"one"], ids=["text", "long", "short"])
def test_every_wrong_frame_is_refused(form: str, raw: bytes) -> None:
    with pytest.raises(BundleError, match="at here"):
        decompress(WRONG[form](raw), len(raw), "here")


@pytest.mark.parametrize("form", WRONG)
def test_a_wrong_frame_does_not_disturb_the_next(form: str) -> None:
    for raw in (RAW, bytes(300_000)):
        with pytest.raises(BundleError, match="at here"):
            decompress(WRONG[form](raw), len(raw), "here")
        assert decompress(compress(raw), len(raw), "here") == raw


EMPTY_CASES = sorted(WRONG.keys() - {"one byte less", "in two frames", "a block short of its size", "no blocks"})


@pytest.mark.parametrize("form", EMPTY_CASES)
def test_an_empty_frame_hides_nothing(form: str) -> None:
    with pytest.raises(BundleError):
        decompress(WRONG[form](b""), 0, "here")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("form", WRONG)
def test_right_hashes_do_not_help_a_wrong_frame(tmp_path: Path, part: str, form: str) -> None:
    path = tmp_path / "wrong.nojit"
    path.write_bytes(sealed_with(part, WRONG[form]))
    with pytest.raises(BundleError):
        read_everything(path)


@pytest.mark.parametrize("part", PARTS)
def test_other_right_frames_are_as_good(tmp_path: Path, part: str) -> None:
    path = tmp_path / "right.nojit"
    path.write_bytes(sealed_with(part, lambda raw: frame(raw, window=0x38, size_bytes=8)))
    assert read_everything(path) == 21


@pytest.mark.parametrize("size", [17 * MIB, 65 * MIB, 1 << 40], ids=["17 MiB", "65 MiB", "1 TiB"])
@pytest.mark.parametrize("part", PARTS)
def test_a_bomb_is_refused_before_anything_is_allocated(tmp_path: Path, part: str, size: int) -> None:
    if part != "index" and size < 64 * MIB:
        pytest.skip("within the limit of that part")
    # a kilobyte that claims to be large; only the index and the sections of kernels declare sizes that are not the frame's
    path = tmp_path / "bomb.nojit"
    path.write_bytes(sealed_with(part, lambda raw: frame(raw, declared=size, size_bytes=8)))
    tracemalloc.start()
    with pytest.raises(BundleFormatError):
        read_everything(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MIB
