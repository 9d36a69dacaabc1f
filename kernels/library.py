"""Where operators get their kernels from: the bundles at hand, or a provider that tests put in their place.

An operator asks `get` for a kernel by its manifest name at every call and launches what it gets. By default that is a
kernel of the first bundle per arch that holds it, as `nojit.runtime.discover.holders` has it. `override` swaps in another
provider for the whole process (not for a thread: autograd calls backward kernels from threads of its own).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from nojit.runtime.errors import BundleError, KernelNotFoundError, told

if TYPE_CHECKING:
    from nojit.runtime.bundle import Accept, BundleFile
    from nojit.runtime.discover import Found
    from nojit.runtime.loader import Bundle

__all__ = ["CURRENT", "Kernel", "Provider", "Source", "devices", "get", "is_batch_invariant", "override", "rehearsal"]


class Kernel(Protocol):
    """A kernel that can be launched; `nojit.runtime.Kernel` is one."""

    def __call__(self, *args: Any, **constexprs: Any) -> Any:
        """Launch with the grid and the config that the bundle knows."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return the launch over `grid`, Triton's way."""


Provider = Callable[[str], Kernel]
"""Gives the kernel of a name, or raises `KernelNotFoundError`."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A provider, and what it gave so far."""

    provider: Provider
    devices: frozenset[str]
    """Device types, in torch's words, that its kernels run on."""
    batch_invariant: bool | None = False
    """Whether results must not depend on the batch; None until the environment is asked, once."""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    rehearses: Source | None = None
    """The source that calls of this one are remembered for."""

    def kernel(self, name: str) -> Kernel:
        """Return the kernel `name`, asking the provider once and remembering its answer.

        Raises:
            KernelNotFoundError: it has none such.
        """
        kernel = self.kernels.get(name)
        if kernel is None:
            # of two threads that ask at once the first to store wins, and both get its kernel
            kernel = self.kernels.setdefault(name, self.provider(name))
        return kernel


def _from_bundles(name: str) -> Kernel:
    """Give the kernel `name` from the bundles at hand; for each arch, the first bundle that holds it."""
    # opening bundles waits for the first launch, and a process that overrides the provider needs none of it
    from nojit.runtime.discover import LIBRARY, operators_ask, remedy, survey  # noqa: PLC0415

    found, problems, broken = survey(os.environ)
    if problems:
        raise problems[0]
    policy = os.environ.get("NOJIT_TRUST"), os.environ.get("NOJIT_TRUSTED_KEYS")
    # a file that was built anew is another
    files = tuple((one, one.path.stat().st_mtime_ns) for one in found)
    held, passed_over, accept = _holders(files, tuple(map(str, broken)), policy)
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
    """Give a kernel that no bundle holds, for Triton's JIT to make its calls, or raise, as ``NOJIT_MISS`` says."""
    from nojit.runtime.jit import UnavailableError, policy  # noqa: PLC0415 - as above

    if policy() == "error":
        raise error
    from nojit.kernels.unbuilt import unbuilt  # noqa: PLC0415 - likewise

    try:
        return unbuilt(name)
    except UnavailableError as why:
        what = f"{error.what}; the JIT cannot make its calls: {why}"
        raise KernelNotFoundError(what, got=error.got) from why


@lru_cache(maxsize=4)
def _holders(
    files: tuple[tuple[Found, int], ...], broken: tuple[str, ...], _policy: tuple[str | None, ...]
) -> tuple[dict[str, dict[str, BundleFile]], tuple[str, ...], Accept | None]:
    """Say for each kernel which bundles hold it by arch, which foreign ones are passed over and why, `broken` first, and the policy.

    What operators ask for by name must be whole, and is refused, if it is, when it is loaded. A foreign one that is damaged or
    refused stands in nobody's way, nor does one that a newer version lies beside. The bundles stay open: what is launched is what was looked at.
    """
    from nojit.runtime.discover import holders, serving  # noqa: PLC0415 - as above
    from nojit.runtime.events import log  # noqa: PLC0415 - likewise
    from nojit.runtime.loader import process_policy  # noqa: PLC0415 - loads the C core
    from nojit.runtime.versions import newer_lies_beside, superseded  # noqa: PLC0415 - likewise

    accept, bundles, passed_over = process_policy(), [], [*broken]
    for one, _ in files:
        try:
            file = one.opened()
            kernels: Iterable[str] = file.kernels
            if one.foreign and accept is not None:
                file.authorize(accept)
                kernels, refused = serving(file)
                passed_over += [f"{told(error)}, of {one.origin}" for error in refused]
            bundles.append((file, one.foreign, file.index.target.image_arch, kernels))
        except (BundleError, OSError) as error:
            if not one.foreign:
                raise
            passed_over.append(f"{told(error)}, of {one.origin}")
    older = superseded([file.release for file, *_ in bundles])
    for file, *_ in bundles:
        if file.path in older:
            passed_over.append(f"{file.path}: {newer_lies_beside(older[file.path])}")
            file.close()
    for said in passed_over:
        log(30, f"passed over: {said}")
    return holders(one for one in bundles if one[0].path not in older), tuple(passed_over), accept


@cache
def _open(files: tuple[BundleFile, ...], names: tuple[str, ...]) -> Bundle:
    """Open bundles of different archs as one, once."""
    from nojit.runtime.loader import Bundle  # noqa: PLC0415 - loads the C core

    return Bundle([file.duplicate() for file in files], names=names)


class _Current:
    """The source in use; replaced as a whole, so that a reader sees one or the other."""

    source = Source(_from_bundles, frozenset({"cuda"}), batch_invariant=None)


CURRENT: Final = _Current()
"""Whose `source` every call asks."""


def get(name: str) -> Kernel:
    """Return the kernel `name` of the source in use.

    Raises:
        KernelNotFoundError: no bundle at hand holds it.
        BundleError: what ``NOJIT_BUNDLES`` names, a bundle of the library or the checkout's, is missing or damaged.
        BundleTrustError: ``NOJIT_TRUST`` refuses one that holds it.
    """
    return CURRENT.source.kernel(name)


def devices() -> frozenset[str]:
    """Return the device types that kernels run on at present."""
    return CURRENT.source.devices


def is_batch_invariant() -> bool:
    """Say whether results must not depend on the batch: what operators ask where they would choose, or cut sums, by it.

    Raises:
        SettingError: ``NOJIT_BATCH_INVARIANT`` is neither 0 nor 1.
    """
    said = CURRENT.source.batch_invariant
    return _said_by_the_environment() if said is None else said


@cache
def _said_by_the_environment() -> bool:
    from nojit.runtime.invariance import is_batch_invariant as said  # noqa: PLC0415 - as above

    return said()


@contextmanager
def override(
    provider: Provider, *, devices: frozenset[str] = frozenset({"cpu"}), batch_invariant: bool = False
) -> Iterator[None]:
    """Take kernels from `provider`, for tensors on `devices`, until the block ends.

    Args:
        provider: gives kernels by name.
        devices: types of devices, in torch's words, that its kernels run on.
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


class _Rehearsed:
    """A kernel whose calls do all that comes before a launch."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, *args: Any, **constexprs: Any) -> None:
        self._kernel.warmup(*args, **constexprs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self


@contextmanager
def rehearsal() -> Iterator[None]:
    """Have calls of operators do all that comes before their launches, and launch nothing, until the block ends.

    Variants are chosen and loaded, results allocated, and calls remembered, so that the first one like them, operands of the
    same shapes and strides, is as fast as any later one. What results hold means nothing. Kernels must have a ``warmup``, as
    those of bundles have. It is for the whole process, as `override` is: nobody else may launch meanwhile.
    """
    before = CURRENT.source
    source = before.rehearses or before

    def rehearsed(name: str) -> Kernel:
        return _Rehearsed(source.kernel(name))

    CURRENT.source = Source(rehearsed, source.devices, source.batch_invariant, rehearses=source)
    try:
        yield
    finally:
        CURRENT.source = before
