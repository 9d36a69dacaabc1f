"""The sums over images and groups in C, held against the rules as the specification states them."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.format import GROUP_BYTES_MAX, IMAGE_BYTES_MAX
from nojit.runtime.payload import _refuse_groups

Sizes = list[list[int]]
"""The length of each image, by group."""


def sections(sizes: Sizes, stored: list[int]) -> tuple[bytes, bytes]:
    """Lay out both sections."""
    images = b"".join([struct.pack("<I", size) for group in sizes for size in group])
    groups = zip(sizes, stored, strict=True)
    return images, b"".join([struct.pack("<III32x", len(group), packed, sum(group)) for group, packed in groups])


def sums(images: bytes, groups: bytes) -> list[list[int]] | None:
    told = _core.sum_groups(images, groups)
    return None if told is None else [memoryview(numbers).cast("Q").tolist() for numbers in told]


def refused(images: bytes, groups: bytes) -> bool:
    try:
        _refuse_groups(images, groups, "here")
    except BundleFormatError:
        return True
    return False


image_sizes = st.integers(1, 1 << 20)
bundles = st.lists(st.tuples(st.lists(image_sizes, min_size=1, max_size=6), st.integers(0, 1 << 20)), max_size=8)


@given(bundles)
def test_sums_are_those_of_the_lengths(groups: list[tuple[list[int], int]]) -> None:
    sizes, stored = [sizes for sizes, _ in groups], [packed for _, packed in groups]
    flat = [size for group in sizes for size in group]
    expected = [[*accumulate(numbers, initial=0)] for numbers in ([*map(len, sizes)], flat, stored)]
    assert sums(*sections(sizes, stored)) == expected
    assert not refused(*sections(sizes, stored))


@settings(max_examples=300)
@given(bundles.filter(bool), st.data())
def test_what_is_passed_is_what_python_passes(groups: list[tuple[list[int], int]], data: st.DataObject) -> None:
    images, records = sections([sizes for sizes, _ in groups], [packed for _, packed in groups])
    part = data.draw(st.sampled_from([images, records]))
    place = data.draw(st.integers(0, len(part) // 4 - 1)) * 4
    word = data.draw(st.sampled_from([0, 1, 2, IMAGE_BYTES_MAX, IMAGE_BYTES_MAX + 1, (1 << 32) - 1]))
    changed = part[:place] + struct.pack("<I", word) + part[place + 4 :]
    images, records = (changed, records) if part is images else (images, changed)
    assert (sums(images, records) is None) == refused(images, records)


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
    images, groups = sections(sizes, stored)
    assert sums(images, groups) is None
    assert refused(images, groups)


def test_the_longest_are_summed() -> None:
    images, groups = sections([[IMAGE_BYTES_MAX]] * 3, [GROUP_BYTES_MAX] * 3)
    longest = [0, IMAGE_BYTES_MAX, 2 * IMAGE_BYTES_MAX, 3 * IMAGE_BYTES_MAX]
    assert sums(images, groups) == [[0, 1, 2, 3], longest, longest]


def test_parts_of_entries_are_refused() -> None:
    images, groups = sections([[1, 2], [3]], [1, 1])
    assert sums(images[:-1], groups) is sums(images, groups[:-1]) is sums(images, groups + b"\0") is None
    assert sums(b"", b"") == [[0], [0], [0]]
