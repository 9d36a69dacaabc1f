"""The bundles of one kernel: which of them serves a device, its variants there, and their tuning."""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.base.wording import typed
from nojit.runtime.errors import ArgumentError, BundleError
from nojit.runtime.first_call.arch_bundle import ArchBundle, best_bundle, serving_bundle
from nojit.runtime.observe.events import log
from nojit.runtime.target import parse_image_arch, spell_arch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nojit.runtime.table.table import KernelTable
    from nojit.runtime.target import ImageArch
    from nojit.runtime.tuning.lookup import Lookup, Ordering
    from nojit.runtime.tuning.overrides import TuningSource

__all__ = ["KernelBundles"]


class KernelBundles:
    """The bundles that hold a kernel. Each device's bundle is found once.

    Attributes:
        kernel: the kernel's name.
        bundles: the bundle files that hold it, one for each arch.
        likely: the bundle that a first launch will probably read.
        first_table: the variants there; those of all bundles have the same params.
    """

    def __init__(
        self,
        kernel: str,
        bundles: Sequence[ArchBundle],
        overrides: Mapping[ArchBundle, TuningSource] | None,
        *,
        batch_invariant: bool,
    ) -> None:
        self.kernel = kernel
        self.bundles = tuple(bundles)
        self.likely = bundles[0] if len(bundles) == 1 else _likely(bundles)
        self.first_table = self.likely.table(kernel)
        self._overrides = dict(overrides or {})
        self._batch_invariant = batch_invariant
        self._found: dict[int, tuple[ArchBundle, KernelTable]] = {}
        self._lookups: dict[int | ImageArch, Lookup] = {}

    def of(self, device: int) -> tuple[ArchBundle, KernelTable]:
        """Return the bundle for a device and its variants; found once."""
        # checked every time: after a fork it raises, and a lock that was held in the parent is never released
        capability = _core.device_capability(device)
        found = self._found.get(device)
        if found is None:
            bundle = self.bundle_for(capability)
            found = self._found[device] = (bundle, self.table(bundle))
            for other in self.bundles:
                if other is not bundle:
                    fits = other.image_arch.runs_on(capability)
                    reason = f"{bundle} fits better" if fits else f"the device is {spell_arch(capability)}"
                    log(10, f"passed over {other} kernel={self.kernel} device={device}: {reason}")
        return found

    def ordinal(self, device: int | None) -> int:
        """Return a device's ordinal; for None, the current device's.

        Raises:
            ArgumentError: `device` is not an ordinal.
        """
        if device is None:
            return _core.current_device()
        # the driver refuses all other invalid ordinals
        if type(device) is not int or not -(1 << 31) <= device < 1 << 31:
            what = "expected the ordinal of a device, or None for the current one"
            raise ArgumentError(what, got=typed(device), where=f"kernel {self.kernel}", argument="device")
        return device

    def bundle_for(self, capability: int) -> ArchBundle:
        """Return the bundle whose images fit a device best.

        Raises:
            NoMatchingVariantError: none runs there.
        """
        return serving_bundle(self.bundles, capability, self.kernel)

    def capability(self, arch: str | None, device: int | None) -> int:
        """Return the compute capability that `arch` names, or else that of a device; that of the only bundle without either.

        Raises:
            ArgumentError: `arch` is no arch, or `device` no ordinal.
        """
        if arch is not None:
            try:
                # an image's arch, such as sm_90a, stands for its target
                return parse_image_arch(str(arch)).number
            except ValueError:
                what = "expected an arch such as sm_90 or gfx942"
                raise ArgumentError(what, got=repr(arch), where=f"kernel {self.kernel}", argument="arch") from None
        if device is None and len(self.bundles) == 1:
            return self.bundles[0].image_arch.number
        return _core.device_capability(self.ordinal(device))

    def table(self, bundle: ArchBundle) -> KernelTable:
        """Return the variants of a bundle.

        Raises:
            BundleError: their params differ from those of the other bundles.
        """
        if bundle is self.likely:
            return self.first_table
        table = bundle.table(self.kernel)
        if table.params != self.first_table.params:
            raise BundleError(
                f"expected kernel {self.kernel} to have the same params in every bundle; rebuild the bundles",
                got=f"others in {bundle}",
                where=str(self.bundles[0]),
            )
        return table

    def lookup(self, bundle: ArchBundle, table: KernelTable, device: int | None) -> Lookup | None:
        """Return the kernel's tuning for a device; without a device, for the first measured one."""
        place = bundle.image_arch if device is None else device
        known, tuning = self._lookups.get(place), table.tuning
        if known is not None or (tuning is None and not self._overrides and not self._batch_invariant):
            return known
        origins: Sequence[str] = [bundle.images.file.path] * (len(tuning.tables) if tuning else 0)
        if self._overrides and (override := self._overrides.get(bundle)):
            tuning, origins = override.tuning, override.origins
        if self._batch_invariant:
            from nojit.runtime.tuning.batch_invariance import settled

            tuning = settled(tuning, table, spell_arch(bundle.arch))
            origins = origins or [bundle.images.file.path]
        if tuning is None:
            return None
        from nojit.runtime.tuning.lookup import lookup_of

        return self._lookups.setdefault(place, lookup_of(tuning, table, origins, device))

    def ordering(self, bundle: ArchBundle, table: KernelTable, device: int) -> Ordering | int | None:
        """Return how the engine ranks the variants for a device: by the table's own tuning, by another one, or by none."""
        if not self._overrides and not self._batch_invariant:
            return device
        lookup = self.lookup(bundle, table, device)
        return None if lookup is None or lookup.table is None else lookup.ordering(table)

    def running_on(self, capability: int) -> list[ArchBundle]:
        """Return the bundles with images that run on a device."""
        return [bundle for bundle in self.bundles if bundle.image_arch.runs_on(capability)]

    def nearest(self, capability: int) -> ArchBundle:
        """Return the bundle whose images fit a device best; if none runs there, that of the nearest arch."""
        if self.running_on(capability):
            return self.bundle_for(capability)
        return min(self.bundles, key=lambda bundle: abs(bundle.image_arch.number - capability))


def _likely(bundles: Sequence[ArchBundle]) -> ArchBundle:
    """Return the bundle that a first launch will probably read, so that only one is read; all have the same params."""
    capability = _core.running_capability()
    if not capability:
        return bundles[0]
    return best_bundle(bundles, capability) or bundles[0]
