"""Find the operators' kernels: in bundles, or from a provider that a test installs.

Operators call `get` with a kernel's manifest name at every call, and launch the result. By default, `get` returns the
kernel from the first bundle for each arch that holds it, in the order of `nojit.runtime.discovery.discover.bundles_of_kernels`. `override`
installs another provider for the whole process, not for one thread, because autograd runs backward kernels on threads
of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from nojit.runtime.base.environment import TRUST, TRUSTED_KEYS
from nojit.runtime.base.wording import told
from nojit.runtime.errors import BundleError, KernelNotFoundError

if TYPE_CHECKING:
    from nojit.runtime.bundle.file import Accept, BundleFile
    from nojit.runtime.discovery.discover import Found
    from nojit.runtime.loader import Bundle

__all__ = [
    "CURRENT",
    "Kernel",
    "Provider",
    "Source",
    "devices",
    "get",
    "has",
    "is_batch_invariant",
    "is_built",
    "override",
    "rehearsal",
]


class Kernel(Protocol):
    """Interface of a kernel that can be launched; `nojit.runtime.Kernel` implements it."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Launch with the grid and the config that the bundle has."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return a function that launches over `grid`, as in Triton."""


Provider = Callable[[str], Kernel]
"""Function that returns the kernel with a given name, or raises `KernelNotFoundError`."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A provider, and the kernels that it has returned so far."""

    provider: Provider
    devices: frozenset[str]
    """Torch's names of the device types that the kernels run on, such as ``cuda``."""
    batch_invariant: bool | None = False
    """Whether results must not depend on the batch; None until the environment variable has been read."""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """Names of kernels that `has` did not find; it does not ask for them again."""
    rehearses: Source | None = None
    """For a rehearsal, the source under which its calls are cached; otherwise None."""

    def kernel(self, name: str) -> Kernel:
        """Return the kernel `name`; the first call asks the provider, later ones return the same kernel.

        Raises:
            KernelNotFoundError: the provider does not have it.
        """
        kernel = self.kernels.get(name)
        if kernel is None:
            # if two threads ask at once, the first to store wins and both get its kernel
            kernel = self.kernels.setdefault(name, self.provider(name))
        return kernel

    def has(self, name: str) -> bool:
        """Return whether the provider has the kernel `name`; it is asked once."""
        if name in self.absent:
            return False
        try:
            self.kernel(name)
        except KernelNotFoundError:
            self.absent.add(name)
        return name not in self.absent


def _from_bundles(name: str) -> Kernel:
    """Return the kernel `name` from the bundles at hand: for each arch, from the first bundle that holds it."""
    # import here: bundles open at the first launch, and a process that overrides the provider never opens any
    from nojit.runtime.discovery.discover import LIBRARY, operators_ask, remedy, survey

    found, problems, broken = survey(os.environ)
    if problems:
        raise problems[0]
    policy = os.environ.get(TRUST), os.environ.get(TRUSTED_KEYS)
    # the modification time makes a rebuilt file a new one
    files = tuple((one, one.path.stat().st_mtime_ns) for one in found)
    held, passed_over, accept = _bundles_of_kernels(files, tuple(map(str, broken)), policy)
    if name in held:
        holding = tuple(held[name].values())
        names: tuple[str, ...] = ()
        if accept is not None:
            for file in holding:
                file.authorize(accept)
            names = operators_ask(name, [file.index.name for file in holding])
        return _open(holding, names).kernel(name)
    what = "expected a bundle that holds the kernel: set NOJIT_BUNDLES, install a bundle wheel, or run nojit build"
    what += "".join(f"; passed over: {one}" for one in passed_over)
    if all(one.foreign for one in found):
        what += remedy(LIBRARY)
    return _missing(KernelNotFoundError(what, got=f"none with {name!r}"), name)


def _missing(error: KernelNotFoundError, name: str) -> Kernel:
    """Return a kernel that Triton's JIT compiles, in place of one that no bundle holds; or raise `error`.

    It raises `error` if ``NOJIT_MISS`` is ``error``.
    """
    from nojit.runtime.fallback.jit_functions import UnavailableError
    from nojit.runtime.fallback.policy import policy

    if policy() == "error":
        raise error
    from nojit.kernels.unbuilt import unbuilt

    try:
        return unbuilt(name)
    except UnavailableError as why:
        what = f"{error.what}; the JIT cannot make its calls: {why}"
        raise KernelNotFoundError(what, got=error.got) from why


@lru_cache(maxsize=4)
def _bundles_of_kernels(
    files: tuple[tuple[Found, int], ...], broken: tuple[str, ...], _policy: tuple[str | None, ...]
) -> tuple[dict[str, dict[str, BundleFile]], tuple[str, ...], Accept | None]:
    """Return the bundles that hold each kernel, by kernel name and arch; why others were skipped; and the trust policy.

    The reasons begin with `broken`. A bundle that was asked for by name must be intact: a damaged or refused one raises
    an error when it is loaded. A foreign bundle is skipped if it is damaged, refused, or older than one beside it.
    Bundles stay open, so that the launched bytes are the verified bytes.
    """
    from nojit.runtime.discovery.discover import bundles_of_kernels, serving
    from nojit.runtime.discovery.versions import BundleVersion, newer_lies_beside, superseded
    from nojit.runtime.loader import process_policy  # loads the binding
    from nojit.runtime.observe.events import log

    accept, bundles, passed_over = process_policy(), [], [*broken]
    for one, _ in files:
        try:
            file = one.opened()
            kernels: Iterable[str] = file.kernels
            if one.foreign and accept is not None:
                file.authorize(accept)
                kernels, refused = serving(file)
                passed_over += [f"{error.finding()}, of {one.origin}" for error in refused]
            bundles.append((file, one.foreign, file.index.target.image_arch, kernels))
        except (BundleError, OSError) as error:
            if not one.foreign:
                raise
            said = error.finding() if isinstance(error, BundleError) else told(error)
            passed_over.append(f"{said}, of {one.origin}")
    older = superseded([BundleVersion.of(file) for file, *_ in bundles])
    for file, *_ in bundles:
        if file.path in older:
            passed_over.append(f"{file.path}: {newer_lies_beside(older[file.path])}")
            file.close()
    for reason in passed_over:
        log(30, f"passed over: {reason}")
    return bundles_of_kernels(one for one in bundles if one[0].path not in older), tuple(passed_over), accept


@cache
def _open(files: tuple[BundleFile, ...], names: tuple[str, ...]) -> Bundle:
    """Open several files, bundles for different archs, as one bundle; the result is cached."""
    from nojit.runtime.loader import Bundle  # loads the binding

    return Bundle([file.duplicate() for file in files], names=names)


class _Current:
    """The current source. A single assignment replaces it, so that readers see either the old or the new source."""

    source = Source(_from_bundles, frozenset({"cuda"}), batch_invariant=None)


CURRENT: Final = _Current()
"""The current source of the process; every call reads its `source`."""


def get(name: str) -> Kernel:
    """Return the kernel `name` from the current source.

    Raises:
        KernelNotFoundError: no bundle at hand holds the kernel.
        BundleError: a bundle that ``NOJIT_BUNDLES`` names, or one of the library or the checkout, is missing or
            damaged.
        BundleTrustError: ``NOJIT_TRUST`` refuses a bundle that holds the kernel.
    """
    return CURRENT.source.kernel(name)


def has(name: str) -> bool:
    """Return whether the current source has the kernel `name`.

    Operators ask for kernels that only make a call faster: a bundle may lack them.

    Raises:
        BundleError, BundleTrustError: as `get`.
    """
    return CURRENT.source.has(name)


def is_built(*names: str) -> bool:
    """Return whether the current source has kernels with all their tuned configs: none of them is left to Triton's JIT."""
    return all(has(name) and not _is_unbuilt(get(name)) for name in names)


def _is_unbuilt(kernel: Kernel) -> bool:
    """Return whether Triton's JIT compiles all calls of a kernel: `nojit.kernels.unbuilt.Unbuilt`."""
    return getattr(kernel, "is_unbuilt", False)


def devices() -> frozenset[str]:
    """Return torch's names of the device types that the current source's kernels run on."""
    return CURRENT.source.devices


def is_batch_invariant() -> bool:
    """Return whether results must not depend on the batch; operators then choose kernels and splits independently of it.

    Raises:
        SettingError: ``NOJIT_BATCH_INVARIANT`` is neither 0 nor 1.
    """
    chosen = CURRENT.source.batch_invariant
    return _is_set_in_the_environment() if chosen is None else chosen


@cache
def _is_set_in_the_environment() -> bool:
    from nojit.runtime.tuning.batch_invariance import is_batch_invariant as read

    return read()


@contextmanager
def override(
    provider: Provider, *, devices: frozenset[str] = frozenset({"cpu"}), batch_invariant: bool = False
) -> Iterator[None]:
    """Take kernels for tensors on `devices` from `provider` until the block ends, in the whole process.

    Args:
        provider: returns the kernel with a given name.
        devices: torch's names of the device types that its kernels run on.
        batch_invariant: whether results must not depend on the batch.

    Raises:
        ValueError: `devices` is empty.
    """
    if not devices:
        raise ValueError("devices: expected at least one device type, got none")
    before = CURRENT.source
    CURRENT.source = Source(provider, devices, batch_invariant)
    try:
        yield
    finally:
        CURRENT.source = before


class _WarmupKernel:
    """A kernel for rehearsals: calls choose and load a variant, but launch nothing."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.is_unbuilt = _is_unbuilt(kernel)

    def __call__(self, *args: Any, **constexprs: Any) -> None:
        self._kernel.warmup(*args, **constexprs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self


@contextmanager
def rehearsal() -> Iterator[None]:
    """Run operator calls without their launches until the block ends, to prepare for real calls.

    The calls choose and load variants, allocate results and fill the caches. The first real call with operands of the
    same shapes and strides is then as fast as any later one. Results hold undefined values. Kernels must have a
    ``warmup``, as kernels from bundles do. The block affects the whole process, as `override` does: no other thread may
    launch meanwhile.
    """
    before = CURRENT.source
    source = before.rehearses or before

    def rehearsed(name: str) -> Kernel:
        return _WarmupKernel(source.kernel(name))

    CURRENT.source = Source(rehearsed, source.devices, source.batch_invariant, rehearses=source)
    try:
        yield
    finally:
        CURRENT.source = before
