"""Hsacos, AMD's images, are checked against what a table says of them."""

from __future__ import annotations

import random
import time

import pytest
from nojit.runtime.bundle.cubin import check_image, read_sections
from nojit.runtime.errors import BundleFormatError, BundleIntegrityError

from tests.support.cubins import CubinSpec, build_cubin
from tests.support.hsacos import MACHINES, HsacoKernel, build_hsaco, pack

ENTRY = {"symbol": "add", "sizes": (8, 8, 4, 8), "num_warps": 4, "num_ctas": 1, "image_arch": "gfx942", "where": "here"}


def check(image, **changes):
    return check_image(image, **(ENTRY | changes))


def test_what_was_built_passes():
    assert check(build_hsaco()) == ([(0, 8), (8, 8), (16, 4), (24, 8)], 0, 14)


@pytest.mark.parametrize(("arch", "wave"), [("gfx942", 64), ("gfx950", 64), ("gfx1201", 32)])
def test_a_block_has_the_threads_of_its_archs_waves(arch, wave):
    image = build_hsaco(HsacoKernel(threads=4 * wave, wave=wave), arch=arch)
    assert check(image, image_arch=arch)
    with pytest.raises(BundleIntegrityError, match=rf"expected 'add' to need blocks of \({8 * wave}, 1, 1\) threads"):
        check(image, image_arch=arch, num_warps=8)


def test_an_image_for_another_gfx_is_refused():
    with pytest.raises(BundleIntegrityError, match="expected an image for gfx942, got gfx950"):
        check(build_hsaco(arch="gfx950"))


def test_an_image_of_the_other_vendor_is_refused():
    with pytest.raises(BundleFormatError, match=r"machine 224 \(AMDGPU\), got type 2, machine 190") as caught:
        check(build_cubin(CubinSpec("add")))
    assert caught.value.rule == "hsaco-header"
    with pytest.raises(BundleFormatError, match=r"machine 190 \(CUDA\), got type 3, machine 224"):
        check(build_hsaco(), image_arch="sm_90a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"symbol": "sub"}, "expected kernel 'sub' in the image, got 'add'"),
        ({"sizes": (8, 8, 4)}, "expected 'add' to take 3 params, got 4"),
        ({"sizes": (8, 8, 8, 8)}, "expected param 2 of 'add' to be 8 bytes at offset 16, got 4 bytes at offset 16"),
        ({"num_ctas": 2}, "expected 'add' to need clusters of 2 CTAs, got none"),
    ],
)
def test_a_table_that_says_something_else_describes_another_image(change, message):
    with pytest.raises(BundleIntegrityError, match=message):
        check(build_hsaco(), **change)


def test_waves_of_another_size_are_refused():
    image = build_hsaco(HsacoKernel(wave=32))
    with pytest.raises(BundleIntegrityError, match="expected 'add' to have waves of 64 threads, got 32"):
        check(image)


def test_arguments_that_hip_fills_itself_are_none_of_a_launchs():
    kernel = HsacoKernel()
    hidden = {".offset": 32, ".size": 8, ".value_kind": "hidden_hostcall_buffer"}
    kernel.facts = {".args": [*kernel.arguments(), hidden], ".kernarg_segment_size": 40}
    assert len(check(build_hsaco(kernel))[0]) == 4


def test_other_kernels_of_an_image_do_not_matter():
    assert check(build_hsaco(HsacoKernel("before", (4,)), HsacoKernel()))
    with pytest.raises(BundleIntegrityError, match="got 'one', 'two'"):
        check(build_hsaco(HsacoKernel("one"), HsacoKernel("two")))


BROKEN = [
    ("hsaco-abi", build_hsaco(os_abi=0)),
    ("hsaco-abi", build_hsaco(abi=2)),
    ("hsaco-header", build_hsaco(kind=2)),
    ("hsaco-arch", build_hsaco(flags=0x53F)),
    ("hsaco-arch", build_hsaco(flags=0x64C)),
    ("hsaco-arch", build_hsaco(flags=0x94C)),
    ("hsaco-metadata", build_hsaco(metadata=b"")),
    ("hsaco-metadata", build_hsaco(metadata=b"\xc1")),
    ("hsaco-metadata", build_hsaco(metadata=b"\xdf\xff\xff\xff\xff")),
    ("hsaco-metadata", build_hsaco(metadata=pack({"amdhsa.kernels": b"\x91" * 40}))),
    ("hsaco-metadata", build_hsaco(metadata=pack({"amdhsa.kernels": [0]}))),
    ("hsaco-metadata", build_hsaco(HsacoKernel(facts={".wavefront_size": 16}))),
    ("hsaco-metadata", build_hsaco(HsacoKernel(facts={".args": [{".offset": 0, ".size": 0}]}))),
    ("hsaco-metadata", build_hsaco(HsacoKernel(facts={".args": [{".offset": 1 << 20, ".size": 8}]}))),
    ("hsaco-params", build_hsaco(HsacoKernel(facts={".kernarg_segment_size": 24}))),
    (
        "hsaco-params",
        build_hsaco(HsacoKernel(facts={".args": [{".offset": 8, ".size": 8}, {".offset": 0, ".size": 8}]})),
    ),
    ("hsaco-names", build_hsaco(HsacoKernel(), HsacoKernel())),
    ("hsaco-names", build_hsaco(symbols_before=("add.kd", 1))),
    ("hsaco-descriptor", build_hsaco(HsacoKernel(facts={".symbol": "sub.kd"}))),
    ("hsaco-descriptor", build_hsaco(HsacoKernel(descriptor={"shared": 64}))),
    ("hsaco-descriptor", build_hsaco(HsacoKernel(descriptor={"stack": 64}))),
    ("hsaco-descriptor", build_hsaco(HsacoKernel(descriptor={"arguments": 64}))),
    ("hsaco-descriptor", build_hsaco(HsacoKernel(descriptor={"wave": 32}))),
    ("hsaco-descriptor", build_hsaco(HsacoKernel(descriptor={"entry": 0}))),
]


@pytest.mark.parametrize(("rule", "image"), BROKEN)
def test_a_broken_rule_is_named(rule, image):
    with pytest.raises(BundleFormatError) as caught:
        check(image)
    assert caught.value.rule == rule


def test_many_kernels_of_many_symbols_do_not_cost_seconds():
    kernels = [HsacoKernel(f"add{number}", sizes=(8,)) for number in range(256)]
    image = build_hsaco(*kernels, symbols_before=("a" * 16000, 65000))
    start = time.process_time()
    with pytest.raises(BundleFormatError, match="expected at most 65536 symbols") as caught:
        check(image)
    assert caught.value.rule == "hsaco-symbols"
    assert time.process_time() - start < 1


def test_no_prefix_and_no_mutant_is_read_past_its_end():
    image = build_hsaco()
    chosen = random.Random(7)
    for size in range(0, len(image), 7):
        with pytest.raises((BundleFormatError, BundleIntegrityError)):
            check(image[:size])
    for _ in range(3000):
        mutant = bytearray(image)
        for _ in range(chosen.randrange(1, 4)):
            mutant[chosen.randrange(len(mutant))] = chosen.randrange(256)
        try:
            check(bytes(mutant))
        except (BundleFormatError, BundleIntegrityError):
            continue


def test_sections_of_both_vendors_are_read():
    assert read_sections(build_hsaco())[b".text"] == bytes(256)
    assert MACHINES.keys() == {"gfx942", "gfx950", "gfx1201"}
