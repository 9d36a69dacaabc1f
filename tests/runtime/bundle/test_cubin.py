import contextlib
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime.bundle.cubin import CubinKernel, check_image, read_cubin
from nojit.runtime.errors import BundleFormatError, BundleIntegrityError

from tests.support.images import NOBITS, POINTERS_AND_INT, PROGBITS, Image, attribute, kernel_info, param


def refused(image):
    with pytest.raises(BundleFormatError) as caught:
        read_cubin(image.build() if isinstance(image, Image) else image)
    assert caught.value.rule.startswith("cubin-")
    return caught.value


def test_reads_everything():
    info = read_cubin(Image(info=kernel_info(cluster=(2, 1, 1))).build())
    assert info.kernels == (
        CubinKernel(
            symbol="add",
            params=POINTERS_AND_INT,
            param_base=0x210,
            reqntid=(128, 1, 1),
            max_threads=None,
            cluster=(2, 1, 1),
            registers=40,
            stack_bytes=16,
            static_shared_bytes=1040,
            text_bytes=384,
            own_shared_bytes=16,
        ),
    )
    assert (info.sm, info.arch_specific, info.abi, info.toolkit, info.has_debug) == (90, True, 8, (13, 4), False)


@pytest.mark.parametrize(
    ("abi", "flags", "compat", "sm", "arch_specific"),
    [
        (7, 0x500550, b"", 80, False),
        (7, 0x5A0D5A, b"", 90, True),
        (7, 0x5A055A, b"", 90, False),
        (8, 0x600640A, b"\x02\x02\x01\x00", 100, True),
        (8, 0x6006402, b"\x02\x02\x01\x00", 100, False),
        (8, 0x6006702, b"\x02\x0c\x00\x00\x02\x09\x01\x00", 103, True),
        (8, 0x6006702, b"\x02\x09\x00\x00", 103, False),
        (8, 0x9007802, b"\x04\x0b\x08\x00\x10\x00\x00\x00\x00\x00\x00\x00\x02\x09\x01\x00", 120, True),
    ],
)
def test_reads_the_arch(abi, flags, compat, sm, arch_specific):
    info = read_cubin(Image(abi=abi, flags=flags, compat=compat).build())
    assert (info.sm, info.arch_specific, info.abi) == (sm, arch_specific, abi)


@pytest.mark.parametrize("name", [".debug_line", ".nv_debug_ptx_txt", ".nv_debug_line_sass", ".debug_str"])
def test_sees_debug_sections(name):
    image = Image()
    image.sections.append([".debug_frame", PROGBITS, bytes(8), 0, 0])
    assert not read_cubin(image.build()).has_debug
    image.sections.append([name, PROGBITS, b"/home/someone", 0, 0])
    assert read_cubin(image.build()).has_debug


def test_a_kernel_without_params():
    info = read_cubin(Image(info=attribute(0x37, struct.pack("<I", 129))).build())
    assert info.kernels[0].params == ()
    assert info.toolkit == (12, 9)


def test_reads_a_declared_limit_of_threads():
    info = read_cubin(Image(info=kernel_info(reqntid=None) + attribute(5, struct.pack("<III", 256, 1, 1))).build())
    assert (info.kernels[0].reqntid, info.kernels[0].max_threads) == (None, (256, 1, 1))


def test_device_functions_are_no_kernels():
    image = Image()
    image.section(".symtab")[2] = image.symbols(entry_flag=0)
    info = read_cubin(image.build())
    assert (info.kernels, info.toolkit) == ((), None)


# --- what it refuses


def test_every_truncation():
    image = Image().build()
    read_cubin(image)
    for length in range(len(image)):
        refused(image[:length])


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("magic", b"\x7fELG", "cubin-header"),
        ("machine", 62, "cubin-header"),
        ("type", 1, "cubin-header"),
        ("abi", 9, "cubin-abi"),
        ("abi", 6, "cubin-abi"),
    ],
)
def test_refuses_other_files(key, value, rule):
    image = Image()
    image.header[key] = value
    assert refused(image).rule == rule


@pytest.mark.parametrize(
    ("info", "rule"),
    [
        (b"\x05\x17\x00\x00", "cubin-info"),
        (b"\x04\x17\x0c\x00", "cubin-info"),
        (b"\x04\x17", "cubin-info"),
        (attribute(0x17, bytes(11)), "cubin-info"),
        (attribute(0x10, bytes(8)), "cubin-info"),
        (b"\x03\x17\x00\x00", "cubin-info"),
        (kernel_info(bank_bytes=28), "cubin-params"),
        (kernel_info(bank_bytes=40), "cubin-params"),
        (kernel_info(params=(), bank_bytes=8), "cubin-params"),
        (kernel_info(params=((0, 8), (4, 8))), "cubin-params"),
        (kernel_info(params=((0, 8), (8, 0))), "cubin-params"),
        (kernel_info() + param(2, 16, 4), "cubin-params"),
        (kernel_info() + param(9, 32, 4), "cubin-params"),
    ],
)
def test_refuses_bad_attributes(info, rule):
    assert refused(Image(info=info)).rule == rule


@pytest.mark.parametrize(
    ("section", "field", "value", "rule"),
    [
        (".text.add", 0, ".text.sub", "cubin-text"),
        (".text.add", 1, NOBITS, "cubin-text"),
        (".nv.info.add", 0, ".nv.info.sub", "cubin-info"),
        (".nv.info.add", 1, NOBITS, "cubin-info"),
        (".nv.info.add", 4, 6, "cubin-info"),
        (".symtab", 0, ".symtac", "cubin-symbols"),
        (".symtab", 1, PROGBITS, "cubin-symbols"),
        (".symtab", 2, bytes(25), "cubin-symbols"),
        (".symtab", 2, bytes(24 * 65_537), "cubin-symbols"),
        (".symtab", 3, 99, "cubin-symbols"),
        (".symtab", 3, 4, "cubin-symbols"),
        (".shstrtab", 1, PROGBITS, "cubin-sections"),
        (".nv.compat", 0, ".nv.info", "cubin-names"),
        (".strtab", 2, b"\0add", "cubin-names"),
        (".strtab", 2, b"\0\xff\xfe\0", "cubin-names"),
        (".strtab", 2, b"\0" + b"a" * 20_000 + b"\0", "cubin-names"),
    ],
)
def test_refuses_bad_sections(section, field, value, rule):
    image = Image()
    image.section(section)[field] = value
    assert refused(image).rule == rule


@pytest.mark.parametrize("section", [".nv.shared.add", ".text.add", ".nv.info"])
@pytest.mark.parametrize("offset", [1 << 16, 1 << 32, (1 << 64) - 1])
def test_refuses_a_section_that_starts_outside_the_image(section, offset):
    image = Image()
    image.offsets[section] = offset
    assert refused(image).rule == "cubin-sections"


def test_refuses_a_kernel_without_a_section_of_its_own():
    image = Image()
    image.section(".symtab")[2] = image.symbols(section=4)
    assert refused(image).rule == "cubin-text"


def test_refuses_two_kernels_of_one_name():
    image = Image()
    image.section(".symtab")[2] += image.symbols()[24:48]
    assert refused(image).rule == "cubin-names"


def test_refuses_more_attributes_than_anyone_writes():
    assert refused(Image(info=b"\x01\x00\x00\x00" * 262_145)).rule == "cubin-info"


def test_many_symbols_cost_no_more_than_their_number():
    image = Image()
    # a quadratic reader would search this table of names once per symbol
    image.section(".strtab")[2] += b"x" * 1_000_000 + b"\0"
    image.section(".symtab")[2] += struct.pack("<IBBHQQ", 12, 0x02, 0, 7, 0, 0) * 60_000
    assert len(read_cubin(image.build()).kernels) == 1


GOLDEN = Image(info=kernel_info(cluster=(2, 1, 1))).build()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOLDEN) - 1), st.integers(0, 255)), max_size=4))
def test_mutations_raise_only_our_errors(changes):
    image = bytearray(GOLDEN)
    for at, byte in changes:
        image[at] = byte
    try:
        read_cubin(bytes(image))
    except BundleFormatError as error:
        assert error.rule.startswith("cubin-")  # noqa: PT017 - some mutations are harmless


def test_one_bit_flips_raise_only_our_errors():
    for bit in range(len(GOLDEN) * 8):
        image = bytearray(GOLDEN)
        image[bit // 8] ^= 1 << bit % 8
        try:
            read_cubin(bytes(image))
        except BundleFormatError as error:
            assert error.rule.startswith("cubin-")  # noqa: PT017 - some flips are harmless


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_raises_only_our_errors(garbage):
    refused(garbage)
    with contextlib.suppress(BundleFormatError):
        read_cubin(GOLDEN[:64] + garbage + GOLDEN[64:])


# --- against an index entry

ENTRY = {
    "symbol": "add",
    "sizes": (8, 8, 4, 8),
    "num_warps": 4,
    "num_ctas": 1,
    "image_arch": "sm_90a",
    "where": "vector_add 3",
}


def test_accepts_the_entry_that_was_built():
    check_image(Image().build(), **ENTRY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": (8, 8, 4)}, "expected 'add' to take 3 params, got 4"),
        ({"sizes": (8, 8, 4, 8, 8)}, "expected 'add' to take 5 params, got 4"),
        ({"sizes": (8, 8, 8, 8)}, "expected param 2 of 'add' to be 8 bytes at offset 16, got 4 bytes at offset 16"),
        ({"sizes": (8, 4, 4, 8)}, "expected param 1 of 'add' to be 4 bytes at offset 8, got 8 bytes at offset 8"),
        ({"sizes": (4, 8, 4, 8)}, "expected param 0 of 'add' to be 4 bytes"),
        ({"num_warps": 8}, r"expected 'add' to need blocks of \(256, 1, 1\) threads, got \(128, 1, 1\)"),
        ({"num_ctas": 2}, "expected 'add' to need clusters of 2 CTAs, got none"),
        ({"symbol": "sub"}, "expected kernel 'sub' in the image, got 'add'"),
        ({"image_arch": "sm_90"}, "expected an image for sm_90, got sm_90a"),
        ({"image_arch": "sm_80"}, "expected an image for sm_80, got sm_90a"),
        ({"image_arch": "sm_100a"}, "expected an image for sm_100a, got sm_90a"),
    ],
)
def test_refuses_a_changed_entry(change, message):
    with pytest.raises(BundleIntegrityError, match=f"{message}.* - at vector_add 3"):
        check_image(Image().build(), **(ENTRY | change))


@pytest.mark.parametrize(
    ("info", "change"),
    [
        (kernel_info(params=((0, 8), (8, 8), (16, 4), (20, 8))), {}),
        (kernel_info(params=((0, 8), (8, 8), (16, 4))), {}),
        (kernel_info(reqntid=None), {}),
        (kernel_info(reqntid=(64, 2, 1)), {}),
        (kernel_info(cluster=(2, 1, 1)), {}),
        (kernel_info(cluster=(2, 1, 1)), {"num_ctas": 4}),
        (kernel_info(cluster=(1, 2, 1)), {"num_ctas": 2}),
    ],
)
def test_refuses_a_changed_image(info, change):
    with pytest.raises(BundleIntegrityError):
        check_image(Image(info=info).build(), **(ENTRY | change))


@pytest.mark.parametrize(
    ("cluster", "num_ctas", "params", "sizes"),
    [
        ((1, 1, 1), 1, POINTERS_AND_INT, (8, 8, 4, 8)),
        ((4, 1, 1), 4, POINTERS_AND_INT, (8, 8, 4, 8)),
        # the constant bank starts at 0x210: 0x240 is the next multiple of 64
        (None, 1, ((0, 8), (48, 128), (176, 4), (184, 8)), (8, 128, 4, 8)),
        (None, 1, ((0, 1), (2, 2), (4, 1), (8, 4)), (1, 2, 1, 4)),
        (None, 1, (), ()),
    ],
)
def test_accepts_packings_and_clusters(cluster, num_ctas, params, sizes):
    image = Image(info=kernel_info(params, cluster=cluster)).build()
    check_image(image, **(ENTRY | {"num_ctas": num_ctas, "sizes": sizes}))


def test_a_family_image_looks_plain():
    image = Image(flags=0x6006402, compat=b"\x02\x09\x00\x00").build()
    for image_arch in ("sm_100", "sm_100f"):
        check_image(image, **(ENTRY | {"image_arch": image_arch}))


# --- against real compilers


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compile one kernel: `(arch, num_ctas, line_info) -> cubin`."""
    triton = pytest.importorskip("triton")
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def scale_kernel(x_ptr, y_ptr, n, big, flag, alpha, BLOCK: tl.constexpr):  # noqa: N803, PLR0917 - as kernels are written
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i + big, i < n)
        tl.store(y_ptr + i, tl.sum(x) * alpha + flag, i < n)

    kernel = triton.jit(scale_kernel)
    kernel.fn.__globals__["tl"] = tl
    folder = tmp_path_factory.mktemp("triton")

    def build(arch, num_ctas, line_info):
        types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "big": "i64", "flag": "u1", "alpha": "fp32"}
        source = ASTSource(fn=kernel, signature=types | {"BLOCK": "constexpr"}, constexprs={(6,): 1024}, attrs={})
        options = {"num_warps": 4, "num_ctas": num_ctas, "enable_fp_fusion": True}
        with triton.knobs.compilation.scope(), triton.knobs.cache.scope():
            triton.knobs.compilation.disable_line_info = not line_info
            triton.knobs.cache.dir = str(folder)
            return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm["cubin"]

    return build


REAL = [
    (arch, num_ctas, line_info) for arch in (80, 90, 100, 120) for num_ctas in (1, 2) for line_info in (False, True)
]
REAL = [case for case in REAL if case[:2] != (80, 2)]  # clusters start with sm_90


@pytest.mark.triton
@pytest.mark.parametrize(("arch", "num_ctas", "line_info"), REAL)
def test_agrees_with_other_readers(compiled, tmp_path, arch, num_ctas, line_info):
    image = compiled(arch, num_ctas, line_info)
    info = read_cubin(image)
    (kernel,) = info.kernels
    suffix = "a" if arch >= 90 else ""
    # x, y, n, big, flag, alpha, and two scratch pointers
    sizes = (8, 8, 4, 8, 1, 4, 8, 8)
    entry = ("scale_kernel", sizes, 4, num_ctas, f"sm_{arch}{suffix}")
    assert check_image(image, *entry, "here") == (list(kernel.params), kernel.own_shared_bytes, kernel.registers)
    assert info.has_debug is line_info
    path = tmp_path / "image.cubin"
    path.write_bytes(image)
    assert _by_cuobjdump(path) == (kernel.registers, kernel.stack_bytes, kernel.static_shared_bytes, info.toolkit)
    assert _by_elftools(path) == (kernel.text_bytes, kernel.static_shared_bytes)


def _by_cuobjdump(path):
    import re

    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    usage = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True).stdout
    facts = {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED):(\d+)", usage)}
    listing = subprocess.run([tool, "-elf", path], capture_output=True, text=True, check=True).stdout
    toolkit = re.search(r"toolkit=(\d+)\.?(\d+)", listing)
    return facts["REG"], facts["STACK"], facts["SHARED"], (int(toolkit[1]), int(toolkit[2]))


def _by_elftools(path):
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        sizes = {section.name: section["sh_size"] for section in ELFFile(file).iter_sections()}
    return sizes[".text.scale_kernel"], sizes.get(".nv.shared.scale_kernel", 0)


@pytest.mark.triton
def test_every_truncation_of_a_real_image(compiled):
    image = compiled(80, 1, False)
    for length in range(0, len(image), 7):
        refused(image[:length])
    refused(image[:-1])
