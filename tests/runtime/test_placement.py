"""Where a kernel's images lie: what C says of them, held against the rules as the specification states them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit import runtime
from nojit.runtime import _core
from nojit.runtime._core import GROUP_BYTES_MAX, IMAGE_BYTES_MAX
from nojit.runtime.bundle import BundleFile
from nojit.runtime.errors import BundleError, BundleFormatError
from nojit.runtime.format import KernelEntry, Section
from nojit.runtime.payload import Place, Placement, _refuse_groups, decode_placement, split_section

from tests.fakecuda import FakeCuda
from tests.support.bundles import Parts, kernel

Sizes = list[list[int]]
"""The length of each image, by group."""


def placement(sizes: Sizes, stored: list[int]) -> bytes:
    """Lay out what stands behind a table."""
    images = b"".join([struct.pack("<I", size) for group in sizes for size in group])
    groups = zip(sizes, stored, strict=True)
    return images + b"".join([struct.pack("<III32x", len(group), packed, sum(group)) for group, packed in groups])


def count(sizes: Sizes) -> int:
    return sum(map(len, sizes))


def refused(raw: bytes, images: int, payload_bytes: int) -> bool:
    try:
        _refuse_groups(raw, entry(images, 0, payload_bytes), "here")
    except BundleFormatError:
        return True
    return False


def entry(images: int, groups: int, payload_bytes: int) -> KernelEntry:
    return KernelEntry("add", 1, images, groups, payload_bytes, Section(0, 0, ""))


image_sizes = st.integers(1, 1 << 20)
kernels = st.lists(st.tuples(st.lists(image_sizes, min_size=1, max_size=6), st.integers(0, 1 << 20)), max_size=8)


@given(st.lists(st.tuples(st.lists(image_sizes, min_size=1, max_size=6), st.integers(1 << 17, 1 << 20)), max_size=8))
def test_every_image_is_found(groups: list[tuple[list[int], int]]) -> None:
    raw = placement([sizes for sizes, _ in groups], [packed for _, packed in groups])
    images, image, stored = sum(len(sizes) for sizes, _ in groups), 0, 0
    assert _core.check_groups(raw, images, sum(packed for _, packed in groups))
    found = Placement(raw, images)
    for number, (sizes, packed) in enumerate(groups):
        for start, end in pairwise(accumulate(sizes, initial=0)):
            place = (number, stored, packed, sum(sizes), bytes(32), start, end)
            assert _core.find_image(raw, images, image) == place
            # the first by going through all groups, the others by where these start
            assert found.find(image) == place == Placement(raw, images).find(image)
            image += 1
        stored += packed


@pytest.mark.parametrize(("stored", "raw_bytes"), [(0, 4096), (100, 4096 + 6400), (10_000, 4096 + 640_000)])
def test_what_groups_decompress_to_is_in_proportion_to_what_is_stored(stored: int, raw_bytes: int) -> None:
    right, wrong = placement([[raw_bytes]], [stored]), placement([[raw_bytes, 1]], [stored])
    assert _core.check_groups(right, 1, stored)
    assert not refused(right, 1, stored)
    assert not _core.check_groups(wrong, 2, stored)
    assert rule_of(lambda: decode_placement(wrong, entry(2, 1, stored), "here")) == "size"


@settings(max_examples=300)
@given(kernels.filter(bool), st.data())
def test_what_is_passed_is_what_python_passes(groups: list[tuple[list[int], int]], data: st.DataObject) -> None:
    sizes, payload_bytes = [sizes for sizes, _ in groups], sum(packed for _, packed in groups)
    raw, images = placement(sizes, [packed for _, packed in groups]), count(sizes)
    place = data.draw(st.integers(0, len(raw) // 4 - 1)) * 4
    word = data.draw(st.sampled_from([0, 1, 2, IMAGE_BYTES_MAX, IMAGE_BYTES_MAX + 1, (1 << 32) - 1]))
    changed = raw[:place] + struct.pack("<I", word) + raw[place + 4 :]
    assert _core.check_groups(changed, images, payload_bytes) != refused(changed, images, payload_bytes)


@settings(max_examples=300)
@given(kernels.filter(bool), st.integers(-3, 3))
def test_so_it_is_if_records_are_read_as_lengths(groups: list[tuple[list[int], int]], more: int) -> None:
    # eleven lengths are as long as a record
    sizes, payload_bytes = [sizes for sizes, _ in groups], sum(packed for _, packed in groups)
    raw, images = placement(sizes, [packed for _, packed in groups]), count(sizes) + 11 * more
    if 0 <= 4 * images <= len(raw):
        assert _core.check_groups(raw, images, payload_bytes) != refused(raw, images, payload_bytes)


@pytest.mark.parametrize(
    ("sizes", "stored"),
    [
        ([[0]], [9]),
        ([[IMAGE_BYTES_MAX + 1]], [9]),
        ([[]], [9]),
        ([[9]], [GROUP_BYTES_MAX + 1]),
        ([[9] * 2, []], [1, 1]),
    ],
)
def test_each_rule_is_kept(sizes: Sizes, stored: list[int]) -> None:
    raw, images = placement(sizes, stored), count(sizes)
    assert not _core.check_groups(raw, images, sum(stored))
    assert refused(raw, images, sum(stored))


def test_the_longest_are_found() -> None:
    raw = placement([[IMAGE_BYTES_MAX]] * 3, [GROUP_BYTES_MAX] * 3)
    assert _core.check_groups(raw, 3, 3 * GROUP_BYTES_MAX)
    assert _core.find_image(raw, 3, 2)[:4] == (2, 2 * GROUP_BYTES_MAX, GROUP_BYTES_MAX, IMAGE_BYTES_MAX)


def test_parts_of_entries_are_refused() -> None:
    raw = placement([[1, 2], [3]], [1, 1])
    for changed in (raw[:-1], raw + b"\0", raw[1:], raw[:12]):
        assert not _core.check_groups(changed, 3, 2)
    for images in (-1, 2, 4, len(raw) // 4 + 1, 1 << 62):
        assert not _core.check_groups(raw, images, 2)
    assert _core.check_groups(b"", 0, 0)


def test_bytes_that_were_not_checked_are_not_read_past_their_end() -> None:
    raw = placement([[1, 2], [3]], [1, 1])
    for changed, images in ((raw[:-1], 3), (raw[:12], 3), (b"", 3), (raw, 1 << 62), (bytes(len(raw)), 3)):
        with pytest.raises(ValueError, match="expected groups that were checked"):
            _core.find_image(changed, images, 2)


def test_images_are_found_in_their_groups() -> None:
    raw = placement([[5, 7], [11], [13, 17, 19]], [100, 200, 300])
    told = decode_placement(raw, entry(6, 3, 600), "here")
    places = [(place.group, place.start, place.end) for place in (Place(*told.find(image)) for image in range(6))]
    assert places == [(0, 0, 5), (0, 5, 12), (1, 0, 11), (2, 0, 13), (2, 13, 30), (2, 30, 49)]
    assert [group.raw_bytes for group in told.groups()] == [12, 11, 49]
    for image in (-1, 6):
        with pytest.raises(IndexError, match="expected an image below 6"):
            told.find(image)


def rule_of(read: Callable[[], Placement | tuple[bytes, bytes]]) -> str:
    with pytest.raises(BundleFormatError, match="at here") as caught:
        read()
    return caught.value.rule


def test_groups_fill_the_payload_of_their_kernel() -> None:
    raw = placement([[5, 7], [11]], [100, 200])
    for payload_bytes in (0, 299, 301):
        assert rule_of(lambda said=payload_bytes: decode_placement(raw, entry(3, 2, said), "here")) == "groups"


def test_a_section_is_parted_from_its_end() -> None:
    assert split_section(b"table" + bytes(4 + 44), entry(1, 1, 0), "here") == (b"table", bytes(48))
    assert split_section(bytes(48), entry(1, 1, 0), "here") == (b"", bytes(48))
    assert split_section(b"table", entry(0, 0, 0), "here") == (b"table", b"")
    for raw in (b"", bytes(47)):
        assert rule_of(lambda raw=raw: split_section(raw, entry(1, 1, 0), "here")) == "truncated"


# -- what a first launch reads ---------------------------------------------------------------------------------------

ADD = kernel("add", {"x_ptr": "*fp16", "n": "i32"}, hints=[{"x_ptr": 16}], grid=["cdiv(n, 1024)"])
# before it and behind it in the file
ABS, EXP = (kernel(name, {"x_ptr": "*fp16", "n": "i32"}) for name in ("abs", "exp"))


def library(images: int) -> Parts:
    """A bundle with a small kernel among two that have so many images each, ten to a group."""
    parts = Parts.of(ADD, ABS, EXP)
    many = tuple([str(number).encode() for number in range(images)])
    own, sizes = parts.images[1], parts.group_sizes[1]
    assert [name for name, _, _ in parts.tables] == ["abs", "add", "exp"]
    tens = (10,) * (images // 10)
    return replace(parts, images=(many, own, many), group_sizes=(tens, sizes, tens))


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count what is read of files at a place."""
    lengths: list[int] = []
    pread = os.pread

    def counted(fd: int, length: int, start: int) -> bytes:
        data = pread(fd, length, start)
        lengths.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    return lengths


def test_a_first_launch_reads_no_more_of_a_larger_library(
    tmp_path: Path, fakecuda: FakeCuda, faketorch: Any, read_bytes: list[int]
) -> None:
    read = []
    for images in (100, 10_000):
        path = tmp_path / f"{images}.nojit"
        path.write_bytes(library(images // 2).seal())
        read_bytes.clear()
        with runtime.load(path) as bundle:
            bundle.kernel("add")(faketorch.Tensor(0x4000), 64)
            (file,) = bundle.files
            assert sum(one.images for one in file.index.kernels) == images + len(ADD.images)
            header, index, *rest = read_bytes
            assert (header, index) == (64, file._header.index_bytes)
            one = file.entry("add")
            assert rest == [one.table.stored_bytes, one.payload_bytes]
            read.append(rest)
    assert read[0] == read[1]
    assert fakecuda.launch_count() == 2


def test_another_kernels_images_are_nobodys_business(tmp_path: Path) -> None:
    path = tmp_path / "broken.nojit"
    path.write_bytes(
        library(20).seal(edit=lambda part, raw: bytes(len(raw)) if part in {"images 0", "groups 2"} else raw)
    )
    with BundleFile(path) as file:
        assert file.image("add", 0) == ADD.images[0]
        assert len(file.table("add")) == 2
        for name, rule in (("abs", "size"), ("exp", "groups")):
            with pytest.raises(BundleFormatError, match=f"kernel {name}") as caught:
                file.table(name)
            assert caught.value.rule == rule
        with pytest.raises(BundleError):
            file.verify()
