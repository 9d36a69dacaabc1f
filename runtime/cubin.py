"""Reads cubins: what the machine code itself says about how it must be launched.

Each kernel of a cubin has a ``.text.<symbol>`` section with its code and a ``.nv.info.<symbol>`` section of attributes:
the offset and size of each parameter, the block size and cluster that it was compiled for. NVIDIA does not document the
attributes; the numbers below are those that ptxas 12.8 to 13.4 writes and ``cuobjdump -elf`` spells.

Where an image was assembled for a family (``sm_100f``), nothing in it says so: it looks like plain ``sm_100``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from nojit.runtime.elf import SHT_NOBITS, Elf, Entry, Section, read_elf, refuse
from nojit.runtime.errors import BundleFormatError, BundleIntegrityError
from nojit.runtime.launch_codec import param_sizes
from nojit.runtime.record import Record
from nojit.runtime.table import Launch
from nojit.runtime.target import parse_image_arch

__all__ = ["CubinInfo", "CubinKernel", "Dim3", "check_image", "check_launch", "launch_sizes", "read_cubin"]

Dim3: TypeAlias = tuple[int, int, int]

_ATTRIBUTE: Final = struct.Struct("<BBH")
_WORDS: Final = struct.Struct("<II")
_TRIPLE: Final = struct.Struct("<III")
_PARAM: Final = struct.Struct("<IHHI")
_PARAM_BANK: Final = struct.Struct("<IHH")

# attributes of `.nv.info` and `.nv.info.<symbol>`
_MAX_THREADS: Final = 0x05
_PARAM_CBANK: Final = 0x0A
_REQNTID: Final = 0x10
_FRAME_SIZE: Final = 0x11
_KPARAM_INFO: Final = 0x17
_REGCOUNT: Final = 0x2F
_API_VERSION: Final = 0x37
_CTA_PER_CLUSTER: Final = 0x3D
# attribute of `.nv.compat`
_ACCELERATOR_TARGET: Final = 0x09
# forms of an attribute: no value, 8 bits, 16 bits, a 16-bit length and that many bytes
_NVAL, _BVAL, _HVAL, _SVAL = 1, 2, 3, 4
_WITHOUT_SIZE: Final = frozenset({_NVAL, _BVAL, _HVAL})

# attributes of all sections that are read: keeps a hostile image from costing seconds
_MAX_RECORDS: Final = 262_144
_MAX_PARAMS: Final = 512

# more than any device has
_SHARED_BYTES_MAX: Final = 1 << 30
_SYSTEM_SHARED_BYTES: Final = 1024
_SYSTEM_SHARED_SINCE: Final = 90

_TENSOR_MAP_ALIGN: Final = 64
_WARP: Final = 32


class CubinKernel(Record):
    """One kernel of a cubin."""

    symbol: str
    params: tuple[tuple[int, int], ...]
    """Offset and size of each, in bytes, in the order of the signature."""
    param_base: int
    """Where the params start in the constant bank, in bytes; 0 without params."""
    reqntid: Dim3 | None
    """The one block size in threads that it may be launched with; None if any."""
    max_threads: Dim3 | None
    """The largest block size in threads; None if it was not declared."""
    cluster: Dim3 | None
    """CTAs of a cluster; None if it was not declared."""
    registers: int
    """Of one thread."""
    stack_bytes: int
    """Of one thread."""
    static_shared_bytes: int
    """Of one block; from sm_90 up it can include 1,024 that are the system's."""
    text_bytes: int

    def own_shared_bytes(self, sm: int) -> int:
        """Return the static shared memory that counts against the driver's limits, in an image for `sm`."""
        system = _SYSTEM_SHARED_BYTES if sm >= _SYSTEM_SHARED_SINCE else 0
        return min(max(self.static_shared_bytes - system, 0), _SHARED_BYTES_MAX)


class CubinInfo(Record):
    """What a cubin says about itself."""

    kernels: tuple[CubinKernel, ...]
    sm: int
    """Compute capability without the dot: 90."""
    arch_specific: bool
    """Whether it runs on exactly that chip: ``sm_90a``."""
    abi: int
    """Of the ELF file: 7 or 8."""
    toolkit: tuple[int, int] | None
    """Version of the CUDA toolkit whose ptxas wrote it, major and minor; None without a kernel to say so."""
    has_debug: bool
    """Whether it holds line info, which holds source paths, or other debug sections."""

    def kernel(self, symbol: str) -> CubinKernel | None:
        """Return the kernel of that symbol, if there is one."""
        return next((kernel for kernel in self.kernels if kernel.symbol == symbol), None)


_Record: TypeAlias = tuple[int, int, int, int]
"""Form, attribute, where its value starts, and for `_SVAL` its size, else 0."""


class _Records:
    """Reads attribute sections of one image, no more attributes in all than the cap."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self.left = _MAX_RECORDS

    def read(self, section: Section | None) -> Iterator[_Record]:
        """Yield the attributes of a section; none of no section. Its end is checked when all are taken."""
        if section is None:
            return
        image, at, end = self.elf.image, section.offset, section.offset + section.size
        if section.type == SHT_NOBITS:
            raise refuse("info", "expected attributes", "a section without bytes")
        last = end - 4
        while at <= last:
            if self.left == 0:
                raise refuse("info", f"expected at most {_MAX_RECORDS} attributes", "more")
            self.left -= 1
            form, attribute, size = _ATTRIBUTE.unpack_from(image, at)
            if form == _SVAL:
                if at + 4 + size > end:
                    raise refuse("info", f"expected attributes that end at byte {end}", at + 4 + size)
                yield form, attribute, at + 4, size
                at += 4 + size
            elif form in _WITHOUT_SIZE:
                yield form, attribute, at + 2, 0
                at += 4
            else:
                raise refuse("info", "expected an attribute of form 1 to 4", f"{form} at byte {at}")
        if at != end:
            raise refuse("info", f"expected attributes that end at byte {end}", at)

    def payload(self, record: _Record, form: struct.Struct) -> tuple[int, ...]:
        """Unpack an attribute's value."""
        kind, attribute, start, size = record
        if kind != _SVAL or size != form.size:
            raise refuse("info", f"expected {form.size} bytes of attribute {attribute:#x}", f"{size} in form {kind}")
        return form.unpack_from(self.elf.image, start)


def read_cubin(image: bytes) -> CubinInfo:
    """Read what a cubin says about its kernels.

    Raises:
        BundleFormatError: `image` is no cubin, or breaks a rule of ELF or of its attributes; the rule starts with
            ``cubin-``.
    """
    elf = read_elf(image)
    records = _Records(elf)
    usage = _read_usage(records)
    toolkits: set[tuple[int, int]] = set()
    return CubinInfo(
        kernels=tuple(_read_kernel(records, entry, usage, toolkits) for entry in elf.entries),
        sm=elf.flags & 0xFF if elf.abi < 8 else elf.flags >> 8 & 0xFF,
        arch_specific=_is_arch_specific(records),
        abi=elf.abi,
        toolkit=max(toolkits, default=None),
        # call frames stay in every image: they hold no path
        has_debug=any(
            name.startswith((b".debug_", b".nv_debug")) for name in elf.section_names if name != b".debug_frame"
        ),
    )


def _read_usage(records: _Records) -> dict[tuple[int, int], int]:
    """Read registers and stack bytes of a thread, by attribute and index of the kernel's symbol."""
    usage: dict[tuple[int, int], int] = {}
    for record in records.read(records.elf.section(b".nv.info")):
        if record[1] in (_REGCOUNT, _FRAME_SIZE):
            symbol, value = records.payload(record, _WORDS)
            usage[record[1], symbol] = value
    return usage


def _is_arch_specific(records: _Records) -> bool:
    elf = records.elf
    if elf.abi < 8:
        return bool(elf.flags & 0x800)
    if elf.flags & 0x8:
        return True
    # from CUDA 13.0 on the flags do not tell
    # all are read, so that all are checked
    found = [
        elf.image[start] == 1
        for form, attribute, start, _ in records.read(elf.section(b".nv.compat"))
        if form == _BVAL and attribute == _ACCELERATOR_TARGET
    ]
    return any(found)


def _read_kernel(
    records: _Records, entry: Entry, usage: dict[tuple[int, int], int], toolkits: set[tuple[int, int]]
) -> CubinKernel:
    text, info, shared = _sections_of(records.elf, entry)
    triples: dict[int, Dim3] = {}
    params: dict[int, tuple[int, int]] = {}
    base, bank_bytes = 0, 0
    image = records.elf.image
    for record in records.read(info):
        form, attribute, start, size = record
        if attribute == _KPARAM_INFO and form == _SVAL and size == _PARAM.size:
            _, ordinal, offset, word = _PARAM.unpack_from(image, start)
            if ordinal in params:
                raise refuse("params", f"expected param {ordinal} of {entry.name!r} once", "two")
            if ordinal >= _MAX_PARAMS:
                raise refuse("params", f"expected at most {_MAX_PARAMS} params of {entry.name!r}", f"param {ordinal}")
            params[ordinal] = (offset, word >> 18)
        elif attribute == _KPARAM_INFO:
            records.payload(record, _PARAM)
        elif attribute in (_REQNTID, _MAX_THREADS, _CTA_PER_CLUSTER):
            x, y, z = records.payload(record, _TRIPLE)
            triples[attribute] = (x, y, z)
        elif attribute == _PARAM_CBANK:
            _, base, bank_bytes = records.payload(record, _PARAM_BANK)
        elif attribute == _API_VERSION and size == 4:
            toolkits.add(divmod(int.from_bytes(image[start : start + 4], "little"), 10))
    return CubinKernel(
        symbol=entry.name,
        params=_in_order(entry.name, params, bank_bytes),
        param_base=base,
        reqntid=triples.get(_REQNTID),
        max_threads=triples.get(_MAX_THREADS),
        cluster=triples.get(_CTA_PER_CLUSTER),
        registers=usage.get((_REGCOUNT, entry.number), 0),
        stack_bytes=usage.get((_FRAME_SIZE, entry.number), 0),
        static_shared_bytes=shared.size if shared else 0,
        text_bytes=text.size,
    )


def _sections_of(elf: Elf, entry: Entry) -> tuple[Section, Section, Section | None]:
    """Find the code, the attributes and the shared memory of a kernel, and check that they are its own."""
    name = entry.name.encode()
    text = elf.section(b".text." + name)
    if text is None or text.number != entry.section or text.type == SHT_NOBITS:
        what = f"expected section .text.{entry.name} to hold the code of {entry.name!r}"
        raise refuse("text", what, f"section {entry.section}")
    info = elf.section(b".nv.info." + name)
    if info is None or info.info != entry.section:
        raise refuse("info", f"expected attributes of {entry.name!r}", "none" if info is None else "another's")
    return text, info, elf.section(b".nv.shared." + name)


def _in_order(symbol: str, params: dict[int, tuple[int, int]], bank_bytes: int) -> tuple[tuple[int, int], ...]:
    ordered = tuple(params[ordinal] for ordinal in sorted(params))
    if params and max(params) != len(params) - 1:
        raise refuse("params", f"expected params 0 to {len(params) - 1} of {symbol!r}", f"param {max(params)}")
    end = 0
    for offset, size in ordered:
        if offset < end or size == 0:
            raise refuse("params", f"expected params of {symbol!r} one after the other", f"{size} bytes at {offset}")
        end = offset + size
    if end != bank_bytes:
        raise refuse("params", f"expected {bank_bytes} bytes of params of {symbol!r}", end)
    return ordered


def check_launch(info: CubinInfo, launch: Launch, image_arch: str, where: str) -> None:
    """Check that an image is the one that a row's launch facts describe; as `check_image`.

    Raises:
        BundleIntegrityError: they differ, or a param has a type that is passed in no single param.
    """
    sizes = launch_sizes(launch, where)
    check_image(info, launch.symbol, sizes, launch.num_warps, launch.num_ctas, image_arch, where)


def launch_sizes(launch: Launch, where: str) -> tuple[int, ...]:
    """Return the bytes of each param that a launch packs.

    Raises:
        BundleFormatError: the layout is spelled wrong.
        BundleIntegrityError: a param has a type that is passed in no single param.
    """
    try:
        return param_sizes(launch.layout)
    except BundleFormatError:
        raise
    except ValueError as error:
        raise BundleIntegrityError(str(error), where=where) from None


def check_image(  # noqa: PLR0917 - the facts of one index entry, in its order
    info: CubinInfo, symbol: str, sizes: Sequence[int], num_warps: int, num_ctas: int, image_arch: str, where: str
) -> CubinKernel:
    """Check that an image is the one that an index entry describes.

    ``_core.check_image`` says of most images that are right that they are.

    Args:
        info: what the image says.
        symbol: the kernel that would be launched.
        sizes: bytes of each param that would be packed; each is aligned to its size, a tensor map to 64 bytes.
        num_warps: a block has 32 times as many threads.
        num_ctas: of a cluster; 1 needs no cluster.
        image_arch: ``sm_90a``.
        where: the entry, for the message.

    Returns:
        The kernel.

    Raises:
        BundleIntegrityError: they differ; launching would read or run something else than was packed.
        ValueError: `image_arch` is no image arch.
    """
    arch = parse_image_arch(image_arch)
    if (info.sm, info.arch_specific) != (arch.number, arch.suffix == "a"):
        got = f"sm_{info.sm}{'a' if info.arch_specific else ''}"
        raise BundleIntegrityError(f"expected an image for {image_arch}", got=got, where=where)
    kernel = info.kernel(symbol)
    if kernel is None:
        names = ", ".join(repr(kernel.symbol) for kernel in info.kernels[:4]) or "no kernel"
        raise BundleIntegrityError(f"expected kernel {symbol!r} in the image", got=names, where=where)
    _check_params(kernel, sizes, where)
    threads = (_WARP * num_warps, 1, 1)
    if kernel.reqntid != threads:
        got = "any block size" if kernel.reqntid is None else str(kernel.reqntid)
        raise BundleIntegrityError(f"expected {symbol!r} to need blocks of {threads} threads", got=got, where=where)
    if (kernel.cluster or (1, 1, 1)) != (num_ctas, 1, 1):
        got = "none" if kernel.cluster is None else str(kernel.cluster)
        raise BundleIntegrityError(f"expected {symbol!r} to need clusters of {num_ctas} CTAs", got=got, where=where)
    return kernel


def _check_params(kernel: CubinKernel, sizes: Sequence[int], where: str) -> None:
    if len(kernel.params) != len(sizes):
        raise BundleIntegrityError(
            f"expected {kernel.symbol!r} to take {len(sizes)} params", got=str(len(kernel.params)), where=where
        )
    end = 0
    for ordinal, (size, (offset, image_size)) in enumerate(zip(sizes, kernel.params, strict=True)):
        # a type of unknown size is none that the image has, and no alignment
        align = max(1, min(size, _TENSOR_MAP_ALIGN))
        # what is aligned is the place in the constant bank, where params start at a multiple of 16
        begin = kernel.param_base + end
        expected = begin + -begin % align - kernel.param_base
        if (offset, image_size) != (expected, size):
            raise BundleIntegrityError(
                f"expected param {ordinal} of {kernel.symbol!r} to be {size} bytes at offset {expected}",
                got=f"{image_size} bytes at offset {offset}",
                where=where,
            )
        end = expected + size
