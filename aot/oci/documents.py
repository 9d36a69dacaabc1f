"""Documents of the OCI image specification 1.1: descriptors, manifests and indexes. Pure.

The same content has the same bytes on every machine. Fields are in the order of the specification's Go types, so that skopeo, which
decodes and encodes an index when it copies it, writes the same bytes. Readers accept any spelling, because the digest covers the bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nojit.aot.oci.error_reasons import refusal

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "EMPTY",
    "EMPTY_BYTES",
    "INDEX",
    "MANIFEST",
    "TITLE",
    "VERSION",
    "Descriptor",
    "Document",
    "digest_of",
    "encode",
    "parse_document",
]

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
TITLE: Final = "org.opencontainers.image.title"
VERSION: Final = "org.opencontainers.image.version"
# registries refuse longer documents ("Pushing Manifests" in the distribution specification)
DOCUMENT_BYTES_MAX: Final = 4 << 20
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SIZE_MAX: Final = 1 << 42
_LISTED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Type, digest and size of a content, as a document lists it."""

    media_type: str
    digest: str
    """``sha256:`` and 64 hex digits."""
    size_bytes: int
    artifact_type: str = ""
    """Type of the artifact, if the content is a manifest or an index; may be empty."""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def hex(self) -> str:
        """The SHA-256 of the content, in hex."""
        return self.digest.partition(":")[2]

    def document(self) -> dict[str, Any]:
        """Return the descriptor as JSON."""
        said: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}
        if self.annotations:
            said["annotations"] = dict(sorted(self.annotations.items()))
        if self.artifact_type:
            said["artifactType"] = self.artifact_type
        return said


EMPTY_BYTES: Final = b"{}"
EMPTY: Final = Descriptor(
    "application/vnd.oci.empty.v1+json", f"sha256:{hashlib.sha256(EMPTY_BYTES).hexdigest()}", len(EMPTY_BYTES)
)
"""The config of a manifest that needs none."""


@dataclass(frozen=True, slots=True)
class Document:
    """A manifest or an index."""

    raw: bytes
    media_type: str
    artifact_type: str
    config: Descriptor | None
    layers: tuple[Descriptor, ...]
    manifests: tuple[Descriptor, ...]
    subject: Descriptor | None
    annotations: Mapping[str, str]

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the document, with its annotations."""
        kind = self.artifact_type
        return Descriptor(self.media_type, digest_of(self.raw), len(self.raw), kind, self.annotations)

    @property
    def kind(self) -> str:
        """Kind of the document, for messages."""
        config = self.config.media_type if self.config else ""
        return self.artifact_type or (config if config != EMPTY.media_type else "") or self.media_type

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """The contents of a manifest: its config and its layers."""
        return (*([self.config] if self.config else []), *self.layers)


def digest_of(content: bytes) -> str:
    """Return the digest of a content as OCI spells it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encode(
    media_type: str,
    artifact_type: str = "",
    *,
    layers: Sequence[Descriptor] = (),
    manifests: Sequence[Descriptor] = (),
    subject: Descriptor | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Document:
    """Return a manifest with layers, or an index of manifests.

    Args:
        media_type: `MANIFEST` or `INDEX`.
        artifact_type: type of the artifact; empty for none.
        layers: contents of a manifest.
        manifests: manifests of an index.
        subject: the manifest that this one refers to.
        annotations: names and values.
    """
    config = EMPTY if media_type == MANIFEST else None
    said: dict[str, Any] = {"schemaVersion": 2, "mediaType": media_type}
    if artifact_type:
        said["artifactType"] = artifact_type
    if config:
        said |= {"config": config.document(), "layers": [each.document() for each in layers]}
    else:
        said["manifests"] = [each.document() for each in manifests]
    if subject:
        # a subject has no annotations
        said["subject"] = Descriptor(subject.media_type, subject.digest, subject.size_bytes).document()
    if annotations:
        said["annotations"] = dict(sorted(annotations.items()))
    raw = json.dumps(said, separators=(",", ":")).encode()
    return parse_document(raw, media_type, "")


def parse_document(raw: bytes, media_type: str, where: str) -> Document:
    """Return the manifest or index with these bytes.

    Args:
        raw: the bytes.
        media_type: type that the registry or a descriptor gives; the document's own counts if it has one.
        where: place of the document, for messages.

    Raises:
        RegistryError: the bytes are neither.
    """
    try:
        said = _object(json.loads(raw))
        config = said.get("config")
        # a manifest of the first schema of Docker has neither
        return Document(
            raw=raw,
            media_type=_text(said.get("mediaType", media_type)),
            artifact_type=_text(said.get("artifactType", "")),
            config=None if config is None else _descriptor(config),
            layers=_descriptors(said.get("layers", [])),
            manifests=_descriptors(said.get("manifests", [])),
            subject=None if said.get("subject") is None else _descriptor(said["subject"]),
            annotations=_annotations(said.get("annotations")),
        )
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        what = "expected a manifest or an index of the OCI image specification"
        raise refusal("not-ours", what, got=f"one with {error}" if str(error) else "", where=where) from None


def _descriptors(said: object) -> tuple[Descriptor, ...]:
    if not isinstance(said, list) or len(said) > _LISTED_MAX:
        raise TypeError(f"no list of at most {_LISTED_MAX} descriptors")
    return tuple(map(_descriptor, said))


def _descriptor(said: Any) -> Descriptor:
    said = _object(said)
    digest, size = _text(said["digest"]), said["size"]
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"a digest {digest!r:.100} instead of SHA-256")
    if type(size) is not int or not 0 <= size <= _SIZE_MAX:
        raise ValueError(f"a size {size!r:.100}")
    kind = _text(said.get("artifactType", ""))
    return Descriptor(_text(said["mediaType"]), digest, size, kind, _annotations(said.get("annotations")))


def _annotations(said: object) -> dict[str, str]:
    if said is None:
        return {}
    return {name: _text(value) for name, value in _object(said).items()}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.100} instead of an object")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} instead of a string")
    return value
