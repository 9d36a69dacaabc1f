"""Facts about a bundle as data: about the file, its kernels and their variants. Reads files, prints nothing.

The JSON output of ``nojit inspect`` has the same field names.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.backends.registry import arch_of, vendor_named
from nojit.aot.variants.table_json import encode_definition
from nojit.runtime.base.file_kinds import file_kind, files_in
from nojit.runtime.base.launch_options import TOOLCHAIN
from nojit.runtime.base.strict_json import Json
from nojit.runtime.base.wording import worded
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import BundleError
from nojit.runtime.recording.origins import ATTACHMENT, read_origins
from nojit.runtime.table.parts import Config, Missing, Param
from nojit.runtime.table.table import KernelTable
from nojit.runtime.target import by_arch
from nojit.runtime.values import encode_value, spell

__all__ = [
    "AttachmentFacts",
    "BundleFacts",
    "KernelFacts",
    "RecordedFacts",
    "RecordingFacts",
    "VariantFacts",
    "bundle_facts",
    "config_words",
    "definition",
    "kernel_facts",
    "open_bundle",
    "recording_facts",
    "variant_facts",
]


@dataclass(frozen=True, slots=True)
class AttachmentFacts:
    """One attachment of a bundle: bytes that the build put into it under a name."""

    name: str
    content_bytes: int
    stored_bytes: int
    """Size in the bundle, compressed."""


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """Facts of one bundle file, as `nojit inspect` shows them."""

    path: str
    name: str
    version: str
    id: str
    """First twelve hex digits of the digest."""
    digest: str
    """SHA-256 of the index, which pins the whole file."""
    inputs: str
    """Digest of all inputs of the bundle."""
    arch: str
    image_arch: str
    min_driver: int
    """Oldest CUDA or ROCm version whose driver loads it, 13000 for 13.0."""
    untried: str
    """Missing tests of such images; empty if none."""
    toolchain: dict[str, str]
    file_bytes: int
    payload_bytes: int
    """Size of the images, compressed."""
    image_bytes: int
    """Size of these images before compression."""
    images: int
    """Number of distinct images, counted for each kernel and summed."""
    groups: int
    variants: int
    attachments: tuple[AttachmentFacts, ...]


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Facts of one kernel in a bundle, as `nojit inspect` shows them."""

    name: str
    variants: int
    configs: int
    toolchains: dict[str, int]
    """Number of variants that each toolchain compiled, by its name; empty if the bundle has one toolchain."""
    images: int
    """Distinct images of its variants."""
    image_bytes: int
    """Size of these images before compression."""
    registers_min: int
    registers_max: int
    spilling: int
    """Variants that spill registers."""
    spill_bytes_max: int
    """Most spilled bytes per thread of a variant."""
    shared_bytes_max: int
    """Most dynamic shared memory per block of a variant."""


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """Facts of one variant, as `nojit inspect` shows them: registers, spills, shared memory, warps."""

    id: str
    label: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    num_warps: int
    num_ctas: int
    toolchain: str
    """Name of the toolchain that compiled it; empty if the bundle has one."""
    image: int
    """Number of its image; variants with the same machine code share an image."""
    image_bytes: int
    image_sha256: str


@dataclass(frozen=True, slots=True)
class RecordedFacts:
    """The function that a kernel was recorded from."""

    kernel: str
    """Name of the kernel in the bundle."""
    module: str
    """Module of the function."""
    qualname: str
    """Qualified name of the function in its module."""
    closure: str
    """Digest of its source closure."""
    winners: int
    """Number of keys for which an autotuner's choice is known."""


@dataclass(frozen=True, slots=True)
class RecordingFacts:
    """The recording that a bundle was built from."""

    triton: str
    """Version of the program's Triton."""
    torch: str
    """Version of the program's torch; empty if it had none."""
    kernels: tuple[RecordedFacts, ...]
    """Every kernel of the bundle."""
    distributions: tuple[tuple[str, str, str], ...]
    """Name, version and licence of each package with recorded source."""


def recording_facts(bundle: BundleFile) -> RecordingFacts | None:
    """Return the facts of the recording that a bundle was built from; None for a bundle of manifests.

    Raises:
        BundleError: the attachment with the origins is damaged.
    """
    if ATTACHMENT not in bundle.attachments:
        return None
    origins = read_origins(bundle.attachment(ATTACHMENT), bundle.path)
    return RecordingFacts(
        origins.triton,
        origins.torch,
        tuple(
            RecordedFacts(each.kernel, each.module, each.qualname, each.closure, len(each.winners))
            for each in origins.kernels
        ),
        tuple((each.name, each.version, each.license) for each in origins.distributions),
    )


def open_bundle(path: Path) -> BundleFile:
    """Open the bundle at a path that a user gave, and return it.

    Raises:
        BundleError: `path` is missing, or not an intact bundle.
    """
    if path.is_dir():
        inside = ", ".join(sorted((entry.name for entry in files_in(path, SUFFIX)), key=by_arch))
        raise BundleError("expected a bundle file", got=f"a folder with {inside or 'no bundle'}", where=str(path))
    if path.exists() and not path.is_file():
        raise BundleError("expected a bundle file", got=file_kind(path.stat().st_mode), where=str(path))
    try:
        return BundleFile(path)
    except OSError as error:
        message = worded(error)
        raise BundleError("expected a bundle file", got=message[:1].lower() + message[1:], where=str(path)) from error


def bundle_facts(bundle: BundleFile) -> BundleFacts:
    """Return the facts of a bundle from its index, without reading images."""
    index = bundle.index
    return BundleFacts(
        path=bundle.path,
        name=index.name,
        version=index.version,
        id=bundle.id,
        digest=bundle.digest,
        inputs=index.inputs,
        arch=arch_of(index.target),
        image_arch=index.target.image_arch,
        min_driver=index.min_driver,
        untried=vendor_named(index.target.backend).UNTRIED,
        toolchain=dict(index.toolchain),
        file_bytes=bundle.size_bytes,
        payload_bytes=sum(entry.payload_bytes for entry in index.kernels),
        image_bytes=sum(group.raw_bytes for kernel in bundle.kernels for group in bundle.groups(kernel)),
        images=sum(entry.images for entry in index.kernels),
        groups=sum(entry.groups for entry in index.kernels),
        variants=sum(entry.variants for entry in index.kernels),
        attachments=tuple(
            AttachmentFacts(one.name, one.section.raw_bytes, one.section.stored_bytes) for one in index.attachments
        ),
    )


def kernel_facts(bundle: BundleFile, kernel: str) -> KernelFacts:
    """Return the facts of one kernel, without reading images.

    Raises:
        KernelNotFoundError: the bundle has no such kernel.
    """
    table = bundle.table(kernel)
    registers, spills = table.columns["registers"], table.columns["spill_bytes"]
    images = set(table.columns["image"])
    return KernelFacts(
        name=kernel,
        variants=len(table),
        configs=len(set(table.columns["config"])),
        toolchains=_toolchains_of(table),
        images=len(images),
        image_bytes=sum(_image_bytes(bundle, kernel, image) for image in images),
        registers_min=min(registers, default=0),
        registers_max=max(registers, default=0),
        spilling=sum(spilled > 0 for spilled in spills),
        spill_bytes_max=max(spills, default=0),
        shared_bytes_max=max((launch.shared_bytes for launch in table.launches), default=0),
    )


def variant_facts(bundle: BundleFile, kernel: str) -> tuple[VariantFacts, ...]:
    """Return the variants of one kernel in the order of its table. Reads its images to compute their digests.

    Raises:
        KernelNotFoundError: the bundle has no such kernel.
    """
    table = bundle.table(kernel)
    digests = _digests(bundle, kernel, table.columns["image"])
    return tuple(_variant(bundle, table, row, digests) for row in range(len(table)))


def _variant(bundle: BundleFile, table: KernelTable, row: int, digests: dict[int, str]) -> VariantFacts:
    launch = table.launches[table.columns["launch"][row]]
    image = table.columns["image"][row]
    return VariantFacts(
        id=table.variant_id(row),
        label=table.label(row),
        registers=table.columns["registers"][row],
        spill_bytes=table.columns["spill_bytes"][row],
        shared_bytes=launch.shared_bytes,
        num_warps=launch.num_warps,
        num_ctas=launch.num_ctas,
        toolchain=_toolchain_of(table, row),
        image=image,
        image_bytes=_image_bytes(bundle, table.kernel, image),
        image_sha256=digests[image],
    )


def _toolchain_of(table: KernelTable, row: int) -> str:
    return str(dict(table.configs[table.columns["config"][row]].options).get(TOOLCHAIN) or "")


def _toolchains_of(table: KernelTable) -> dict[str, int]:
    counted = Counter(_toolchain_of(table, row) for row in range(len(table)))
    return {name: counted[name] for name in sorted(counted) if name}


def _digests(bundle: BundleFile, kernel: str, images: Iterable[int]) -> dict[int, str]:
    # in file order: each group is decompressed once
    return {image: hashlib.sha256(bundle.image(kernel, image)).hexdigest() for image in sorted(set(images))}


def _image_bytes(bundle: BundleFile, kernel: str, image: int) -> int:
    place = bundle.place(kernel, image)
    return place.end - place.start


def definition(table: KernelTable) -> dict[str, Json]:
    """Return a kernel's definition as JSON: all of its variant table except the rows."""
    return {"params": [_param(param) for param in table.params], **encode_definition(table)}


def config_words(config: Config) -> str:
    """Return a config as text: ``BLOCK=128 num_warps=4``. Options left to Triton's defaults are omitted."""
    words = [f"{name}={spell(value)}" for name, value in config.constexprs + config.options if value is not None]
    return " ".join(words) + (f" requires {config.requires}" if config.requires else "")


def _param(param: Param) -> Json:
    facts: dict[str, Json] = {"name": param.name, "constexpr": param.constexpr}
    if not isinstance(param.default, Missing):
        facts["default"] = encode_value(param.default)
    return facts
