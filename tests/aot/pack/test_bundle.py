"""Packing: what goes in comes out through the reader, each image once, and the same bytes whoever packs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from nojit.aot.manifest.archs import target_of
from nojit.aot.pack.bundle import GROUP_RAW_BYTES, BundleContent, pack
from nojit.aot.pack.grouping import group_alike
from nojit.aot.pack.tables import KernelContent
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import PackageError
from nojit.runtime.table.parts import Param

from tests.aot.contents import bundle_content, kernel_content, with_param
from tests.aot.entries import entries, spec


def content_of(name: str = "k", images: list[bytes] | None = None, **fields: Any) -> KernelContent:
    """A kernel with one variant per image, or as `fields` say."""
    if images is not None:
        fields["matrix"] = {"D": list(range(len(images)))}
    content = kernel_content(spec(name=name, **fields))
    assert content is not None
    if images is None:
        return content
    pairs = tuple(
        (variant, replace(made, image=image)) for (variant, made), image in zip(content.variants, images, strict=True)
    )
    return replace(content, variants=pairs)


def read(content: BundleContent, folder: Path) -> BundleFile:
    path = folder / "demo.nojit"
    path.write_bytes(pack(content).data)
    return BundleFile(path)


def noise(seed: int, length: int) -> bytes:
    """Bytes that do not compress."""
    return hashlib.shake_128(seed.to_bytes(4, "little")).digest(length)


@settings(deadline=None, max_examples=25)
@given(st.lists(entries(sound=True), min_size=1, max_size=2), st.sampled_from(["sm_80", "sm_90"]))
def test_what_goes_in_comes_out(tmp_path_factory, drawn, arch):
    made = [kernel_content(structs.replace(entry.spec(), name=f"k{i}"), arch) for i, entry in enumerate(drawn)]
    kernels = tuple(content for content in made if content is not None)
    content = bundle_content(*kernels, arch=arch)
    with read(content, tmp_path_factory.mktemp("bundle")) as bundle:
        bundle.verify()
        index = bundle.index
        assert (index.name, index.version, index.target) == ("demo", "1.0", target_of(arch))
        assert (index.toolchain, index.min_driver, index.inputs) == (content.toolchain, 12000, "0" * 64)
        assert bundle.kernels == tuple(kernel.name for kernel in kernels)
        for kernel in kernels:
            table = bundle.table(kernel.name)
            images = sorted(bundle.image(kernel.name, number) for number in table.columns["image"])
            assert images == sorted(compiled.image for _, compiled in kernel.variants)
            assert sorted(table.columns["registers"]) == sorted(made.registers for _, made in kernel.variants)


class TestImages:
    def test_equal_ones_of_a_kernel_are_stored_once(self, tmp_path):
        shared, own = noise(1, 500), noise(2, 500)
        content = bundle_content(content_of("a", [shared, own, shared]), content_of("b", [shared]))
        packed = pack(content)
        assert (packed.images, packed.image_bytes) == (3, 1500)
        with read(content, tmp_path) as bundle:
            numbers = bundle.table("a").columns["image"]
            assert [bundle.image("a", number) for number in numbers] == [shared, own, shared]
            assert bundle.image("b", bundle.table("b").columns["image"][0]) == shared
            assert [entry.images for entry in bundle.index.kernels] == [2, 1]
            assert [entry.groups for entry in bundle.index.kernels] == [1, 1]

    def test_groups_keep_to_their_limit(self, tmp_path):
        images = [noise(seed, GROUP_RAW_BYTES // 4 + 1) for seed in range(10)]
        with read(bundle_content(content_of("k", images)), tmp_path) as bundle:
            assert [group.images for group in bundle.groups("k")] == [3, 3, 3, 1]
            assert all(group.raw_bytes <= GROUP_RAW_BYTES for group in bundle.groups("k"))
            assert sorted(bundle.images()) == sorted(images)

    def test_groups_of_small_images_are_short(self, tmp_path):
        images = [noise(seed, 8192) for seed in range(20)]
        with read(bundle_content(content_of("k", images)), tmp_path) as bundle:
            assert [group.images for group in bundle.groups("k")] == [2] * 10
        larger = [noise(seed, 16 * 1024 + 1) for seed in range(14)]
        with read(bundle_content(content_of("k", larger)), tmp_path) as bundle:
            assert [group.images for group in bundle.groups("k")] == [3, 3, 3, 3, 2]
        tiny = [noise(seed, 512) for seed in range(100)]
        with read(bundle_content(content_of("k", tiny)), tmp_path) as bundle:
            assert [group.images for group in bundle.groups("k")] == [32, 32, 32, 4]

    def test_an_image_past_the_limit_has_a_group_for_itself(self, tmp_path):
        images = [noise(1, 100), noise(2, GROUP_RAW_BYTES + 1), noise(3, 100)]
        with read(bundle_content(content_of("k", images)), tmp_path) as bundle:
            sizes = sorted(group.raw_bytes for group in bundle.groups("k"))
            assert sizes[-1] == GROUP_RAW_BYTES + 1
            assert sum(group.images for group in bundle.groups("k")) == 3
            assert sorted(bundle.images()) == sorted(images)

    def test_a_first_launch_decompresses_one_large_image_alone(self, tmp_path):
        family = noise(0, 48 * 1024)
        images = [family + noise(seed, 64) for seed in range(1, 5)]
        with read(bundle_content(content_of("k", images)), tmp_path) as bundle:
            assert [group.images for group in bundle.groups("k")] == [1] * 4

    def test_look_alikes_are_neighbours(self):
        families = [[noise(family, 4096) + noise(100 * family + i, 64) for i in range(4)] for family in range(4)]
        mixed = [image for members in zip(*families, strict=True) for image in members]
        together = pack(bundle_content(content_of("k", [image for family in families for image in family])))
        assert pack(bundle_content(content_of("k", mixed))).payload_bytes < 1.05 * together.payload_bytes
        (group,) = group_alike(mixed, sum(map(len, mixed)))
        assert [image[:4096] for image in group] == [image[:4096] for family in families for image in family]

    @settings(deadline=None)
    @given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=20, unique=True), st.integers(1, 600))
    def test_grouping_loses_and_repeats_nothing(self, images, limit_bytes):
        groups = list(group_alike(images, limit_bytes))
        assert sorted(image for group in groups for image in group) == sorted(images)
        assert all(len(group) == 1 or sum(map(len, group)) <= limit_bytes for group in groups)


class TestSameBytes:
    def test_whatever_the_order_of_the_kernels(self):
        kernels = [content_of(name, params={"x": "*fp16"}, matrix={"D": [1, 2]}, hints=[{"x": 16}]) for name in "abc"]
        first = pack(bundle_content(*kernels))
        assert pack(bundle_content(*kernels[::-1])) == first
        assert pack(bundle_content(kernels[1], kernels[2], kernels[0])) == first

    def test_whatever_the_number_of_processors(self, monkeypatch):
        content = bundle_content(content_of("k", [noise(seed, 200_000) for seed in range(5)]))
        made = set()
        for processors in (1, 7, None):
            monkeypatch.setattr(os, "cpu_count", lambda processors=processors: processors)
            made.add(pack(content).data)
        assert len(made) == 1

    def test_and_others_for_other_content(self):
        kernel = content_of(params={"x": "*fp16"}, matrix={"D": [1, 2]})
        content = bundle_content(kernel)
        (variant, made), *rest = kernel.variants
        changes: list[dict[str, Any]] = [
            {"name": "other"},
            {"version": "1.1"},
            {"target": target_of("sm_80")},
            {"toolchain": (("fake", "2.0"),)},
            {"min_driver": 13000},
            {"inputs": "1" * 64},
        ]
        for change in (
            {"image": b"other"},
            {"registers": 33},
            {"spill_bytes": 1},
            {"launch": replace(made.launch, shared_bytes=16)},
            {"launch": replace(made.launch, pdl=True)},
            {"launch": replace(made.launch, symbol="other")},
        ):
            changed = replace(kernel, variants=((variant, replace(made, **change)), *rest))
            changes.append({"kernels": (changed,)})
        changes += [{"kernels": (replace(kernel, **change),)} for change in ({"name": "l"}, {"grid": ("1",)})]
        digests = [pack(content).digest, *(pack(replace(content, **change)).digest for change in changes)]
        assert len(set(digests)) == len(digests)

    def test_how_long_compiling_took_is_not_content(self):
        kernel = content_of(matrix={"D": [1, 2]})
        slower = tuple((variant, replace(made, compile_ms=99)) for variant, made in kernel.variants)
        assert pack(bundle_content(replace(kernel, variants=slower))) == pack(bundle_content(kernel))


def test_the_digest_is_the_readers(tmp_path):
    content = bundle_content(content_of())
    with read(content, tmp_path) as bundle:
        assert bundle.digest == pack(content).digest


def test_sizes_are_told(tmp_path):
    packed = pack(bundle_content(content_of("k", [noise(1, 1000), bytes(1000)])))
    assert (packed.images, packed.image_bytes) == (2, 2000)
    assert 1000 < packed.payload_bytes < 1100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../demo"}, "expected a name of letters"),
        ({"name": "x" * 300}, "expected a name of letters"),
        ({"toolchain": (("b", "1"), ("a", "1"))}, "expected tools sorted by name"),
        ({"inputs": "none"}, "expected 64 lower-case hex digits"),
    ],
)
def test_no_bundle_that_its_reader_would_refuse(change, message):
    with pytest.raises(PackageError, match=rf"expected content that the bundle format can hold, got {message}"):
        pack(replace(bundle_content(content_of()), **change))


def test_nor_a_kernel(tmp_path):
    kernel = content_of(params={"x": "*fp16"})
    for broken in (
        replace(kernel, grid=("cdiv(",)),
        replace(kernel, variants=kernel.variants * 2),
        with_param(kernel, Param("größe", constexpr=True)),
        replace(kernel, name="../k"),
    ):
        with pytest.raises(PackageError, match="expected content that the bundle format can hold, got "):
            pack(bundle_content(broken))


class TestAttachments:
    def test_what_goes_in_comes_out_sorted_by_name(self, tmp_path):
        attached = (("z.json", b"{}"), ("a", b""), ("long", noise(3, 9 << 20)))
        content = bundle_content(content_of(), attachments=attached)
        with read(content, tmp_path) as bundle:
            bundle.verify()
            assert bundle.attachments == ("a", "long", "z.json")
            assert {name: bundle.attachment(name) for name in bundle.attachments} == dict(attached)
        assert pack(content).data == pack(replace(content, attachments=attached[::-1])).data

    @pytest.mark.parametrize("length", [4096, 4097, 1 << 20, 64 << 20])
    def test_bytes_that_compress_well_stay_within_what_readers_expand(self, tmp_path, length):
        content = bundle_content(content_of(), attachments=(("zeros", bytes(length)),))
        with read(content, tmp_path) as bundle:
            assert bundle.attachment("zeros") == bytes(length)

    def test_images_are_stored_as_without_them(self):
        plain = bundle_content(content_of())
        without, attached = pack(plain), pack(replace(plain, attachments=(("a", b"b"),)))
        assert (without.images, without.payload_bytes) == (attached.images, attached.payload_bytes)
        assert without.data[-without.payload_bytes :] == attached.data[-attached.payload_bytes :]

    @pytest.mark.parametrize(
        ("attached", "said"),
        [
            ((("a", b""), ("a", b"")), "expected attachments sorted by name, each once"),
            ((("a/b", b""),), "expected a name of letters"),
            ((("a", bytes((64 << 20) + 1)),), "expected an integer from 0 to 67108864"),
            (tuple((f"a{i:02}", b"") for i in range(65)), "expected at most 64"),
        ],
    )
    def test_what_readers_would_refuse_is_not_packed(self, attached, said):
        with pytest.raises(PackageError, match="expected content that the bundle format can hold") as caught:
            pack(bundle_content(content_of(), attachments=attached))
        assert said in str(caught.value.__cause__)
