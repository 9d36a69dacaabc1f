"""Where the kernels of a recording's bundle come from: the attachment ``origins.json``.

It is canonical JSON::

    {"format": 2, "triton": "3.9.0", "torch": "2.13.0", "inductor": [...], "kernels": [...], "distributions": [...]}

A kernel has

=============== ===========================================================================================
``kernel``      its name in the bundle
``module``      module of the function; ``qualname`` its qualified name
``closure``     digest of its source closure
``fingerprint`` hashes of the closure (`nojit.runtime.recording.drift.fingerprint`), to find drift
``functions``   ``[module:name, fingerprint]`` of each function that calls passed as a constexpr
``options``     ``[name, default]`` of each constexpr param of the bundle's kernel that is an option of Triton
``winners``     choices of its autotuners: ``names`` and values (``key``) of the key, and ``config`` by name
=============== ===========================================================================================

An item of ``inductor`` has ``arch``, ``triton_key`` and ``backend_hash``, by which the caches of torch.compile know Triton. A
distribution has ``name``, ``version`` and ``license``. Values are encoded as bundles encode constexprs. There is no source text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.strict_json import Json, canonical_json, fields, refuse, text

__all__ = [
    "ATTACHMENT",
    "FORMAT",
    "Distribution",
    "InductorFacts",
    "Origin",
    "Origins",
    "Winner",
    "encode_origins",
    "read_origins",
]

ATTACHMENT: Final = "origins.json"
FORMAT: Final = 2

T = TypeVar("T")


class Winner(Record):
    """The config that an autotuner chose for a key."""

    names: tuple[str, ...]
    """Names of the key's values; empty if the recording has none."""
    key: tuple[Json, ...]
    config: Mapping[str, Json]
    """Constexprs and options by name."""


class Origin(Record):
    """The function of Triton that a kernel was built from."""

    kernel: str
    """Name in the bundle."""
    module: str
    qualname: str
    closure: str
    """Digest of its source closure."""
    fingerprint: Any
    functions: Mapping[str, Any]
    """Fingerprint of each function among its constexprs, by ``module:name``."""
    options: Mapping[str, Json]
    """Default of each constexpr param that is an option of Triton."""
    winners: tuple[Winner, ...]


class Distribution(Record):
    """An installed package whose source was recorded."""

    name: str
    version: str
    license: str


class InductorFacts(Record):
    """The Triton of a recording, as the caches of torch.compile know it."""

    arch: str
    triton_key: str
    backend_hash: str


class Origins(Record):
    """The origins of all kernels of a bundle."""

    triton: str
    """The Triton version of the recording."""
    torch: str
    """The torch version of the recording; empty if the program had none."""
    kernels: tuple[Origin, ...]
    distributions: tuple[Distribution, ...] = ()
    inductor: tuple[InductorFacts, ...] = ()


def encode_origins(origins: Origins) -> bytes:
    """Return the bytes of the attachment; equal origins give equal bytes."""
    return canonical_json(
        {
            "format": FORMAT,
            "triton": origins.triton,
            "torch": origins.torch,
            "inductor": [
                {"arch": each.arch, "triton_key": each.triton_key, "backend_hash": each.backend_hash}
                for each in origins.inductor
            ],
            "kernels": [_origin_json(each) for each in origins.kernels],
            "distributions": [
                {"name": each.name, "version": each.version, "license": each.license} for each in origins.distributions
            ],
        }
    )


def _origin_json(each: Origin) -> Json:
    return {
        "kernel": each.kernel,
        "module": each.module,
        "qualname": each.qualname,
        "closure": each.closure,
        "fingerprint": each.fingerprint,
        "functions": [[name, known] for name, known in sorted(each.functions.items())],
        "options": [[name, value] for name, value in sorted(each.options.items())],
        "winners": [{"names": [*won.names], "key": [*won.key], "config": {**won.config}} for won in each.winners],
    }


def read_origins(raw: bytes, where: str) -> Origins:
    """Read the attachment.

    Args:
        raw: its bytes.
        where: the bundle, for errors.

    Raises:
        BundleFormatError: it has another form.
    """
    where = f"{where} {ATTACHMENT}"
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise refuse("json", "expected JSON", got=str(error), where=where) from None
    if isinstance(content, dict) and content.get("format") != FORMAT:
        what = f"expected origins of format {FORMAT}: update nojit, or build again"
        raise refuse("version", what, got=content.get("format"), where=where)
    names = ("triton", "torch", "inductor", "kernels", "distributions", "format")
    triton, torch, inductor, kernels, distributions, _ = fields(content, names, where)
    origins = Origins(
        text(triton, f"{where} triton"),
        text(torch, f"{where} torch"),
        _each(kernels, _origin, f"{where} kernels"),
        _each(distributions, _distribution, f"{where} distributions"),
        _each(inductor, _inductor, f"{where} inductor"),
    )
    if encode_origins(origins) != raw:
        raise refuse("json-canonical", "expected canonical JSON", where=where)
    return origins


def _each(items: Json, read: Callable[[Json, str], T], where: str) -> tuple[T, ...]:
    if not isinstance(items, list):
        raise refuse("type", "expected an array", got=type(items).__name__, where=where)
    return tuple([read(item, f"{where}[{number}]") for number, item in enumerate(items)])


def _origin(item: Json, where: str) -> Origin:
    names = ("kernel", "module", "qualname", "closure", "fingerprint", "functions", "options", "winners")
    kernel, module, qualname, closure, known, functions, options, winners = fields(item, names, where)
    return Origin(
        text(kernel, f"{where}.kernel"),
        text(module, f"{where}.module"),
        text(qualname, f"{where}.qualname"),
        text(closure, f"{where}.closure"),
        _fingerprint(known, f"{where}.fingerprint"),
        {name: _fingerprint(each, f"{where}.functions") for name, each in _pairs(functions, f"{where}.functions")},
        dict(_pairs(options, f"{where}.options")),
        _each(winners, _winner, f"{where}.winners"),
    )


def _winner(item: Json, where: str) -> Winner:
    names, key, config = fields(item, ("names", "key", "config"), where)
    if not isinstance(config, dict):
        raise refuse("type", "expected an object", got=type(config).__name__, where=f"{where}.config")
    return Winner(_each(names, text, f"{where}.names"), _each(key, _as_it_is, f"{where}.key"), config)


def _distribution(item: Json, where: str) -> Distribution:
    name, version, licence = fields(item, ("name", "version", "license"), where)
    return Distribution(text(name, where), text(version, where), text(licence, where))


def _inductor(item: Json, where: str) -> InductorFacts:
    arch, key, backend = fields(item, ("arch", "triton_key", "backend_hash"), where)
    return InductorFacts(text(arch, where), text(key, where), text(backend, where))


def _pairs(items: Json, where: str) -> list[tuple[str, Json]]:
    def pair(item: Json, place: str) -> tuple[str, Json]:
        if not isinstance(item, list) or len(item) != 2:
            raise refuse("type", "expected a pair", where=place)
        return text(item[0], place), item[1]

    return [*_each(items, pair, where)]


def _as_it_is(item: Json, _where: str) -> Json:
    return item


def _fingerprint(item: Json, where: str) -> Json:
    """Check the form of a fingerprint: drift is looked for by what it holds."""
    (definitions,) = fields(item, ("definitions",), where)
    count = len(_each(definitions, _as_it_is, where))
    if not count:
        raise refuse("size", "expected a definition", where=where)

    def definition(each: Json, place: str) -> None:
        *texts, names = fields(each, ("module", "qualname", "text", "names"), place)
        for value in texts:
            text(value, place)
        for _, reference in _pairs(names, place):
            if isinstance(reference, str):
                continue
            if type(reference) is not int or not 0 <= reference < count:
                raise refuse("type", "expected a hash or the number of a definition", got=reference, where=place)

    _each(definitions, definition, f"{where}.definitions")
    return item
