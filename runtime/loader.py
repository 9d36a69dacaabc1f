"""Load bundles: one file, a folder for several archs, or the installed bundles of a name.

Loading starts no driver; the first launch does.
"""

from __future__ import annotations

import os
from _thread import RLock
from time import perf_counter_ns

from nojit.runtime import _core
from nojit.runtime.base.environment import BATCH_INVARIANT, DEBUG_INFO, TRUST, TRUSTED_KEYS, TUNING
from nojit.runtime.base.wording import counted, typed
from nojit.runtime.bundle.file import BundleFile, no_attachment
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import ArgumentError, BundleError, KernelNotFoundError
from nojit.runtime.first_call.arch_bundle import ArchBundle
from nojit.runtime.first_call.images import Images
from nojit.runtime.kernel import Kernel
from nojit.runtime.observe.events import emit, log
from nojit.runtime.target import by_arch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Self

    from nojit.runtime.bundle.file import Accept
    from nojit.runtime.first_call.rows_to_load import Only
    from nojit.runtime.tuning.overrides import TuningSource

__all__ = ["Bundle", "load", "process_policy"]


def load(path: str | os.PathLike[str], *, name: str | None = None) -> Bundle:
    """Open a bundle file, every ``*.nojit`` in a folder, or the bundles of a name.

    Args:
        path: a file; a folder, which may hold bundles of several archs and names; or a name. Of several versions of one bundle for
            one arch, the newest is used, and a warning names the others. A string that is no path is a name: nojit searches
            ``NOJIT_BUNDLES``, wheels and a checkout, and uses the first bundle found for each kernel and arch
            (`nojit.runtime.discovery.discover.named`).
        name: the name that each bundle must have, for a path that does not contain it. Case is ignored, and ``-``, ``_`` and ``.``
            are equal. None accepts any name.

    Raises:
        FileNotFoundError: the path does not exist, the folder holds no bundle, or no bundle has this name.
        BundleError: a file is damaged or is not called `name`, or two files of a folder hold the same kernel for one arch.
        BundleTrustError: ``NOJIT_TRUST`` requires a signature, and a file has none or an invalid one.
        SettingError: ``NOJIT_BATCH_INVARIANT`` is neither 0 nor 1.
        TuningError: a file in ``NOJIT_TUNING`` is not a tuned table, or uses something that its kernel lacks.
    """
    bundle = _load(path, () if name is None else (name,))
    if name is not None:
        _expect_called(bundle, name)
    return bundle


def _load(path: str | os.PathLike[str], names: tuple[str, ...]) -> Bundle:
    place = os.fsdecode(path)
    files, failed = [], None
    # not pathlib: importing it takes longer than opening a bundle
    try:
        files = os.listdir(place)  # noqa: PTH208
    except (NotADirectoryError, FileNotFoundError) as error:
        failed = error
    # outside of the handler, so that an error of a bundle or of a name does not show this one
    if isinstance(failed, FileNotFoundError):
        if _may_be_name(path):
            return _load_named(place)
        raise failed
    if failed is not None:
        return Bundle([place], names=names or _hidden_names(path))
    names = names or _hidden_names(path)
    paths = [os.path.join(place, file) for file in sorted(files, key=by_arch) if file.endswith(SUFFIX)]  # noqa: PTH118
    if not paths:
        hides = f"; {place} names that folder, and no installed bundle" if _may_be_name(path) else ""
        raise FileNotFoundError(f"expected *{SUFFIX} files in {place}, found none{hides}: build some with nojit build")
    return Bundle(paths, names=names)


def _expect_called(bundle: Bundle, name: str) -> None:
    """Require that every bundle has the name `name`, or is the twin of one that has."""
    from nojit.runtime.discovery.debug_twins import is_called

    for file in bundle.files:
        if not is_called(file.index.name, name):
            bundle.close()
            raise BundleError(f"expected bundle {name}", got=file.index.name, where=file.path)


def _may_be_name(path: str | os.PathLike[str]) -> bool:
    return isinstance(path, str) and os.sep not in path and not path.endswith(SUFFIX)


def _hidden_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the installed names that a path could hide, to check a bundle's signature under them.

    Anybody who can write to the current folder could otherwise replace an installed bundle. Without a required signature, names
    do not matter, and the result is empty.
    """
    if not _may_be_name(path) or os.environ.get(TRUST) in {None, "any"}:
        return ()
    from nojit.runtime.discovery.discover import asked_names, names
    from nojit.runtime.discovery.installed import normalized

    name = os.fsdecode(path)
    return asked_names(name) if normalized(name) in map(normalized, names(os.environ)) else ()


def _load_named(name: str) -> Bundle:
    # a bundle that is loaded by its path needs no package metadata
    from nojit.runtime.discovery.discover import asked_names, named

    found = named(name, os.environ)
    return Bundle([one.file or one.path for one in found], first_wins=True, names=asked_names(name))


class Bundle:
    """Kernels by name, from one file or several. Safe to use from several threads.

    Attributes:
        files: the bundle files in the given order; with ``NOJIT_DEBUG_INFO``, twins in place of some.
        passed_over: file and reason of each bundle that is not used, because an earlier file has its kernels or a newer version exists.

    Args:
        paths: the files, as paths or open bundles; the new object closes them.
        first_wins: if several files hold the same kernel for one arch, use the first instead of raising an error.
        names: the names under which a program asks for the files, for ``NOJIT_TRUST=signed``; empty for any.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str] | BundleFile],
        *,
        first_wins: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        self.files: tuple[BundleFile, ...] = ()
        given = [*paths]
        try:
            accept = process_policy()
            for one in given:
                self.files += (_open(one, accept),)
                self.files[-1].expect(names)
            self.files, older = _newest(self.files)
            twins = os.environ.get(DEBUG_INFO)
            if twins:
                self.files = _with_twins(self.files, twins, accept)
            self._by_kernel, beaten = _merge(self.files, first_wins=first_wins)
            for file, reason in older:
                log(30, f"passed over {file}: {reason}")
            for file, reason in beaten:
                log(10, f"passed over {file}: {reason}")
            self.passed_over = older + beaten
            self._batch_invariant = os.environ.get(BATCH_INVARIANT) is not None and _batch_invariant()
            places = os.environ.get(TUNING)
            self._overrides = _overrides(places, self._by_kernel) if places else {}
        except BaseException:
            self.close()
            for one in given:
                if isinstance(one, BundleFile):
                    one.close()
            raise
        # avoids dozens of look-ups in a large library before a first launch
        _core.find_driver()
        self._kernels: dict[str, Kernel] = {}
        # reentrant: a finalizer may ask for a kernel while this thread holds the lock
        self._lock = RLock()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, sorted."""
        return tuple(self._by_kernel)

    def kernel(self, name: str) -> Kernel:
        """Return a kernel; the same object each time.

        Raises:
            KernelNotFoundError: no file holds the kernel.
            ArgumentError: `name` is not a string.
            BundleError: the kernel's table differs from the one that the bundle pins, or breaks a rule.
        """
        if not isinstance(name, str):
            raise ArgumentError("expected the name of a kernel", got=typed(name), argument="name")
        with self._lock:
            kernel = self._kernels.get(name)
            if kernel is None:
                bundles, overrides = self.arch_bundles(name), self._overrides.get(name)
                made = Kernel(name, bundles, overrides, batch_invariant=self._batch_invariant)
                kernel = self._kernels.setdefault(name, made)
        return kernel

    def arch_bundles(self, name: str) -> tuple[ArchBundle, ...]:
        """Return the bundle files that hold a kernel, each for another arch; `str` of one is its path and arch.

        Raises:
            KernelNotFoundError: no file holds the kernel.
        """
        bundles = self._by_kernel.get(name)
        if bundles is None:
            where = ", ".join(file.path for file in self.files)
            from nojit.runtime.base.suggestions import nearest_or_few

            near = nearest_or_few(name, self.kernels)
            raise KernelNotFoundError(
                f"expected one of {counted(len(self._by_kernel), 'kernel')}", got=f"{name!r}{near}", where=where
            )
        return bundles

    @property
    def attachments(self) -> tuple[str, ...]:
        """The names of the attachments of all files, sorted."""
        return tuple(sorted({name for file in self.files for name in file.attachments}))

    def attachment(self, name: str) -> bytes:
        """Read an attachment: bytes that a build put into a bundle under a name. Opening a bundle does not read them.

        To read the attachment of one file of several, call ``attachment`` of a member of `files`.

        Raises:
            BundleError: no file has an attachment of this name, two files have different ones, or the bytes are damaged.
        """
        found = {file.path: file.attachment(name) for file in self.files if name in file.attachments}
        if not found:
            raise no_attachment(name, self.attachments, ", ".join(file.path for file in self.files))
        (path, content), *others = found.items()
        for other, theirs in others:
            if theirs != content:
                what = f"expected equal attachments {name} in all files; read one with bundle.files[i].attachment"
                raise BundleError(what, got="different ones", where=f"{path} and {other}")
        return content

    def preload(
        self, kernels: Iterable[str] | None = None, device: int | None = None, *, only: Only | None = None
    ) -> int:
        """Load every image that fits a device now, so that no launch loads one, for example during a graph capture.

        Args:
            kernels: names of kernels; None for all that have variants for the device.
            device: ordinal of the device; None for the current one.
            only: load only variants with this value, or one of these values, of an axis, constexpr or option:
                ``{"dtype": "bf16", "num_warps": [4, 8]}``. Kernels without an axis, constexpr or option of the name ignore it.

        Returns:
            The number of images that these kernels have for the device.

        Raises:
            ArgumentError: no variant of these kernels has a value of `only`, or an argument has a wrong type.
            NoMatchingVariantError: one of `kernels`, or every kernel, has no variant for the device.
            BundleError: an image differs from the one that was built.
            DriverError: the driver rejects an image.
        """
        if kernels is not None and (isinstance(kernels, str) or not hasattr(kernels, "__iter__")):
            raise ArgumentError(
                "expected the names of kernels, or None for all", got=typed(kernels), argument="kernels"
            )
        if kernels is None:
            known = [self.kernel(name) for name in self.kernels]
            # if nothing fits, raise the first error: after a preload, callers rely on launches that load nothing
            chosen = [kernel for kernel in known if kernel.fits(device)] or known[:1]
        else:
            chosen = [self.kernel(name) for name in kernels]
        if only is not None and chosen:
            from nojit.runtime.first_call.rows_to_load import check_only

            check_only([kernel.variants(device) for kernel in chosen], only, repr(self))
        return sum(kernel.load_variants(device, only) for kernel in chosen)

    def close(self) -> None:
        """Close the files. Loaded variants stay loaded and can be launched; others can no longer be loaded."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Bundle({counted(len(self._by_kernel), 'kernel')} in {', '.join(file.path for file in self.files)})"


def _open(place: str | os.PathLike[str] | BundleFile, accept: Accept | None) -> BundleFile:
    began_ns = perf_counter_ns()
    if isinstance(place, BundleFile):
        file = place
        file.authorize(accept)
    else:
        file = BundleFile(place, accept)
    emit("open", began_ns, bundle=file.id, detail=file.path)
    return file


def process_policy() -> Accept | None:
    """Return the check that refuses bundles that ``NOJIT_TRUST`` does not allow; None if it allows all.

    Raises:
        BundleTrustError: ``NOJIT_TRUST`` or the file of trusted keys is invalid.
    """
    policy = os.environ.get(TRUST)
    if policy is None or policy == "any":
        return None
    from nojit.runtime.trust.policy import accept_of

    return accept_of(policy, os.environ.get(TRUSTED_KEYS))


def _with_twins(files: tuple[BundleFile, ...], places: str, accept: Accept | None) -> tuple[BundleFile, ...]:
    """Replace bundles by their twins with line info, if ``NOJIT_DEBUG_INFO`` names any."""
    from nojit.runtime.discovery.debug_twins import with_twins

    return with_twins(files, places, accept)


def _newest(files: tuple[BundleFile, ...]) -> tuple[tuple[BundleFile, ...], tuple[tuple[str, str], ...]]:
    """Keep the newest version of each bundle of a folder and close the others; return both, the others with the reason."""
    if len({file.index.target.image_arch for file in files}) == len(files):
        return files, ()
    from nojit.runtime.discovery.versions import BundleVersion, newer_lies_beside, superseded

    older = superseded([BundleVersion.of(file) for file in files])
    kept = []
    for file in files:
        if file.path in older:
            file.close()
        else:
            kept.append(file)
    return tuple(kept), tuple([(path, newer_lies_beside(newer)) for path, newer in older.items()])


def _batch_invariant() -> bool:
    from nojit.runtime.tuning.batch_invariance import is_batch_invariant

    return is_batch_invariant()


def _overrides(places: str, bundles: Mapping[str, Sequence[ArchBundle]]) -> dict[str, dict[ArchBundle, TuningSource]]:
    """Read the tuned tables of ``NOJIT_TUNING``, which replace the bundles' own; return them by kernel and file."""
    from nojit.runtime.tuning.overrides import override_of, read_overrides

    overrides: dict[str, dict[ArchBundle, TuningSource]] = {}
    for kernel, tuned in read_overrides(places).items():
        for bundle in bundles.get(kernel, ()):
            override = override_of(tuned, bundle.table(kernel), bundle.images.file.index.target.arch)
            if override is not None:
                overrides.setdefault(kernel, {})[bundle] = override
    return overrides


def _merge(
    files: tuple[BundleFile, ...], *, first_wins: bool
) -> tuple[dict[str, tuple[ArchBundle, ...]], tuple[tuple[str, str], ...]]:
    """List the bundles of each kernel by its name, and the files with kernels that an earlier file provides, with reasons."""
    bundles: dict[str, tuple[ArchBundle, ...]] = {}
    # by unused file and the file that is used instead
    beaten: dict[tuple[str, str], list[str]] = {}
    for file in files:
        bundle = ArchBundle.of(Images(file))
        # one object for all kernels: the garbage collector should have few objects to count before a first launch
        alone = (bundle,)
        for kernel in file.kernels:
            known = bundles.get(kernel)
            if known is None:
                bundles[kernel] = alone
                continue
            rival = next((other for other in known if other.image_arch == bundle.image_arch), None)
            if rival is None:
                bundles[kernel] = (*known, bundle)
            elif first_wins:
                beaten.setdefault((file.path, rival.images.file.path), []).append(kernel)
            else:
                what = f"expected one bundle with kernel {kernel} for {bundle.image_arch}; move the other elsewhere"
                raise BundleError(what, got=f"{rival.images.file.path} and {file.path}")
    passed_over = tuple([(path, f"{', '.join(names)} of {used} comes first") for (path, used), names in beaten.items()])
    return bundles if len(files) == 1 else dict(sorted(bundles.items())), passed_over
