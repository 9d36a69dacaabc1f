"""Manifests and indexes: their bytes, and how hostile ones are read."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from nojit.aot.oci.documents import EMPTY, INDEX, MANIFEST, Descriptor, digest_of, encode, parse_document
from nojit.aot.oci.release import open_release
from nojit.runtime.errors import RegistryError

LAYER = Descriptor("text/plain", digest_of(b"x"), 1, annotations={"b": "2", "a": "1"})
SUBJECT = Descriptor(MANIFEST, digest_of(b"s"), 3, "some/type", {"left": "out"})


def test_fields_have_the_order_of_the_go_types() -> None:
    """Or a tool that decodes and encodes a document would change its digest."""
    manifest = encode(MANIFEST, "a/b", layers=[LAYER], subject=SUBJECT, annotations={"z": "1", "y": "2"})
    assert manifest.raw.decode() == (
        '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"a/b",'
        f'"config":{{"mediaType":"application/vnd.oci.empty.v1+json","digest":"{EMPTY.digest}","size":2}},'
        f'"layers":[{{"mediaType":"text/plain","digest":"{LAYER.digest}","size":1,"annotations":{{"a":"1","b":"2"}}}}],'
        f'"subject":{{"mediaType":"{MANIFEST}","digest":"{SUBJECT.digest}","size":3}},'
        '"annotations":{"y":"2","z":"1"}}'
    )
    index = encode(INDEX, manifests=[manifest.descriptor], annotations={"c": "3"})
    assert [*json.loads(index.raw)] == ["schemaVersion", "mediaType", "manifests", "annotations"]
    assert [*json.loads(index.raw)["manifests"][0]] == ["mediaType", "digest", "size", "annotations", "artifactType"]


def test_written_documents_are_read() -> None:
    manifest = encode(MANIFEST, "a/b", layers=[LAYER], subject=SUBJECT, annotations={"z": "1"})
    read = parse_document(manifest.raw, "", "")
    assert read == manifest
    assert (read.layers, read.blobs, read.kind) == ((LAYER,), (EMPTY, LAYER), "a/b")
    assert read.descriptor == Descriptor(MANIFEST, digest_of(manifest.raw), len(manifest.raw), "a/b", {"z": "1"})


VALUES: tuple[Any, ...] = (None, True, -1, 0, 2**63, 1.5, "", "\ud800", "sha256:", [], {}, [[]], [{}], {"a": 1})


def test_changed_documents_are_read_or_refused() -> None:
    """With every field replaced by values of other types, and with bytes changed at random."""
    annotations = dict.fromkeys(["nojit.name", "nojit.image-arch", "nojit.arch", "nojit.digest"], "x")
    annotations |= {"nojit.min-driver": "1", "org.opencontainers.image.version": "1"}
    bundle = Descriptor(MANIFEST, digest_of(b"b"), 3, annotations=annotations)
    index = encode(INDEX, manifests=[bundle], annotations={"nojit.release": "1"})
    documents = [encode(MANIFEST, "a/b", layers=[LAYER], subject=SUBJECT).raw, index.raw]
    assert open_release(index, "").offers[0].file_name == "x-1-x.nojit"
    for raw in documents[:2]:
        for path in paths(json.loads(raw)):
            documents += [json.dumps(replaced(json.loads(raw), path, value)).encode() for value in VALUES]
    chance = random.Random(0)
    for raw in documents[:2] * 500:
        mutant = bytearray(raw)
        for _ in range(chance.randint(1, 3)):
            mutant[chance.randrange(len(mutant))] = chance.choice(b'"{}[],:0aZ\\\xff')
        documents.append(bytes(mutant))
    documents += [b"", b"[" * 100_000, b'{"layers":' * 10_000, b'{"size":' + b"9" * 5000 + b"}"]
    refused = []
    for raw in documents:
        try:
            open_release(parse_document(raw, INDEX, "there"), "there")
        except RegistryError as error:
            refused.append(error)
    assert len(refused) > len(documents) / 2
    assert {error.reason for error in refused} == {"not-ours"}
    assert max(len(str(error)) for error in refused) < 1000


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, one in inside for path in ((key,), *((key, *rest) for rest in paths(one)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a value with another value at a path."""
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return value


@pytest.mark.parametrize("name", ["../x", ".x", "/x", "a/b", "a\\b", "x\n", "", "x" * 300])
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    annotations = dict.fromkeys(["nojit.image-arch", "nojit.arch", "nojit.digest"], "x")
    annotations |= {"nojit.name": name, "nojit.min-driver": "1", "org.opencontainers.image.version": "1"}
    index = encode(
        INDEX,
        manifests=[Descriptor(MANIFEST, digest_of(b"b"), 3, annotations=annotations)],
        annotations={"nojit.release": "1"},
    )
    with pytest.raises(RegistryError, match="expected a bundle whose name, version and arch make a file name"):
        open_release(index, "")
