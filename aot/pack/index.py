"""Encoding of a bundle's header and index: records to bytes."""

from __future__ import annotations

import struct

from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.bundle.format import FORMAT_VERSION, MAGIC, BundleIndex, Header, KernelEntry, Section

__all__ = ["encode_header", "encode_index"]

_HEADER = struct.Struct("<8sIIQQ32s")


def encode_header(header: Header) -> bytes:
    """Lay out the first 64 bytes."""
    return _HEADER.pack(MAGIC, FORMAT_VERSION, 0, header.index_bytes, header.index_raw_bytes, header.index_sha256)


def encode_index(index: BundleIndex) -> bytes:
    """Lay out the index as canonical JSON."""
    target = index.target
    return canonical_json(
        {
            "name": index.name,
            "version": index.version,
            "target": {
                "backend": target.backend,
                "arch": target.arch,
                "image_arch": target.image_arch,
                "warp_size": target.warp_size,
            },
            "toolchain": [[tool, version] for tool, version in index.toolchain],
            "min_driver": index.min_driver,
            "inputs": index.inputs,
            "kernels": [_entry_json(entry) for entry in index.kernels],
            "attachments": [
                {"name": attachment.name, "section": _section_json(attachment.section)}
                for attachment in index.attachments
            ],
        }
    )


def _entry_json(entry: KernelEntry) -> Json:
    return {
        "name": entry.name,
        "variants": entry.variants,
        "images": entry.images,
        "groups": entry.groups,
        "payload_bytes": entry.payload_bytes,
        "table": _section_json(entry.table),
    }


def _section_json(section: Section) -> Json:
    return {"stored_bytes": section.stored_bytes, "raw_bytes": section.raw_bytes, "sha256": section.sha256}
