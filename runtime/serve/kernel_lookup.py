"""Look up the kernel for a live function of Triton: in bundles of recordings, by module and name, and then by its source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nojit.runtime import loader
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import few
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, NoMatchingVariantError
from nojit.runtime.loader import Bundle
from nojit.runtime.recording.drift import drift_of
from nojit.runtime.recording.origins import ATTACHMENT, Origin, Origins, read_origins

__all__ = ["KernelLookup", "RecordedKernel"]


class RecordedKernel(Record):
    """A kernel of a bundle, and the function that it was recorded from."""

    bundle: Bundle
    origin: Origin
    triton: str
    """The Triton version of its recording."""


class KernelLookup:
    """Finds the kernels of bundles by the functions that they were recorded from.

    Args:
        paths: files and folders of bundles, the most important first.

    Attributes:
        bundles: the open bundles, in the order of `paths`.
        recorded: origins of the first bundle, whose versions the stand-in tells; None without bundles.

    Raises:
        FileNotFoundError: a path does not exist, or holds no bundle.
        BundleError: a bundle is damaged, or was not built from a recording.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.bundles: list[Bundle] = []
        self.recorded: Origins | None = None
        self._paths = (*paths,)
        # the most important bundle comes first
        self._kernels: dict[tuple[str, str], list[RecordedKernel]] = {}
        self._unbuilt: set[tuple[str, str]] = set()
        try:
            for path in self._paths:
                self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: str) -> None:
        bundle = loader.load(path)
        self.bundles.append(bundle)
        seen: set[tuple[str, str]] = set()
        for file in bundle.files:
            origins = _origins_of(file)
            self.recorded = self.recorded or origins
            for origin in origins.kernels:
                # `nojit build --keep-going` leaves out a kernel whose variants all failed to compile
                if origin.kernel not in file.kernels:
                    self._unbuilt.add((origin.module, origin.qualname))
                # files of several archs describe the same kernels
                elif (origin.kernel, origin.closure) not in seen:
                    seen.add((origin.kernel, origin.closure))
                    known = self._kernels.setdefault((origin.module, origin.qualname), [])
                    known.append(RecordedKernel(bundle, origin, origins.triton))

    def close(self) -> None:
        """Close the bundles. Loaded variants stay loaded."""
        for bundle in self.bundles:
            bundle.close()

    def modules_of(self, qualname: str) -> list[str]:
        """List the modules in which a function of that name was recorded."""
        return [module for module, name in (*self._kernels, *self._unbuilt) if name == qualname]

    def find(
        self, function: Any, modules: Sequence[str], qualname: str, triton: str
    ) -> RecordedKernel | NoMatchingVariantError:
        """Return the kernel of the first module in which the function's source is the recorded one, or why there is none.

        Args:
            function: the live ``@triton.jit`` function.
            modules: where it may have been recorded, the likeliest first.
            qualname: its name there.
            triton: the version of the Triton that would compile it; empty for the stand-in.
        """
        findings: list[tuple[str, tuple[tuple[str, str], ...]]] = []
        for module in modules:
            place, spelled = (module, qualname), f"{module}:{qualname}"
            drifts: list[tuple[str, str]] = []
            for known in self._kernels.get(place, ()):
                drift = _drift_of(function, known, triton)
                if not drift:
                    return known
                drifts.append((known.origin.kernel, drift))
            if drifts:
                findings.append((f"{spelled} is not the function that was recorded", tuple(drifts)))
            elif place in self._unbuilt:
                what = f"{spelled} was recorded, but the build left it out: expected a build without failures"
                findings.append((what, ()))
        what, reasons = findings[0] if findings else (f"no bundle has a kernel of {modules[0]}:{qualname}", ())
        return NoMatchingVariantError(what, where=few([*self._paths], 4), reasons=reasons)


def _origins_of(file: BundleFile) -> Origins:
    if ATTACHMENT not in file.attachments:
        what = "expected a bundle that was built from a recording: nojit build RECORDING"
        raise BundleError(what, got="a bundle without origins", where=file.path)
    return read_origins(file.attachment(ATTACHMENT), file.path)


def _drift_of(function: Any, known: RecordedKernel, triton: str) -> str:
    """Say how a live function differs from the recorded one; empty if it does not. A stand-in for Triton has no version."""
    # what follows a plus sign names a build of the same release
    if triton and triton.partition("+")[0] != known.triton.partition("+")[0]:
        return f"recorded with Triton {known.triton}, and this process has {triton}"
    drift = drift_of(function, known.origin.fingerprint)
    return f"{drift} (recorded closure {known.origin.closure[:12]})" if drift else ""
