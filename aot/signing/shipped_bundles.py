"""Reader of the bundles that a wheel or a registry ships: it verifies them and computes the size of each kernel."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.backends.registry import arch_of
from nojit.aot.inspect.contents import open_bundle
from nojit.aot.inspect.verification import verify_bundle
from nojit.aot.signing.verify_signature import read_vouched, sha256_of
from nojit.runtime.bundle.format import SUFFIX, BundleIndex
from nojit.runtime.errors import BundleError, PackageError
from nojit.runtime.trust.envelope import signed_path

_VERSION = re.compile(r"[0-9][A-Za-z0-9_.+!]{0,99}")

__all__ = ["KernelSize", "VerifiedBundle", "largest_kernels", "read_bundle"]


@dataclass(frozen=True, slots=True)
class KernelSize:
    """The size of one kernel in a bundle."""

    name: str
    variants: int
    stored_bytes: int
    """Compressed size in bytes of the kernel's variant table and images."""


@dataclass(frozen=True, slots=True)
class VerifiedBundle:
    """One verified bundle to ship."""

    path: Path
    """Path of the bundle file."""
    sha256: str
    """SHA-256 of the file, in hex."""
    size_bytes: int
    """Length of the file."""
    index: BundleIndex
    digest: str
    """SHA-256 of the bundle's index, which identifies the bundle."""
    kernels: tuple[KernelSize, ...]
    """Kernels of the bundle, in the order of its index."""
    statement: bytes | None
    """The signed statement, from the file next to the bundle; None if there is no such file."""

    @property
    def arch(self) -> str:
        """The arch that a build names for the target: ``sm_90``, ``sm_100f``."""
        return arch_of(self.index.target)

    @property
    def file_name(self) -> str:
        """The bundle's file name where it is shipped: from its name, version and arch, not from `path`."""
        return f"{self.index.name}-{self.index.version}-{self.arch}{SUFFIX}"

    def read_files(self) -> dict[str, bytes]:
        """Return the contents of the files to ship, by name: the bundle, and its signed statement if any.

        Raises:
            BundleError: the file has changed since it was verified.
        """
        data = self.path.read_bytes()
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise BundleError(
                "expected a file that does not change while it is read: try again after the build has ended",
                got="other bytes",
                where=str(self.path),
            )
        beside = {} if self.statement is None else {signed_path(self.file_name): self.statement}
        return {self.file_name: data, **beside}


def read_bundle(path: Path) -> VerifiedBundle:
    """Read and verify a whole bundle: its hashes, every image against its launch description, the signed statement against it.

    Raises:
        BundleError: the bundle is incomplete or altered, or contradicts its signed statement.
        PackageError: the version is not one that a build gives, or the signed statement is damaged or of another
            bundle.
    """
    # all reads use one descriptor, because a rebuild may replace the file meanwhile
    with open_bundle(path) as bundle:
        # first: bytes that change from here on are not shipped
        sha256 = sha256_of(bundle)
        verify_bundle(bundle)
        index = bundle.index
        # the version becomes part of a path
        if not _VERSION.fullmatch(index.version):
            raise PackageError("expected a bundle's version as nojit build allows", got=index.version, where=str(path))
        statement = read_vouched(bundle)
        kernels = tuple(_sizes(index))
    return VerifiedBundle(path, sha256, bundle.size_bytes, index, bundle.digest, kernels, statement)


def _sizes(index: BundleIndex) -> Iterable[KernelSize]:
    for entry in index.kernels:
        yield KernelSize(entry.name, entry.variants, entry.table.stored_bytes + entry.payload_bytes)


def largest_kernels(bundles: Sequence[VerifiedBundle], count: int) -> list[KernelSize]:
    """Return the `count` largest kernels by compressed size, summed over all bundles."""
    total: dict[str, KernelSize] = {}
    for kernel in (kernel for bundle in bundles for kernel in bundle.kernels):
        known = total.get(kernel.name, KernelSize(kernel.name, 0, 0))
        total[kernel.name] = KernelSize(
            kernel.name, known.variants + kernel.variants, known.stored_bytes + kernel.stored_bytes
        )
    return sorted(total.values(), key=lambda kernel: (-kernel.stored_bytes, kernel.name))[:count]
