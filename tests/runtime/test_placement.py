"""Where a kernel's images lie, held against the rules as the specification states them."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit import runtime
from nojit.runtime import _core
from nojit.runtime._core import GROUP_BYTES_MAX, IMAGE_BYTES_MAX, Placement
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.bundle.format import HEADER_BYTES, Place
from nojit.runtime.errors import BundleError, BundleFormatError

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


def place(raw: bytes, images: int, payload_bytes: int) -> Placement:
    return Placement(raw, images, payload_bytes, "here")


def rule_of(raw: bytes, images: int, payload_bytes: int) -> str:
    """Return the rule that bytes break; empty if they break none."""
    try:
        place(raw, images, payload_bytes)
    except BundleFormatError as error:
        return error.rule
    return ""


def is_right(raw: bytes, images: int, payload_bytes: int) -> bool:
    """Say whether bytes keep the rules, as chapter 8 of the specification states them."""
    lengths = [number for (number,) in struct.iter_unpack("<I", raw[: 4 * images])]
    if len(raw) < 4 * images or (len(raw) - 4 * images) % 44:
        return False
    groups = list(struct.iter_unpack("<III32s", raw[4 * images :]))
    counts, stored, raws = ([group[field] for group in groups] for field in range(3))
    firsts = [0, *accumulate(counts)]
    return (
        all(0 < length <= IMAGE_BYTES_MAX for length in lengths)
        and firsts[-1] == images
        and all(counts)
        and raws == [sum(lengths[first:end]) for first, end in pairwise(firsts)]
        and max([*raws, *stored], default=0) <= GROUP_BYTES_MAX
        and sum(stored) == payload_bytes
        and sum(raws) <= 4096 + 64 * sum(stored)
    )


image_sizes = st.integers(1, 1 << 20)
kernels = st.lists(st.tuples(st.lists(image_sizes, min_size=1, max_size=6), st.integers(0, 1 << 20)), max_size=8)


@given(st.lists(st.tuples(st.lists(image_sizes, min_size=1, max_size=6), st.integers(1 << 17, 1 << 20)), max_size=8))
def test_every_image_is_found(groups: list[tuple[list[int], int]]) -> None:
    raw = placement([sizes for sizes, _ in groups], [packed for _, packed in groups])
    images, image, stored = sum(len(sizes) for sizes, _ in groups), 0, 0
    found = place(raw, images, sum(packed for _, packed in groups))
    assert found.groups() == tuple((len(sizes), packed, sum(sizes), bytes(32)) for sizes, packed in groups)
    for number, (sizes, packed) in enumerate(groups):
        for start, end in pairwise(accumulate(sizes, initial=0)):
            assert found.find(image) == (number, stored, packed, sum(sizes), bytes(32), start, end)
            image += 1
        stored += packed


@pytest.mark.parametrize(("stored", "raw_bytes"), [(0, 4096), (100, 4096 + 6400), (10_000, 4096 + 640_000)])
def test_what_groups_decompress_to_is_in_proportion_to_what_is_stored(stored: int, raw_bytes: int) -> None:
    assert rule_of(placement([[raw_bytes]], [stored]), 1, stored) == ""
    assert rule_of(placement([[raw_bytes, 1]], [stored]), 2, stored) == "size"


@settings(max_examples=300)
@given(kernels.filter(bool), st.data())
def test_only_what_keeps_the_rules_is_read(groups: list[tuple[list[int], int]], data: st.DataObject) -> None:
    sizes, payload_bytes = [sizes for sizes, _ in groups], sum(packed for _, packed in groups)
    raw, images = placement(sizes, [packed for _, packed in groups]), count(sizes)
    at = data.draw(st.integers(0, len(raw) // 4 - 1)) * 4
    word = data.draw(st.sampled_from([0, 1, 2, IMAGE_BYTES_MAX, IMAGE_BYTES_MAX + 1, (1 << 32) - 1]))
    changed = raw[:at] + struct.pack("<I", word) + raw[at + 4 :]
    assert (rule_of(changed, images, payload_bytes) == "") == is_right(changed, images, payload_bytes)


@settings(max_examples=300)
@given(kernels.filter(bool), st.integers(-3, 3))
def test_so_it_is_if_records_are_read_as_lengths(groups: list[tuple[list[int], int]], more: int) -> None:
    # eleven lengths are as long as a record
    sizes, payload_bytes = [sizes for sizes, _ in groups], sum(packed for _, packed in groups)
    raw, images = placement(sizes, [packed for _, packed in groups]), count(sizes) + 11 * more
    if 0 <= 4 * images <= len(raw):
        assert (rule_of(raw, images, payload_bytes) == "") == is_right(raw, images, payload_bytes)


@pytest.mark.parametrize(
    ("sizes", "stored", "rule"),
    [
        ([[0]], [9], "size"),
        ([[IMAGE_BYTES_MAX + 1]], [9], "size"),
        ([[]], [9], "groups"),
        ([[9]], [GROUP_BYTES_MAX + 1], "groups"),
        ([[9] * 2, []], [1, 1], "groups"),
    ],
)
def test_each_rule_is_kept(sizes: Sizes, stored: list[int], rule: str) -> None:
    assert rule_of(placement(sizes, stored), count(sizes), sum(stored)) == rule


def test_the_longest_are_found() -> None:
    raw = placement([[IMAGE_BYTES_MAX]] * 3, [GROUP_BYTES_MAX] * 3)
    found = place(raw, 3, 3 * GROUP_BYTES_MAX)
    assert found.find(2)[:4] == (2, 2 * GROUP_BYTES_MAX, GROUP_BYTES_MAX, IMAGE_BYTES_MAX)


def test_parts_of_entries_are_refused() -> None:
    raw = placement([[1, 2], [3]], [1, 1])
    for changed in (raw[:-1], raw + b"\0", raw[1:], raw[:12]):
        assert rule_of(changed, 3, 2) in {"groups", "size"}
    for images in (2, 4, len(raw) // 4 + 1, 1 << 62):
        assert rule_of(raw, images, 2) == "groups"
    assert rule_of(b"", 0, 0) == ""


def test_images_are_found_in_their_groups() -> None:
    raw = placement([[5, 7], [11], [13, 17, 19]], [100, 200, 300])
    told = place(raw, 6, 600)
    places = [(one.group, one.start, one.end) for one in (Place(*told.find(image)) for image in range(6))]
    assert places == [(0, 0, 5), (0, 5, 12), (1, 0, 11), (2, 0, 13), (2, 13, 30), (2, 30, 49)]
    for image in (-1, 6, 1 << 70):
        with pytest.raises(IndexError):
            told.find(image)


def test_groups_fill_the_payload_of_their_kernel() -> None:
    raw = placement([[5, 7], [11]], [100, 200])
    for payload_bytes in (0, 299, 301):
        assert rule_of(raw, 3, payload_bytes) == "groups"


def test_an_error_names_the_group() -> None:
    raw = placement([[5, 7], [11]], [100, 200])
    with pytest.raises(
        BundleFormatError, match=r"expected a group of 11 raw bytes.* got 12 raw, 200 stored - at here group 1"
    ):
        place(raw[: 12 + 44 + 8] + b"\x0c" + raw[12 + 44 + 9 :], 3, 300)


def test_a_section_is_parted_from_its_end() -> None:
    def split(raw: bytes, images: int, groups: int) -> tuple[bytes, bytes]:
        return _core.split_section(raw, images, groups, "here")

    assert split(b"table" + bytes(4 + 44), 1, 1) == (b"table", bytes(48))
    assert split(bytes(48), 1, 1) == (b"", bytes(48))
    assert split(b"table", 0, 0) == (b"table", b"")
    for raw, images, groups in ((b"", 1, 1), (bytes(47), 1, 1), (bytes(47), 1 << 62, 0), (bytes(47), 0, 1 << 62)):
        with pytest.raises(BundleFormatError, match="at here") as caught:
            split(raw, images, groups)
        assert caught.value.rule == "truncated"


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


def bytes_read() -> int:
    """Return how many bytes the process has read so far, this look included."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


def test_a_first_launch_reads_no_more_of_a_larger_library(tmp_path: Path, fakecuda: FakeCuda, faketorch: Any) -> None:
    read = []
    # the first makes Python read the modules that a launch takes
    for images in (10, 100, 10_000):
        path = tmp_path / f"{images}.nojit"
        path.write_bytes(library(images // 2).seal())
        look = -(bytes_read() - bytes_read())
        before = bytes_read()
        with runtime.load(path) as bundle:
            bundle.kernel("add")(faketorch.Tensor(0x4000), 64)
            read.append(bytes_read() - before - look)
            (file,) = bundle.files
            assert sum(one.images for one in file.index.kernels) == images + len(ADD.images)
            one = file.entry("add")
            (index_bytes,) = struct.unpack_from("<16xQ", path.read_bytes())
            expected = HEADER_BYTES + index_bytes + one.table.stored_bytes + one.payload_bytes
        assert images == 10 or read[-1] == expected
    assert fakecuda.launch_count() == 3


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
