"""Images are checked against what a table says of them: what was built passes, and nothing else."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.bundle.cubin import ImageFacts, check_image
from nojit.runtime.errors import BundleFormatError, BundleIntegrityError

from tests.support.cubins import CubinSpec, build_cubin, param_offsets
from tests.support.images import NOBITS, PROGBITS, Image, attribute, kernel_info, param


@dataclass(frozen=True)
class Entry:
    """What an index says of an image; by default of `Image()`."""

    symbol: str = "add"
    sizes: tuple[int, ...] = (8, 8, 4, 8)
    num_warps: int = 4
    num_ctas: int = 1
    image_arch: str = "sm_90a"

    def facts(self) -> tuple[str, tuple[int, ...], int, int, str]:
        """Return what both checks take."""
        return self.symbol, self.sizes, self.num_warps, self.num_ctas, self.image_arch


PLAIN = Entry()


def told(image: bytes, entry: Entry = PLAIN) -> ImageFacts | None:
    """Return the facts of an image; None if it is refused."""
    try:
        return check_image(image, *entry.facts(), "here")
    except (BundleFormatError, BundleIntegrityError):
        return None


def passes(image: bytes, entry: Entry = PLAIN) -> bool:
    """Say whether an image passes."""
    return told(image, entry) is not None


# what is right passes


ARCHS = [(75, "", 7), (80, "", 7), (80, "", 8), (89, "", 8), (90, "a", 7), (90, "a", 8), (100, "a", 8), (100, "", 8), (103, "a", 8),
         (120, "a", 8), (121, "a", 8)]  # fmt: skip
SIZES = [(), (8,), (8, 8, 4, 8), (1, 2, 1, 4, 1, 8), (8, 128, 4, 128, 4, 4, 8, 8), (1,) * 512]


@pytest.mark.parametrize(("sm", "suffix", "abi"), ARCHS)
@pytest.mark.parametrize("sizes", SIZES, ids=len)
@pytest.mark.parametrize("num_ctas", [1, 2, 16])
def test_what_is_right_passes(sm: int, suffix: str, abi: int, sizes: tuple[int, ...], num_ctas: int) -> None:
    image = build_cubin(CubinSpec("add", sizes, 8, num_ctas), sm=sm, suffix=suffix, abi=abi)
    entry = Entry(sizes=sizes, num_warps=8, num_ctas=num_ctas, image_arch=f"sm_{sm}{suffix}")
    assert told(image, entry) == (list(zip(param_offsets(sizes, sm), sizes, strict=True)), 0, 0)
    assert passes(image, entry)


@pytest.mark.parametrize(
    ("sm", "suffix", "section", "own"),
    [
        (80, "", 1024, 1024),
        (89, "", 2048, 2048),
        (90, "a", 1024, 0),
        (90, "a", 0, 0),
        (90, "a", 1028, 4),
        (100, "a", 3072, 2048),
    ],
)
def test_static_shared_memory_is_the_kernels_own(sm: int, suffix: str, section: int, own: int) -> None:
    image = build_cubin(CubinSpec("add", PLAIN.sizes, static_shared_bytes=section), sm=sm, suffix=suffix)
    entry = Entry(image_arch=f"sm_{sm}{suffix}")
    assert passes(image, entry)
    facts = told(image, entry)
    assert facts is not None
    assert facts[1] == own


def test_a_family_image_looks_plain() -> None:
    image = build_cubin(CubinSpec("add", PLAIN.sizes), sm=100, suffix="")
    assert passes(image, Entry(image_arch="sm_100f"))
    assert passes(image, Entry(image_arch="sm_100"))
    assert not passes(image, Entry(image_arch="sm_100a"))


def test_one_of_many_kernels() -> None:
    image = build_cubin(*[CubinSpec(f"k{n}", (8,) * n, 1 << n % 4) for n in range(32)])
    for n in range(32):
        assert passes(image, Entry(f"k{n}", (8,) * n, 1 << n % 4))
        assert not passes(image, Entry(f"k{n}", (8,) * (n + 1), 1 << n % 4))
    assert not passes(image)


@pytest.mark.parametrize(
    "info", [kernel_info(cluster=(1, 1, 1)), kernel_info() + attribute(5, struct.pack("<III", 256, 1, 1))]
)
def test_attributes_that_change_nothing_pass(info: bytes) -> None:
    assert passes(Image(info=info).build())


@pytest.mark.parametrize(
    "info",
    [
        kernel_info() + b"\x02\x17\x00\x00",
        kernel_info(reqntid=None),
        kernel_info(reqntid=(64, 2, 1)),
        kernel_info(cluster=(1, 2, 1)),
        kernel_info(bank_bytes=40),
        kernel_info() + param(2, 16, 4),
        kernel_info() + param(9, 32, 4),
        kernel_info() + param(511, 32, 4),
        kernel_info() + param(512, 32, 4),
        kernel_info() + param(65535, 32, 4),
        kernel_info() + b"\x04",
        kernel_info() + b"\x04\x2f\xff\xff",
        kernel_info() + b"\x00\x00\x00\x00",
        kernel_info() + b"\x05\x00\x00\x00",
        kernel_info(params=((0, 8), (8, 0), (16, 4), (24, 8))),
        kernel_info(params=((0, 8), (4, 8), (16, 4), (24, 8))),
        kernel_info(params=((0, 8), (8, 8), (16, 4), (20, 8))),
    ],
)
def test_attributes_that_are_wrong(info: bytes) -> None:
    assert not passes(Image(info=info).build())


@pytest.mark.parametrize(
    "entry",
    [
        Entry("sub"), Entry("ad"), Entry("addd"), Entry(""), Entry("add\0"), Entry("\ud800"), Entry("ädd"),
        Entry(sizes=()), Entry(sizes=(8, 8, 4)), Entry(sizes=(8, 8, 4, 8, 8)), Entry(sizes=(8, 8, 4, 0)),
        Entry(sizes=(8, 8, -4, 8)), Entry(sizes=(8, 8, 4, 2**40)), Entry(sizes=(8, 8, 65540, 8)), Entry(sizes=(8,) * 600),
        Entry(num_warps=8), Entry(num_warps=0), Entry(num_warps=-4), Entry(num_warps=4 + 2**27), Entry(num_warps=2**31 - 1),
        Entry(num_ctas=2), Entry(num_ctas=0), Entry(num_ctas=-1), Entry(num_ctas=2**31 - 1),
        Entry(image_arch="sm_90"), Entry(image_arch="sm_90f"), Entry(image_arch="sm_80"),
    ],
)  # fmt: skip
def test_another_entry(entry: Entry) -> None:
    assert not passes(Image().build(), entry)


@pytest.mark.parametrize(
    "arch", ["", "sm_", "sm_9", "sm_9a", "sm_a", "sm_90b", "sm_0090a", "sm_9\u0660a", "sm_90a ", "SM_90a", "\ud800"]
)
def test_an_arch_that_is_none(arch: str) -> None:
    with pytest.raises(ValueError, match="expected an image arch"):
        told(Image().build(), Entry(image_arch=arch))


def test_arguments_of_wrong_types() -> None:
    image: Any = Image().build()
    for facts in (
        ("add", [8], 4, 1, 90, True, "here"),
        (b"add", (8,), 4, 1, 90, True, "here"),
        ("add", (8,), 4, 1, 90, True),
        ("add", ("8",), 4, 1, 90, True, "here"),
    ):
        with pytest.raises(TypeError):
            _core.check_image(image, *facts)
    for facts in (("add", (2**80,), 4, 1, 90, True, "here"), ("add", (8,), 2**80, 1, 90, True, "here")):
        with pytest.raises(OverflowError):
            _core.check_image(image, *facts)


# what is wrong does not


def test_every_truncation() -> None:
    image = Image().build()
    assert passes(image)
    for length in range(len(image)):
        assert not passes(image[:length])


@pytest.mark.parametrize("abi", [7, 8])
def test_every_one_bit_flip(abi: int) -> None:
    flags, compat = (0x5A0D5A, b"") if abi == 7 else (0x6005A02, b"\x02\x09\x01\x00")
    info = kernel_info(cluster=(2, 1, 1))
    golden = Image(info=info, abi=abi, flags=flags, compat=compat).build()
    entry = Entry(num_ctas=2)
    assert passes(golden, entry)
    refused = 0
    for bit in range(len(golden) * 8):
        image = bytearray(golden)
        image[bit // 8] ^= 1 << bit % 8
        refused += not passes(bytes(image), entry)
    assert refused > len(golden)


GOLDEN = {
    "plain": (Image().build(), PLAIN),
    "abi 7": (build_cubin(CubinSpec("add", (8, 4)), sm=80, suffix="", abi=7), Entry(sizes=(8, 4), image_arch="sm_80")),
    "two kernels": (build_cubin(CubinSpec("add", (8, 128, 4)), CubinSpec("b")), Entry(sizes=(8, 128, 4))),
    "a cluster": (build_cubin(CubinSpec("add", (8,), 8, 4), sm=100), Entry("add", (8,), 8, 4, "sm_100a")),
}
NUMBERS = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    12,
    24,
    63,
    64,
    127,
    128,
    129,
    255,
    2**15,
    2**16 - 1,
    2**31,
    2**32 - 1,
    2**63,
    2**64 - 64,
    2**64 - 1,
]
CHANGES = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([1, 2, 4, 8]), st.sampled_from(NUMBERS)), min_size=1, max_size=4
)


def changed(image: bytes, changes: list[tuple[float, int, int]]) -> bytes:
    """Write numbers of some widths over an image, at multiples of their widths."""
    out = bytearray(image)
    for where, width, number in changes:
        at = int(where * (len(out) - width)) // width * width
        out[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(out)


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(sorted(GOLDEN)), CHANGES)
def test_numbers_written_over_it(name: str, changes: list[tuple[float, int, int]]) -> None:
    image, entry = GOLDEN[name]
    passes(changed(image, changes), entry)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(GOLDEN)), st.floats(0, 1), st.integers(0, 80), st.binary(max_size=80))
def test_bytes_put_in_and_taken_out(name: str, where: float, cut: int, more: bytes) -> None:
    image, entry = GOLDEN[name]
    at = int(where * len(image))
    passes(image[:at] + more + image[at + cut :], entry)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_garbage(garbage: bytes) -> None:
    passes(garbage)
    passes(Image(info=garbage).build())
    passes(Image(compat=garbage, flags=0x6005A02).build())


def test_damage_by_the_thousand() -> None:
    """More than Hypothesis has time for, and less cleverly."""
    made = random.Random(5)
    for number in range(6000):
        image, entry = GOLDEN[made.choice(sorted(GOLDEN))]
        count = made.choice((1, 1, 2, 3))
        changes = [(made.random(), made.choice((1, 2, 4, 8)), made.choice(NUMBERS)) for _ in range(count)]
        assert passes(changed(image, changes), entry) in {True, False}, number


def test_a_symbol_that_is_there_twice() -> None:
    image = Image()
    image.section(".symtab")[2] += image.symbols()[24:48]
    assert not passes(image.build())


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        (".text.add", 0, ".text.sub"), (".text.add", 1, NOBITS), (".nv.info.add", 0, ".nv.info.sub"),
        (".nv.info.add", 1, NOBITS), (".nv.info.add", 4, 6), (".nv.info", 1, NOBITS), (".nv.compat", 1, NOBITS),
        (".symtab", 0, ".symtac"), (".symtab", 1, PROGBITS), (".symtab", 2, bytes(25)), (".symtab", 2, bytes(24 * 65_537)),
        (".symtab", 3, 99), (".symtab", 3, 4), (".shstrtab", 1, PROGBITS), (".nv.compat", 0, ".nv.info"),
        (".strtab", 2, b"\0add"), (".strtab", 2, b"\0\xff\xfe\0"), (".strtab", 2, b"\0" + b"a" * 20_000 + b"\0"),
        (".nv.info", 2, attribute(0x2F, bytes(4))), (".nv.info", 2, b"\x01\x11\x00\x00"), (".nv.info", 2, b"\x01"),
    ],
)  # fmt: skip
def test_bad_sections(section: str, field: int, value: Any) -> None:
    image = Image(flags=0x6005A02)
    image.section(section)[field] = value
    assert not passes(image.build())


@pytest.mark.parametrize("section", [".nv.shared.add", ".text.add", ".nv.info"])
@pytest.mark.parametrize("offset", [1 << 16, 1 << 32, (1 << 64) - 1])
def test_a_section_that_starts_outside_the_image(section: str, offset: int) -> None:
    image = Image()
    image.offsets[section] = offset
    assert not passes(image.build())


# at the limits, which are the same for both


def sections(count: int) -> bytes:
    """Build an image of so many sections."""
    image = Image()
    image.sections += [[f".m{number}", PROGBITS, b"", 0, 0] for number in range(count - len(image.sections))]
    return image.build()


def test_most_sections() -> None:
    assert passes(sections(256))
    assert not passes(sections(257))


def test_most_params() -> None:
    for count, expected in ((512, True), (513, False)):
        image = build_cubin(CubinSpec("add", (4,) * count))
        assert passes(image, Entry(sizes=(4,) * count)) is expected


def test_a_name_that_is_not_ascii() -> None:
    assert not passes(Image("ädd").build(), Entry("ädd"))


def test_section_names_that_share_their_bytes() -> None:
    image, long = Image(), b"n" * 2000
    image.sections += [[f".m{number}", PROGBITS, b"", 0, 0] for number in range(200)]
    image.sections.append([long.decode(), PROGBITS, b"", 0, 0])
    built = bytearray(image.build())
    assert passes(bytes(built))
    (headers,) = struct.unpack_from("<Q", built, 40)
    names_at = struct.unpack_from("<Q", built, headers + 64 + 24)[0]
    start = built.index(b"\0" + long + b"\0", names_at) + 1 - names_at
    for place in range(200):
        # each ends where the long one does: together they would be many times the image
        struct.pack_into("<I", built, headers + 64 * (len(image.sections) - 2 - place), start + place + 1)
    assert not passes(bytes(built))


def test_most_attributes() -> None:
    # what Image() has already
    rest = 262_144 - 2 - 10 - 1
    fewer, more = (Image(info=kernel_info() + b"\x01\0\0\0" * count, flags=0x6005A02) for count in (rest, rest + 1))
    assert passes(fewer.build())
    assert not passes(more.build())
