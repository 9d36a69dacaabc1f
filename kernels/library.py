"""Where operators get their kernels from: the bundles at hand, or a provider that tests put in their place.

An operator asks `get` for a kernel by its manifest name at every call and launches what it gets. By default that is a
kernel of the first bundle that holds it, in the order of `nojit.runtime.discover`. `override` swaps in another provider
for the whole process (not for a thread: autograd calls backward kernels from threads of its own).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from nojit.runtime.errors import KernelNotFoundError

__all__ = ["Kernel", "Provider", "devices", "get", "override"]


class Kernel(Protocol):
    """A kernel that can be launched; `nojit.runtime.Kernel` is one."""

    def __call__(self, *args: Any, **constexprs: Any) -> Any:
        """Launch with the grid and the config that the bundle knows."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return the launch over `grid`, Triton's way."""


Provider = Callable[[str], Kernel]
"""Gives the kernel of a name, or raises `KernelNotFoundError`."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A provider, and what it gave so far."""

    provider: Provider
    devices: frozenset[str]
    """Device types, in torch's words, that its kernels run on."""
    kernels: dict[str, Kernel] = field(default_factory=dict)


def _from_bundles(name: str) -> Kernel:
    """Give the kernel `name` of the first bundle at hand that holds it."""
    from nojit.runtime import discover  # noqa: PLC0415 - reading the bundles waits for the first launch

    for bundle in discover.bundles():
        try:
            kernel: Kernel = bundle.kernel(name)
        except KernelNotFoundError:
            continue
        return kernel
    raise KernelNotFoundError(
        f"expected a bundle that holds the kernel {name!r}: set NOJIT_BUNDLES, install a bundle wheel, or build one"
    )


class _Current:
    """The source in use; replaced as a whole, so that a reader sees one or the other."""

    source = _Source(_from_bundles, frozenset({"cuda"}))


_CURRENT: Final = _Current()


def get(name: str) -> Kernel:
    """Return the kernel `name`, asking the provider once and remembering its answer.

    Raises:
        KernelNotFoundError: no bundle at hand holds it.
    """
    kernels = _CURRENT.source.kernels
    kernel = kernels.get(name)
    if kernel is None:
        # of two threads that ask at once the first to store wins, and both get its kernel
        kernel = kernels.setdefault(name, _CURRENT.source.provider(name))
    return kernel


def devices() -> frozenset[str]:
    """Return the device types that kernels run on at present."""
    return _CURRENT.source.devices


@contextmanager
def override(provider: Provider, *, devices: frozenset[str] = frozenset({"cpu"})) -> Iterator[None]:
    """Take kernels from `provider`, for tensors on `devices`, until the block ends.

    Raises:
        ValueError: `devices` is empty.
    """
    if not devices:
        raise ValueError("devices: expected at least one device type, got none")
    before = _CURRENT.source
    _CURRENT.source = _Source(provider, devices)
    try:
        yield
    finally:
        _CURRENT.source = before
