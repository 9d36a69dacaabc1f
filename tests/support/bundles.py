"""Build small bundles without Triton: synthetic cubins, and tables expanded from a few words.

`kernel` spells a kernel much as a manifest does, and `make_bundle` packs kernels into a file. `Parts` is a bundle before
it is sealed: tests of hostile input change one part of it and have right lengths and hashes put around the lie.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import zstandard
from nojit.aot.pack.index import encode_header, encode_index
from nojit.aot.pack.sections import encode_groups, encode_images, encode_table
from nojit.runtime import _core
from nojit.runtime.bundle.format import (
    GLOBAL_SCRATCH,
    PROFILE_SCRATCH,
    Attachment,
    BundleIndex,
    Group,
    Header,
    KernelEntry,
    Section,
    TargetInfo,
)
from nojit.runtime.expr.postfix import postfix
from nojit.runtime.table.parts import MISSING, Axis, Case, Config, Derived, Launch, Param, Slot, TensorMap
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import Tuning
from nojit.runtime.target import GFX_FIRST, is_gfx, parse_image_arch
from nojit.runtime.types.names import (
    TENSOR_MAP,
    descriptor_parts,
    is_compiled_in,
    is_descriptor,
    leaves,
)
from nojit.runtime.values import Value

from tests.support.cubins import CubinSpec, build_cubin
from tests.support.hsacos import HsacoKernel, build_hsaco

__all__ = [
    "SM_90",
    "Parts",
    "SyntheticKernel",
    "bundle_bytes",
    "compress",
    "kernel",
    "make_bundle",
    "map_of",
    "size_of",
    "slots_of",
    "target",
]

SCRATCH = (Slot(GLOBAL_SCRATCH, "*i8"), Slot(PROFILE_SCRATCH, "*i8"))
_OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}


def target(image_arch: str) -> TargetInfo:
    """Describe the target of an image arch such as ``sm_90a`` or ``gfx942``."""
    number = parse_image_arch(image_arch).number
    if is_gfx(number):
        return TargetInfo("hip", image_arch, image_arch, 64 if number < 1000 else 32)
    return TargetInfo("cuda", f"sm_{parse_image_arch(image_arch).number}", image_arch, 32)


SM_90 = target("sm_90a")


def size_of(kind: str) -> int:
    """Return the bytes of a param of a Triton type."""
    return _core.param_bytes(kind)


@dataclass(frozen=True, slots=True)
class SyntheticKernel:
    """A kernel's table, whose images are numbered from 0, and those images."""

    table: KernelTable
    images: tuple[bytes, ...]


def kernel(
    name: str,
    params: Mapping[str, str],
    *,
    matrix: Mapping[str, Sequence[Value]] | None = None,
    configs: Sequence[Mapping[str, Any]] = ({"num_warps": 4},),
    hints: Sequence[Mapping[str, int]] = (),
    derived: Mapping[str, str] | None = None,
    defaults: Mapping[str, Value] | None = None,
    grid: Sequence[str] = (),
    launch: Mapping[str, Any] | None = None,
    tuning: Tuning | None = None,
    batch: Sequence[str] = (),
    static_shared_bytes: int = 0,
    on: TargetInfo = SM_90,
) -> SyntheticKernel:
    """Expand a kernel: every case with every config, hint set and truth of the derived constexprs.

    Args:
        name: also the symbol in the images.
        params: in the function's order; a type such as ``*{dtype}``, ``i32``, ``(*fp16,(i32,none))`` or
            ``tensordesc<fp16[64,64]>``, optional with ``?``, or ``constexpr``.
        matrix: values of each axis; one named in braces spells types, another is a constexpr.
        configs: each constexprs, options (``num_warps``, ...) and perhaps ``requires``.
        hints: hint sets beside the empty one.
        derived: boolean expressions.
        defaults: of params.
        grid: expressions.
        launch: facts of `Launch` that every variant shares, ``shared_bytes`` say.
        tuning: cases and configs are numbered as they come.
        batch: params that grow with the batch.
        static_shared_bytes: of each image, as its section says it.
        on: the target.
    """
    matrix, derived, defaults = matrix or {}, derived or {}, defaults or {}
    type_axes = {axis for kind in params.values() for axis in re.findall(r"{(\w+)}", kind)}
    runtime = [param for param, kind in params.items() if kind != "constexpr"]
    signatures, cases = _cases([params[param] for param in runtime], matrix)
    table = KernelTable(
        kernel=name,
        params=tuple(Param(p, kind == "constexpr", defaults.get(p, MISSING)) for p, kind in params.items()),
        grid=tuple(grid),
        tuning=tuning,
        axes=tuple(Axis(axis, axis in type_axes, tuple(values)) for axis, values in matrix.items()),
        derived=tuple(Derived(constexpr, expression) for constexpr, expression in derived.items()),
        signatures=signatures,
        cases=cases,
        configs=tuple(map(_config, configs)),
        hint_sets=((), *(tuple(hint_set.items()) for hint_set in hints)),
        derived_values=tuple(itertools.product((False, True), repeat=len(derived))),
        launches=(),
        programs=(),
        columns={column: array("I") for column in _core.COLUMNS},
        batch=tuple(batch),
    )
    programs = tuple(map(postfix, table.expressions()))
    return _with_rows(replace(table, programs=programs), dict(launch or {}), on, static_shared_bytes)


def _cases(
    kinds: Sequence[str], matrix: Mapping[str, Sequence[Value]]
) -> tuple[tuple[tuple[str, ...], ...], tuple[Case, ...]]:
    signatures: dict[tuple[str, ...], int] = {}
    cases = []
    for point in itertools.product(*(range(len(values)) for values in matrix.values())):
        chosen = {axis: matrix[axis][i] for axis, i in zip(matrix, point, strict=True)}
        choices = itertools.product(*(_alternatives(kind.format_map(chosen)) for kind in kinds))
        cases += [Case(signatures.setdefault(types, len(signatures)), point) for types in choices]
    return tuple(signatures), tuple(cases)


def _alternatives(kind: str) -> tuple[str, ...]:
    return (kind[:-1], "none") if kind.endswith("?") else (kind,)


def _config(words: Mapping[str, Any]) -> Config:
    names = (*_OPTIONS, "toolchain")
    options = _OPTIONS | {key: value for key, value in words.items() if key in names}
    constexprs = {key: value for key, value in words.items() if key not in (*names, "requires")}
    return Config(tuple(constexprs.items()), tuple(options.items()), words.get("requires", ""))


def _with_rows(table: KernelTable, facts: dict[str, Any], on: TargetInfo, static_shared_bytes: int) -> SyntheticKernel:
    launches: dict[Launch, int] = {}
    images = []
    pools = (table.cases, table.configs, table.hint_sets, table.derived_values)
    for row, key in enumerate(itertools.product(*(range(len(pool)) for pool in pools))):
        case, config, hint_set, _ = key
        launch = _launch(table, table.cases[case], table.configs[config], table.hint_sets[hint_set], facts | {"on": on})
        images.append(_image(launch, f"{table.kernel} {row}", on, static_shared_bytes))
        values = (*key, launches.setdefault(launch, len(launches)), row, 32, 0)
        for column, value in zip(_core.COLUMNS, values, strict=True):
            table.columns[column].append(value)
    return SyntheticKernel(replace(table, launches=tuple(launches)), tuple(images))


def _launch(
    table: KernelTable, case: Case, config: Config, hints: tuple[tuple[str, int], ...], facts: dict[str, Any]
) -> Launch:
    ones = {path for path, hint in hints if hint == 1}
    types = zip(table.runtime_params(), table.signatures[case.signature], strict=True)
    kept = [
        (path, kind)
        for param, whole in types
        for path, kind in leaves(whole, param)
        if not is_compiled_in(kind) and path not in ones
    ]
    facts = dict(facts)
    tma = 90 <= parse_image_arch(facts.pop("on").image_arch).number < GFX_FIRST
    slots = [slot for path, kind in kept for slot in slots_of(path, kind, tma=tma)]
    options = dict(config.options)
    base: dict[str, Any] = {
        "symbol": table.kernel,
        "layout": (*slots, *SCRATCH),
        "num_warps": options["num_warps"],
        "num_ctas": options["num_ctas"],
        "shared_bytes": 0,
        "global_scratch_bytes": 0,
        "global_scratch_align": 1,
        "profile_scratch_bytes": 0,
        "profile_scratch_align": 1,
        "cooperative": False,
        "pdl": False,
        "tensor_maps": tuple(map_of(path, kind) for path, kind in kept if tma and is_descriptor(kind)),
    }
    return Launch(**base | facts)


def slots_of(path: str, kind: str, *, tma: bool) -> list[Slot]:
    """Expand a leaf as Triton 3.9 does."""
    if not is_descriptor(kind):
        return [Slot(path, kind)]
    element, block = descriptor_parts(kind)
    dims = range(len(block))
    shapes = [Slot(f"{path}.shape.{dim}", "i32") for dim in dims]
    strides = [Slot(f"{path}.stride.{dim}", "i64") for dim in dims]
    if tma:
        return [Slot(f"{path}.map", TENSOR_MAP), *shapes, *strides]
    wide = [Slot(f"{path}.shape.{dim}", "i64") for dim in dims]
    flags = [Slot(f"{path}.{flag}", "i1") for flag in ("pads_nan", "rounds_tf32")]
    return [Slot(f"{path}.base", f"*{element}"), *wide, *strides, *flags, *shapes, *strides]


# CUtensorMapDataType of cuda.h
_MAP_TYPES = {"u16": 1, "i16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5, "fp16": 6, "fp32": 7, "fp64": 8, "bf16": 9}


def map_of(path: str, kind: str) -> TensorMap:
    """Encode a map as Triton 3.9 does by default: as wide as its swizzle, which is as wide as it can be."""
    element, block = descriptor_parts(kind)
    size = 1 if element.startswith("fp8") else size_of(element)
    swizzle = 0 if len(block) == 1 else min(block[-1] * size // 32, 4).bit_length()
    inner = min(block[-1], 128 // size) if swizzle else block[-1]
    parts = tuple(min(dim, 256) for dim in (*block[:-1], inner))
    return TensorMap(path, swizzle, size, _MAP_TYPES.get(element, 0), parts, fp4_padded=False)


def _image(launch: Launch, code: str, on: TargetInfo, static_shared_bytes: int) -> bytes:
    arch = parse_image_arch(on.image_arch)
    sizes = tuple(size_of(slot.type) for slot in launch.layout)
    warps, ctas, machine_code = launch.num_warps, launch.num_ctas, code.encode().ljust(64)
    if is_gfx(arch.number):
        threads = warps * on.warp_size
        return build_hsaco(
            HsacoKernel(launch.symbol, sizes, threads, on.warp_size, 32, static_shared_bytes, code=machine_code),
            arch=on.image_arch,
        )
    spec = CubinSpec(launch.symbol, sizes, warps, ctas, static_shared_bytes, code=machine_code)
    exact = "a" if arch.suffix == "a" else ""
    return build_cubin(spec, sm=arch.number, suffix=exact, abi=7 if arch.number < 90 else 8)


Edit = Callable[[str, bytes], bytes]


def compress(raw: bytes, level: int = 3) -> bytes:
    """Make a frame as the format wants it."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True).compress(raw)


def _leave(_part: str, raw: bytes) -> bytes:
    return raw


def _frame(_part: str, raw: bytes) -> bytes:
    return compress(raw)


@dataclass(frozen=True, slots=True)
class Parts:
    """A bundle before it is compressed, hashed and laid out."""

    index: BundleIndex
    """Names, target and toolchain are used; kernels come from the other fields."""
    tables: tuple[tuple[str, int, bytes], ...]
    """Of each kernel its name, its count of variants and its raw table."""
    images: tuple[tuple[bytes, ...], ...]
    """Of each kernel."""
    group_sizes: tuple[tuple[int, ...], ...]
    """Of each kernel, how many images each of its groups holds."""
    attachments: tuple[tuple[str, bytes], ...] = ()
    """Name and bytes of each attachment, in the order of the file."""

    def seal(self, edit: Edit = _leave, frame: Edit = _frame) -> bytes:
        """Lay out the bundle with right lengths and hashes.

        Args:
            edit: gets the name and the raw bytes of each part, gives the raw bytes to store. Of kernel 0 come its groups,
                ``group 0``..., then ``table 0``, ``images 0`` and ``groups 0``, which lie in one section. Groups are
                numbered on from kernel to kernel. Then come ``attachment 0``..., and last ``index`` and ``header``.
            frame: gets the name and the raw bytes of each group, of each ``section 0``, of each attachment and of the index, gives
                the frame.
        """

        def store(part: str, raw: bytes) -> tuple[bytes, bytes]:
            edited = edit(part, raw)
            return edited, frame(part, edited)

        entries, sections, payload = [], [], []
        for number, (name, rows, table) in enumerate(self.tables):
            held = [
                store(f"group {at}", b"".join(images)) for at, images in enumerate(self._grouped(number), len(payload))
            ]
            groups = [
                Group(count, len(packed), len(raw), hashlib.sha256(packed).digest())
                for count, (raw, packed) in zip(self.group_sizes[number], held, strict=True)
            ]
            raw_table = edit(f"table {number}", table)
            raw_images = edit(f"images {number}", encode_images(map(len, self.images[number])))
            raw_groups = edit(f"groups {number}", encode_groups(groups))
            raw = raw_table + raw_images + raw_groups
            packed = frame(f"section {number}", raw)
            payload += [packed for _, packed in held]
            counts = (rows, len(raw_images) // 4, len(raw_groups) // 44, sum(len(packed) for _, packed in held))
            entries.append(KernelEntry(name, *counts, _section(raw, packed)))
            sections.append(packed)
        attached = []
        for number, (name, content) in enumerate(self.attachments):
            raw, packed = store(f"attachment {number}", content)
            attached.append(Attachment(name, _section(raw, packed)))
            sections.append(packed)
        index = replace(self.index, kernels=tuple(entries), attachments=tuple(attached))
        raw_index, packed_index = store("index", encode_index(index))
        header = Header(len(packed_index), len(raw_index), hashlib.sha256(packed_index).digest())
        return b"".join([edit("header", encode_header(header)), packed_index, *sections, *payload])

    def _grouped(self, kernel: int) -> Iterator[tuple[bytes, ...]]:
        images = iter(self.images[kernel])
        for count in self.group_sizes[kernel]:
            yield tuple(itertools.islice(images, count))

    @staticmethod
    def of(
        *kernels: SyntheticKernel,
        name: str = "test",
        version: str = "1.0",
        on: TargetInfo = SM_90,
        min_driver: int = 12000,
        group_images: int = 4,
        attachments: tuple[tuple[str, bytes], ...] = (),
    ) -> Parts:
        """Take apart the bundle of `kernels`; equal images of a kernel are stored once."""
        tables, images, groups = [], [], []
        for synthetic in sorted(kernels, key=lambda one: one.table.kernel):
            numbers: dict[bytes, int] = {}
            places = [numbers.setdefault(image, len(numbers)) for image in synthetic.images]
            column = array("I", [places[image] for image in synthetic.table.columns["image"]])
            table = replace(synthetic.table, columns=synthetic.table.columns | {"image": column})
            tables.append((table.kernel, len(table), encode_table(table)))
            images.append(tuple(numbers))
            whole, rest = divmod(len(numbers), group_images)
            groups.append((group_images,) * whole + (rest,) * bool(rest))
        index = BundleIndex(name, version, on, (("triton", "3.9.0"),), min_driver, "0" * 64, ())
        return Parts(index, tuple(tables), tuple(images), tuple(groups), attachments)


def _section(raw: bytes, packed: bytes) -> Section:
    return Section(len(packed), len(raw), hashlib.sha256(packed).hexdigest())


def bundle_bytes(*kernels: SyntheticKernel, **facts: Any) -> bytes:
    """Lay out a bundle of `kernels`; `facts` are those of `Parts.of`."""
    return Parts.of(*kernels, **facts).seal()


def make_bundle(path: Path, *kernels: SyntheticKernel, **facts: Any) -> Path:
    """Write a bundle of `kernels` to `path`; `facts` are those of `Parts.of`."""
    path.write_bytes(bundle_bytes(*kernels, **facts))
    return path
