"""The metadata of a wheel: for installers, for readers, and the provenance of its bundles. Pure.

Source: the packaging specification "Core metadata", version 2.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nojit.aot.backends.registry import vendors
from nojit.aot.compile.toolchain.digests import toolchain_words
from nojit.aot.signing.shipped_bundles import VerifiedBundle
from nojit.aot.wheel.names import check_license, check_requirement
from nojit.runtime.discovery.installed import ENTRY_POINTS
from nojit.runtime.errors import PackageError
from nojit.runtime.target import spell_cuda

__all__ = ["Facts", "dist_info", "entry_points", "provenance"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Metadata from the builder, equal in all wheels of one run."""

    runtime: str
    """Requirement for nojit's runtime: ``nojit>=0.1.0``."""
    requires: tuple[str, ...] = ()
    """Further requirements of the wheel."""
    license: str = ""
    """SPDX expression; empty if the builder gave none."""
    license_files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the licence files, by file name."""
    urls: tuple[str, ...] = ()
    """Project URLs, each ``label, URL``."""


def dist_info(
    name: str,
    version: str,
    bundles: Sequence[VerifiedBundle],
    facts: Facts,
    *,
    summary: str,
    requires: Sequence[str],
    extras: Sequence[str] = (),
    body: str = "",
) -> dict[str, bytes]:
    """Return the files of a ``.dist-info`` folder, without WHEEL, RECORD and the entry points.

    Args:
        name: the distribution's name.
        version: the distribution's version.
        bundles: the bundles that the description lists; may be empty.
        facts: metadata from the builder.
        summary: one-line summary.
        requires: requirements, with environment markers.
        extras: names of the extras.
        body: text of the description, above the tables of bundles.

    Raises:
        PackageError: a field has a line break or control character, or a requirement or the licence is invalid.
    """
    # a thin wheel has no bundle
    made = {bundle.index.target.backend for bundle in bundles} or {vendor.NAME for vendor in vendors()}
    headers = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: {summary}",
        *([f"License-Expression: {check_license(facts.license)}"] if facts.license else []),
        *(f"License-File: {file}" for file in sorted(facts.license_files)),
        *(f"Project-URL: {url}" for url in facts.urls),
        "Keywords: triton,gpu,cuda,kernels,ahead-of-time",
        *(f"Classifier: {vendor.CLASSIFIER}" for vendor in vendors() if vendor.NAME in made),
        "Classifier: Operating System :: POSIX :: Linux",
        "Requires-Python: >=3.11",
        *(f"Requires-Dist: {requirement}" for requirement in requires),
        *(f"Provides-Extra: {extra}" for extra in extras),
        "Description-Content-Type: text/markdown",
    ]
    for header in headers:
        # a line break would start another field
        if not header.isprintable():
            raise PackageError("expected metadata fields of one line, without control characters", got=repr(header))
    for requirement in requires:
        check_requirement(requirement)
    description = "\n\n".join(filter(None, [body, *_tables(bundles)]))
    files = {"METADATA": "\n".join([*headers, "", description, ""]).encode()}
    files |= {f"licenses/{file}": content for file, content in facts.license_files.items()}
    return files


def _tables(bundles: Sequence[VerifiedBundle]) -> Iterator[str]:
    """Return the bundles and their kernels as Markdown tables."""
    if not bundles:
        return
    rows = ["| bundle | images | driver for CUDA | toolchain | size | digest |", "|---|---|---|---|---|---|"]
    for bundle in bundles:
        index = bundle.index
        tools = toolchain_words(index.toolchain)
        rows.append(
            f"| {bundle.file_name} | {index.target.image_arch} | {spell_cuda(index.min_driver)} or newer | {tools} "
            f"| {bundle.size_bytes:,} bytes | `{bundle.digest[:12]}` |"
        )
    yield "\n".join(rows)
    rows = ["| kernel | variants |", "|---|---|"]
    counts: dict[str, list[int]] = {}
    for kernel in (kernel for bundle in bundles for kernel in bundle.kernels):
        counts.setdefault(kernel.name, []).append(kernel.variants)
    rows += [f"| {name} | {' + '.join(map(str, variants))} |" for name, variants in sorted(counts.items())]
    yield "\n".join(rows)


def provenance(bundles: Sequence[VerifiedBundle], package: str) -> bytes:
    """Return the provenance of a wheel's bundles as JSON: only facts that inputs and toolchain determine."""
    documents = [
        {
            "file": f"{package}/{bundle.file_name}",
            "sha256": bundle.sha256,
            "size_bytes": bundle.size_bytes,
            "name": bundle.index.name,
            "version": bundle.index.version,
            "digest": bundle.digest,
            "inputs": bundle.index.inputs,
            "arch": bundle.arch,
            "image_arch": bundle.index.target.image_arch,
            "min_driver": bundle.index.min_driver,
            "toolchain": dict(bundle.index.toolchain),
            "kernels": {
                kernel.name: {"variants": kernel.variants, "stored_bytes": kernel.stored_bytes}
                for kernel in bundle.kernels
            },
        }
        for bundle in bundles
    ]
    return json.dumps({"schema": 1, "bundles": documents}, indent=2).encode() + b"\n"


def entry_points(name: str, package: str) -> bytes:
    """Return ``entry_points.txt``, by which `nojit.runtime` finds the package."""
    return f"[{ENTRY_POINTS}]\n{name} = {package}\n".encode()
