"""What goes into wheels: bundles, opened and checked, and what of them takes how much room."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.inspection import open_bundle
from nojit.aot.signed import read_vouched, sha256_of
from nojit.runtime.errors import BundleError, PackageError
from nojit.runtime.format import SUFFIX, BundleIndex
from nojit.runtime.trust import signed_path

_VERSION = re.compile(r"[0-9][A-Za-z0-9_.+!]{0,99}")

__all__ = ["BundleContent", "KernelSize", "largest_kernels", "read_bundle"]


@dataclass(frozen=True, slots=True)
class KernelSize:
    """What one kernel of a bundle takes."""

    name: str
    variants: int
    stored_bytes: int
    """Of its table and its images, compressed."""


@dataclass(frozen=True, slots=True)
class BundleContent:
    """One bundle, as it goes into a wheel."""

    path: Path
    """Where it was read from."""
    data: bytes
    index: BundleIndex
    digest: str
    """SHA-256 of the index: the bundle's identity."""
    kernels: tuple[KernelSize, ...]
    """In the index's order."""
    statement: bytes | None
    """What was signed of it, from the file beside it; None if there is none."""

    @property
    def arch(self) -> str:
        """What it was built for."""
        return self.index.target.arch

    @property
    def file_name(self) -> str:
        """How it is called in a wheel, whatever its file was called."""
        return f"{self.index.name}-{self.index.version}-{self.arch}{SUFFIX}"

    @property
    def files(self) -> dict[str, bytes]:
        """What goes into a wheel, by name."""
        beside = {} if self.statement is None else {signed_path(self.file_name): self.statement}
        return {self.file_name: self.data, **beside}

    @property
    def sha256(self) -> str:
        """Digest of the whole file."""
        return hashlib.sha256(self.data).hexdigest()


def read_bundle(path: Path) -> BundleContent:
    """Read a bundle whole; every byte of it is checked against its hashes, and what is signed of it against both.

    Raises:
        BundleError: it is no whole, unaltered bundle, or the signed statement beside it says something else.
        PackageError: it has a version that no build gives, or the signed statement is damaged, or of another bundle.
    """
    with open_bundle(path) as bundle:
        # through one descriptor: a rebuild may put another file in its place
        data = b"".join(bundle.stream())
        bundle.verify()
        index = bundle.index
        # it becomes part of a path
        if not _VERSION.fullmatch(index.version):
            raise PackageError("expected a bundle's version as nojit build allows", got=index.version, where=str(path))
        statement = read_vouched(bundle)
        kernels = tuple(_sizes(index))
        if hashlib.sha256(data).hexdigest() != sha256_of(bundle):
            raise BundleError("expected a bundle that stays as it is while it is read", got="another", where=str(path))
    return BundleContent(path, data, index, bundle.digest, kernels, statement)


def _sizes(index: BundleIndex) -> Iterable[KernelSize]:
    for entry in index.kernels:
        yield KernelSize(entry.name, entry.variants, entry.table.stored_bytes + entry.payload_bytes)


def largest_kernels(bundles: Sequence[BundleContent], count: int) -> list[KernelSize]:
    """List the kernels that take the most room, over all bundles."""
    total: dict[str, KernelSize] = {}
    for kernel in (kernel for bundle in bundles for kernel in bundle.kernels):
        known = total.get(kernel.name, KernelSize(kernel.name, 0, 0))
        total[kernel.name] = KernelSize(
            kernel.name, known.variants + kernel.variants, known.stored_bytes + kernel.stored_bytes
        )
    return sorted(total.values(), key=lambda kernel: (-kernel.stored_bytes, kernel.name))[:count]
